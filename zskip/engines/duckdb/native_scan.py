"""A native DuckDB scan of planned files, as SQL text and its parameters.

The table's schema goes along by name, so that no file is opened to learn it: a column that a file lacks is NULL
there, a narrower type is widened.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zskip import hive
from zskip import types as t
from zskip.engines.duckdb.duckdb_types import duckdb_type
from zskip.engines.duckdb.stored_form import StoredForm, stored_columns
from zskip.errors import SchemaError, UnknownColumn, nearest
from zskip.expr.sql_literals import identifier
from zskip.schema import names_given

if TYPE_CHECKING:
    from zskip.scan import Scan

__all__ = [
    "UNGUARDED",
    "Select",
    "file_column_name",
    "literal",
    "native_scan",
    "partition_values",
    "reshaped",
    "uniform_read",
    "without_patterns",
]


# The guard of a scan that is bound under any settings.
UNGUARDED = "false"


@dataclass(frozen=True, slots=True)
class Select:
    """A SELECT statement and the values of its named parameters."""

    sql: str
    parameters: Mapping[str, Any]


def native_scan(
    files: Sequence[str],
    schema: pa.Schema,
    *,
    columns: Sequence[str] | None = None,
    partition_by: Sequence[str] = (),
    where: str | None = None,
    rows: int | None = None,
    within: str | None = None,
    file_column: str | None = None,
    files_parameter: str = "zskip_files",
    schema_parameter: str | None = "zskip_schema",
    whole: Collection[str] = (),
    form: StoredForm | None = None,
    uniform: bool = False,
    guard: str = UNGUARDED,
) -> Select:
    """``SELECT columns FROM files WHERE …`` over Parquet files whose values of ``partition_by`` stand in their paths.

    ``files``: paths or URLs as DuckDB takes them, none of them a pattern · ``where``: a predicate in DuckDB's SQL ·
    ``rows``: how many rows the files hold, for DuckDB's planner · ``within``: a condition on ``file_row_number`` ·
    ``file_column``: the name of one more column, which holds each row's file · ``whole``: columns that are read whole
    before a field is taken out of them · ``schema_parameter``: None where the schema is to stand in the text, which
    DuckDB reads more slowly · ``form``: how the rows stand in the files, where that is not as they stand in the table ·
    ``uniform``: all files have the table's columns and types, but for ``partition_by`` · ``guard``: an expression in
    SQL that is FALSE, or raises when DuckDB binds the scan.
    No file at all gives no row, with the right types.
    Raises `UnknownColumn`, and `SchemaError` where two columns differ only in case, which DuckDB cannot tell apart.
    """
    names = schema.names if columns is None else list(names_given(columns, "columns"))
    types = {field.name: duckdb_type(field.type) for field in schema}
    _refuse_ambiguous(schema.names)
    known = {name.lower() for name in types}
    for name in names:
        if name.lower() not in known:
            raise UnknownColumn(f'There is no column "{name}".{nearest(name, schema.names)}')
    named = () if file_column is None else (file_column,)
    projection = ", ".join(identifier(name) for name in (*names, *named)) or "NULL"
    condition = "" if where is None else f" WHERE {where}"
    if not files:
        nothing = ", ".join(f"CAST(NULL AS {type}) AS {identifier(name)}" for name, type in types.items())
        bound = "" if guard == UNGUARDED else f" FROM range(CAST({guard} AS BIGINT))"
        return Select(f"SELECT {projection} FROM (SELECT {nothing or 'NULL'}{bound} WHERE false)", {})
    if form is not None:
        columns_of = pa.schema([field for field in schema if field.name not in partition_by])
        source = _form_source(columns_of, types, rows, file_column, files_parameter, whole, form, guard)
        parameters = {files_parameter: without_patterns(files), **form.parameters(files_parameter)}
        return Select(f"SELECT {projection} FROM {source}{condition}", parameters)
    stored = {name: type for name, type in types.items() if name not in partition_by}
    # DuckDB's own name for it, "filename", may be one of the table's columns.
    file = file_column or (file_column_name(schema.names) if partition_by else None)
    schema_sql = _schema_literal(stored) if schema_parameter is None else f"${schema_parameter}"
    source = f"read_parquet(${files_parameter}, {_options(schema, schema_sql, rows, file, guard)})"
    if uniform:
        in_files, whole, schema_parameter = pa.schema([schema.field(name) for name in stored]), (), None
        alone = len(files) == 1
        source = uniform_read(f"${files_parameter}", in_files, rows, alone=alone, file_column=file, guard=guard)
    everything = _everything(whole)
    if partition_by:
        folders = _folders(files, partition_by)
        values = ", ".join(
            f"{_partition_value(file or '', folders.get(name, name), types[name])} AS {identifier(name)}"
            for name in partition_by
        )
        # Only the innermost query knows the numbers of the rows.
        source = f"(SELECT {everything}, {values} FROM {source}{'' if within is None else f' WHERE {within}'})"
    elif whole:
        source = f"(SELECT {everything} FROM {source}{'' if within is None else f' WHERE {within}'})"
    elif within is not None:
        condition = f" WHERE {within}" + ("" if where is None else f" AND (\n{where}\n)")
    parameters = {files_parameter: without_patterns(files)}
    if schema_parameter is not None:
        parameters[schema_parameter] = _schema_map(stored)
    return Select(f"SELECT {projection} FROM {source}{condition}", parameters)


def _form_source(
    schema: pa.Schema,
    types: Mapping[str, str],
    rows: int | None,
    file_column: str | None,
    parameter: str,
    whole: Collection[str],
    form: StoredForm,
    guard: str,
) -> str:
    """The table's rows from files in which they stand in another form; ``schema`` has what stands in the files."""
    columns, renamed = stored_columns(schema)
    entries = []
    for key, column in columns.items():
        default = "NULL" if column["default_value"] is None else literal(column["default_value"])
        name = str(key) if isinstance(key, int) else literal(key)
        entry = f"name: {literal(column['name'])}, type: {literal(column['type'])}, default_value: {default}"
        entries.append(f"{name}: {{{entry}}}")
    stored = f"MAP {{{', '.join(entries)}}}"
    source = f"read_parquet(${parameter}, {_options(schema, stored, rows, file_column, guard)})"
    taken_whole = {name: f"COALESCE({identifier(name)}, NULL)" for name in whole if name in schema.names} | renamed
    replaced = ", ".join(f"{value} AS {identifier(name)}" for name, value in taken_whole.items())
    selected = ", ".join([f"* REPLACE ({replaced})" if replaced else "*", *form.columns(types, parameter)])
    live = form.is_live(parameter)
    return f"(SELECT {selected} FROM {source}{'' if live is None else f' WHERE {live}'})"


