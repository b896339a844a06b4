"""Compile a bound tree into a proof, once, and evaluate the proof for all units together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.expr import Predicate
from zskip.expr.tree import (
    And,
    Call,
    Choose,
    Compare,
    Computable,
    Contains,
    In,
    Is,
    IsNull,
    Literal,
    Node,
    Not,
    Opaque,
    Or,
    Reference,
    Scalar,
)
from zskip.expr.why import Why
from zskip.intervals.spans import key_family
from zskip.pruning.budget import Budget
from zskip.pruning.column_comparison import compared
from zskip.pruning.constant_comparison import Steps
from zskip.pruning.duckdb_evaluation import computed
from zskip.pruning.enumeration import can_be_tried, narrowed_by_values
from zskip.pruning.evidence import Evidence, EvidenceOfUnits
from zskip.pruning.merge_conditions import merged_by_term, split_ranges, split_row_values
from zskip.pruning.outcomes import FAIL, FALSE, NULL, TRUE, Outcomes, all_of, any_of
from zskip.pruning.row_values import Rows
from zskip.pruning.term_spans import Terms
from zskip.stats import Statistics

__all__ = ["outcomes"]

ANYTHING = TRUE | FALSE | NULL | FAIL

MOST_PROVED = 2_000
"""Conditions that are proved each on its own, after all of one term are merged; what is beyond them is kept."""

FEWER_PROVED = ((2_500, 200),)
"""Beyond so many units, so many: the time of a proof grows with both."""

_MANY = 1 << 12
"""Units of which it pays to leave some out."""


def outcomes(
    predicate: Predicate,
    statistics: Statistics,
    evidence: Evidence | None = None,
    *,
    budget: Budget | None = None,
    computing: bool = True,
) -> Outcomes:
    """The outcomes that the predicate can have for the rows of each unit: a superset of the actual ones.

    ``evidence``: used for the units that ranges leave undecided · ``budget``: the time for enumeration, if several
    calls share it · ``computing``: whether DuckDB may evaluate expressions without a rule.

    >>> import pyarrow as pa
    >>> from zskip.binder import bind
    >>> from zskip.schema import Schema
    >>> from zskip.stats import Ranges
    >>> no = pa.array([False, False])
    >>> x = Ranges(pa.array([1, 7]), pa.array([4, 9]), pa.array([True, True]), no, no)
    >>> large = bind("x > 5", Schema(pa.schema({"x": pa.int64()})))
    >>> found = outcomes(large, Statistics(pa.array([10, 10]), {"x": x}))
    >>> found.may_match.tolist(), found.all_match.tolist()
    ([False, True], [False, True])
    """
    budget = budget or Budget()
    terms = Terms(statistics, budget, computing=computing)
    try:
        found = _ask_in_turn(proof_for(predicate, len(terms)), terms)
        left = np.flatnonzero(found.may_match & ~found.all_match)
        if evidence is not None and len(left):
            narrower = EvidenceOfUnits(evidence, left)
            few = Terms(statistics.take(left), budget, computing=computing, evidence=narrower)
            found = found.updated(left, _ask(proof_for(predicate, len(few)), few))
    except RecursionError:
        # Kept, because a caller deep in its own stack leaves too little of it for a proof.
        return Outcomes.of(ANYTHING, len(terms))
    has_rows = np.asarray(pc.fill_null(statistics.row_count, 1)) != 0
    return found if has_rows.all() else found.where(has_rows)


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """AND or OR of proofs about different terms."""

    conjunction: bool
    parts: tuple[Proof, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Negated:
    part: Proof


@dataclass(frozen=True, slots=True, eq=False)
class Tested:
    part: Proof
    outcome: bool | None


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    condition: Proof
    then: Proof
    otherwise: Proof


@dataclass(frozen=True, slots=True, eq=False)
class Implied:
    """An opaque predicate that is TRUE only where ``implies`` is."""

    opaque: Opaque
    implies: Proof


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """A proof, and the expression that DuckDB evaluates for single values of its columns."""

    part: Proof
    question: Computable


@dataclass(frozen=True, slots=True, eq=False)
class Tried:
    """A proof that is evaluated for each value of its columns where a unit's ranges hold few."""

    part: Proof
    columns: tuple[Reference, ...]


