"""Optimize: rewrites where that pays, keeps every row, restores the share skipped, and then has nothing to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import zskip
from zskip.errors import CommitConflict, CorruptFile, InvalidOption
from zskip.layouts.depth import depths
from zskip.stats import Ranges, Statistics
from zskip.writer.compaction import compact
from zskip.writer.compaction.choose import worth_rewriting


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
    "inside the fitted range": ({"by": ["a", "b"]}, lambda seed: rows_of(600, seed)),
    "outside the fitted range": ({"by": ["at", "a"]}, lambda seed: rows_of(600, seed, since=1000 + 100 * seed)),
    "a heavy value": ({"by": ["a", "b"]}, lambda seed: rows_of(600, seed, heavy=500)),
    "a heavy new value": ({"by": ["a", "b"]}, lambda seed: rows_of(600, seed, heavy=5000)),
    "one column": ({"by": ["a"], "layout": "linear"}, lambda seed: rows_of(600, seed)),
    "a widened column": ({"by": ["a", "b"]}, lambda seed: rows_of(600, seed, wide=True)),
    "weights": ({"by": ["a", "b"], "weights": {"a": 1.0, "b": 0.0}}, lambda seed: rows_of(600, seed)),
    "a workload": ({"by": ["a"], "workload": ["a = 7 AND b < 0.5"]}, lambda seed: rows_of(600, seed)),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if at % 4 else []) for at, name in enumerate(APPENDS)]
)
def test_appends_of_every_kind_are_merged_cheaply_and_skipped_as_after_a_full_rewrite(
    name: str, tmp_path: Path
) -> None:
    options, rows = APPENDS[name]
    table = zskip.write(rows_of(60_000, 1), tmp_path / "t", files=10, **options)
    for seed in range(2, 12):
        table.append(rows(seed))
    before = ids(table)
    there = set(table.plan().scan.relative_paths)
    size = table.snapshot.totals.bytes
    assert size is not None
    done = table.optimize()
    assert 0 < done.bytes_rewritten < size / 2
    assert done.files_after is not None
    assert done.files_after < done.files_before
    assert done.depth_after is not None
    assert done.depth_after < done.depth_before
    assert ids(table) == before
    assert len(there & set(table.plan().scan.relative_paths)) == done.files_before - done.files_rewritten
    reached = skipped(table)
    again = table.optimize()
    assert (again.files_rewritten, again.version) == (0, done.version)
    table.optimize(full=True)
    assert ids(table) == before
    assert reached > skipped(table) - 0.01


def test_what_an_optimize_leaves_is_not_worth_another_one_by_the_same_reckoning(tmp_path: Path) -> None:
    """The second run is not spared by a mark alone: the next append brings back little work."""
    table = zskip.write(rows_of(60_000, 1), tmp_path / "t", by=["a", "b"], files=10)
    for seed in range(2, 12):
        table.append(rows_of(600, seed))
    first = table.optimize()
    table.append(rows_of(10, 99).slice(0, 1))
    assert table.optimize(dry_run=True).bytes_rewritten < first.bytes_rewritten / 3


def test_partitions_are_kept_apart(tmp_path: Path) -> None:
    table = zskip.write(rows_of(30_000, 1, days=3), tmp_path / "t", by=["a", "b"], partition_by="day", files=6)
    for seed in range(2, 8):
        table.append(rows_of(600, seed, days=4))
    before = sorted(zip(*(table.to_arrow().column(name).to_pylist() for name in ("id", "day")), strict=True))
    assert table.optimize().files_rewritten > 0
    after = sorted(zip(*(table.to_arrow().column(name).to_pylist() for name in ("id", "day")), strict=True))
    assert after == before
    plan = table.plan("day = '2'")
    assert all("day=2/" in path for path in plan.paths)
    assert plan.to_arrow().num_rows == sum(day == "2" for _, day in before)


def test_tiny_files_that_deletes_leave_are_merged(tmp_path: Path) -> None:
    table = zskip.write(rows_of(100_000, 1), tmp_path / "t", by=["a"], layout="linear", files=30)
    for first in range(0, 1000, 50):
        table.delete(f"a BETWEEN {first} AND {first + 49} AND id % 500 <> 0")
    before = ids(table)
    done = table.optimize()
    assert done.files_after is not None
    assert done.files_after < done.files_before / 4
    assert ids(table) == before
    assert table.optimize().files_rewritten == 0


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


def test_a_limit_takes_the_best_groups_and_leaves_the_rest_for_the_next_run(tmp_path: Path) -> None:
    table = zskip.write(rows_of(60_000, 1), tmp_path / "t", by=["a", "b"], files=100)
    for seed in range(2, 8):
        table.append(rows_of(600, seed))
    before, wanted = ids(table), table.optimize(dry_run=True)
    limit = wanted.bytes_rewritten // 5
    first = table.optimize(max_bytes=limit)
    assert 0 < first.bytes_rewritten <= limit
    second = table.optimize()
    # fewer large files may join now, since fewer small ones are left that they could join
    assert 0 < second.files_rewritten <= wanted.files_rewritten - first.files_rewritten
    assert table.optimize().files_rewritten == 0
    assert ids(table) == before
    assert table.optimize(max_bytes=1).files_rewritten == 0
    with pytest.raises(InvalidOption):
        table.optimize(full=True, max_bytes=limit)


def test_small_memory_is_enough(tmp_path: Path) -> None:
    table = zskip.write(rows_of(60_000, 1), tmp_path / "t", by=["a", "b"], files=4)
    for seed in range(2, 8):
        table.append(rows_of(20_000, seed))
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


def test_groups_that_others_changed_meanwhile_are_left_and_the_rest_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = zskip.write(rows_of(60_000, 1), tmp_path / "t", by=["a"], layout="linear", files=100)
    for seed in range(2, 8):
        table.append(rows_of(700, seed))
    wanted = table.optimize(dry_run=True)
    real, calls = compact.commit, []

    def delayed(*args: Any, **options: Any) -> object:
        calls.append(options)
        if len(calls) == 1:
            other = zskip.open(table.uri)
            other.delete("a < 40 AND id >= 2000000")
            other.append(rows_of(700, 8))
        return real(*args, **options)

    monkeypatch.setattr(compact, "commit", delayed)
    done = table.optimize()
    assert len(calls) == 2
    assert 0 < done.files_rewritten < wanted.files_rewritten
    assert done.files_left == wanted.files_rewritten - done.files_rewritten
    assert done.bytes_rewritten < wanted.bytes_rewritten
    everything = pa.concat_tables([rows_of(60_000, 1), *(rows_of(700, seed) for seed in range(2, 9))])
    kept = (pc.field("a") >= 40) | (pc.field("id") < 2_000_000) | (pc.field("id") >= 8_000_000)
    assert ids(table) == sorted(everything.filter(kept)["id"].to_pylist())
    table.vacuum("0 days")
    named = set(table.plan().scan.relative_paths)
    assert {path.name for path in (tmp_path / "t").glob("*.parquet")} == named
    assert table.history(1)[0].details["settled"] is False
    assert table.optimize().files_left == 0


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 300), st.integers(0, 3000)),
            st.tuples(st.just("delete"), st.integers(2, 9), st.integers(0, 8)),
            st.tuples(st.just("optimize"), st.just(0), st.just(0)),
        ),
        max_size=7,
    )
)
def test_any_life_keeps_its_rows(steps: list[tuple[str, int, int]], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("life")
    table = zskip.write(rows_of(2_000, 1), folder / "t", by=["a", "at"], rows_per_file=200)
    expected = set(ids(table))
    for number, (verb, one, other) in enumerate(steps):
        if verb == "append":
            more = rows_of(one, 2 + number, since=other)
            table.append(more)
            expected |= set(more.column("id").to_pylist())
        elif verb == "delete":
            table.delete(f"id % {one} = {other}")
            expected = {id for id in expected if id % one != other}
        else:
            table.optimize()
        assert ids(table) == sorted(expected)
    table.optimize()
    assert ids(table) == sorted(expected)
    assert table.optimize().files_rewritten == 0


@pytest.fixture(scope="module")
def zeek(fixtures: Path) -> pa.Table:
    rows = pq.read_table(fixtures / "zeek.parquet")
    return rows.take(pa.array(np.random.default_rng(5).permutation(rows.num_rows)))


ZEEK_BY = ["ts", "id.orig_h", "id.resp_h", "id.resp_p"]


@pytest.mark.parametrize(("first", "size"), [(20_000, {"rows_per_file": 200}), (85_000, {"files": 100})])
@pytest.mark.slow
def test_twenty_small_appends_to_a_small_table_write_few_files_and_are_mended_for_few_bytes(
    first: int, size: dict[str, int], zeek: pa.Table, tmp_path: Path
) -> None:
    table = zskip.write(zeek.slice(0, first), tmp_path / "t", by=ZEEK_BY, **size)
    step, there = first // 100, set(table.plan().scan.relative_paths)
    for number in range(20):
        assert table.append(zeek.slice(first + number * step, step)).files <= 10
    assert there < set(table.plan().scan.relative_paths)
    totals = table.snapshot.totals
    assert totals.bytes is not None
    done = table.optimize()
    assert 0 < done.bytes_rewritten < totals.bytes / 2
    kept = there & set(table.plan().scan.relative_paths)
    assert len(there) / 2 < len(kept) < len(there)  # some of the large files joined those of the appends
    assert (table.snapshot.totals.rows, table.optimize().files_rewritten) == (totals.rows, 0)
    reached = skipped(table)
    assert done.skipped_after == pytest.approx(reached)
    where = f"\"id.resp_h\" = '{zeek['id.resp_h'][-1]}'"
    found = table.plan(where).to_arrow()
    table.optimize(full=True)
    assert reached > skipped(table) - 0.01
    assert found.num_rows == table.plan(where).to_arrow().num_rows > 0


def test_what_is_cut_anew_is_cut_where_its_box_is_wide(tmp_path: Path) -> None:
    """A group of neighbouring slots is narrow in some columns already: cuts on those would save little."""
    dice = np.random.default_rng(11)
    by = ["a", "b"]
    rows = pa.table({name: dice.permutation(72_000) for name in by})
    table = zskip.write(rows.slice(0, 60_000), tmp_path / "t", by=by, files=100)
    first = set(table.plan().scan.relative_paths)
    for number in range(20):
        table.append(rows.slice(60_000 + 600 * number, 600))
    table.optimize()
    files = np.arange(len(table.index))
    statistics = table.index.files(None, by).statistics
    old = np.array([path in first for path in table.index.paths(files).to_pylist()])
    of_old, of_new = (
        np.mean([each.skipped for each in depths(statistics.take(files[which]), by).values()]) for which in (old, ~old)
    )
    assert len(first) / 2 < old.sum() < len(first)
    assert of_new > of_old - 0.003


def test_appends_of_one_size_make_the_same_bundles(tmp_path: Path) -> None:
    table = zskip.write(rows_of(60_000, 1), tmp_path / "t", by=["a", "b"], files=100)
    for seed in range(2, 5):
        table.append(rows_of(1_800, seed))
    names = [path.split("-")[1] for path in table.plan("id >= 2000000").scan.relative_paths]
    assert set(names) == {"000000_000063", "000064_000099"}
    assert len(names) == 3 * (3 + 2)  # a bundle is cut to its own rows where it holds enough for several files
    table.append(rows_of(1, 9))
    assert "000000_000099" in {path.split("-")[1] for path in table.plan("id >= 9000000").scan.relative_paths}
    table.append(rows_of(30_000, 10))
    large = table.plan("id >= 10000000").scan.relative_paths
    assert all("_" not in path for path in large)
    assert len(large) == 100
    table.delete("TRUE")
    table.vacuum("0 days")
    assert not list((tmp_path / "t").glob("*.parquet"))


def test_a_bundle_keeps_to_its_partition(tmp_path: Path) -> None:
    table = zskip.write(rows_of(30_000, 1, days=3), tmp_path / "t", by=["a", "b"], partition_by="day", files=30)
    added = rows_of(300, 2, days=4)
    assert table.append(added).files <= 8
    for day in "0123":
        found = table.plan(f"day = '{day}' AND id >= 2000000")
        assert all(f"day={day}/" in path for path in found.scan.relative_paths)
        assert found.count() == pc.sum(pc.equal(added["day"], day)).as_py()


def chosen(names: list[str], rows: list[int], boxes: list[tuple[int | None, int | None]]) -> list[list[int]]:
    """The groups among files of a table of one column with so many rows each; a full file has 100."""
    lower, upper = (pa.array([box[end] for box in boxes], pa.int64()) for end in (0, 1))
    yes, no = pa.array([True] * len(rows)), pa.array([False] * len(rows))
    statistics = Statistics(pa.array(rows), {"a": Ranges(lower, upper, yes, no, no)})
    paths = pa.array([f"{name}.parquet" for name in names])
    found = worth_rewriting(paths, np.array(rows, float), statistics, ["a"], [1.0], 100)
    return [group.numbers.tolist() for group in found]


def test_which_files_are_worth_a_rewrite() -> None:
    """Small ones of one slot; small neighbours; none that is large, alone, far away, or of another folder."""
    whole, small = (0, 100), (10, 90)
    assert chosen(["part-0-a", "part-0-b", "part-0-c"], [100, 1, 1], [whole, small, small]) == [[1, 2]]
    assert chosen(["part-0-a", "part-0-b"], [100, 1], [whole, small]) == []
    assert chosen(["part-0-a", "part-1-a"], [1, 1], [(0, 10), (10, 20)]) == [[0, 1]]
    assert chosen(["x=1/part-0-a", "x=2/part-1-a"], [1, 1], [(0, 10), (10, 20)]) == []
    assert chosen(["part-0-a-0", "part-0-a-1"], [1, 1], [whole, whole]) == []
    assert chosen(["mine", "yours"], [1, 1], [whole, whole]) == []
    # two full files' worth of rows in one slot, from many writes: all of it is cut anew
    crowd = [f"part-0-{run:x}" for run in range(20)]
    assert chosen(crowd, [10] * 20, [whole] * 20) == [list(range(20))]
    # files of the same neighbouring slots belong together, and are parted again; those of others, or of more, do not
    wide = [f"part-0_3-{run:x}" for run in range(8)]
    assert chosen(wide, [12] * 8, [whole] * 8) == [list(range(8))]
    assert chosen(["part-0_3-a", "part-4_7-a", "part-0_7-a"], [12] * 3, [(0, 10), (500, 600), whole]) == []
    # bounds that are not known may hold anything, and are no reason to fail
    assert chosen(["part-0-a", "part-0-b"], [1, 1], [(None, None), (None, 5)]) == [[0, 1]]


def test_neighbours_stay_apart_where_one_box_would_cost_more_than_it_saves() -> None:
    names = [f"part-{slot}-a" for slot in range(4)]
    boxes: list[tuple[int | None, int | None]] = [(0, 10), (10, 20), (1000, 1010), (1010, 1020)]
    assert chosen(names, [40] * 4, boxes) == []
    assert pc.sum(pa.array([len(group) for group in chosen(names, [1] * 4, boxes)])).as_py() == 4


def test_small_files_far_apart_stay_apart() -> None:
    """One box over both would be read by every look-up; two that touch become one."""
    names = [f"part-{slot}-a" for slot in range(14)]
    full: list[tuple[int | None, int | None]] = [(100 * slot, 100 * slot + 99) for slot in range(12)]
    assert chosen(names, [100] * 12 + [5, 5], [*full, (0, 9), (1190, 1199)]) == []
    assert chosen(names, [100] * 12 + [5, 5], [*full, (0, 9), (5, 14)]) == [[12, 13]]
