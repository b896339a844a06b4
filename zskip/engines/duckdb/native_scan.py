"""A native DuckDB scan of planned files, as SQL text and its parameters.

Columns are matched by name: a column that a file lacks is NULL there, and a narrower type is widened.

| the files                                      | read_parquet                   | DuckDB expects             |
| ---------------------------------------------- | ------------------------------ | -------------------------- |
| have the table's columns and types             | without a schema               | rows of the first × files  |
| have all columns that are read, or none has it | with ``bound_schema``          | rows of the first × files  |
| may lack some columns                          | with ``schema``                | one row: joins suffer      |

``bound_schema`` is undocumented: without it, `binds_schemas` leaves ``schema``.

No bounds go to DuckDB, though the index knows them and ``column_statistics`` would take them. Without statistics DuckDB
orders joins as over a glob of the same files: by the counts of rows alone. With them it takes a range of integers for
a count of distinct values, which foreign keys and keys with gaps are not, and ran some joins in a worse order.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from zskip.core import types as t
from zskip.core.schema import identifier
from zskip.engines.duckdb.duckdb_types import DuckdbType, duckdb_type
from zskip.errors import SchemaError, UnsafePath
from zskip.storage import hive

if TYPE_CHECKING:
    from zskip.plan.scan import Scan


# The guard of a scan that may be bound under any settings.
UNGUARDED = "false"
_POSITIONS = ("file_row_number", "file_index")
FILES = "zskip_files"
"""The parameter that holds the paths. The names of a form's parameters begin with it."""
_PARAMETER = re.compile(rf"\$({FILES}\w*)")


@dataclass(frozen=True, slots=True)
class Select:
    """A SELECT statement and the values of its named parameters."""

    sql: str
    parameters: Mapping[str, Any]

    def renamed(self, names: Mapping[str, str]) -> str:
        """The statement with other parameters, such as ``$3``, by the names of its own."""
        return _PARAMETER.sub(lambda match: names[match[1]], self.sql)

    def by_position(self) -> tuple[str, list[Any]]:
        """The statement with numbered parameters, and their values. DuckDB combines relations whose parameters have
        numbers, but none of which two have one name."""
        names = {name: f"${number}" for number, name in enumerate(self.parameters, start=1)}
        return self.renamed(names), list(self.parameters.values())


