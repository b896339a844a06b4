"""A native DuckDB scan of planned files, as SQL text and its parameters.

The scan contains the table's schema, so DuckDB opens no file to infer it. Columns are matched by name: a column that a
file lacks is NULL there, and a narrower type is widened.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zskip.core import types as t
from zskip.core.schema import names_given
from zskip.engines.duckdb.duckdb_types import duckdb_type
from zskip.engines.duckdb.stored_form import StoredForm, stored_columns
from zskip.errors import SchemaError, UnknownColumn, nearest
from zskip.language.sql_literals import identifier
from zskip.storage import hive

if TYPE_CHECKING:
    from zskip.plan.scan import Scan

__all__ = [
    "UNGUARDED",
    "Select",
    "file_column_name",
    "literal",
    "native_scan",
    "partition_values",
    "reshaped_structs",
    "uniform_read",
    "without_patterns",
]


# The guard of a scan that may be bound under any settings.
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
    """``SELECT columns FROM files WHERE …`` over Parquet files whose paths contain the values of ``partition_by``.

    ``files``: paths or URLs for DuckDB, in which wildcards have no meaning · ``where``: a predicate in DuckDB's SQL ·
    ``rows``: the number of rows in the files, for DuckDB's planner · ``within``: a condition on ``file_row_number`` ·
    ``file_column``: the name of an additional column that holds each row's file · ``whole``: structs to read completely
    before a field is extracted · ``schema_parameter``: None to write the schema into the text, which DuckDB parses more
    slowly · ``form``: how the files store the rows, if not as the table does · ``uniform``: all files have the table's
    columns and types, except for ``partition_by`` · ``guard``: an SQL expression that is FALSE, or raises an error when
    DuckDB binds the scan.
    Without files, the result has no rows, and the table's types.
    Raises `UnknownColumn`, and `SchemaError` where two columns differ only in case, which DuckDB cannot tell apart.
    """
    names = schema.names if columns is None else list(names_given(columns, "columns"))
    types = {field.name: duckdb_type(field.type) for field in schema}
    _refuse_ambiguous(schema.names)
    _require_known(names, schema)
    projected = names if file_column is None else [*names, file_column]
    projection = ", ".join(map(identifier, projected)) or "NULL"
    condition = "" if where is None else f" WHERE {where}"
    if not files:
        nothing = ", ".join(f"CAST(NULL AS {type}) AS {identifier(name)}" for name, type in types.items())
        bound = "" if guard == UNGUARDED else f" FROM range(CAST({guard} AS BIGINT))"
        return Select(f"SELECT {projection} FROM (SELECT {nothing or 'NULL'}{bound} WHERE false)", {})
    stored = pa.schema([field for field in schema if field.name not in partition_by])
    if form is not None:
        source = _form_source(stored, types, rows, file_column, files_parameter, whole, form, guard)
        parameters = {files_parameter: without_patterns(files), **form.parameters(files_parameter)}
        return Select(f"SELECT {projection} FROM {source}{condition}", parameters)
    stored_types = {name: types[name] for name in stored.names}
    # The default, "filename", may be one of the table's columns.
    file = file_column or (file_column_name(schema.names) if partition_by else None)
    schema_sql = _schema_literal(stored_types) if schema_parameter is None else f"${schema_parameter}"
    source = f"read_parquet(${files_parameter}, {_options(schema, schema_sql, rows, file, guard)})"
    if uniform:
        whole, schema_parameter, alone = (), None, len(files) == 1
        source = uniform_read(f"${files_parameter}", stored, rows, alone=alone, file_column=file, guard=guard)
    if partition_by or whole:
        folders = _folders(files, partition_by)
        values = {name: _partition_value(file or "", folders.get(name, name), types[name]) for name in partition_by}
        selected = ", ".join([_star(whole), *(f"{value} AS {identifier(name)}" for name, value in values.items())])
        # The column file_row_number exists only in the innermost query.
        source = f"(SELECT {selected} FROM {source}{'' if within is None else f' WHERE {within}'})"
    elif within is not None:
        condition = f" WHERE {within}" + ("" if where is None else f" AND (\n{where}\n)")
    parameters = {files_parameter: without_patterns(files)}
    if schema_parameter is not None:
        parameters[schema_parameter] = _schema_map(stored_types)
    select = f"SELECT {projection} FROM {source}{condition}"
    return Select(select if within is None else _with_no_more_rows(select, max(1, len(projected))), parameters)


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
    """The table's rows, read from files that store them in another form. ``schema``: the columns in the files."""
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
    select = f"SELECT {selected} FROM {source}{'' if live is None else f' WHERE {live}'}"
    if live is None and not form.values:
        return f"({select})"
    return f"({_with_no_more_rows(select, len(schema) + len(form.values) + (file_column is not None))})"


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
    """A read of files that all have the same columns. Without a schema, DuckDB counts rows by the footers.

    ``files``: a list in SQL, or a parameter · ``alone``: the list has one file. From its footer, DuckDB would answer
    max(x), and returns NaN whenever x may hold NaN. A schema prevents that. With structs, whose fields DuckDB 2.0 fails
    to read under a schema, a UNION ALL prevents it · ``rows``: the number of rows in the files, needed with a schema ·
    ``of_files``: the statement reads DuckDB's own columns about files, which a subquery around the read would hide ·
    ``file_column``, ``guard``: as in `native_scan`.
    """
    footer_maximum = alone and any(_holds_floats(field.type) for field in schema)
    if footer_maximum and (of_files or not any(t.is_struct(field.type) for field in schema)):
        types = {field.name: duckdb_type(field.type) for field in schema}
        return f"read_parquet({files}, {_options(schema, _schema_literal(types), rows, file_column, guard)})"
    read = f"read_parquet({files}, {_options(schema, None, None, file_column, guard)})"
    columns = len(schema) + (file_column is not None)
    return f"({_with_no_more_rows(f'SELECT * FROM {read}', columns)})" if footer_maximum else read


