"""Sketches through a table's life: appends, deletes, optimize, restore, vacuum, damage, repair, folders of others.

And look-ups in many files, which ask the sketches first.
"""

from __future__ import annotations

import io
import secrets
import shutil
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from zskip import pruning
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.errors import InvalidOption, UnknownColumn
from zskip.plan import planner
from zskip.plan.planner import plan
from zskip.storage import Staged
from zskip.tablelog import shards
from zskip.tablelog.index import Index
from zskip.tablelog.log import load
from zskip.tablelog.sketch_evidence import ShardIds, sketches_of
from zskip.tablelog.sketches import SketchBuilder, keys_of, named_sketches
from zskip.tablelog.sketches.pairs import Coverage
from zskip.writer.options import WriteOptions
from zskip.writer.sketching import complete_sketches

committing = import_module("zskip.tablelog.commit")


BY_UID: dict[str, Any] = {"sketches": {"uid": "values"}}


def rows(first: int, count: int) -> pa.Table:
    """Rows whose ``uid`` is in no order, and unique; ``n`` tells them apart."""
    numbers = range(first, first + count)
    uids = [uid(number) for number in numbers]
    return pa.table({"n": pa.array(numbers), "a": pa.array(np.arange(count) % 7), "uid": uids})


def uid(n: int) -> str:
    return f"{n * 2654435761 % 2**32:08x}"


def has_uid(n: int) -> str:
    return f"uid = '{uid(n)}'"


def found(table: zskip.Table, where: int | str) -> tuple[int, list[int]]:
    """How many files a look-up of a row, or of a condition, reads, and which rows it finds."""
    plan = table.plan(where if isinstance(where, str) else has_uid(where))
    return len(plan), plan.to_arrow(["n"])["n"].to_pylist()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> str:
    return zskip.write(rows(0, 2000), tmp_path_factory.mktemp("kept") / "t", by="a", files=10, **BY_UID).uri


@pytest.fixture
def table(kept: str, tmp_path: Path) -> zskip.Table:
    return zskip.open(shutil.copytree(kept, tmp_path / "t"))


def segments(table: zskip.Table) -> int:
    return sum(len(sketch.segments) for sketch in table._index.snapshot.sketches)


def test_a_look_up_reads_the_one_file_that_holds_the_value(table: zskip.Table) -> None:
    assert [found(table, n) for n in (3, 1999)] == [(1, [3]), (1, [1999])]
    assert found(table, 5000) == (0, [])
    assert len(table.plan(f"{has_uid(3)} OR {has_uid(4)}")) <= 2
    assert "of these files by sketches" in table.plan(has_uid(3)).explain()
    # Every other file matches wholly.
    plan = table.plan(f"NOT {has_uid(3)}")
    assert (
        f"in {table._index.snapshot.totals.files - 1} of the files that are read, every row matches" in plan.explain()
    )
    assert len(plan.to_arrow()) == 1999


def test_a_glob_over_all_subfolders_finds_data_files_alone(table: zskip.Table) -> None:
    assert table._index.snapshot.sketches
    assert duckdb.read_parquet(f"{table.uri}/**/*.parquet").columns == ["n", "a", "uid"]
    assert len(list(Path(table.uri).rglob("*.parquet"))) == table._index.snapshot.totals.files


def test_appends_inherit_the_sketches_and_leave_few_segments(table: zskip.Table) -> None:
    for turn in range(12):
        table.append(rows(2000 + turn * 10, 10))
    assert segments(table) <= 8
    assert found(table, 2103) == (1, [2103])
    assert found(table, 17) == (1, [17])
    table.optimize()
    assert segments(table) == 1
    assert [found(table, n) for n in (2103, 17, 9999)] == [(1, [2103]), (1, [17]), (0, [])]


def test_optimize_merges_segments_where_no_file_is_to_be_rewritten(table: zskip.Table) -> None:
    table.append(rows(2000, 10))
    assert table.optimize(max_bytes=1).sketches_merged == 0
    assert segments(table) == 2
    assert table.optimize(dry_run=True).sketches_merged == table.optimize().sketches_merged == 1
    assert segments(table) == 1
    table.add_sketches({"n": "values"})
    version = table.version
    table.optimize()
    assert table.version == version


