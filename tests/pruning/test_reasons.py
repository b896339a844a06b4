"""Reasons say what removed how much, what could not help, and what would."""

import duckdb
import pyarrow as pa
import pytest

from tests.statements.cases import statements
from tests.tables import ranges_of, statistics_of
from zskip import pruning
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.language.tree import Cause
from zskip.pruning.reasons import REWRITES
from zskip.stats import Statistics

SCHEMA = Schema(pa.schema({"x": pa.int64(), "s": pa.string(), "unseen": pa.int64()}))
STATISTICS = statistics_of(
    x=ranges_of(pa.array([1, 7]), pa.array([4, 9])), s=ranges_of(pa.array(["a", "f"]), pa.array(["c", "k"]))
)


def test_each_conjunct_says_what_it_removes_alone() -> None:
    found = pruning.reasons(bind("x > 5 AND s < 'z' AND unseen = 1", SCHEMA), STATISTICS)
    assert [(each.text, each.removed, each.proved) for each in found] == [
        ("x > 5", 1, 1),
        ("s < 'z'", 0, 2),
        ("unseen = 1", 0, 0),
    ]
    assert [(each.sql, each.why.cause) for each in found[2].opaque] == [("unseen", Cause.NO_STATISTICS)]


def test_what_is_opaque_says_why_and_what_would_prune() -> None:
    (found,) = pruning.reasons(bind("upper(s) = 'A'", SCHEMA), STATISTICS)
    assert found.removed == 0
    assert found.opaque[0].why.cause is Cause.CASE_FOLDED
    assert "upper()" in found.opaque[0].why.text
    assert found.rewrite == "a sketch of its substrings; or keep a column that holds the text folded, and compare that"


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("random() < 0.5", "random()"),
        ("instr(s, 'a') = 1", "instr()"),
        ("trim(Ucase(s)) = 'A'", "trim()"),
        ("hash(x)", "hash()"),
        ("initcap(s) = 'A'", "INITCAP"),
        ("(x << 1) < 0", "<<"),
    ],
)
def test_a_function_is_called_as_it_is_written(sql: str, name: str) -> None:
    (found,) = pruning.reasons(bind(sql, SCHEMA), STATISTICS)
    assert found.opaque[0].why.text.startswith(f"{name} is not a "), found.opaque


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("(x = 1) && (s = 'a')", ": SQL writes AND"),
        ("(x = 1) & (s = 'a')", ": SQL writes AND"),
        ("(x = 1) || (s = 'a')", ": SQL writes OR"),
        ("(x = 1) | (s = 'a')", ": SQL writes OR"),
        ("~(x = 1)", ": SQL writes NOT"),
        ("x & 4", "& is not a predicate that zskip knows None"),  # an integer is a condition in DuckDB
        ("strt_with(s, 'a')", 'Did you mean "starts_with"?'),
        ("x = 'soon'", "column's own type, as in 5 or"),
    ],
)
def test_what_may_be_meant_is_suggested(sql: str, hint: str) -> None:
    (found,) = pruning.reasons(bind(sql, SCHEMA), STATISTICS)
    assert hint in f"{found.opaque[0].why.text} {found.rewrite}"


def test_what_duckdb_computed_is_told_apart() -> None:
    statistics = statistics_of(s=ranges_of(pa.array(["de", "fr"])), x=STATISTICS.columns["x"])
    found = pruning.reasons(bind("upper(s) = 'DE' AND length(s) = 2 AND x > 5", SCHEMA), statistics)
    assert [(each.removed, each.proved, each.computed) for each in found] == [(1, 1, 2), (0, 2, 2), (1, 1, 0)]
    (found,) = pruning.reasons(bind("upper(s) = 'DE'", SCHEMA), STATISTICS)
    assert found.computed == 0


CAUSES = {
    "upper(s) = 'A'": Cause.CASE_FOLDED,
    "s LIKE '%x'": Cause.NO_LITERAL_BEGINNING,
    "substr(s, 2, 3) = 'a'": Cause.MIDDLE_OF_TEXT,
    "d = 'soon'": Cause.ENGINE_CASTS,
    "z = n": Cause.CLOCKS_CHANGE,
    "z = TIMESTAMP '2024-10-27 02:30:00'": Cause.AMBIGUOUS_MOMENT,
    "n > '2024-01-01 00:00:00+02'": Cause.UNSUPPORTED,  # which releases of DuckDB may shift or ignore
    "z > '0001-01-01 00:00:00+02'": Cause.UNSUPPORTED,  # before the first year of Python's calendar in UTC
    "x = 1e17": Cause.ENGINE_ROUNDS,
    "r BETWEEN x AND 2.5": Cause.SEVERAL_TYPES,
    "initcap(s) = 'A'": Cause.UNSUPPORTED,
}


@pytest.mark.parametrize(("sql", "cause"), CAUSES.items())
def test_a_cause_is_a_value_and_brings_its_rewrite(sql: str, cause: Cause) -> None:
    types = {"x": pa.int64(), "r": pa.float32(), "s": pa.string(), "d": pa.date32(), "n": pa.timestamp("us")}
    schema = Schema(pa.schema(types | {"z": pa.timestamp("us", "UTC")}))
    (found,) = pruning.reasons(bind(sql, schema, timezone="Europe/Berlin"), Statistics(pa.array([9]), {}))
    assert found.opaque[0].why.cause is cause
    assert found.rewrite == REWRITES.get(cause)


def test_every_rewrite_has_a_predicate_that_needs_it() -> None:
    assert set(CAUSES.values()) >= REWRITES.keys()


@pytest.mark.parametrize("constant", statements("reasons", "dates outside the calendar of Python", "pruning"))
def test_a_date_outside_the_calendar_of_python_is_named_and_skips_nothing(constant: str) -> None:
    days = pa.array([-1_000_000, 4_000_000], pa.int32()).cast(pa.date32())
    both = {"d": days, "t": days.cast(pa.timestamp("us"))}
    rows = pa.table(both)
    statistics = statistics_of(**{name: ranges_of(each[:1], each[1:]) for name, each in both.items()})
    for sql in (f"{column} {op} {constant}" for column in both for op in ("<", ">=", "=")):
        assert len(duckdb.sql(f"SELECT * FROM rows WHERE {sql}").fetchall()) <= 2  # for DuckDB it is a date
        (found,) = pruning.reasons(bind(sql, Schema(rows.schema)), statistics)
        assert (found.removed, found.rewrite) == (0, None)
        assert "is outside the years 1 to 9999" in found.opaque[0].why.text, found.opaque