def read_of_files(
    files: Sequence[str],
    schema: pa.Schema,
    *,
    columns: Collection[str] | None = None,
    partition_by: Sequence[str] = (),
    within: str | None = None,
    file_column: str | None = None,
    whole: Collection[str] = (),
    form: StoredForm | None = None,
    held: Mapping[str, str | None] | None = None,
    uniform: bool = False,
    by_place: bool = False,
    guard: str = UNGUARDED,
) -> Select:
    """All rows of these files as the table's columns, for FROM. Its ``sql`` is no whole statement.

    ``files``: paths or URLs for DuckDB, in which wildcards have no meaning · ``columns``: those that are needed, None
    for all; others may be there · ``within``: a condition on ``file_row_number`` · ``whole``: structs to read
    completely before a field is extracted · ``form``: how the files store the rows, if not as the table does ·
    ``held``: the name of each column in the files, None for one that no file has; None if that is unknown ·
    ``uniform``: all files have the table's columns and types, except for ``partition_by`` · ``by_place``: the statement
    reads DuckDB's own columns about files, which a subquery would hide · ``guard``: an SQL expression that is FALSE, or
    raises an error when DuckDB binds the read.

    DuckDB's planner expects each file to have as many rows as the first one; with a ``schema=``, which only an unknown
    ``held`` needs, it expects one row in all.
    """
    _refuse_ambiguous(schema.names)
    taken, wanted = schema.names, _wanted(schema, columns, partition_by, held)
    needs_folders = form is None and not wanted.isdisjoint(partition_by)
    in_folders = _in_folders(files, schema, partition_by) if needs_folders else None
    schema = pa.schema([field for field in schema if field.name in wanted])
    partition_by = [name for name in partition_by if name in wanted]
    form = None if form is None else form.of_columns(wanted)
    if not files:
        return _no_rows(schema, file_column, guard)
    stored = pa.schema([field for field in schema if field.name not in partition_by])
    # The default, "filename", may be one of the table's columns.
    by_path = form is None and in_folders is None and bool(partition_by)
    file = file_column or (file_column_name(taken) if by_path else None)
    options = _Options(any(map(holds_floats, stored)), file, in_folders or {}, guard)
    # From the footer of a single file DuckDB would answer max(x), and returns NaN whenever x may hold NaN. A UNION ALL
    # prevents that; where it would hide columns, a schema does, under which DuckDB 2.0 fails to read a struct by field.
    footer_maximum = len(files) == 1 and options.may_hold_nan
    closed = footer_maximum and not by_place
    by_schema = footer_maximum and by_place and not any(map(t.is_struct, stored.types))
    plain = uniform and not by_schema
    parameters: dict[str, Any] = {FILES: without_patterns(files)}
    if plain and not closed and within is None and file_column is None and not partition_by and form is None:
        return Select(options.plain(), parameters)
    if uniform:
        whole = ()
    elif _hold_structs(stored, whole):
        # With ``bound_schema``, DuckDB 2.0 invalidates the database where the structs of a file lack a struct and one
        # of them is NULL; with ``schema``, where it compares a field of a struct with a list that holds NULL.
        whole, by_schema = [field.name for field in stored if t.is_struct(field.type)], True
    deleted = None if form is None else form.live_rows(_free_name("_zskip_deleted", taken))
    # The columns file_row_number and file_index, which DuckDB adds, would be hidden by columns of the files.
    hidden = _POSITIONS if form is not None and (deleted is not None or form.values) else ()
    shown = {name: f"{name}_in_file" if name.lower() in hidden else name for name in stored.names}
    found: Mapping[str, str | None] = shown
    renamed = shown.keys() != set(shown.values())
    types = {field.name: duckdb_type(field.type) for field in schema}
    inside = stored_columns(stored)
    if plain:
        source = options.plain()
    elif held is not None and any(map(held.get, shown)) and not by_schema and not renamed and binds_schemas():
        found = held
        source = options.bound({name: one.type for one in inside if (name := held[one.name]) is not None})
    else:
        source = options.with_schema(inside, shown)
    values = {one.name: _value(one, types[one.name], found[one.name], one.name in whole) for one in inside}
    if form is not None:
        values |= form.columns(types)
        parameters |= form.parameters()
    elif by_path:
        folders = _folders(files, partition_by)
        values |= {name: _partition_value(file or "", folders.get(name, name), types[name]) for name in partition_by}
    else:
        values |= {name: identifier(name) for name in partition_by}
    # DuckDB appends the columns of folders in the order of their names.
    in_order = schema.names == [*stored.names, *partition_by] and (not in_folders or len(partition_by) == 1)
    as_stored = in_order and values == {name: identifier(name) for name in schema.names}
    if as_stored and within is None and deleted is None and not closed:
        return Select(source, parameters)
    selected = [f"{values[name]} AS {identifier(name)}" for name in schema.names]
    if file_column is not None:
        selected.append(identifier(file_column))
    conditions = [] if within is None else [within]
    if deleted is not None:
        source = f"{source}, {deleted[0]}"
        conditions.append(deleted[1])
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    select = f"SELECT {', '.join(selected) or 'NULL'} FROM {source}{where}"
    # The columns file_row_number and file_index exist only in this query.
    if conditions or closed or (form is not None and form.values):
        select = _with_no_more_rows(select, max(1, len(selected)))
    return Select(f"({select})", parameters)


def _wanted(
    schema: pa.Schema,
    columns: Collection[str] | None,
    partition_by: Sequence[str],
    held: Mapping[str, str | None] | None,
) -> set[str]:
    """The columns to read: those that are needed, and one of the files, without which a read would have no rows."""
    if columns is None:
        return set(schema.names)
    in_files = [name for name in schema.names if name not in partition_by and (held is None or held[name])]
    return {*columns} if {*columns} & {*in_files} else {*columns, *in_files[:1]}