def uniform_read(
    files: str,
    schema: pa.Schema,
    rows: int | None,
    *,
    alone: bool,
    file_column: str | None = None,
    of_files: bool = False,
    guard: str = UNGUARDED,
) -> str:
    """A read of files that all have the same columns: ``files`` is a list in SQL, or a parameter.

    DuckDB then counts the rows itself, which it does not where it is given a schema. ``alone``: the list has one file.
    DuckDB would answer max(x) from that file's footer, and takes it for NaN wherever NaN is possible. A schema keeps it
    from that; a condition, where there are structs, on whose fields DuckDB 2.0 fails under a schema. ``rows``: how many
    rows the files hold, which DuckDB is then told · ``file_column``: as in `native_scan` · ``of_files``: DuckDB's own
    columns of files are read too, which a query around the read would hide · ``guard``: as in `native_scan`.
    """
    floats = any(_holds_floats(field.type) for field in schema)
    if alone and floats and (of_files or not any(t.is_struct(field.type) for field in schema)):
        types = {field.name: duckdb_type(field.type) for field in schema}
        return f"read_parquet({files}, {_options(schema, _schema_literal(types), rows, file_column, guard)})"
    options = [_folders_unread(guard)]
    if floats:
        options.append(_KEEPS_NAN)
    if file_column is not None:
        options.append(f"filename = {literal(file_column)}")
    read = f"read_parquet({files}, {', '.join(options)})"
    return f"(SELECT * FROM {read} WHERE file_row_number >= 0)" if alone and floats else read


def reshaped(scan: Scan) -> list[str]:
    """The structs of a table that some file may hold with other fields, or with its fields in another order.

    DuckDB finds a field that is read by itself at the place that it has in the table's type: in a file that has another
    one there, it takes that one's values, or fails and takes the whole database with it.
    """
    grown = {scan.schema.columns[path].parts[0] for path in scan.added if path in scan.schema.columns}
    return [
        field.name
        for field in scan.schema.arrow
        if t.is_struct(field.type) and (not scan.managed or field.name in grown)
    ]


def _everything(whole: Collection[str]) -> str:
    """All columns; no field is taken out of a struct below COALESCE, so that DuckDB reads all of the struct first."""
    if not whole:
        return "*"
    return f"* REPLACE ({', '.join(f'COALESCE({identifier(name)}, NULL) AS {identifier(name)}' for name in whole)})"