def _with_no_more_rows(select: str, columns: int) -> str:
    """The same rows from a UNION ALL, which keeps DuckDB from answering by a footer and from late materialization.

    DuckDB 2.0 late-materializes ORDER BY … LIMIT, and fails with an internal error if a condition on
    ``file_row_number`` or ``file_index`` is pushed down to that scan.
    """
    return f"{select} UNION ALL SELECT {', '.join(['NULL'] * columns)} WHERE false"


def reshaped_structs(scan: Scan) -> list[str]:
    """The structs of a table that may have other fields, or another order of fields, in some file.

    DuckDB locates a single field by its position in the table's type. If a file has another field at that position,
    DuckDB returns the values of that field, or fails and invalidates the whole database.
    """
    grown = {scan.schema.columns[path].parts[0] for path in scan.added if path in scan.schema.columns}
    return [
        field.name
        for field in scan.schema.arrow
        if t.is_struct(field.type) and (not scan.managed or field.name in grown)
    ]


def _star(whole: Collection[str]) -> str:
    """All columns; those in ``whole`` in COALESCE, which keeps DuckDB from reading single fields of a struct."""
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
    """The paths with wildcards escaped, for DuckDB to read them literally.

    >>> without_patterns(["a[1]*.parquet", "b.parquet"])
    ['a[[]1][*].parquet', 'b.parquet']
    """
    # One search in all paths is much quicker than one in each, and wildcards are rare.
    together = "".join(paths)
    if not any(mark in together for mark in "[*?"):
        return list(paths)
    return [re.sub(r"[\[*?]", r"[\g<0>]", path) for path in paths]


