"""A plan as a DuckDB relation: a native scan of the survivors under the predicate that is left."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyarrow import types as t

from zskip.engines.duckdb.meaning import same_meaning
from zskip.engines.duckdb.remote_files import KnownFile, register_storage
from zskip.engines.duckdb.scan import Scan, native_scan, reshaped
from zskip.engines.missing_files import naming_what_is_gone
from zskip.errors import InvalidOption, UnsupportedSql

if TYPE_CHECKING:
    import duckdb

    from zskip.expr import Predicate
    from zskip.plan import Plan

__all__ = ["condition", "opened", "planned_scan", "readable_paths", "same_clock", "to_duckdb"]


def to_duckdb(
    plan: Plan, con: duckdb.DuckDBPyConnection | None = None, columns: Sequence[str] | None = None
) -> duckdb.DuckDBPyRelation:
    """The matching rows of a plan as a lazy relation of ``con`` (of DuckDB's default connection where it is None).

    The types are those that DuckDB itself gives these files. Raises `UnsupportedSql` where the predicate cannot be
    said in DuckDB's SQL, and `InvalidOption` where the connection's time zone is not the plan's and matters, or where
    its settings give the predicate another meaning.
    """

    con = opened(con)
    if plan.predicate is not None:
        same_meaning(plan.predicate, con)
    same_clock(plan, con)
    scan = planned_scan(plan, con, columns)
    with naming_what_is_gone(plan):
        return con.sql(scan.sql, params=dict(scan.parameters))


def opened(con: duckdb.DuckDBPyConnection | None) -> duckdb.DuckDBPyConnection:
    """The connection that a user gives; DuckDB's default one for None. Raises `InvalidOption` for what is none."""
    import duckdb

    con = duckdb.default_connection() if con is None else con
    if not isinstance(con, duckdb.DuckDBPyConnection):
        raise InvalidOption(f"con= is a connection of DuckDB, not {con!r}.")
    return con


def planned_scan(
    plan: Plan, con: duckdb.DuckDBPyConnection, columns: Sequence[str] | None, file_column: str | None = None
) -> Scan:
    """The SELECT of the matching rows, on a connection that can read the files after this call.

    ``file_column``: the name of one more column, which holds each row's file as `readable_paths` names it.
    """
    rows = plan.rows
    return native_scan(
        readable_paths(plan, con),
        plan.snapshot.schema.arrow,
        columns=columns,
        partition_by=plan.snapshot.partition_by,
        where=condition(plan),
        within=rows_to_read(plan),
        file_column=file_column,
        rows=None if rows.null_count else sum(rows.to_pylist()),
        whole=reshaped(plan.snapshot),
    )


def rows_to_read(plan: Plan) -> str | None:
    """The row groups of a plan's only file as a range of its rows, which DuckDB skips by; None where that says nothing.

    Over several files such ranges would be an OR, by which DuckDB skips no row group.
    """
    groups = plan.groups
    if len(plan) != 1 or not len(groups.file) or len(groups.file) == groups.of_file[0]:
        return None
    if (groups.first_row < 0).any() or (groups.rows < 0).any() or "file_row_number" in _lowered(plan):
        return None
    first, last = int(groups.first_row[0]), int(groups.first_row[-1] + groups.rows[-1]) - 1
    return f"file_row_number BETWEEN {first} AND {last}"


def _lowered(plan: Plan) -> set[str]:
    return {name.lower() for name in plan.snapshot.schema.arrow.names}


def condition(plan: Plan) -> str | None:
    """What is left of the predicate in DuckDB's SQL; None where every row of every file matches."""
    if plan.predicate is None or plan.all_match:
        return None
    said = plan.predicate.sql("duckdb")
    if said is None:
        raise UnsupportedSql(
            f'The predicate "{plan.predicate}", read as {plan.predicate.dialect.name} reads it, cannot be said in '
            f"DuckDB's SQL. Read the plan with that engine, or plan in the dialect of DuckDB."
        )
    return said


def readable_paths(plan: Plan, con: duckdb.DuckDBPyConnection) -> list[str]:
    """The survivors' names on this connection; a remote table is made readable there."""
    storage = plan.index.storage
    if storage.local is not None:
        return plan.paths
    paths: list[str] = plan.relative_paths.to_pylist()
    modified = plan.index.modified(plan.numbers).to_pylist()
    modified += [None] * (len(paths) - len(modified))
    sizes = plan.bytes.to_pylist()
    if None in sizes:
        listed = storage.size_and_modified(paths)
        found = dict(zip(listed.path.to_pylist(), listed.size.to_pylist(), strict=True))
        sizes = [found[path] for path in paths]
    prefix = register_storage(con, storage, dict(zip(paths, map(KnownFile, sizes, modified), strict=True)))
    return [prefix + path for path in paths]


def same_clock(plan: Plan, con: duckdb.DuckDBPyConnection) -> None:
    """Raise `InvalidOption` where a zoned comparison would mean something else to the connection than to the proof."""
    if plan.all_match or plan.predicate is None or not _reads_a_clock(plan.predicate):
        return
    ((theirs,),) = con.sql("SELECT current_setting('TimeZone')").fetchall()
    ours = plan.predicate.dialect.timezone
    if _UTC.get(theirs, theirs) != _UTC.get(ours, ours):
        raise InvalidOption(
            f'The plan reads times in the zone "{ours}", the connection in "{theirs}". '
            f"Plan with timezone=\"{theirs}\", or say SET TimeZone = '{ours}' on the connection."
        )


_UTC = dict.fromkeys(
    ("Etc/UTC", "Etc/UCT", "UCT", "Zulu", "Etc/Zulu", "Universal", "Etc/Universal", "GMT", "Etc/GMT"), "UTC"
)


def _reads_a_clock(predicate: Predicate) -> bool:
    """Whether the session's time zone may matter to the predicate."""
    types = [predicate.schema.columns[path].type for path in predicate.columns]
    said = predicate.sql("duckdb") or ""
    return any(t.is_timestamp(type) and type.tz is not None for type in types) or bool(_ZONED.search(said))


_ZONED = re.compile(
    r"timestamptz|time zone|timetz|timezone|to_timestamp|make_timestamptz|current_|now|today", re.IGNORECASE
)
