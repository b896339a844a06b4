"""Look-ups on columns that no layout clusters, by sketches: files read, bytes, times, and what writing them costs.

    python benchmarks/sketches.py /tmp/bench [--files 10000] [--only keys,write,zeek,text,connections,appends,million]

`keys`: unique keys in random order, beside the glob and DuckDB's own Bloom filters · `write`: TPC-H lineitem with and
without sketches · `zeek`: network logs clustered by time and hosts · `text`: LIKE '%…%' · `connections`: all four
columns of ConnRecord · `appends`: fifty of them, and then an optimize · `million`: an index of a million files, whose
statistics are made up, on this machine and over S3 (moto's server).
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from layout_cases import FIXTURES, Case, connections, lineitem
from lookup import Counted, s3, upload
from targets import at_least, at_most

import zskip
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.plan.planner import plan
from zskip.stats import ColumnStatistics, DataFiles, FileStatistics
from zskip.storage import Staged, open_storage
from zskip.tablelog.commit import TableUpdate, commit
from zskip.tablelog.index import Index
from zskip.tablelog.log import load
from zskip.tablelog.parts import Drafts
from zskip.tablelog.segments import new_ids
from zskip.tablelog.sketches import SKETCHES, SketchName
from zskip.tablelog.sketches.hashing import hashes
from zskip.tablelog.sketches.pairs import Coverage, MergeInput, Run, write_segment
from zskip.tablelog.snapshot import SegmentRecord, SketchRecord

ROWS_PER_FILE = 2000
LOOK_UPS = 50


def seconds(work: Callable[[], Any], times: int) -> float:
    """The median of several runs."""
    found = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return statistics.median(found)


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def keys_of(random: np.random.Generator, count: int) -> pa.StringArray:
    """So many random keys of 16 characters."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)[random.integers(0, 16, 16 * count, dtype=np.uint8)]
    offsets = np.arange(count + 1, dtype=np.int32) * 16
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(digits.tobytes()))


def keys(folder: Path, files: int) -> None:
    """Unique keys: what a look-up reads, how large the sketch is, and how long it takes beside others."""
    random = np.random.default_rng(1)
    count = files * ROWS_PER_FILE
    uid = keys_of(random, count)
    rows = pa.table({"a": pa.array(random.permutation(count)), "uid": uid})
    table = zskip.write(rows, fresh(folder / "keys"), by="a", files=files, sketches={"uid": "values"})
    asked = [uid[place].as_py() for place in random.integers(0, count, LOOK_UPS).tolist()]
    read = [len(table.plan(f"uid = {quoted(value)}")) for value in asked]
    assert min(read) == 1
    at_most(1.02, float(np.mean(read)), f"{count:,} unique keys in {files:,} files: files read a look-up")
    at_most(3.5, table._index.snapshot.sketches[0].bytes / count, "bytes a key")
    nothing = [len(table.plan(f"uid = 'none of them {number}'")) for number in range(1000)]
    at_most(0.01, float(np.mean(nothing)), "files read in vain, a look-up of a key that is not there")
    opened = zskip.open(table.uri)
    at_most(100, 1000 * seconds(lambda: opened.plan(f"uid = {quoted(asked[0])}"), 1), "first plan, opened cold", " ms")
    plans = iter(asked)
    at_most(10, 1000 * seconds(lambda: table.plan(f"uid = {quoted(next(plans))}"), LOOK_UPS), "plan, warm", " ms")
    con, again = duckdb.connect(), iter(asked)
    ours = seconds(
        lambda: zskip.sql(f"SELECT * FROM '{table.uri}' WHERE uid = {quoted(next(again))}", con).fetchall(), LOOK_UPS
    )
    glob = f"SELECT * FROM read_parquet('{table.uri}/*.parquet') WHERE uid = {quoted(asked[0])}"
    theirs = seconds(lambda: con.sql(glob).fetchall(), 3)
    print(f"      zskip.sql {1000 * ours:.1f} ms, the glob {1000 * theirs:,.0f} ms")
    at_least(100, theirs / ours, "a look-up through zskip.sql, faster than over the glob", " times")
    bloom = fresh(folder / "bloom")
    bloom.mkdir()
    for number, path in enumerate(table.plan().paths):
        # A dictionary is what makes DuckDB write a Bloom filter.
        con.execute(
            f"COPY (FROM '{path}') TO '{bloom}/{number}.parquet' (DICTIONARY_SIZE_LIMIT {ROWS_PER_FILE}, "
            "BLOOM_FILTER_FALSE_POSITIVE_RATIO 0.01)"
        )
    filtered = f"SELECT * FROM read_parquet('{bloom}/*.parquet') WHERE uid = {quoted(asked[0])}"
    at_least(
        30, seconds(lambda: con.sql(filtered).fetchall(), 3) / ours, "faster than DuckDB with Bloom filters", " times"
    )


