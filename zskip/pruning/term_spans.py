"""`Terms`: the span of each scalar in each unit, computed once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from zskip.expr.tree import Call, Literal, Reference, Scalar
from zskip.functions import FUNCTIONS
from zskip.intervals.spans import Span, key_family, of_column
from zskip.pruning.budget import Budget
from zskip.pruning.enumeration import Points
from zskip.pruning.evidence import Evidence
from zskip.stats import Statistics

__all__ = ["Terms"]


_REMEMBERED = 64
"""Terms whose spans are kept for another look: those of a predicate with thousands would fill the memory."""

_LONG_TEXT, _TEXTS = 1 << 10, 1 << 24
"""Bytes of a constant, and of its copies for all units: a longer one is taken for any text."""

_MANY_ARGUMENTS, _ARGUMENTS = 64, 1 << 20
"""Arguments of a call, and their spans in all units: of more, the result is taken for any value."""


class Terms:
    """The spans of scalars over the units of some statistics.

    ``points`` where each unit is a single value, for which DuckDB may compute where ``computing``; ``budget`` for
    trying values; ``evidence`` of the units where there is any.
    """

    def __init__(
        self,
        statistics: Statistics,
        budget: Budget,
        *,
        points: Points | None = None,
        computing: bool = True,
        evidence: Evidence | None = None,
    ) -> None:
        self.statistics, self.budget, self.points, self.computing = statistics, budget, points, computing
        self.evidence = evidence
        self._known: dict[Scalar, Span] = {}

    def at(self, points: Points) -> Terms:
        """The same terms over single values."""
        return Terms(points.statistics, self.budget, points=points, computing=self.computing)

    def take(self, units: np.ndarray) -> Terms:
        """The same terms over some of the units, by number; without evidence, whose units have other numbers."""
        return Terms(self.statistics.take(units), self.budget, points=self.points, computing=self.computing)

    def __len__(self) -> int:
        return len(self.statistics)

    def __getitem__(self, term: Scalar) -> Span:
        if term not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[term] = self._span(term)
        return self._known[term]

    def _span(self, term: Scalar) -> Span:
        match term:
            case Reference(path, type):
                return of_column(self.statistics.columns.get(path), type, len(self))
            case Literal(value):
                return self._constant(value)
            case Call(name, arguments, _, _):
                if len(arguments) > _MANY_ARGUMENTS and len(arguments) * len(self) > _ARGUMENTS:
                    return Span.anything(term.type, len(self))
                function = FUNCTIONS[name]
                wide = function.wide if key_family(term.type) == "bytes" else None
                return (wide or function.bounds)([self[argument] for argument in arguments], term)

    def _constant(self, value: pa.Scalar) -> Span:
        """A constant in every unit, unless its copies would fill the memory."""
        if value.is_valid and key_family(value.type) == "bytes":
            size = len(value.as_buffer()) if hasattr(value, "as_buffer") else 0
            if size > _LONG_TEXT and size * len(self) > _TEXTS:
                return Span.anything(value.type, len(self))
        return Span.constant(value, len(self))
