"""What an index keeps in memory: little or much of it, asked by one thread or by many, changes no answer."""

from __future__ import annotations

import importlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cachetools import LRUCache

import zskip
from tests.tables import build_table, plan_of
from zskip.errors import InvalidOption
from zskip.tablelog import shards
from zskip.tablelog.index import Index

planner = importlib.import_module("zskip.plan.planner")

PREDICATES = [f"a = {number}" for number in range(0, 1000, 67)] + [
    "b = 3 AND a < 500",
    "s IS NULL AND a BETWEEN 100 AND 300",
    "s = 'x7' OR a > 990",
    "b >= 0",
    "t < TIMESTAMP '1970-01-01 00:00:01'",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 40 files with three row groups each, in eight shards."""
    numbers = np.arange(6000)
    rows = pa.table(
        {
            "a": numbers // 6,
            "b": pa.array(numbers % 7, pa.int32()),
            "s": pa.array([f"x{number % 13}" if number % 5 else None for number in numbers]),
            "t": pa.array(numbers * 1000, pa.timestamp("us")),
        }
    )
    made = tmp_path_factory.mktemp("cache") / "t"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "FILES_PER_SHARD", 5)
        index = build_table(made, rows, by="a", files=40)
    assert len(index.snapshot.shards) == 8
    return made


def planned(index: Index, predicate: str) -> object:
    """All that a plan tells of the files and row groups that it keeps."""
    found = plan_of(index, predicate)
    return (
        found.paths,
        found.scan.files.column("all_match").to_pylist(),
        [one.row_groups for one in found.files],
        found.scan.files.column("rows").to_pylist(),
    )


def test_a_cache_without_room_gives_the_same_plans(folder: Path) -> None:
    large, small = zskip.open(folder)._index, zskip.open(folder, cache_limit=1)._index
    assert [planned(small, one) for one in PREDICATES] == [planned(large, one) for one in PREDICATES]
    assert len(small._kept) == 1
    assert len(large._kept) > 20


def test_a_column_that_leaves_the_cache_while_it_is_asked_for_is_read_again(folder: Path) -> None:
    index = zskip.open(folder)._index
    assert index.files([0], ["a"]).statistics.columns["a"].lower.to_pylist()[:2] == [0, 25]
    index._kept.pop(("file", 0, None))  # the rows of the files: reading them again pushes the column out
    full: LRUCache[Any, Any] = LRUCache(index._kept.currsize, lambda kept: kept[1])
    for key, value in index._kept.items():
        full[key] = value
    index._kept = full
    assert index.files([0], ["a"]).statistics.columns["a"].lower.to_pylist()[:2] == [0, 25]


def test_a_table_keeps_its_cache_limit(folder: Path) -> None:
    table = zskip.open(folder, cache_limit="3MB")
    assert table._index.cache_bytes == 3_000_000
    table.refresh()
    assert table._index.cache_bytes == 3_000_000
    with pytest.raises(InvalidOption, match="cache_limit"):
        zskip.open(folder, cache_limit="none")


def test_shards_that_are_judged_in_parts_give_the_same_plans(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [planned(zskip.open(folder)._index, one) for one in PREDICATES]
    monkeypatch.setattr(planner, "_SHARDS_AT_ONCE", 3)
    assert [planned(zskip.open(folder)._index, one) for one in PREDICATES] == expected


@pytest.mark.parametrize("limit", ["1GB", *(pytest.param(limit, marks=pytest.mark.slow) for limit in (4000, 1))])
def test_threads_plan_on_one_table_at_once(folder: Path, limit: int | str) -> None:
    expected = [planned(zskip.open(folder)._index, one) for one in PREDICATES]
    workers = 4
    for _ in range(2):
        shared, start = zskip.open(folder, cache_limit=limit)._index, Barrier(workers)

        def work(shift: int, shared: Index = shared, start: Barrier = start) -> list[object]:
            start.wait()
            found = {one: planned(shared, one) for one in PREDICATES[shift:] + PREDICATES[:shift]}
            return [found[one] for one in PREDICATES]

        with ThreadPoolExecutor(workers) as pool:
            for found in pool.map(work, range(0, 4 * workers, 4)):
                assert found == expected
    assert shared._kept.currsize == sum(size for _, size in shared._kept.values()) <= shared.cache_bytes


@pytest.mark.usefixtures("parts_in_files")
def test_any_engine_reads_the_parts(tmp_path: Path) -> None:
    zskip.write(pa.table({"a": range(600), "s": [f"k{n}" for n in range(600)]}), tmp_path, by="a", files=8)
    zskip.write(pa.table({"a": [7], "s": ["k7"]}), tmp_path, mode="append", row_group_rows=None)
    con = duckdb.connect()
    packed = set()
    for part in (tmp_path / "_zskip" / "stats").iterdir():
        kept = pq.read_table(part)
        assert con.read_parquet(str(part)).to_arrow_table().cast(kept.schema).equals(kept)
        encodings = pq.read_metadata(part).row_group(0).column(kept.column_names.index("a.lower")).encodings
        packed.add("DELTA_BINARY_PACKED" in encodings)
    assert packed == {True, False}, "many files are packed, and few are plain"


def test_statistics_of_many_shards_are_joined_once_where_they_fit(folder: Path) -> None:
    large, small = zskip.open(folder)._index, zskip.open(folder, cache_limit=4000)._index
    assert large.files(None, ["a"]) is large.files(None, ["a"])
    again, once = (small.files(None, ["a"]) for _ in range(2))
    assert again is not once
    lowest = large.files(None, ["a"]).statistics.columns["a"].lower
    assert once.statistics.columns["a"].lower.equals(lowest)
    assert len(lowest) == len(once.numbers) == 40
