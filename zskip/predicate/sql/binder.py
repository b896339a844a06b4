"""`Binder`: a parsed leaf and a schema become a node of the bound tree."""

from __future__ import annotations

import bisect
from collections.abc import Callable

import pyarrow as pa
from pyarrow import types as t
from sqlglot import exp

from zskip.errors import IncomparableTypes, UnknownColumn, UnsupportedSql, nearest
from zskip.predicate import tree
from zskip.predicate.bound import Dialect
from zskip.predicate.literals import Refused, compared, fit, unified
from zskip.predicate.patterns import like
from zskip.predicate.sql.constants import constant
from zskip.predicate.sql.freeze import Source
from zskip.predicate.tree import Literal, Node, Opaque, Reference, Scalar
from zskip.schema import Column, Schema, join_path

__all__ = ["Binder"]

_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}

_NOT_A_PREDICATE: dict[type[exp.Expr], str] = {
    exp.AggFunc: "an aggregate",
    exp.Window: "a window function",
    exp.Query: "a subquery",
    exp.Star: "a star",
}


class Binder:
    """Binds expressions of one source text."""

    def __init__(self, schema: Schema, dialect: Dialect, source: Source, case_sensitive: bool) -> None:
        self.schema, self.dialect, self.source, self.case_sensitive = schema, dialect, source, case_sensitive
        self._names: list[tuple[int, int, str]] = []

    def named(self, start: int, end: int) -> str:
        """A range of the frozen text with every column that was bound in it by its exact, quoted name."""
        pieces: list[str] = []
        at = start
        for index in range(bisect.bisect_left(self._names, (start, 0, "")), len(self._names)):
            first, last, name = self._names[index]
            if first >= end:
                break
            if at <= first and last <= end:
                pieces += [self.source.frozen[at:first], name]
                at = last
        return "".join([*pieces, self.source.frozen[at:end]])

    # ── predicates ──

    def predicate(self, node: exp.Expr) -> Node:
        """An expression that stands where TRUE, FALSE or NULL is wanted."""
        node = _bare(node)
        op = _COMPARISONS.get(type(node))
        if op is not None:
            return self._compare(op, node.this, node.expression, node)
        bound = _PREDICATES.get(type(node))
        if bound is None:
            return self._truth(node)
        try:
            found = bound(self, node)
        except Refused as refusal:
            return self._opaque(node, str(refusal))
        # The parser keeps the NOT of NOT LIKE as a flag of the LIKE, within ESCAPE too.
        pattern = node.this if isinstance(node, exp.Escape) else node
        return tree.not_(found) if pattern.args.get("negate") else found

    def _truth(self, node: exp.Expr) -> Node:
        """A boolean column, a constant, or an expression that zskip does not know."""
        try:
            value = constant(node, self.dialect)
        except Refused as refusal:
            return self._opaque(node, str(refusal))
        if value is not None:
            if not value.is_valid:
                return tree.unknown()
            if t.is_boolean(value.type):
                return tree.and_([]) if value.as_py() else tree.or_([])
            return self._opaque(node, f"a constant of type {value.type} where a predicate is wanted")
        if isinstance(node, exp.Column):
            scalar = self._column(node)
            if not t.is_boolean(scalar.type):
                return self._opaque(node, f"a column of type {scalar.type} where a predicate is wanted")
            return tree.compare("=", scalar, Literal(pa.scalar(True)))
        return self._opaque(node, f"{_name(node)} is not a predicate that zskip knows")

    def _compare(self, op: str, left: exp.Expr, right: exp.Expr, whole: exp.Expr) -> Node:
        try:
            return self._compared(op, self.scalar(left), self.scalar(right), whole)
        except Refused as refusal:
            return self._opaque(whole, str(refusal))

    def _compared(self, op: str, left: Scalar, right: Scalar, whole: exp.Expr) -> Node:
        if isinstance(left, Literal) and not isinstance(right, Literal):
            return self._compared(_MIRRORED[op], right, left, whole)
        if isinstance(right, Literal):
            if not right.value.is_valid or (isinstance(left, Literal) and not left.value.is_valid):
                return tree.unknown()
            self._must_compare(left.type, right.type, whole, isinstance(right, Literal))
            return compared(op, left, fit(right.value, left.type, self.dialect.name, self.dialect.timezone))
        self._must_compare(left.type, right.type, whole, False)
        if left.type != right.type:
            raise Refused(f"{left.type} beside {right.type}")
        return tree.compare(op, left, right)

    def _must_compare(self, left: pa.DataType, right: pa.DataType, whole: exp.Expr, literal: bool) -> None:
        kinds = {_kind(left), _kind(right)}
        if "string" in kinds and literal:
            return
        for group in ({"moment", "number"}, {"moment", "boolean"}, {"moment", "time"}, {"time", "number"}):
            if kinds == group:
                raise IncomparableTypes(
                    f"{self.dialect.name} does not compare {left} with {right}.",
                    self.source.original,
                    self._span(whole),
                )

    def _is(self, node: exp.Expr) -> Node:
        tested = _bare(node.expression)
        if isinstance(tested, exp.Null):
            try:
                return tree.IsNull(self.scalar(node.this))
            except Refused as refusal:
                return self._opaque(node, str(refusal))
        if isinstance(tested, exp.Boolean):
            return tree.is_(self.predicate(node.this), bool(tested.this))
        return self._opaque(node, "IS with something other than NULL, TRUE or FALSE")

    def _between(self, node: exp.Expr) -> Node:
        try:
            term, low, high = self.scalar(node.this), self.scalar(node.args["low"]), self.scalar(node.args["high"])
            if isinstance(low, Literal) and isinstance(high, Literal) and self.dialect.name != "spark":
                low, high = (Literal(value) for value in unified([low.value, high.value]))
            inside = tree.and_([self._compared(">=", term, low, node), self._compared("<=", term, high, node)])
            if not node.args.get("symmetric"):
                return inside
            turned = tree.and_([self._compared(">=", term, high, node), self._compared("<=", term, low, node)])
            return tree.or_([inside, turned])
        except Refused as refusal:
            return self._opaque(node, str(refusal))

    def _in(self, node: exp.Expr) -> Node:
        if node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
            return self._opaque(node, "IN over something other than a list")
        try:
            term = self.scalar(node.this)
            scalars = [self.scalar(each) for each in node.expressions]
            if all(isinstance(each, Literal) for each in scalars) and not isinstance(term, Literal):
                return self._in_list(term, [each.value for each in scalars if isinstance(each, Literal)], node)
            return tree.or_([self._compared("=", term, each, node) for each in scalars])
        except Refused as refusal:
            return self._opaque(node, str(refusal))

    def _in_list(self, term: Scalar, values: list[pa.Scalar], node: exp.Expr) -> Node:
        kept: list[pa.Scalar] = []
        or_null = False
        for value in unified(values):
            if not value.is_valid:
                or_null = True
                continue
            self._must_compare(term.type, value.type, node, True)
            fitted = fit(value, term.type, self.dialect.name, self.dialect.timezone)
            if fitted.exact and fitted.floor is not None:
                kept.append(fitted.floor)
        return tree.in_(term, pa.array([value.as_py() for value in kept], term.type), or_null)

    def _like(self, node: exp.Expr) -> Node:
        escape: str | None = None
        pattern = _bare(node.expression)
        if isinstance(pattern, exp.Escape):
            pattern = pattern.this
        try:
            text, subject = self.scalar(pattern), self.scalar(node.this)
        except Refused as refusal:
            return self._opaque(node, str(refusal))
        if not isinstance(text, Literal):
            return self._opaque(node, "LIKE with a pattern that is no constant")
        if not text.value.is_valid:
            return tree.unknown()
        if not t.is_string(subject.type) or not t.is_string(text.type):
            return self._opaque(node, f"LIKE over {subject.type}")
        if escape is None and self.dialect.name == "spark":
            escape = "\\"
        found = like(subject, text.value.as_py(), escape)
        return found if found is not None else self._opaque(node, "a pattern that does not begin with a literal")

    def _escape(self, node: exp.Expr) -> Node:
        inner = node.this
        escape = constant(node.expression, self.dialect)
        if isinstance(inner, exp.Like) and escape is not None and escape.is_valid and len(escape.as_py()) <= 1:
            subject, text = self.scalar(inner.this), self.scalar(inner.expression)
            if isinstance(text, Literal) and text.value.is_valid and t.is_string(subject.type):
                found = like(subject, text.value.as_py(), escape.as_py() or None)
                if found is not None:
                    return found
        return self._opaque(node, "a pattern that zskip does not read")

    def _not(self, node: exp.Expr) -> Node:
        return tree.not_(self.predicate(node.this))

    def _and(self, node: exp.Expr) -> Node:
        return tree.and_([self.predicate(each) for each in node.flatten()])

    def _or(self, node: exp.Expr) -> Node:
        return tree.or_([self.predicate(each) for each in node.flatten()])

    def _opaque(self, node: exp.Expr, reason: str) -> Node:
        self._refuse(node)
        paths = tuple(sorted({path for column in node.find_all(exp.Column) for path in self._paths(column)}))
        start, end = self._place(node)
        return Opaque(self.named(start, end) if start < end else node.sql(self.dialect.name), paths, reason)

    # ── scalars ──

    def scalar(self, node: exp.Expr) -> Scalar:
        """An expression with a value. Raises `Refused` for what zskip does not know."""
        node = _bare(node)
        value = constant(node, self.dialect)
        if value is not None:
            return Literal(value)
        if isinstance(node, exp.Column | exp.Dot):
            return self._column(node)
        self._refuse(node)
        raise Refused(f"{_name(node)} is not a function that zskip knows")

    def _column(self, node: exp.Expr) -> Reference:
        parts = list(node.parts) if isinstance(node, exp.Column | exp.Dot) else []
        names = [part.name for part in parts]
        found = self._find(names)
        if found is None and self._inside(names[0]):
            raise Refused(f"{join_path(names)} is not a leaf of its column")
        if found is None:
            shown = join_path(names)
            raise UnknownColumn(
                f'There is no column "{shown}".{nearest(shown, self.schema.columns)}',
                self.source.original,
                self._span(node),
            )
        start, end = self._place(node)
        if start < end:
            entry = (start, end, _quoted(found, self.dialect))
            index = bisect.bisect_left(self._names, entry)
            if self._names[index : index + 1] != [entry]:
                self._names.insert(index, entry)
        return Reference(found.path, found.type)

    def _find(self, names: list[str]) -> Column | None:
        # A first name that is a column of its own is no table's: what follows is inside of it, perhaps a map's key.
        for skip in range(1 if self._inside(names[0]) else len(names)):
            found = self.schema.find(names[skip:], case_sensitive=self.case_sensitive)
            if found is not None:
                return found
        return None

    def _inside(self, name: str) -> list[str]:
        """The leaves of a top-level column, whatever its case."""
        return [column.path for column in self.schema if column.parts[0].lower() == name.lower()]

    def _paths(self, node: exp.Column) -> list[str]:
        """The leaves that a name reads: those of a whole struct, too."""
        try:
            return [self._column(node).path]
        except Refused:
            return self._inside(node.parts[0].name)

    # ── places and refusals ──

    def _refuse(self, node: exp.Expr) -> None:
        for each in node.walk():
            for kind, name in _NOT_A_PREDICATE.items():
                if isinstance(each, kind):
                    raise UnsupportedSql(
                        f"There is {name} in the predicate: it cannot be planned over one table's rows.",
                        self.source.original,
                        self._span(each),
                    )

    def _place(self, node: exp.Expr) -> tuple[int, int]:
        metas = [each.meta for each in node.walk() if "start" in each.meta]
        if not metas:
            return (0, 0)
        return min(meta["start"] for meta in metas), max(meta["end"] for meta in metas) + 1

    def _span(self, node: exp.Expr) -> tuple[int, int] | None:
        start, end = self._place(node)
        return self.source.span(start, end) if start < end else None


_PREDICATES: dict[type[exp.Expr], Callable[[Binder, exp.Expr], Node]] = {
    exp.And: Binder._and,
    exp.Or: Binder._or,
    exp.Not: Binder._not,
    exp.Is: Binder._is,
    exp.Between: Binder._between,
    exp.In: Binder._in,
    exp.Like: Binder._like,
    exp.Escape: Binder._escape,
}


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _name(node: exp.Expr) -> str:
    if isinstance(node, exp.Anonymous):
        return f"{node.name}()"
    return node.key.upper()


def _kind(type: pa.DataType) -> str:
    for kind, holds in _KINDS.items():
        if any(each(type) for each in holds):
            return kind
    return str(type)


_KINDS: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "number": (t.is_integer, t.is_floating, t.is_decimal),
    "moment": (t.is_date, t.is_timestamp),
    "time": (t.is_time,),
    "boolean": (t.is_boolean,),
    "string": (t.is_string,),
    "binary": (t.is_binary,),
}


def _quoted(column: Column, dialect: Dialect) -> str:
    mark = "`" if dialect.name in ("spark", "databricks", "hive", "mysql", "bigquery") else '"'
    return ".".join(mark + part.replace(mark, mark * 2) + mark for part in column.parts)