def _no_rows(schema: pa.Schema, file_column: str | None, guard: str) -> Select:
    """A read without files."""
    types = {field.name: duckdb_type(field.type) for field in schema}
    types |= {} if file_column is None else {file_column: "VARCHAR"}
    nothing = ", ".join(f"CAST(NULL AS {type}) AS {identifier(name)}" for name, type in types.items())
    bound = "" if guard == UNGUARDED else f" FROM range(CAST({guard} AS BIGINT))"
    return Select(f"(SELECT {nothing or 'NULL'}{bound} WHERE false)", {})


def _hold_structs(columns: pa.Schema, whole: Collection[str]) -> bool:
    """Whether a struct that is to be read completely has a struct as a field."""
    structs = [field.type for field in columns if field.name in whole and t.is_struct(field.type)]
    return any(t.is_struct(inner.type) for struct in structs for inner in struct)


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of ``read_parquet``.

    ``file_column``: a column that it adds · ``in_folders``: the types of the columns that it reads from the names of
    folders · others: as in `read_of_files`.
    """

    may_hold_nan: bool
    file_column: str | None
    in_folders: Mapping[str, str]
    guard: str

    def plain(self) -> str:
        """The columns of the first file."""
        return self._read()

    def bound(self, types: Mapping[str, str]) -> str:
        """Columns that every file has in some order and type, and others only if the statement does not read them."""
        all_types = {**types, **self.in_folders}
        if self.file_column is not None:
            all_types[self.file_column] = "VARCHAR"
        return self._read(bound_schema=_struct({name: literal(type) for name, type in all_types.items()}))

    def with_schema(self, columns: Sequence[StoredColumn], shown: Mapping[str, str]) -> str:
        """Columns that a file may lack. DuckDB finds them by the names or ids that the files know.

        ``shown``: their names in the read.
        """
        entries = []
        for one in columns:
            default = "NULL" if one.default is None else literal(one.default)
            key = str(one.key) if isinstance(one.key, int) else literal(one.key)
            entry = f"name: {literal(shown[one.name])}, type: {literal(one.type)}, default_value: {default}"
            entries.append(f"{key}: {{{entry}}}")
        return self._read(schema=f"MAP {{{', '.join(entries)}}}")

    def _read(self, **options: str) -> str:
        given = {"hive_partitioning": self.guard, **options}
        if self.in_folders:
            given["hive_partitioning"] = f"NOT ({self.guard})"
            given["hive_types"] = _struct({name: literal(type) for name, type in self.in_folders.items()})
            given["hive_types_autocast"] = "false"
        if self.may_hold_nan:
            # Otherwise DuckDB assumes that a footer's bounds cover NaN, and loses NaN rows of files written by pyarrow.
            given["can_have_nan"] = "true"
        if self.file_column is not None:
            given["filename"] = literal(self.file_column)
        return f"read_parquet(${FILES}, {', '.join(f'{name} = {value}' for name, value in given.items())})"


def _struct(fields: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{literal(name)}: {value}" for name, value in fields.items()) + "}"


def _value(column: StoredColumn, type: str, inside: str | None, whole: bool) -> str:
    """A column of the table as an expression. ``inside``: its name in the read; None if no file has it."""
    if inside is None:
        return f"CAST({'NULL' if column.default is None else literal(column.default)} AS {type})"
    # COALESCE keeps DuckDB from reading single fields of a struct.
    together = f"COALESCE({identifier(inside)}, NULL)"
    return column.renamed(together) or (together if whole else identifier(inside))


@lru_cache(maxsize=1)
def binds_schemas() -> bool:
    """Whether the installed DuckDB has the undocumented option ``bound_schema``."""
    from tempfile import TemporaryDirectory

    import duckdb

    with TemporaryDirectory() as folder, duckdb.connect() as con:
        (Path(folder) / "c=1").mkdir()
        path = literal(str(Path(folder) / "c=1" / "probed.parquet"))
        con.execute(f"COPY (SELECT 7::INTEGER AS a, 'x' AS b) TO {path} (FORMAT parquet)")
        bound = "bound_schema = {'b': 'VARCHAR', 'a': 'BIGINT', 'c': 'BIGINT'}"
        folders = "hive_partitioning = true, hive_types = {'c': 'BIGINT'}, hive_types_autocast = false"
        try:
            return con.sql(f"FROM read_parquet([{path}], {folders}, {bound}) WHERE a > 6").fetchall() == [("x", 7, 1)]
        except duckdb.Error:
            return False


def _with_no_more_rows(select: str, columns: int) -> str:
    """The same rows from a UNION ALL, which keeps DuckDB from answering by a footer and from late materialization.

    DuckDB 2.0 late-materializes ORDER BY … LIMIT, and fails with an internal error if a condition on
    ``file_row_number`` or ``file_index`` is pushed down to that scan.
    """
    return f"{select} UNION ALL SELECT {', '.join(['NULL'] * columns)} WHERE false"


def held_by_all(scan: Scan) -> dict[str, str | None] | None:
    """The columns of a table by name, if each of its files has them all for certain."""
    if not scan.managed or scan.added or scan.source is not None:
        return None
    return {name: name for name in scan.schema.arrow.names if name not in scan.partition_by}


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


def literal(text: str) -> str:
    """A string as an SQL literal.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def without_patterns(paths: Sequence[str]) -> list[str]:
    """The paths with wildcards escaped, for DuckDB to read them literally.

    Raises `UnsafePath` for a local path that also has a backslash: in a pattern, DuckDB ends a folder's name there, and
    no escape changes that.

    >>> without_patterns(["a[1]*.parquet", "b.parquet"])
    ['a[[]1][*].parquet', 'b.parquet']
    """
    # One search in all paths is much quicker than one in each, and wildcards are rare.
    together = "".join(paths)
    if not any(mark in together for mark in "[*?"):
        return list(paths)
    for path in paths:
        if "\\" in path and path.startswith("/") and any(mark in path for mark in "[*?"):
            raise UnsafePath(
                f'DuckDB cannot read "{path}": it has a backslash and one of "[*?". Rename the file, or its folder.'
            )
    return [re.sub(r"[\[*?]", r"[\g<0>]", path) for path in paths]


