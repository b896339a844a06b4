"""Columns and their types: which can be ordered, which can hold NaN, how a nested one is named.

A **path** names a leaf: its parts joined by dots, a part in double quotes where it holds a dot or a quote itself.
So the column ``a.b`` at the top is ``"a.b"``, and the field b of the struct a is ``a.b``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from zskip.errors import InvalidOption, NotOrderable, UnknownColumn, in_quotes, nearest

__all__ = [
    "TIME_TZ",
    "UUID",
    "Column",
    "Schema",
    "is_orderable",
    "join_path",
    "logical_type",
    "may_hold_nan",
    "names_given",
    "split_path",
]


def join_path(parts: Sequence[str]) -> str:
    """The path of a leaf from its parts.

    >>> join_path(["a", "b"]), join_path(["a.b"])
    ('a.b', '"a.b"')
    """
    return ".".join('"' + part.replace('"', '""') + '"' if "." in part or '"' in part else part for part in parts)


def names_given(given: object, option: str) -> tuple[str, ...]:
    """The columns of an option; one name may stand alone. Raises `InvalidOption` for what is no name.

    >>> names_given("a", "by"), names_given(["a", "b"], "by")
    (('a',), ('a', 'b'))
    """
    listed = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    for name in listed:
        if not isinstance(name, str):
            raise InvalidOption(f"{option}= is a column's name, or a list of names, not {name!r}.")
    return listed


def split_path(path: str) -> tuple[str, ...]:
    """The parts of a path: the inverse of `join_path`.

    >>> split_path('s."a.b".c')
    ('s', 'a.b', 'c')
    """
    parts: list[str] = []
    position = 0
    while True:
        if path[position : position + 1] == '"':
            end = position + 1
            while (end := path.index('"', end)) + 1 < len(path) and path[end + 1] == '"':
                end += 2
            parts.append(path[position + 1 : end].replace('""', '"'))
            position = end + 1
        else:
            end = path.find(".", position)
            end = len(path) if end < 0 else end
            parts.append(path[position:end])
            position = end
        if position >= len(path):
            return tuple(parts)
        position += 1


UUID = pa.binary(16)
"""The logical type of UUIDs: their 16 bytes, which compare as unsigned. Bytes of a fixed width that are no UUIDs have
the logical type ``pa.binary()``, so no other column is of this type."""


def logical_type(arrow: pa.DataType) -> pa.DataType:
    """The type of the values: dictionary and run-end encodings unwrapped, views, large and small forms made plain.

    Half floats become floats, which hold the same values: Arrow has no comparison for half floats. UUIDs become `UUID`,
    for the same reason.

    >>> logical_type(pa.dictionary(pa.int32(), pa.large_string()))
    DataType(string)
    """
    if t.is_dictionary(arrow) or t.is_run_end_encoded(arrow):
        return logical_type(arrow.value_type)
    if arrow == pa.uuid():
        return UUID
    if t.is_large_string(arrow) or t.is_string_view(arrow):
        return pa.string()
    if t.is_large_binary(arrow) or t.is_binary_view(arrow) or t.is_fixed_size_binary(arrow):
        return pa.binary()
    if t.is_float16(arrow):
        return pa.float32()
    if t.is_decimal32(arrow) or t.is_decimal64(arrow):
        return pa.decimal128(arrow.precision, arrow.scale)
    return arrow


TIME_TZ = pa.opaque(pa.time64("us"), "time_tz", "DuckDB")
"""A time of day with a zone, kept in UTC. Arrow has no such type; DuckDB compares it by the zone as well."""

_ORDERABLE = (
    t.is_integer,
    t.is_floating,
    t.is_decimal,
    t.is_boolean,
    t.is_string,
    t.is_binary,
    t.is_date,
    t.is_time,
    t.is_timestamp,
    t.is_duration,
)


def is_orderable(arrow: pa.DataType) -> bool:
    """Whether the values of a type stand in one agreed order, so that a minimum and a maximum mean something."""
    logical = logical_type(arrow)
    return not isinstance(logical, pa.BaseExtensionType) and any(holds(logical) for holds in _ORDERABLE)


def may_hold_nan(arrow: pa.DataType) -> bool:
    """Whether the type has NaN, which sorts above every number and which Parquet bounds leave out."""
    return bool(t.is_floating(logical_type(arrow)))


@dataclass(frozen=True, slots=True)
class Column:
    """One leaf of a schema. ``type`` is the logical type: encodings unwrapped."""

    path: str
    parts: tuple[str, ...]
    type: pa.DataType
    nullable: bool

    @property
    def orderable(self) -> bool:
        return is_orderable(self.type)

    def of(self, rows: pa.RecordBatch | pa.Table) -> pa.ChunkedArray:
        """This column's values in rows, plain (not dictionary-encoded); a null parent makes a null child."""
        values = rows.column(self.parts[0])
        values = pa.chunked_array([values]) if isinstance(values, pa.Array) else values
        for part in self.parts[1:]:
            values = pc.struct_field(values, [values.type.get_field_index(part)])
        return values if values.type == self.type else values.cast(self.type)


@dataclass(frozen=True)
class Schema:
    """The columns of a table, leaves of structs included; lists and maps are leaves that have no order."""

    arrow: pa.Schema

    def __reduce__(self) -> tuple[type[Schema], tuple[pa.Schema]]:
        return Schema, (self.arrow,)

    @cached_property
    def columns(self) -> Mapping[str, Column]:
        """Every leaf by its path, in schema order."""
        leaves = [leaf for field in self.arrow for leaf in _leaves(field, (), False)]
        return MappingProxyType({leaf.path: leaf for leaf in leaves})

    @cached_property
    def _folded(self) -> Mapping[tuple[str, ...], list[Column]]:
        folded: dict[tuple[str, ...], list[Column]] = {}
        for column in self.columns.values():
            folded.setdefault(tuple(part.lower() for part in column.parts), []).append(column)
        return folded

    def find(self, parts: Sequence[str], *, case_sensitive: bool = False) -> Column | None:
        """The leaf with these parts; None where there is none, or where folding the case makes it ambiguous."""
        exact = self.columns.get(join_path(parts))
        if exact is not None or case_sensitive:
            return exact
        candidates = self._folded.get(tuple(part.lower() for part in parts), [])
        return candidates[0] if len(candidates) == 1 else None

    def column(self, name: str) -> Column:
        """The leaf that a user names: a top-level name as it stands, else a dotted path.

        Raises `UnknownColumn`.
        """
        found = self.find([name]) or self.find(split_path(name)) or self.find(name.split("."))
        if found is None:
            raise UnknownColumn(f"There is no column {in_quotes(name)}.{nearest(name, self.columns)}")
        return found

    def orderable(self, names: Sequence[str]) -> tuple[Column, ...]:
        """The clustering columns that a user names. Raises `UnknownColumn` and `NotOrderable`."""
        found = tuple(self.column(name) for name in names)
        for column in found:
            if not column.orderable:
                raise NotOrderable(
                    f'The column "{column.path}" cannot be ordered: {column.type} has no agreed order. '
                    "Cluster by a number, a string, a date or a time, or by a field inside it."
                )
        return found

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns.values())


def _leaves(field: pa.Field, above: tuple[str, ...], nullable: bool) -> Iterator[Column]:
    parts = (*above, field.name)
    nullable = nullable or field.nullable
    if t.is_struct(field.type) and field.type.num_fields:
        for index in range(field.type.num_fields):
            yield from _leaves(field.type.field(index), parts, nullable)
    else:
        yield Column(join_path(parts), parts, logical_type(field.type), nullable)
