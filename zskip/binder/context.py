"""`Binding`: the interface of the binder that its rules see; and values under a CASE.

A comparison with a choice of values becomes a choice of comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from sqlglot import exp

from zskip.binder.names import Names
from zskip.binder.source_text import SourceText
from zskip.core.schema import Schema
from zskip.language import tree
from zskip.language.bound import Dialect
from zskip.language.literals import Refused
from zskip.language.tree import Literal, Node, Scalar

_MAX_COMPARISONS = 256
"""Comparisons that one may become; past that it is opaque."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The value ``then`` if the condition is TRUE, else ``otherwise``."""

    condition: Node
    then: Value
    otherwise: Value
    samples: tuple[Scalar, ...] = field(init=False)
    """Of the scalars in the branches, for each type, one constant and one other scalar, if any."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", samples((self.then, self.otherwise)))


Value = Scalar | Choice


def distribute(build: Callable[..., Node], *values: Value) -> Node:
    """The predicate that ``build`` makes of scalars, distributed over the branches of choices among ``values``.

    Raises `Refused` past 256 combinations of branches.
    """
    combinations = math.prod(map(_scalar_count, values))
    if combinations > _MAX_COMPARISONS:
        raise Refused(f"a choice of {combinations} ways")
    return _distribute(build, values)


def _distribute(build: Callable[..., Node], values: tuple[Value, ...]) -> Node:
    for index, value in enumerate(values):
        if isinstance(value, Choice):
            then, otherwise = (
                _distribute(build, (*values[:index], each, *values[index + 1 :]))
                for each in (value.then, value.otherwise)
            )
            return tree.choose(value.condition, then, otherwise)
    return build(*values)


def _scalar_count(value: Value) -> int:
    return _scalar_count(value.then) + _scalar_count(value.otherwise) if isinstance(value, Choice) else 1


def samples(values: Iterable[Value]) -> tuple[Scalar, ...]:
    """One constant and one other scalar, if any, for each type among these values and the branches of choices."""
    found: list[tuple[bool, Scalar]] = []
    for value in values:
        for scalar in value.samples if isinstance(value, Choice) else (value,):
            constant = isinstance(scalar, Literal)
            # Types are compared, since not every extension type has a hash.
            if not any(constant == known and scalar.type == other.type for known, other in found):
                found.append((constant, scalar))
    return tuple(scalar for _, scalar in found)


class Binding(Protocol):
    """The binding of one text. A rule is a function of it and of a parsed expression.

    ``checked``: the parsed expressions, by id, that are known to contain no aggregate and no subquery.
    """

    schema: Schema
    dialect: Dialect
    source: SourceText
    names: Names
    checked: dict[int, exp.Expr]

    def predicate(self, node: exp.Expr) -> Node:
        """Binds an expression as a predicate. Unsupported expressions become opaque."""
        ...

    def scalar(self, node: exp.Expr) -> Scalar:
        """Binds an expression as a scalar. Raises `Refused` for unsupported expressions."""
        ...

    def value(self, node: exp.Expr) -> Value:
        """Binds an expression as a scalar or a choice of scalars. Raises `Refused`."""
        ...