def test_older_versions_have_their_own_sketches(table: zskip.Table) -> None:
    assert table.delete(has_uid(77)).rows == 1
    assert found(table, 77) == (0, [])
    assert all(found(table, n) == (1, [n]) for n in range(70, 90) if n != 77)
    table.overwrite(rows(5000, 100))
    assert found(table, 77) == (0, [])
    assert found(table, 5001) == (1, [5001])
    assert found(zskip.open(table.uri, version=1), 77) == (1, [77])
    table.restore(1)
    assert found(table, 77) == (1, [77])
    assert found(table, 5001) == (0, [])


def test_vacuum_keeps_what_is_named_and_removes_the_rest(table: zskip.Table) -> None:
    table.append(rows(2000, 10))
    table.optimize(full=True)
    removed = table.vacuum("0 days").paths
    assert sum("/sketches/" in path for path in removed) >= 2
    left = list((Path(table.uri) / "_zskip" / "sketches").iterdir())
    assert len(left) == segments(table)
    assert found(zskip.open(table.uri), 2003) == (1, [2003])


def test_a_failed_write_leaves_no_segment(tmp_path: Path) -> None:
    with pytest.raises(zskip.ZskipError):
        zskip.write(rows(0, 10), tmp_path / "t", by="b", **BY_UID)
    zskip.write(rows(0, 10), tmp_path / "t", by="a", **BY_UID)
    table = zskip.open(tmp_path / "t")
    with pytest.raises(zskip.ZskipError):
        table.append(pa.table({"uid": [1.5]}))
    assert len(list((tmp_path / "t" / "_zskip" / "sketches").iterdir())) == 1


def damage(table: zskip.Table, how: str) -> None:
    for path in (Path(table.uri) / "_zskip" / "sketches").iterdir():
        if how == "missing":
            path.unlink()
        elif how == "cut":
            path.write_bytes(path.read_bytes()[:-9])
        else:
            path.write_bytes(secrets.token_bytes(path.stat().st_size))


@pytest.mark.parametrize("how", ["missing", "cut", "noise"])
def test_damaged_segments_skip_nothing_and_are_repaired(table: zskip.Table, how: str) -> None:
    by_ranges = len(zskip.write(rows(0, 2000), table.uri + "-plain", by="a", files=10).plan(has_uid(3)))
    damage(table, how)
    damaged = zskip.open(table.uri)
    assert found(damaged, 3) == (by_ranges, [3])
    assert "cannot be read" in damaged.plan(has_uid(3)).explain()
    damaged.append(rows(2000, 10))
    assert found(damaged, 2001)[1] == [2001]
    repaired = zskip.repair(table.uri)
    assert len(repaired.parts) == 1
    assert found(zskip.open(table.uri), 3) == (1, [3])
    assert found(zskip.open(table.uri), 2001) == (1, [2001])
    assert zskip.repair(table.uri).parts == ()


@pytest.mark.parametrize("how", ["missing", "noise"])
def test_a_damaged_sketch_does_not_keep_a_table_from_being_optimized(table: zskip.Table, how: str) -> None:
    """A sketch is only an aid: both ended in DamagedIndex."""
    for number in range(2):
        table.append(rows(2000 + 10 * number, 10))
    damage(table, how)
    table = zskip.open(table.uri)
    table.tend()
    assert table.optimize(full=True).files_rewritten > 0
    assert found(zskip.open(table.uri), 2001)[1] == [2001]
    zskip.repair(table.uri)
    assert found(zskip.open(table.uri), 3) == (1, [3])


