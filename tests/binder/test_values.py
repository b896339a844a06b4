"""Values stay values: a parameter, a long list and a long chain mean what their constants mean, wherever they stand."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import zskip
from tests import one_in
from tests.statements.cases import statements
from zskip import pruning
from zskip.binder import Parameters, bind
from zskip.core.schema import Schema
from zskip.errors import SqlError, UnknownParameter, UnsupportedSql
from zskip.language.render import literal
from zskip.language.tree import In, Opaque, walk
from zskip.stats import Ranges, Statistics
from zskip.stats.collect import row_groups

TYPES = {
    "i": pa.int64(),
    "t": pa.int8(),
    "u": pa.uint64(),
    "f": pa.float64(),
    "g": pa.float32(),
    "c": pa.decimal128(9, 2),
    "s": pa.string(),
    "d": pa.date32(),
    "m": pa.timestamp("us"),
    "b": pa.bool_(),
}
SCHEMA = Schema(pa.schema(TYPES))
NUMBERS = ", ".join(str(number * 7 - 500) for number in range(120))
TEXTS = ", ".join(f"'k{number}'" for number in range(120))
DATES = ", ".join(f"DATE '20{number % 80 + 10}-{number % 12 + 1:02}-{number % 28 + 1:02}'" for number in range(120))
DOUBLES = ", ".join(f"CAST('{number / 4}' AS DOUBLE)" for number in range(-60, 60))
DECIMALS = ", ".join(f"{number * 7 - 500}.{number % 4 * 25:03}" for number in range(120))
DATE_TEXTS = DATES.replace("DATE ", "")


def described(sql: str, dialect: str = "duckdb", params: Parameters | None = None) -> list[str]:
    """What the tree of a predicate says, part by part; the kind of the error of one that does not bind."""
    try:
        return [shown(node) for node in walk(bind(sql, SCHEMA, dialect=dialect, params=params).tree)]
    except SqlError as error:
        return [type(error).__name__]


def shown(node: object) -> str:
    if isinstance(node, In):
        return f"{node.term} in {node.values.to_pylist()} {node.or_null}"
    parts = [getattr(node, name) for name in ("op", "left", "right", "term", "paths") if hasattr(node, name)]
    return f"{type(node).__name__} {parts}"


ANYWHERE = [
    *statements("long_lists", "anywhere", "binder"),
    "i in\n (  {n}  ) -- IN ({n})\n AND t > 3",
    *(f"{column} IN ({{p}})" for column in TYPES if column not in "dm"),
]


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
@pytest.mark.parametrize("form", ANYWHERE)
def test_a_long_list_means_what_the_parser_makes_of_it(form: str, dialect: str) -> None:
    lists = {"n": NUMBERS, "s": TEXTS, "d": DATES, "x": DATE_TEXTS, "f": DOUBLES, "p": DECIMALS}
    parsed = {kind: text.replace(", ", ", /* parsed */ ", 1) for kind, text in lists.items()}
    if "/*" in form:
        parsed = {kind: text.replace("/* parsed */", "-- parsed\n") for kind, text in parsed.items()}
    texts = [form.format(**each) for each in (lists, parsed)]
    if "'IN (" not in form:  # a comment in a text is another text
        assert described(texts[0], dialect) == described(texts[1], dialect)
    assert described(texts[0], dialect)


def test_a_long_list_is_read_as_an_array() -> None:
    sql = f"i IN ({NUMBERS})"
    (found,) = [node for node in walk(bind(sql, SCHEMA).tree) if isinstance(node, In)]
    assert found.values.to_pylist() == [number * 7 - 500 for number in range(120)]
    assert bind(sql, SCHEMA).sql() == f'"i" IN ({NUMBERS})'
    assert bind(f"s = 'IN ({NUMBERS})' AND i IN ({NUMBERS})", SCHEMA).conjuncts[0].sql() == f"\"s\" = 'IN ({NUMBERS})'"


VALUES: dict[str, list[object]] = {
    "integers": [*range(-50, 50), 2**62],
    "large integers": [*range(50), 2**70],
    "floats": [number / 4 for number in range(-100, 100)] + [float("nan"), float("inf"), -0.0, 0.0],
    "texts": [f"it's {number}" for number in range(60)] + ["\\", ""],
    "dates": [dt.date(2020, 1, 1) + dt.timedelta(days=number) for number in range(60)],
    "moments": [dt.datetime(2020, 1, 1) + dt.timedelta(hours=number) for number in range(60)],
    "integers and NULL": [*range(60), None],
    "integers and floats": [*range(60), 0.5],
    "booleans": [True, False] * 30,
}


@pytest.mark.parametrize(("dialect", "kind", "count"), one_in(2, ["duckdb", "spark"], VALUES, [3, 1_000]))
def test_a_list_as_a_parameter_means_what_its_literals_mean(kind: str, dialect: str, count: int) -> None:
    values = VALUES[kind][-count:]
    # A list in DuckDB contains a value or does not, whether NULL is in it or not; ``IN (1, NULL)`` is never FALSE.
    literals = literal([each for each in values if each is not None or dialect == "spark"], dialect)
    for column in TYPES:
        written = described(f"t > 1 AND {column} IN {literals}", dialect)
        assert described(f"t > 1 AND {column} IN $list", dialect, {"list": values}) == written


SCALARS: list[object] = [
    5, -5, 0, 128, 2**63, -(2**63), 2**70, 10**40, 1.5, -0.0, 1e300, float("nan"), float("-inf"), True, False, None,
    Decimal("1.50"), Decimal("-7"), Decimal("0.001"), Decimal(10**30), "", "it's", "back\\slash", "5", "2020-01-31",
    b"a", b"", dt.date(2020, 1, 31), dt.datetime(2020, 1, 31, 12, 30, 0, 17), dt.datetime(2020, 1, 31, tzinfo=dt.UTC),
    dt.time(12, 30), dt.timedelta(days=1), np.int8(3), np.float32(0.1), pa.scalar(3), pa.scalar("x"),
    pa.scalar(1580428800000000001, pa.timestamp("ns")),
]  # fmt: skip
USES = [
    "{c} = {p}", "{p} < {c}", "{c} <> {p}", "{c} BETWEEN {p} AND {p}", "{c} IN ({p}, 3)", "{c} IS DISTINCT FROM {p}",
    "coalesce({c}, {p}) = {p}",
    "CASE WHEN {c} = {p} THEN t ELSE 0 END > 3", "abs({c}) > {p}", "i + {p} > 7", "-{p} < i",
    "s LIKE {p}", "starts_with(s, {p})", "substr(s, 1, {p}) = 'a'", "{p}", "{c} IS {p}",
    "({c}, t) = ({p}, 3)", "d + {p} > DATE '2020-01-01'", "round(f, {p}) = 2", "m >= {p} AND NOT ({c} > {p})",
]  # fmt: skip


@pytest.mark.parametrize(
    ("dialect", "step"), [("duckdb", 4), *(pytest.param(one, 1, marks=pytest.mark.slow) for one in ("duckdb", "spark"))]
)
@pytest.mark.parametrize("use", USES)
def test_a_parameter_means_what_its_literal_means(use: str, dialect: str, step: int) -> None:
    """Each value in each use, with one of four columns where not all are tried."""
    for number, value in enumerate(SCALARS):
        for column in "ifcsdm"[number % step :: step] if "{c}" in use else "i":
            written = use.format(c=column, p=literal(value, dialect))
            named = use.format(c=column, p="$p")
            assert described(named, dialect, {"p": value}) == described(written, dialect), (named, value)


def test_values_are_written_out_only_for_an_engine() -> None:
    days = [dt.date(2020, 1, 1) + dt.timedelta(days=number) for number in range(1000)]
    bound = bind("d IN $days AND D > $1 AND t + $x < 5", SCHEMA, params={"days": days, "1": days[0], "x": -3})
    assert [each.text for each in bound.conjuncts] == ["d IN $days", "D > $1", "t + $x < 5"]
    assert bound.conjuncts[0].sql() == f'"d" IN ({", ".join(f"DATE {str(day)!r}" for day in days)})'
    assert bound.conjuncts[1].sql() == "\"d\" > DATE '2020-01-01'"
    assert bound.conjuncts[2].sql() == '"t" + (-3) < 5'


def test_arrays_are_lists_too() -> None:
    for values in (np.arange(5), pa.array([0, 1, 2, 3, 4], pa.uint8()), pa.chunked_array([[0, 1], [2, 3, 4]])):
        found = bind("i IN $l", SCHEMA, params={"l": values}).tree
        assert isinstance(found, In)
        assert found.values.to_pylist() == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_a_hundred_thousand_values_are_one_array() -> None:
    numbers, texts = range(100_000), [f"it's {number}" for number in range(100_000)]
    for column, values in (("i", list(numbers)), ("f", [number / 4 for number in numbers]), ("s", texts)):
        written = f"{column} IN {literal(values, 'duckdb')}" if column != "f" else "f IN $l"
        for sql, params in ((f"{column} IN $l", {"l": values}), (written, {"l": values} if "$" in written else None)):
            found = bind(sql, SCHEMA, params=params).tree
            assert isinstance(found, In)
            assert found.values.to_pylist() == sorted(values)


LONG_TEXTS = {
    "expressions": f"i IN ({', '.join(['i + 1'] * 100_000)})",
    "functions": " OR ".join(f"abs(i + {number}) = 3" for number in range(10_000)),
    "arguments": f"greatest({', '.join(f'i + {number}' for number in range(21_000))}) = 1",
    "characters": "i = 1" + " " * 3_000_000,
    "words": " OR ".join(["i=1 OR t=2"] * 75_000),
}


@pytest.mark.parametrize("kind", LONG_TEXTS)
def test_what_is_too_long_is_refused(kind: str) -> None:
    """300,000 expressions in a list took 11 seconds and 0.9 GB."""
    with pytest.raises(UnsupportedSql, match="too long to be read: more than"):
        bind(LONG_TEXTS[kind], SCHEMA)


@pytest.mark.parametrize("sql", ["i = ?", "i IN (?)", "i IN (1, ?)", "i BETWEEN 1 AND ?", "list_contains(?, i)"])
@pytest.mark.parametrize("value", [[1, 2], (1,), {3}, []])
def test_a_list_as_a_parameter_stands_behind_in_alone(sql: str, value: object) -> None:
    with pytest.raises(UnknownParameter, match="is allowed only after IN") as caught:
        bind(sql, SCHEMA, params=[value])
    assert caught.value.span == (sql.index("?"), sql.index("?") + 1)


def test_a_colon_in_a_subscript_is_no_parameter() -> None:
    assert bind("s[:2] = 'ab'", SCHEMA).columns == {"s"}
    found = bind("i IN [:a, :b]", SCHEMA, params={"a": 2, "b": 5}).tree
    assert isinstance(found, In)
    assert found.values.to_pylist() == [2, 5]


def test_an_error_behind_a_list_points_at_its_place() -> None:
    sql = f"i IN ({NUMBERS}) AND nobody = 3"
    with pytest.raises(SqlError) as caught:
        bind(sql, SCHEMA)
    assert caught.value.span == (sql.index("nobody"), sql.index(" = 3"))


def test_the_outcomes_are_those_of_duckdb() -> None:
    rows = pa.table({"i": [*range(-600, 3000, 3), None]})
    con = duckdb.connect()
    con.register("rows", rows)
    for sql in (f"i IN ({NUMBERS})", f"i NOT IN ({NUMBERS})"):
        answers = [answer for (answer,) in con.execute(f"SELECT ({sql}) FROM rows").fetchall()]
        bounds, flags = pa.array(rows["i"].to_pylist(), pa.int64()), pa.array(np.zeros(len(rows), bool))
        null = bounds.is_null()
        ranges = Ranges(bounds, bounds, pa.array([not each.as_py() for each in null]), null, flags)
        statistics = Statistics(pa.array(np.ones(len(rows), np.int64)), {"i": ranges})
        found = pruning.outcomes(bind(sql, SCHEMA), statistics)
        assert found.can_be_true.tolist() == [answer is True for answer in answers]
        assert found.can_be_null.tolist() == [answer is None for answer in answers]


def test_a_constant_on_the_left_is_compared_with_each() -> None:
    bound = bind(f"5 IN ({NUMBERS})", SCHEMA)
    no = Statistics(pa.array([1]), {})
    assert not pruning.outcomes(bound, no).may_match.any()
    assert pruning.outcomes(bind(f"11 IN ({NUMBERS})", SCHEMA), no).all_match.all()


@pytest.mark.parametrize(
    ("column", "first", "dialect"), [("i", "NULL", "duckdb"), ("f", "0.333", "duckdb"), ("f", "-1e3", "spark")]
)
def test_thousands_of_constants_of_several_forms_bind(column: str, first: str, dialect: str) -> None:
    point = ".25" if "." in first else ""
    listed = ", ".join([first, *(f"{'-' * (number % 2)}{number}{point}" for number in range(6_000))])
    bound = bind(f"{column} IN ({listed})", SCHEMA, dialect=dialect)
    assert bound.columns == {column}
    assert any(isinstance(node, In) for node in walk(bound.tree))


def chain(form: str, link: str, count: int = 150) -> str:
    """A form again and again: `{n}` stands for a number in it."""
    return link.join(form.format(n=number * 7) for number in range(count))


ORED, ANDED = chain("i = {n}", " OR "), chain("i <> {n}", " AND ")
QUOTED = chain("'{n}'", ", ")
TAKEN = [
    ORED, ANDED, chain("t = {n}", " OR "), chain("u != {n}", " AND "), chain("s = 'k{n}'", "\nor\n"),
    chain("I = {n}", " OR "), f"f > 3 AND ({ORED})", f"NOT ({ORED})", f"({ORED}) AND ({ANDED})", f"{ORED} OR t = 999",
    f"f > 3 AND {ORED}", f"{ORED} AND f > 3", f"f > 3 OR {ORED} OR t = 1 AND f < 9", f"{ANDED} AND i <> NULL",
    f"{ANDED} OR f > 9", f"NOT {ORED}", f"CASE WHEN {ORED} THEN t = 7 ELSE f > 5 END",
    chain("i = {n}", " OR ") + chain(" OR t = {n}", ""), f"{ORED} OR s = '{ORED.replace('i', 's')}'", f"{ORED} -- i",
    chain("s = 'it''s {n}'", " OR ") + " OR s = 'k7'", f"coalesce({ORED}, f > 3)",
    f"{ORED} /* or */ + 1", f"{ORED} + 1",
]  # fmt: skip
NESTED = " OR ".join(["s = 'k7'", f"s = '({ANDED})'"] * 60)
NO_CHAINS = [
    chain("f = {n}", " OR "), chain("s = {n}", " OR "), chain("i = '{n}'", " OR "), chain("i = -{n}", " OR "),
    chain("i = 9999999999999999999{n}", " OR "), chain("i = {n}", " AND "), chain("i <> {n}", " OR "),
    chain("i = {n} OR t = {n}", " OR "), f"s = '{ORED}'", chain("(s = 'k{n}')", " OR "), chain("i = {n} + 1", " OR "),
    chain("i = {n}.5", " OR "), f"s IN ('{ORED}', {QUOTED})", f"t = 1 /* {ORED} */",
    f"len(list_filter([7, 8], i -> {ORED})) = 1",
]  # fmt: skip


def rows(count: int = 300) -> pa.Table:
    """Rows whose values are in the chains or beside them; of columns that no chain is on, NULL."""
    draw = random.Random(3)
    values = {
        name: [draw.choice([None, 0, 1, 7, 14, 99]) for _ in range(count)] if name in "ituf" else [None] * count
        for name in TYPES
    }
    values["s"] = [draw.choice([None, "k0", "k7", "x"]) for _ in range(count)]
    return pa.table({name: pa.array(values[name], type) for name, type in TYPES.items()})


@pytest.mark.parametrize("number", one_in(4, range(len(TAKEN + NO_CHAINS))))
def test_a_chain_means_what_its_terms_mean(number: int) -> None:
    """Of units of one row each, the outcomes are DuckDB's answers."""
    sql = (TAKEN + NO_CHAINS)[number]
    with duckdb.connect() as con:
        con.register("rows", rows())
        try:
            answers = [answer for (answer,) in con.sql(f"SELECT ({sql}\n) FROM rows").fetchall()]
        except duckdb.Error:
            return
    found = bind(sql, SCHEMA)
    units = row_groups(rows(), np.arange(rows().num_rows + 1), SCHEMA).statistics(sorted(found.columns))
    outcomes, true = pruning.outcomes(found, units), np.array([each is True for each in answers])
    assert outcomes.may_match[true].all()
    assert not outcomes.all_match[~true].any()
    assert sql not in TAKEN or "+ 1" in sql or (outcomes.may_match == true).all()


