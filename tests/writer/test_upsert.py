"""Upsert: equal to DuckDB's INSERT OR REPLACE after any history, by several writers, with stops, exactly once."""

from __future__ import annotations

import datetime as dt
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests import one_in
from zskip.cli.main import main
from zskip.core.schema import identifier
from zskip.errors import InvalidOption, SchemaMismatch, UnknownColumn

NAN = float("nan")
SPILLED = "64 kB"  # of memory: a batch of more than a fifth of it is spilled
LONG = 10_000  # characters that make two rows such a batch


def rows_of(ids: list[int], stamp: int, length: int = 500) -> pa.Table:
    """Rows whose other columns tell which change wrote them, with texts of a length."""
    dice = np.random.default_rng(stamp)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "moment": pa.array(dice.integers(0, 50, len(ids)) + stamp),
            "day": pa.array([f"d{number % 3}" for number in dice.integers(0, 100, len(ids))]),
            "stamp": pa.array([stamp] * len(ids), pa.int64()),
            "text": pa.array([str(stamp) * length] * len(ids), pa.string()),
        }
    )


def content(table: Any) -> list[tuple[Any, ...]]:
    rows = table.to_arrow() if isinstance(table, zskip.Table) else table
    return sorted(zip(*(rows.column(name).to_pylist() for name in ("id", "moment", "day", "stamp")), strict=True))


def history(path: Path, seed: int, steps: int) -> None:
    """A random history by up to four writers, each with its own view of the table, beside a table of DuckDB."""
    dice = random.Random(seed)
    first = rows_of(dice.sample(range(400), 200), 1)
    options: dict[str, Any] = {"partition_by": "day"} if dice.random() < 0.4 else {}
    if dice.random() < 0.5:
        options["sketches"] = {"id": "values"}
    zskip.write(first, path, by=["moment", "id"], rows_per_file=dice.choice([20, 60]), **options)
    writers = [zskip.open(path) for _ in range(dice.randint(1, 4))]
    con = duckdb.connect()
    con.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, moment BIGINT, day VARCHAR, stamp BIGINT)")
    con.register("first", first)
    con.execute("INSERT INTO t SELECT id, moment, day, stamp FROM first")
    new = 1000
    for stamp in range(2, 2 + steps):
        writer, verb = (
            dice.choice(writers),
            dice.choice(["upsert"] * 5 + ["append", "delete", "optimize", "tend", "ids"]),
        )
        if verb == "upsert":
            known = [row[0] for row in con.execute("SELECT id FROM t ORDER BY id").fetchall()]
            ids = dice.sample(known, min(len(known), dice.choice([1, 5, 40]))) + list(
                range(new, new + dice.choice([0, 7]))
            )
            new += 10
            dice.shuffle(ids)
            rows = rows_of(ids, stamp)
            before = con.execute("SELECT count(*) FROM t").fetchall()[0][0]
            limit = dice.choice([None, SPILLED])
            done = writer.upsert(rows, on="id", batch=("law", stamp), memory_limit=limit)
            assert writer.upsert(rows, on="id", batch=("law", stamp)).version == done.version
            con.register("rows", rows)
            con.execute("INSERT OR REPLACE INTO t SELECT id, moment, day, stamp FROM rows")
            after = con.execute("SELECT count(*) FROM t").fetchall()[0][0]
            assert (done.inserted, done.inserted + done.updated) == (after - before, len(ids))
        elif verb == "append":
            rows = rows_of(list(range(new, new + 12)), stamp)
            new += 20
            writer.append(rows)
            con.register("rows", rows)
            con.execute("INSERT INTO t SELECT id, moment, day, stamp FROM rows")
        elif verb in ("delete", "ids"):
            some = [dice.randrange(400) for _ in range(30)]
            where = f"moment % 7 = {dice.randrange(7)}" if verb == "delete" else f"id IN ({', '.join(map(str, some))})"
            writer.delete(where)
            con.execute(f"DELETE FROM t WHERE {where}")
        elif verb == "optimize":
            given: dict[str, Any] = dice.choice([{"full": True}, {}, {}, {"max_bytes": dice.choice([5_000, 20_000])}])
            done = writer.optimize(**given)
            assert done.bytes_rewritten <= given.get("max_bytes", done.bytes_rewritten)
        else:
            writer.tend(older_than="0 seconds", max_bytes=dice.choice([None, 10_000]))
        assert content(zskip.open(path)) == con.execute("SELECT * FROM t ORDER BY ALL").fetchall(), (seed, stamp, verb)
    named = set(zskip.open(path).plan().scan.relative_paths)
    zskip.open(path).vacuum("0 seconds")
    assert {str(file.relative_to(path)) for file in path.rglob("*.parquet")} == named


