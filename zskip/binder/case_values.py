"""CASE over values: a comparison with a choice of values becomes a choice of comparisons."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from zskip.expr import tree
from zskip.expr.literals import Refused
from zskip.expr.tree import Literal, Node, Scalar

__all__ = ["Choice", "Value", "chosen", "samples"]

_MOST = 256
"""Comparisons that one may become: past it, the choice is left to the engine."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """``then`` where the condition is TRUE, else ``otherwise``."""

    condition: Node
    then: Value
    otherwise: Value
    samples: tuple[Scalar, ...] = field(init=False)
    """Of the scalars that are chosen among, for each type a constant and another, where there are such."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", samples((self.then, self.otherwise)))


Value = Scalar | Choice


def chosen(build: Callable[..., Node], *values: Value) -> Node:
    """The predicate over scalars for every way through the choices among them. Raises `Refused` past 256 ways."""
    ways = 1
    for value in values:
        ways *= _ways(value)
    if ways > _MOST:
        raise Refused(f"a choice of {ways} ways")
    return _chosen(build, values)


def _chosen(build: Callable[..., Node], values: tuple[Value, ...]) -> Node:
    for index, value in enumerate(values):
        if isinstance(value, Choice):
            then, otherwise = (
                _chosen(build, (*values[:index], each, *values[index + 1 :])) for each in (value.then, value.otherwise)
            )
            return tree.choose(value.condition, then, otherwise)
    return build(*values)


def _ways(value: Value) -> int:
    return _ways(value.then) + _ways(value.otherwise) if isinstance(value, Choice) else 1


def samples(values: Iterable[Value]) -> tuple[Scalar, ...]:
    """For each type of these values, and of the scalars that they choose among: a constant and another, if any."""
    found: list[tuple[bool, Scalar]] = []
    for value in values:
        for scalar in value.samples if isinstance(value, Choice) else (value,):
            constant = isinstance(scalar, Literal)
            # By comparison, for not every extension type has a hash.
            if not any(constant == known and scalar.type == other.type for known, other in found):
                found.append((constant, scalar))
    return tuple(scalar for _, scalar in found)
