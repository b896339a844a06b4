"""A workload as a cost function: the chance that its queries read a box, and the values at which to cut for them.

A condition on one column is represented by the sampled values that can make it TRUE. The planner's evaluator finds
them, so functions, LIKE and IN count exactly as they prune. The values at which such a set begins and ends are the
candidate cuts of a qd-tree (Yang 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from zskip import pruning
from zskip.core.types import is_floating
from zskip.language import Predicate
from zskip.language.tree import And, Node, Or, columns
from zskip.layouts.reads import Boxes, LookUps, Sample
from zskip.stats import Ranges, Statistics


@dataclass(frozen=True, slots=True)
class _Test:
    """A condition on one column: the number of the column, and the condition's number among those on it."""

    column: int
    number: int


_Clause = bool | _Test | tuple[str, tuple["_Clause", ...]]
"""A simplified predicate: a constant, a test, or ("and" | "or", clauses)."""


@dataclass(frozen=True)
class Queries:
    """The chance that each box is read by queries that are similar to a workload's, but not the same.

    ``matching[c][k]``: for each test on column c, how many codes from 1 to k can make it TRUE · ``clauses``: each query
    · ``borders``: for each column, the codes at which a test starts or stops matching · ``weights``: one per query,
    summing to 1, by the bytes of a row that it reads · ``prior``: the share of point look-ups, so that no column is
    ignored · ``shifted``: the weight of the same queries with their ranges shifted anywhere, so that the layout serves
    other parameters too.
    """

    matching: tuple[NDArray[np.int32], ...]
    clauses: tuple[_Clause, ...]
    borders: tuple[NDArray[np.int32], ...]
    look_ups: LookUps
    weights: NDArray[np.float64]
    prior: float = 0.05
    shifted: float = 0.5

    @staticmethod
    def of(sample: Sample, predicates: Sequence[Predicate], look_ups: LookUps, weights: NDArray[np.float64]) -> Queries:
        """Evaluate each predicate's conditions on the values of the sample. ``weights``: one per predicate."""
        number = {column.path: index for index, column in enumerate(sample.columns)}
        matches_of: list[list[NDArray[np.bool_]]] = [[] for _ in sample.columns]

        def clause(predicate: Predicate, node: Node) -> _Clause:
            paths = columns(node)
            if len(paths) == 1 and (column := number.get(next(iter(paths)))) is not None:
                matches = _matches(sample, column, replace(predicate, tree=node, parts=()))
                matches[0] &= bool((sample.codes[column] == 0).any())
                if matches[0] or matches[1:].all():
                    return True  # a NULL may match, and boxes do not record NULL
                matches_of[column].append(matches)
                return _Test(column, len(matches_of[column]) - 1)
            if isinstance(node, And | Or):
                operator = "and" if isinstance(node, And) else "or"
                return (operator, tuple(clause(predicate, part) for part in _by_column(node)))
            return True

        clauses = tuple(clause(predicate, predicate.tree) for predicate in predicates)
        matching, borders = [], []
        for values, tests_of_column in zip(sample.distinct, matches_of, strict=True):
            tests = np.array(tests_of_column, bool).reshape(len(tests_of_column), len(values) + 1).T
            # The last row is for NULL's code in `Sample.codes_null_last`, as in `Sample.cdf`.
            matching.append(np.concatenate([tests.cumsum(axis=0), tests.sum(axis=0)[None]]).astype(np.int32))
            changes = (tests[2:] != tests[1:-1]).any(axis=1)
            borders.append((np.flatnonzero(changes) + 2).astype(np.int32))
        return Queries(tuple(matching), clauses, tuple(borders), look_ups, weights)

    def select(self, columns: Sequence[int], look_ups: LookUps) -> Queries:
        """The same queries over a sample with its columns in another order. ``look_ups``: those on that sample."""
        position = {number: index for index, number in enumerate(columns)}

        def renumbered(clause: _Clause) -> _Clause:
            if isinstance(clause, _Test):
                return _Test(position[clause.column], clause.number)
            return clause if isinstance(clause, bool) else (clause[0], tuple(map(renumbered, clause[1])))

        return replace(
            self,
            matching=tuple(self.matching[number] for number in columns),
            clauses=tuple(map(renumbered, self.clauses)),
            borders=tuple(self.borders[number] for number in columns),
            look_ups=look_ups,
        )

    def __call__(self, boxes: Boxes) -> NDArray[np.float64]:
        read: NDArray[np.float64] = (1 - self.prior) * (self.weights @ self.chances(boxes))
        return read + self.prior * self.look_ups(boxes)

    def matches(self, boxes: Boxes) -> NDArray[np.bool_]:
        """Whether each query may match each box: an array (queries, boxes)."""
        return self._matched(self._tests(boxes))

    def chances(self, boxes: Boxes) -> NDArray[np.float64]:
        """The chance that a query similar to each one of the workload reads each box: an array (queries, boxes)."""
        tests = self._tests(boxes)
        return (1 - self.shifted) * self._matched(tests) + self.shifted * self._matched_if_shifted(tests, boxes)

    def _tests(self, boxes: Boxes) -> NDArray[np.bool_]:
        """Whether each box may pass each test: an array (boxes, tests)."""
        return np.concatenate(
            [
                matching[boxes.upper[:, column]] > matching[boxes.lower[:, column] - 1]
                for column, matching in enumerate(self.matching)
            ],
            axis=1,
        )

    def _matched(self, tests: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether each query may match each box, from the boxes' tests: an array (queries, boxes)."""
        matched = np.ones((len(self.clauses), len(tests)), bool)
        queries, terms = self._conjunctions
        if len(queries):
            all_of = tests[:, terms[0]]
            for term in terms[1:]:
                all_of[:, : len(term)] &= tests[:, term]
            matched[queries] = all_of.T
        for number in self._others.tolist():
            matched[number] = _evaluate(self.clauses[number], tests, self._first)
        return matched

    def _matched_if_shifted(self, tests: NDArray[np.bool_], boxes: Boxes) -> NDArray[np.float64]:
        """The chance that each query reads each box if its ranges are shifted anywhere in their columns.

        A range that covers a share w of a column overlaps a box of extent e with a chance of about e + w.
        """
        chance = tests.astype(np.float64)
        for column, (range_tests, widths) in enumerate(self._ranges):
            if len(range_tests):
                extent = self.look_ups.extents(boxes, column)[:, None]
                chance[:, range_tests] = np.where(extent > 0, np.minimum(extent + widths, 1.0), chance[:, range_tests])
        queries, terms = self._conjunctions
        matched = np.ones((len(self.clauses), len(boxes)))
        if len(queries):
            all_of = chance[:, terms[0]]
            for term in terms[1:]:
                all_of[:, : len(term)] *= chance[:, term]
            matched[queries] = all_of.T
        for number in self._others.tolist():
            matched[number] = _evaluate(self.clauses[number], tests, self._first)
        return matched

    @cached_property
    def _others(self) -> NDArray[np.int64]:
        """The numbers of the queries that are not plain conjunctions."""
        return np.setdiff1d(np.arange(len(self.clauses)), self._conjunctions[0])

    @cached_property
    def _ranges(self) -> tuple[tuple[NDArray[np.int64], NDArray[np.float64]], ...]:
        """For each column: the tests that match a single range inside the column, and the ranges' widths.

        The width is reduced by that of one value: in a column of few values, ranges and boxes overlap by whole values.
        """
        ranges = []
        for column, matching in enumerate(self.matching):
            cdf = self.look_ups.sample.cdf[column]
            share = np.diff(cdf)
            value_width = float((share * share).sum())
            matches = np.diff(matching, axis=0) > 0
            first, last = matches.argmax(axis=0) + 1, len(matches) - matches[::-1].argmax(axis=0)
            inside = (first > 1) & (last < len(self.look_ups.sample.distinct[column])) & matches.any(axis=0)
            inside &= matches.sum(axis=0) == last - first + 1
            widths = np.maximum(cdf[last] - cdf[first - 1] - value_width, 0.0)
            number = np.flatnonzero(inside)
            ranges.append((number + int(self._first[column]), widths[number]))
        return tuple(ranges)

    @cached_property
    def _first(self) -> NDArray[np.int64]:
        """The number of each column's first test among the tests of all columns."""
        counts = [matching.shape[1] for matching in self.matching]
        first: NDArray[np.int64] = np.cumsum(counts) - counts
        return first

    @cached_property
    def _conjunctions(self) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
        """The numbers of the queries that are plain conjunctions, those of most tests first, and their tests.

        The tests are arrays for evaluating all these queries together: the first test of each query, the second test of
        those that have two, and so on.
        """
        conjunctions: list[tuple[int, list[int]]] = []
        for number, clause in enumerate(self.clauses):
            parts = clause[1] if isinstance(clause, tuple) and clause[0] == "and" else (clause,)
            tests = [int(self._first[part.column]) + part.number for part in parts if isinstance(part, _Test)]
            if tests and all(part is True or isinstance(part, _Test) for part in parts):
                conjunctions.append((number, tests))
        conjunctions.sort(key=lambda pair: -len(pair[1]))
        most = len(conjunctions[0][1]) if conjunctions else 0
        terms = [np.array([tests[n] for _, tests in conjunctions if len(tests) > n], np.int64) for n in range(most)]
        return np.array([number for number, _ in conjunctions], np.int64), terms


def _by_column(node: And | Or) -> list[Node]:
    """The parts of a node. A conjunction's parts on the same single column are combined, such as a range's bounds."""
    if isinstance(node, Or):
        return list(node.parts)
    groups: dict[frozenset[str] | int, list[Node]] = {}
    for number, part in enumerate(node.parts):
        paths = frozenset(columns(part))
        groups.setdefault(paths if len(paths) == 1 else number, []).append(part)
    return [parts[0] if len(parts) == 1 else And(tuple(parts)) for parts in groups.values()]


def _evaluate(clause: _Clause, tests: NDArray[np.bool_], first: NDArray[np.int64]) -> NDArray[np.bool_] | bool:
    """Whether each box may match a clause. ``first``: the number of each column's first test."""
    if isinstance(clause, bool):
        return clause
    if isinstance(clause, _Test):
        return tests[:, int(first[clause.column]) + clause.number]
    operator, parts = clause
    result: NDArray[np.bool_] | bool = operator == "and"
    for part in parts:
        value = _evaluate(part, tests, first)
        result = (result & value) if operator == "and" else (result | value)
    return result


def _matches(sample: Sample, column: int, predicate: Predicate) -> NDArray[np.bool_]:
    """Whether each code can make a predicate on one column TRUE: NULL first, then each distinct value.

    Queries may ask for values that the sample lacks; these belong to the code of the sampled value before them.

        sampled values      10        20
        x = 13                  *             matches the code of 10
    """
    values = sample.distinct[column]
    nan = pc.is_nan(values) if is_floating(values.type) else pa.array(np.zeros(len(values), bool))
    bound = pa.concat_arrays([pa.nulls(1, values.type), pc.if_else(nan, pa.scalar(None, values.type), values)])
    is_nan = np.concatenate([[False], nan.to_numpy(zero_copy_only=False)])
    is_null = np.arange(len(bound)) == 0
    matches = _may_match(sample, column, predicate, Ranges(
        bound, bound, pa.array(~is_null & ~is_nan), pa.array(is_null), pa.array(is_nan)
    ))  # fmt: skip
    numbers = len(values) - int(is_nan.sum())  # NaN is last
    if numbers > 1:
        before, after = bound.slice(1, numbers - 1), bound.slice(2, numbers - 1)
        yes, no = pa.array(np.ones(numbers - 1, bool)), pa.array(np.zeros(numbers - 1, bool))
        between = _may_match(sample, column, predicate, Ranges(before, after, yes, no, no))
        matches[1:numbers] |= between & ~matches[2 : numbers + 1]
    return matches


def _may_match(sample: Sample, column: int, predicate: Predicate, ranges: Ranges) -> NDArray[np.bool_]:
    """Whether a predicate may match in each range of one column."""
    count = pa.array(np.ones(len(ranges.lower), np.int64))
    statistics = Statistics(count, {sample.columns[column].path: ranges})
    return np.asarray(pruning.outcomes(predicate, statistics).may_match, bool).copy()
