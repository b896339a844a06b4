"""Wrong skips seen in the wild, each a trap with its name: rows that some engine lost, and the guard that keeps them.

A trap holds the statistics of one unit, some of its rows, and a predicate. DuckDB says what the rows yield; the
planner must foresee it. Then the guard is taken out, and the same trap must catch the planner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sqlglot import exp

from tests import FIXTURES
from tests.pruning.cases import column
from tests.pruning.oracles import RAISED, TRUE, DuckDBOracle, breaches
from tests.tables import ranges_of, statistics_of
from zskip import pruning
from zskip.binder import bind
from zskip.binder.leaf_binder import Binder
from zskip.binder.predicates import comparisons as beside
from zskip.core.schema import Schema
from zskip.core.types import UUID
from zskip.language import literals, patterns, tree
from zskip.language.functions import FUNCTIONS, dates, numbers, widths
from zskip.language.intervals import spans
from zskip.language.intervals.spans import Span
from zskip.language.literals import Fit
from zskip.pruning import Outcomes, constant_comparison, evaluate
from zskip.pruning.constant_comparison import Steps
from zskip.stats import Ranges, Statistics

Guard = Callable[[pytest.MonkeyPatch], None]


# ── taking guards out: each function is the mistake that some engine made ──


def seen_as(change: Callable[[Span, Ranges | None], Span]) -> Guard:
    """The mistake of reading a column's statistics otherwise."""
    right = spans.of_column

    def wrong(ranges: Ranges | None, type: pa.DataType, units: int) -> Span:
        return change(right(ranges, type, units), ranges)

    return lambda patch: patch.setattr(evaluate, "of_column", wrong)


def _no(span: Span) -> np.ndarray:
    return np.zeros(len(span), bool)


def _unknown(ranges: Ranges | None, flag: str) -> np.ndarray:
    return np.array([True]) if ranges is None else np.asarray(getattr(ranges, flag).is_null())


