"""A folder of plain Parquet, laid out in place: equal rows for zskip and for programs that list it, at any time."""

from __future__ import annotations

import os
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from zskip.core.receipts import Clustered
from zskip.errors import CommitConflict, FilesRemoved, InvalidOption, NotOrderable, SchemaMismatch, UnknownColumn
from zskip.writer.compaction import cluster, compact

RANDOM = np.random.default_rng(18)
NOW = timedelta(0)


def rows(count: int = 60) -> pa.Table:
    return pa.table(
        {
            "a": RANDOM.integers(0, 1000, count),
            "b": RANDOM.integers(0, 1000, count),
            "text": pa.array([f"t{n}" if n % 5 else None for n in range(count)]),
            "share": pa.array([float("nan") if n % 9 == 0 else None if n % 7 == 0 else n / 3 for n in range(count)]),
            "at": pa.array(np.arange(count) * 10**9 + 10**18, pa.timestamp("ns")),
            "tags": [["x", "y"][: n % 3] for n in range(count)],
        }
    )


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """With folders by day, or flat where a test names it."""
    path = tmp_path / "events"
    for day in (1, 2):
        inner = path if getattr(request, "param", "by day") == "flat" else path / f"day={day}"
        inner.mkdir(parents=True, exist_ok=True)
        for number in range(3):
            pq.write_table(rows(), inner / f"{day}-{number}.parquet", use_deprecated_int96_timestamps=number == 1)
    return path


both_folders = pytest.mark.parametrize("folder", ["flat", "by day"], indirect=True)


def listed(path: Path) -> list[str]:
    """The rows by DuckDB's glob, which takes what lies there."""
    pattern = f"{path}/**/*.parquet"
    found = duckdb.sql("SELECT * FROM read_parquet($files, hive_partitioning = true)", params={"files": pattern})
    return contents(found.to_arrow_table())


def contents(found: Any) -> list[str]:
    """The rows, with INT96 by its UTC clock: a rewritten table says that it is UTC."""
    found = found.set_column(found.column_names.index("at"), "at", found["at"].cast(pa.timestamp("ns")))
    names = [name for name in ("a", "b", "text", "share", "at", "tags", "day") if name in found.column_names]
    return sorted(repr(row) for row in found.select(names).to_pylist())


@both_folders
def test_it_keeps_the_rows_and_skips_more(folder: Path) -> None:
    before, plain = contents(zskip.index(folder).to_arrow()), listed(folder)
    done = zskip.cluster(folder, by=["a", "b"], files=8)
    table = zskip.open(folder)
    assert (done.version, done.files_rewritten, done.files_written) == (table.version, 6, len(table.plan().paths))
    assert contents(table.to_arrow()) == before
    assert listed(folder) == plain
    assert table.plan("a = 500").skipped.files.part > 0.5
    assert table.verify("a < 100 AND b > 900", random=3).clean
    assert [version.operation for version in table.history()] == ["cluster", "index"]


@pytest.mark.parametrize(
    ("size", "other"),
    [({"rows_per_file": 100}, {"files": 3}), ({"files": 3}, {"file_size": "1kB"}), ({"file_size": 900}, {"files": 2})],
)
def test_a_table_of_zskip_takes_another_kind_of_size(
    size: dict[str, Any], other: dict[str, Any], tmp_path: Path
) -> None:
    rows = pa.table({"a": range(400), "b": [number % 7 for number in range(400)]})
    zskip.write(rows, tmp_path / "t", by=["a"], **size)
    zskip.cluster(tmp_path / "t", by=["b", "a"], **other)
    table = zskip.open(tmp_path / "t")
    assert table.to_arrow().sort_by("a").equals(rows)
    table.append(rows.slice(0, 1))
    assert zskip.cluster(tmp_path / "t", **size).files_rewritten


@both_folders
def test_a_listing_shows_no_row_twice_whatever_is_done_to_the_table(folder: Path) -> None:
    plain = listed(folder)
    zskip.cluster(folder, by=["a", "b"], files=8)
    table = zskip.open(folder)
    extra = table.to_arrow().slice(0, 20)
    table.append(extra)
    table.delete("a < 200")
    table.optimize(full=True)
    assert listed(folder) == plain
    table.overwrite(extra, files=2)
    table = zskip.write(extra, folder, by="b", rows_per_file=5, mode="overwrite")
    assert listed(folder) == plain
    assert contents(table.to_arrow()) == contents(extra)
    assert {"_data" in path for path in table.plan().paths} == {True}


