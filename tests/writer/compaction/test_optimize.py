"""Optimize: rewrites where that pays, keeps every row, restores the share skipped, and then has nothing to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zskip
from tests import one_in
from zskip.errors import CommitConflict, CorruptFile, InvalidOption
from zskip.stats import Ranges, Statistics
from zskip.storage import Storage
from zskip.tablelog.commit import TableUpdate
from zskip.tablelog.snapshot import Snapshot
from zskip.writer.compaction import compact
from zskip.writer.compaction.layout_groups import merges
from zskip.writer.look_ups import LookUps
from zskip.writer.paths import groups_of


def rows_of(
    count: int, seed: int, *, since: int = 0, heavy: int | None = None, wide: bool = False, days: int = 0
) -> pa.Table:
    dice = np.random.default_rng(seed)
    a = dice.integers(0, 1000, count) if heavy is None else np.full(count, heavy)
    rows = pa.table(
        {
            "id": pa.array(np.arange(count) + seed * 1_000_000),
            "a": pa.array(a, pa.int64() if wide else pa.int32()),
            "b": pa.array(dice.random(count)),
            "at": pa.array(np.sort(dice.integers(since, since + 1000, count))),
        }
    )
    return rows.append_column("day", pa.array((a % days).astype(str))) if days else rows


def skipped(table: zskip.Table) -> float:
    return float(np.mean([depth.skipped for depth in table.clustering().values()]))


def ids(table: zskip.Table) -> list[int]:
    found: list[int] = sorted(table.to_arrow(["id"]).column("id").to_pylist())
    return found


Append = Callable[[int], pa.Table]
APPENDS: dict[str, tuple[dict[str, Any], Append]] = {
    "inside the fitted range": ({"by": ["a", "b"]}, lambda seed: rows_of(200, seed)),
    "outside the fitted range": ({"by": ["at", "a"]}, lambda seed: rows_of(200, seed, since=1000 + 100 * seed)),
    "a heavy value": ({"by": ["a", "b"]}, lambda seed: rows_of(200, seed, heavy=500)),
    "a heavy new value": ({"by": ["a", "b"]}, lambda seed: rows_of(200, seed, heavy=5000)),
    "one column": ({"by": ["a"], "layout": "linear"}, lambda seed: rows_of(200, seed)),
    "a widened column": ({"by": ["a", "b"]}, lambda seed: rows_of(200, seed, wide=True)),
    "weights": ({"by": ["a", "b"], "weights": {"a": 1.0, "b": 0.0}}, lambda seed: rows_of(200, seed)),
    "a workload": ({"by": ["a"], "workload": ["a = 7 AND b < 0.5"]}, lambda seed: rows_of(200, seed)),
}


@pytest.mark.parametrize("name", one_in(4, APPENDS))
def test_appends_of_every_kind_are_merged_cheaply_and_skipped_as_after_a_full_rewrite(
    name: str, tmp_path: Path
) -> None:
    options, rows = APPENDS[name]
    table = zskip.write(rows_of(12_000, 1), tmp_path / "t", files=10, **options)
    for seed in range(2, 9):
        table.append(rows(seed))
    before = ids(table)
    there = set(table.plan().scan.relative_paths)
    size = table._index.snapshot.totals.bytes
    assert size is not None
    done = table.optimize()
    assert 0 < done.bytes_rewritten < size / 4
    assert done.files_after is not None
    assert done.files_after < done.files_before
    assert ids(table) == before
    assert len(there & set(table.plan().scan.relative_paths)) == done.files_before - done.files_rewritten
    reached = skipped(table)
    again = table.optimize()
    assert (again.files_rewritten, again.version) == (0, table.version)
    table.optimize(full=True)
    assert ids(table) == before
    # By a single column, a look-up reads one of ten files, and that of the appends.
    assert 1 - reached < (2 if len(table.clustering()) == 1 else 1.3) * (1 - skipped(table)) + 0.01


@pytest.mark.parametrize(("rows", "nights"), [(100, 6), pytest.param(2000, 18, marks=pytest.mark.slow)])
def test_a_table_that_grows_every_night_stays_sharp(rows: int, nights: int, tmp_path: Path) -> None:
    table = zskip.write(rows_of(rows, 1), tmp_path / "t", by=["at", "a"], rows_per_file=2000)
    for night in range(2, 2 + nights):
        table.append(rows_of(rows, night, since=1000 * night))
        wanted = table.optimize(dry_run=True)
        done = table.optimize()
        assert done.files_rewritten >= wanted.files_rewritten
        assert table.optimize().files_rewritten == 0
    assert len(ids(table)) == (nights + 1) * rows
    measured = skipped(table)
    assert 0 <= table.optimize(dry_run=True).full_saves < 0.3
    table.optimize(full=True)
    assert 1 - measured < 1.35 * (1 - skipped(table)) + 0.01
    assert table.optimize(dry_run=True).full_saves == 0


def test_what_deletes_leave_of_a_group_stays_in_it(tmp_path: Path) -> None:
    table = zskip.write(rows_of(2_000, 1, days=2), tmp_path / "t", by=["a", "b"], files=6, partition_by="day")
    table.append(rows_of(300, 2, days=2))
    for step in range(2):
        done = table.delete(f"id % 7 = {step}")
        assert done.files_rewritten > 0
    paths = pa.array(table.plan().scan.relative_paths)
    assert len(set(groups_of(paths).tolist())) == 4
    appended = [*rows_of(2_000, 1)["id"].to_pylist(), *rows_of(300, 2)["id"].to_pylist()]
    assert ids(table) == sorted(id for id in appended if id % 7 > 1)


def test_partitions_are_kept_apart(tmp_path: Path) -> None:
    table = zskip.write(rows_of(3_000, 1, days=3), tmp_path / "t", by=["a", "b"], partition_by="day", files=6)
    for seed in range(2, 6):
        table.append(rows_of(60, seed, days=4))
    before = sorted(zip(*(table.to_arrow().column(name).to_pylist() for name in ("id", "day")), strict=True))
    assert table.optimize().files_rewritten > 0
    after = sorted(zip(*(table.to_arrow().column(name).to_pylist() for name in ("id", "day")), strict=True))
    assert after == before
    plan = table.plan("day = '2'")
    assert all("day=2/" in path for path in plan.paths)
    assert plan.to_arrow().num_rows == sum(day == "2" for _, day in before)


@pytest.mark.parametrize("full", [False, True])
def test_tables_with_nothing_or_one_file(full: bool, tmp_path: Path) -> None:
    table = zskip.write(rows_of(100, 1), tmp_path / "one", by=["a"], files=1)
    assert table.optimize(full=full).files_rewritten == int(full)
    assert len(ids(table)) == 100
    table.delete("TRUE")
    done = table.optimize(full=full)
    assert (done.files_rewritten, done.files_before, done.files_after) == (0, 0, 0)
    empty = zskip.write(rows_of(0, 1), tmp_path / "empty", by=["a"])
    assert empty.optimize(full=full).files_rewritten == 0
    assert empty.append(rows_of(5, 2)).rows == 5


def in_partitions(path: Path) -> zskip.Table:
    """A table in which three merges are due, one in each partition."""
    table = zskip.write(rows_of(6_000, 1, days=3), path, by=["a", "b"], partition_by="day", rows_per_file=400)
    for seed in range(2, 7):
        table.append(rows_of(120, seed, days=3))
    return table


@pytest.mark.slow
def test_a_limit_takes_the_best_merges_and_leaves_the_rest_for_the_next_run(tmp_path: Path) -> None:
    table = in_partitions(tmp_path / "t")
    before, wanted = ids(table), table.optimize(dry_run=True)
    limit = wanted.bytes_rewritten // 2
    first = table.optimize(max_bytes=limit)
    assert 0 < first.bytes_rewritten <= limit
    second = table.optimize()
    assert second.files_rewritten == wanted.files_rewritten - first.files_rewritten > 0
    assert [entry.operation for entry in table.history(3)] == ["optimize"] * 3
    assert table.optimize().files_rewritten == 0
    assert ids(table) == before
    assert table.optimize(max_bytes=1).files_rewritten == 0
    with pytest.raises(InvalidOption):
        table.optimize(full=True, max_bytes=limit)


@pytest.mark.slow
def test_many_short_nights_reach_what_their_limit_allows(tmp_path: Path) -> None:
    """Forty appends in no order: one merge of nearly all is due, and each night may rewrite a quarter."""
    table = zskip.write(rows_of(500, 1), tmp_path / "t", by=["a", "b"], rows_per_file=500)
    for seed in range(2, 41):
        table.append(rows_of(500, seed))
    before, (whole, unsorted) = ids(table), (table._index.snapshot.totals.bytes, skipped(table))
    assert whole is not None
    assert table.optimize(dry_run=True).files_rewritten > 30
    assert table.optimize(dry_run=True, max_bytes=whole // 4).files_rewritten > 0
    nights = 0
    while (done := table.optimize(max_bytes=whole // 4)).files_rewritten:
        assert done.bytes_rewritten <= whole // 4
        nights += 1
    assert nights >= 4
    assert ids(table) == before
    assert 1 - skipped(table) < 0.5 * (1 - unsorted)


def test_small_memory_is_enough(tmp_path: Path) -> None:
    table = zskip.write(rows_of(20_000, 1), tmp_path / "t", by=["a", "b"], files=4)
    for seed in range(2, 6):
        table.append(rows_of(6_000, seed))
    before = ids(table)
    assert table.optimize(memory_limit="1MB").files_rewritten > 0
    assert table.optimize(full=True, memory_limit="1MB").files_rewritten > 0
    assert ids(table) == before


def test_a_file_that_lost_rows_is_not_rewritten(tmp_path: Path) -> None:
    table = zskip.write(rows_of(6_000, 1), tmp_path / "t", by=["a", "b"], files=3)
    for seed in range(2, 8):
        table.append(rows_of(60, seed))
    victim = next(path for path in table.plan("id >= 2000000").paths)
    pq.write_table(pq.read_table(victim).slice(1), victim)
    version, there = table.version, set((tmp_path / "t").glob("*.parquet"))
    for full in (False, True):
        with pytest.raises(CorruptFile, match="rows by the index"):
            table.optimize(full=full)
    assert zskip.open(table.uri).version == version
    assert set((tmp_path / "t").glob("*.parquet")) == there


def test_a_delete_meanwhile_is_a_conflict_that_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = zskip.write(rows_of(6_000, 1), tmp_path / "t", by=["a", "b"], files=3)
    for seed in range(2, 8):
        table.append(rows_of(60, seed))
    real = compact.commit

    def delayed(*args: Any, **options: Any) -> object:
        zskip.open(table.uri).delete("TRUE")
        return real(*args, **options)

    monkeypatch.setattr(compact, "commit", delayed)
    there = set((tmp_path / "t").glob("*.parquet"))
    with pytest.raises(CommitConflict):
        table.optimize()
    assert set((tmp_path / "t").glob("*.parquet")) == there
    assert zskip.open(table.uri).to_arrow().num_rows == 0


def test_merges_whose_files_others_changed_are_dropped_and_the_rest_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = in_partitions(tmp_path / "t")
    wanted = table.optimize(dry_run=True)
    real, calls = compact.commit, []

    def delayed(storage: Storage, base: Snapshot, update: TableUpdate, **options: Any) -> object:
        calls.append(update)
        if len(calls) == 1:
            other = zskip.open(table.uri)
            day = update.remove[0].split("=")[1][0]
            other.delete(f"day = '{day}' AND id >= 2000000")
            other.append(rows_of(140, 8, days=3))
            gone.append(day)
        return real(storage, base, update, **options)

    gone: list[str] = []
    monkeypatch.setattr(compact, "commit", delayed)
    done = table.optimize()
    assert len(calls) == 3
    assert done.files_left == wanted.files_rewritten - done.files_rewritten == wanted.files_rewritten / 3
    assert done.bytes_rewritten < wanted.bytes_rewritten
    everything = pa.concat_tables([rows_of(6_000, 1), *(rows_of(120, seed) for seed in range(2, 7))])
    stay = [
        id
        for id, a in zip(*(everything[name].to_pylist() for name in ("id", "a")), strict=True)
        if id < 2_000_000 or a % 3 != int(gone[0])
    ]
    assert ids(table) == sorted([*stay, *rows_of(140, 8)["id"].to_pylist()])
    table.vacuum("0 days")
    named = set(table.plan().scan.relative_paths)
    assert {str(path.relative_to(tmp_path / "t")) for path in (tmp_path / "t").rglob("*.parquet")} == named
    assert table.optimize().files_left == 0


@settings(max_examples=15)
@given(st.lists(st.integers(1, 400) | st.integers(1, 30), min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_a_row_is_rewritten_at_most_log4_times_and_log2_times_within_a_file(appends: list[int], random: Any) -> None:
    """Any sizes of appends, in any order of their values, with an optimize after each."""
    written = np.array([[0.0, 0, 0, 0, 0]])[:0]  # of each group: rows, lower and upper bounds of a and b
    history: list[list[int]] = []  # of each group: the appends in it
    rewritten = [0] * len(appends)
    for number, rows in enumerate(appends):
        low = random.random() * 0.9
        written = np.vstack([written, [rows, low, low + random.random() * 0.1, random.random() / 2, 1.0]])
        history.append([number])
        while found := merges_of(written):
            for merge in found:
                chosen = written[merge]
                whole = [chosen[:, 0].sum(), chosen[:, 1].min(), chosen[:, 2].max(), chosen[:, 3].min(), 1.0]
                written = np.vstack([written, whole])
                history.append([one for member in merge for one in history[member]])
                for one in history[-1]:
                    rewritten[one] += 1
            kept = np.setdiff1d(np.arange(len(written)), np.concatenate(found))
            written, history = written[kept], [history[one] for one in kept.tolist()]
    total = sum(appends)
    most = [_most_rewrites(rows, total) + 1e-9 for rows in appends]
    assert all(times <= limit for times, limit in zip(rewritten, most, strict=True))


def _most_rewrites(rows: int, total: int) -> float:
    """A full file has 100 rows: up to there the rows of an append double, and fill it at last; then they quadruple."""
    within = max(rows, min(total, 100))
    return float(np.log2(within / rows) + (rows < 90) + np.log(total / within) / np.log(4))


def merges_of(groups: np.ndarray, max_bytes: int | None = None) -> list[list[int]]:
    """The groups that the rule merges, each of which is given by its rows of 10 bytes and the bounds of two columns."""
    ranges = {
        name: Ranges(*(pa.array(groups[:, place]) for place in (at, at + 1)), **flags(len(groups)))
        for name, at in (("a", 1), ("b", 3))
    }
    rows = groups[:, 0]
    look_ups = LookUps.of(Statistics(pa.array(rows.astype(np.int64)), ranges), ["a", "b"], None)
    paths = pa.array([f"{number}.parquet" for number in range(len(groups))])
    sizes = 10 * rows.astype(np.int64)
    found = merges(paths, rows, look_ups, 100, sizes=sizes, max_bytes=max_bytes)
    return [merge.numbers.tolist() for merge in found]


def flags(count: int) -> dict[str, pa.Array]:
    yes, no = pa.array([True] * count), pa.array([False] * count)
    return {"has_value": yes, "has_null": no, "has_nan": no}


def test_a_merge_must_grow_four_times_and_save_a_fifth() -> None:
    apart = [[100, at, at + 0.5, 0.0, 1.0] for at in range(12)]
    assert all(len(each) >= 4 for each in merges_of(np.array(apart)))
    assert merges_of(np.array(apart)) != []
    assert merges_of(np.array([*apart[:3], [500, 3, 3.5, 0.0, 1.0]])) == []  # not four times the largest
    sharp = [[100, at, at + 0.1, at, at + 0.1] for at in range(12)]
    assert merges_of(np.array(sharp)) == []  # each look-up reads one of them already
    large = np.array([[4000, 0.0, 12, 0, 1], *apart])
    assert all(0 not in each for each in merges_of(large))
    unknown = np.array([[100, np.nan, np.nan, np.nan, np.nan]] * 4)
    assert [sorted(each) for each in merges_of(unknown)] in ([], [[0, 1, 2, 3]])


def test_the_night_of_a_fourfold_growth_rewrites_all_groups_that_overlap() -> None:
    """Appends of one size in random order: a limit in bytes is the way to spread this night."""

    def overlapping(*rows: int) -> np.ndarray:
        return np.array([[each, 0.0, 1.0, 0.0, 1.0] for each in rows])

    before = [*[1600] * 3, *[400] * 3, *[100] * 3]
    assert merges_of(overlapping(*before)) == []
    assert [len(each) for each in merges_of(overlapping(*before, 100))] == [10]


def test_a_limit_merges_groups_that_fit_in_place_of_all_at_once() -> None:
    same = np.array([[100, 0.0, 1.0, 0.0, 1.0]] * 64)
    assert [len(each) for each in merges_of(same)] == [64]
    assert [len(each) for each in merges_of(same, max_bytes=16_000)] == [16] * 4
    assert merges_of(same, max_bytes=3_999) == []


def test_small_groups_merge_where_they_double_or_fill_a_file() -> None:
    def small(rows: int, count: int) -> np.ndarray:
        return np.array([[rows, 0.0, 1.0, 0.0, 1.0]] * count)

    assert merges_of(small(31, 3)) == [[0, 1, 2]]
    assert merges_of(small(2, 2)) == [[0, 1]]
    assert merges_of(np.vstack([small(40, 1), small(20, 1)])) == [], "neither twice the larger, nor a full file"
    assert merges_of(small(51, 2)) == [], "more than a file"
    assert merges_of(small(91, 2)) == []
    assert merges_of(small(45, 2)) == [[0, 1]]
    assert merges_of(np.vstack([small(95, 1), small(4, 1)])) == [], "a full file is not rewritten again"
    apart = np.array([[31, at, at + 0.5, 0.0, 1.0] for at in range(3)])
    assert merges_of(apart) == [], "a look-up would read more"