def test_a_few_histories_agree_with_duckdb(tmp_path: Path) -> None:
    for seed in range(2):
        history(tmp_path / str(seed), seed, 5)


@pytest.mark.slow
def test_many_histories_agree_with_duckdb(tmp_path: Path) -> None:
    for seed in range(100, 160):
        history(tmp_path / str(seed), seed, 20)


KEYS: dict[str, tuple[pa.Array, pa.Array, int]] = {
    "NaN equals NaN, and -0.0 equals 0.0": (pa.array([NAN, 0.0, 1.5]), pa.array([-0.0, NAN, 2.5]), 2),
    "halves": (pa.array([NAN, 0.0], pa.float16()), pa.array([-0.0, NAN], pa.float16()), 2),
    "decimals": (
        pa.array([Decimal("1.50"), Decimal("-2.00")], pa.decimal128(9, 2)),
        pa.array([Decimal("1.50"), Decimal("2.00")], pa.decimal128(9, 2)),
        1,
    ),
    "narrow integers into wide ones": (pa.array([1, 2, 2**40]), pa.array([2, 3], pa.int8()), 1),
    "wide integers into narrow ones": (pa.array([1, 2], pa.int16()), pa.array([2, 2**40]), 1),
    "strings": (pa.array(["", "a", "é"]), pa.array(["é", "e\u0301", ""]), 2),
    "dictionaries": (pa.array(["a", "b"]), pa.array(["b", "c"]).dictionary_encode(), 1),
    "bytes": (pa.array([b"", b"\xff"]), pa.array([b"\xff\x00", b""]), 1),
    "booleans": (pa.array([True]), pa.array([False, True]), 1),
    "days": (pa.array([dt.date(2026, 1, 1)]), pa.array([dt.date(2026, 1, 1), dt.date(1, 1, 1)]), 1),
    "times": (pa.array([dt.time(1, 2, 3)]), pa.array([dt.time(1, 2, 3), dt.time(1, 2, 4)]), 1),
    "instants": (
        pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
        pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
        1,
    ),
    "UUIDs": (pa.array([UUID(int=1).bytes], pa.uuid()), pa.array([UUID(int=1).bytes, UUID(int=2).bytes], pa.uuid()), 1),
}


@pytest.mark.parametrize(("name", "length"), one_in(2, KEYS, [1, LONG]))
def test_keys_are_equal_as_in_sql(name: str, length: int, tmp_path: Path) -> None:
    old, new, updated = KEYS[name]
    rows = pa.table({"k": old, "v": [0] * len(old), "text": ["x"] * len(old)})
    table = zskip.write(rows, tmp_path / "t", by="v", files=2)
    rows = pa.table({"k": new, "v": [1] * len(new), "text": ["x" * length] * len(new)})
    done = table.upsert(rows, on="k", memory_limit=SPILLED)
    assert (done.updated, done.inserted) == (updated, len(new) - updated)
    assert table.plan("v = 1").count() == len(new)
    assert table.count() == len(old) + len(new) - updated


@pytest.mark.parametrize(("length", "day"), [(1, "day"), (LONG, "the.day"), (1, 'the "day"')])
def test_a_key_of_several_columns_and_a_row_that_changes_its_partition(length: int, day: str, tmp_path: Path) -> None:
    rows = pa.table({"a": [1, 1, 2, 2], "b": ["x", "y", "x", None], day: ["d1", "d1", "d2", "d2"], "v": [0] * 4})
    table = zskip.write(rows, tmp_path / "t", by="v", partition_by=[day])
    new = pa.table({"a": [1, 2, 3], "b": ["y", "x", "x"], day: ["d1", "d1", "d3"], "v": [7, 8, 9]})
    longer = new.append_column("text", pa.array(["x" * length] * 3))
    done = table.upsert(longer, on=["a", "b"], memory_limit=SPILLED)
    assert (done.updated, done.inserted) == (2, 1)
    assert sorted(map(str, table.to_arrow().select(["a", "b", day, "v"]).to_pylist())) == sorted(
        map(str, [*rows.to_pylist()[:1], *rows.to_pylist()[3:], *new.to_pylist()])
    )
    assert table.plan(f"{identifier(day)} = 'd1'").count() == 3