@both_folders
def test_vacuum_removes_the_replaced_files_and_no_others(folder: Path) -> None:
    before = contents(zskip.index(folder).to_arrow())
    zskip.cluster(folder, by=["a"], files=4)
    old = sorted(path for path in folder.rglob("*.parquet") if "_" not in str(path.relative_to(folder))[0])
    pq.write_table(rows(10), old[0])  # another program's, since
    later = old[1].with_name("later.parquet")
    pq.write_table(rows(10), later)
    table, stale = zskip.open(folder), zskip.open(folder, version=1)
    kept = table.vacuum("1 day")
    assert not kept.paths
    assert f"less than 1 day ago (older_than): {len(old)}" in str(kept)
    assert stale.count() == 360 - 60 + 10 + 10
    would = table.vacuum(NOW, dry_run=True)
    gone = table.vacuum(NOW)
    assert set(gone.paths) >= {str(path.relative_to(folder)) for path in old[1:]}
    assert gone.paths == would.paths
    assert gone.bytes == would.bytes
    assert [path for path in [*old, later] if path.exists()] == [old[0], later]
    assert contents(table.to_arrow()) == before
    assert not table.vacuum(NOW).paths
    with pytest.raises(FilesRemoved, match=r"laid out anew after version 1.*Open the table again"):
        stale.count()


@both_folders
def test_restore_goes_back_to_the_old_files(folder: Path) -> None:
    before = contents(zskip.index(folder).to_arrow())
    zskip.cluster(folder, by=["a"], files=4)
    table = zskip.open(folder)
    table.restore(1)
    assert contents(table.to_arrow()) == before
    assert not any("_data" in path for path in table.plan().paths)
    table.vacuum(NOW)
    assert not list((folder / "_data").rglob("*.pq"))
    assert contents(zskip.open(folder).to_arrow()) == before
    assert zskip.cluster(folder, by=["b"], files=4).files_rewritten == 6


