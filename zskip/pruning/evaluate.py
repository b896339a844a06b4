"""Compile a bound tree into a proof, once, and evaluate the proof for all units together, or over evidence alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.language import Predicate
from zskip.language.functions import FUNCTIONS
from zskip.language.intervals.spans import Bools, Keys, Periodic, Span, key_family, of_column, values_of
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
    Why,
)
from zskip.pruning.constant_comparison import Steps
from zskip.pruning.duckdb_evaluation import Budget, computed
from zskip.pruning.evidence import Evidence, EvidenceOfUnits, Ints, UnitSearch
from zskip.pruning.outcomes import FAIL, FALSE, NULL, TRUE, Outcomes, all_of, any_of, either
from zskip.stats import Statistics

_MAX_CACHED = 64
"""Terms whose spans are cached: those of a predicate with thousands of terms would fill the memory."""

_LONG_TEXT, _TEXTS = 1 << 10, 1 << 24
"""Bytes of a constant, and of its copies for all units. A constant above both limits may be any value."""


class Terms:
    """The spans of scalars over the units of some statistics.

    ``use_duckdb``: whether expressions may be evaluated in units of one value · ``budget``: the time for that ·
    ``evidence``: of the units, if there is any · ``evaluated``: the conditions times units that were evaluated
    """

    def __init__(
        self,
        statistics: Statistics,
        budget: Budget,
        *,
        use_duckdb: bool = True,
        evidence: Evidence | None = None,
    ) -> None:
        self.statistics, self.budget, self.use_duckdb = statistics, budget, use_duckdb
        self.evidence, self.evaluated = evidence, 0
        self._cache: dict[Scalar, Span] = {}

    def take(self, units: np.ndarray) -> Terms:
        """The terms over some of the units, by number; without evidence, which numbers all units."""
        return Terms(self.statistics.take(units), self.budget, use_duckdb=self.use_duckdb)

    def __len__(self) -> int:
        return len(self.statistics)

    def __getitem__(self, term: Scalar) -> Span:
        if term not in self._cache:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[term] = self._span(term)
        return self._cache[term]

    def halves(self, term: Scalar) -> tuple[Span, ...]:
        """Spans of which every value of a term lies in one: two for a part of a moment, else one."""
        if isinstance(term, Call) and isinstance(bounds := FUNCTIONS[term.function].bounds, Periodic):
            return bounds.halves([self[argument] for argument in term.arguments], term)
        return (self[term],)

    def _span(self, term: Scalar) -> Span:
        match term:
            case Reference(path, type):
                return of_column(self.statistics.columns.get(path), type, len(self))
            case Literal(value):
                return self._constant(value)
            case Call(name, arguments, _, _):
                return FUNCTIONS[name].bounds([self[argument] for argument in arguments], term)

    def _constant(self, value: pa.Scalar) -> Span:
        """The span of a constant, or of any value if copies of the constant for all units would fill the memory."""
        if value.is_valid and key_family(value.type) == "bytes":
            size = len(value.as_buffer()) if hasattr(value, "as_buffer") else 0
            if size > _LONG_TEXT and size * len(self) > _TEXTS:
                return Span.anything(value.type, len(self))
        return Span.constant(value, len(self))


def compare_spans(op: str, left: Span, right: Span) -> Outcomes:
    """``left op right`` for ``<``, ``<=`` and ``=``. NaN equals itself and is above every number."""
    fail = left.fail | right.fail
    null = left.null & (right.value | right.nan | right.null) | right.null & (left.value | left.nan | left.null)
    if left.type != right.type or key_family(left.type) is None:
        some = np.ones(len(left), bool)
        return Outcomes(some, some, null, fail)
    both = left.value & right.value
    below, above = left.value & right.nan, left.nan & right.value
    same = left.nan & right.nan
    less, more = both & _less(left.lower, right.upper), both & _less(right.lower, left.upper)
    less_equal, more_equal = both & ~_less(right.upper, left.lower), both & ~_less(left.upper, right.lower)
    if op == "<":
        return Outcomes(less | below, more_equal | above | same, null, fail)
    if op == "<=":
        return Outcomes(less_equal | below | same, more | above, null, fail)
    different = both & ~(is_single(left) & is_single(right) & less_equal & more_equal)
    return Outcomes(less_equal & more_equal | same, different | below | above, null, fail)


def _less(left: Keys, right: Keys) -> Bools:
    """Whether ``left < right``, where a null stands for an unknown upper bound, above every value."""
    if isinstance(left, np.ndarray):
        return np.asarray(left < right)
    known = pc.less(left, right)
    return np.asarray(pc.if_else(left.is_null(), False, pc.fill_null(known, True)).to_numpy(zero_copy_only=False), bool)


def is_single(span: Span) -> Bools:
    """Whether the range holds a single value."""
    if isinstance(span.lower, np.ndarray):
        return np.asarray(span.lower == span.upper)
    return np.asarray(pc.fill_null(pc.equal(span.lower, span.upper), False).to_numpy(zero_copy_only=False), bool)


ANYTHING = TRUE | FALSE | NULL | FAIL

MOST_EVALUATED = 1 << 25
"""Conditions times units that are evaluated in one call, which takes some half a second; any others prove nothing."""

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

    ``evidence``: used for the units that ranges leave undecided · ``budget``: the time for evaluation by an engine, if
    several calls share it · ``use_duckdb``: whether an engine may evaluate expressions in units of one value.

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
        found = _evaluate_in_turn(proof_of(predicate), terms)
        left = np.flatnonzero(found.may_match & ~found.all_match)
        if evidence is not None and len(left):
            narrower = EvidenceOfUnits(evidence, left)
            few = Terms(statistics.take(left), budget, use_duckdb=use_duckdb, evidence=narrower)
            found = found.updated(left, _evaluate(proof_of(predicate), few))
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
    """A proof, and the expression that an engine evaluates in units of one value."""

    part: Proof
    expression: Computable


Proof = Computed | Steps | Joint | Negated | Tested | Chosen | Implied | Compare | Opaque | Contains


_proofs: WeakKeyDictionary[Predicate, Proof] = WeakKeyDictionary()
"""The proofs of the predicates that are still in use."""


def proof_of(predicate: Predicate) -> Proof:
    """The proof of a predicate, compiled once."""
    found = _proofs.get(predicate)
    if found is None:
        found = _proofs[predicate] = _compiled(predicate.tree)
    return found


def _compiled(node: Node) -> Proof:
    """Compiles a node; all conditions on one term become one step function. `bind` limits their number."""
    match node:
        case Compare(op, left, right):
            return _comparison(op, left, right, node)
        case In(term, values, or_null):
            if len(values) and key_family(term.type) is None:
                return Opaque("", (), Why(f"IN over {term.type}"))
            return Steps.among(term, values, or_null)
        case IsNull(term):
            return Steps.is_null(term)
        case And(parts) | Or(parts):
            return _joint(isinstance(node, And), list(map(_compiled, parts)))
        case Not(part):
            inner = _compiled(part)
            if isinstance(inner, Joint) and not inner.parts:
                return Joint(not inner.conjunction, ())
            return inner.negated() if isinstance(inner, Steps) else Negated(inner)
        case Is(part, outcome):
            inner = _compiled(part)
            return inner.tested(outcome) if isinstance(inner, Steps) else Tested(inner, outcome)
        case Choose(condition, then, otherwise):
            choice = Chosen(_compiled(condition), _compiled(then), _compiled(otherwise))
            # Of choices within one another, each would sort the cuts of all.
            return choice if isinstance(then, Choose) or isinstance(otherwise, Choose) else _chosen(choice)
        case Contains():
            return node
        case Opaque(implies=implies):
            return node if implies is None else Implied(node, _compiled(implies))
        case Computable(part):
            return Computed(_compiled(part), node)


def _chosen(choice: Chosen) -> Proof:
    """A choice as one step function, if it is among conditions on one term, such as ``coalesce(x, 7) > 5``."""
    parts = (choice.condition, choice.then, choice.otherwise)
    terms = [part.term for part in parts if isinstance(part, Steps) and not isinstance(part.term, Literal)]
    if not terms:
        return choice
    condition, then, otherwise = (_steps_of(part, terms[0]) for part in parts)
    if condition is None or then is None or otherwise is None:
        return choice
    taken = condition.tested(True)
    return Steps.any_of([Steps.all_of([taken, then]), Steps.all_of([taken.negated(), otherwise])])


def _steps_of(proof: Proof, term: Scalar) -> Steps | None:
    """A proof as a step function of a term: of a condition on this term, or of a constant."""
    match proof:
        case Steps(Literal(value)):
            return None if value.is_valid else Steps.constant(term, proof.null)
        case Steps():
            return proof if proof.term == term else None
        case Joint(conjunction, ()):
            return Steps.constant(term, TRUE if conjunction else FALSE)
    return None


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
    if isinstance(left, Literal) and isinstance(right, Literal):
        found = compare_spans(op, Span.constant(left.value, 1), Span.constant(right.value, 1))
        if not found.can_be_null[0] and found.can_be_true[0] != found.can_be_false[0]:
            return Joint(bool(found.can_be_true[0]), ())
    return node


def _joint(conjunction: bool, parts: Sequence[Proof]) -> Proof:
    """The AND or OR of proofs, with all step functions of one term merged."""
    by_term: dict[Scalar, list[Steps]] = {}
    others: list[Proof] = []
    for part in parts:
        if isinstance(part, Steps):
            by_term.setdefault(part.term, []).append(part)
        else:
            others.append(part)
    merge = Steps.all_of if conjunction else Steps.any_of
    merged = [*others, *(merge(group) for group in by_term.values())]
    return merged[0] if len(merged) == 1 else Joint(conjunction, tuple(merged))


def _evaluate_in_turn(proof: Proof, terms: Terms) -> Outcomes:
    """The outcomes of a whole predicate. Over many units, the parts of an AND are evaluated only for the units that the
    first part leaves; the others may have any outcome but TRUE."""
    if not isinstance(proof, Joint) or not proof.conjunction or len(terms) < _MANY:
        return _evaluate(proof, terms)
    # What an engine evaluates is the most expensive, and comes last.
    first, *others = sorted(proof.parts, key=lambda part: isinstance(part, Computed))
    found = _evaluate(first, terms)
    left = np.flatnonzero(found.can_be_true)
    if len(left) > len(terms) // 8:
        return all_of([found, *(_evaluate(part, terms) for part in others)])
    terms_left = terms.take(left)
    outcomes_left = all_of([found.take(left), *(_evaluate(part, terms_left) for part in others)])
    return Outcomes.of(FALSE | NULL | FAIL, len(terms)).updated(left, outcomes_left)


def _evaluate(proof: Proof, terms: Terms) -> Outcomes:
    terms.evaluated += len(terms)
    if terms.evaluated > MOST_EVALUATED:
        return Outcomes.of(ANYTHING, len(terms))
    match proof:
        case Computed(part, expression):
            found = _evaluate(part, terms)
            if not terms.use_duckdb:
                return found
            return computed(found, expression, terms.statistics, terms.__getitem__, terms.budget)
        case Steps():
            return either([proof.outcomes(span, terms.evidence) for span in terms.halves(proof.term)])
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
    known = None if terms.evidence is None else terms.evidence.may_match(condition, units)
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


# `candidates`: the units that evidence alone leaves, found without reading the ranges of all units.

_MAX_VALUES = 1 << 13
"""Constants of one condition that are searched for; with more of them, ranges leave about as few units."""


def candidates(predicate: Predicate, search: UnitSearch) -> Ints | None:
    """The ascending numbers of the units that may hold a match by evidence alone; None if evidence rules out no unit.

    uid = 'a'                  units that may hold 'a'
    uid = 'a' AND n < 7        the same: `outcomes` of these units narrows them further
    uid = 'a' OR ip = 'b'      units that may hold either
    uid = 'a' OR n < 7         None
    """
    try:
        return _candidates(proof_of(predicate), search)
    except RecursionError:  # the caller may be deep in its own stack
        return None


def _candidates(proof: Proof, search: UnitSearch) -> Ints | None:
    match proof:
        case Computed(part, _) | Tested(part, True) | Implied(_, part):
            return _candidates(part, search)
        case Contains():
            return search.matching(proof)
        case Steps():
            return _holding(proof.term, _true_values(proof), search)
        case Joint(True, parts):
            return _all_of([_candidates(part, search) for part in parts])
        case Joint(False, parts):
            return _any_of(_candidates(part, search) for part in parts)
        case Chosen(condition, then, otherwise):
            taken = _all_of([_candidates(condition, search), _candidates(then, search)])
            return _any_of([taken, _candidates(otherwise, search)])
    return None


def _all_of(found: Sequence[Ints | None]) -> Ints | None:
    known = [one for one in found if one is not None]
    return reduce(np.intersect1d, known) if known else None


def _any_of(found: Iterable[Ints | None]) -> Ints | None:
    units = np.zeros(0, np.int64)
    for one in found:
        if one is None:
            return None
        units = np.union1d(units, one)
    return units


def _true_values(steps: Steps) -> pa.Array | None:
    """All values for which a condition is TRUE; None if it is TRUE for NULL, or for too many values."""
    if steps.null & TRUE:
        return None
    no_values = pa.array([], steps.term.type)
    values = steps.points(TRUE) if (steps.cells & TRUE).any() else no_values
    if values is None or not (steps.nan & TRUE and t.is_floating(steps.term.type)):
        return values
    return pa.concat_arrays([values, values_of(np.array([np.nan]), steps.term.type)])


def _holding(term: Scalar, values: pa.Array | None, search: UnitSearch) -> Ints | None:
    return None if values is None or len(values) > _MAX_VALUES else search.matching(In(term, values))
