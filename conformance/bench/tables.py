"""Tables and changes of the benchmark, made by delta-rs and pyarrow.

    tables.py orders DIR ROWS            the table of all workloads: ten files, change feed on
    tables.py changes FILE ROWS CHANGES  one batch: 80 % updates, 10 % deletes, 10 % inserts
    tables.py newest FILE ROWS CHANGES   half inserts with high ids, half updates of the newest 2 %
    tables.py stream FILE ROWS BATCHES EACH   batches of changes, one after the other in one file
    tables.py history FILE KEYS          two versions of every key
    tables.py log DIR FILES COMMITS      a log of that many files and commits, checkpoint 99 back
    tables.py debezium FILE EVENTS KEYS  Debezium JSON without schema, .jsonl.zst
    tables.py arrow FILE ROWS            the rows of orders as an Arrow IPC file
"""

import json
import os
import sys
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

STATUS = np.array(["new", "paid", "packed", "shipped", "delivered", "returned"])
CITIES = np.array([f"city-{i:04d}" for i in range(2000)])
SCHEMA = pa.schema([
    ("id", pa.int64()), ("customer_id", pa.int64()), ("status", pa.string()), ("city", pa.string()),
    ("amount", pa.float64()), ("quantity", pa.int32()), ("note", pa.string()), ("discount", pa.float64()),
    ("updated_at", pa.timestamp("us", tz="UTC")), ("seq", pa.int64()),
])
START = 1_700_000_000_000_000


def rows(rng, ids, seq):
    n = len(ids)
    notes = pa.array(rng.integers(0, 1 << 40, n)).cast(pa.string())
    notes = pa.compute.binary_join_element_wise(pa.scalar("note-"), notes, "")
    return pa.Table.from_arrays([
        pa.array(ids, pa.int64()), pa.array(rng.integers(0, 1_000_000, n)),
        pa.DictionaryArray.from_arrays(rng.integers(0, 6, n).astype("int32"), pa.array(STATUS)).cast(pa.string()),
        pa.DictionaryArray.from_arrays(rng.integers(0, 2000, n).astype("int32"), pa.array(CITIES)).cast(pa.string()),
        pa.array(np.round(rng.random(n) * 1000, 2)), pa.array(rng.integers(1, 100, n).astype("int32")), notes,
        pa.array(np.round(rng.random(n), 2)),
        pa.array(START + rng.integers(0, 10**13, n)).cast(pa.timestamp("us", tz="UTC")),
        pa.array(np.full(n, seq), pa.int64()) if np.isscalar(seq) else pa.array(seq, pa.int64()),
    ], schema=SCHEMA)


