"""`Binder`: a parsed leaf and a schema become a node of the bound tree."""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from zskip.errors import IncomparableTypes, UnknownColumn, UnsupportedSql, in_quotes, nearest
from zskip.predicate import tree
from zskip.predicate.bound import Dialect
from zskip.predicate.functions import is_computable
from zskip.predicate.literals import Fit, Refused, compared, fit, integer_limits, unified
from zskip.predicate.patterns import exact_regex, glob, ilike, like, regex, starts_with
from zskip.predicate.render import type_name
from zskip.predicate.sql.choices import Choice, Value, chosen, one_kind, one_type
from zskip.predicate.sql.constants import constant, number
from zskip.predicate.sql.functions import call, known
from zskip.predicate.sql.places import closed, opened
from zskip.predicate.sql.shared import in_duckdb
from zskip.predicate.sql.source import Source
from zskip.predicate.tree import Call, Computable, Literal, Node, Opaque, Reference, Scalar
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

_MOST_PARTS = 50_000
"""Predicates that one leaf may become; of a longer text, as many as it has characters."""

_LONGEST_COMPUTED = 4096
"""Characters of a condition that DuckDB may be asked to compute."""

_MOST_COMPUTED = 8
"""Columns of such a condition."""

_SIGNS: dict[TokenType, str] = {
    TokenType.EQ: "=",
    TokenType.NEQ: "<>",
    TokenType.LT: "<",
    TokenType.LTE: "<=",
    TokenType.GT: ">",
    TokenType.GTE: ">=",
}

_PLAIN_CONSTANTS = {(TokenType.NUMBER,), (TokenType.STRING,), (TokenType.DASH, TokenType.NUMBER)}

_NO_NAMES = {"ANY", "CASE", "CONNECT_BY_ROOT", "IF", "MAP", "NEXT", "PRIOR"}
"""Words that begin something other than a column's name, though the tokens do not tell."""

_NOT_A_PREDICATE: dict[type[exp.Expr], str] = {
    exp.AggFunc: "an aggregate",
    exp.Window: "a window function",
    exp.Query: "a subquery",
    exp.Star: "a star",
}

_RUNS_CODE = {"reflect", "java_method", "try_reflect"}
"""Functions of Spark that call any method of any Java class."""


