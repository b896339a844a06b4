"""`Function`: everything that zskip knows about one SQL function, and the interface that binding offers to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import pyarrow as pa
from sqlglot import exp

from zskip.expr.bound import Dialect
from zskip.expr.tree import Call, Scalar
from zskip.intervals.spans import Span

__all__ = ["Arguments", "Bounds", "Builder", "Function", "Image"]


class Arguments(Protocol):
    """What the binding of a call may ask of the binding around it."""

    dialect: Dialect

    def scalar(self, node: exp.Expr) -> Scalar:
        """The term that an argument is. Raises `Refused` for what zskip does not know."""
        ...


Builder: TypeAlias = Callable[[Arguments, exp.Expr], Scalar]
"""The term that a parsed call is, with the type of its result. Raises `Refused`."""

Bounds: TypeAlias = Callable[[list[Span], Call], Span]
"""The span of the result in each unit, from those of the arguments."""

Image: TypeAlias = Callable[[Call, pa.Scalar], bool]
"""Whether a function may ever give a value, wherever its argument lies."""


@dataclass(frozen=True, slots=True)
class Function:
    """One function: how it is bound, how its bounds follow from its arguments', and its line of documentation.

    ``name``: what a `Call` of it carries. ``parsed``: the parser's expressions that are this function, and ``named``
    the calls by name that the parser does not know. ``spellings``: of a part of a date, as EXTRACT and DATE_PART name
    it. ``wide``: the bounds of a decimal result of more than 18 digits. ``may_give``: None where it may give every
    value between its bounds. ``duckdb``: its names in DuckDB's parser, where DuckDB may compute it for single values.
    """

    name: str
    spelled: str
    types: str
    rule: str
    bounds: Bounds
    parsed: Mapping[type[exp.Expr], Builder] = field(default_factory=dict)
    named: Mapping[str, Builder] = field(default_factory=dict)
    spellings: tuple[str, ...] = ()
    wide: Bounds | None = None
    may_give: Image | None = None
    dialects: tuple[str, ...] = ("duckdb", "spark")
    duckdb: tuple[str, ...] = ()