Proof = Computed | Tried | Steps | Rows | Joint | Negated | Tested | Chosen | Implied | Compare | Opaque | Contains


_proofs: WeakKeyDictionary[Predicate, dict[int, Proof]] = WeakKeyDictionary()
"""By how many conditions they may hold. Proofs live as long as their predicate: they hold as much as that does."""

_cut_short: WeakKeyDictionary[Predicate, set[int]] = WeakKeyDictionary()


def _most_proved(units: int) -> int:
    return min([MOST_PROVED, *(most for above, most in FEWER_PROVED if units > above)])


def proof_for(predicate: Predicate, units: int) -> Proof:
    most, proofs = _most_proved(units), _proofs.setdefault(predicate, {})
    found = proofs.get(most)
    if found is None:
        room = _Room(most)
        found = proofs[most] = _with_trials(proof_of(predicate.tree, room))
        if room.is_exceeded:
            _cut_short.setdefault(predicate, set()).add(most)
    return found


def conditions_proved(predicate: Predicate, units: int) -> int | None:
    """The number of conditions that `outcomes` proves over so many units, where a predicate holds more; else None."""
    most = _most_proved(units)
    return most if most in _cut_short.get(predicate, ()) else None


class _Room:
    """How many more conditions of a predicate are proved."""

    __slots__ = ("is_exceeded", "left")

    def __init__(self, most: int) -> None:
        self.left, self.is_exceeded = most, False

    def is_full(self) -> bool:
        self.is_exceeded |= self.left <= 0
        return self.left <= 0


def _with_trials(proof: Proof) -> Proof:
    """The proof, with a trial around each part that reads one column in more than one way, or through a function, and
    around each of several columns that DuckDB computes."""
    columns = {column for term in frozenset(_terms(proof)) for column in _references(term)}
    if len(columns) == 1:
        (column,) = columns
        plain = isinstance(proof, Steps) and proof.term == column
        worth = _asks(proof) or (can_be_tried(column.type) and not plain)
        return Tried(proof, (column,)) if worth else proof
    if isinstance(proof, Joint):
        groups: dict[frozenset[Reference], list[Proof]] = {}
        for part in proof.parts:
            groups.setdefault(frozenset(c for term in _terms(part) for c in _references(term)), []).append(part)
        parts: list[Proof] = []
        for found, group in groups.items():
            joined = len(found) == 1 and 1 < len(group) < len(proof.parts)
            parts += [_with_trials(Joint(proof.conjunction, tuple(group)))] if joined else map(_with_trials, group)
        return Joint(proof.conjunction, tuple(parts))
    if isinstance(proof, Negated):
        return Negated(_with_trials(proof.part))
    if isinstance(proof, Computed):
        return Tried(Computed(_with_trials(proof.part), proof.question), proof.question.columns)
    return proof


def children(proof: Proof) -> tuple[Proof, ...]:
    """The proofs directly under one."""
    match proof:
        case Joint(_, parts):
            return parts
        case Negated(part) | Tested(part, _) | Tried(part, _) | Computed(part, _):
            return (part,)
        case Chosen(condition, then, otherwise):
            return (condition, then, otherwise)
        case Implied(opaque, implies):
            return (opaque, implies)
    return ()


def _terms(proof: Proof) -> Iterator[Scalar]:
    """The scalars that a proof reads."""
    match proof:
        case Steps() | Contains():
            yield proof.term
        case Rows():
            yield from proof.terms
        case Compare(_, left, right):
            yield from (left, right)
        case Computed(_, question):
            yield from question.columns
        case Opaque(paths=paths):
            # Without a type, of which no values can be enumerated.
            yield from (Reference(path, pa.null()) for path in paths)
        case _:
            for part in children(proof):
                yield from _terms(part)


