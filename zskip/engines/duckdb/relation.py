"""A scan as a DuckDB relation: a native scan of the survivors, filtered by the residual predicate."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from zskip.core import types as t
from zskip.core.schema import identifier
from zskip.engines.duckdb.duckdb_types import with_types_read
from zskip.engines.duckdb.native_scan import (
    Select,
    held_by_all,
    read_of_files,
    reshaped_structs,
    stored_columns,
    stored_form,
    without_patterns,
)
from zskip.engines.missing_files import reading
from zskip.errors import InvalidOption, UnsupportedSql
from zskip.plan import Survivors
from zskip.tablelog.index import Index
from zskip.tablelog.log import load

if TYPE_CHECKING:
    import duckdb

    from zskip.language import Predicate
    from zskip.plan.scan import Scan


def to_duckdb(
    scan: Scan, con: duckdb.DuckDBPyConnection | None = None, columns: Sequence[str] | None = None
) -> duckdb.DuckDBPyRelation:
    """The matching rows of a plan as a lazy relation of ``con``, or of DuckDB's default connection.

    The types are those that DuckDB itself reads from the files. Raises `UnsupportedSql` if DuckDB's SQL cannot express
    the predicate, and `InvalidOption` if the connection's time zone or settings give it another meaning.
    """
    con = opened(con)
    _require_planned_meaning(scan, con)
    read = planned_scan(scan, con, columns, schema=schema_read(scan, con))
    text, values = read.by_position()
    with reading(scan):
        return con.sql(text, params=values)


def opened(con: duckdb.DuckDBPyConnection | None) -> duckdb.DuckDBPyConnection:
    """The given connection, or DuckDB's default one for None. Raises `InvalidOption` for any other object."""
    import duckdb

    con = duckdb.default_connection() if con is None else con
    if not isinstance(con, duckdb.DuckDBPyConnection):
        raise InvalidOption(f"con= is a connection of DuckDB, not {con!r}.")
    return con


def schema_read(scan: Scan, con: duckdb.DuckDBPyConnection) -> pa.Schema:
    """The table's schema with the types that DuckDB gives to its columns that hold bytes, as in the first of the files.

    Without files, that is the first of the table.
    """
    import duckdb

    schema = scan.schema.arrow
    if not scan.schema.holds_bytes:
        return schema
    if not len(scan):
        if scan.source is not None:
            return schema
        scan = Survivors.of_all(Index(scan.storage, load(scan.storage, scan.version))).scan
    if not len(scan):
        return schema
    first = np.zeros(len(scan), bool)
    first[0] = True
    (file,) = readable_paths(scan.narrowed(first), con)
    # A parsed statement that DuckDB cannot bind does not abort an open transaction.
    (parsed,) = con.extract_statements("FROM read_parquet($file, hive_partitioning = false)")
    try:
        found = con.sql(parsed, params={"file": without_patterns([file])[0]})
        read = dict(zip(map(str.lower, found.columns), found.types, strict=True))
    except duckdb.IOException:
        return schema  # the read of the file raises this error, if it comes to that
    keys = {one.name: str(one.key).lower() for one in stored_columns(schema)}
    types = {name.lower(): read[key] for name, key in keys.items() if key in read}
    ((bytes_as_texts,),) = con.sql("SELECT current_setting('binary_as_string')").fetchall()
    return with_types_read(schema, types, bytes_as_texts)


def planned_scan(
    scan: Scan,
    con: duckdb.DuckDBPyConnection,
    columns: Sequence[str] | None,
    file_column: str | None = None,
    *,
    schema: pa.Schema | None = None,
) -> Select:
    """``SELECT columns FROM files WHERE …``: the matching rows. The connection can read the files after this call.

    ``file_column``: the name of an additional column with each row's file, as `readable_paths` names it · ``schema``:
    the table's, in the types that are wanted. Without files, the result has no rows, and these types.
    Raises `UnknownColumn`, and `SchemaError` where two columns differ only in case, which DuckDB cannot tell apart.
    """
    files, where = readable_paths(scan, con), condition(scan)
    schema = scan.schema.arrow if schema is None else schema
    names = scan.schema.selected(columns).names
    read = read_of_files(
        files,
        schema,
        partition_by=scan.partition_by,
        within=rows_to_read(scan),
        file_column=file_column,
        whole=reshaped_structs(scan),
        form=stored_form(scan),
        held=held_by_all(scan),
    )
    projected = names if file_column is None else [*names, file_column]
    filtered = "" if where is None or not files else f"\nWHERE {where}"
    # DuckDB's errors show one line of the text, which is never the read.
    return Select(
        f"SELECT {', '.join(map(identifier, projected)) or 'NULL'} FROM\n{read.sql}{filtered}", read.parameters
    )


def rows_to_read(scan: Scan) -> str | None:
    """A condition on the row numbers of a scan's only file that makes DuckDB skip row groups; None if it would not.

    For several files the condition would be an OR, for which DuckDB skips no row group.
    """
    groups = scan.groups
    if len(scan) != 1 or not len(groups.file) or len(groups.file) == groups.of_file[0]:
        return None
    if (groups.first_row < 0).any() or (groups.rows < 0).any():
        return None
    if "file_row_number" in map(str.lower, scan.schema.arrow.names):
        return None
    first, last = int(groups.first_row[0]), int(groups.first_row[-1] + groups.rows[-1]) - 1
    return f"file_row_number BETWEEN {first} AND {last}"


