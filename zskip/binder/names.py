"""`Names`: resolves names to columns, and records where the text names columns."""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from zskip.binder.source_text import SourceText, curly_quotes, span, text_range
from zskip.core import types as t
from zskip.core.schema import Column, Schema, identifier, join_path
from zskip.errors import UnknownColumn, in_quotes, nearest
from zskip.language.bound import Constant, Dialect, Template
from zskip.language.literals import Refused
from zskip.language.tree import Reference

# DuckDB 2.0 derives the bounds of a part from those of the timestamp, takes nanoseconds for microseconds there, and
# decides a condition on it without reading rows. It derives no bounds through TRY.
_PART = re.compile(r"\b(?:extract|date_part|datepart)\b", re.IGNORECASE)


class Names:
    """Resolves the column names of one source text."""

    def __init__(self, schema: Schema, dialect: Dialect, source: SourceText, case_sensitive: bool) -> None:
        self.schema, self.dialect, self.source, self.case_sensitive = schema, dialect, source, case_sensitive
        self._hides_bounds = dialect.name == "duckdb" and _PART.search(source.text) is not None
        self._recorded: list[tuple[int, int, str]] = []
        self._exact: dict[str, str] = {}
        self._found: dict[tuple[str, ...], Column | None] = {}

    def template(self, start: int, end: int) -> Template:
        """A range of the source text, with exact, quoted names for the columns that were resolved in it, and values."""
        first = bisect.bisect_left(self._recorded, (start, 0, ""))
        last = bisect.bisect_left(self._recorded, (end, 0, ""))
        replaced: list[tuple[int, int, str | Constant]] = [*self._recorded[first:last]]
        given = self.source.given(start, end)
        if given:
            replaced += [(value.start, value.end, Constant(value.value)) for value in given]
            replaced.sort(key=lambda each: each[:2])
        pieces: list[str | Constant] = []
        position = start
        for begin, stop, piece in replaced:
            if position <= begin and stop <= end:
                pieces += [self.source.text[position:begin], piece]
                position = stop
        return Template((*pieces, self.source.text[position:end]), self.dialect.name)

    def reference(self, node: exp.Expr) -> Reference:
        """The column that an expression names. Raises `UnknownColumn`, or `Refused` for a name that is not a leaf."""
        names = _name_parts(node)
        column = self.find(names)
        if column is None and self._leaves_under(names[0]) and not self._lacks_field(names):
            raise Refused(f"{join_path(names)} is not a leaf of its column")
        if column is None:
            path = join_path(names)
            dotted = in_quotes(path) in self.schema.columns
            if dotted:
                hint = " One has this name with the dot in it: put it in quotes."
            elif (field := path.strip('"')) != path and field in self.schema.columns:
                hint = f" {field} is a field of a struct: write it without quotes."
            elif dimension := next(filter(self._is_dimension, names[:-1] or names[0].split(".")[:-1]), None):
                hint = (
                    f" {in_quotes(dimension)} is a dimension: a predicate names the table's own columns, without a "
                    "qualifier. zskip.sql joins the table with its dimensions."
                )
            elif path.lower() == "none":
                hint = " Python's None is NULL in SQL, and the test for it is IS NULL."
            elif curly := curly_quotes(path):
                hint = curly
            else:
                hint = nearest(path, self.schema.columns) + _text_hint(node)
            raise UnknownColumn(
                f"There is no column {path if dotted else in_quotes(path)}.{hint}",
                self.source.text,
                span(self.source, node),
            )
        start, end = text_range(node)
        if start < end:
            self.record(start, end, column)
        return Reference(column.path, column.type)

    def record(self, start: int, end: int, column: Column) -> None:
        """Records that a range of the text names a column."""
        name = self._exact.get(column.path)
        if name is None:
            name = identifier(*column.parts, dialect=self.dialect.name)
            if self._hides_bounds and t.is_timestamp(column.type) and column.type.unit == "ns":
                name = f"TRY({name})"
            self._exact[column.path] = name
        entry = (start, end, name)
        if not self._recorded or self._recorded[-1] < entry:
            self._recorded.append(entry)
            return
        index = bisect.bisect_left(self._recorded, entry)
        if self._recorded[index : index + 1] != [entry]:
            self._recorded.insert(index, entry)

    def find(self, names: list[str]) -> Column | None:
        """The column that a dotted name denotes; its first parts may qualify it by a table. None if there is none."""
        key = tuple(names)
        if key not in self._found:
            self._found[key] = self._find(names)
        return self._found[key]

    def _find(self, names: list[str]) -> Column | None:
        # If a column has the first name, it is not a table's: the other names are inside the column, perhaps map keys.
        longest = max((len(column.parts) for column in self.schema), default=0)
        for skip in range(max(0, len(names) - longest), 1 if self._leaves_under(names[0]) else len(names)):
            if skip and self._is_dimension(names[skip - 1]):
                return None  # the name of a dimension's column, which a column of this table may have as well
            found = self.schema.find(names[skip:], case_sensitive=self.case_sensitive)
            if found is not None:
                return found
        return None

    def _is_dimension(self, name: str) -> bool:
        return name.lower() in self.schema.dimensions

    def leaves_of_struct(self, node: exp.Expr) -> list[Column]:
        """The leaves, except lists, of the one struct that an expression names; none if it names something else."""
        try:
            names = [name.lower() for name in _name_parts(node)]
        except Refused:
            return []
        known: Sequence[pa.Field] = list(self.schema.arrow)
        path: list[str] = []
        for name in names:
            fields = [each for each in known if each.name.lower() == name]
            if len(fields) != 1 or not t.is_struct(fields[0].type):
                return []
            path.append(fields[0].name)
            known = list(fields[0].type)
        return [each for each in self.schema if list(each.parts[: len(path)]) == path and not t.is_nested(each.type)]

    def _leaves_under(self, name: str) -> list[str]:
        """The paths of the leaves of a top-level column, whose name may differ in case."""
        return [column.path for column in self.schema if column.parts[0].lower() == name.lower()]

    def _lacks_field(self, names: list[str]) -> bool:
        """Whether a dotted name denotes a field that its struct does not have."""
        index = next(n for n, name in enumerate(self.schema.arrow.names) if name.lower() == names[0].lower())
        type = self.schema.arrow.types[index]
        if len(names) < 2 or not t.is_struct(type) or self.schema.find(names[1:]) is not None:
            return False
        return names[1].lower() not in {type.field(number).name.lower() for number in range(type.num_fields)}

    def paths(self, node: exp.Column) -> list[str]:
        """The paths of the leaves that a name reads: of a struct, those of all its fields."""
        try:
            return [self.reference(node).path]
        except Refused:
            return self._leaves_under(node.parts[0].name)


def _text_hint(node: exp.Expr) -> str:
    """A hint for a name where a condition mostly has a constant: ``tailnum = "N14228"``."""
    is_compared = isinstance(node.parent, exp.Predicate) and node.arg_key != "this"
    return " Text needs single quotes." if is_compared and isinstance(node, exp.Column) and len(node.parts) == 1 else ""


def _name_parts(node: exp.Expr) -> list[str]:
    """The parts of a dotted name. Raises `Refused` for a field of an expression: ``f(x).a``."""
    fields: list[str] = []
    while isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        fields.append(node.expression.name)
        node = node.this
    if not isinstance(node, exp.Column):
        raise Refused("a field of an expression")
    return [part.name for part in node.parts] + fields[::-1]