def literal(text: str) -> str:
    """A string as an SQL literal.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def without_patterns(paths: Sequence[str]) -> list[str]:
    """Paths in which DuckDB sees no wildcard.

    >>> without_patterns(["a[1]*.parquet", "b.parquet"])
    ['a[[]1][*].parquet', 'b.parquet']
    """
    # Mostly none has any, and one search in all of them is much quicker than one in each.
    together = "".join(paths)
    if not any(mark in together for mark in "[*?"):
        return list(paths)
    return [re.sub(r"[\[*?]", r"[\g<0>]", path) for path in paths]


def _schema_map(stored: Mapping[str, str]) -> dict[str, list[Any]]:
    """The columns as the MAP that ``schema`` takes, in the form in which DuckDB's client takes a MAP."""
    columns = [{"name": name, "type": type, "default_value": None} for name, type in stored.items()]
    return {"key": list(stored), "value": columns}


def _schema_literal(stored: Mapping[str, str]) -> str:
    columns = ", ".join(
        f"{literal(name)}: {{name: {literal(name)}, type: {literal(type)}, default_value: NULL}}"
        for name, type in stored.items()
    )
    return f"MAP {{{columns}}}"


def _folders_unread(guard: str) -> str:
    return f"hive_partitioning = {guard}"


def _options(schema: pa.Schema, stored: str, rows: int | None, file_column: str | None, guard: str) -> str:
    options = [_folders_unread(guard), f"schema = {stored}"]
    if any(_holds_floats(field.type) for field in schema):
        options.append(_KEEPS_NAN)
    if file_column is not None:
        options.append(f"filename = {literal(file_column)}")
    if rows is not None:
        options.append(f"explicit_cardinality = {max(rows, 1)}")
    return ", ".join(options)


def partition_values(path: str, types: Mapping[str, pa.DataType]) -> dict[str, pa.Scalar]:
    """The values that a path's folders give to columns; a column that no folder names is NULL.

    >>> partition_values("/lake/day=7/host=a%2Fb/x.parquet", {"day": pa.int64(), "host": pa.string()})
    {'day': <pyarrow.Int64Scalar: 7>, 'host': <pyarrow.StringScalar: 'a/b'>}
    """
    texts = hive.values_of(path)
    return {name: pa.array([texts.get(name)], pa.string()).cast(type)[0] for name, type in types.items()}


# Without it, DuckDB takes a footer's bounds to cover NaN too, and loses such rows of files by pyarrow.
_KEEPS_NAN = "can_have_nan = true"


def file_column_name(taken: Sequence[str]) -> str:
    """A name for the column of the files' paths that no column of the table has.

    >>> file_column_name(["a"]), file_column_name(["_zskip_file", "a"])
    ('_zskip_file', '_zskip_file_')
    """
    name, folded = "_zskip_file", {each.lower() for each in taken}
    while name in folded:
        name += "_"
    return name


def _folders(paths: Sequence[str], partition_by: Sequence[str]) -> dict[str, str]:
    """How the paths write the names of the partition columns. Mostly the first one has them all."""
    found: dict[str, str] = {}
    for path in paths:
        found |= hive.encoded_names(path)
        if found.keys() >= set(partition_by):
            break
    return found


def _partition_value(file: str, folder: str, type: str) -> str:
    """What a path's folder says; NULL where it has no such folder, while an empty value is an empty text."""
    pattern = f".*/{re.escape(folder)}=([^/]*/).*"
    value = f"url_decode(left(nullif(regexp_extract({identifier(file)}, {literal(pattern)}, 1), ''), -1))"
    return f"CAST(nullif({value}, {literal(hive.NULL)}) AS {type})"


def _holds_floats(arrow: pa.DataType) -> bool:
    if t.is_dictionary(arrow) or t.is_run_end_encoded(arrow):
        return _holds_floats(arrow.value_type)
    return bool(t.is_floating(arrow)) or any(_holds_floats(arrow.field(i).type) for i in range(arrow.num_fields))


def _refuse_ambiguous(names: Sequence[str]) -> None:
    folded: dict[str, str] = {}
    for name in names:
        other = folded.setdefault(name.lower(), name)
        if other != name:
            raise SchemaError(
                f'DuckDB cannot tell the columns "{other}" and "{name}" apart. '
                "Read the plan with to_arrow(), which can, or rename one of them."
            )
