"""Makes the fixtures of this folder: python make.py (needs pyarrow 26).

Each NAME.parquet has NAME.json beside it: the rows as pyarrow reads them, in a
plain text form that the Go tests compare with.
"""
import datetime as dt
import decimal
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq

HERE = os.path.dirname(os.path.abspath(__file__))
D = decimal.Decimal
EPOCH = dt.datetime(1970, 1, 1)


def plain(v):
    if isinstance(v, bytes):
        return "0x" + v.hex()
    if isinstance(v, decimal.Decimal):
        return format(v, "f")
    if isinstance(v, dt.datetime):
        d = v.replace(tzinfo=None) - EPOCH
        return d.days * 86400000000 + d.seconds * 1000000 + d.microseconds
    if isinstance(v, dt.date):
        return (v - EPOCH.date()).days
    if isinstance(v, float):
        return repr(v)
    if isinstance(v, list) and v and isinstance(v[0], tuple):
        return [[plain(k), plain(x)] for k, x in v]
    if isinstance(v, list):
        return [plain(x) for x in v]
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items()}
    return v


def write(name, table, **kw):
    path = os.path.join(HERE, name + ".parquet")
    pq.write_table(table, path, **kw)
    rows = [plain(r) for r in table.to_pylist()]
    with open(os.path.join(HERE, name + ".json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")


def wide(n):
    """n rows of every primitive type, a null now and then."""
    def some(f):
        return [None if i % 5 == 3 else f(i) for i in range(n)]
    return pa.table({
        "i8": pa.array(some(lambda i: i % 200 - 100), pa.int8()),
        "i16": pa.array(some(lambda i: i * 7 - 300), pa.int16()),
        "i32": pa.array(some(lambda i: i * 65537 - 9), pa.int32()),
        "i64": pa.array(some(lambda i: (i - 9) << 33), pa.int64()),
        "f32": pa.array(some(lambda i: i / 4), pa.float32()),
        "f64": pa.array(some(lambda i: -i / 8), pa.float64()),
        "b": pa.array(some(lambda i: i % 3 == 0), pa.bool_()),
        "s": pa.array(some(lambda i: "é" * (i % 4) + str(i % 11)), pa.string()),
        "bin": pa.array(some(lambda i: bytes([i % 256, 255])), pa.binary()),
        "d": pa.array(some(lambda i: dt.date(1969, 12, 1) + dt.timedelta(days=i)), pa.date32()),
        "ts": pa.array(some(lambda i: EPOCH + dt.timedelta(microseconds=(i - 20) * 1234567)), pa.timestamp("us", "UTC")),
        "ntz": pa.array(some(lambda i: EPOCH + dt.timedelta(microseconds=(i - 20) * 1234567)), pa.timestamp("us")),
        "dec5": pa.array(some(lambda i: D(i - 30) / 100), pa.decimal128(5, 2)),
        "dec18": pa.array(some(lambda i: D(i - 30) * 10**10), pa.decimal128(18, 4)),
        "dec30": pa.array(some(lambda i: D(i - 30) * 10**20), pa.decimal128(30, 3)),
        "req": pa.array(list(range(n)), pa.int64()),
    }, schema=pa.schema([
        ("i8", pa.int8()), ("i16", pa.int16()), ("i32", pa.int32()), ("i64", pa.int64()), ("f32", pa.float32()),
        ("f64", pa.float64()), ("b", pa.bool_()), ("s", pa.string()), ("bin", pa.binary()), ("d", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")), ("ntz", pa.timestamp("us")), ("dec5", pa.decimal128(5, 2)),
        ("dec18", pa.decimal128(18, 4)), ("dec30", pa.decimal128(30, 3)), pa.field("req", pa.int64(), nullable=False),
    ]))


def nested():
    rows = [
        {"l": None, "m": None, "s": None, "ll": None, "ls": None},
        {"l": [], "m": [], "s": {"a": None, "b": None}, "ll": [], "ls": []},
        {"l": [None], "m": [("k", None)], "s": {"a": 1, "b": None}, "ll": [None], "ls": [None]},
        {"l": [1, None, 2], "m": [("k", [1]), ("j", [])], "s": {"a": None, "b": {"c": "x"}}, "ll": [[], None, [1, None]], "ls": [{"x": None, "y": None}]},
        {"l": [5], "m": [("z", [None, 3])], "s": {"a": 7, "b": {"c": None}}, "ll": [[1], [2, 3]], "ls": [{"x": 1, "y": [1, 2]}, None, {"x": None, "y": []}]},
    ]
    t = pa.schema([
        ("l", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.list_(pa.int64()))),
        ("s", pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])),
        ("ll", pa.list_(pa.list_(pa.int32()))),
        ("ls", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.list_(pa.int32()))]))),
    ])
    return pa.Table.from_pylist(rows * 3, schema=t)