def test_a_key_that_the_table_holds_twice_has_one_row_afterwards(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"id": [1, 1, 2], "v": [0, 0, 0]}), tmp_path / "t", by="id", files=1)
    table.append(pa.table({"id": [1], "v": [0]}))
    assert table.upsert(pa.table({"id": [1], "v": [5]}), on="id").updated == 1
    assert table.to_arrow().to_pylist() == [{"id": 1, "v": 5}, {"id": 2, "v": 0}]


def test_what_is_refused_leaves_the_table_as_it_is(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"id": [1, 2], "v": [0, 0]}), tmp_path / "t", by="id")
    files = sorted((tmp_path / "t").rglob("*"))
    for rows, on, error, match in (
        ({"id": [7, 3, 7], "v": [1, 2, 3]}, "id", SchemaMismatch, "id = 7 occurs twice"),
        ({"id": pa.array([3, None]), "v": [1, 2]}, "id", SchemaMismatch, "NULL in row 1"),
        ({"id": [NAN, NAN], "v": [1, 2]}, "id", SchemaMismatch, "id"),
        ({"id": [3]}, "id", SchemaMismatch, '"v"'),
        ({"id": [3], "v": [1]}, "uid", UnknownColumn, "uid"),
        ({"id": [3], "v": [1]}, [], InvalidOption, "on="),
        ({"id": [3], "v": [1]}, ["id", "id"], InvalidOption, 'on= names the column "id" twice'),
    ):
        with pytest.raises(error, match=match):
            table.upsert(pa.table(rows), on=on)
    assert sorted((tmp_path / "t").rglob("*")) == files
    assert table.upsert(pa.table({"id": pa.array([], pa.int64()), "v": pa.array([], pa.int64())}), on="id").version == 1


@pytest.mark.parametrize("type", [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32()])
def test_a_key_beyond_the_years_of_python_is_named(type: pa.DataType, tmp_path: Path) -> None:
    day = pa.array([-720_000], pa.int32()).cast(pa.date32())
    days = pa.table({"id": pa.concat_arrays([day, day]).cast(pa.timestamp("us")).cast(type), "v": [1, 2]})
    table = zskip.write(days.slice(1), tmp_path / "t", by="v")
    with pytest.raises(SchemaMismatch, match=r"id = -0002-09-16.* occurs twice"):
        table.upsert(days, on="id")
    dimension = pa.table({"k": days["id"], "zone": ["A", "B"]})
    with pytest.raises(InvalidOption, match="more than one row with the key k = -0002-09-16"):
        zskip.write(days, tmp_path / "star", by=["d.zone"], joins={"d": (dimension, {"id": "k"})})


@pytest.mark.parametrize(("key", "named"), [("S", '"s" of type struct'), ("l", '"l" of type list'), ("s.x", '"s.x"')])
def test_a_key_within_a_column_is_refused_at_once(key: str, named: str, tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "s": [{"x": 1}, {"x": 2}], "l": [[1], [2]]})
    table = zskip.write(rows, tmp_path / "t", by="id")
    with pytest.raises(InvalidOption, match=f"{named}.*A key consists of whole columns that are not nested"):
        table.upsert(rows, on=key)
    assert table.version == 1


SOURCES: dict[str, Callable[[pa.Table, Path], Any]] = {
    "Parquet files": lambda rows, folder: (pq.write_table(rows, folder / "new.parquet"), str(folder / "*.parquet"))[1],
    "a table": lambda rows, _: rows,
    "a stream": lambda rows, _: pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=999)),
    "a relation": lambda rows, _: duckdb.from_arrow(rows),
}