def test_sketches_are_added_to_a_table_and_dropped(tmp_path: Path) -> None:
    table = zskip.write(rows(0, 2000), tmp_path / "t", by="a", files=10)
    ranges = found(table, 3)[0]
    table.add_sketches({"uid": "values"})
    assert found(table, 3) == (1, [3])
    table.append(rows(2000, 10))
    assert found(table, 2001) == (1, [2001])
    table.add_sketches({"a": ["values"], "uid": ["values"]})
    assert sorted(sketch.name.column for sketch in table._index.snapshot.sketches) == ["a", "uid"]
    table.drop_sketches("uid")
    assert found(table, 3)[0] >= ranges
    with pytest.raises(InvalidOption, match='no sketch of "uid"'):
        table.drop_sketches("uid")
    assert found(table, 2001)[1] == [2001]
    version = table.version
    assert table.drop_sketches([]).version == table.version == version


def test_a_column_of_few_values_that_lie_everywhere_is_refused(tmp_path: Path) -> None:
    source = rows(0, 2000)
    state = pa.array(["rare" if n in (700, 701) else ("on", "off")[n % 2] for n in range(2000)])
    flag = pa.array(["yes", "no", None] * 666 + ["yes", "no"])
    given = source.append_column("flag", flag).append_column("state", state)
    table = zskip.write(given, tmp_path / "t", by="n", files=20)
    before = sorted((tmp_path / "t").rglob("*.*"))
    with pytest.raises(InvalidOption, match='"flag" would skip next to nothing: each value of its 2 lies in 100% of'):
        table.add_sketches({"flag": "values", "uid": "values"})
    assert sorted((tmp_path / "t").rglob("*.*")) == before
    assert not table._index.snapshot.sketches
    # A rare value among such ones is worth it, and the others cost next to nothing.
    table.add_sketches({"state": "values"})
    assert [len(table.plan(f"state = '{value}'")) for value in ("rare", "on", "of")] == [1, 20, 0]