def file_column_name(taken: Sequence[str]) -> str:
    """A name for the column of file paths that differs from all names in ``taken``.

    >>> file_column_name(["a"]), file_column_name(["_zskip_file", "a"])
    ('_zskip_file', '_zskip_file_')
    """
    return _free_name("_zskip_file", taken)


def _free_name(name: str, taken: Sequence[str]) -> str:
    folded = {each.lower() for each in taken}
    while name in folded:
        name += "_"
    return name


_PLAIN_TEXT = re.compile(r"[^=?\\\n]*")


def _in_folders(paths: Sequence[str], schema: pa.Schema, partition_by: Sequence[str]) -> dict[str, str] | None:
    """The types of the partition columns if DuckDB itself can read them from the paths; else None.

    Each path has to have a folder for each of them and for no other, with a name in the common form of its type.
    """
    types = {name: schema.field(name).type for name in partition_by}
    plain = {
        name: hive.INTEGER if t.is_integer(type) else hive.DATE if t.is_date32(type) else _PLAIN_TEXT
        for name, type in types.items()
        if t.is_integer(type) or t.is_date32(type) or t.is_string(type)
    }
    if not plain or plain.keys() != types.keys():
        return None
    for folder in {path.rpartition("/")[0] for path in paths}:
        found = [part.partition("=") for part in folder.split("/") if "=" in part]
        if [name for name, _, _ in found] != list(types):
            return None
        if any(text != hive.NULL and not plain[name].fullmatch(text) for name, _, text in found):
            return None
    return {name: duckdb_type(type) for name, type in types.items()}


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
    if type != "VARCHAR":  # beside numbers and dates, the word NULL is no value
        value = f"regexp_replace({value}, '^null$', {literal(hive.NULL)}, 'i')"
    return f"CAST(nullif({value}, {literal(hive.NULL)}) AS {type})"


def holds_floats(field: pa.Field) -> bool:
    """Whether a column may hold floats, at any depth, as those of a VARIANT may."""
    types = (t.value_type(inner.type) for inner in t.fields_within(field))
    return any(t.is_floating(type) or isinstance(type, DuckdbType) for type in types)