class Binder:
    """Binds expressions of one source text."""

    def __init__(self, schema: Schema, dialect: Dialect, source: Source, case_sensitive: bool) -> None:
        self.schema, self.dialect, self.source, self.case_sensitive = schema, dialect, source, case_sensitive
        self._names: list[tuple[int, int, str]] = []
        self._plain: dict[tuple[TokenType, str], Reference | None] = {}
        self._looked_through: dict[int, exp.Expr] = {}

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
        return self.source.whole("".join([*pieces, self.source.frozen[at:end]]))

    # ── predicates ──

    def plain(self, tokens: Sequence[Token]) -> Node | None:
        """``column op constant``, for which no parser is needed; None for everything else, and for what is wrong."""
        op = _SIGNS.get(tokens[1].token_type) if len(tokens) in (3, 4) else None
        if op is None:
            return None
        kinds = tuple([token.token_type for token in tokens])
        if self.dialect.name not in ("duckdb", "spark") or kinds[2:] not in _PLAIN_CONSTANTS:
            return None
        name, text = tokens[0], tokens[-1].text
        term = self._plain_term(name)
        if term is None or text in self.source.lists:
            return None
        try:
            if kinds[-1] is TokenType.NUMBER:
                value = number(text, negative=len(kinds) == 4)
            elif "\\" in text:
                return None
            else:
                value = pa.scalar(text, pa.string())
            if value.type != term.type and not _are_comparable(term.type, value.type, True):
                return None
            found = compared(op, term, self._fit(term, value))
        except Refused:
            return None
        self._name(name.start, name.end + 1, self.schema.columns[term.path])
        return found

    def _plain_term(self, name: Token) -> Reference | None:
        key = (name.token_type, name.text)
        if key not in self._plain:
            bare = name.token_type is TokenType.VAR and name.text.upper() not in _NO_NAMES
            simple = bare or name.token_type is TokenType.IDENTIFIER
            column = self._find([name.text]) if simple else None
            self._plain[key] = None if column is None else Reference(column.path, column.type)
        return self._plain[key]

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
            _plain(node)
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
        if isinstance(node, exp.Anonymous) and node.name.lower() in _NAMED:
            try:
                return _NAMED[node.name.lower()](self, node)
            except Refused as refusal:
                return self._opaque(node, str(refusal))
        return self._opaque(node, f"{self._called(node)} is not a predicate that zskip knows")

    def _compare(self, op: str, left: exp.Expr, right: exp.Expr, whole: exp.Expr) -> Node:
        rows = [_row(left), _row(right)]
        try:
            if rows[0] is not None and rows[1] is not None:
                return self._rows(op, rows[0], rows[1], whole)
            return chosen(lambda a, b: self._compared(op, a, b, whole), self.value(left), self.value(right))
        except Refused as refusal:
            return self._opaque(whole, str(refusal))

    def _rows(self, op: str, left: list[exp.Expr], right: list[exp.Expr], whole: exp.Expr) -> Node:
        """Row values: equal where all their parts are. What they give beside NULL is the dialect's own."""
        pairs = self._pairs([self.scalar(each) for each in left], right)
        if op not in ("=", "<>"):
            return self._ordered_rows(op, pairs, whole)
        found = self._any_row([pairs], whole)
        return found if op == "=" else tree.not_(found)

    def _pairs(self, left: list[Scalar], right: list[exp.Expr]) -> list[tuple[Scalar, Scalar]]:
        if len(left) != len(right):
            raise Refused("row values of different lengths")
        pairs = list(zip(left, map(self.scalar, right), strict=True))
        if any(t.is_string(a.type) != t.is_string(b.type) for a, b in pairs):
            raise Refused("a row value with a text beside another type: engines may compare both as texts")
        return pairs

    def _any_row(self, rows: list[list[tuple[Scalar, Scalar]]], whole: exp.Expr) -> Node:
        """TRUE where the parts of any row are equal, side by side; elsewhere FALSE, or NULL."""
        legs = [tree.and_([self._alike(left, right, whole) for left, right in pairs]) for pairs in rows]
        rest = Opaque("", (), "a row value beside NULL", implies=tree.or_([]))
        return tree.choose(tree.or_(legs), tree.and_([]), rest)

    def _alike(self, left: Scalar, right: Scalar, whole: exp.Expr) -> Node:
        """TRUE where two parts of row values are equal, or both NULL; elsewhere FALSE, or NULL."""
        constants = [side.value.is_valid for side in (left, right) if isinstance(side, Literal)]
        if constants and all(constants):
            return self._compared("=", left, right, whole)
        return self._same(left, right, whole)

    def _ordered_rows(self, op: str, pairs: list[tuple[Scalar, Scalar]], whole: exp.Expr) -> Node:
        """``(a, b) < (1, 2)`` is ``a < 1 OR a = 1 AND b < 2``; where a part is NULL, engines differ."""
        sides = dict.fromkeys(side for pair in pairs for side in pair)
        if any(isinstance(side, Literal) and not side.value.is_valid for side in sides):
            raise Refused("a row value that holds NULL, compared by something other than =")

        def ordered(test: Callable[[str, Scalar, Scalar], Node]) -> Node:
            *before, last = pairs
            found = test(op, *last)
            for left, right in reversed(before):
                found = tree.or_([test(op[0], left, right), tree.and_([test("=", left, right), found])])
            return found

        def part(op: str, left: Scalar, right: Scalar) -> Node:
            return self._compared(op, left, right, whole)

        def part_or_null(op: str, left: Scalar, right: Scalar) -> Node:
            nulls = [tree.IsNull(side) for side in (left, right) if side in nullable]
            return tree.or_([part(op, left, right), *nulls])

        nullable = [side for side in sides if not isinstance(side, Literal)]
        opaque = self._opaque(whole, "the order of row values beside NULL")
        beside_null = replace(opaque, implies=ordered(part_or_null))
        return tree.choose(tree.or_([tree.IsNull(side) for side in nullable]), beside_null, ordered(part))

    def _same(self, left: Scalar, right: Scalar, whole: exp.Expr) -> Node:
        """``left IS NOT DISTINCT FROM right``: never NULL."""
        for side, other in ((left, right), (right, left)):
            if isinstance(side, Literal) and not side.value.is_valid:
                return tree.IsNull(other)
        equal = tree.is_(self._compared("=", left, right, whole), True)
        if isinstance(left, Literal) or isinstance(right, Literal):
            return equal
        return tree.or_([equal, tree.and_([tree.IsNull(left), tree.IsNull(right)])])

    def _distinct(self, node: exp.Expr) -> Node:
        same = chosen(lambda a, b: self._same(a, b, node), self.value(node.this), self.value(node.expression))
        return same if isinstance(node, exp.NullSafeEQ) else tree.not_(same)

    def _compared(self, op: str, left: Scalar, right: Scalar, whole: exp.Expr) -> Node:
        if isinstance(left, Literal) and not isinstance(right, Literal):
            return self._compared(_MIRRORED[op], right, left, whole)
        if isinstance(right, Literal):
            if not right.value.is_valid or (isinstance(left, Literal) and not left.value.is_valid):
                return tree.unknown()
            self._must_compare(left.type, right.type, whole, isinstance(right, Literal))
            return compared(op, left, self._fit(left, right.value))
        self._must_compare(left.type, right.type, whole, False)
        return tree.compare(op, *one_type(left, right, self.dialect))

    def _fit(self, term: Scalar, value: pa.Scalar) -> Fit:
        if isinstance(term, Call) and t.is_string(value.type) and _kind(term.type) == "number":
            raise Refused("a text beside a number that was computed: the cast is left to the engine")
        fitted = fit(value, term.type, self.dialect.name, self.dialect.timezone)
        if isinstance(term, Call) and t.is_decimal(term.type):
            # The result may be longer than its 18 digits: a constant near their end is no bound.
            least = fitted.floor
            if least is None or abs(least.as_py()) >= Decimal(10) ** (17 - term.type.scale):
                raise Refused("a constant near the end of 18 digits beside a decimal that was computed")
        return fitted

    def _must_compare(self, left: pa.DataType, right: pa.DataType, whole: exp.Expr, literal: bool) -> None:
        if not _are_comparable(left, right, literal):
            one, other = (type_name(type, self.dialect.name) for type in (left, right))
            raise IncomparableTypes(
                f"{self.dialect.name} does not compare {one} with {other}.", self.source.original, self._span(whole)
            )

    def _is(self, node: exp.Expr) -> Node:
        tested = _bare(node.expression)
        if isinstance(tested, exp.Null):
            try:
                return chosen(tree.IsNull, self.value(node.this))
            except Refused as refusal:
                return self._null_test(node, str(refusal))
        if isinstance(tested, exp.Boolean):
            return tree.is_(self.predicate(node.this), bool(tested.this))
        return self._opaque(node, "IS with something other than NULL, TRUE or FALSE")

    def _null_test(self, node: exp.Expr, reason: str) -> Node:
        """IS NULL of a predicate, such as ``(a > 5) IS NULL``."""
        if isinstance(_bare(node.this), exp.Predicate | exp.Connector | exp.Not):
            return tree.is_(self.predicate(node.this), None)
        return self._opaque(node, reason)

    def _between(self, node: exp.Expr) -> Node:
        def bound(term: Scalar, low: Scalar, high: Scalar) -> Node:
            if isinstance(low, Literal) and isinstance(high, Literal) and self.dialect.name != "spark":
                low, high = (Literal(value) for value in unified([low.value, high.value]))
            elif (
                self.dialect.name != "spark" and len({term.type, low.type, high.type}) > 1 and _rounds(term, low, high)
            ):
                raise Refused("BETWEEN over numbers of several types: the dialect casts them all to one")
            inside = tree.and_([self._compared(">=", term, low, node), self._compared("<=", term, high, node)])
            if not node.args.get("symmetric"):
                return inside
            turned = tree.and_([self._compared(">=", term, high, node), self._compared("<=", term, low, node)])
            return tree.or_([inside, turned])

        return chosen(bound, self.value(node.this), self.value(node.args["low"]), self.value(node.args["high"]))

    def _in(self, node: exp.Expr) -> Node:
        if node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
            return self._opaque(node, "IN over something other than a list")
        row = _row(node.this)
        if row is not None:
            rows = [_row(each) for each in node.expressions]
            if None in rows:
                raise Refused("row values among something other than row values")
            left = [self.scalar(each) for each in row]
            return self._any_row([self._pairs(left, each) for each in rows if each is not None], node)
        try:
            subject = self.value(node.this)
            listed = self._list(node)
            if listed is not None:
                return chosen(lambda term: self._in_array(term, listed, node), subject)
            scalars = [self.scalar(each) for each in node.expressions]
            if any(isinstance(each, Literal) and not each.value.is_valid for each in scalars) and self._bracketed(node):
                raise Refused("IN over a list value with NULL, which is no list of alternatives")
            return chosen(lambda term: self._among(term, scalars, node), subject)
        except Refused as refusal:
            return self._opaque(node, str(refusal))

    def _list(self, node: exp.Expr) -> pa.Array | None:
        """The long list for which the one constant of an IN stands."""
        only = node.expressions[0] if len(node.expressions) == 1 else None
        found = self.source.lists.get(only.this) if isinstance(only, exp.Literal) and not only.is_string else None
        return None if found is None else found.values

    def _in_array(self, term: Scalar, values: pa.Array, node: exp.Expr) -> Node:
        if isinstance(term, Literal):
            return self._among(term, [Literal(value) for value in values], node)
        self._must_compare(term.type, values.type, node, True)
        if term.type == values.type:
            return tree.in_(term, values)
        if t.is_integer(term.type) and t.is_integer(values.type):
            low, high = integer_limits(term.type)
            low, high = max(low, -(2**63)), min(high, 2**63 - 1)
            inside = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
            return tree.in_(term, values.filter(inside).cast(term.type))
        return self._in_list(term, list(values), node)

    def _bracketed(self, node: exp.Expr) -> bool:
        """Whether the leaf holds a square bracket: the parser reads ``x IN [1, 2]`` as ``x IN (1, 2)``."""
        start, _ = self._place(node)
        return "[" in self.source.frozen[start:] or (start == 0 and "[" in self.source.frozen)

    def _among(self, term: Scalar, scalars: list[Scalar], node: exp.Expr) -> Node:
        if all(isinstance(each, Literal) for each in scalars) and not isinstance(term, Literal):
            return self._in_list(term, [each.value for each in scalars if isinstance(each, Literal)], node)
        if _rounds(term, *scalars):
            raise Refused("IN over numbers of several types: the dialect casts them all to one")
        return tree.or_([self._compared("=", term, each, node) for each in scalars])

    def _in_list(self, term: Scalar, values: list[pa.Scalar], node: exp.Expr) -> Node:
        kept: list[pa.Scalar] = []
        or_null = False
        for value in unified(values):
            if not value.is_valid:
                or_null = True
                continue
            self._must_compare(term.type, value.type, node, True)
            fitted = self._fit(term, value)
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
        return self._matching(node, subject, like(subject, text.value.as_py(), escape))

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

    def _opaque(self, node: exp.Expr, reason: str) -> Opaque:
        self._refuse(node)
        paths = tuple(sorted({path for column in node.find_all(exp.Column) for path in self._paths(column)}))
        start, end = self._place(node)
        end = closed(self.source.frozen, start, end)
        return Opaque(self.named(start, end) if start < end else node.sql(self.dialect.name), paths, reason)

    def leaf(self, node: exp.Expr, text: Callable[[], str]) -> Node:
        """The predicate of a whole leaf of the skeleton, whose text is at hand."""
        found = self.predicate(node)
        if isinstance(found, Opaque) and found.sql:
            # What the parser knows of places leaves out signs and parentheses at the ends.
            found = replace(found, sql=text())
        size = tree.size(found)
        if size > _MOST_PARTS and size > len(text()):
            found = self._opaque(node, "choices within choices, of too many parts")
        return self._computable(found, node, text)

    def _computable(self, node: Node, leaf: exp.Expr, text: Callable[[], str]) -> Node:
        """The node, with its text where DuckDB may say of single values what ranges do not show."""
        if self.dialect.name not in ("duckdb", "spark") or not tree.is_doubtful(node):
            return node
        columns = [self.schema.columns[path] for path in sorted(tree.columns(node))]
        if not 0 < len(columns) <= _MOST_COMPUTED or not _are_computable(columns):
            return node
        try:
            sql = text() if self.dialect.name == "duckdb" else in_duckdb(self, leaf)
        except Refused:
            return node
        if len(sql) > _LONGEST_COMPUTED:
            return node
        references = tuple(Reference(column.path, column.type) for column in columns)
        return Computable(node, references, sql, self.dialect.timezone, plain=self.dialect.name != "duckdb")

    # ── patterns, tests and choices ──

    def _text(self, node: exp.Expr) -> tuple[Scalar, str | None]:
        """The subject of a pattern and the pattern; None for NULL."""
        subject, text = self.scalar(node.this), self.scalar(node.expression)
        if not isinstance(text, Literal) or not t.is_string(subject.type):
            raise Refused("a pattern that is no constant, or not over a string")
        if not text.value.is_valid:
            return subject, None
        if not t.is_string(text.type):
            raise Refused(f"a pattern of type {text.type}")
        return subject, text.value.as_py()

    def _starts(self, node: exp.Expr) -> Node:
        subject, text = self._text(node)
        return tree.unknown() if text is None else starts_with(subject, text)

    def _implied(self, node: exp.Expr, range_of: Callable[[Scalar, str], Node | None]) -> Node:
        """A pattern of which only a literal beginning is a range."""
        known(node, "this", "expression")
        subject, text = self._text(node)
        if text is None:
            return tree.unknown()
        implied = range_of(subject, text)
        if implied is None:
            return self._matching(node, subject, None)
        found = self._opaque(node, "only the literal beginning of the pattern is a range")
        return replace(found, implies=implied, strict=True) if isinstance(found, Opaque) else found

    def _matching(self, node: exp.Expr, subject: Scalar, found: Node | None) -> Node:
        """What a pattern says; where that is nothing of the order, it is NULL for NULL alone, and never fails."""
        if found is not None:
            return found
        opaque = self._opaque(node, "a pattern that does not begin with a literal")
        if isinstance(opaque, Opaque) and self.dialect.name in ("duckdb", "spark"):
            return replace(opaque, implies=tree.always(subject), strict=True)
        return opaque

    def _anywhere(self, node: exp.Expr) -> Node:
        """``contains(s, 'p')`` and ``suffix(s, 'p')``."""
        return self._implied(node, lambda subject, text: None)

    def _ilike(self, node: exp.Expr) -> Node:
        escape = "\\" if self.dialect.name == "spark" else None
        return self._implied(node, lambda subject, text: ilike(subject, text, escape))

    def _regex(self, node: exp.Expr) -> Node:
        whole = isinstance(node, exp.SimilarTo | exp.RegexpFullMatch)
        if self.dialect.name not in ("duckdb", "spark"):
            raise Refused(f"regular expressions of {self.dialect.name}")
        subject, text = self._text(node)
        exact = None if text is None else exact_regex(subject, text, whole, self.dialect.name)
        if exact is not None:
            known(node, "this", "expression")
            return exact
        return self._implied(node, lambda subject, text: regex(subject, text, whole))

    def _glob(self, node: exp.Expr) -> Node:
        return self._implied(node, glob)

    def _nan(self, node: exp.Expr) -> Node:
        term = self.scalar(node.this)
        if not t.is_floating(term.type):
            raise Refused(f"isnan over {term.type}")
        found = tree.in_(term, pa.array([math.nan], term.type))
        return tree.is_(found, True) if self.dialect.name == "spark" else found

    def _xor(self, node: exp.Expr) -> Node:
        left, right = self.predicate(node.this), self.predicate(node.expression)
        return tree.or_([tree.and_([left, tree.not_(right)]), tree.and_([tree.not_(left), right])])

    def _prefix_call(self, node: exp.Expr) -> Node:
        if len(node.expressions) != 2:
            raise Refused("prefix() of something other than two")
        return self._starts(exp.StartsWith(this=node.expressions[0], expression=node.expressions[1]))

    def _suffix_call(self, node: exp.Expr) -> Node:
        if len(node.expressions) != 2:
            raise Refused("suffix() of something other than two")
        return self._anywhere(exp.EndsWith(this=node.expressions[0], expression=node.expressions[1]))

    def _null_call(self, node: exp.Expr) -> Node:
        if len(node.expressions) != 1:
            raise Refused("isnull() of something other than one")
        found = chosen(tree.IsNull, self.value(node.expressions[0]))
        return found if node.name.lower() == "isnull" else tree.not_(found)

    def _case(self, node: exp.Expr) -> Node:
        """CASE, IF and COALESCE where a predicate is wanted."""
        if isinstance(node, exp.Coalesce):
            parts = [self.predicate(each) for each in (node.this, *node.expressions)]
            found = parts[-1]
            for part in reversed(parts[:-1]):
                found = tree.choose(tree.is_(part, None), found, part)
            return found
        branches, default = self._branches(node)
        found = tree.unknown() if default is None else self.predicate(default)
        for condition, result in reversed(branches):
            found = tree.choose(condition, self.predicate(result), found)
        return found

    def _branches(self, node: exp.Expr) -> tuple[list[tuple[Node, exp.Expr]], exp.Expr | None]:
        if isinstance(node, exp.If):
            known(node, "this", "true", "false")
            return [(self.predicate(node.this), node.args["true"])], node.args.get("false")
        known(node, "this", "ifs", "default")
        found = []
        for branch in node.args["ifs"]:
            test = branch.this if node.this is None else exp.EQ(this=node.this.copy(), expression=branch.this.copy())
            found.append((self.predicate(test), branch.args["true"]))
        return found, node.args.get("default")

    def value(self, node: exp.Expr) -> Value:
        """A scalar, or a choice of scalars. Raises `Refused`."""
        node = _bare(node)
        if isinstance(node, exp.Case | exp.If):
            branches, default = self._branches(node)
            results = [self.value(each) for _, each in branches]
            last: Value = Literal(pa.scalar(None)) if default is None else self.value(default)
            *results, last = one_kind([*results, last], self.dialect)
            for (condition, _), result in zip(reversed(branches), reversed(results), strict=True):
                last = Choice(condition, result, last)
            return last
        if isinstance(node, exp.Coalesce):
            known(node, "this", "expressions")
            values = one_kind([self.value(each) for each in (node.this, *node.expressions)], self.dialect)
            last = values[-1]
            for each in reversed(values[:-1]):
                last = Choice(chosen(tree.IsNull, each), last, each)
            return last
        if isinstance(node, exp.Nullif):
            left = self.scalar(node.this)
            equal = self._compared("=", left, self.scalar(node.expression), node)
            return Choice(equal, Literal(pa.scalar(None)), left)
        return self.scalar(node)

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
        found = call(self, node)
        if found is not None:
            return found
        raise Refused(f"{self._called(node)} is not a function that zskip knows")

    def _called(self, node: exp.Expr) -> str:
        """What an expression is called where it stands."""
        written = self.source.frozen[node.meta["start"] : node.meta["end"] + 1] if "start" in node.meta else ""
        if isinstance(node, exp.Func) and written.isidentifier():
            return f"{written}()"
        if isinstance(node, exp.Binary):
            between = self.source.frozen[self._place(node.this)[1] : self._place(node.expression)[0]]
            sign = between.strip("()[]'\"` \t\n")
            return sign if 0 < len(sign) <= 3 else _name(node)
        called = re.match(r"(\w+)\(", node.sql(self.dialect.name).lower())
        return f"{called[1]}()" if called and called[1] in self.source.frozen.lower() else _name(node)

    def _column(self, node: exp.Expr) -> Reference:
        parts = list(node.parts) if isinstance(node, exp.Column | exp.Dot) else []
        names = [part.name for part in parts]
        found = self._find(names)
        if found is None and self._inside(names[0]) and not self._is_no_field(names):
            raise Refused(f"{join_path(names)} is not a leaf of its column")
        if found is None:
            shown = join_path(names)
            raise UnknownColumn(
                f"There is no column {in_quotes(shown)}.{nearest(shown, self.schema.columns)}",
                self.source.original,
                self._span(node),
            )
        start, end = self._place(node)
        if start < end:
            self._name(start, end, found)
        return Reference(found.path, found.type)

    def _name(self, start: int, end: int, column: Column) -> None:
        """Notes that a column was bound in this place."""
        entry = (start, end, _quoted(column, self.dialect))
        index = bisect.bisect_left(self._names, entry)
        if self._names[index : index + 1] != [entry]:
            self._names.insert(index, entry)

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

    def _is_no_field(self, names: list[str]) -> bool:
        """Whether a name asks a struct for a field that it lacks."""
        index = next(n for n, name in enumerate(self.schema.arrow.names) if name.lower() == names[0].lower())
        type = self.schema.arrow.types[index]
        if len(names) < 2 or not t.is_struct(type) or self.schema.find(names[1:]) is not None:
            return False
        return names[1].lower() not in {type.field(number).name.lower() for number in range(type.num_fields)}

    def _paths(self, node: exp.Column) -> list[str]:
        """The leaves that a name reads: those of a whole struct, too."""
        try:
            return [self._column(node).path]
        except Refused:
            return self._inside(node.parts[0].name)

    # ── places and refusals ──

    def _refuse(self, node: exp.Expr) -> None:
        if id(node) in self._looked_through:
            return  # within something larger
        for each in node.walk():
            self._looked_through[id(each)] = each
            for kind, name in _NOT_A_PREDICATE.items():
                if isinstance(each, kind):
                    raise UnsupportedSql(
                        f"There is {name} in the predicate: it cannot be planned over one table's rows.",
                        self.source.original,
                        self._whole(each),
                    )
            if isinstance(each, exp.Func) and each.name.lower() in _RUNS_CODE:
                raise UnsupportedSql(
                    f"{each.name}() runs code of its caller's choice: that is no condition on rows.",
                    self.source.original,
                    self._whole(each),
                )

    def _place(self, node: exp.Expr) -> tuple[int, int]:
        metas = [each.meta for each in node.walk() if "start" in each.meta]
        if not metas:
            return (0, 0)
        return min(meta["start"] for meta in metas), max(meta["end"] for meta in metas) + 1

    def _span(self, node: exp.Expr) -> tuple[int, int] | None:
        start, end = self._place(node)
        return self.source.span(start, closed(self.source.frozen, start, end)) if start < end else None

    def _whole(self, node: exp.Expr) -> tuple[int, int] | None:
        """The place of a call or of a query, which the parser gives only in part: with its name and parentheses."""
        text, (start, end) = self.source.frozen, self._place(node)
        if "start" not in node.meta:
            opening = opened(text, start)
            start = opening if isinstance(node, exp.Query) else len(re.sub(r"\w+\s*$", "", text[:opening]))
        end = max(start, end) + text.startswith("(", end)
        end = closed(text, start, end)
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
    exp.ILike: Binder._ilike,
    exp.NullSafeEQ: Binder._distinct,
    exp.NullSafeNEQ: Binder._distinct,
    exp.StartsWith: Binder._starts,
    exp.RegexpLike: Binder._regex,
    exp.RegexpFullMatch: Binder._regex,
    exp.SimilarTo: Binder._regex,
    exp.Glob: Binder._glob,
    exp.Contains: Binder._anywhere,
    exp.EndsWith: Binder._anywhere,
    exp.IsNan: Binder._nan,
    exp.Xor: Binder._xor,
    exp.Case: Binder._case,
    exp.If: Binder._case,
    exp.Coalesce: Binder._case,
}