@pytest.mark.parametrize(
    "form", one_in(2, ["i = {n} AND t < {n}", "i BETWEEN {n} AND {n}", "i > {n} OR s = 'a'", "f = {n}"])
)
def test_many_conditions_are_bound_or_refused(form: str) -> None:
    for count in (300, 30_000):
        sql = chain(form, " OR ", count)
        try:
            bound = bind(sql, SCHEMA)
        except UnsupportedSql:
            assert count >= 2_200
        else:
            assert bound.columns == {word for word in form.split() if word in TYPES}
            assert not pruning.outcomes(bound, Statistics(pa.array([1]), {})).all_match.any()


# --- constants of bytes are bound, as literals and as parameters, and prune as DuckDB compares them ---


BYTES_SCHEMA = Schema(pa.schema({"b": pa.binary()}))
BYTES = [bytes([first, second]) for first in range(0, 256, 5) for second in (0, 127, 128, 255)] + [b"", b"ab", None]
BOUND = [
    "b = from_hex('0A7F')", "b < unhex('80')", "b >= from_hex('')", "b BETWEEN from_hex('10') AND from_hex('8080')",
    r"b = '\x0A\x7F'::BLOB", "b = 'ab'::BLOB", r"b > CAST('a\x62' AS BLOB)", "b IN (from_hex('0a7f'), 'ab'::BLOB)",
    "b <> from_hex('0aff')", "NOT b IN ('ab'::BLOB, NULL)",
]  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> zskip.Table:
    rows = pa.table({"b": pa.array(BYTES, pa.binary())})
    return zskip.write(rows, tmp_path_factory.mktemp("t") / "t", by=["b"], files=8)


