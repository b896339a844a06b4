"""Evidence beyond ranges: what a unit surely lacks takes TRUE away from its leaves, and never more than that."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pruning.grammar import Grammar
from tests.pruning.oracles import DuckDBOracle, breaches
from tests.pruning.units import KINDS, Units, random_statistics, random_units
from tests.tables import ranges_of, statistics_of
from zskip import pruning
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.errors import SqlError
from zskip.language import Predicate, tree
from zskip.language.bound import Dialect
from zskip.language.intervals.spans import keys, values_of
from zskip.language.tree import Contains, In, Reference, Scalar
from zskip.pruning import Evidence, Outcomes
from zskip.pruning.evidence import Ints


class Held:
    """Evidence that knows the rows of each unit: {path: values of each unit}; it may name more values than there are.

    ``asked`` collects the units that it is asked of.
    """

    def __init__(self, values: dict[str, list[pa.Array]], random: Random | None = None) -> None:
        self.values, self.random, self.asked = values, random, set[int]()

    def _pairs(self, term: Scalar, values: pa.Array, units: Ints) -> tuple[Ints, Ints] | None:
        assert values.null_count == 0
        assert len(values.unique()) == len(values)
        if not isinstance(term, Reference) or term.path not in self.values:
            return None
        assert values.type == term.type
        self.asked.update(units.tolist())
        pairs = [
            (unit, place)
            for unit in units.tolist()
            for place, value in enumerate(values.to_pylist())
            if any(equal(value, each) for each in self.values[term.path][unit].to_pylist())
            or (self.random is not None and self.random.random() < 0.1)
        ]
        if self.random is not None:
            self.random.shuffle(pairs)
        found = np.array(pairs, np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    def may_match(self, condition: In | Contains, units: Ints) -> np.ndarray | None:
        if isinstance(condition, In):
            pairs = self._pairs(condition.term, condition.values, units)
            return None if pairs is None else np.isin(units, pairs[0])
        assert isinstance(condition.term, Reference)
        texts = [self.values[condition.term.path][unit].to_pylist() for unit in units.tolist()]
        return np.array([any(condition.text in (text or "") for text in each) for each in texts], bool)


def equal(one: object, other: object) -> bool:
    both_nan = isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    return both_nan or one == other


def asked(sql: str, columns: dict[str, list[list[int]]], type: pa.DataType, null: bool = False) -> Outcomes:
    """The outcomes of units that hold these values, their ranges being those of the first unit in all."""
    arrays = {path: [pa.array(values, type) for values in units] for path, units in columns.items()}
    units = len(next(iter(columns.values())))
    bounds = {
        path: [pa.array([end(map(end, values))] * units, type) for end in (min, max)]
        for path, values in columns.items()
    }
    statistics = statistics_of(**{path: ranges_of(*ends, null=null) for path, ends in bounds.items()})
    schema = Schema(pa.schema(dict.fromkeys(columns, type)))
    return pruning.outcomes(bind(sql, schema), statistics, Held(arrays))


@pytest.mark.parametrize(
    ("sql", "may_match", "all_match"),
    [
        ("x = 5", [True, False], [False, False]),
        ("x <> 5", [True, True], [False, True]),
        ("x IN (5, 7)", [True, True], [False, False]),
        ("x NOT IN (4, 5)", [True, True], [False, True]),
        ("x BETWEEN 4 AND 6", [True, False], [False, False]),
        ("x NOT BETWEEN 4 AND 6", [True, True], [False, True]),
        ("x = 5 OR x = 1", [True, True], [False, False]),
        ("x > 3 AND x < 7", [True, False], [False, False]),
        ("x = 5 AND x < 9", [True, False], [False, False]),
        ("x IS NOT DISTINCT FROM 5", [True, False], [False, False]),
        ("x IN (5, NULL)", [True, False], [False, False]),
        ("x < 5", [True, True], [False, False]),
    ],
)
def test_a_value_that_a_unit_lacks_proves(sql: str, may_match: list[bool], all_match: list[bool]) -> None:
    found = asked(sql, {"x": [[1, 5, 9], [1, 7, 9]]}, pa.int64())
    assert found.may_match.tolist() == may_match
    assert found.all_match.tolist() == all_match


def test_null_stays_beside_a_value_that_is_not_there() -> None:
    found = asked("x <> 5", {"x": [[1, 5, 9], [1, 7, 9]]}, pa.int64(), null=True)
    assert found.can_be_null.all()
    assert not found.all_match.any()
    assert found.can_be_false.tolist() == [True, False]


def test_a_row_of_constants_needs_all_of_its_values() -> None:
    rows = " OR ".join(f"x = {x} AND y = {y}" for x, y in ((1, 6), (2, 7), (3, 8), (4, 5)))
    found = asked(rows, {"x": [[0, 1, 9], [0, 2, 9], [0, 3, 9]], "y": [[0, 6, 9], [0, 6, 9], [0, 4, 9]]}, pa.int32())
    assert found.may_match.tolist() == [True, False, False]


def test_a_text_that_a_unit_lacks_proves() -> None:
    schema = Schema(pa.schema({"s": pa.string()}))
    s = Reference("s", pa.string())
    statistics = statistics_of(s=ranges_of(pa.array(["a", "a"]), pa.array(["z", "z"])))
    held = Held({"s": [pa.array(["a needle", "z"]), pa.array(["a", "z"])]})
    condition = Contains(s, "needle")
    predicate = Predicate("", "", condition, schema, Dialect())
    assert pruning.outcomes(predicate, statistics).may_match.tolist() == [True, True]
    assert pruning.outcomes(predicate, statistics, held).may_match.tolist() == [True, False]
    negated = Predicate("", "", tree.not_(condition), schema, Dialect())
    assert pruning.outcomes(negated, statistics, held).all_match.tolist() == [False, True]
    implied = tree.Opaque("s LIKE '%needle%x'", ("s",), "", implies=condition, strict=True)
    pattern = Predicate("", "", implied, schema, Dialect())
    assert pruning.outcomes(pattern, statistics, held).may_match.tolist() == [True, False]


def test_it_is_asked_only_of_units_that_ranges_leave() -> None:
    statistics = statistics_of(x=ranges_of(pa.array([1, 6, 1, 5]), pa.array([9, 9, 4, 5])))
    held = Held({"x": [pa.array([1, 9]), pa.array([6]), pa.array([1]), pa.array([5])]})
    found = pruning.outcomes(bind("x = 5", Schema(pa.schema({"x": pa.int64()}))), statistics, held)
    assert found.may_match.tolist() == [False, False, False, True]
    assert held.asked == {0}


def evidence_of(table: Units, random: Random | None, skipping: str | None = None) -> Evidence:
    unit = np.asarray(table.unit, np.int64)
    values = {}
    for field in table.fields:
        column = Schema(table.rows.schema).columns.get(field.path)
        if column is not None and column.orderable and field.path != skipping:
            whole = column.of(table.rows).combine_chunks().cast(column.type)
            values[field.path] = [whole.filter(pa.array(unit == number)) for number in range(table.count)]
    return Held(values, random)


@settings(max_examples=settings.default.max_examples // 4)
@given(st.randoms(use_true_random=False))
def test_every_outcome_that_duckdb_shows_is_foreseen(random: Random) -> None:
    table = random_units(random, units=5)
    if not table.unit:
        return
    statistics, grammar, oracle = random_statistics(random, table), Grammar(random, table), DuckDBOracle()
    evidence = evidence_of(table, random)
    oracle.read(table.rows)
    predicates = [grammar.predicate(random.choice((0, 0, 1, 2))) for _ in range(12)]
    for sql, yielded in zip(predicates, oracle.yields(predicates), strict=True):
        try:
            bound = bind(sql, table.schema)
        except SqlError:
            continue
        found = pruning.outcomes(bound, statistics, evidence)
        breach = None if yielded is None else next(breaches(found, yielded, np.asarray(table.unit)), None)
        assert breach is None, f"{sql}\n  {breach}"


@pytest.mark.parametrize("name", KINDS)
def test_keys_give_their_values_back(name: str) -> None:
    values = KINDS[name].bounds(KINDS[name].plain)
    # -0.0 and 0.0 are one value
    assert values_of(keys(values), values.type).to_pylist() == values.to_pylist()