def _refuse_ambiguous(names: Sequence[str]) -> None:
    folded: dict[str, str] = {}
    for name in names:
        other = folded.setdefault(name.lower(), name)
        if other != name:
            raise SchemaError(
                f'DuckDB cannot tell the columns "{other}" and "{name}" apart. '
                "Read the plan with to_arrow(), which can, or rename one of them."
            )


# --- how the data files of a Delta or Iceberg table store its rows ---
#
# | what differs                                             | how it is read                                         |
# | -------------------------------------------------------- | ------------------------------------------------------ |
# | a column has another name, or is found by its field id   | the key of ``read_parquet(schema=…)``                  |
# | a nested field has another name, or one of two           | the column is rebuilt with the table's field names     |
# | a partition column is in the log but not in the files    | a list with a value for each file, by ``file_index``   |
# | rows are deleted                                         | a list with a bit string for each file: 1 for each one |

_STORED_AS, _FIELD_ID, _DEFAULT = b"zskip.stored_as", b"zskip.field_id", b"zskip.default"
_NUMBER = "(file_index + 1)::BIGINT"
_VALUES, _DELETED = "zskip_files_value", "zskip_files_deleted"


@dataclass(frozen=True, slots=True)
class StoredForm:
    """For each planned file, the values of its partition columns, and its deleted rows as a string of 0 and 1."""

    values: Mapping[str, list[Any]]
    deleted: list[str | None]

    def of_columns(self, names: Collection[str]) -> StoredForm:
        """The form of some of the columns."""
        return StoredForm({name: each for name, each in self.values.items() if name in names}, self.deleted)

    def take(self, files: Sequence[int]) -> StoredForm:
        """The form of some of the files, by number, in that order."""
        values = {name: [each[file] for file in files] for name, each in self.values.items()}
        return StoredForm(values, [self.deleted[file] for file in files])

    def columns(self, types: Mapping[str, str]) -> dict[str, str]:
        """The partition columns as expressions in a SELECT from the files, by name."""
        return {
            name: f"CAST(list_extract(${_VALUES}_{place}, {_NUMBER}) AS {types[name]})"
            for place, name in enumerate(self.values)
        }

    def live_rows(self, column: str) -> tuple[str, str] | None:
        """A table of one row to cross with the files, and the condition that a row is live; None if no row is deleted.

        ``column``: the name of the table's column. In the condition itself, DuckDB would convert the parameter again
        for every few thousand rows, which takes four times as long as all the rest.
        """
        if not any(self.deleted):
            return None
        bits = f"list_extract({column}, {_NUMBER})"
        return (
            f"(SELECT CAST(${_DELETED} AS BIT[]) AS {column})",
            f"CASE WHEN file_row_number < bit_length({bits}) THEN get_bit({bits}, file_row_number::INTEGER) = 0 "
            "ELSE true END",
        )

    def parameters(self) -> dict[str, Any]:
        """The values of the parameters in `columns` and `live_rows`."""
        given: dict[str, Any] = {f"{_VALUES}_{place}": values for place, values in enumerate(self.values.values())}
        return given | ({_DELETED: self.deleted} if any(self.deleted) else {})


def stored_form(scan: Scan) -> StoredForm | None:
    """The stored form of a scan's files; None if the files store the table's rows unchanged."""
    if scan.source is None:
        return None
    values = {name: cast_texts(values) for name, values in scan.values.items()}
    return StoredForm(values, [_bits(scan.deletes.get(path)) for path in scan.relative_paths])


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column of the table as the files store it.

    ``key``: its name or field id in the files · ``type``: DuckDB's, with the field names of the files · ``default``:
    the value in files without the column, as text.
    """

    name: str
    key: str | int
    type: str
    default: str | None
    arrow: pa.DataType

    def renamed(self, stored: str) -> str | None:
        """An expression that converts a stored value to the table's type; None if they are the same."""
        return _renamed(stored, self.arrow, 0)


