"""`Function`: the entry of one SQL function; `ArgumentBinder`, by which it binds its arguments; parsed arguments and
types."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import pyarrow as pa
from sqlglot import exp

from zskip.core import types as t
from zskip.language.bound import Dialect
from zskip.language.intervals.spans import Span
from zskip.language.literals import Refused
from zskip.language.tree import Call, Scalar


class ArgumentBinder(Protocol):
    """The interface of the binder that the binding of a call uses."""

    dialect: Dialect

    def scalar(self, node: exp.Expr) -> Scalar:
        """Binds an expression as a scalar. Raises `Refused` for unsupported expressions."""
        ...


Builder: TypeAlias = Callable[[ArgumentBinder, exp.Expr], Scalar]
"""Binds a parsed call to a term with the type of its result. Raises `Refused`."""

Bounds: TypeAlias = Callable[[list[Span], Call], Span]
"""Computes the span of the result in each unit from the spans of the arguments."""


@dataclass(frozen=True, slots=True)
class Function:
    """One SQL function.

    ``name``: in a `Call` · ``spelled``, ``types``, ``rule``: its row in docs/predicates.md · ``bounds``: of the result
    · ``parsed``: how the parser's expressions for it are bound · ``named``: how calls are bound, by name, for which the
    parser has no expression · ``dialects``: those that support it · ``duckdb``: its names in DuckDB's parser, if DuckDB
    may evaluate it
    """

    name: str
    spelled: str
    types: str
    rule: str
    bounds: Bounds
    parsed: Mapping[type[exp.Expr], Builder] = field(default_factory=dict)
    named: Mapping[str, Builder] = field(default_factory=dict)
    dialects: tuple[str, ...] = ("duckdb", "spark")
    duckdb: tuple[str, ...] = ()


def require_only(node: exp.Expr, *names: str) -> None:
    """Raises `Refused` for a node with other arguments than these, which may change its meaning."""
    for name, value in node.args.items():
        if name not in names and value not in (None, False, []):
            raise Refused(f"{node.key.upper()} with {name}")


def whole_number(node: exp.Expr) -> int | None:
    """The value of an integer literal, or of a string literal with an integer; None for any other expression."""
    if isinstance(node, exp.Literal) and re.fullmatch(
        r"-?[0-9]{1,18}" if node.is_string else "[0-9]{1,1000}", node.this
    ):
        return int(node.this)
    if isinstance(node, exp.Neg) and (inner := whole_number(node.this)) is not None:
        return -inner
    if isinstance(node, exp.Paren):
        return whole_number(node.this)
    return None


_T = exp.DType


def sql_type(node: exp.DataType, dialect: Dialect) -> pa.DataType | None:
    """The Arrow type of a parsed SQL type; None if zskip does not support it."""
    kind = node.this
    if kind == _T.TIMESTAMP:
        return pa.timestamp("us", "UTC") if dialect.name == "spark" else pa.timestamp("us")
    if kind == _T.DECIMAL:
        if not all(parameter.name.isdecimal() for parameter in node.expressions):
            return None
        sizes = [int(parameter.name[:9]) for parameter in node.expressions]
        precision, scale = (*sizes, 0)[:2] if sizes else ((10, 0) if dialect.name == "spark" else (18, 3))
        return pa.decimal128(precision, scale) if 0 < precision <= 38 and 0 <= scale <= precision else None
    if kind in (_T.VARCHAR, _T.TEXT) and node.expressions and dialect.name != "duckdb":
        return None
    tables = (entry.parsed for entry in t.ENTRIES if dialect.name in entry.dialects)
    return next((table[kind.value] for table in tables if kind.value in table), None)
