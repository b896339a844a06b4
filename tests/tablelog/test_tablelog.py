"""The side-car: atomic files, commits that are never lost nor doubled, damage that is named, time travel, vacuum."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests import FIXTURES, one_in
from zskip.core.schema import Schema
from zskip.core.types import decode_values, encode_values
from zskip.errors import (
    CommitConflict,
    CorruptFile,
    DamagedIndex,
    FilesRemoved,
    InvalidOption,
    TableExists,
    TableNotFound,
    UnsafePath,
    UnsupportedFormat,
    UnsupportedStore,
)
from zskip.stats import ColumnStatistics, DataFiles, FileStatistics
from zskip.stats.collect import shorten_lower, shorten_upper
from zskip.storage import Listing, Staged, Storage, open_storage
from zskip.storage import local as local_module
from zskip.tablelog import commit, freshness, indexing, log, parts, shards, vacuum
from zskip.tablelog.index import Index
from zskip.tablelog.snapshot import Snapshot, Totals, from_bytes, to_bytes
from zskip.writer import sketching
from zskip.writer.append import append
from zskip.writer.open_source import open_source
from zskip.writer.options import WriteOptions

SCHEMA = Schema(pa.schema({"a": pa.int64()}))
STORES = ["local", "memory"]


@pytest.fixture(params=STORES)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return open_storage(tmp_path / "t" if request.param == "local" else f"memory://{tmp_path.name}/t")


def add(storage: Storage, *names: str, groups: int = 1) -> DataFiles:
    """Data files that are there, whose column a is 10 to 19 for the first, 20 to 29 for the next, and so on."""
    for name in names:
        storage.put(name, b"rows")
    count, units = len(names), len(names) * groups
    lower = np.repeat(10 * np.arange(1, count + 1), groups)

    def column(low: np.ndarray, size: int) -> ColumnStatistics:
        none, yes = pa.array(np.zeros(size, np.int64)), pa.array([True] * size)
        return ColumnStatistics(pa.array(low), pa.array(low + 9), none, none, yes, yes)

    files = FileStatistics(pa.array(np.full(count, 5 * groups)), {"a": column(lower[::groups], count)})
    row_groups = FileStatistics(pa.array(np.full(units, 5)), {"a": column(lower, units)})
    size, unknown = pa.array(np.full(count, 4)), pa.nulls(count, pa.int64())
    first = np.arange(count + 1, dtype=np.int64) * groups
    return DataFiles(pa.array(names), size, unknown, pa.nulls(count, pa.string()), files, row_groups, first)


def start(storage: Storage, *names: str, groups: int = 2) -> Snapshot:
    return commit.commit(
        storage, None, commit.TableUpdate("write", add=add(storage, *names, groups=groups), schema=SCHEMA)
    )


def names_of(storage: Storage, snapshot: Snapshot) -> list[str]:
    index = Index(storage, snapshot)
    return sorted(index.paths(np.arange(len(index))).to_pylist())


def test_files_written_beside_a_wider_type_have_their_bounds_in_it(tmp_path: Path) -> None:
    zskip.write(pa.table({"v": range(10)}), tmp_path, by="v")
    storage = open_storage(tmp_path)
    before = log.load(storage)
    zskip.open(tmp_path).append(pa.table({"v": pa.array(range(10, 20)).cast(pa.decimal128(22, 2))}))
    append(storage, before, open_source(pa.table({"v": range(20, 30)})), WriteOptions())
    for value in range(30):
        assert zskip.open(tmp_path).plan(f"v = {value}").count() == 1


HOURS = "{:02}:00:00"
WIDENED = {
    f"{old} then {new}": (old, new, form)
    for form, types in (
        (f"TIME '{HOURS}'", [pa.time32("ms"), pa.time64("us")]),
        (f"TIMESTAMP '2024-01-01 {HOURS}'", [pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns")]),
        (f"TIMESTAMPTZ '2024-01-01 {HOURS}+00'", [pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")]),
        ("{}", [pa.int32(), pa.int64(), pa.decimal128(22, 2)]),
        ("{}", [pa.int32(), pa.float64()]),
        ("{}", [pa.decimal128(12, 1), pa.decimal128(20, 3)]),
    )
    for old, new in itertools.permutations(types, 2)
}


@pytest.mark.parametrize("types", one_in(3, WIDENED))
def test_bounds_stay_true_where_a_refresh_widens_a_type(types: str, tmp_path: Path) -> None:
    """The entry has bounds as integers in the unit of the column, and kept those in the older unit."""
    old, new, form = WIDENED[types]
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        for number, type in enumerate([old, old, old, new]):
            literals = ", ".join(f"({form.format(value)})" for value in range(4 * number + 1, 4 * number + 5))
            rows = con.sql(f"FROM (VALUES {literals}) t(v)").to_arrow_table()
            if number == 3:
                table = zskip.index(tmp_path)
            pq.write_table(rows.cast(pa.schema({"v": type})), tmp_path / f"{number}.parquet")
    table.refresh()
    for opened in (table, zskip.open(tmp_path)):
        for value in (1, 12, 13, 16):  # the last of the older type, and the first of the newer
            assert opened.plan(f"v = {form.format(value)}").count() == 1
            assert opened.plan(f"v <= {form.format(value)}").count() == value


def test_a_commit_can_be_loaded_as_it_was_made_and_its_levels_tell_the_same_story(storage: Storage) -> None:
    made = start(storage, "part-1.parquet", "part-2.parquet")
    assert log.load(storage) == made
    assert from_bytes(to_bytes(made), "x") == made
    assert made.totals == Totals(files=2, row_groups=4, rows=20, bytes=8)
    index = Index(storage, made)
    assert index.shards(["a"]).columns["a"].upper.to_pylist() == [29]
    assert index.files(None, ["a"]).statistics.columns["a"].lower.to_pylist() == [10, 20]
    groups = index.row_groups(np.array([1]), ["a"])
    assert (groups.file.tolist(), groups.row_group.tolist()) == ([1, 1], [0, 1])
    assert groups.statistics.columns["a"].lower.to_pylist() == [20, 20]
    assert index.row_counts(np.array([0, 1])).to_pylist() == [10, 10]


def test_appends_always_apply_and_removals_of_what_is_gone_do_not(storage: Storage) -> None:
    base = start(storage, "part-1.parquet", "part-2.parquet")
    commit.commit(storage, base, commit.TableUpdate("append", add=add(storage, "part-3.parquet")))
    commit.commit(storage, base, commit.TableUpdate("append", add=add(storage, "part-4.parquet")))
    commit.commit(storage, base, commit.TableUpdate("delete", remove=["part-1.parquet"]))
    newest = log.load(storage)
    assert newest.version == 4
    assert names_of(storage, newest) == ["part-2.parquet", "part-3.parquet", "part-4.parquet"]
    with pytest.raises(CommitConflict, match="1 of the 1 files"):
        commit.commit(storage, base, commit.TableUpdate("delete", remove=["part-1.parquet"]))
    assert log.load(storage) == newest


def test_a_failed_commit_leaves_no_part_behind_and_undoes_its_files(storage: Storage) -> None:
    base = start(storage, "part-1.parquet")
    commit.commit(storage, base, commit.TableUpdate("delete", remove=["part-1.parquet"]))
    before = storage.list("_zskip").path
    removed: list[str] = []
    staged = Staged(removed.extend)
    staged.add(["part-9.parquet"])
    with pytest.raises(CommitConflict), staged:
        commit.commit(
            storage,
            base,
            commit.TableUpdate("optimize", add=add(storage, "part-9.parquet"), remove=["part-1.parquet"]),
            staged=staged,
        )
    assert storage.list("_zskip").path == before
    assert removed == ["part-9.parquet"]


def test_two_tables_cannot_start_at_one_place(storage: Storage) -> None:
    start(storage, "part-1.parquet")
    with pytest.raises(TableExists):
        start(storage, "part-1.parquet")


def test_concurrent_changes_of_schema_conflict(storage: Storage) -> None:
    base = start(storage, "part-1.parquet")
    wider = Schema(pa.schema({"a": pa.int64(), "b": pa.string()}))
    commit.commit(storage, base, commit.TableUpdate("append", schema=wider))
    with pytest.raises(CommitConflict, match="schema"):
        commit.commit(
            storage, base, commit.TableUpdate("append", schema=Schema(pa.schema({"a": pa.int64(), "c": pa.string()})))
        )


def test_a_column_that_was_added_is_null_in_older_files_at_every_level(storage: Storage) -> None:
    base = start(storage, "part-1.parquet")
    wider = Schema(pa.schema({"a": pa.int64(), "b": pa.string()}))
    index = Index(storage, commit.commit(storage, base, commit.TableUpdate("append", schema=wider)))
    units = (
        index.shards(["b"]),
        index.files(None, ["b"]).statistics,
        index.row_groups(np.array([0]), ["b"]).statistics,
    )
    for statistics in units:
        assert set(statistics.columns["b"].has_value.to_pylist()) == {False}
        assert set(statistics.columns["b"].has_null.to_pylist()) == {True}


def test_a_batch_is_committed_once(storage: Storage) -> None:
    base = start(storage, "part-1.parquet")
    first = commit.commit(
        storage, base, commit.TableUpdate("append", add=add(storage, "part-2.parquet"), batch=("stream", 7))
    )
    removed: list[str] = []
    with Staged(removed.extend) as staged:
        staged.add(["part-3.parquet"])
        files = add(storage, "part-3.parquet")
        again = commit.commit(
            storage, base, commit.TableUpdate("append", add=files, batch=("stream", 7)), staged=staged
        )
    assert again == first
    assert removed == ["part-3.parquet"]


def test_many_small_commits_leave_few_shards(storage: Storage) -> None:
    snapshot = start(storage, "part-0.parquet")
    for number in range(1, 40):
        snapshot = commit.commit(
            storage, snapshot, commit.TableUpdate("append", add=add(storage, f"part-{number}.parquet"))
        )
    assert len(snapshot.shards) <= 21
    assert names_of(storage, snapshot) == sorted(f"part-{number}.parquet" for number in range(40))
    assert snapshot.totals.files == 40
    named = {part.path for each in log.history(storage) for part in each.parts}
    assert set(storage.list("_zskip/stats").path.to_pylist()) == named, "a part was written for nothing, and left"


def test_a_hint_that_is_stale_or_missing_costs_time_and_no_truth(storage: Storage) -> None:
    snapshot = start(storage, "part-0.parquet")
    for number in range(1, 12):
        snapshot = commit.commit(
            storage, snapshot, commit.TableUpdate("append", add=add(storage, f"part-{number}.parquet"))
        )
    storage.delete([log.HINT])
    assert log.load(storage) == snapshot
    for hint in (b"", b"garbage", b"1\n", b"3\n"):
        storage.put(log.HINT, hint)
        assert log.load(storage) == snapshot


def test_an_entry_lost_in_the_middle_hides_no_later_one(storage: Storage) -> None:
    """Each entry is complete: a gap costs one version to travel to, also where the hint stands before it."""
    snapshot = start(storage, "part-0.parquet")
    for number in range(1, 6):
        snapshot = commit.commit(
            storage, snapshot, commit.TableUpdate("append", add=add(storage, f"part-{number}.parquet"))
        )
    storage.delete([log.entry_path(3)])
    for hint in (b"1\n", b"2\n", b"3\n", b"6\n"):
        storage.put(log.HINT, hint)
        assert log.load(storage) == snapshot
    assert [entry.version for entry in log.history(storage)] == [6, 5, 4, 2, 1]
    with pytest.raises(TableNotFound, match="no version 3"):
        log.load(storage, version=3)


def test_a_long_log_is_listed_from_the_hint_on_only(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = start(storage, "part-0.parquet")
    for version in range(2, 3000):
        if storage.local is not None:
            (storage.local / log.entry_path(version)).parent.mkdir(exist_ok=True)
            (storage.local / log.entry_path(version)).write_bytes(b"")
        else:
            storage.put(log.entry_path(version), b"")
    storage.put(log.entry_path(3000), to_bytes(replace(snapshot, version=3000)))
    storage.put(log.HINT, b"2990\n")
    seen: list[int] = []
    real = storage.names

    def names(folder: str, *, after: str = "") -> Any:
        found = real(folder, after=after)
        seen.append(len(found))
        return found

    monkeypatch.setattr(storage, "names", names)
    assert log.load(storage).version == 3000
    assert max(seen) < 20
    storage.delete([log.HINT])
    assert log.load(storage).version == 3000


def test_a_newer_format_is_refused(storage: Storage) -> None:
    start(storage, "part-1.parquet")
    path = log.entry_path(1)
    storage.put(path, storage.read(path).replace(b'{"zskip":3', b'{"zskip":4', 1))
    with pytest.raises(UnsupportedFormat, match="format 4"):
        log.load(storage)


def test_paths_that_lead_out_are_refused(storage: Storage) -> None:
    base = start(storage, "part-1.parquet")
    files = add(storage, "part-2.parquet")
    for path in ("../x.parquet", "/etc/passwd", "a/../../x", "a//b", "./a", "s3://b/x", "C:\\x", "a\x00b"):
        for verb in (storage.read, storage.exists, storage.uri_of, lambda one: storage.put(one, b"")):
            with pytest.raises(UnsafePath):
                verb(path)
        with pytest.raises(UnsafePath):
            commit.commit(storage, base, commit.TableUpdate("append", add=replace(files, path=pa.array([path]))))


def test_links_out_of_the_table_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.parquet").write_bytes(b"secret")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "x.parquet").symlink_to(tmp_path / "secret.parquet")
    storage = open_storage(tmp_path / "t")
    with pytest.raises(UnsafePath):
        storage.read("x.parquet")
    with pytest.raises(UnsafePath):
        storage.list("")


def test_a_part_that_promises_more_than_there_is_takes_no_memory_for_it(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    storage.put("_zskip/stats/x.stats", b"short")
    size = (1 << 36) - 1  # 64 GiB
    with pytest.raises(DamagedIndex, match=r"x\.stats"):
        parts.read_part(storage, parts.Part("_zskip/stats/x.stats", size, bytes(8 << 16)))


@pytest.mark.parametrize("encoding", ["dictionary", "prefixes"])
def test_few_bytes_that_stand_for_many_are_refused(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "_ALWAYS_FINE", 1 << 24)
    long = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1 << 9, np.int32)), pa.array(["x" * 100_000]))
    sink = pa.BufferOutputStream()
    options = {"use_dictionary": True} if encoding == "dictionary" else {"column_encoding": "DELTA_BYTE_ARRAY"}
    with pq.ParquetWriter(
        sink,
        pa.schema({"path": long.type}),
        compression="zstd",
        store_schema=False,
        **({"use_dictionary": False} | options),
    ) as writer:
        writer.write_table(pa.table({"path": long}))
    storage = open_storage(tmp_path)
    part = parts.Drafts(storage, Staged(storage.delete)).publish("stats", ".stats", sink.getvalue().to_pybytes())
    assert part.size < 100_000
    with pytest.raises(DamagedIndex, match="unfolds"):
        shards.ShardReader(storage, part, len(long), SCHEMA).columns(["path"])


def test_row_groups_that_do_not_add_up_are_damage(storage: Storage) -> None:
    snapshot = start(storage, "part-1.parquet", "part-2.parquet")
    (shard,) = snapshot.shards
    lying = replace(shard, totals=replace(shard.totals, row_groups=shard.totals.row_groups + 1))
    index = Index(storage, replace(snapshot, shards=(lying,)))
    with pytest.raises(DamagedIndex, match="row groups"):
        index.row_groups(np.arange(2), ["a"])


def test_a_part_elsewhere_or_of_absurd_size_is_refused() -> None:
    with pytest.raises(UnsafePath):
        parts.Part.from_json({"path": "_zskip/stats/../../x", "size": 1, "xxh3_64": "00" * 8})
    for size in (0, -1, 1 << 60):
        with pytest.raises(ValueError):
            parts.Part.from_json({"path": "_zskip/stats/x.stats", "size": size, "xxh3_64": "00" * 8})


def test_a_disk_without_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(local_module.os, "link", no_links)
    with pytest.raises(UnsupportedStore, match="hard links"):
        start(open_storage(tmp_path / "t"), "part-1.parquet")


def test_storage_options_and_schemes_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    for url, options in ((str(tmp_path), {"a": 1}), ("ftp://x/y", None), ("s3://", None), ("memory://x", {"a": 1})):
        with pytest.raises(InvalidOption):
            open_storage(url, options)


def test_a_writer_that_fails_publishes_nothing(storage: Storage) -> None:
    def fail() -> None:
        with storage.open_writer("part-1.parquet") as file:
            file.write(b"half")
            raise RuntimeError("in mid-write")

    with pytest.raises(RuntimeError):
        fail()
    with storage.open_writer("part-2.parquet") as file:
        file.write(b"whole")
        assert not storage.exists("part-2.parquet")
    assert storage.list("").path.to_pylist() == ["part-2.parquet"]
    assert storage.read_range("part-2.parquet", -3, 3) == b"ole"
    assert storage.put_if_absent("part-2.parquet", b"other") is False
    assert storage.read("part-2.parquet") == b"whole"


def age(storage: Storage) -> None:
    if storage.local is not None:
        for file in storage.local.rglob("*"):
            os.utime(file, (1, 1))


def named(number: int) -> str:
    return f"part-{number:06d}-0123456789abcdef.parquet"


def test_vacuum_removes_orphans_and_expired_versions_only(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "t")
    base = start(storage, named(1), named(2))
    snapshot = commit.commit(storage, base, commit.TableUpdate("delete", remove=[named(1)]))
    orphans = {
        named(9), f"day=1/{named(9)}", "_zskip/stats/" + "0" * 32 + ".stats", ".part-9.0123456789abcdef.tmp",
        "_zskip/staging-0f/part-0-x.parquet", "_zskip/staging-0f/_temporary/0/_SUCCESS",
    }  # fmt: skip
    others = {
        "README.txt", "mine.parquet", "part-00000-8a9b.c000.snappy.parquet", "part-1.parquet", f"inner/{named(7)}",
        "inner/_zskip/log/00000000000000000001.json", f"delta/{named(7)}", "delta/_delta_log/0.json",
        "_zskip/damaged/00000000000000000009.json", "_zskip/notes/mine",
    }  # fmt: skip
    for name in orphans | others:
        storage.put(name, b"x")
    age(storage)
    storage.put(named(8).replace("0123456789abcdef", "8123456789abcdef"), b"on its way")  # of another run
    storage.put("_zskip/staging-1f/part-0-x.parquet", b"on its way")
    assert vacuum.vacuum(storage, older_than=timedelta.max).paths == (), "longer than time itself"
    assert set(vacuum.vacuum(storage, dry_run=True).paths) == orphans
    done = vacuum.vacuum(storage)
    assert set(done.paths) == orphans
    # The file of the older version, and the two that are on their way.
    assert done.left == "files that were replaced or written less than 7 days ago (older_than): 3"
    assert not (tmp_path / "t" / "_zskip" / "staging-0f").exists()
    assert storage.exists("_zskip/staging-1f/part-0-x.parquet")
    assert log.load(storage, version=1) == base
    promised = vacuum.vacuum(storage, older_than=timedelta(0), dry_run=True)
    assert named(1) in promised.paths
    done = vacuum.vacuum(storage, older_than=timedelta(0))
    assert (done.paths, done.bytes, done.versions) == (promised.paths, promised.bytes, promised.versions)
    assert promised.versions == (1,)
    assert done.left is promised.left is None
    assert log.load(storage).shards == snapshot.shards
    assert names_of(storage, snapshot) == [named(2)]
    assert len(Index(storage, snapshot).data_files()) == 1
    assert others | {named(2)} <= set(storage.list("").path.to_pylist())


def test_vacuum_of_a_long_log_holds_few_of_its_versions_at_once(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gc

    from zskip.tablelog.snapshot import Snapshot

    snapshot = start(storage, "part-000001-0123456789abcdef.parquet")
    for version in range(2, 81):
        snapshot = replace(snapshot, version=version, parent=version - 1, time=snapshot.time + timedelta(seconds=1))
        assert log.create(storage, snapshot, None)
    held, ask = [], log.read_entry

    def watched(place: Storage, version: int) -> Snapshot | None:
        if version % 20 == 0:
            held.append(sum(type(each) is Snapshot for each in gc.get_objects()))
        return ask(place, version)

    before = sum(type(each) is Snapshot for each in gc.get_objects())
    monkeypatch.setattr(log, "_ENTRIES_AT_ONCE", 8)
    monkeypatch.setattr(log, "_LARGEST_CACHED", 0)
    monkeypatch.setattr(log, "read_entry", watched)
    assert not vacuum.vacuum(storage, older_than=timedelta(days=7)).paths
    assert max(held) - before < 20


@pytest.mark.usefixtures("parts_in_files")
def test_a_vacuum_that_another_one_overtakes_names_no_damage(tmp_path: Path) -> None:
    table = zskip.write({"a": range(100)}, tmp_path, by=["a"], files=4)
    table.append({"a": [7]})
    storage = open_storage(tmp_path)

    class Overtaken:
        """The listing is slow: before its caller has it, others replace what it lists, and remove it."""

        overtaken = False

        def __getattr__(self, name: str) -> Any:
            return getattr(storage, name)

        def list(self, *given: Any, **options: Any) -> Any:
            listed = storage.list(*given, **options)
            if not self.overtaken:
                self.overtaken = True
                zskip.open(tmp_path).optimize(full=True)
                zskip.open(tmp_path).vacuum(older_than="0 seconds")
            return listed

    with pytest.raises(FilesRemoved, match="a vacuum removed files"):
        vacuum.vacuum(Overtaken(), older_than=timedelta(0))
    assert len(zskip.read(tmp_path)) == 101


CHANGES: dict[str, Callable[[str, Any], object]] = {
    "append": lambda url, progress: zskip.open(url).append({"a": [7], "b": [7]}, progress=progress),
    "write": lambda url, progress: zskip.write({"a": [7], "b": [7]}, url, mode="append", progress=progress),
    "overwrite": lambda url, progress: zskip.open(url).overwrite({"a": [7], "b": [7]}, progress=progress),
    "upsert": lambda url, progress: zskip.open(url).upsert({"a": [7], "b": [7]}, on="a", progress=progress),
    "delete": lambda url, progress: zskip.open(url).delete("b % 7 = 3", progress=progress),
    "optimize": lambda url, progress: zskip.open(url).optimize(full=True, progress=progress),
    "cluster": lambda url, progress: zskip.cluster(url, by=["b", "a"], progress=progress),
    "tend": lambda url, progress: zskip.open(url).tend(progress=progress),
    "add_sketches": lambda url, progress: zskip.open(url).add_sketches({"b": "values"}, progress=progress),
}


@pytest.mark.parametrize(("verb", "call"), one_in(3, CHANGES, [0, 1, 3]))
def test_a_change_whose_files_a_vacuum_took_meanwhile_is_a_conflict(verb: str, call: int, tmp_path: Path) -> None:
    url = str(tmp_path / "t")
    rows = pa.table({"a": range(40), "b": range(40)})
    zskip.write(rows, url, by=["a"], files=2).append(rows)
    calls = itertools.count()

    def vacuumed(*_: object) -> None:
        if next(calls) == call:
            zskip.open(url).overwrite(rows)
            zskip.open(url).vacuum("0 seconds")

    with suppress(CommitConflict):
        CHANGES[verb](url, vacuumed)
    assert zskip.read(url, where="a = 7").num_rows


def test_a_foreign_folder_that_changed_is_noticed(tmp_path: Path) -> None:
    for name in "abc":
        pq.write_table(pa.table({"x": [1, 2]}), tmp_path / f"{name}.parquet")
    storage = open_storage(tmp_path)
    index = Index(storage, indexing.index_files(storage))
    assert not freshness.changes(index)
    before = (tmp_path / "a.parquet").stat()
    pq.write_table(pa.table({"x": [8, 9]}), tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size == before.st_size
    (tmp_path / "b.parquet").unlink()
    pq.write_table(pa.table({"x": [5], "y": ["new"]}), tmp_path / "d.parquet")
    found = freshness.changes(index)
    assert found.changed.path.to_pylist() == ["a.parquet"]
    assert found.removed.to_pylist() == ["b.parquet"]
    assert found.added.path.to_pylist() == ["d.parquet"]
    fresh = Index(storage, indexing.refresh(index))
    assert not freshness.changes(fresh)
    known = fresh.files(None, ["x", "y"]).statistics
    assert sorted(known.columns["x"].lower.to_pylist()) == [1, 5, 8]
    assert known.columns["y"].has_value.to_pylist().count(True) == 1
    assert indexing.refresh(fresh) == fresh.snapshot


@pytest.mark.parametrize(
    ("now", "local", "memory"),
    [
        ((10, 1, "0"), "size time status", "size time status"),
        ((10, 1, "9"), "size time", "size"),  # an object's ETag is no status
        ((10, 1, None), "size time status", "size time status"),
        ((10, 2, "0"), "size", "size"),
        ((10, None, None), "size", "size"),
        ((11, 1, "0"), "", ""),
        (None, "", ""),
    ],
)
def test_how_a_recorded_file_is_compared_with_a_listed_one(
    now: tuple[int, int | None, str | None] | None, local: str, memory: str, storage: Storage
) -> None:
    then = Listing.of([("a", 10, 1, "0")])
    listing = Listing.of([] if now is None else [("a", *now), ("b", 10, 1, "0")])
    same = [by for by in ("size", "time", "status") if freshness.unchanged(storage, then, listing, by=by).all()]
    assert " ".join(same) == (memory if storage.local is None else local)


@pytest.mark.parametrize("how", ["in place", "renamed over"])
def test_a_replacement_with_the_old_size_and_the_old_time_is_noticed(how: str, tmp_path: Path) -> None:
    one = tmp_path / "1.parquet"
    pq.write_table(pa.table({"a": np.arange(100)}), one, compression="none")
    old = 1_600_000_000 * 10**9
    os.utime(one, ns=(old, old))
    table = zskip.index(tmp_path)
    before = one.stat()
    assert not table.plan("a = 150").paths
    new = one if how == "in place" else tmp_path / ".new"
    pq.write_table(pa.table({"a": np.arange(100, 200)}), new, compression="none")
    new.replace(one)
    os.utime(one, ns=(old, old))
    assert (one.stat().st_size, one.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert table.plan("a = 150").to_arrow().num_rows == 1
    table.refresh()
    assert table.plan("a = 50").to_arrow().num_rows == 0
    assert not table.plan("a = 50").paths


def test_statistics_from_elsewhere_stand_in_for_footers(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "t")
    given = pa.table(
        {
            "path": ["b", "a", "a"],
            "row_group": [0, 1, 0],
            "row_count": [1, 2, 3],
            "a.lower": [5, None, 7],
            "a.upper": [6, 8, 9],
        }
    )
    index = Index(storage, indexing.index_files(storage, statistics=given, schema=SCHEMA))
    assert index.files(None, ["a"]).statistics.columns["a"].lower.to_pylist() == [None, 5]
    assert index.files(None, ["a"]).statistics.columns["a"].upper.to_pylist() == [9, 6]
    assert index.row_groups(np.array([0]), ["a"]).statistics.columns["a"].lower.to_pylist() == [7, None]


@pytest.mark.parametrize(
    "text", ["a" * 300, "a" * 63 + "\ud7ff" + "b", "\U0010ffff" * 65, "é" * 100, "a" * 63 + "\x00" + "z"]
)
def test_bounds_that_are_cut_stay_bounds(text: str) -> None:
    for value in (pa.array([text, None]), pa.array([text.encode(), None])):
        (lower, _), (upper, _) = shorten_lower(value, 64), shorten_upper(value, 64)
        assert lower[0].as_py() <= value[0].as_py()
        assert upper[0].as_py() is None or upper[0].as_py() >= value[0].as_py()
        assert upper[1].as_py() is None
        assert decode_values(encode_values(upper), upper.type).equals(upper)


GOLDEN = FIXTURES / "golden"


@pytest.mark.parametrize("form", ["format-1", "format-2"])
@pytest.mark.parametrize("version", [1, 2])
def test_golden_tables_are_read_for_ever(version: int, form: str) -> None:
    """Tables that earlier versions of the format wrote: same files, same rows, same statistics."""
    storage = open_storage(GOLDEN / form)
    snapshot = log.load(storage, version)
    assert snapshot.totals.rows == {1: 300, 2: 400}[version]
    assert [str(column.type) for column in snapshot.schema] == ["int64", "string", "double", "timestamp[us, tz=UTC]"]
    index = Index(storage, snapshot)
    paths = index.paths(np.arange(len(index))).to_pylist()
    rows = pa.concat_tables(pq.read_table(GOLDEN / form / path) for path in paths)
    assert sorted(rows.column("id").to_pylist()) == list(range({1: 300, 2: 400}[version]))
    known = index.file_statistics(np.arange(len(index)), ["id", "host", "share", "at"])
    for number, path in enumerate(paths):
        file = pq.read_table(GOLDEN / form / path)
        share = [value for value in file.column("share").to_pylist() if value is not None]
        assert known.columns["share"].null_count[number].as_py() == file.column("share").null_count
        assert known.columns["share"].nan_count[number].as_py() == sum(value != value for value in share)
        for name in ("id", "host", "at"):
            values_there = file.column(name).to_pylist()
            assert known.columns[name].lower[number].as_py() == min(values_there)
            assert known.columns[name].upper[number].as_py() == max(values_there)


def put(file: Path, ids: list[int], **columns: list[int]) -> None:
    pq.write_table(pa.table({"id": ids, **columns}), file)


@pytest.mark.parametrize(
    ("meanwhile", "wanted"),
    [
        (lambda folder: None, [1, 2, 3, 4]),
        (lambda folder: put(folder / "c.parquet", [4, 5]), [1, 2, 3, 4, 5]),
        (lambda folder: (folder / "b.parquet").unlink(), [1, 2, 4]),
        (lambda folder: put(folder / "d.parquet", [6], more=[7]), [1, 2, 3, 4, 6]),
        (lambda folder: (folder / "c.parquet").unlink(), [1, 2, 3]),
        (lambda folder: zskip.cluster(folder, by="id"), [1, 2, 3, 4]),
    ],
    ids=["nothing else", "a file changes", "a file goes", "a column comes", "the new file goes", "laid out"],
)
def test_two_refreshes_at_once_index_each_file_once(
    meanwhile: Callable[[Path], object], wanted: list[int], tmp_path: Path
) -> None:
    put(tmp_path / "a.parquet", [1, 2])
    put(tmp_path / "b.parquet", [3])
    zskip.index(tmp_path)
    first, second = zskip.open(tmp_path), zskip.open(tmp_path)
    put(tmp_path / "c.parquet", [4])
    done: list[object] = []

    def at_the_first_phase(*_: object) -> None:
        if not done:
            done.append(first.refresh())
            meanwhile(tmp_path)

    second.refresh(progress=at_the_first_phase)
    assert done
    for table in (second, zskip.open(tmp_path)):
        assert sorted(table.to_arrow()["id"].to_pylist()) == wanted
        assert table.plan("id > 0").count() == len(wanted)
    assert zskip.sql(f"SELECT id FROM '{tmp_path}' ORDER BY id").fetchall() == [(number,) for number in wanted]


@pytest.mark.parametrize("call", ["index", "index deep", "index with a sketch", "refresh", "refresh deep"])
def test_files_that_are_replaced_while_they_are_read_are_read_again(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "lake"
    folder.mkdir()

    def put(name: str, ids: list[int]) -> None:
        pq.write_table(pa.table({"id": ids}), tmp_path / "new", write_statistics="deep" not in call)
        (tmp_path / "new").replace(folder / f"{name}.parquet")

    put("a", list(range(50_000)))
    put("b", [50_000])
    deep = call.endswith("deep")
    if call.startswith("refresh"):
        zskip.index(folder, deep=deep)
        put("a", list(range(40_000)))
    waited = indexing._wait_for_next_mtime
    puts = [lambda: put("a", [1, 2]), lambda: (folder / "b.parquet").unlink()]

    def wait(storage: Storage, listing: Listing) -> None:
        waited(storage, listing)
        if puts:
            puts.pop(0)()

    monkeypatch.setattr(indexing, "_wait_for_next_mtime", wait)
    if call.startswith("refresh"):
        table = zskip.open(folder)
        table.refresh()
    else:
        table = zskip.index(folder, deep=deep, sketches={"id": "values"} if "sketch" in call else None)
    assert not puts
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2]
    assert table.plan("id = 2").count() == 1
    assert table.plan("id = 70000").count() == 0


@pytest.mark.parametrize("meanwhile", ["rewritten", "removed"])
@pytest.mark.parametrize("call", ["add", "index", "refresh"])
def test_sketches_of_files_that_are_replaced_while_they_are_read(
    call: str, meanwhile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "lake"
    folder.mkdir()
    for number in range(3):
        pq.write_table(pa.table({"id": range(number, 3000, 3)}), folder / f"{number}.parquet")
    table = None if call == "index" else zskip.index(folder, sketches={"id": "values"} if call == "refresh" else None)
    if call == "refresh":
        pq.write_table(pa.table({"id": range(3000, 4000)}), folder / "3.parquet")
    read = sketching.keys_of_file
    replaced: list[Path] = []

    def read_while_it_is_written(storage: Storage, *given: Any) -> list[Any]:
        path = folder / given[-1]
        if replaced:
            return read(storage, *given)
        replaced.append(path)
        if meanwhile == "removed":
            path.unlink()
            return read(storage, *given)
        path.write_bytes(path.read_bytes()[:-100])  # another program writes a new file over it
        try:
            return read(storage, *given)
        finally:
            pq.write_table(pa.table({"id": [-5, 70_000]}), path)

    monkeypatch.setattr(sketching, "keys_of_file", read_while_it_is_written)
    if table is None:
        table = zskip.index(folder, sketches={"id": "values"})
    elif call == "add":
        table.add_sketches({"id": "values"})
    else:
        table.refresh()
    (path,) = replaced
    rows = pq.read_table(folder)["id"].to_pylist()
    assert sorted(table.to_arrow()["id"].to_pylist()) == sorted(rows)
    assert [Path(file) for file in table.plan("id = 70000").paths] == ([path] if meanwhile == "rewritten" else [])
    assert table.plan("id = 1001").count() == rows.count(1001)


def test_a_file_that_is_damaged_and_that_nobody_replaces_is_named(tmp_path: Path) -> None:
    for name in "ab":
        pq.write_table(pa.table({"id": range(1000)}), tmp_path / f"{name}.parquet")
    damaged = tmp_path / "b.parquet"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1])
    with pytest.raises(CorruptFile, match=r"b\.parquet"):
        zskip.index(tmp_path)
    damaged.write_bytes(whole)
    table = zskip.index(tmp_path)
    damaged.write_bytes(b"PAR1" + bytes(len(whole) // 2 - 4) + whole[len(whole) // 2 :])
    with pytest.raises(CorruptFile, match=r"b\.parquet"):
        table.add_sketches({"id": "values"})
