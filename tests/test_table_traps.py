"""Wrong skips that take files and folders to happen: rows that some engine lost, and the guard that keeps them.

A trap makes a table, plans, reads, and says what went wrong. Then the guard is taken out, and the same trap must catch
zskip. What zskip does not do at all (bloom filters, top-k, defaults) is shown to be so.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import zskip
from tests.tables import require_as_in_duckdb
from zskip.core.schema import Schema
from zskip.errors import CommitConflict
from zskip.parquet import footers
from zskip.plan import planner
from zskip.statements import plan_tree
from zskip.stats import ColumnStatistics
from zskip.storage import hive, open_storage
from zskip.tablelog import freshness

Guard = Callable[[pytest.MonkeyPatch], None]


def file(folder: Path, name: str, columns: dict[str, Any], **options: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return path


def wrong(table: zskip.Table, predicate: str, expected: list[int]) -> list[str]:
    """What a plan, read by each engine, gets wrong; ``expected`` are the rows' ids."""
    plan = table.plan(predicate)
    with duckdb.connect() as con:
        read = {
            "Arrow": plan.to_arrow(["id"]).column("id").to_pylist(),
            "DuckDB": [row[0] for row in plan.to_duckdb(con, ["id"]).fetchall()],
        }
    found = [f"{engine}: {sorted(ids)}" for engine, ids in read.items() if sorted(ids) != expected]
    return found + ([f"count: {plan.count()}"] if plan.count() != len(expected) else [])


# ── folders that change after they were indexed ──


def never_listed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("zskip.table.listed", lambda index: None)


def whole_seconds(patch: pytest.MonkeyPatch) -> None:
    right = freshness._equal

    def seconds(values: pa.Array) -> pa.Array:
        if pa.types.is_string(values.type):  # what tells more than a time
            return pa.nulls(len(values), values.type)
        return pc.divide(values, 10**9) if values.type == pa.int64() and _is_time(values) else values

    def wrong_(then: pa.Array, now: pa.Array, **unknown: bool) -> np.ndarray:
        return right(seconds(then), seconds(now), **unknown)

    patch.setattr(freshness, "_equal", wrong_)


def _is_time(values: pa.Array) -> bool:
    return bool(len(values) and (pc.max(values).as_py() or 0) > 10**15)


def rewritten(folder: Path, *, later: int) -> list[str]:
    """A file that was written again under its name, with other values, some nanoseconds later."""
    one = file(folder, "a.parquet", {"id": [1, 2], "x": [10, 20]})
    file(folder, "b.parquet", {"id": [3], "x": [99]})
    os.utime(one, ns=(1_600_000_000 * 10**9, 1_600_000_000 * 10**9))
    table = zskip.index(folder)
    assert wrong(table, "x = 77", []) == []  # whatever is kept for a while, is kept now
    size = one.stat().st_size
    file(folder, "a.parquet", {"id": [1, 2], "x": [77, 20]})
    assert one.stat().st_size == size
    changed = 1_600_000_000 * 10**9 + later
    os.utime(one, ns=(changed, changed))
    return wrong(table, "x = 77", [1])


def added(folder: Path) -> list[str]:
    """A file that came after the index was made."""
    file(folder, "a.parquet", {"id": [1, 2], "x": [10, 20]})
    table = zskip.index(folder)
    file(folder, "b.parquet", {"id": [3], "x": [77]})
    return wrong(table, "x = 77", [3])


# ── columns that came, went and changed their names ──


def absent_is_no_null(patch: pytest.MonkeyPatch) -> None:
    """The mistake of taking a column that a file lacks for one without NULL."""

    def all_null(type: pa.DataType, row_count: pa.Int64Array) -> ColumnStatistics:
        none = pa.array(np.zeros(len(row_count), np.int64))
        return replace(ColumnStatistics.unknown(type, len(row_count)), null_count=none, nan_count=none)

    patch.setattr(ColumnStatistics, "all_null", all_null)


def names_taken_as_spelled(patch: pytest.MonkeyPatch) -> None:
    """The mistake of taking a column of another spelling for a missing one."""
    patch.setattr(footers, "_is_absent", lambda column, folded: True)


def column_added(folder: Path) -> list[str]:
    file(folder, "old.parquet", {"id": [1, 2]})
    file(folder, "new.parquet", {"id": [3, 4], "x": [5, None]})
    return wrong(zskip.index(folder), "x IS NULL", [1, 2, 4])


def column_renamed(folder: Path) -> list[str]:
    """The engine, which folds case, finds the values under the old name."""
    file(folder, "new.parquet", {"id": [3], "amount": [7]})
    schema = Schema(zskip.index(folder).schema)
    other = folder.parent / "renamed"
    file(other, "new.parquet", {"id": [3], "amount": [7]})
    file(other, "old.parquet", {"id": [1, 2], "Amount": [5, 6]})
    _, files = footers.read(open_storage(str(other)), ["new.parquet", "old.parquet"], schema)
    old = files.path.to_pylist().index("old.parquet")
    ranges = files.files.statistics().columns["amount"]
    return [] if ranges.has_value[old].as_py() is not False else ["old.parquet is taken to hold NULL alone"]


