"""`Binder`: binds a parsed leaf to a node of the bound tree, and marks it if DuckDB may evaluate it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from zskip.binder.constants import literal_value
from zskip.binder.context import Binding, Value, name_as_written, opaque, require_condition, require_row_expression
from zskip.binder.names import Names
from zskip.binder.predicates import comparisons, like, logic
from zskip.binder.source_text import without_parentheses
from zskip.core import types as t
from zskip.core.schema import Column, Schema
from zskip.errors import nearest
from zskip.language import tree
from zskip.language.bound import Dialect
from zskip.language.functions import call, evaluated_by_duckdb, is_computable
from zskip.language.functions.function import require_only
from zskip.language.literals import Refused
from zskip.language.tree import Cause, Computable, Literal, Node, Opaque, Reference, Scalar, Why

_CASE_FOLDING = {"upper()", "ucase()", "lower()", "lcase()"}
_WORDS: dict[type[exp.Expr], str] = {
    exp.ArrayOverlaps: "AND",
    exp.BitwiseAnd: "AND",
    exp.DPipe: "OR",
    exp.BitwiseOr: "OR",
    exp.BitwiseNot: "NOT",
}
"""What ``&& & || | ~`` mean between conditions in other languages, in SQL."""
_MAX_NODES = 2_000
"""Nodes that one leaf may become; a leaf with more characters may become as many nodes as it has characters."""


class Binder:
    """Binds the leaves of one source text. The rules of ``predicates`` and ``functions`` call it for subexpressions."""

    def __init__(self, names: Names) -> None:
        self.names, self.dialect, self.source = names, names.dialect, names.source
        self.checked: dict[int, exp.Expr] = {}

    def leaf(self, node: exp.Expr, text: Callable[[], str]) -> Node:
        """Binds a parsed leaf of the skeleton; ``text`` returns its SQL with exact names."""
        found = self.predicate(node)
        if isinstance(found, Opaque) and found.sql:
            # The parser's positions leave out operators and parentheses at the ends.
            found = replace(found, sql=text())
        size = tree.size(found)
        if size > _MAX_NODES and size > len(text()):
            found = opaque(self, node, "nested choices with too many parts")
        return computable(self.names.schema, self.dialect, found, text)

    def predicate(self, node: exp.Expr) -> Node:
        """Binds an expression as a predicate."""
        node = without_parentheses(node)
        bound = _rule(node)
        if bound is None:
            return self._truth(node)
        try:
            require_only(node, *_ARGUMENTS)
            found = bound(self, node)
        except Refused as refusal:
            return opaque(self, node, refusal.why)
        # The parser represents NOT LIKE as a LIKE with a flag, which may be inside an ESCAPE.
        pattern = node.this if isinstance(node, exp.Escape) else node
        return tree.not_(found) if pattern.args.get("negate") else found

    def _truth(self, node: exp.Expr) -> Node:
        """Binds a boolean column, a constant, or an unsupported expression as a predicate."""
        try:
            value = literal_value(node, self)
        except Refused as refusal:
            return opaque(self, node, refusal.why)
        if value is not None:
            if not value.is_valid:
                return tree.unknown()
            if t.is_boolean(value.type):
                return tree.and_([]) if value.as_py() else tree.or_([])
            require_condition(self, node, value.type)
            return opaque(self, node, f"a constant of type {value.type} used as a predicate")
        if isinstance(node, exp.Column):
            scalar = self.names.reference(node)
            if not t.is_boolean(scalar.type):
                require_condition(self, node, scalar.type)
                return opaque(self, node, f"a column of type {scalar.type} used as a predicate")
            return tree.is_true(scalar)
        return opaque(self, node, self._not_known(node, "predicate"))

    def value(self, node: exp.Expr) -> Value:
        """Binds an expression as a scalar or a choice of scalars. Raises `Refused`."""
        node = without_parentheses(node)
        return logic.choice(self, node) if isinstance(node, logic.CHOICES) else self.scalar(node)

    def scalar(self, node: exp.Expr) -> Scalar:
        """Binds an expression as a scalar. Raises `Refused` for unsupported expressions."""
        node = without_parentheses(node)
        value = literal_value(node, self)
        if value is not None:
            return Literal(value)
        if isinstance(node, exp.Column | exp.Dot):
            return self.names.reference(node)
        require_row_expression(self, node)
        found = call(self, node)
        if found is not None:
            return found
        why = self._not_known(node, "function")
        raise Refused(why.text, why.cause)

    def _not_known(self, node: exp.Expr, what: str) -> Why:
        """The reason that zskip has no rule for a function or operator, with the name that may be meant."""
        name = name_as_written(self, node)
        word = _WORDS.get(type(node)) if what == "predicate" and _rule(without_parentheses(node.this)) else None
        near = nearest(node.name, evaluated_by_duckdb(), listed=True) if isinstance(node, exp.Anonymous) else ""
        cause = Cause.MISSPELT if near else Cause.CASE_FOLDED if name.lower() in _CASE_FOLDING else Cause.UNSUPPORTED
        hint = f": SQL writes {word}" if word else f".{near}" if near else ""
        return Why(f"{name} is not a {what} that zskip knows{hint}", cause)


Rule = Callable[[Binding, exp.Expr], Node]
"""Binds a parsed predicate. One that raises `Refused` makes it opaque."""

_RULES: dict[type[exp.Expr], Rule] = {
    exp.EQ: comparisons.comparison("="),
    exp.NEQ: comparisons.comparison("<>"),
    exp.LT: comparisons.comparison("<"),
    exp.LTE: comparisons.comparison("<="),
    exp.GT: comparisons.comparison(">"),
    exp.GTE: comparisons.comparison(">="),
    exp.NullSafeEQ: comparisons.distinct,
    exp.NullSafeNEQ: comparisons.distinct,
    exp.And: logic.and_,
    exp.Or: logic.or_,
    exp.Not: logic.not_,
    exp.Xor: logic.xor,
    exp.Is: logic.is_,
    exp.IsNan: logic.nan,
    exp.Between: comparisons.between,
    exp.In: comparisons.in_,
    exp.Case: logic.case,
    exp.If: logic.case,
    exp.Coalesce: logic.case,
    exp.Like: like.like,
    exp.Escape: like.escaped,
    exp.ILike: like.ilike,
    exp.Glob: like.glob,
    exp.StartsWith: like.starts,
    exp.EndsWith: like.anywhere,
    exp.Contains: like.anywhere,
    exp.RegexpLike: like.regex,
    exp.RegexpFullMatch: like.regex,
    exp.SimilarTo: like.regex,
}

_NAMED: dict[str, Rule] = {
    "prefix": like.prefix_call,
    "suffix": like.suffix_call,
    "isnull": logic.null_call,
    "isnotnull": logic.null_call,
}

_ARGUMENTS = (
    "this", "expression", "expressions", "low", "high", "symmetric", "negate", "ifs", "default", "true", "false",
    "query", "unnest", "field",
)  # fmt: skip
"""The arguments that the rules read; an expression with others, such as flags of a regular expression, is refused."""


def _rule(node: exp.Expr) -> Rule | None:
    """The rule that binds an expression as a predicate; None if there is none."""
    return _NAMED.get(node.name.lower()) if isinstance(node, exp.Anonymous) else _RULES.get(type(node))


_MAX_CHARACTERS, _MAX_COLUMNS = 4096, 8
"""Of a condition that DuckDB may evaluate."""


def computable(schema: Schema, dialect: Dialect, node: Node, text: Callable[[], str]) -> Node:
    """The node, as a `Computable` if it may be more precise to evaluate it in DuckDB than over ranges.

    ``text`` returns the condition's SQL; it is called only if needed.
    """
    if dialect.name != "duckdb" or not tree.has_call_or_opaque(node):
        return node
    columns = [schema.columns[path] for path in sorted(tree.columns(node))]
    if not 0 < len(columns) <= _MAX_COLUMNS or not _are_computable(columns):
        return node
    sql = text()
    if len(sql) > _MAX_CHARACTERS or _may_compare_negation_with_nan(columns, sql):
        return node
    references = tuple(Reference(column.path, column.type) for column in columns)
    return Computable(node, references, sql, dialect.timezone)


def _may_compare_negation_with_nan(columns: Sequence[Column], sql: str) -> bool:
    """Whether DuckDB's optimizer may turn ``-x < 'nan'`` into ``x > -'nan'``, which is TRUE for other rows."""
    return "-" in sql and "nan" in sql.lower() and any(t.is_floating(column.type) for column in columns)


def _are_computable(columns: Sequence[Column]) -> bool:
    """Whether DuckDB reads the columns' types unchanged, and their names differ in more than case."""
    names = {column.parts[:count] for column in columns for count in range(1, len(column.parts) + 1)}
    folded = {tuple(part.lower() for part in name) for name in names}
    return len(folded) == len(names) and all(is_computable(column.type) for column in columns)