def parts(n):
    rng = np.random.default_rng(1)
    for i in range(10):
        yield rows(rng, 2 * np.arange(n * i // 10, n * (i + 1) // 10), 0)


def orders(path, n):
    from deltalake import write_deltalake
    for t in parts(int(n)):
        write_deltalake(path, t, mode="append", configuration={"delta.enableChangeDataFeed": "true"})


def batch(rng, n, k, seq, newest=False):
    if newest:
        ids = np.concatenate([2 * n + 2 * np.arange(k // 2), 2 * rng.choice(np.arange(n - n // 50, n), k - k // 2, replace=n // 50 < k)])
        ids = np.unique(ids)
        op = np.full(len(ids), "U")
    else:
        live = 2 * rng.choice(n, k * 9 // 10, replace=False)
        ids = np.concatenate([live, 2 * rng.choice(n, k - len(live), replace=False) + 1])
        op = np.repeat(["U", "D", "I"], [k * 8 // 10, len(live) - k * 8 // 10, k - len(live)])
    order = rng.permutation(len(ids))
    return rows(rng, ids[order], seq).append_column("op", pa.array(op[order]))


def changes(path, n, k):
    pq.write_table(batch(np.random.default_rng(2), int(n), int(k), 1), path)


def newest(path, n, k):
    pq.write_table(batch(np.random.default_rng(3), int(n), int(k), 1, newest=True), path)


def stream(path, n, batches, each):
    rng = np.random.default_rng(4)
    pq.write_table(pa.concat_tables([batch(rng, int(n), int(each), i + 1) for i in range(int(batches))]), path, row_group_size=int(each))


def history(path, keys):
    rng = np.random.default_rng(5)
    ids = np.repeat(2 * np.arange(int(keys)), 2)
    t = rows(rng, ids, np.tile([-1, 0], int(keys)))
    pq.write_table(t.append_column("op", pa.array(np.full(len(ids), "U"))), path)


def log(path, files, commits):
    """Adds and removes without data files: ten adds a commit, then one in ten is replaced."""
    from deltalake import DeltaTable
    files, commits = int(files), int(commits)
    os.makedirs(path + "/_delta_log")
    schema = {"type": "struct", "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in
              [("id", "long"), ("customer_id", "long"), ("city", "string"), ("amount", "double")]]}

    def add(i):
        lo = 1000 * i
        stats = {"numRecords": 1000, "minValues": {"id": lo, "customer_id": 0, "city": "city-0000", "amount": 0.5},
                 "maxValues": {"id": lo + 999, "customer_id": 999999, "city": "city-1999", "amount": 999.5},
                 "nullCount": {"id": 0, "customer_id": 0, "city": 0, "amount": 0}}
        return {"add": {"path": f"part-{i:06d}-{uuid.UUID(int=i)}.parquet", "partitionValues": {}, "size": 40000,
                        "modificationTime": START // 1000, "dataChange": True, "stats": json.dumps(stats, separators=(",", ":"))}}

    per = files // commits
    for v in range(commits):
        lines = [{"commitInfo": {"timestamp": START // 1000 + v, "operation": "WRITE", "operationParameters": {"mode": "Append"}}}]
        if v == 0:
            lines += [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
                      {"metaData": {"id": str(uuid.UUID(int=7)), "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(schema),
                                    "partitionColumns": [], "configuration": {}, "createdTime": START // 1000}}]
        lines += [add(i) for i in range(v * per, (v + 1) * per)]
        with open(f"{path}/_delta_log/{v:020d}.json", "w") as f:
            f.write("\n".join(json.dumps(x, separators=(",", ":")) for x in lines) + "\n")
        if v == commits - 100:
            DeltaTable(path).create_checkpoint()


def debezium(path, events, keys):
    events, keys = int(events), int(keys)
    rng = np.random.default_rng(6)
    pick = rng.integers(0, keys, events)
    cols = rows(rng, pick, 0).to_pydict()
    seen = {}
    with pa.CompressedOutputStream(path, "zstd") as f:
        for i in range(events):
            k = int(pick[i])
            row = {"id": k, "customer_id": cols["customer_id"][i], "status": cols["status"][i], "city": cols["city"][i],
                   "amount": cols["amount"][i], "quantity": cols["quantity"][i], "note": cols["note"][i],
                   "discount": cols["discount"][i], "updated_at": int(START + i)}
            before = seen.get(k)
            op = "c" if before is None else "u"
            if before is not None and i % 10 == 0:
                op, row = "d", None
            seen[k] = row
            ms = START // 1000 + i // 10
            e = {"before": before, "after": row, "source": {"version": "3.0.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": ms,
                 "snapshot": "false", "db": "shop", "sequence": f'["{i * 64}","{i * 64 + 32}"]', "ts_us": ms * 1000, "ts_ns": ms * 1000000, "schema": "public",
                 "table": "orders", "txId": 1000 + i // 5, "lsn": i * 64 + 32, "xmin": None}, "transaction": None, "op": op, "ts_ms": ms + 1,
                 "ts_us": ms * 1000 + 1000, "ts_ns": ms * 1000000 + 1000000}
            f.write((json.dumps(e, separators=(",", ":")) + "\n").encode())


def arrow(path, n):
    with pa.OSFile(path, "wb") as f, pa.ipc.new_file(f, SCHEMA) as w:
        for t in parts(int(n)):
            w.write_table(t, max_chunksize=65536)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