def write(folder: Path, files: int) -> None:
    """What building sketches adds to a write."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = lineitem(folder, Case(lineitem, ("l_shipdate",), 100, {}), 0)
    if not {"l_orderkey", "l_comment"} <= set(rows.column_names):
        rows = pq.read_table(folder / "lineitem.parquet")
    by = ["l_shipdate", "l_partkey"]
    times = []
    for sketches in ({}, {"l_orderkey": "values", "l_comment": "values"}) * 3:
        started = time.perf_counter()
        table = zskip.write(rows, fresh(folder / "written"), by=by, files=100, sketches=sketches)
        times.append(time.perf_counter() - started)
    with_, without = statistics.median(times[1::2]), statistics.median(times[::2])
    print(f"      {without:.1f} s without, {with_:.1f} s with; " + sizes(table))
    at_most(1.35, with_ / without, f"writing {len(rows):,} rows of lineitem with values of two columns", " times")


def sizes(table: zskip.Table) -> str:
    """The size of each sketch beside the data's."""
    data = table._index.snapshot.totals.bytes or 0
    parts = [f"{s.name.kind} of {s.name.column} {s.bytes / 1e6:.2f} MB" for s in table._index.snapshot.sketches]
    return f"{', '.join(parts)}, data {data / 1e6:.1f} MB"


def holders(table: zskip.Table, condition: str) -> int:
    """How many of the table's files truly hold a match."""
    con = duckdb.connect()
    found = con.sql(
        f"SELECT count(DISTINCT filename) FROM read_parquet($1, filename = true) WHERE {condition}",
        params=[table.plan().paths],
    )
    return int(found.fetchall()[0][0])


def zeek(folder: Path, files: int) -> None:
    """Network logs: look-ups of what an analyst pastes, beside what can be skipped at all."""
    rows = pq.read_table(FIXTURES / "zeek.parquet")
    columns = ["uid", "query", "server_name"]
    table = zskip.write(
        rows,
        fresh(folder / "zeek"),
        by=["ts", "id.orig_h", "id.resp_h"],
        files=100,
        sketches=dict.fromkeys(columns, "values"),
    )
    print("      " + sizes(table))
    random, shares = np.random.default_rng(2), []
    for column in columns:
        present = pc.unique(rows[column].drop_null()) if pa.types.is_string(rows[column].type) else None
        values = (pc.unique(rows[column].cast(pa.string()).drop_null()) if present is None else present).to_pylist()
        for value in random.choice(values, 30):
            condition = f'"{column}" = {quoted(str(value))}'
            shares.append((100 - len(table.plan(condition))) / max(1, 100 - holders(table, condition)))
    at_least(
        0.95, float(np.mean(shares)), "Zeek logs, look-ups of uid, query, server_name: share of what can be skipped"
    )


def text(folder: Path, files: int) -> None:
    """Pieces of real names."""
    rows = pq.read_table(FIXTURES / "zeek.parquet", columns=["ts", "id.orig_h", "query"])
    table = zskip.write(
        rows, fresh(folder / "text"), by=["ts", "id.orig_h"], files=100, sketches={"query": "substrings"}
    )
    names = [name for name in pc.unique(rows["query"].cast(pa.string()).drop_null()).to_pylist() if len(name) >= 12]
    random, read, true = np.random.default_rng(3), 0, 0
    for name in random.choice(names, 60):
        start = int(random.integers(0, len(name) - 8))
        piece = name[start : start + 8].replace("_", "").replace("%", "")
        condition = f"query LIKE '%{piece}%'"
        read, true = read + len(table.plan(condition)), true + holders(table, condition)
    print(f"      {sizes(table)}; {read / 60:.1f} of 100 files read, {true / 60:.1f} match")
    at_most(1.5, read / true, "LIKE '%…%' with 8 letters of real names, files read for each that matches")


def connections_(folder: Path, files: int) -> None:
    """ConnRecord: a layout for two columns at most, sketches for all."""
    columns = ("src_ip", "src_port", "dst_ip", "dst_port")
    rows = connections(folder, Case(connections, columns, 100, {}, rows=100_000), 5)
    table = zskip.write(rows, fresh(folder / "conn"), by=columns, files=100, sketches=dict.fromkeys(columns, "values"))
    random, skipped = np.random.default_rng(6), []
    for column in columns:
        for place in random.integers(0, len(rows), 50).tolist():
            value = rows[column][place].as_py()
            skipped.append(
                1 - len(table.plan(f"{column} = {quoted(str(value)) if isinstance(value, str) else value}")) / 100
            )
    print("      " + sizes(table))
    at_least(0.97, float(np.mean(skipped)), "ConnRecord 100 x 1K, look-ups on each of four columns: share skipped")


def appends(folder: Path, files: int) -> None:
    """Fifty appends leave few segments; optimize leaves one."""
    random = np.random.default_rng(4)
    rows = pa.table({"a": pa.array(random.permutation(200_000)), "uid": keys_of(random, 200_000)})
    table = zskip.write(rows.slice(0, 100_000), fresh(folder / "appends"), by="a", files=50, sketches={"uid": "values"})
    for turn in range(50):
        table.append(rows.slice(100_000 + turn * 2000, 2000))
    at_most(8, len(table._index.snapshot.sketches[0].segments), "segments after 50 appends")
    asked = [rows["uid"][place].as_py() for place in random.integers(0, 200_000, LOOK_UPS).tolist()]

    def look_up() -> float:
        values = iter(asked)
        return seconds(lambda: table.plan(f"uid = {quoted(next(values))}"), LOOK_UPS)

    before = look_up()
    table.optimize()
    assert len(table._index.snapshot.sketches[0].segments) == 1
    at_most(2, before / look_up(), "a look-up after 50 appends, against one segment", " times")