def _asks(proof: Proof) -> bool:
    """Whether DuckDB may be asked anything."""
    return isinstance(proof, Computed) or any(map(_asks, children(proof)))


def _references(term: Scalar) -> Iterator[Reference]:
    match term:
        case Reference():
            yield term
        case Call(_, arguments, _, _):
            for argument in arguments:
                yield from _references(argument)


_BEYOND = Opaque("", (), Why("too many conditions"))


def proof_of(node: Node, room: _Room | None = None) -> Proof:
    """The proof of a node: all conditions on one term become one step function. Beyond the ``room``, units are kept."""
    room = room or _Room(MOST_PROVED)
    if room.is_full():
        return _BEYOND
    match node:
        case Compare(op, left, right):
            room.left -= 1
            return _comparison(op, left, right, node)
        case In(term, values, or_null):
            room.left -= 1
            return Steps.among(term, values, or_null) if key_family(term.type) else _opaque(term, node)
        case IsNull(term):
            room.left -= 1
            return Steps.is_null(term)
        case And(parts) | Or(parts):
            conjunction = isinstance(node, And)
            ranges, rest = split_ranges(merged_by_term(parts, conjunction), conjunction)
            steps = [Steps.within(term, *ends) for term, ends in ranges.items()]
            rows, rest = split_row_values(rest, conjunction)
            points: list[Proof] = [Rows.among(terms, constants) for terms, constants in rows.items()]
            if conjunction:
                steps, points = [each.negated() for each in steps], [Negated(each) for each in points]
            return _joint(conjunction, [*_proofs_of(rest, room), *steps, *points])
        case Not(part):
            inner = proof_of(part, room)
            return inner.negated() if isinstance(inner, Steps) else Negated(inner)
        case Is(part, outcome):
            inner = proof_of(part, room)
            return inner.tested(outcome) if isinstance(inner, Steps) else Tested(inner, outcome)
        case Choose(condition, then, otherwise):
            return Chosen(proof_of(condition, room), proof_of(then, room), proof_of(otherwise, room))
        case Contains():
            room.left -= 1
            return node
        case Opaque(implies=implies):
            room.left -= 1
            return node if implies is None else Implied(node, proof_of(implies, room))
        case Computable(part):
            return Computed(proof_of(part, room), node)


def _proofs_of(parts: Sequence[Node], room: _Room) -> Iterator[Proof]:
    """The proofs of the parts, as far as there is room; one that may yield anything stands for the others."""
    for part in parts:
        yield proof_of(part, room)
        if room.is_exceeded:
            yield _BEYOND
            return


def _opaque(term: Scalar, node: In) -> Proof:
    if len(node.values) == 0:
        # Never TRUE, whatever the type: FALSE for a value, NULL for NULL.
        return Steps.is_null(term)._mapped(
            np.array([0, NULL if node.or_null else FALSE, 0, 0, 0, 0, 0, 0] * 2, np.uint8)
        )
    return Opaque("", (), Why(f"IN over {term.type}"))


def _comparison(op: str, left: Scalar, right: Scalar, node: Compare) -> Proof:
    if isinstance(right, Literal) and not isinstance(left, Literal):
        if op == "=":
            return Steps.among(left, pa.array([right.value], right.type), False)
        return Steps.below(left, right.value, op == "<=")
    if isinstance(left, Literal) and not isinstance(right, Literal):
        if op == "=":
            return Steps.among(right, pa.array([left.value], left.type), False)
        # 5 < x is NOT x <= 5: NULL stays NULL under NOT.
        return Steps.below(right, left.value, op == "<").negated()
    return node


