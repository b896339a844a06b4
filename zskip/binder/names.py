"""``Names``: resolve names to columns, and record where the text names columns."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import TypeAlias

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from zskip import types as t
from zskip.binder.nodes import place, span
from zskip.binder.sql_text import Source
from zskip.errors import UnknownColumn, in_quotes, nearest
from zskip.expr.bound import Dialect
from zskip.expr.literals import Refused
from zskip.expr.tree import Reference
from zskip.schema import Column, Schema, join_path

__all__ = ["Names", "Place", "exact_name"]

Place: TypeAlias = tuple[int, int, str]
"""Where a column stands among tokens: its first token, its last, both by number, and its exact name."""


class Names:
    """The names of one source text."""

    def __init__(self, schema: Schema, dialect: Dialect, source: Source, case_sensitive: bool) -> None:
        self.schema, self.dialect, self.source, self.case_sensitive = schema, dialect, source, case_sensitive
        self._noted: list[tuple[int, int, str]] = []
        self._exact: dict[str, str] = {}

    def named(self, start: int, end: int) -> str:
        """A range of the frozen text with every column that was bound in it by its exact, quoted name."""
        pieces: list[str] = []
        at = start
        for index in range(bisect.bisect_left(self._noted, (start, 0, "")), len(self._noted)):
            first, last, name = self._noted[index]
            if first >= end:
                break
            if at <= first and last <= end:
                pieces += [self.source.frozen[at:first], name]
                at = last
        return self.source.whole("".join([*pieces, self.source.frozen[at:end]]))

    def reference(self, node: exp.Expr) -> Reference:
        """The column that an expression names. Raises `UnknownColumn`, or `Refused` for what is no leaf."""
        names = _names(node)
        found = self.find(names)
        if found is None and self._inside(names[0]) and not self._is_no_field(names):
            raise Refused(f"{join_path(names)} is not a leaf of its column")
        if found is None:
            shown = join_path(names)
            dotted = in_quotes(shown) in self.schema.columns
            hint = " One has this name with the dot in it: put it in quotes." if dotted else None
            raise UnknownColumn(
                f"There is no column {shown if dotted else in_quotes(shown)}."
                f"{hint or nearest(shown, self.schema.columns)}",
                self.source.original,
                span(self.source, node),
            )
        start, end = place(node)
        if start < end:
            self.note(start, end, found)
        return Reference(found.path, found.type)

    def note(self, start: int, end: int, column: Column) -> None:
        """Notes that a column was bound in this place."""
        name = self._exact.get(column.path)
        if name is None:
            name = self._exact[column.path] = exact_name(column, self.dialect)
        self._insert((start, end, name))

    def places(self, tokens: Sequence[Token]) -> list[Place]:
        """The columns that were noted among tokens that stand side by side."""
        first = {token.start: index for index, token in enumerate(tokens)}
        last = {token.end + 1: index for index, token in enumerate(tokens)}
        begin = bisect.bisect_left(self._noted, (tokens[0].start, 0, ""))
        end = bisect.bisect_left(self._noted, (tokens[-1].end + 1, 0, ""))
        return [(first[start], last[stop], name) for start, stop, name in self._noted[begin:end]]

    def note_again(self, tokens: Sequence[Token], places: Sequence[Place]) -> None:
        """Notes the same columns among other tokens of the same form."""
        for first, last, name in places:
            self._insert((tokens[first].start, tokens[last].end + 1, name))

    def _insert(self, entry: tuple[int, int, str]) -> None:
        if not self._noted or self._noted[-1] < entry:
            self._noted.append(entry)
            return
        index = bisect.bisect_left(self._noted, entry)
        if self._noted[index : index + 1] != [entry]:
            self._noted.insert(index, entry)

    def find(self, names: list[str]) -> Column | None:
        """The column of these names, the first of which may be a table's."""
        # A first name that is a column of its own is no table's: what follows is inside of it, perhaps a map's key.
        longest = max((len(column.parts) for column in self.schema), default=0)
        for skip in range(max(0, len(names) - longest), 1 if self._inside(names[0]) else len(names)):
            found = self.schema.find(names[skip:], case_sensitive=self.case_sensitive)
            if found is not None:
                return found
        return None

    def _inside(self, name: str) -> list[str]:
        """The leaves of a top-level column, whatever its case."""
        return [column.path for column in self.schema if column.parts[0].lower() == name.lower()]

    def _is_no_field(self, names: list[str]) -> bool:
        """Whether a name asks a struct for a field that it lacks."""
        index = next(n for n, name in enumerate(self.schema.arrow.names) if name.lower() == names[0].lower())
        type = self.schema.arrow.types[index]
        if len(names) < 2 or not t.is_struct(type) or self.schema.find(names[1:]) is not None:
            return False
        return names[1].lower() not in {type.field(number).name.lower() for number in range(type.num_fields)}

    def paths(self, node: exp.Column) -> list[str]:
        """The leaves that a name reads: those of a whole struct, too."""
        try:
            return [self.reference(node).path]
        except Refused:
            return self._inside(node.parts[0].name)


def _names(node: exp.Expr) -> list[str]:
    """The names that dots join. Raises `Refused` where the first is none: ``f(x).a`` is no column of the name a."""
    fields: list[str] = []
    while isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        fields.append(node.expression.name)
        node = node.this
    if not isinstance(node, exp.Column):
        raise Refused("a field of what is computed")
    return [part.name for part in node.parts] + fields[::-1]


def exact_name(column: Column, dialect: Dialect) -> str:
    """A column's name as the dialect reads it, whatever it holds."""
    mark = "`" if dialect.name in ("spark", "databricks", "hive", "mysql", "bigquery") else '"'
    return ".".join(mark + part.replace(mark, mark * 2) + mark for part in column.parts)