_NAMED: dict[str, Callable[[Binder, exp.Expr], Node]] = {
    "prefix": Binder._prefix_call,
    "suffix": Binder._suffix_call,
    "isnull": Binder._null_call,
    "isnotnull": Binder._null_call,
}

_ARGUMENTS = {
    "this",
    "expression",
    "expressions",
    "low",
    "high",
    "symmetric",
    "negate",
    "ifs",
    "default",
    "true",
    "false",
    "query",
    "unnest",
    "field",
}


def _plain(node: exp.Expr) -> None:
    """Refuses arguments that no rule here reads: flags of a regular expression, quantifiers."""
    known(node, *_ARGUMENTS)


def _row(node: exp.Expr) -> list[exp.Expr] | None:
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    if isinstance(node, exp.Anonymous) and node.name.lower() in ("row", "struct"):
        return list(node.expressions)
    return None


def _are_computable(columns: Sequence[Column]) -> bool:
    """Whether DuckDB can be asked of these columns: of types that it reads alike, with names that it tells apart."""
    names = {column.parts[:count] for column in columns for count in range(1, len(column.parts) + 1)}
    folded = {tuple(part.lower() for part in name) for name in names}
    return len(folded) == len(names) and all(is_computable(column.type) for column in columns)


def _rounds(*scalars: Scalar) -> bool:
    """Whether floats stand beside other numbers, so that a cast to one type may round."""
    types = {each.type for each in scalars if _kind(each.type) == "number"}
    return len(types) > 1 and any(t.is_floating(each) for each in types)


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


def _are_comparable(left: pa.DataType, right: pa.DataType, literal: bool) -> bool:
    """Whether a dialect compares two types at all; a text's ``literal`` beside any."""
    kinds = {_kind(left), _kind(right)}
    return ("string" in kinds and literal) or kinds not in _NEVER_COMPARED


_NEVER_COMPARED = ({"moment", "number"}, {"moment", "boolean"}, {"moment", "time"}, {"time", "number"})

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
