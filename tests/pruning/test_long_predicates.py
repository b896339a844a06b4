"""Long predicates of ranges, prefixes and rows of constants: together they give what each of their parts gives."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import one_in
from tests.pruning.oracles import FALSE, NULL, TRUE, DuckDBOracle, asked, breaches, masks
from tests.tables import ranges_of, statistics_of
from zskip import pruning
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.pruning import evaluate
from zskip.pruning.constant_comparison import at_most
from zskip.stats import Ranges, Statistics

TYPES = {
    "i": pa.int64(), "t": pa.int8(), "u": pa.uint64(), "f": pa.float64(), "s": pa.string(), "w": pa.decimal128(30, 2)
}  # fmt: skip
SCHEMA = Schema(pa.schema(TYPES))
VALUES: dict[str, list[Any]] = {
    "i": [-(2**63), -3, 0, 1, 2, 5, 2**63 - 1],
    "t": [-128, -1, 0, 1, 2, 126, 127],
    "u": [0, 1, 2, 3, 2**63, 2**64 - 1],
    "f": [float("-inf"), -1.5, -0.0, 0.0, 1.0, 2.5, float("inf"), float("nan")],
    "s": ["", "a", "ab", "abc", "a\x7f", "b", "é", "\uffff", "\U0001f600", "\U0010ffff"],
    "w": [Decimal(-5), Decimal("0.01"), Decimal(7), Decimal(10) ** 17],
}

SEEDS = [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 15))]


def constant(random: Random, column: str) -> str:
    value = random.choice(VALUES[column])
    return f"'{value}'" if column == "s" else f"CAST('{value}' AS DOUBLE)" if column == "f" else str(value)


def row(random: Random) -> str:
    columns = random.sample(list(TYPES), random.choice([2, 2, 3]))
    return " AND ".join(f"{name} = {constant(random, name)}" for name in columns)


def span(random: Random) -> str:
    name = random.choice("its" if random.random() < 0.8 else "uwf")
    low, high = constant(random, name), constant(random, name)
    forms = [f"{name} >= {low} AND {name} < {high}", f"{name} BETWEEN {low} AND {high}", f"{name} = {low}"]
    return random.choice([*forms, *([f"s LIKE '{low[1:-1]}%'", f"starts_with(s, {low})"] if name == "s" else [])])


def rows_of_values(random: Random) -> str:
    names = random.sample(list(TYPES), 2)
    rows = [f"({', '.join(constant(random, name) for name in names)})" for _ in range(random.choice([5, 70]))]
    return f"({', '.join(names)}) IN ({', '.join(rows)})"


def units(random: Random, count: int) -> Statistics:
    """Random ranges: narrow and wide, unknown, of one value, beside NULL and NaN, and of nothing else."""
    columns = {}
    for name, type in TYPES.items():
        ordered = [value for value in VALUES[name] if value == value]
        ends = [sorted(random.choices(range(len(ordered)), k=2)) for _ in range(count)]
        ends = [[low, low] if random.random() < 0.4 else [low, high] for low, high in ends]
        lower, upper = (
            pa.array([None if random.random() < 0.1 else ordered[end[side]] for end in ends], type) for side in (0, 1)
        )
        flags = [pa.array(random.choices([True, False, None], odds, k=count)) for odds in ((6, 2, 1), (1, 4, 1))]
        nan = pa.array([name == "f" and random.random() < 0.2 for _ in range(count)])
        columns[name] = Ranges(lower, upper, *flags, nan)
    return Statistics(pa.array([9] * count), columns)


@pytest.mark.parametrize("part", [row, span, rows_of_values])
@pytest.mark.parametrize("seed", SEEDS)
def test_of_single_rows_they_give_what_duckdb_gives(part: Callable[[Random], str], seed: int) -> None:
    random, oracle = Random(seed), DuckDBOracle()
    table = pa.table({name: pa.array(random.choices([*VALUES[name], None], k=40), TYPES[name]) for name in TYPES})
    parts = [f"({part(random)})" for _ in range(random.choice([4, 9, 4 if part is rows_of_values else 90]))]
    sql = " AND ".join(f"NOT {each}" for each in parts) if random.random() < 0.5 else " OR ".join(parts)
    oracle.read(table)
    (yielded,) = oracle.yields([sql])
    assert yielded is not None
    single = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        nan = pc.fill_null(pc.is_nan(column), False) if name == "f" else pa.array([False] * len(table))
        bound = pc.if_else(nan, pa.scalar(None, TYPES[name]), column)
        single[name] = Ranges(bound, bound, bound.is_valid(), column.is_null(), nan)
    found = asked(sql, SCHEMA, Statistics(pa.array([1] * len(table)), single))
    assert not list(breaches(found, yielded, np.arange(len(table)))), sql
    if part is span:
        assert masks(found) == [(yielded == outcome).tolist() for outcome in (TRUE, FALSE, NULL)], sql


@pytest.mark.parametrize("part", [row, span])
@pytest.mark.parametrize("seed", SEEDS)
def test_an_or_may_match_where_a_part_may(part: Callable[[Random], str], seed: int) -> None:
    random = Random(seed)
    boxes, parts = units(random, 200), [f"({part(random)})" for _ in range(random.choice([4, 9, 60]))]
    together = asked(" OR ".join(parts), SCHEMA, boxes)
    apart = [asked(each, SCHEMA, boxes) for each in parts]
    assert np.array_equal(together.may_match, np.logical_or.reduce([each.may_match for each in apart]))
    assert np.all(together.can_be_false <= np.logical_and.reduce([each.can_be_false for each in apart]))


def test_a_thousand_row_values_prune() -> None:
    listed = ", ".join(f"({number}, {number % 100})" for number in range(0, 10_000, 10))
    units = statistics_of(
        i=ranges_of(pa.array([0, 5000]), pa.array([9000, 5100])),
        t=ranges_of(pa.array([0, 5], pa.int8()), pa.array([20, 9], pa.int8())),
    )
    found = asked(f"(i, t) IN ({listed})", SCHEMA, units)
    assert found.may_match.tolist() == [True, False]


# --- of a predicate with too many conditions some are not proved: what is left unproved is kept, never skipped ---


TWO = Schema(pa.schema({"x": pa.int32(), "y": pa.int32()}))


def condition(random: Random, depth: int) -> str:
    if depth == 0 or random.random() < 0.3:
        sides = [random.choice("xy"), random.choice(["x + y", "abs(x)", "y", str(random.randint(0, 9))])]
        return random.choice(["{} < {}", "{} = {}", "{} <> {}", "{} IS NULL OR {} > 3", "{} + 1 > {}"]).format(*sides)
    parts = [condition(random, depth - 1) for _ in range(random.randint(2, 4))]
    form = random.choice(["({})", "NOT ({})", "(({}) IS TRUE)", "CASE WHEN {} THEN x > 4 ELSE y < 3 END"])
    return form.format(random.choice([" AND ", " OR "]).join(f"({part})" for part in parts))


def pairs_of(random: Random, units: int = 30) -> Statistics:
    columns = {}
    for name in TWO.arrow.names:
        ends = [sorted(random.choices(range(10), k=2)) for _ in range(units)]
        low, high = (pa.array([each[side] for each in ends], pa.int32()) for side in (0, 1))
        columns[name] = ranges_of(low, high, null=[random.choice([True, False]) for _ in ends])
    return statistics_of(**columns)


@pytest.mark.parametrize("seed", one_in(10, range(30)))
def test_fewer_proofs_never_say_more(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    sql, units = condition(random, 3), pairs_of(random)
    whole = asked(sql, TWO, units)
    for most in range(0, 30 * len(units), 2 * len(units)):
        monkeypatch.setattr(evaluate, "MOST_EVALUATED", most)
        fewer = asked(sql, TWO, units)
        for name in ("can_be_true", "can_be_false", "can_be_null"):
            assert not np.any(getattr(whole, name) & ~getattr(fewer, name)), (sql, most, name)


@pytest.mark.slow
def test_explain_says_that_there_are_too_many() -> None:
    units = pairs_of(Random(1))
    many = bind(" AND ".join(f"(x > {n} OR y < {n})" for n in range(1_900)), TWO)
    assert pruning.outcomes(many, units).may_match.dtype == bool
    (reason,) = pruning.reasons(many, units)
    assert "more than 1,000 conditions" in str(reason.opaque)
    few = bind(" AND ".join(f"(x > {n} OR y < {n})" for n in range(450)), TWO)
    assert "conditions" not in str([each.opaque for each in pruning.reasons(few, units)])


# --- the ranks of bounds among cuts, as numpy and Python order them ---


ENDS = np.iinfo(np.int64)
INTEGERS = st.one_of(
    st.integers(ENDS.min, ENDS.max), st.integers(-300, 300), st.sampled_from([ENDS.min, ENDS.max, ENDS.max - 1, 0, -1])
)
FLOATS = st.one_of(
    st.floats(allow_nan=False),
    st.integers(-50, 50).map(float),
    st.sampled_from([0.0, -0.0, np.inf, -np.inf, 5e-324, -5e-324, 1.7976931348623157e308]),
)
BEGINNINGS = st.sampled_from([b"", b"key-", b"ke\0\0", b"http://example.com/a/long/one/", b"x" * 70])
TEXTS = st.one_of(
    st.binary(max_size=20),
    st.text("ab\0\xff", max_size=12).map(str.encode),
    st.tuples(BEGINNINGS, st.text("019\0", max_size=10)).map(lambda parts: parts[0] + parts[1].encode()),
)


@given(st.lists(INTEGERS, min_size=1, max_size=60), st.lists(INTEGERS, max_size=60))
def test_of_integers(cuts: list[int], bounds: list[int]) -> None:
    _agree(np.array(cuts, np.int64), np.array([*bounds, *cuts], np.int64))


@given(st.lists(FLOATS, min_size=1, max_size=60), st.lists(FLOATS, max_size=60))
def test_of_doubles(cuts: list[float], bounds: list[float]) -> None:
    _agree(np.array(cuts), np.array([*bounds, *cuts]))


def _agree(cuts: np.ndarray, bounds: np.ndarray) -> None:
    cuts = np.unique(cuts)
    assert at_most(cuts, bounds).tolist() == np.searchsorted(cuts, bounds, side="right").tolist()


@given(
    BEGINNINGS, st.lists(TEXTS, min_size=1, max_size=60), st.lists(TEXTS | st.none(), max_size=60), st.integers(0, 5)
)
def test_of_bytes(beginning: bytes, cuts: list[bytes], bounds: list[bytes | None], skipped: int) -> None:
    ordered = sorted({beginning + cut for cut in cuts})
    every = [*bounds, *cuts, *ordered, *(cut + b"\0" for cut in ordered), *(cut[:-1] for cut in ordered)]
    # A part of a larger array, as the units of a shard are.
    found = at_most(pa.array(ordered, pa.binary()), pa.array(every, pa.binary())[skipped:])
    expected = [len(ordered) if each is None else sum(cut <= each for cut in ordered) for each in every[skipped:]]
    assert found.tolist() == expected


def test_many_texts() -> None:
    random = np.random.default_rng(3)
    numbers = np.unique(np.concatenate([random.integers(0, 5000, 3000), random.integers(0, 2**62, 3000)]))
    bounds = np.concatenate([numbers, numbers - 1, random.integers(0, 2**62, 5000)])
    texts = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 20, "0").cast(pa.binary())
    asked = pc.utf8_lpad(pa.array(np.abs(bounds)).cast(pa.string()), 20, "0").cast(pa.binary())
    expected = np.searchsorted(np.array(texts.to_pylist(), "S20"), np.array(asked.to_pylist(), "S20"), side="right")
    assert at_most(texts, asked).tolist() == expected.tolist()