@pytest.mark.parametrize("sql", BOUND)
def test_they_are_bound_and_find_what_duckdb_finds(sql: str, table: zskip.Table) -> None:
    assert not any(isinstance(node, Opaque) for node in walk(bind(sql, BYTES_SCHEMA).tree))
    rows = pa.table({"b": pa.array(BYTES, pa.binary())})
    with duckdb.connect() as con:
        con.register("rows", rows)
        (expected,) = con.execute(f"SELECT count(*) FROM rows WHERE {sql}").fetchall()[0]
    assert table.plan(sql).count() == table.plan(sql).to_arrow().num_rows == expected


def test_they_prune(table: zskip.Table) -> None:
    for plan in (table.plan("b = from_hex('0A7F')"), table.plan("b = $v", params={"v": b"\x0a\x7f"})):
        assert plan.count() == 1
        assert len(plan.files) == 1
    assert table.plan("b IN $v", params={"v": [b"ab", b"\x0a\x7f"]}).count() == 2


@pytest.mark.parametrize("sql", ["b = from_hex('0')", r"b = 'a\b'::BLOB", "b = 'é'::BLOB", "b = from_hex('zz')"])
def test_others_are_left_to_the_engine(sql: str) -> None:
    assert any(isinstance(node, Opaque) for node in walk(bind(sql, BYTES_SCHEMA).tree))