def _schema_map(stored: Mapping[str, str]) -> dict[str, list[Any]]:
    """The value of the option ``schema``, a MAP, as DuckDB's Python client takes a MAP."""
    columns = [{"name": name, "type": type, "default_value": None} for name, type in stored.items()]
    return {"key": list(stored), "value": columns}


def _schema_literal(stored: Mapping[str, str]) -> str:
    columns = ", ".join(
        f"{literal(name)}: {{name: {literal(name)}, type: {literal(type)}, default_value: NULL}}"
        for name, type in stored.items()
    )
    return f"MAP {{{columns}}}"


def _options(schema: pa.Schema, schema_sql: str | None, rows: int | None, file_column: str | None, guard: str) -> str:
    options = [f"hive_partitioning = {guard}"]
    if schema_sql is not None:
        options.append(f"schema = {schema_sql}")
    if any(_holds_floats(field.type) for field in schema):
        # Otherwise DuckDB assumes that a footer's bounds cover NaN, and loses NaN rows of files written by pyarrow.
        options.append("can_have_nan = true")
    if file_column is not None:
        options.append(f"filename = {literal(file_column)}")
    if rows is not None:
        options.append(f"explicit_cardinality = {max(rows, 1)}")
    return ", ".join(options)


def partition_values(path: str, types: Mapping[str, pa.DataType]) -> dict[str, pa.Scalar]:
    """The values of partition columns according to a path's folders; NULL for a column without a folder.

    >>> partition_values("/lake/day=7/host=a%2Fb/x.parquet", {"day": pa.int64(), "host": pa.string()})
    {'day': <pyarrow.Int64Scalar: 7>, 'host': <pyarrow.StringScalar: 'a/b'>}
    """
    texts = hive.values_of(path)
    return {name: pa.array([texts.get(name)], pa.string()).cast(type)[0] for name, type in types.items()}


def file_column_name(taken: Sequence[str]) -> str:
    """A name for the column of file paths that differs from all names in ``taken``.

    >>> file_column_name(["a"]), file_column_name(["_zskip_file", "a"])
    ('_zskip_file', '_zskip_file_')
    """
    name, folded = "_zskip_file", {each.lower() for each in taken}
    while name in folded:
        name += "_"
    return name


def _folders(paths: Sequence[str], partition_by: Sequence[str]) -> dict[str, str]:
    """The spelling of each partition column in the names of folders. Usually the first path has all of them."""
    spellings: dict[str, str] = {}
    for path in paths:
        if spellings.keys() >= set(partition_by):
            break
        spellings |= hive.encoded_names(path)
    return spellings


def _partition_value(file: str, folder: str, type: str) -> str:
    """SQL for the value in a path's folder: NULL without such a folder, and an empty string for an empty value."""
    pattern = f".*/{re.escape(folder)}=([^/]*/).*"
    value = f"url_decode(left(nullif(regexp_extract({identifier(file)}, {literal(pattern)}, 1), ''), -1))"
    return f"CAST(nullif({value}, {literal(hive.NULL)}) AS {type})"


def _holds_floats(arrow: pa.DataType) -> bool:
    if t.is_dictionary(arrow) or t.is_run_end_encoded(arrow):
        return _holds_floats(arrow.value_type)
    return bool(t.is_floating(arrow)) or any(_holds_floats(arrow.field(i).type) for i in range(arrow.num_fields))


def _require_known(names: Sequence[str], schema: pa.Schema) -> None:
    known = {name.lower() for name in schema.names}
    for name in names:
        if name.lower() not in known:
            raise UnknownColumn(f'There is no column "{name}".{nearest(name, schema.names)}')


def _refuse_ambiguous(names: Sequence[str]) -> None:
    folded: dict[str, str] = {}
    for name in names:
        other = folded.setdefault(name.lower(), name)
        if other != name:
            raise SchemaError(
                f'DuckDB cannot tell the columns "{other}" and "{name}" apart. '
                "Read the plan with to_arrow(), which can, or rename one of them."
            )