def main():
    small = wide(60)
    for codec in ["none", "snappy", "gzip", "zstd", "lz4", "brotli"]:
        write("codec-" + codec, small.select(["i64", "s", "req"]), compression=codec)
    write("v1-pages", small, data_page_version="1.0", data_page_size=64, write_batch_size=8, row_group_size=25)
    write("v2-pages", small, data_page_version="2.0", data_page_size=64, write_batch_size=8, write_page_index=True)
    write("v2-nested", nested(), data_page_version="2.0", data_page_size=16, write_batch_size=2)
    write("v1-nested", nested(), data_page_version="1.0", data_page_size=16, write_batch_size=2, compression="none")
    write("v1-nested-index", nested(), data_page_size=16, write_batch_size=2, write_page_index=True)
    write("list-item", nested(), use_compliant_nested_type=False)
    write("int96", small.select(["ts", "ntz"]), use_deprecated_int96_timestamps=True)
    write("millis", pa.table({"ts": pa.array([-1001, 0, 1500, None], pa.timestamp("ms", "UTC")), "ntz": pa.array([-1, 0, 1, None], pa.timestamp("ms"))}))
    nanos = pa.table({"ts": pa.array([-1000, 0, 1500000, None], pa.timestamp("ns", "UTC"))})
    pq.write_table(nanos, os.path.join(HERE, "nanos.parquet"))
    json.dump([{"ts": -1}, {"ts": 0}, {"ts": 1500}, {"ts": None}], open(os.path.join(HERE, "nanos.json"), "w"))
    write("delta-binary", small.select(["i32", "i64", "req"]), use_dictionary=False, version="2.6",
          column_encoding={"i32": "DELTA_BINARY_PACKED", "i64": "DELTA_BINARY_PACKED", "req": "DELTA_BINARY_PACKED"})
    write("delta-strings", small.select(["s", "bin", "dec30"]), use_dictionary=False,
          column_encoding={"s": "DELTA_BYTE_ARRAY", "bin": "DELTA_LENGTH_BYTE_ARRAY", "dec30": "DELTA_BYTE_ARRAY"})
    write("split", small.select(["f32", "f64", "i32", "i64", "dec30"]), use_dictionary=False,
          column_encoding={c: "BYTE_STREAM_SPLIT" for c in ["f32", "f64", "i32", "i64", "dec30"]})
    write("bool-rle", small.select(["b"]), use_dictionary=False, column_encoding={"b": "RLE"}, data_page_version="2.0")
    write("dict-fallback", pa.table({"s": [("x%d" % (i % 300)) * 5 for i in range(2000)], "n": [i % 700 for i in range(2000)]}),
          dictionary_pagesize_limit=1000, data_page_size=500, write_batch_size=100)
    write("decimal-int", small.select(["dec5", "dec18"]), store_decimal_as_integer=True)
    write("empty", small.slice(0, 0))
    write("unsigned", pa.table({"u8": pa.array([0, 170, 255], pa.uint8()), "u16": pa.array([0, 60000, 65535], pa.uint16()),
                                "u32": pa.array([0, 4000000000, 4294967295], pa.uint32()), "u64": pa.array([0, 1, 18446744073709551615], pa.uint64())}))
    write("fixed", pa.table({"f": pa.array([b"abc", None, b"\x00\x01\x02"], pa.binary(3))}))


main()