def test_spark_has_a_literal_of_its_own(table: zskip.Table) -> None:
    bound = bind("b = X'0A7F'", BYTES_SCHEMA, dialect="spark")
    assert not any(isinstance(node, Opaque) for node in walk(bound.tree))
    assert len(table.plan("b = X'0A7F'", dialect="spark").files) == 1


def test_a_deleted_value_is_gone(tmp_path: Path) -> None:
    own = zskip.write(pa.table({"b": pa.array(BYTES, pa.binary())}), tmp_path / "t", by=["b"], files=4)
    assert own.delete("b = $v", params={"v": b"ab"}).rows == 1
    assert own.plan("b = 'ab'::BLOB").count() == 0


# --- texts and numbers that Python reads, or rounds, unlike the engine: files were skipped, and delete() took rows ---


BETWEEN = float(np.float32(2**54 + 2**30))  # an integer above it is nearer to the next FLOAT, as DOUBLE it is not
FLOATS = np.array([BETWEEN, np.nextafter(np.float32(BETWEEN), np.float32(1e30)), 0.1, 0.5, 3.14159265, 2**24], "f4")
AS_FLOAT = (2**54 + 2**30 + 1, "17104510224695296.00000001", "0.1", "3.14159265", 2**24 + 1, "'0.1'", "1e-1")
CONDITIONS = (
    *(f"i < TRY_CAST('१२' AS {type})" for type in ("INTEGER", "DOUBLE", "DECIMAL(9, 2)", "FLOAT")),
    *("coalesce(i < TRY_CAST('٣' AS DOUBLE), true)", "i = '१२'", "i IS DISTINCT FROM TRY_CAST('१२' AS BIGINT)"),
    *(f"ts < TRY_CAST('2024-01-04{end}' AS TIMESTAMPTZ)" for end in ("Z", "+05", " 00:00Z", " 00:00+05", "")),
    "CAST(ts AS DATE) IS DISTINCT FROM TRY_CAST('2024-01-04Z' AS TIMESTAMPTZ)",
    *(f"f {op} {number}" for op in ("=", "<", ">", "IS DISTINCT FROM") for number in AS_FLOAT),
    *(f"f IN ({number}, 0.5)" for number in AS_FLOAT if "'" not in str(number)),
    *(f"f BETWEEN 0.05 AND {number}" for number in AS_FLOAT if "'" not in str(number)),
    "f IN ('NaN', 0.5)",
    "f NOT IN ('-1.5'::FLOAT, 'NaN', -5.50)",
)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_constants_are_those_that_duckdb_reads(numbers: zskip.Table, condition: str) -> None:
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    rows = numbers.to_arrow()  # noqa: F841  # DuckDB reads it
    try:
        wanted = sorted(n for (n,) in con.sql(f"SELECT i FROM rows WHERE {condition}").fetchall())
    except duckdb.Error:
        with pytest.raises((duckdb.Error, zskip.ZskipError, pa.ArrowException)):
            numbers.plan(condition).to_arrow()
        return
    assert sorted(numbers.plan(condition).to_arrow()["i"].to_pylist()) == wanted
    assert sorted(row[0] for row in numbers.plan(condition).to_duckdb(con).fetchall()) == wanted


@pytest.mark.parametrize("digits", ["6", "06"])
def test_digits_of_bytes_come_in_pairs(digits: str) -> None:
    """Spark puts a zero before an odd number of digits: that is left to Spark."""
    bound = bind(f"b = X'{digits}'", Schema(pa.schema({"b": pa.binary()})), dialect="spark")
    assert isinstance(bound.tree, Opaque) == (digits != "06")


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> zskip.Table:
    days = [dt.datetime(2024, 1, day, tzinfo=dt.UTC) for day in range(1, 7)]
    rows = pa.table({"i": range(6), "ts": pa.array(days, pa.timestamp("us", "UTC")), "f": FLOATS})
    return zskip.write(rows, tmp_path_factory.mktemp("numbers") / "t", by=["i", "f"], files=6)