@pytest.mark.parametrize("given", one_in(4, SOURCES))
def test_a_batch_beyond_memory_replaces_the_same_rows(given: str, tmp_path: Path) -> None:
    """Its parts are rows of one hash of the key: keys in any order, long texts, dictionaries, and new columns."""
    dice = np.random.default_rng(3)
    old = pa.table({"id": np.arange(2_000), "at": dice.integers(0, 99, 2_000), "text": ["old"] * 2_000})
    table = zskip.write(old, tmp_path / "t", by=["at"], files=6, sketches={"id": "values"})
    ids = dice.permutation(np.arange(1_000, 5_000))
    texts = pa.array([f"new {'x' * (id % 300)}" for id in ids.tolist()])
    rows = pa.table({"id": ids, "at": dice.integers(0, 99, len(ids)), "text": texts})
    rows = rows.append_column("kind", pa.array([f"k{id % 7}" for id in ids.tolist()]).dictionary_encode())
    done = table.upsert(SOURCES[given](rows, tmp_path), on="id", memory_limit=400_000, temp_directory=tmp_path)
    assert (done.updated, done.inserted) == (1_000, 3_000)
    expected = [*[{**row, "kind": None} for row in old.slice(0, 1_000).to_pylist()], *rows.to_pylist()]
    found = table.to_arrow(["id", "at", "text", "kind"]).to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == sorted(expected, key=lambda row: row["id"])
    for wrong, match in (([1, None], "NULL in row 4001"), ([1_900, 1], "id = 1900 occurs twice")):
        more = pa.concat_tables([rows, rows.slice(0, 2).set_column(0, "id", pa.array(wrong, pa.int64()))])
        with pytest.raises(SchemaMismatch, match=match):
            table.upsert(SOURCES[given](more, tmp_path), on="id", memory_limit=400_000, temp_directory=tmp_path)
    assert table.count() == len(expected)
    assert not list(tmp_path.glob("zskip-spill-*"))


def test_a_file_is_rewritten_in_place_and_only_those_with_a_key_are(tmp_path: Path) -> None:
    rows = pa.table({"id": np.arange(8000), "v": np.arange(8000) % 10})
    table = zskip.write(rows, tmp_path / "t", by="id", files=8)
    before = set(table.plan().scan.relative_paths)
    done = table.upsert(pa.table({"id": [10, 500], "v": [99, 99]}), on="id")
    kept = before & set(table.plan().scan.relative_paths)
    assert (done.files, len(kept), len(table.plan().scan.relative_paths)) == (1, 7, 8)
    assert len(table.plan("id = 500").paths) == 1
    assert table.optimize().files_rewritten == 0


def test_writers_at_the_same_time_lose_and_double_nothing(tmp_path: Path) -> None:
    """Two write keys of their own, two the same ones, and all see files that the others replace."""
    zskip.write(rows_of(list(range(60)), 1), tmp_path / "t", by=["id"], rows_per_file=15)

    def work(number: int) -> None:
        for step in range(2):
            own = list(range(20 * number, 20 * number + 20)) if number < 2 else [50, 51, 100 + step]
            zskip.open(tmp_path / "t").upsert(rows_of(own, 10 + 10 * number + step), on="id")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    stamps = {row[0]: row[3] for row in content(zskip.open(tmp_path / "t"))}
    assert sorted(stamps) == [*range(60), 100, 101]
    assert len(content(zskip.open(tmp_path / "t"))) == len(stamps)
    assert {stamps[id] for id in range(20)} == {11}
    assert {stamps[id] for id in range(20, 40)} == {21}
    assert stamps[50] == stamps[51]
    assert stamps[50] in (31, 41)


def test_the_command_upserts_a_batch_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zskip.write(rows_of(list(range(40)), 1), tmp_path / "t", by=["id"])
    pq.write_table(rows_of([3, 500], 9), tmp_path / "new.parquet")
    words = ["upsert", str(tmp_path / "new.parquet"), str(tmp_path / "t"), "--on", "id", "--batch", "app:7", "--json"]
    for expected in ((1, 1), (0, 0)):
        assert main(words) == 0
        facts = json.loads(capsys.readouterr().out)
        assert (facts["inserted"], facts["updated"]) == expected
    with pytest.raises(SystemExit):
        main([*words[:-2], "7"])


