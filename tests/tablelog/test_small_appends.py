"""Small appends: what they add to the log, and statistics of few files, which lie in the entry itself."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import obstore
import pyarrow as pa
import pytest

import zskip
from zskip.core.schema import Schema
from zskip.errors import CommitConflict, DamagedIndex
from zskip.stats import FileStatistics
from zskip.tablelog import log, shards
from zskip.tablelog.index import Index
from zskip.tablelog.parts import InlinePart

TYPES = {
    "int8": pa.array([-3, 4], pa.int8()),
    "uint64": pa.array([1, 2**64 - 1], pa.uint64()),
    "float16": pa.array(np.array([-1.5, 2], np.float16)),
    "float32": pa.array([float("-inf"), 0.1], pa.float32()),
    "float64": pa.array([float("nan"), -0.0], pa.float64()),
    "bool": pa.array([False, True]),
    "string": pa.array(["", '\u20ac\n"' * 100]),
    "binary": pa.array([b"\x00\xff", None], pa.binary()),
    "uuid": pa.array([UUID(int=1).bytes, UUID(int=2**128 - 1).bytes], pa.binary(16)),
    "decimal": pa.array([Decimal("-1.50"), Decimal(7)], pa.decimal128(38, 10)),
    "date32": pa.array([date(1, 1, 1), date(9999, 12, 31)]),
    "date64": pa.array([0, 86_400_000], pa.date64()),
    "time": pa.array([0, 86_399_999_999_999], pa.time64("ns")),
    "seconds": pa.array([-7, 2**40], pa.timestamp("s")),
    "zoned": pa.array([0, 2**62], pa.timestamp("ns", "Europe/Berlin")),
    "duration": pa.array([-1, 2**62], pa.duration("us")),
    "none": pa.array([None, None], pa.int32()),
}


def statistics(path: Path, schema: pa.Schema | None = None) -> FileStatistics:
    snapshot = zskip.open(path)._index.snapshot
    if schema is not None:
        snapshot = replace(snapshot, schema=Schema(schema))
    index = Index(zskip.open(path)._index.storage, snapshot)
    return index.file_statistics(np.arange(len(index)), list(snapshot.schema.columns))


def both(folder: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The same rows as two tables: with the statistics in the entry, and in a file."""
    inside, beside = folder / "inside", folder / "beside"
    zskip.write(rows, inside, by=rows.column_names[0], files=1)
    with monkeypatch.context() as patch:
        patch.setattr(shards, "INLINE_BYTES", 0)
        zskip.write(rows, beside, by=rows.column_names[0], files=1)
    assert isinstance(zskip.open(inside)._index.snapshot.shards[0].file_part, InlinePart)
    assert not isinstance(zskip.open(beside)._index.snapshot.shards[0].file_part, InlinePart)
    return inside, beside


def test_statistics_are_the_same_in_an_entry_and_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, beside = both(tmp_path, pa.table(TYPES), monkeypatch)
    found = statistics(inside)
    assert found == statistics(beside)
    assert found.columns["uint64"].upper.to_pylist() == [2**64 - 1]


def test_a_schema_that_changes_later_reads_an_entry_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = [
        (pa.int32(), pa.int64()),
        (pa.int32(), pa.float64()),
        (pa.float32(), pa.float64()),
        (pa.date32(), pa.timestamp("us")),
        (pa.timestamp("s"), pa.timestamp("ns")),
        (pa.decimal128(12, 2), pa.decimal128(20, 5)),
        (pa.int64(), pa.int32()),
        (pa.int64(), pa.string()),
    ]
    columns = {}
    for place, (old, _) in enumerate(changes):
        numbers = pa.array([1, 900], pa.int64() if pa.types.is_timestamp(old) else pa.int32())
        columns[f"c{place}"] = numbers.cast(old)
    inside, beside = both(tmp_path, pa.table(columns), monkeypatch)
    later = pa.schema({f"c{place}": new for place, (_, new) in enumerate(changes)})
    assert statistics(inside, later) == statistics(beside, later)