nan_forgotten = seen_as(lambda span, _: replace(span, nan=_no(span)))
null_forgotten = seen_as(lambda span, _: replace(span, null=_no(span)))
missing_count_is_zero = seen_as(lambda span, ranges: replace(span, null=span.null & ~_unknown(ranges, "has_null")))
missing_bounds_are_no_values = seen_as(
    lambda span, ranges: replace(span, value=span.value & ~_unknown(ranges, "lower"))
)
nulls_only_where_nothing_else = seen_as(lambda span, _: replace(span, null=span.null & ~span.value))
bounds_taken_as_they_are = seen_as(
    lambda span, ranges: (
        replace(span, lower=spans.keys(ranges.lower), upper=spans.keys(ranges.upper), nan=_no(span))
        if ranges is not None
        else span
    )
)
maximum_floored_to_milliseconds = seen_as(lambda span, _: replace(span, upper=span.upper // 1000 * 1000))


def not_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tree, "not_", lambda part: part)


def not_is_the_complement(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Steps, "negated", lambda self: evaluate.Negated(self))
    patch.setattr(Outcomes, "negated", lambda o: replace(o, can_be_true=~o.can_be_true, can_be_false=~o.can_be_false))


def unsigned_as_signed(patch: pytest.MonkeyPatch) -> None:
    right, sign = spans.sortable_numbers, np.uint64(1 << 63)
    patch.setattr(spans, "sortable_numbers", lambda v: right(v) ^ sign if v.type == pa.uint64() else right(v))


def fitted(make: Callable[[Any, pa.DataType], Any]) -> Guard:
    """The mistake of forcing a literal into the column's type."""

    def wrong(constant: pa.Scalar, type: pa.DataType, *_: object) -> Fit:
        return Fit(make(constant, type), True)

    return lambda patch: patch.setattr(beside, "fit", wrong)


literal_wrapped = fitted(lambda constant, type: pa.scalar((constant.as_py() + 128) % 256 - 128, type))
literal_truncated = fitted(lambda constant, type: pa.scalar(int(constant.as_py()), type))
scale_ignored = fitted(
    lambda constant, type: pa.scalar(Decimal(int(constant.as_py().scaleb(1))).scaleb(-type.scale), type)
)
unit_ignored = fitted(lambda constant, type: pa.scalar(constant.value, pa.int64()).cast(type))


def zero_has_a_sign(patch: pytest.MonkeyPatch) -> None:
    right = spans.keys

    def wrong(values: pa.Array) -> Any:
        found = right(values)
        return np.where((found == 0) & np.signbit(found), -1e-300, found) if found.dtype == np.float64 else found

    patch.setattr(spans, "keys", wrong)
    patch.setattr(constant_comparison, "keys", wrong)


def stripped(kind: type[exp.Expression]) -> Guard:
    """The mistake of moving a cast or a collation off the column."""
    right = Binder.scalar

    def wrong(self: Binder, node: exp.Expression) -> tree.Scalar:
        plain = node.unnest()
        return right(self, plain.this if isinstance(plain, kind) else node)

    return lambda patch: patch.setattr(Binder, "scalar", wrong)


cast_moved_off, collation_moved_off = stripped(exp.Cast), stripped(exp.Collate)


def escape_ignored(patch: pytest.MonkeyPatch) -> None:
    right = patterns.literal_prefix
    patch.setattr(patterns, "literal_prefix", lambda pattern, escape: right(pattern, None))


def prefix_between_the_bounds(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(patterns, "starts_with", lambda s, p: tree.compare("=", s, tree.Literal(pa.scalar(p))))


def null_in_the_list_forgotten(patch: pytest.MonkeyPatch) -> None:
    right = tree.in_
    patch.setattr(tree, "in_", lambda term, values, or_null=False: right(term, values.drop_null(), False))


def unsupported_legs_dropped(patch: pytest.MonkeyPatch) -> None:
    right = tree.and_
    unsupported = tree.Opaque | tree.Computable
    patch.setattr(tree, "and_", lambda parts: right([part for part in parts if not isinstance(part, unsupported)]))


def offset_seconds_dropped(patch: pytest.MonkeyPatch) -> None:
    right = literals._to_utc

    def wrong(*arguments: Any) -> Any:
        return right(*arguments).replace(second=0)

    patch.setattr(literals, "_to_utc", wrong)


def zone_of_the_session_forgotten(patch: pytest.MonkeyPatch) -> None:
    for module in (dates, numbers):
        patch.setattr(module, "zone_of", lambda scalar, dialect: None)


def overflow_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(widths, "wraps", lambda dialect: False)


def width_of_a_sum_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(widths, "integer_type", lambda scalar, dialect: scalar.type)


def factors_are_positive(patch: pytest.MonkeyPatch) -> None:
    def wrong(parts: list[Span], call: tree.Call) -> Span:
        left, right = parts
        lower, upper = left.lower * right.lower, left.upper * right.upper
        return replace(left, type=call.type, lower=lower, upper=upper)

    patch.setitem(FUNCTIONS, "multiply", replace(FUNCTIONS["multiply"], bounds=wrong))


# ── the traps ──


@dataclass(frozen=True)
class Trap:
    """One of `fixtures/traps.txt`. ``column``: a line of statistics · ``values``: of some rows, as text.

    ``spark``: in its dialect and without ANSI mode each row yields TRUE.
    """

    name: str
    column: str
    values: list[str | None]
    sql: str
    guard: Guard
    timezone: str
    spark: bool

    @staticmethod
    def of(text: str) -> Trap:
        name, column, values, asked, guard = text.splitlines()
        sql, _, how = asked.strip().partition("  ")
        return Trap(
            name,
            column,
            [None if value == "null" else value for value in values.strip().split(" | ")],
            sql,
            globals()[guard.strip()],
            how.removeprefix("in ") if how.startswith("in ") else "UTC",
            how.startswith("as Spark"),
        )

    def caught(self) -> list[str]:
        """What the planner does not foresee."""
        box = column(self.column)
        values = pa.array(self.values, pa.string()).cast(box.type)
        rows = pa.table({box.path: values, "__unit": pa.array(np.zeros(len(values)), pa.int32())})
        yielded: np.ndarray | None = np.full(len(values), TRUE)
        if not self.spark:
            oracle = DuckDBOracle(self.timezone)
            oracle.read(rows)
            (yielded,) = oracle.yields([self.sql])
        assert yielded is not None
        assert (yielded >= 0).all()
        dialect = "spark" if self.spark else "duckdb"
        schema = Schema(rows.schema.remove(1))
        bound = bind(self.sql, schema, timezone=self.timezone, dialect=dialect, ansi=False)
        statistics = Statistics(pa.array([1000]), {box.path: box.ranges()})
        found = breaches(pruning.outcomes(bound, statistics), yielded, np.zeros(len(rows), int))
        return [str(breach) for breach in found]


TRAPS = [Trap.of(text) for text in (FIXTURES / "traps.txt").read_text(encoding="utf-8").strip().split("\n\n")[1:]]


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_the_planner_is_not_caught(trap: Trap) -> None:
    assert trap.caught() == []


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_without_its_guard_the_planner_is_caught(trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    trap.guard(monkeypatch)
    assert trap.caught()


def test_ranges_of_another_type_say_nothing() -> None:
    """A column that was int32 in old files, and whose ranges were kept so, is int64 in the table now."""
    ranges = column("  x  int32  1 .. 5").ranges()
    bound = bind("x > 9", Schema(pa.schema({"x": pa.int64()})))
    outcomes = pruning.outcomes(bound, Statistics(pa.array([3]), {"x": ranges}))
    assert outcomes.may_match.all()


def test_uuids_are_ordered_by_unsigned_bytes() -> None:
    """Java compares UUIDs as signed: bounds that stand so are no range, and prove nothing."""
    low, high = (pa.array([bytes([first]) * 16], UUID) for first in (0xF0, 0x10))
    bound = bind("u = '80000000-0000-0000-0000-000000000000'", Schema(pa.schema({"u": pa.uuid()})))
    outcomes = pruning.outcomes(bound, statistics_of(u=ranges_of(low, high)))
    assert outcomes.may_match.all()
    outcomes = pruning.outcomes(bound, statistics_of(u=ranges_of(high, low)))
    assert outcomes.may_match.all()
    assert outcomes.can_be_false.all()


# --- rows that make the engine raise: a plan never claims that all rows match where one of them may do so ---


FAILURES = {
    "the least integer % -1": ("x  int64  -9223372036854775808 .. 5", -(2**63), "x % -1 < 1"),
    "the least integer // -1": ("x  int32  -2147483648 .. 5", -(2**31), "x // -1 < 1"),
    "a product in one byte": ("x  int8  -127 .. -127", -127, "(-x) * x < 5"),
    "a product of a sum in two bytes": ("x  int16  -32768 .. 256", -32768, "(10 * (x + 3)) % 7 < 9"),
    "a product of a product": ("x  int32  2 .. 50000", 50000, "x * x > 1"),
    "a sum of the greater": ("x  int8  100 .. 127", 127, "(greatest(x, 5) + 1) % 7 < 9"),
    "the negative of a sum": ("x  int8  -128 .. 5", -128, "-(x + 0) > -200"),
    "the absolute value of a difference": ("x  int8  -128 .. 5", -128, "abs(x - 0) >= 0"),
    "a constant before the nanoseconds": (
        "t  timestamp_ns  2020-01-01T00:00:00 .. 2020-01-02T00:00:00",
        1577836800 * 10**9,
        "t > TIMESTAMP '1582-10-15 00:00:00'",
    ),
    "a column cast to nanoseconds": (
        "t  timestamp_s  1582-10-15T23:59:59 .. 1582-10-15T23:59:59",
        -12219292801,
        "t <> CAST('2020-12-31 23:59:59' AS TIMESTAMP_NS)",
    ),
    "a constant cast to nanoseconds": (
        "t  timestamp_s  2020-01-01T00:00:00 .. 2020-01-02T00:00:00",
        1577836800,
        "t > CAST('1582-10-15 00:00:00' AS TIMESTAMP_NS)",
    ),
}

WITH_A_RESULT = {"the least integer % -1", "a product of a sum in two bytes", "a sum of the greater"}
"""Rows for which DuckDB raises before 2.0.1, and has a result since."""


@pytest.mark.parametrize("name", FAILURES)
def test_a_row_that_raises_is_foreseen(name: str) -> None:
    line, value, sql = FAILURES[name]
    box = column("  " + line)
    storage = pa.int64() if pa.types.is_timestamp(box.type) else box.type
    rows = pa.table({box.path: pa.array([value], storage).cast(box.type), "__unit": pa.array([0], pa.int32())})
    oracle = DuckDBOracle()
    oracle.read(rows)
    (yielded,) = oracle.yields([sql])
    assert yielded is not None
    assert yielded.tolist() == [RAISED] or name in WITH_A_RESULT
    bound = bind(sql, Schema(rows.schema.remove(1)))
    outcomes = pruning.outcomes(bound, Statistics(pa.array([1]), {box.path: box.ranges()}))
    assert np.array_equal(outcomes.can_fail, [True])
    assert not outcomes.all_match.any()
