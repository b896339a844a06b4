"""Columns: their types and paths, and which of them can be ordered.

A **path** names a leaf: its parts joined by dots, with double quotes around a part that contains a dot or a quote.
So the top-level column ``a.b`` has the path ``"a.b"``, and the field b of the struct a has the path ``a.b``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import pyarrow as pa

from zskip.core import types as t
from zskip.core.late_loading import pc
from zskip.core.types import is_dictionary, is_orderable, logical_type
from zskip.errors import InvalidOption, NotOrderable, UnknownColumn, in_quotes, nearest


def join_path(parts: Sequence[str]) -> str:
    """The path of a leaf from its parts.

    >>> join_path(["a", "b"]), join_path(["a.b"])
    ('a.b', '"a.b"')
    """
    return ".".join('"' + part.replace('"', '""') + '"' if "." in part or '"' in part else part for part in parts)


def names_given(given: object, option: str) -> tuple[str, ...]:
    """The columns in an option, which is a name or a sequence of names. Raises `InvalidOption`.

    >>> names_given("a", "by"), names_given(["a", "b"], "by")
    (('a',), ('a', 'b'))
    """
    listed = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    for name in listed:
        if not isinstance(name, str):
            raise InvalidOption(f"{option}= is a column's name, or a list of names, not {name!r}.")
    return listed


def require_distinct(given: object, option: str) -> tuple[str, ...]:
    """As `names_given`. Raises `InvalidOption` for a name that stands there twice as well."""
    names = names_given(given, option)
    for name in names:
        if names.count(name) > 1:
            raise InvalidOption(f'{option}= names the column "{name}" twice.')
    return names


def unknown_column(name: str, names: Sequence[str]) -> UnknownColumn:
    """The error about a column of rows that is not there: a field of a struct is read with its whole column."""
    first, *inner = split_path(name)
    outer = next((each for each in names if inner and each.lower() == first.lower()), None)
    hint = nearest(name, names) if outer is None else f" Take the whole column {in_quotes(outer)}."
    return UnknownColumn(f"There is no column {in_quotes(name)}.{hint}")


def join_names(paths: Sequence[str]) -> str:
    """Paths as one text, separated by commas: the inverse of `split_names`.

    >>> join_names(["ts", "id.orig_h", "a,b", 's."x.y"'])
    'ts,id.orig_h,"a,b",s."x.y"'
    """

    def quoted(part: str) -> str:
        return '"' + part.replace('"', '""') + '"' if re.search(r'[",.=\s]', part) else part

    return ",".join(".".join(map(quoted, split_path(path))) for path in paths)


def split_names(text: str) -> list[str]:
    """The names that commas separate; a comma in double quotes is part of a name, and the quotes stay.

    >>> split_names('ts, id.orig_h,"a,b"')
    ['ts', 'id.orig_h', '"a,b"']
    """
    return [name.strip() for name in re.split(r',(?=(?:[^"]*"[^"]*")*[^"]*$)', text)]


_LISTED = 8
"""Fields of a struct that an error names."""

QUOTED_NAME = re.compile(r'"((?:[^"]|"")*)"')
"""A name in double quotes, which are doubled in it."""


def split_path(path: str) -> tuple[str, ...]:
    """The parts of a path: the inverse of `join_path`.

    >>> split_path('s."a.b".c')
    ('s', 'a.b', 'c')
    """
    parts: list[str] = []
    position = 0
    while True:
        if found := QUOTED_NAME.match(path, position):
            parts.append(found[1].replace('""', '"'))
            position = found.end()
        else:  # also for a quote that is not closed: such a name is not found, or is a column's
            end = path.find(".", position)
            end = len(path) if end < 0 else end
            parts.append(path[position:end])
            position = end
        if position >= len(path):
            return tuple(parts)
        position += 1


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
        values = self.encoded(rows)
        return values if values.type == self.type else values.cast(self.type)

    def encoded(self, rows: pa.RecordBatch | pa.Table) -> pa.ChunkedArray:
        """As `of`, but a dictionary stays one, and decimals of 64 bits stay narrow."""
        values = rows.column(self.parts[0])
        values = pa.chunked_array([values]) if isinstance(values, pa.Array) else values
        for part in self.parts[1:]:
            values = pc.struct_field(values, [values.type.get_field_index(part)])
        kept = is_dictionary(values.type) or t.is_decimal64(values.type) or values.type == self.type
        return values if kept else values.cast(self.type)


@dataclass(frozen=True)
class Schema:
    """The columns of a table, leaves of structs included; lists and maps are leaves that have no order.

    ``dimensions``: the names, in lower case, of tables that it is joined with: none of them qualifies its columns.
    """

    arrow: pa.Schema
    dimensions: frozenset[str] = field(default=frozenset(), compare=False)

    def __reduce__(self) -> tuple[type[Schema], tuple[pa.Schema, frozenset[str]]]:
        return Schema, (self.arrow, self.dimensions)

    @cached_property
    def columns(self) -> Mapping[str, Column]:
        """Every leaf by its path, in schema order."""
        leaves = [leaf for field in self.arrow for leaf in _leaves(field, (), False)]
        return MappingProxyType({leaf.path: leaf for leaf in leaves})

    @cached_property
    def holds_bytes(self) -> bool:
        """Whether a column, or a field nested in one, is binary."""
        return any(t.is_bytes(t.value_type(each.type)) for field in self.arrow for each in t.fields_within(field))

    @cached_property
    def _folded(self) -> Mapping[tuple[str, ...], list[Column]]:
        folded: dict[tuple[str, ...], list[Column]] = {}
        for column in self.columns.values():
            folded.setdefault(tuple(part.lower() for part in column.parts), []).append(column)
        return folded

    def find(self, parts: Sequence[str], *, case_sensitive: bool = False) -> Column | None:
        """The leaf with these parts; None if there is none, or several that differ in case."""
        exact = self.columns.get(join_path(parts))
        if exact is not None or case_sensitive:
            return exact
        candidates = self._folded.get(tuple(part.lower() for part in parts), [])
        return candidates[0] if len(candidates) == 1 else None

    def column(self, name: str) -> Column:
        """The leaf that a user names: by a top-level name, else by a dotted path.

        Raises `UnknownColumn`.
        """
        found = self.find([name]) or self.find(split_path(name)) or self.find(name.split("."))
        if found is None:
            folded = [part.lower() for part in split_path(name)]
            inside = [each.path for each in self if [part.lower() for part in each.parts[: len(folded)]] == folded]
            if inside:
                fields = ", ".join(inside[:_LISTED])
                raise UnknownColumn(f"The column {in_quotes(name)} is a struct. Name one of its fields: {fields}.")
            raise UnknownColumn(f"There is no column {in_quotes(name)}.{nearest(name, self.columns)}")
        return found

    def selected(self, columns: Sequence[str] | None) -> pa.Schema:
        """The whole columns that an option ``columns`` names, in its order; all for None.

        Letter case tells apart only columns that differ in nothing else. Raises `UnknownColumn`, also for a field.
        """
        if columns is None:
            return self.arrow
        names = dict.fromkeys(self.arrow.names)
        found = []
        for name in names_given(columns, "columns"):
            same = [name] if name in names else [each for each in names if each.lower() == name.lower()]
            if len(same) != 1:
                raise unknown_column(name, [*names])
            found.append(self.arrow.field(same[0]))
        return pa.schema(found, self.arrow.metadata)

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


_BACKTICKS = ("spark", "databricks", "hive", "mysql", "bigquery")
"""The dialects that quote names with backticks."""


SESSION_VALUES = frozenset(
    {
        *("current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"),
        *("current_user", "session_user", "current_schema", "current_catalog"),
    }
)
"""Words that engines read, without parentheses, as values of the session where no column has such a name."""


def identifier(*parts: str, dialect: str = "duckdb") -> str:
    """A name, or the parts of a dotted name, as a quoted identifier of a dialect.

    >>> identifier('id.orig_h'), identifier('s', 'a"b'), identifier('s', 'a"b', dialect="spark")
    ('"id.orig_h"', '"s"."a""b"', '`s`.`a"b`')
    """
    mark = "`" if dialect in _BACKTICKS else '"'
    return ".".join(mark + part.replace(mark, mark * 2) + mark for part in parts)
