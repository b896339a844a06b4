"""`Predicate`: a bound tree with the text that it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from zskip.core.schema import Schema
from zskip.errors import InvalidOption
from zskip.language import tree
from zskip.language.tree import Node

__all__ = ["Dialect", "Predicate", "conjunction"]

_REPR_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Dialect:
    """The SQL dialect and session settings that define a predicate's meaning.

    ``name``: "duckdb" and "spark" are fully supported; of other dialects only the common core is. ``timezone``: the
    session's time zone, an IANA name. ``ansi``: Spark's ANSI mode, in which invalid casts and overflows raise.
    """

    name: str = "duckdb"
    timezone: str = "UTC"
    ansi: bool = True


@dataclass(frozen=True, eq=False)
class Predicate:
    """A WHERE condition bound to a table's schema.

    ``text``: as the user wrote it. ``bound_text``: the SQL that engines run, with constants in place of now() and
    parameters, and columns by their exact names. ``parts``: the conjuncts of an AND; empty for any other predicate.
    """

    text: str
    bound_text: str
    tree: Node
    schema: Schema
    dialect: Dialect
    parts: tuple[Predicate, ...] = ()

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= _REPR_CHARACTERS else self.text[: _REPR_CHARACTERS - 1] + "…"
        return f"<Predicate: {text}>"

    @cached_property
    def columns(self) -> frozenset[str]:
        """The paths of the columns that the predicate reads."""
        return tree.columns(self.tree)

    @cached_property
    def depth(self) -> int:
        """The depth of the tree, in levels of recursion."""
        return tree.depth(self.tree)

    @property
    def conjuncts(self) -> tuple[Predicate, ...]:
        """The conjuncts of an AND; any other predicate is its own single conjunct."""
        return self.parts or (self,)

    def sql(self, dialect: str | None = None) -> str | None:
        """SQL text for an engine, in the predicate's own dialect by default; None if another cannot express it."""
        if dialect is None or dialect == self.dialect.name:
            return self.bound_text
        from zskip.language.render import render

        return render(self.tree, dialect)

    def __str__(self) -> str:
        return self.text


def conjunction(predicates: Sequence[Predicate]) -> Predicate:
    """The AND of predicates over one schema. Raises `InvalidOption` for none, and for different dialects."""
    if not predicates:
        raise InvalidOption("A conjunction needs at least one predicate.")
    if len({predicate.dialect for predicate in predicates}) > 1:
        raise InvalidOption("Predicates of different dialects cannot be joined.")
    parts = tuple(part for predicate in predicates for part in predicate.conjuncts)
    if len(parts) == 1:
        return parts[0]
    return Predicate(
        " AND ".join(f"({part.text})" for part in parts),
        " AND ".join(f"({part.bound_text})" for part in parts),
        tree.and_([part.tree for part in parts]),
        predicates[0].schema,
        predicates[0].dialect,
        parts,
    )