def _joint(conjunction: bool, parts: Sequence[Proof]) -> Proof:
    """AND or OR: all steps of one term are merged first."""
    by_term: dict[Scalar, list[Steps]] = {}
    others: list[Proof] = []
    for part in parts:
        if isinstance(part, Steps):
            by_term.setdefault(part.term, []).append(part)
        else:
            others.append(part)
    merge = Steps.all_of if conjunction else Steps.any_of
    merged: list[Proof] = [merge(group) for group in by_term.values()]
    if len(merged) + len(others) == 1:
        return (merged or others)[0]
    return Joint(conjunction, (*merged, *others))


def _ask_in_turn(proof: Proof, terms: Terms) -> Outcomes:
    """The outcomes of a whole predicate; of many units only those that the first part of an AND leaves are asked of the
    others. Of units that cannot match, no more is proved than that."""
    if not isinstance(proof, Joint) or not proof.conjunction or len(terms) < _MANY:
        return _ask(proof, terms)
    # What is tried, value by value, comes last.
    first, *others = sorted(proof.parts, key=lambda part: isinstance(part, Tried))
    found = _ask(first, terms)
    left = np.flatnonzero(found.can_be_true)
    if len(left) > len(terms) // 8:
        return all_of([found, *(_ask(part, terms) for part in others)])
    rest = terms.take(left)
    among = all_of([found.take(left), *(_ask(part, rest) for part in others)])
    return Outcomes.of(FALSE | NULL | FAIL, len(terms)).updated(left, among)


def _ask(proof: Proof, terms: Terms) -> Outcomes:
    match proof:
        case Tried(part, columns):
            found = _ask(part, terms)
            if terms.points is not None or terms.budget.is_spent:
                return found
            spans = [terms[column] for column in columns]
            with terms.budget:
                return narrowed_by_values(
                    found, spans, terms.statistics, columns, lambda points: _ask(part, terms.at(points))
                )
        case Computed(part, question):
            found = _ask(part, terms)
            if terms.points is None or not terms.computing:
                return found
            return computed(found, question, terms.points.values, terms.budget)
        case Steps():
            return proof.outcomes(terms[proof.term], terms.evidence)
        case Rows():
            return proof.outcomes([terms[each] for each in proof.terms], terms.evidence)
        case Contains():
            return _contained(proof, terms)
        case Joint(conjunction, parts):
            if not parts:
                return Outcomes.of(TRUE if conjunction else FALSE, len(terms))
            return (all_of if conjunction else any_of)([_ask(part, terms) for part in parts])
        case Negated(part):
            return _ask(part, terms).negated()
        case Tested(part, outcome):
            return _ask(part, terms).tested(outcome)
        case Chosen(condition, then, otherwise):
            return _ask(condition, terms).chosen(_ask(then, terms), _ask(otherwise, terms))
        case Compare(op, left, right):
            return compared(op, terms[left], terms[right])
        case Implied(opaque, implies):
            return _implied(opaque, _ask(implies, terms), terms)
        case Opaque():
            return Outcomes.of(ANYTHING, len(terms))
    raise TypeError(f"no proof: {proof}")


def _contained(condition: Contains, terms: Terms) -> Outcomes:
    span = terms[condition.term]
    found, units = span.value, np.flatnonzero(span.value)
    known = None if terms.evidence is None else terms.evidence.may_contain(condition, units)
    if known is not None:
        found = np.zeros(len(terms), bool)
        found[units] = known
    return Outcomes(found, span.value, span.null, span.fail)


def _implied(opaque: Opaque, implied: Outcomes, terms: Terms) -> Outcomes:
    everything = np.ones(len(terms), bool)
    if not opaque.strict:
        return Outcomes(implied.can_be_true, everything, everything, everything)
    # NULL only where a column is, and then what is implied is NULL as well.
    return Outcomes(
        implied.can_be_true, implied.can_be_true | implied.can_be_false, implied.can_be_null, implied.can_fail
    )
