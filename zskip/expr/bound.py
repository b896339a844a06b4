"""`Predicate`: a bound tree with the text that it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from zskip.errors import InvalidOption
from zskip.expr import tree
from zskip.expr.tree import Node
from zskip.schema import Schema

__all__ = ["Dialect", "Predicate", "conjunction"]

_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Dialect:
    """Whose rules the predicate follows: "duckdb" or "spark" are known, of others only the common core.

    ``timezone``: the session's, an IANA name. ``ansi``: Spark's ANSI mode, in which casts and overflows raise.
    """

    name: str = "duckdb"
    timezone: str = "UTC"
    ansi: bool = True


@dataclass(frozen=True, eq=False)
class Predicate:
    """What a WHERE clause says of a table's columns, bound to their types.

    ``text``: as the user wrote it. ``frozen``: the same for the engine, with now() and parameters as constants and
    columns by their exact names. ``conjuncts``: the parts that AND holds together, at least one.
    """

    text: str
    frozen: str
    tree: Node
    schema: Schema
    dialect: Dialect
    parts: tuple[Predicate, ...] = ()

    def __repr__(self) -> str:
        shown = self.text if len(self.text) <= _SHOWN else self.text[: _SHOWN - 1] + "…"
        return f"<Predicate: {shown}>"

    @cached_property
    def columns(self) -> frozenset[str]:
        """The paths of the columns that it reads."""
        return tree.columns(self.tree)

    @cached_property
    def depth(self) -> int:
        """Predicates above one another: what a recursive walk needs of stack."""
        return tree.depth(self.tree)

    @property
    def conjuncts(self) -> tuple[Predicate, ...]:
        """The parts that AND holds together; a predicate that is no AND is its own only part."""
        return self.parts or (self,)

    def sql(self, dialect: str | None = None) -> str | None:
        """The text that an engine runs, in the predicate's own dialect by default; None where it cannot be said."""
        if dialect is None or dialect == self.dialect.name:
            return self.frozen
        from zskip.expr.render import render

        return render(self.tree, dialect)

    def __str__(self) -> str:
        return self.text


def conjunction(predicates: Sequence[Predicate]) -> Predicate:
    """One predicate that says all of them. They must be of one dialect, and there must be one at least."""
    if not predicates:
        raise InvalidOption("A conjunction needs one predicate at least.")
    if len({predicate.dialect for predicate in predicates}) > 1:
        raise InvalidOption("Predicates of different dialects cannot be joined.")
    parts = tuple(part for predicate in predicates for part in predicate.conjuncts)
    if len(parts) == 1:
        return parts[0]
    return Predicate(
        " AND ".join(f"({part.text})" for part in parts),
        " AND ".join(f"({part.frozen})" for part in parts),
        tree.and_([part.tree for part in parts]),
        predicates[0].schema,
        predicates[0].dialect,
        parts,
    )