def stored_columns(schema: pa.Schema) -> list[StoredColumn]:
    """The columns of a table as its files store them."""
    columns = []
    for field in schema:
        metadata = field.metadata or {}
        key: str | int = (
            int(metadata[_FIELD_ID])
            if _FIELD_ID in metadata
            else metadata.get(_STORED_AS, field.name.encode()).decode()
        )
        default = metadata.get(_DEFAULT)
        type = duckdb_type(_stored_type(field.type))
        columns.append(StoredColumn(field.name, key, type, None if default is None else default.decode(), field.type))
    return columns


def _stored_type(type: pa.DataType) -> pa.DataType:
    """The type with the field names of the files."""
    if t.is_struct(type):
        return pa.struct(
            [
                pa.field(name, _stored_type(field.type))
                for field, names in zip(type, _stored_names(type), strict=True)
                for name in names
            ]
        )
    if t.is_list(type) or t.is_large_list(type):
        return pa.list_(_stored_type(type.value_type))
    if t.is_map(type):
        return pa.map_(_stored_type(type.key_type), _stored_type(type.item_type))
    return type


def _stored_names(type: pa.StructType) -> list[list[str]]:
    """The names that each field of a struct may have in the files, of which a file has one: the others are NULL."""
    given = [(field.metadata or {}).get(_STORED_AS, field.name.encode()).decode().split("\0") for field in type]
    first = {names[0].lower() for names in given}
    return [[names[0], *(name for name in names[1:] if name.lower() not in first)] for names in given]


def _renamed(value: str, type: pa.DataType, depth: int) -> str | None:
    """An expression that converts a stored value to the table's type; None if they are the same."""
    one = f"x{depth}"
    if t.is_struct(type) and type.num_fields:
        every = _stored_names(type)
        stored = [[f"{value}.{identifier(name)}" for name in names] for names in every]
        inner = [
            [_renamed(part, field.type, depth) for part in parts] for field, parts in zip(type, stored, strict=True)
        ]
        if every == [[field.name] for field in type] and not any(made for (made,) in inner):
            return None
        found = [[new or old for new, old in zip(*each, strict=True)] for each in zip(inner, stored, strict=True)]
        packed = ", ".join(
            f"{identifier(field.name)} := " + (f"coalesce({', '.join(parts)})" if len(parts) > 1 else parts[0])
            for field, parts in zip(type, found, strict=True)
        )
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE struct_pack({packed}) END"
    if t.is_list(type) or t.is_large_list(type):
        made = _renamed(one, type.value_type, depth + 1)
        return None if made is None else f"list_transform({value}, lambda {one}: {made})"
    if t.is_map(type):
        key, item = (_renamed(f"{one}.{part}", inner, depth + 1) for part, inner in _entry(type))
        if key is None and item is None:
            return None
        entry = f"struct_pack(key := {key or f'{one}.key'}, value := {item or f'{one}.value'})"
        return f"map_from_entries(list_transform(map_entries({value}), lambda {one}: {entry}))"
    return None


def _entry(type: pa.MapType) -> tuple[tuple[str, pa.DataType], tuple[str, pa.DataType]]:
    return ("key", type.key_type), ("value", type.item_type)


def cast_texts(values: pa.Array) -> list[Any]:
    """Values as DuckDB's CAST takes them; instants in UTC, as Arrow writes no seconds of a zone's offset.

    >>> cast_texts(pa.array([-(10**10)], pa.timestamp("s", "America/New_York")))
    ['1653-02-10 06:13:20Z']
    """
    if t.is_timestamp(values.type) and values.type.tz is not None:
        values = values.cast(pa.timestamp(values.type.unit, "UTC"))
    texts: list[Any] = (values if t.is_binary(values.type) else values.cast(pa.string())).to_pylist()
    return texts


def _bits(deleted: np.ndarray | None) -> str | None:
    """A text of 0 and 1, one for each row up to the last that is deleted.

    >>> _bits(np.array([0, 3]))
    '1001'
    """
    if deleted is None or not len(deleted):
        return None
    bits = np.full(int(deleted[-1]) + 1, ord("0"), np.uint8)
    bits[deleted] = ord("1")
    return bits.tobytes().decode()