def test_columns_of_a_repeated_option_add_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.table({"id": [1, 1, 2], "part": ["a", "b", "a"], "v": [0, 0, 0]})
    table = zskip.write(rows, tmp_path / "t", by=["id"])
    pq.write_table(pa.table({"id": [1], "part": ["a"], "v": [9]}), tmp_path / "new.parquet")
    assert main(["upsert", str(tmp_path / "new.parquet"), str(tmp_path / "t"), "--on", "part", "--on", "id"]) == 0
    table.refresh()
    assert sorted(table.to_arrow()["v"].to_pylist()) == [0, 0, 9]


@pytest.mark.parametrize("on", ["a,b", '"a,b"', ['"a,b"'], ["A,B"]])
def test_a_key_is_named_as_any_column_is(on: str | list[str], tmp_path: Path) -> None:
    table = zskip.write(pa.table({"a,b": [1, 2], "v": [1, 2]}), tmp_path / "t", by=['"a,b"'])
    table.upsert(pa.table({"a,b": [2], "v": [3]}), on=on)
    assert sorted(table.to_arrow().column("v").to_pylist()) == [1, 3]


MEANWHILE: dict[str, Callable[[zskip.Table], object]] = {
    "inserts the key": lambda other: other.upsert(rows_of([500], 7), on="id"),
    "appends the key": lambda other: other.append(rows_of([500, 501], 7)),
    "rewrites all files": lambda other: other.optimize(full=True),
    "deletes a row beside": lambda other: other.delete("id = 4"),
    "adds a column": lambda other: other.append(rows_of([600], 7).append_column("more", pa.array([1]))),
}


@pytest.mark.parametrize(("what", "length"), one_in(2, MEANWHILE, [1, LONG]))
def test_what_another_writer_does_meanwhile_is_seen(what: str, length: int, tmp_path: Path) -> None:
    table = zskip.write(rows_of(list(range(40)), 1), tmp_path / "t", by=["id"], rows_per_file=10)
    done: list[object] = []

    def meanwhile(*_: object) -> None:
        if not done:
            done.append(None)
            MEANWHILE[what](zskip.open(tmp_path / "t"))

    new = rows_of([3, 500], 9, length)
    if what == "adds a column":
        with pytest.raises(SchemaMismatch, match="more"):
            table.upsert(new, on="id", progress=meanwhile, memory_limit=SPILLED)
        return
    receipt = table.upsert(new, on="id", progress=meanwhile, memory_limit=SPILLED)
    assert (receipt.inserted, receipt.updated) == ((0, 2) if "key" in what else (1, 1))
    found = content(zskip.open(tmp_path / "t"))
    assert [row[3] for row in found if row[0] in (3, 500)] == [9, 9]
    assert len({row[0] for row in found}) == len(found)
    zskip.open(tmp_path / "t").vacuum("0 seconds")
    named = set(zskip.open(tmp_path / "t").plan().scan.relative_paths)
    assert {file.name for file in (tmp_path / "t").glob("*.parquet")} == named


WRITER = """
import sys
import zskip
from tests.writer.test_upsert import rows_of
table, first = zskip.open(sys.argv[1]), int(sys.argv[2])
for stamp in range(first, first + 1000):
    table.upsert(rows_of([stamp % 50, stamp % 50 + 50, 1000 + stamp], stamp), on="id", batch=("kill", stamp))
    print(stamp, flush=True)
"""


@pytest.mark.slow
def test_a_killed_writer_goes_on_where_it_was(tmp_path: Path) -> None:
    zskip.write(rows_of(list(range(100)), 1), tmp_path / "t", by=["id"], rows_per_file=25)
    expected = dict.fromkeys(range(100), 1)
    first, dice = 2, random.Random(4)
    for _ in range(6):
        command = [sys.executable, "-c", WRITER, str(tmp_path / "t"), str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            acknowledged = int(writer.stdout.readline())
            time.sleep(dice.random())
            writer.kill()
            acknowledged = max([acknowledged, *map(int, writer.stdout.read().split())])
        table = zskip.open(tmp_path / "t")
        last = table._index.snapshot.applications["kill"]
        assert acknowledged <= last <= acknowledged + 1
        for stamp in range(first, last + 1):
            expected |= dict.fromkeys([stamp % 50, stamp % 50 + 50, 1000 + stamp], stamp)
        assert {row[0]: row[3] for row in content(table)} == expected
        assert len(content(table)) == len(expected)
        table.tend(older_than="0 seconds")
        first = last + 1