def test_few_values_in_many_files_take_few_bytes(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    schema = Schema(pa.schema({"country": pa.int64()}))
    (name,) = named_sketches({"country": "values"}, schema)
    builder, files = SketchBuilder([name], 1 << 30, lambda: str(tmp_path)), 2000
    for number in range(files):
        builder.add(str(number), [keys_of(name, schema, pa.table({"country": draw.integers(0, 200, 1000)}))])
    sink = io.BytesIO()
    entries = builder.write(name, sink, {str(number): number for number in range(files)})
    assert entries > 0.98 * 200 * files
    assert sink.tell() < entries / 20


def test_small_memory_goes_through_spill_files(tmp_path: Path) -> None:
    source = rows(0, 20_000)
    small = zskip.write(
        source, tmp_path / "s", by="a", files=8, memory_limit="200kB", temp_directory=tmp_path, **BY_UID
    )
    large = zskip.write(source, tmp_path / "l", by="a", files=8, **BY_UID)
    entries = [table._index.snapshot.sketches[0].segments[0].entries for table in (small, large)]
    assert entries[0] == entries[1] == 20_000
    assert all(found(small, n) == (1, [n]) for n in range(0, 20_000, 5_003))


def test_a_folder_of_others_gets_sketches_and_keeps_what_changes(tmp_path: Path) -> None:
    for number in range(5):
        pq.write_table(rows(number * 100, 100), tmp_path / f"{number}.parquet")
    table = zskip.index(tmp_path, **BY_UID)
    assert found(table, 320) == (1, [320])
    pq.write_table(rows(900, 50), tmp_path / "3.parquet")
    assert found(table, 920) == (1, [920])
    assert found(table, 320) == (1, [])
    table.refresh()
    assert found(table, 920) == (1, [920])
    assert found(table, 320) == (0, [])


def test_a_widened_column_is_still_found(tmp_path: Path) -> None:
    narrow = pa.table({"k": pa.array([5, 900, 17], pa.int32())})
    table = zskip.write(narrow, tmp_path / "t", by="k", sketches={"k": "values"})
    table.append(pa.table({"k": pa.array([2**40, 6, 1800], pa.int64())}))
    assert [len(table.plan(f"k = {value}")) for value in (900, 2**40, 901, 1800)] == [1, 1, 0, 1]
    assert table.plan("k = 900").to_arrow()["k"].to_pylist() == [900]


@pytest.mark.parametrize(
    ("sketches", "error", "message"),
    [
        ({"nothing": "values"}, UnknownColumn, "no column"),
        ({"uid": "bloom"}, InvalidOption, "no sketch 'bloom'"),
        ({"l": "values"}, InvalidOption, "cannot keep"),
        (["uid"], InvalidOption, "maps columns to kinds"),
        ({"uid": ["values", "values"]}, InvalidOption, "stands twice"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    tmp_path: Path, sketches: object, error: type[Exception], message: str
) -> None:
    source = rows(0, 10).append_column("l", pa.array([[1]] * 10))
    with pytest.raises(error, match=message):
        zskip.write(source, tmp_path / "t", sketches=sketches)  # type: ignore[arg-type]
    assert not list(tmp_path.rglob("*.parquet"))


def test_writers_that_race_keep_each_others_segments(table: zskip.Table) -> None:
    turns = range(2000, 2060, 10)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda first: zskip.open(table.uri).append(rows(first, 10)), turns))
    newest = zskip.open(table.uri)
    assert all(found(newest, first + 3) == (1, [first + 3]) for first in turns)
    assert found(newest, 7) == (1, [7])


def test_sketches_added_while_others_append_know_what_they_read(tmp_path: Path) -> None:
    table = zskip.write(rows(0, 2000), tmp_path / "t", by="a", files=10)
    other = zskip.open(table.uri)
    names = named_sketches({"uid": "values"}, table._index.snapshot.schema)
    base = table._index.snapshot
    other.append(rows(2000, 10))
    complete_sketches(table._index.storage, base, WriteOptions(), names)
    newest = zskip.open(table.uri)
    assert found(newest, 3)[1] == [3]
    assert found(newest, 2005)[1] == [2005]
    newest.add_sketches({"uid": "values"})
    assert found(newest, 2005) == (1, [2005])


def test_a_crash_before_the_commit_leaves_orphans_for_vacuum(
    table: zskip.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*given: object, **options: object) -> None:
        raise Killed

    monkeypatch.setattr("zskip.writer.append.commit", die)
    monkeypatch.setattr(Staged, "__exit__", lambda *given: None)
    with pytest.raises(Killed):
        table.append(rows(2000, 10))
    monkeypatch.undo()
    folder = Path(table.uri) / "_zskip" / "sketches"
    assert len(list(folder.iterdir())) == 2
    assert found(zskip.open(table.uri), 3) == (1, [3])
    table.vacuum("0 days")
    assert len(list(folder.iterdir())) == 1
    assert found(zskip.open(table.uri), 3) == (1, [3])


# --- options of sketches: those that are refused, those that appends keep, and what explain names ---


WORDS = pa.table({"k": range(2000), "w": [f"word{number * 7919 % 100_003:07}" for number in range(2000)]})


@pytest.fixture(scope="module")
def kept_words(tmp_path_factory: pytest.TempPathFactory) -> str:
    options: dict[str, Any] = {"by": ["k"], "files": 20, "sketches": {"w": ["values", "substrings"]}}
    return zskip.write(WORDS, tmp_path_factory.mktemp("words") / "t", **options).uri


@pytest.fixture
def worded(kept_words: str, tmp_path: Path) -> zskip.Table:
    return zskip.open(shutil.copytree(kept_words, tmp_path / "t"))


def test_kinds_that_are_none_are_refused(worded: zskip.Table) -> None:
    for kinds in (None, 5, ["values", 3]):
        with pytest.raises(InvalidOption, match="sketch"):
            worded.add_sketches({"w": kinds})  # type: ignore[dict-item]


def test_an_append_refuses_sketches_that_the_table_lacks(worded: zskip.Table) -> None:
    with pytest.raises(InvalidOption, match="add_sketches"):
        zskip.write(WORDS, worded.uri, mode="append", sketches={"k": "values"})
    assert zskip.write(WORDS, worded.uri, mode="append", sketches={"w": "values"}).count() == 4000


def test_a_column_of_nothing_but_null_is_appended(worded: zskip.Table) -> None:
    worded.append(pa.table({"k": [-1], "w": pa.nulls(1)}))
    assert worded.plan("w IS NULL").count() == 1


def test_explain_does_not_call_a_pattern_unused_that_a_sketch_proved(worded: zskip.Table) -> None:
    shown = str(worded.plan("w LIKE '%d0007919%'").explain())
    assert "by sketches" in shown
    assert "not used" not in shown
    assert "would prune" not in shown


def test_durations_have_no_values(tmp_path: Path) -> None:
    rows = pa.table({"k": [1, 2], "lasted": pa.array([1, 2], pa.duration("us"))})
    with pytest.raises(InvalidOption, match="lasted"):
        zskip.write(rows, tmp_path / "t", by=["k"], files=2, sketches={"lasted": "values"})
    assert not (tmp_path / "t").exists()


def test_a_sketch_that_a_vacuum_took_is_reported_in_one_line(
    table: zskip.Table, caplog: pytest.LogCaptureFixture
) -> None:
    opened = zskip.open(table.uri)
    table.overwrite(rows(5000, 10))
    table.vacuum("0 days")
    assert len(opened.plan(has_uid(3))) == len(opened.plan("n >= 0"))
    assert [record.getMessage() for record in caplog.records] == [
        f'Plans of {table.uri} read more files than they need: the sketch "values" of the column uid is gone, as after '
        "a vacuum. Open the table again."
    ]


# --- look-ups that ask the sketches before the ranges: which files and shards are read, and that none is missed ---


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any table is one of many files, in shards of four."""
    monkeypatch.setattr(planner, "_MANY_FILES", 0)
    monkeypatch.setattr(shards, "FILES_PER_SHARD", 4)
    monkeypatch.setattr(committing, "_SMALL", 2)


def test_only_the_named_files_and_their_shards_are_read(
    many: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = zskip.write(rows(0, 2000), tmp_path / "t", by="n", files=20, **BY_UID)
    assert len(table._index.snapshot.shards) == 5
    monkeypatch.setattr(Index, "files", None)  # the ranges of all
    read: list[int] = []
    ids = Index.ids
    monkeypatch.setattr(Index, "ids", lambda self, files: read.extend(files.tolist()) or ids(self, files))
    index = Index(table._index.storage, load(table._index.storage))
    predicate = bind(f"uid = '{uid(1345)}' AND n < 1900", index.snapshot.schema)
    assert len(plan(index, predicate)) == 1
    assert set(read) == {12, 13, 14, 15}


def test_files_that_no_segment_knows_are_kept(many: None, tmp_path: Path) -> None:
    table = zskip.write(rows(0, 2000), tmp_path / "t", by="n", files=20, **BY_UID)
    for part in (0, 1):
        table.append(rows(2000 + part * 100, 100))
    assert [found(table, n) for n in (7, 2150)] == [(1, [7]), (1, [2150])]
    sketch = table._index.snapshot.sketches[0]
    path = tmp_path / "t" / sketch.segments[-1].part.path
    path.write_bytes(b"damaged")
    damaged = zskip.open(table.uri)
    files, held = found(damaged, 2150)
    assert held == [2150]
    assert 1 <= files <= 2
    assert found(damaged, 7)[1] == [7]
    numbers = [*range(7, 2000, 40), 2150]
    pairs = ", ".join(f"('{uid(n)}', {n})" for n in numbers)
    assert sorted(found(damaged, f"(uid, n) IN ({pairs})")[1]) == numbers


def test_deleted_and_rewritten_files_are_found_by_their_ids(many: None, tmp_path: Path) -> None:
    table = zskip.write(rows(0, 2000), tmp_path / "t", by="n", files=20, **BY_UID)
    for n in range(50, 2000, 650):
        table.delete(f"n = {n}")
    alive = [n for n in range(0, 2000, 397) if (n - 50) % 650]
    assert [found(table, n) for n in alive] == [(1, [n]) for n in alive]
    assert found(table, 700) == (0, [])
    table.optimize()
    assert [found(table, n) for n in alive] == [(1, [n]) for n in alive]
    files, held = found(table, f"uid IN ('{uid(5)}', '{uid(1999)}') OR uid = '{uid(1001)}'")
    assert (files, sorted(held)) == (3, [5, 1001, 1999])


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