def column_defaulted(folder: Path) -> list[str]:
    """zskip knows no defaults: what an older file lacks is NULL to the proof and to every reader."""
    file(folder, "old.parquet", {"id": [1, 2]})
    file(folder, "new.parquet", {"id": [3], "x": [5]})
    table = zskip.index(folder)
    return wrong(table, "coalesce(x, 7) = 7", [1, 2]) + wrong(table, "x = 7", []) + wrong(table, "x IS NULL", [1, 2])


# ── values that stand in the names of folders ──


def digits_are_numbers(patch: pytest.MonkeyPatch) -> None:
    """The mistake of reading the folder ``k=07`` as the number 7, which is another text."""
    right = footers.statistics

    def stripped(values: pa.StringArray, type: pa.DataType, rows: pa.Int64Array) -> ColumnStatistics:
        return right(pc.replace_substring_regex(values, r"^0+([0-9])", r"\1"), type, rows)

    patch.setattr(footers, "statistics", stripped)


def null_is_a_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(hive, "NULL", "no such name")


def empty_is_a_value(patch: pytest.MonkeyPatch) -> None:
    """The mistake of being sure that the folder ``k=`` holds the empty text; some readers make it NULL."""
    right = footers.statistics

    def wrong_(values: pa.StringArray, type: pa.DataType, rows: pa.Int64Array) -> ColumnStatistics:
        found = right(values, type, rows)
        none = pa.array(np.zeros(len(values), np.int64))
        return replace(found, null_count=none)

    patch.setattr(footers, "statistics", wrong_)


def folder_zero_padded(folder: Path) -> list[str]:
    for number, key in enumerate(("07", "7", "x")):
        file(folder, f"k={key}/a.parquet", {"id": [number]})
    table = zskip.index(folder)
    return wrong(table, "k = '07'", [0]) + wrong(table, "k = '7'", [1])


def folder_of_null(folder: Path) -> list[str]:
    for number, key in enumerate(("a", "__HIVE_DEFAULT_PARTITION__")):
        file(folder, f"k={key}/a.parquet", {"id": [number]})
    return wrong(zskip.index(folder), "k IS NULL", [1])


def folder_of_nothing(folder: Path) -> list[str]:
    """Readers differ: so the file is kept for the empty text, and for NULL."""
    for number, key in enumerate(("a", "")):
        file(folder, f"k={key}/a.parquet", {"id": [number]})
    table = zskip.index(folder)
    asked = ("k IS NULL", "k = ''", "k < 'a'")
    return [predicate for predicate in asked if not any("k=/" in path for path in table.plan(predicate).paths)]


# ── rows beside what was pruned ──


def stops_at_a_pruned_file(patch: pytest.MonkeyPatch) -> None:
    """The mistake of a reader that takes a file without surviving row groups for the end."""
    right = planner.surviving_groups

    def wrong_(units: Any, may_match: np.ndarray, all_match: np.ndarray) -> Any:
        alive = np.isin(units.file, units.file[may_match])
        return right(units, may_match & np.logical_and.accumulate(alive), all_match)

    patch.setattr(planner, "surviving_groups", wrong_)


def pruned_in_the_middle(folder: Path) -> list[str]:
    """The second file's row groups are all skipped; the file alone says nothing."""
    for name, groups in (("a", [[4, 6], [5, 9]]), ("b", [[0, 1], [8, 9]]), ("c", [[5, 5], [1, 2]])):
        values = [value for group in groups for value in group]
        ids = [ord(name) * 10 + place for place in range(4)]
        file(folder, f"{name}.parquet", {"id": ids, "x": values}, row_group_size=2)
    table = zskip.index(folder)
    assert [Path(path).name for path in table.plan("x = 5").paths] != ["b.parquet"]
    return wrong(table, "x = 5", [972, 990, 991])


# ── the first rows of an order ──


