"""One work of one peer, as a whole process. Prints what it did, for a look at whether
all contenders did the same.

    peers.py deltars merge TABLE FILE      one batch
    peers.py deltars merges TABLE FILE EACH COUNT   batches of EACH rows, the first COUNT of the file
    peers.py deltars cdf TABLE             the change feed from version 10 on
    peers.py deltars open TABLE ID         files that may hold the key
    peers.py deltars scan|count|filter TABLE [LOW HIGH]
    peers.py deltars append TABLE FILE     rows of an Arrow IPC file into a new table
    peers.py sail merge TABLE FILE
    peers.py duckdb scan|count|filter DIR [LOW HIGH]   over the Parquet files alone
"""

import os
import sys

COLUMNS = ["customer_id", "status", "city", "amount", "quantity", "note", "discount", "updated_at", "seq"]


def deltars(work, path, *args):
    import pyarrow as pa
    import pyarrow.parquet as pq
    from deltalake import DeltaTable, QueryBuilder, write_deltalake

    def merge(table, batch):
        r = (DeltaTable(table).merge(batch, "t.id = s.id", source_alias="s", target_alias="t")
             .when_matched_delete("s.op = 'D'")
             .when_matched_update({c: f"s.{c}" for c in COLUMNS}, "s.seq > t.seq")
             .when_not_matched_insert({c: f"s.{c}" for c in ["id"] + COLUMNS}, "s.op <> 'D'")
             .execute())
        return {k: v for k, v in r.items() if k.startswith("num_target")}

    def query(sql):
        return QueryBuilder().register("t", DeltaTable(path)).execute(sql).read_all()

    if work == "merge":
        return merge(path, pq.read_table(args[0]))
    if work == "merges":
        batches, each = pq.read_table(args[0]), int(args[1])
        for i in range(int(args[2])):
            merge(path, batches.slice(i * each, each))
        return f"{args[2]} batches"
    if work == "cdf":
        return sum(b.num_rows for b in DeltaTable(path).load_cdf(starting_version=10))
    if work == "open":
        import pyarrow.compute as pc
        files = pa.table(DeltaTable(path).get_add_actions(flatten=True))
        key = int(args[0])
        hits = files.filter((pc.field("min.id") <= key) & (pc.field("max.id") >= key))
        return files.num_rows, hits.num_rows
    if work == "scan":
        return query("select * from t").num_rows
    if work == "count":
        return query("select count(*) n from t")["n"][0]
    if work == "filter":
        return query(f"select * from t where id >= {args[0]} and id <= {args[1]}").num_rows
    if work == "append":
        t = pa.ipc.open_file(pa.memory_map(args[0]))
        reader = pa.RecordBatchReader.from_batches(t.schema, (t.get_batch(i) for i in range(t.num_record_batches)))
        write_deltalake(path, reader)
        return DeltaTable(path).count()


def sail(work, path, file):
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession
    server = SparkConnectServer()
    server.start()
    _, port = server.listening_address
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    spark.sql(f"create table t using delta location '{path}'")
    spark.read.parquet(file).createOrReplaceTempView("s")
    sets = ", ".join(f"t.{c} = s.{c}" for c in COLUMNS)
    cols = ", ".join(["id"] + COLUMNS)
    vals = ", ".join(f"s.{c}" for c in ["id"] + COLUMNS)
    spark.sql(f"""merge into t using s on t.id = s.id
        when matched and s.op = 'D' then delete
        when matched and s.seq > t.seq then update set {sets}
        when not matched and s.op <> 'D' then insert ({cols}) values ({vals})""").collect()
    return "merged"


def duckdb(work, path, *args):
    import duckdb as d
    t = f"read_parquet('{path}/*.parquet')"
    if work == "scan":
        return d.sql(f"select * from {t}").to_arrow_table().num_rows
    if work == "count":
        return d.sql(f"select count(*) from {t}").fetchall()[0][0]
    return d.sql(f"select * from {t} where id between {args[0]} and {args[1]}").to_arrow_table().num_rows


if __name__ == "__main__":
    print({"deltars": deltars, "sail": sail, "duckdb": duckdb}[sys.argv[1]](*sys.argv[2:]), flush=True)
    os._exit(0)  # the threads of Sail's server end late or never