MILLION, KEYS_PER_FILE = 1_000_000, 10


def made_up(folder: Path) -> pa.StringArray:
    """The index of a million files that are not there, each with ten of the returned keys, in their order."""
    uid = keys_of(np.random.default_rng(7), MILLION * KEYS_PER_FILE)
    if (folder / "_zskip").exists():
        return uid
    number = np.arange(MILLION)
    exact, none = pa.array(np.ones(MILLION, bool)), pa.array(np.zeros(MILLION, np.int64))
    bounds = {
        "a": (pa.array(number * KEYS_PER_FILE), pa.array((number + 1) * KEYS_PER_FILE - 1)),
        "uid": (pa.array(["0" * 16] * MILLION), pa.array(["f" * 16] * MILLION)),
    }
    units = FileStatistics(
        pa.array(np.full(MILLION, KEYS_PER_FILE)),
        {name: ColumnStatistics(low, high, none, none, exact, exact) for name, (low, high) in bounds.items()},
    )
    names = pc.binary_join_element_wise("part-", pa.array(number).cast(pa.string()), ".parquet", "")
    unknown = pa.nulls(MILLION, pa.int64())
    sizes, ids = pa.array(np.full(MILLION, 10_000_000)), new_ids(MILLION)
    etags = pa.nulls(MILLION, pa.string())
    data = DataFiles(names, sizes, unknown, etags, units, units, np.arange(MILLION + 1), id=ids)
    pairs = np.sort(Run.of(hashes(uid), 0) | np.repeat(number, KEYS_PER_FILE))
    coverage, bits = Coverage.of(ids.to_numpy()), SKETCHES["values"].key_bits(len(uid))
    storage = open_storage(str(fresh(folder)))
    folder.mkdir(parents=True)
    part, entries = Drafts(storage, Staged(storage.delete)).write(
        "sketches", ".parquet", lambda sink: write_segment(sink, [MergeInput(Run(pairs), number)], coverage, bits)
    )
    record = SketchRecord(SketchName("uid", "values"), (SegmentRecord(part, MILLION, entries),))
    schema = Schema(pa.schema({"a": pa.int64(), "uid": pa.string()}))
    details = {"source": "statistics"}
    commit(
        storage,
        None,
        TableUpdate("index", add=data, schema=schema, managed=False, details=details, sketches=lambda _: (record,)),
    )
    return uid


def million(folder: Path, files: int) -> None:
    """Look-ups over a million files: milliseconds, and requests of an object store."""
    place = folder / "million"
    uid = made_up(place)
    conditions = [f"uid = {quoted(uid[at].as_py())}" for at in range(0, MILLION * KEYS_PER_FILE, 199_999)]
    storage = open_storage(str(place))

    def opened(of: Any, *, sketched: bool = True) -> Index:
        snapshot = load(of)
        return Index(of, snapshot if sketched else replace(snapshot, sketches=()))

    def look_up(index: Index, condition: str) -> list[str]:
        return plan(index, bind(condition, index.snapshot.schema)).paths

    numbers = [look_up(opened(storage), condition) for condition in conditions[:3]]
    expected = [f"part-{at * 199_999 // KEYS_PER_FILE}.parquet" for at in range(3)]
    assert [[Path(path).name for path in paths] for paths in numbers] == [[name] for name in expected]
    cold = 1000 * seconds(lambda: look_up(opened(storage), conditions[0]), 9)
    at_most(100, cold, "open and look up a key in 1,000,000 files", " ms")
    index, later = opened(storage), iter(conditions)
    look_up(index, conditions[-1])
    at_most(10, 1000 * seconds(lambda: look_up(index, next(later)), 45), "a look-up in 1,000,000 files, warm", " ms")
    with s3() as options:
        plain = open_storage("s3://bench/t", {**options, "client_options": {"allow_http": True}})
        upload(place, plain)
        asked = []
        for sketched in (True, False):
            counted: Any = Counted(plain, 0.0)
            index = opened(counted, sketched=sketched)
            # A second condition leaves a hundred files, the names of which cost the same with a sketch and without.
            look_up(index, f"a BETWEEN 1000000 AND 1000999 AND {conditions[0]}" if sketched else "a = 1000000")
            asked.append(counted.requests)
        print(f"      {asked[0]} requests with a sketch, {asked[1]} without")
    at_most(3, asked[0] - asked[1], "requests more with a sketch")


PARTS = {
    "keys": keys,
    "write": write,
    "zeek": zeek,
    "text": text,
    "connections": connections_,
    "appends": appends,
    "million": million,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    given = parser.parse_args()
    for name in given.only.split(","):
        print(name, flush=True)
        PARTS[name](given.folder, given.files)


if __name__ == "__main__":
    main()