def condition(scan: Scan) -> str | None:
    """The residual predicate in DuckDB's SQL; None if every row matches."""
    if scan.filter is None:
        return None
    condition_sql = scan.filter.sql("duckdb")
    if condition_sql is None:
        raise UnsupportedSql(
            f'The predicate "{scan.filter}", read as {scan.filter.dialect.name} reads it, cannot be said in '
            f"DuckDB's SQL. Read the plan with that engine, or plan in the dialect of DuckDB."
        )
    # With schema=, DuckDB 2.0 crashes its database if it pushes a list with NULL down to a struct's field. It does not
    # push down a condition with IS TRUE.
    of_a_field = any(len(scan.schema.columns[path].parts) > 1 for path in scan.filter.columns)
    return f"({condition_sql}) IS TRUE" if of_a_field and _LIST_WITH_NULL.search(condition_sql) else condition_sql


_LIST_WITH_NULL = re.compile(r"\bIN\b.*(NULL|TRY)", re.IGNORECASE | re.DOTALL)


def readable_paths(scan: Scan, con: duckdb.DuckDBPyConnection) -> list[str]:
    """The survivors' paths on this connection. Makes a remote table readable there."""
    if scan.storage.local is not None:
        return scan.paths
    from zskip.engines.duckdb.remote_files import KnownFile, register_storage

    known = map(KnownFile, scan.sizes, scan.files.column("modified").to_pylist())
    prefix = register_storage(con, scan.storage, dict(zip(scan.relative_paths, known, strict=True)))
    return [prefix + path for path in scan.relative_paths]


_UTC = dict.fromkeys(
    ("Etc/UTC", "Etc/UCT", "UCT", "Zulu", "Etc/Zulu", "Universal", "Etc/Universal", "GMT", "Etc/GMT"), "UTC"
)


def _reads_a_clock(predicate: Predicate) -> bool:
    """Whether the predicate may depend on the time zone."""
    types = [predicate.schema.columns[path].type for path in predicate.columns]
    condition_sql = predicate.sql("duckdb") or ""
    return any(t.is_timestamp(type) and type.tz is not None for type in types) or bool(_ZONED.search(condition_sql))


_ZONED = re.compile(
    r"timestamptz|time zone|timetz|timezone|to_timestamp|make_timestamptz|current_|now|today", re.IGNORECASE
)


# --- settings that change the meaning of a condition, and the values that proofs assume ---

READ_BY_FUNCTIONS = {
    "ieee_floating_point_ops": "true",
    "error_on_division_by_zero": "true",
    "regex_match_operator_semantics": "partial",
    "Calendar": "gregorian",
    "dialect_compatibility_mode": "none",
}
"""The settings that functions read when they run, with the values that proofs assume."""

_OF_BINDING = {"integer_division": "false", "old_implicit_casting": "false"}
_OF_STRINGS = {"default_collation": ""}
_OF_ZONED_TIMES = {"Calendar": "gregorian"}
_MAY_CALL = re.compile(
    r"[/%~^&|]|::|\b(like|ilike|similar|glob|collate|extract)\b|(?<!\bin)(?<!\band)(?<!\bor)(?<!\bnot)[\w\"]\s*\(", re.I
)


def may_call(scan: Scan) -> bool:
    """Whether the predicate of a scan may call a function, cast, or compute in another way."""
    predicate = scan.predicate
    return predicate is not None and _MAY_CALL.search(predicate.sql("duckdb") or "") is not None


def _require_planned_meaning(scan: Scan, con: duckdb.DuckDBPyConnection) -> None:
    """Raise `InvalidOption` if a setting of the connection gives the predicate another meaning than was planned."""
    predicate = scan.predicate
    if predicate is None:
        return
    assumed: dict[str, str] = {}
    if may_call(scan):
        assumed |= _OF_STRINGS | _OF_BINDING | READ_BY_FUNCTIONS
    types = [t.logical_type(predicate.schema.columns[path].type) for path in predicate.columns]
    if any(map(t.is_string, types)):
        assumed |= _OF_STRINGS
    if any(t.is_timestamp(type) and type.tz is not None for type in types):
        assumed |= _OF_ZONED_TIMES  # strings and local times are cast to the column's type
    if scan.filter is not None and _reads_a_clock(scan.filter):
        assumed["TimeZone"] = predicate.dialect.timezone
    if not assumed:
        return
    selected = ", ".join(f"CAST(current_setting('{name}') AS VARCHAR)" for name in assumed)
    (values,) = con.sql(f"SELECT {selected}").fetchall()
    for (name, planned), value in zip(assumed.items(), values, strict=True):
        if _UTC.get(value, value).lower() != _UTC.get(planned, planned).lower():
            advice = f'Plan with timezone="{value}"' if name == "TimeZone" else f"RESET {name}"
            raise InvalidOption(
                f"The connection has {name} = '{value}', with which the predicate may mean something else than it was "
                f"planned for, '{planned}'. {advice}, read the plan on another connection, or read it with to_arrow()."
            )
