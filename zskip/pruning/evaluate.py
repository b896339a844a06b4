"""Compile a bound tree into a proof, once, and evaluate the proof for all units together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.language import Predicate, tree
from zskip.language.intervals.spans import key_family, keys
from zskip.language.tree import (
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
from zskip.language.why import Why
from zskip.pruning.budget import Budget
from zskip.pruning.column_comparison import compare_spans
from zskip.pruning.constant_comparison import Steps, is_nan, order_of
from zskip.pruning.duckdb_evaluation import computed
from zskip.pruning.enumeration import is_enumerable, narrowed_by_values
from zskip.pruning.evidence import Evidence, EvidenceOfUnits
from zskip.pruning.outcomes import FAIL, FALSE, NULL, TRUE, Outcomes, all_of, any_of
from zskip.pruning.term_spans import Terms
from zskip.stats import Statistics

ANYTHING = TRUE | FALSE | NULL | FAIL

MOST_PROVED = 2_000
"""Conditions that are proved one by one, after all conditions on one term are merged; any others prove nothing."""

FEWER_PROVED = ((2_500, 200),)
"""Lower limits above a number of units, since the time of a proof grows with both."""

_MOST_ROWS = 64
"""Rows of constants in an OR that are proved one by one; more of them are proved in so many groups."""

_MANY = 1 << 12
"""Units from which it pays to evaluate the parts of an AND only for the units that its first part leaves."""


def outcomes(
    predicate: Predicate,
    statistics: Statistics,
    evidence: Evidence | None = None,
    *,
    budget: Budget | None = None,
    use_duckdb: bool = True,
) -> Outcomes:
    """The outcomes that the predicate can have for the rows of each unit: a superset of the actual ones.

    ``evidence``: used for the units that ranges leave undecided · ``budget``: the time for enumeration, if several
    calls share it · ``use_duckdb``: whether DuckDB may evaluate expressions that have no rule.

    >>> import pyarrow as pa
    >>> from zskip.binder import bind
    >>> from zskip.core.schema import Schema
    >>> from zskip.stats import Ranges
    >>> no = pa.array([False, False])
    >>> x = Ranges(pa.array([1, 7]), pa.array([4, 9]), pa.array([True, True]), no, no)
    >>> large = bind("x > 5", Schema(pa.schema({"x": pa.int64()})))
    >>> found = outcomes(large, Statistics(pa.array([10, 10]), {"x": x}))
    >>> found.may_match.tolist(), found.all_match.tolist()
    ([False, True], [False, True])
    """
    budget = budget or Budget()
    terms = Terms(statistics, budget, use_duckdb=use_duckdb)
    try:
        found = _evaluate_in_turn(proof_for(predicate, len(terms)), terms)
        left = np.flatnonzero(found.may_match & ~found.all_match)
        if evidence is not None and len(left):
            narrower = EvidenceOfUnits(evidence, left)
            few = Terms(statistics.take(left), budget, use_duckdb=use_duckdb, evidence=narrower)
            found = found.updated(left, _evaluate(proof_for(predicate, len(few)), few))
    except RecursionError:
        # Kept, because a caller deep in its own stack leaves too little of it for the recursion.
        return Outcomes.of(ANYTHING, len(terms))
    has_rows = np.asarray(pc.fill_null(statistics.row_count, 1)) != 0
    return found if has_rows.all() else found.where(has_rows)


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """The AND or OR of proofs about different terms."""

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
    """An opaque predicate, which is TRUE only where ``implies`` is."""

    opaque: Opaque
    implies: Proof


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """A proof, and the expression that DuckDB evaluates for single values of its columns."""

    part: Proof
    expression: Computable


@dataclass(frozen=True, slots=True, eq=False)
class Enumerated:
    """A proof that is evaluated for each value of its columns in the units whose ranges hold few values."""

    part: Proof
    columns: tuple[Reference, ...]


Proof = Computed | Enumerated | Steps | Joint | Negated | Tested | Chosen | Implied | Compare | Opaque | Contains


_proofs: WeakKeyDictionary[Predicate, dict[int, Proof]] = WeakKeyDictionary()
"""The proofs of each predicate that is still in use, by the limit on their conditions."""

_truncated: WeakKeyDictionary[Predicate, set[int]] = WeakKeyDictionary()
"""The limits at which the proof of a predicate leaves out conditions."""


def _max_proved(units: int) -> int:
    return min([MOST_PROVED, *(most for above, most in FEWER_PROVED if units > above)])


def proof_for(predicate: Predicate, units: int) -> Proof:
    """The proof of a predicate for some number of units, compiled once."""
    most, proofs = _max_proved(units), _proofs.setdefault(predicate, {})
    found = proofs.get(most)
    if found is None:
        limit = _Limit(most)
        found = proofs[most] = _with_enumeration(proof_of(predicate.tree, limit))
        if limit.is_exceeded:
            _truncated.setdefault(predicate, set()).add(most)
    return found


def conditions_proved(predicate: Predicate, units: int) -> int | None:
    """The limit on the conditions that `outcomes` proves over some number of units, if a predicate exceeds it."""
    most = _max_proved(units)
    return most if most in _truncated.get(predicate, ()) else None


class _Limit:
    """The number of further conditions of a predicate that may be proved."""

    __slots__ = ("is_exceeded", "left")

    def __init__(self, most: int) -> None:
        self.left, self.is_exceeded = most, False

    def is_reached(self) -> bool:
        """Whether no further condition may be proved; then the limit counts as exceeded."""
        self.is_exceeded |= self.left <= 0
        return self.left <= 0


def _with_enumeration(proof: Proof) -> Proof:
    """The proof with an `Enumerated` around each part that reads a single column of few values or is evaluated by
    DuckDB, and around each expression over several columns that DuckDB evaluates."""
    columns = {column for term in frozenset(_terms(proof)) for column in _references(term)}
    if len(columns) == 1:
        (column,) = columns
        is_exact = isinstance(proof, Steps) and proof.term == column
        may_narrow = _uses_duckdb(proof) or (is_enumerable(column.type) and not is_exact)
        return Enumerated(proof, (column,)) if may_narrow else proof
    if isinstance(proof, Joint):
        groups: dict[frozenset[Reference], list[Proof]] = {}
        for part in proof.parts:
            groups.setdefault(frozenset(c for term in _terms(part) for c in _references(term)), []).append(part)
        parts: list[Proof] = []
        for read, group in groups.items():
            joined = len(read) == 1 and 1 < len(group) < len(proof.parts)
            parts += (
                [_with_enumeration(Joint(proof.conjunction, tuple(group)))] if joined else map(_with_enumeration, group)
            )
        return Joint(proof.conjunction, tuple(parts))
    if isinstance(proof, Negated):
        return Negated(_with_enumeration(proof.part))
    if isinstance(proof, Computed):
        return Enumerated(Computed(_with_enumeration(proof.part), proof.expression), proof.expression.columns)
    return proof


def children(proof: Proof) -> tuple[Proof, ...]:
    """The proofs directly under a proof."""
    match proof:
        case Joint(_, parts):
            return parts
        case Negated(part) | Tested(part, _) | Enumerated(part, _) | Computed(part, _):
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
        case Compare(_, left, right):
            yield from (left, right)
        case Computed(_, expression):
            yield from expression.columns
        case Opaque(paths=paths):
            # Without a type, of which no values can be enumerated.
            yield from (Reference(path, pa.null()) for path in paths)
        case _:
            for part in children(proof):
                yield from _terms(part)


def _uses_duckdb(proof: Proof) -> bool:
    """Whether DuckDB evaluates a part of a proof."""
    return isinstance(proof, Computed) or any(map(_uses_duckdb, children(proof)))


def _references(term: Scalar) -> Iterator[Reference]:
    match term:
        case Reference():
            yield term
        case Call(_, arguments, _, _):
            for argument in arguments:
                yield from _references(argument)


_UNPROVED = Opaque("", (), Why("too many conditions"))


def proof_of(node: Node, limit: _Limit | None = None) -> Proof:
    """Compiles a node; all conditions on one term become one step function. Those past the ``limit`` prove nothing."""
    limit = limit or _Limit(MOST_PROVED)
    if limit.is_reached():
        return _UNPROVED
    match node:
        case Compare(op, left, right):
            return _comparison(op, left, right, node)
        case In(term, values, or_null):
            return Steps.among(term, values, or_null) if key_family(term.type) else _opaque(term, node)
        case IsNull(term):
            return Steps.is_null(term)
        case And(parts):
            return _joint(True, [proof_of(part, limit) for part in parts], limit)
        case Or(parts):
            ranges, others = _split_ranges(parts)
            steps = [Steps.within(term, *ends) for term, ends in ranges.items()]
            return _joint(False, [*(proof_of(part, limit) for part in _grouped_rows(others)), *steps], limit)
        case Not(part):
            inner = proof_of(part, limit)
            return inner.negated() if isinstance(inner, Steps) else Negated(inner)
        case Is(part, outcome):
            inner = proof_of(part, limit)
            return inner.tested(outcome) if isinstance(inner, Steps) else Tested(inner, outcome)
        case Choose(condition, then, otherwise):
            limit.left -= 1
            return Chosen(proof_of(condition, limit), proof_of(then, limit), proof_of(otherwise, limit))
        case Contains():
            return node
        case Opaque(implies=implies):
            return node if implies is None else Implied(node, proof_of(implies, limit))
        case Computable(part):
            return Computed(proof_of(part, limit), node)


def _split_ranges(parts: Sequence[Node]) -> tuple[dict[Scalar, tuple[pa.Array, pa.Array, np.ndarray]], Sequence[Node]]:
    """The ranges among the parts of an OR, by term, as their lower bounds, upper bounds, and whether each includes its
    upper bound; and all other parts. A thousand BETWEENs or LIKE 'p%' are one sort in place of a thousand."""
    ends: dict[Scalar, tuple[list[pa.Scalar], list[pa.Scalar], list[bool]]] = {}
    others: list[Node] = []
    for part in parts:
        match part:
            case And((Compare("<=", Literal(low), term), Compare("<" | "<=" as op, above, Literal(high)))) if (
                term == above
                and not isinstance(term, Literal)
                and key_family(term.type) is not None
                and not (is_nan(low) or is_nan(high))
            ):
                for end, listed in zip((low, high, op == "<="), ends.setdefault(term, ([], [], [])), strict=True):
                    listed.append(end)
            case _:
                others.append(part)
    return {
        term: (pa.array(lows, term.type), pa.array(highs, term.type), np.array(closed))
        for term, (lows, highs, closed) in ends.items()
    }, others


def _grouped_rows(parts: Sequence[Node]) -> Sequence[Node]:
    """The parts of an OR, with many rows of constants, ``(a, b) IN ((1, 2), …)``, in a few groups.

    The rows of a group, which are neighbours in their first column, imply a list for each column:

        (a = 1 AND b = 9) OR (a = 2 AND b = 7)      implies      a IN (1, 2) AND b IN (7, 9)
    """
    if len(parts) <= _MOST_ROWS:
        return parts
    by_columns: dict[tuple[Reference, ...], list[dict[Reference, pa.Scalar]]] = {}
    others: list[Node] = []
    for part in parts:
        row = _row(part)
        if row is None:
            others.append(part)
        else:
            by_columns.setdefault(tuple(sorted(row, key=lambda column: column.path)), []).append(row)
    for columns, rows in by_columns.items():
        constants = [pa.array([row[column] for row in rows], column.type) for column in columns]
        order = order_of(keys(constants[0]))
        for group in np.array_split(order, min(len(order), _MOST_ROWS)):
            lists = [
                tree.in_(column, values.take(pa.array(group)))
                for column, values in zip(columns, constants, strict=True)
            ]
            others.append(Opaque("", (), Why("many rows of constants"), implies=tree.and_(lists)))
    return others


def _row(part: Node) -> dict[Reference, pa.Scalar] | None:
    """The constants of ``a = 1 AND b = 2`` by column; None for anything else."""
    found: dict[Reference, pa.Scalar] = {}
    for each in part.parts if isinstance(part, And) else ():
        match each:
            case Compare("=", Reference() as column, Literal(value)) | Compare(
                "=", Literal(value), Reference() as column
            ):
                if column in found or key_family(column.type) is None:
                    return None
                found[column] = value
            case _:
                return None
    return found if len(found) > 1 else None


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


def _joint(conjunction: bool, parts: Sequence[Proof], limit: _Limit) -> Proof:
    """The AND or OR of proofs, with all step functions of one term merged; without those past the limit."""
    by_term: dict[Scalar, list[Steps]] = {}
    others: list[Proof] = []
    for part in parts:
        if isinstance(part, Steps):
            by_term.setdefault(part.term, []).append(part)
        else:
            others.append(part)
    merge = Steps.all_of if conjunction else Steps.any_of
    merged = [*others, *(merge(group) for group in by_term.values())]
    if len(merged) == 1:
        return merged[0]
    proved: list[Proof] = []
    for part in merged:
        if limit.is_reached():
            proved.append(_UNPROVED)
            break
        limit.left -= not isinstance(part, Joint)
        proved.append(part)
    return Joint(conjunction, tuple(proved))


def _evaluate_in_turn(proof: Proof, terms: Terms) -> Outcomes:
    """The outcomes of a whole predicate. Over many units, the parts of an AND are evaluated only for the units that the
    first part leaves; the others may have any outcome but TRUE."""
    if not isinstance(proof, Joint) or not proof.conjunction or len(terms) < _MANY:
        return _evaluate(proof, terms)
    # Enumeration is the most expensive, and comes last.
    first, *others = sorted(proof.parts, key=lambda part: isinstance(part, Enumerated))
    found = _evaluate(first, terms)
    left = np.flatnonzero(found.can_be_true)
    if len(left) > len(terms) // 8:
        return all_of([found, *(_evaluate(part, terms) for part in others)])
    terms_left = terms.take(left)
    outcomes_left = all_of([found.take(left), *(_evaluate(part, terms_left) for part in others)])
    return Outcomes.of(FALSE | NULL | FAIL, len(terms)).updated(left, outcomes_left)


def _evaluate(proof: Proof, terms: Terms) -> Outcomes:
    match proof:
        case Enumerated(part, columns):
            found = _evaluate(part, terms)
            if terms.points is not None or terms.budget.is_spent:
                return found
            spans = [terms[column] for column in columns]
            with terms.budget:
                return narrowed_by_values(
                    found, spans, terms.statistics, columns, lambda points: _evaluate(part, terms.at(points))
                )
        case Computed(part, expression):
            found = _evaluate(part, terms)
            if terms.points is None or not terms.use_duckdb:
                return found
            return computed(found, expression, terms.points.values, terms.budget)
        case Steps():
            return proof.outcomes(terms[proof.term], terms.evidence)
        case Contains():
            return _contained(proof, terms)
        case Joint(conjunction, parts):
            if not parts:
                return Outcomes.of(TRUE if conjunction else FALSE, len(terms))
            return (all_of if conjunction else any_of)([_evaluate(part, terms) for part in parts])
        case Negated(part):
            return _evaluate(part, terms).negated()
        case Tested(part, outcome):
            return _evaluate(part, terms).tested(outcome)
        case Chosen(condition, then, otherwise):
            return _evaluate(condition, terms).chosen(_evaluate(then, terms), _evaluate(otherwise, terms))
        case Compare(op, left, right):
            return compare_spans(op, terms[left], terms[right])
        case Implied(opaque, implies):
            return _implied(opaque, _evaluate(implies, terms), terms)
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
    # It is NULL only where a column is, and there the implied predicate is NULL as well.
    return Outcomes(
        implied.can_be_true, implied.can_be_true | implied.can_be_false, implied.can_be_null, implied.can_fail
    )