@pytest.mark.slow
def test_many_small_appends_stay_small(tmp_path: Path) -> None:
    """At most 3 kB in at most two files an append, and the entries do not grow with the log."""
    rows = pa.table({"id": np.arange(100), "value": np.arange(100)})
    table = zskip.write(rows, tmp_path, by="id", files=1)
    count = 70  # eight times eight shards are merged twice
    for _ in range(count):
        table.append(rows)
    files = [path.stat().st_size for path in (tmp_path / "_zskip").rglob("*") if path.is_file()]
    assert len(files) < 1.2 * count
    assert sum(files) < 2500 * count
    again = zskip.open(tmp_path)
    assert len(again._index.snapshot.shards) < 8 + 8 + 2
    assert again.count() == 100 * (count + 1)
    assert len(again.plan("id = 7").paths) == count + 1


def test_statistics_of_many_columns_or_files_lie_in_files(tmp_path: Path) -> None:
    wide = zskip.write(pa.table({f"c{n}": [n] for n in range(200)}), tmp_path / "wide", by="c0")
    many = zskip.write(pa.table({"a": range(80)}), tmp_path / "many", by="a", files=8)
    for table in (wide, many):
        assert not isinstance(zskip.open(table.uri)._index.snapshot.shards[0].file_part, InlinePart)


def test_the_newest_version_is_found_from_one_that_was_the_newest_before() -> None:
    """On a store the hint, the listing and the entry are requested at once; none of them is trusted alone."""
    rows = pa.table({"id": range(10)})
    table = zskip.write(rows, "memory://since/t", by="id", files=1)
    storage = table._index.storage
    table.append(rows)
    assert [log.newest(storage, since).version for since in (1, 2)] == [2, 2]  # type: ignore[union-attr]
    storage.put(log.HINT, b"1\n")  # the hint may be behind
    assert log.newest(storage, 2).version == 2  # type: ignore[union-attr]
    storage.put(log.HINT, b"3\n")
    for since in (1, 2):
        with pytest.raises(DamagedIndex, match="once held version 3"):
            log.newest(storage, since)
    storage.delete(storage.list("").path.to_pylist())
    assert log.newest(storage, 2) is None
    other = zskip.write(rows, "memory://since/t", by="id", files=1)
    assert log.newest(storage, 2).table_id == other._index.snapshot.table_id  # type: ignore[union-attr]
    with pytest.raises(CommitConflict, match="replaced"):
        table.append(rows)


def test_the_size_of_a_known_file_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    table = zskip.write(pa.table({"id": range(1000)}), "memory://sizes/t", by="id", files=4)
    asked: list[str] = []
    head = obstore.head
    monkeypatch.setattr(obstore, "head", lambda store, path: asked.append(path) or head(store, path))
    assert table.delete("id = 7 or id % 500 = 9").rows == 3
    now = set(table._index.recorded_paths(np.arange(len(table._index))).to_pylist())
    assert all(path.removeprefix("t/") in now for path in asked), "only new files are asked for"


@pytest.mark.parametrize(
    ("options", "rows", "reads"),
    [({}, 4096, False), ({}, 4097, True), ({"row_group_rows": 500}, 600, True), ({"layout": "linear"}, 600, True)],
)
def test_an_append_reads_statistics_if_weights_arrange_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], rows: int, reads: bool
) -> None:
    given = pa.table({"a": np.arange(20_000) % 977, "b": np.arange(20_000) % 641})
    with monkeypatch.context() as patch:
        patch.setattr(shards, "INLINE_BYTES", 0)
        zskip.write(given, tmp_path / "t", by=["a", "b"], files=4, **options)
    for part in (tmp_path / "t/_zskip/stats").iterdir():
        part.unlink()
    table = zskip.open(tmp_path / "t")
    with pytest.raises(DamagedIndex) if reads else nullcontext():
        assert table.append(given.slice(0, rows)).rows == rows
    assert len([*(tmp_path / "t").glob("*.parquet")]) == (4 if reads else 5)
