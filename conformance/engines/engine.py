"""One engine of another make, driven over a pipe.

    engine.py deltars
    engine.py spark JARS_DIR

Reads one JSON request a line on stdin, {"op": .., ..}, and answers each with one
line on stdout: {"result": ..} or {"error": {"class": .., "condition": .., "message": ..}}.
Rows travel as JSON texts in the row form of the command line: exact integers and
decimals, six fraction digits in timestamps, binary as base64.
"""

import base64
import glob
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

# Whatever libraries and the JVM print must not come between the answers.
answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet  # noqa: E402

DAY = 86_400_000_000  # microseconds


def civil(days):
    """The proleptic Gregorian date of a day number; datetime ends at year 9999."""
    z = days + 719468
    era, doe = divmod(z, 146097)
    yoe = (doe - doe // 1460 + doe // 36524 - doe // 146096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    mp = (5 * doy + 2) // 153
    month = mp + 3 if mp < 10 else mp - 9
    return yoe + era * 400 + (month <= 2), month, doy - (153 * mp + 2) // 5 + 1


def day_number(year, month, day):
    year -= month <= 2
    era, yoe = divmod(year, 400)
    doy = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + yoe * 365 + yoe // 4 - yoe // 100 + doy - 719468


def date_text(days):
    y, m, d = civil(days)
    sign = "-" if y < 0 else "+" if y > 9999 else ""
    return f"{sign}{abs(y):04d}-{m:02d}-{d:02d}"


def timestamp_text(micros, zoned):
    days, rest = divmod(micros, DAY)
    s, us = divmod(rest, 1_000_000)
    return f"{date_text(days)}T{s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}.{us:06d}{'Z' if zoned else ''}"


def date_value(text):
    sign, body = (text[0], text[1:]) if text[0] in "+-" else ("", text)
    y, m, d = body.split("-")
    return day_number(-int(y) if sign == "-" else int(y), int(m), int(d))


def timestamp_value(text):
    date, time = text.removesuffix("Z").split("T")
    h, m, s = time.split(":")
    s, _, frac = s.partition(".")
    return date_value(date) * DAY + (int(h) * 3600 + int(m) * 60 + int(s)) * 1_000_000 + int((frac + "000000")[:6])


def float_text(v):
    if v != v:
        return '"NaN"'
    if v in (float("inf"), float("-inf")):
        return '"Infinity"' if v > 0 else '"-Infinity"'
    return str(v)


def quote(s):
    return json.dumps(s, ensure_ascii=False)


def texts(a):
    """The JSON text of every element of an Arrow array."""
    if isinstance(a, pa.ChunkedArray):
        return [x for c in a.chunks for x in texts(c)]
    t = a.type
    if pa.types.is_dictionary(t):
        return texts(a.dictionary_decode())
    if isinstance(a, pa.ExtensionArray):
        return texts(a.storage)
    if pa.types.is_null(t):
        return ["null"] * len(a)
    nulls = a.is_null().to_pylist()

    def each(values, f):
        return ["null" if n else f(v) for n, v in zip(nulls, values)]

    if pa.types.is_boolean(t):
        return each(a.to_pylist(), lambda v: "true" if v else "false")
    if pa.types.is_integer(t):
        return each(a.to_pylist(), str)
    if pa.types.is_float32(t):
        return each(a.to_numpy(zero_copy_only=False), lambda v: float_text(np.float32(v)))
    if pa.types.is_float64(t):
        return each(a.to_pylist(), float_text)
    if pa.types.is_decimal(t):
        return each(a.to_pylist(), lambda v: format(v, "f"))
    if pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t):
        return each(a.to_pylist(), quote)
    if pa.types.is_binary(t) or pa.types.is_large_binary(t) or pa.types.is_binary_view(t) or pa.types.is_fixed_size_binary(t):
        return each(a.to_pylist(), lambda v: quote(base64.b64encode(v).decode()))
    if pa.types.is_date32(t):
        return each(a.cast(pa.int32()).to_pylist(), lambda v: quote(date_text(v)))
    if pa.types.is_timestamp(t):
        times, over = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}[t.unit]
        return each(a.cast(pa.int64()).to_pylist(), lambda v: quote(timestamp_text(v * times // over, t.tz is not None)))
    if pa.types.is_struct(t):
        fields = [(t.field(i).name, a.field(i)) for i in range(t.num_fields)]
        return ["null" if n else r for n, r in zip(nulls, row_texts(fields, len(a)))]
    if pa.types.is_map(t):
        return each([None if n else a[i].values for i, n in enumerate(nulls)], lambda v: map_text(v, t.key_type))
    if pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t):
        flat, lengths, at, out = texts(a.flatten()), a.value_lengths().to_pylist(), 0, []
        for n, length in zip(nulls, lengths):
            if n:
                out.append("null")
                continue
            out.append("[" + ",".join(flat[at:at + length]) + "]")
            at += length
        return out
    raise TypeError(f"no JSON form for Arrow type {t}")


def map_text(entries, key_type):
    keys, values = texts(entries.field(0)), texts(entries.field(1))
    if pa.types.is_string(key_type) or pa.types.is_large_string(key_type) or pa.types.is_string_view(key_type):
        return "{" + ",".join(f"{k}:{v}" for k, v in zip(keys, values)) + "}"
    return "[" + ",".join(f'{{"key":{k},"value":{v}}}' for k, v in zip(keys, values)) + "]"


def row_texts(fields, n):
    names = [quote(name) for name, _ in fields]
    columns = [texts(a) for _, a in fields]
    return ["{" + ",".join(f"{name}:{c[i]}" for name, c in zip(names, columns)) + "}" for i in range(n)]


def table_rows(table, drop=()):
    table = pa.table(table)
    return row_texts([(n, table.column(i)) for i, n in enumerate(table.column_names) if n not in drop], table.num_rows)


def arrow_type(t):
    """The Arrow type of a type in the JSON form of a Delta schema."""
    if isinstance(t, dict):
        if t["type"] == "struct":
            return pa.struct([arrow_field(f) for f in t["fields"]])
        if t["type"] == "array":
            return pa.list_(pa.field("element", arrow_type(t["elementType"]), t["containsNull"]))
        if t["type"] == "map":
            return pa.map_(arrow_type(t["keyType"]), pa.field("value", arrow_type(t["valueType"]), t["valueContainsNull"]))
        raise TypeError(f"no Arrow type for {t['type']}")
    if t.startswith("decimal("):
        p, s = t[8:-1].split(",")
        return pa.decimal128(int(p), int(s))
    return {
        "string": pa.string(), "long": pa.int64(), "integer": pa.int32(), "short": pa.int16(), "byte": pa.int8(),
        "float": pa.float32(), "double": pa.float64(), "boolean": pa.bool_(), "binary": pa.binary(), "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
    }[t]


def arrow_field(f):
    return pa.field(f["name"], arrow_type(f["type"]), f["nullable"])


def value(v, t):
    """The Python value that pyarrow takes for a JSON value of an Arrow type."""
    if v is None:
        return None
    if pa.types.is_decimal(t):
        return Decimal(v)
    if pa.types.is_floating(t):
        return float(v)
    if pa.types.is_binary(t):
        return base64.b64decode(v)
    if pa.types.is_date32(t):
        return date_value(v)
    if pa.types.is_timestamp(t):
        return timestamp_value(v)
    if pa.types.is_struct(t):
        return {t.field(i).name: value(v.get(t.field(i).name), t.field(i).type) for i in range(t.num_fields)}
    if pa.types.is_list(t):
        return [value(x, t.value_type) for x in v]
    if pa.types.is_map(t):
        pairs = v.items() if isinstance(v, dict) else ((e["key"], e["value"]) for e in v)
        return [(value(k, t.key_type), value(x, t.item_type)) for k, x in pairs]
    return v


def rows_table(rows, schema_json):
    """An Arrow table of rows in their JSON form."""
    schema = pa.schema([arrow_field(f) for f in json.loads(schema_json)["fields"]])
    parsed = [json.loads(r, parse_float=Decimal) for r in rows]
    return pa.table([pa.array([value(r.get(f.name), f.type) for r in parsed], f.type) for f in schema], schema=schema)


HIDDEN_TIME = ("_commit_timestamp",)


class DeltaRS:
    def __init__(self):
        import deltalake
        self.dl = deltalake

    def versions(self):
        return {"deltalake": self.dl.__version__, "pyarrow": pa.__version__}

    def table(self, path, version=None):
        return self.dl.DeltaTable(path, version=version)

    def rows(self, path, version=None):
        return table_rows(self.table(path, version).scan())

    def changes(self, path, start, end, timestamps=False):
        got = self.table(path).load_cdf(starting_version=start, ending_version=end)
        return table_rows(got, () if timestamps else HIDDEN_TIME)

    def sql(self, text, tables):
        q = self.dl.QueryBuilder()
        for name, path in tables.items():
            q = q.register(name, self.table(path))
        return table_rows(q.execute(text))

    def schema(self, path, version=None):
        return self.table(path, version).schema().to_json()

    def version(self, path):
        return self.table(path).version()

    def create(self, path, schema, partition_by=(), properties=None):
        self.dl.DeltaTable.create(path, self.dl.Schema.from_json(schema), partition_by=list(partition_by), configuration=properties or {})

    def append(self, path, rows, schema=None, overwrite=False):
        data = rows_table(rows, schema or self.schema(path))
        self.dl.write_deltalake(path, data, mode="overwrite" if overwrite else "append")

    def update(self, path, set, where=None):
        return self.table(path).update(updates=set, predicate=where)

    def delete(self, path, where=None):
        return self.table(path).delete(where)

    def merge(self, path, rows, on, schema=None, delete_when=None, update=True, insert=True):
        m = self.table(path).merge(rows_table(rows, schema or self.schema(path)), on, source_alias="s", target_alias="t")
        if delete_when:
            m = m.when_matched_delete(delete_when)
        if update:
            m = m.when_matched_update_all()
        if insert:
            m = m.when_not_matched_insert_all()
        return m.execute()

    def optimize(self, path):
        return self.table(path).optimize.compact()

    def restore(self, path, version):
        return self.table(path).restore(version)

    def vacuum(self, path, hours):
        return self.table(path).vacuum(hours, dry_run=False, enforce_retention_duration=False)

    def checkpoint(self, path):
        self.table(path).create_checkpoint()


class Spark:
    def __init__(self, jars):
        import pyspark
        from pyspark.sql import SparkSession
        from pyspark.sql.types import StructType
        self.pyspark, self.StructType = pyspark, StructType
        work = os.environ["SLUICE_ENGINE_TMP"]
        conf = {
            "spark.jars": ",".join(sorted(glob.glob(os.path.join(jars, "*.jar")))),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.driver.memory": "4g",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
            "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
            "spark.databricks.delta.retentionDurationCheck.enabled": "false",
            "spark.sql.warehouse.dir": os.path.join(work, "warehouse"),
            "spark.local.dir": work,
            "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC -Djava.io.tmpdir={work}",
        }
        b = SparkSession.builder.master("local[2]").appName("sluice-conformance")
        for k, v in conf.items():
            b = b.config(k, v)
        self.spark = b.getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")

    def versions(self):
        jars = self.spark.conf.get("spark.jars")
        return {"pyspark": self.spark.version, "jars": sorted(os.path.basename(j) for j in jars.split(","))}

    @staticmethod
    def name(path):
        return "delta.`" + path.replace("`", "``") + "`"

    def frame(self, path, version=None):
        r = self.spark.read.format("delta")
        if version is not None:
            r = r.option("versionAsOf", version)
        return r.load(path)

    def rows(self, path, version=None):
        return table_rows(self.frame(path, version).toArrow())

    def changes(self, path, start, end, timestamps=False):
        r = self.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", start)
        if end is not None:
            r = r.option("endingVersion", end)
        return table_rows(r.load(path).toArrow(), () if timestamps else HIDDEN_TIME)

    def sql(self, text, tables):
        for name, path in tables.items():
            self.frame(path).createOrReplaceTempView(name)
        return table_rows(self.spark.sql(text).toArrow())

    def schema(self, path, version=None):
        return self.frame(path, version).schema.json()

    def version(self, path):
        return self.spark.sql(f"DESCRIBE HISTORY {self.name(path)} LIMIT 1").collect()[0].version

    def ddl(self, schema):
        return self.spark._jvm.org.apache.spark.sql.types.DataType.fromJson(schema).toDDL()

    def create(self, path, schema, partition_by=(), properties=None):
        def text(s):
            return "'" + str(s).replace("\\", "\\\\").replace("'", "\\'") + "'"
        sql = f"CREATE TABLE {self.name(path)} ({self.ddl(schema)}) USING delta"
        if partition_by:
            sql += " PARTITIONED BY (" + ", ".join("`" + c.replace("`", "``") + "`" for c in partition_by) + ")"
        if properties:
            sql += " TBLPROPERTIES (" + ", ".join(f"{text(k)} = {text(v)}" for k, v in properties.items()) + ")"
        self.spark.sql(sql)

    def data(self, path, rows, schema):
        # NOT NULL is the table's to enforce: Delta takes nullable data into it.
        schema = json.loads(schema or self.schema(path))
        return self.spark.createDataFrame(rows_table(rows, json.dumps(schema)), self.StructType.fromJson(schema))

    def append(self, path, rows, schema=None, overwrite=False):
        self.data(path, rows, schema).coalesce(1).write.format("delta").mode("overwrite" if overwrite else "append").save(path)

    def metrics(self, sql):
        return [r.asDict() for r in self.spark.sql(sql).collect()]

    def update(self, path, set, where=None):
        sets = ", ".join(f"{k} = {v}" for k, v in set.items())
        return self.metrics(f"UPDATE {self.name(path)} SET {sets}" + (f" WHERE {where}" if where else ""))

    def delete(self, path, where=None):
        return self.metrics(f"DELETE FROM {self.name(path)}" + (f" WHERE {where}" if where else ""))

    def merge(self, path, rows, on, schema=None, delete_when=None, update=True, insert=True):
        self.data(path, rows, schema).createOrReplaceTempView("sluice_source")
        sql = f"MERGE INTO {self.name(path)} t USING sluice_source s ON {on}"
        if delete_when:
            sql += f" WHEN MATCHED AND {delete_when} THEN DELETE"
        if update:
            sql += " WHEN MATCHED THEN UPDATE SET *"
        if insert:
            sql += " WHEN NOT MATCHED THEN INSERT *"
        return self.metrics(sql)

    def statement(self, path, text):
        """A statement of Spark SQL with {t} for the table."""
        return self.metrics(text.replace("{t}", self.name(path)))

    def optimize(self, path):
        self.spark.sql(f"OPTIMIZE {self.name(path)}").collect()

    def restore(self, path, version):
        self.spark.sql(f"RESTORE TABLE {self.name(path)} TO VERSION AS OF {version}").collect()

    def vacuum(self, path, hours):
        self.spark.sql(f"VACUUM {self.name(path)} RETAIN {hours} HOURS").collect()

    def checkpoint(self, path):
        log = self.spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, path)
        none = self.spark._jvm.scala.Option.empty()
        log.checkpoint(log.update(False, none, none), none)


def parquet(path):
    """Rows of one Parquet file, hidden columns and all."""
    return table_rows(pyarrow.parquet.ParquetFile(path).read())


OPS = ("versions", "rows", "changes", "sql", "schema", "version", "create", "append", "update", "delete", "merge",
       "optimize", "restore", "vacuum", "checkpoint", "statement")


def do(engine, request):
    op = request.pop("op")
    if op == "many":
        return many(engine, **request)
    if op != "parquet" and op not in OPS:
        raise ValueError(f"unknown op {op}")
    return parquet(**request) if op == "parquet" else getattr(engine, op)(**request)


def many(engine, sequences, workers=2):
    """Sequences of requests, several at a time; each ends at its first error."""
    def run(sequence):
        results = []
        for request in sequence:
            try:
                results.append(do(engine, request))
            except Exception as e:
                return {"results": results, **failure(e)}
        return {"results": results}
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(run, sequences))


def say(answer):
    answers.write(json.dumps(answer, default=str) + "\n")
    answers.flush()


def failure(e):
    condition = getattr(e, "getCondition", lambda: None)()
    message = str(e).split("\n\nJVM stacktrace:")[0]
    lines = [x for x in message.splitlines() if not x.startswith("\tat ")]
    return {"error": {"class": type(e).__name__, "condition": condition or "", "message": "\n".join(lines)[:4000]}}


def main():
    try:
        engine = DeltaRS() if sys.argv[1] == "deltars" else Spark(sys.argv[2])
        say({"result": engine.versions()})
    except Exception as e:
        say(failure(e))
        return
    for line in sys.stdin:
        request = json.loads(line)
        try:
            say({"result": do(engine, request)})
        except Exception as e:
            say(failure(e))


main()