def limit_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The mistake of moving a condition below a LIMIT."""
    patch.setattr(plan_tree, "_filters_below", lambda node, above: (*above, node.info.get("Expression", "TRUE")))


def condition_above_a_limit(folder: Path) -> list[str]:
    for number in range(5):
        file(folder, f"{number}.parquet", {"id": [2 * number, 2 * number + 1], "x": [number, number]})
    zskip.index(folder)
    statement = f"SELECT id FROM (SELECT * FROM '{folder}' ORDER BY x, id LIMIT 4) WHERE x >= 1 ORDER BY id"
    with duckdb.connect() as con:
        found = [row[0] for row in zskip.sql(statement, con).fetchall()]
    return [] if found == [2, 3] else [f"{found}"]


@dataclass(frozen=True)
class Trap:
    name: str
    caught: Callable[[Path], list[str]]
    guard: Guard


TRAPS = [
    Trap("a stale cache keyed by path", lambda folder: rewritten(folder, later=10**12), never_listed),
    Trap("second-granular modification times", lambda folder: rewritten(folder, later=1), whole_seconds),
    Trap("a file that came later", added, never_listed),
    Trap("added columns", column_added, absent_is_no_null),
    Trap("renamed columns", column_renamed, names_taken_as_spelled),
    Trap("defaulted columns", column_defaulted, absent_is_no_null),
    Trap("hive values zero-padded", folder_zero_padded, digits_are_numbers),
    Trap("hive values null", folder_of_null, null_is_a_name),
    Trap("hive values empty", folder_of_nothing, empty_is_a_value),
    Trap("a fully pruned task that swallowed its neighbours' rows", pruned_in_the_middle, stops_at_a_pruned_file),
    Trap("a condition above a limit", condition_above_a_limit, limit_forgotten),
]


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_only_without_its_guard_the_table_is_caught(
    trap: Trap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trap.caught(tmp_path / "guarded" / "lake") == []
    trap.guard(monkeypatch)
    assert trap.caught(tmp_path / "lake")


# ── what zskip does not do, so that it cannot do it wrongly ──


def test_no_bloom_filter_is_read(tmp_path: Path) -> None:
    """A bloom filter hashed in another physical form excludes values that are there; here one that excludes all."""
    path = tmp_path / "lake" / "a.parquet"
    path.parent.mkdir()
    with duckdb.connect() as con:
        con.execute(f"COPY (SELECT i AS id, (i % 50) * 1000 AS x FROM range(2000) t(i)) TO '{path}' (FORMAT parquet)")
        offset, length = con.execute(
            f"SELECT bloom_filter_offset, bloom_filter_length FROM parquet_metadata('{path}') "
            "WHERE path_in_schema = 'x'"
        ).fetchall()[0]
        whole = path.read_bytes()
        # A block of zeros holds no value; the header of the filter, which is short, stays as it is.
        header = whole[offset : offset + length].find(bytes([0])) + 1
        path.write_bytes(whole[: offset + header + 8] + bytes(length - header - 8) + whole[offset + length :])
        lies = con.execute(f"SELECT bool_and(bloom_filter_excludes) FROM parquet_bloom_probe('{path}', 'x', 7000)")
        assert lies.fetchall() == [(True,)], "the filter should exclude a value that is there"
    table = zskip.index(path.parent)
    assert len(table.plan("x = 7000").paths) == 1
    assert len(table.plan("x = 7001").paths) == 1
    assert table.plan("x = 70000").paths == []


def test_the_first_rows_are_those_of_a_full_scan(tmp_path: Path) -> None:
    """No file is skipped for a top-k, whatever stands of NULL in the order: its bounds say nothing of NULLs."""
    for number, values in enumerate([[1, None], [2, 3], [None, 9], [8, 8]]):
        file(tmp_path, f"{number}.parquet", {"id": [2 * number, 2 * number + 1], "x": pa.array(values, pa.int64())})
    zskip.index(tmp_path)
    for direction, nulls in product(["ASC", "DESC"], ["", "NULLS FIRST", "NULLS LAST"]):
        order = f"ORDER BY x {direction} {nulls}, id LIMIT 3"
        wheres = ("", "WHERE x > 1 OR x IS NULL", "WHERE x IS NULL")
        require_as_in_duckdb(tmp_path, *(f"SELECT id, x FROM {{}} {where} {order}" for where in wheres))


REPLACED: list[Callable[[zskip.Table], object]] = [
    lambda table: table.delete("id >= 0"),
    lambda table: table.append(pa.table({"id": [1], "s": ["a"]})),
    lambda table: table.restore(1),
    lambda table: table.optimize(full=True),
    lambda table: table.tend(),
    lambda table: table.overwrite(pa.table({"id": [1], "s": ["a"]})),
    lambda table: table.upsert(pa.table({"id": [1], "s": ["a"]}), on="id"),
    lambda table: table.vacuum("0 seconds"),
]


def test_a_table_that_another_one_replaced_is_not_changed(tmp_path: Path) -> None:
    """Deletes took the rows of the new table."""
    zskip.write(pa.table({"id": range(30), "s": ["a"] * 30}), tmp_path / "t", by="id", files=3)
    old = [zskip.open(tmp_path / "t") for _ in REPLACED]
    shutil.rmtree(tmp_path / "t")
    new = zskip.write(pa.table({"id": range(1000, 1030), "other": ["x"] * 30}), tmp_path / "t", by="id", files=2)
    for table, verb in zip(old, REPLACED, strict=True):
        with pytest.raises(CommitConflict, match="replaced by another one"):
            verb(table)
    assert zskip.open(tmp_path / "t").version == new.version
    assert zskip.open(tmp_path / "t").count() == 30
