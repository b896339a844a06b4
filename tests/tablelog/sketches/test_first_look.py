"""Look-ups that ask the sketches before the ranges: which files and shards are read, and that none is missed."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import zskip
from zskip import pruning
from zskip.binder import bind
from zskip.plan import planner
from zskip.plan.planner import plan
from zskip.tablelog import shards
from zskip.tablelog.index import Index
from zskip.tablelog.log import load
from zskip.tablelog.sketch_evidence import ShardIds, sketches_of
from zskip.tablelog.sketches.pairs import Coverage

committing = import_module("zskip.tablelog.commit")


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any table is one of many files, in shards of four."""
    monkeypatch.setattr(planner, "_MANY_FILES", 0)
    monkeypatch.setattr(shards, "FILES_PER_SHARD", 4)
    monkeypatch.setattr(committing, "_SMALL", 2)


def uid(n: int) -> str:
    return f"{n * 2654435761 % 2**32:08x}"


def rows(first: int, count: int) -> pa.Table:
    numbers = np.arange(first, first + count)
    return pa.table({"n": numbers, "part": numbers % 5, "uid": [uid(n) for n in numbers.tolist()]})


def found(table: zskip.Table, where: str) -> tuple[int, list[int]]:
    planned = table.plan(where)
    return len(planned), planned.to_arrow(["n"])["n"].to_pylist()


def test_only_the_named_files_and_their_shards_are_read(
    many: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = zskip.write(rows(0, 4000), tmp_path / "t", by="n", files=40, sketches={"uid": "values"})
    assert len(table._index.snapshot.shards) == 10
    monkeypatch.setattr(Index, "files", None)  # the ranges of all
    read: list[int] = []
    ids = Index.ids
    monkeypatch.setattr(Index, "ids", lambda self, files: read.extend(files.tolist()) or ids(self, files))
    index = Index(table._index.storage, load(table._index.storage))
    predicate = bind(f"uid = '{uid(2345)}' AND n < 3000", index.snapshot.schema)
    assert len(plan(index, predicate)) == 1
    assert set(read) == {20, 21, 22, 23}


def test_files_that_no_segment_knows_are_kept(many: None, tmp_path: Path) -> None:
    table = zskip.write(rows(0, 4000), tmp_path / "t", by="n", files=40, sketches={"uid": "values"})
    for part in (0, 1):
        table.append(rows(4000 + part * 100, 100))
    assert [found(table, f"uid = '{uid(n)}'") for n in (7, 4150)] == [(1, [7]), (1, [4150])]
    sketch = table._index.snapshot.sketches[0]
    path = tmp_path / "t" / sketch.segments[-1].part.path
    path.write_bytes(b"damaged")
    damaged = zskip.open(table.uri)
    files, held = found(damaged, f"uid = '{uid(4150)}'")
    assert held == [4150]
    assert 1 <= files <= 2
    assert found(damaged, f"uid = '{uid(7)}'")[1] == [7]
    numbers = [*range(7, 4000, 40), 4150]
    pairs = ", ".join(f"('{uid(n)}', {n})" for n in numbers)
    assert sorted(found(damaged, f"(uid, n) IN ({pairs})")[1]) == numbers


def test_deleted_and_rewritten_files_are_found_by_their_ids(many: None, tmp_path: Path) -> None:
    table = zskip.write(rows(0, 4000), tmp_path / "t", by="n", files=40, sketches={"uid": "values"})
    for n in range(50, 4000, 650):
        table.delete(f"n = {n}")
    alive = [n for n in range(0, 4000, 499) if (n - 50) % 650]
    assert [found(table, f"uid = '{uid(n)}'") for n in alive] == [(1, [n]) for n in alive]
    assert found(table, f"uid = '{uid(700)}'") == (0, [])
    table.optimize()
    assert [found(table, f"uid = '{uid(n)}'") for n in alive] == [(1, [n]) for n in alive]
    assert found(table, f"uid IN ('{uid(5)}', '{uid(3999)}') OR uid = '{uid(2001)}'") == (3, [5, 2001, 3999])


def test_what_sketches_cannot_name_is_left_to_ranges(tmp_path: Path) -> None:
    table = zskip.write(rows(0, 400), tmp_path / "t", by="n", files=4, sketches={"uid": ["values", "substrings"]})
    search = sketches_of(Index(table._index.storage, table._index.snapshot))

    def named(where: str) -> list[int] | None:
        units = pruning.candidates(bind(where, table._index.snapshot.schema), search)
        return None if units is None else units.tolist()

    first, last = uid(5), uid(395)
    assert named(f"uid = '{first}'") == [0]
    assert named(f"uid = '{first}' AND n > 7") == [0]
    assert named(f"uid = '{first}' AND uid LIKE '%{last[1:7]}%'") == []
    assert named(f"uid = '{first}' OR uid LIKE '%{last[1:7]}%'") == [0, 3]
    assert named(f"(uid, n) IN (('{first}', 5), ('{last}', 1))") == [0, 3]
    assert named(f"uid IS NOT DISTINCT FROM '{last}'") == [3]
    assert named(f"(uid = '{last}') IS TRUE") == [3]
    for where in (
        f"uid = '{first}' OR n > 7",
        f"uid <> '{first}'",
        f"uid = '{first}' OR uid IS NULL",
        f"NOT (uid = '{first}')",
        f"(uid = '{first}') IS NOT TRUE",
        "n = 5",
        "uid LIKE '%ab%'",
        "uid > 'a'",
    ):
        assert named(where) is None, where


def test_runs_of_ids_cover_every_id_and_name_its_shard() -> None:
    random = np.random.default_rng(1)
    for _ in range(200):
        parts = [np.unique(random.integers(0, 200, random.integers(1, 60))) for _ in range(3)]
        runs = [shards._runs_of_ids(pa.array(random.permutation(part))) for part in parts]
        assert all(len(each) <= 16 for each in runs)
        for part, each in zip(parts, runs, strict=True):
            held = {number for first, count in each for number in range(first, first + count)}
            assert held >= set(part.tolist())
            assert len(each) == 16 or held == set(part.tolist())
        covered = Coverage.union([Coverage.of(part) for part in parts[:2]])
        known = np.union1d(parts[0], parts[1])
        assert covered.ids().tolist() == known.tolist()
        first = random.integers(0, 200, 5)
        end = first + random.integers(1, 9, 5)
        inside = [set(range(a, b)) <= set(known.tolist()) for a, b in zip(first, end, strict=True)]
        assert covered.holds(first, end).tolist() == inside
    assert shards._runs_of_ids(pa.array([1, None])) == ()
    assert not Coverage.union([]).holds(np.array([1]), np.array([2])).any()


def test_a_shard_without_runs_is_always_asked() -> None:
    made = ShardIds(np.array([5, 9]), np.array([7, 20]), np.array([0, 2]), np.array([1]))
    assert made.holding(np.array([6, 100])).tolist() == [0, 1]
    assert made.holding(np.array([7, 8])).tolist() == [1]
    assert made.beyond(Coverage(np.array([0]), np.array([9]))).tolist() == [1, 2]