@pytest.mark.parametrize("moment", ["before the commit", "after it"])
def test_a_file_that_comes_meanwhile_is_not_lost(folder: Path, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    zskip.index(folder)

    def late(made: Any) -> Any:
        pq.write_table(rows(10), next(folder.rglob("1-0.parquet")).with_name("late.parquet"))
        return made

    name = "require_same_rows" if moment == "before the commit" else "commit"
    room = compact if moment == "before the commit" else cluster
    real = getattr(room, name)
    with monkeypatch.context() as patched:
        patched.setattr(room, name, lambda *given, **named: late(real(*given, **named)))
        with pytest.raises(CommitConflict, match=r"late\.parquet.*run it again"):
            zskip.cluster(folder, by=["a"], files=4)
    table = zskip.open(folder)
    assert table.count() == 370
    assert table.version == (1 if moment == "before the commit" else 3)
    assert zskip.cluster(folder, by=["a"], files=4).files_rewritten == 7
    assert zskip.open(folder).count() == 370


@pytest.mark.parametrize("indexed", [False, True])
def test_a_table_that_is_made_beside_the_files_meanwhile_stays_apart(
    tmp_path: Path, indexed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To lay out its rows with those of the other files would leave these there, and `adopt` would add them again."""
    for number in range(3):
        pq.write_table(pa.table({"a": range(10 * number, 10 * number + 10)}), tmp_path / f"{number}.parquet")
    if indexed:
        zskip.index(tmp_path)
    real = cluster.cluster_folder

    def late(*given: Any, **named: Any) -> Any:
        monkeypatch.undo()
        if indexed:
            zskip.cluster(tmp_path, by="a", files=2)
        else:
            zskip.write(pa.table({"a": range(30, 40)}), tmp_path, by="a", files=2, mode="append")
        return real(*given, **named)

    monkeypatch.setattr(cluster, "cluster_folder", late)
    with pytest.raises(CommitConflict, match="another process made it a table meanwhile"):
        zskip.cluster(tmp_path, by="a", files=4)
    table = zskip.open(tmp_path)
    assert table.count() == (30 if indexed else 10)
    assert table.adopt().rows == (0 if indexed else 30)
    assert sorted(zskip.open(tmp_path).to_arrow()["a"].to_pylist()) == list(range(30 if indexed else 40))


def test_another_commit_meanwhile_is_a_conflict(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zskip.index(folder)
    real = compact.require_same_rows

    def other(*given: Any) -> None:
        monkeypatch.undo()
        real(*given)
        zskip.cluster(folder, by=["b"], files=2)

    monkeypatch.setattr(compact, "require_same_rows", other)
    with pytest.raises(CommitConflict, match=r"version 2 .* meanwhile"):
        zskip.cluster(folder, by=["a"], files=4)
    assert zskip.open(folder).count() == 360
    assert len(list((folder / "_data").rglob("*.pq"))) == len(zskip.open(folder).plan().paths)


def test_a_dry_run_writes_nothing(folder: Path) -> None:
    done = zskip.cluster(folder, by=["a"], dry_run=True)
    assert (done.files_rewritten, done.files_written, done.version) == (6, None, 0)
    assert not (folder / "_zskip").exists()


def test_it_refuses_what_it_cannot_do(folder: Path) -> None:
    with pytest.raises(InvalidOption, match="Give by="):
        zskip.cluster(folder)
    with pytest.raises(InvalidOption, match=r"a Delta or Iceberg table: leave it out"):
        zskip.cluster(folder, by=["a"], where="a < 10")
    with pytest.raises(InvalidOption, match=r"as a whole: leave out max_bytes="):
        zskip.cluster(folder, by=["a"], max_bytes="1MB")
    with pytest.raises(UnknownColumn):
        zskip.cluster(folder, by=["nope"])
    with pytest.raises(NotOrderable):
        zskip.cluster(folder, by=["tags"])
    assert not (folder / "_data").exists()


def test_a_table_of_zskip_is_optimized_and_laid_out_by_new_columns(folder: Path) -> None:
    zskip.cluster(folder, by=["a"], files=4)
    table = zskip.open(folder)
    before, files = contents(table.to_arrow()), len(table.plan())
    for again in ({}, {"by": "a"}, {"by": ["a"], "files": 4}):
        assert zskip.cluster(folder, **again) == Clustered(table.version, 0, 0, 0)
    planned = zskip.cluster(folder, by="b", dry_run=True)
    assert planned == Clustered(table.version, files, planned.bytes_rewritten, None, dry_run=True)
    done = zskip.cluster(folder, by="b")
    assert (done.version, done.files_rewritten) == (table.version + 1, files)
    table.refresh()
    assert list(table.clustering()) == ["b"]
    assert done.files_written == len(table.plan())
    assert contents(table.to_arrow()) == before
    assert zskip.cluster(folder, by="b", files=2).files_written == 2
    assert zskip.cluster(folder).files_rewritten == 0


def test_given_statistics_do_not_tell_whether_a_file_has_changed(tmp_path: Path) -> None:
    pq.write_table(rows(20), tmp_path / "a.parquet")
    known = pa.table({"path": ["a.parquet"], "row_count": [20], "size": [os.path.getsize(tmp_path / "a.parquet")]})
    zskip.index(tmp_path, schema=rows(1).schema, statistics=known)
    with pytest.raises(InvalidOption, match="made from given statistics"):
        zskip.cluster(tmp_path, by=["a"])


WHOLE, HALF = 2**53 + 1, 1.5
LONG = Decimal("12345678901234567890.1234567891")


@pytest.mark.parametrize(
    ("values", "others"),
    [
        (pa.array([WHOLE]), pa.array([HALF])),
        (pa.array([2**24 + 1]), pa.array([HALF], pa.float32())),
        (pa.array([2**63 + 5], pa.uint64()), pa.array([HALF])),
        (pa.array([2**63 + 5], pa.uint64()), pa.array([-1])),
        (pa.array([LONG], pa.decimal128(30, 10)), pa.array([HALF])),
        (pa.array([{"x": WHOLE}]), pa.array([{"x": HALF}])),
        (pa.array([[WHOLE]]), pa.array([[HALF]])),
    ],
    ids=lambda values: str(values.type),
)
@pytest.mark.parametrize("is_indexed", [False, True])
def test_numbers_that_the_common_type_would_round_are_refused(
    values: pa.Array, others: pa.Array, is_indexed: bool, tmp_path: Path
) -> None:
    """The rounded numbers were written, and a vacuum removed the only files that had them exactly."""
    pq.write_table(pa.table({"id": [1], "a": values}), tmp_path / "1.parquet")
    if is_indexed:
        zskip.index(tmp_path)
    pq.write_table(pa.table({"id": [2], "a": others}), tmp_path / "2.parquet")
    with pytest.raises(
        SchemaMismatch, match=r'"a" is .* in .*1.parquet.*(does not hold all its values|a value beyond)'
    ):
        zskip.cluster(tmp_path, by="id", files=1)
    assert {path.name for path in tmp_path.iterdir()} - {"_zskip"} == {"1.parquet", "2.parquet"}
    assert not list((tmp_path / "_zskip").rglob("*.parquet"))


def test_numbers_that_the_common_type_holds_are_laid_out(tmp_path: Path) -> None:
    for number, type in enumerate((pa.int16(), pa.int32(), pa.float32(), pa.float64())):
        pq.write_table(pa.table({"id": [number], "a": pa.array([number], type)}), tmp_path / f"{number}.parquet")
    zskip.cluster(tmp_path, by="id", files=1)
    assert zskip.open(tmp_path).to_arrow().sort_by("id")["a"].to_pylist() == [0.0, 1.0, 2.0, 3.0]
