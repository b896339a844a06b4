"""`Function`: the entry of one SQL function, and `ArgumentBinder`, by which it binds its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import pyarrow as pa
from sqlglot import exp

from zskip.language.bound import Dialect
from zskip.language.intervals.spans import Span
from zskip.language.tree import Call, Scalar


class ArgumentBinder(Protocol):
    """The interface of the binder that the binding of a call uses."""

    dialect: Dialect

    def scalar(self, node: exp.Expr) -> Scalar:
        """Binds an argument. Raises `Refused` for unsupported expressions."""
        ...


Builder: TypeAlias = Callable[[ArgumentBinder, exp.Expr], Scalar]
"""Binds a parsed call to a term with the type of its result. Raises `Refused`."""

Bounds: TypeAlias = Callable[[list[Span], Call], Span]
"""Computes the span of the result in each unit from the spans of the arguments."""

Image: TypeAlias = Callable[[Call, pa.Scalar], bool]
"""Whether a value is in a function's image: whether some argument may yield it."""


@dataclass(frozen=True, slots=True)
class Function:
    """One SQL function.

    ``name``: in a `Call` · ``spelled``, ``types``, ``rule``: its row in docs/predicates.md · ``bounds``: of the result
    · ``parsed``: how the parser's expressions for it are bound · ``named``: how calls are bound, by name, for which the
    parser has no expression · ``spellings``: of a part of a date, in EXTRACT and DATE_PART · ``wide``: the bounds of a
    decimal result of more than 18 digits · ``in_image``: None if every value between the bounds may occur ·
    ``dialects``: those that support it · ``duckdb``: its names in DuckDB's parser, if DuckDB may evaluate it
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
    in_image: Image | None = None
    dialects: tuple[str, ...] = ("duckdb", "spark")
    duckdb: tuple[str, ...] = ()
