"""`Terms`: the span of each scalar in each unit, computed once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from zskip.language.functions import FUNCTIONS
from zskip.language.intervals.spans import Span, key_family, of_column
from zskip.language.tree import Call, Literal, Reference, Scalar
from zskip.pruning.budget import Budget
from zskip.pruning.enumeration import Points
from zskip.pruning.evidence import Evidence
from zskip.stats import Statistics

_MAX_CACHED = 64
"""Terms whose spans are cached: those of a predicate with thousands of terms would fill the memory."""

_LONG_TEXT, _TEXTS = 1 << 10, 1 << 24
"""Bytes of a constant, and of its copies for all units. A constant above both limits may be any value."""

_MANY_ARGUMENTS, _ARGUMENTS = 64, 1 << 20
"""Arguments of a call, and their spans in all units. The result of a call above both limits may be any value."""


class Terms:
    """The spans of scalars over the units of some statistics.

    ``points``: the values, if each unit is a single value; ``use_duckdb``: whether DuckDB may evaluate expressions for
    them. ``budget``: the time for enumeration. ``evidence``: of the units, if there is any.
    """

    def __init__(
        self,
        statistics: Statistics,
        budget: Budget,
        *,
        points: Points | None = None,
        use_duckdb: bool = True,
        evidence: Evidence | None = None,
    ) -> None:
        self.statistics, self.budget, self.points, self.use_duckdb = statistics, budget, points, use_duckdb
        self.evidence = evidence
        self._cache: dict[Scalar, Span] = {}

    def at(self, points: Points) -> Terms:
        """The terms over units of single values."""
        return Terms(points.statistics, self.budget, points=points, use_duckdb=self.use_duckdb)

    def take(self, units: np.ndarray) -> Terms:
        """The terms over some of the units, by number; without evidence, which numbers all units."""
        return Terms(self.statistics.take(units), self.budget, points=self.points, use_duckdb=self.use_duckdb)

    def __len__(self) -> int:
        return len(self.statistics)

    def __getitem__(self, term: Scalar) -> Span:
        if term not in self._cache:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[term] = self._span(term)
        return self._cache[term]

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
        """The span of a constant, or of any value if copies of the constant for all units would fill the memory."""
        if value.is_valid and key_family(value.type) == "bytes":
            size = len(value.as_buffer()) if hasattr(value, "as_buffer") else 0
            if size > _LONG_TEXT and size * len(self) > _TEXTS:
                return Span.anything(value.type, len(self))
        return Span.constant(value, len(self))
