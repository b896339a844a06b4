"""Of a predicate with too many conditions some are not proved: what is left unproved is kept, never skipped."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from tests.pruning.asking import asked
from zskip import pruning
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.pruning import evaluate
from zskip.stats import Ranges, Statistics

SCHEMA = Schema(pa.schema({"x": pa.int32(), "y": pa.int32()}))


def condition(random: Random, depth: int) -> str:
    if depth == 0 or random.random() < 0.3:
        sides = [random.choice("xy"), random.choice(["x + y", "abs(x)", "y", str(random.randint(0, 9))])]
        return random.choice(["{} < {}", "{} = {}", "{} <> {}", "{} IS NULL OR {} > 3", "{} + 1 > {}"]).format(*sides)
    parts = [condition(random, depth - 1) for _ in range(random.randint(2, 4))]
    form = random.choice(["({})", "NOT ({})", "(({}) IS TRUE)", "CASE WHEN {} THEN x > 4 ELSE y < 3 END"])
    return form.format(random.choice([" AND ", " OR "]).join(f"({part})" for part in parts))


def statistics(random: Random, units: int = 30) -> Statistics:
    columns = {}
    for name in SCHEMA.arrow.names:
        ends = [sorted(random.choices(range(10), k=2)) for _ in range(units)]
        low, high = (pa.array([each[side] for each in ends], pa.int32()) for side in (0, 1))
        null = pa.array([random.choice([True, False]) for _ in ends])
        columns[name] = Ranges(low, high, pa.array([True] * units), null, pa.array([False] * units))
    return Statistics(pa.array([9] * units), columns)


@pytest.mark.parametrize("seed", range(60))
def test_fewer_proofs_never_say_more(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    sql, units = condition(random, 3), statistics(random)
    whole = asked(sql, SCHEMA, units)
    for most in range(8):
        monkeypatch.setattr(evaluate, "MOST_PROVED", most)
        fewer = asked(sql, SCHEMA, units)
        for name in ("can_be_true", "can_be_false", "can_be_null"):
            assert not np.any(getattr(whole, name) & ~getattr(fewer, name)), (sql, most, name)


def test_explain_says_that_there_are_too_many() -> None:
    units = statistics(Random(1))
    many = bind(" AND ".join(f"(x > {n} OR y < {n})" for n in range(1_900)), SCHEMA)
    assert pruning.outcomes(many, units).may_match.dtype == bool
    (reason,) = pruning.reasons(many, units)
    assert "more than 1,000 conditions" in str(reason.opaque)
    few = bind(" AND ".join(f"(x > {n} OR y < {n})" for n in range(450)), SCHEMA)
    assert "conditions" not in str([each.opaque for each in pruning.reasons(few, units)])


def test_over_many_units_fewer_conditions_are_proved() -> None:
    sql = " AND ".join(f"(x + {n} <> 5 OR y < {n - 300})" for n in range(300))
    few, many = statistics(Random(1)), statistics(Random(1)).take(np.resize(np.arange(30), 12_000))
    bound = bind(sql, SCHEMA)
    proved, kept = (pruning.outcomes(bound, units).may_match for units in (few, many))
    assert not np.any(np.resize(proved, 12_000) & ~kept)
    assert proved.tolist() == pruning.outcomes(bound, few).may_match.tolist()
    assert "more than 200 conditions: the rest is kept" in str(
        [each.opaque for each in pruning.reasons(bind(sql.replace("AND", "OR"), SCHEMA), many)]
    )
