"""`Predicate`: a bound tree with the text that it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from zskip.core.schema import Schema
from zskip.errors import InvalidOption
from zskip.language import tree
from zskip.language.tree import Node

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


_SHOWN_VALUES = 3


@dataclass(frozen=True, slots=True)
class Constant:
    """A value, or a list of values, where SQL text needs a constant."""

    value: object


@dataclass(frozen=True, slots=True)
class Template:
    """SQL text of a dialect with constants in it, which become text only where somebody asks for it."""

    pieces: tuple[str | Constant, ...]
    dialect: str

    def render(self) -> str:
        """The SQL text."""
        from zskip.language.render import literal

        return "".join([each if isinstance(each, str) else literal(each.value, self.dialect) for each in self.pieces])

    def shown(self) -> str | None:
        """The SQL text with few values of each list, for a person; None without parameters and reads of the clock."""
        if all(isinstance(each, str) for each in self.pieces):
            return None
        return "".join([each if isinstance(each, str) else _shown(each.value, self.dialect) for each in self.pieces])


def _shown(value: Any, dialect: str) -> str:
    from zskip.language.literals import is_list
    from zskip.language.render import literal

    if not is_list(value) or len(value) <= _SHOWN_VALUES:
        return literal(value, dialect)
    return f"{literal(value[:_SHOWN_VALUES], dialect)[:-1]}, … {len(value) - _SHOWN_VALUES:,} more)"


@dataclass(frozen=True, eq=False)
class Predicate:
    """A WHERE condition bound to a table's schema.

    ``written``: its text as the user wrote it; None if it was not written as SQL. ``template``: the SQL that engines
    run, with columns by their exact names, and the values of now() and parameters; None if it is rendered from the
    tree. ``parts``: the conjuncts of an AND; empty for any other predicate.
    """

    written: str | None
    template: Template | None
    tree: Node
    schema: Schema
    dialect: Dialect
    parts: tuple[Predicate, ...] = ()

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= _REPR_CHARACTERS else self.text[: _REPR_CHARACTERS - 1] + "…"
        return f"<Predicate: {text}>"

    @cached_property
    def text(self) -> str:
        """The condition for a person: as the user wrote it, or as SQL."""
        return self.written if self.written is not None else self.sql() or "a condition that is not SQL"

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
            return self._own_sql
        from zskip.language.render import render

        return render(self.tree, dialect)

    @cached_property
    def _own_sql(self) -> str | None:
        found = self.as_template()
        return None if found is None else found.render()

    def as_template(self) -> Template | None:
        """Its SQL in its own dialect, with its values; None if the dialect cannot express it."""
        if self.template is not None or not self.parts:
            return self.template or _template(self.tree, self.dialect.name)
        templates = [part.as_template() for part in self.parts]
        known = [each for each in templates if each is not None]
        if len(known) < len(templates):
            return None
        pieces: list[str | Constant] = []
        for each in known:
            pieces += [" AND (" if pieces else "(", *each.pieces, ")"]
        return Template(tuple(pieces), self.dialect.name)

    def __str__(self) -> str:
        return self.text

    def __getstate__(self) -> dict[str, object]:
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}


def conjunction(predicates: Sequence[Predicate]) -> Predicate:
    """The AND of predicates over one schema. Raises `InvalidOption` for none, and for different dialects."""
    if not predicates:
        raise InvalidOption("A conjunction needs at least one predicate.")
    if len({predicate.dialect for predicate in predicates}) > 1:
        raise InvalidOption("Predicates of different dialects cannot be joined.")
    parts = tuple(part for predicate in predicates for part in predicate.conjuncts)
    if len(parts) == 1:
        return parts[0]
    written = [part.written for part in parts]
    return Predicate(
        None if None in written else " AND ".join(f"({text})" for text in written),
        None,
        tree.and_([part.tree for part in parts]),
        predicates[0].schema,
        predicates[0].dialect,
        parts,
    )


def _template(node: Node, dialect: str) -> Template | None:
    from zskip.language.render import render

    sql = render(node, dialect, own=True)
    return None if sql is None else Template((sql,), dialect)


def complement(predicate: Predicate) -> Predicate:
    """TRUE in exactly the rows in which a predicate is FALSE or NULL."""
    own = predicate.as_template()
    if own is not None:
        own = Template(("(", *own.pieces, ") IS NOT TRUE"), own.dialect)
    written = None if predicate.written is None else f"({predicate.written}) IS NOT TRUE"
    node = tree.not_(tree.Is(predicate.tree, True))
    return Predicate(written, own, node, predicate.schema, predicate.dialect)
