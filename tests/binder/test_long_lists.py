"""Long lists of constants are read apart from the parser: they mean what they meant, wherever they stand."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from zskip import pruning
from zskip.binder import Parameters, bind, bind_cache, lists
from zskip.core.schema import Schema
from zskip.errors import SqlError, UnknownParameter, UnsupportedSql
from zskip.language.tree import In, walk
from zskip.stats import Ranges, Statistics

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
NUMBERS = ", ".join(str(number * 7 - 500) for number in range(400))
TEXTS = ", ".join(f"'k{number}'" for number in range(400))
DATES = ", ".join(f"DATE '20{number % 80 + 10}-{number % 12 + 1:02}-{number % 28 + 1:02}'" for number in range(400))
DOUBLES = ", ".join(f"CAST('{number / 4}' AS DOUBLE)" for number in range(-200, 200))
DECIMALS = ", ".join(f"{number * 7 - 500}.{number % 4 * 25:03}" for number in range(400))
DATE_TEXTS = DATES.replace("DATE ", "")


def described(sql: str, dialect: str = "duckdb", params: Parameters | None = None) -> list[str]:
    """What the tree of a predicate says, part by part."""
    bound = bind(sql, SCHEMA, dialect=dialect, params=params)
    return [repr(bound.text), repr(bound.bound_text), *(shown(node) for node in walk(bound.tree))]


def shown(node: object) -> str:
    if isinstance(node, In):
        return f"{node.term} in {node.values.to_pylist()} {node.or_null}"
    return f"{type(node).__name__} {[getattr(node, name) for name in ('op', 'left', 'right', 'sql', 'reason') if hasattr(node, name)]}"  # noqa: E501


ANYWHERE = [
    "i IN ({n})",
    "i NOT IN ({n}) AND s IN ({s})",
    "t IN ({n})",
    "u IN ({n})",
    "f IN ({n})",
    "g IN ({n})",
    "c IN ({n})",
    "s IN ({s})",
    "s IN ({n})",
    "i IN ({s})",
    "d IN ({d})",
    "d IN ({x})",
    "m IN ({d})",
    "s IN ({d})",
    "b IN ({n})",
    "i + 1 IN ({n})",
    "NOT (i IN ({n}) OR s IN ({s}))",
    "5 IN ({n})",
    "i in\n (  {n}  ) -- IN ({n})\n AND t > 3",
    "s = 'IN ({n})' AND i IN ({n})",
    "s = 'IN ({n})'",
    "i > 5 /* i IN ({n}) */",
    "CASE WHEN i IN ({n}) THEN t ELSE 0 END > 3",
    "(i IN ({n})) = TRUE",
    "(i IN ({n})) IS NOT TRUE",
    "(i, t) IN ({n})",
    "i IN ({n}, NULL)",
    "i IN ({n}, 5.5)",
    "i IN ({n}, 1e3)",
    "i IN [{n}]",
    "i IN (({n}))",
    "hash(i) IN ({n})",
    "upper(s) IN ({s})",
    "s IN ({s}, 'it''s')",
    "s IN ({s}, 'a\\b')",
    "d IN ({d}, DATE '2024-02-30')",
    "d IN ({d}, DATE '0000-01-01')",
    "coalesce(i, 0) IN ({n})",
    "i IN ({n}) = (s IN ({s}))",
    "position('a' IN ({s})) = 1",
    "s IN ('', '''', {s}, '''a''b''')",
    "s IN ({s}, '''a\\''b')",
    "s IN ({s}, 'a' 'b')",
    "s IN ({s}, 'a''', 'b) IN (')",
    "i IN ((-5), {n})",
    "i IN (-5, - 6, {n})",
    "f IN (CAST('1.5' AS DOUBLE), {f})",
    "i IN ({f})",
    "s IN ({f})",
    "f IN ({f}, CAST('1.5x' AS DOUBLE))",
    "i IN ({n}",
    "i IN {n})",
    "nobody IN ({n})",
    "d IN ({n})",
    *(f"{column} IN ({{p}})" for column in TYPES if column not in "dm"),
    "c NOT IN ({p})", "c + 1 IN ({p})", "i IN ({p}, 5)", "c IN ({p}, 123456789.5)", "c IN ({p}, 0.12345678901234567)",
    "5.5 IN ({p})", "i IN ({p}, .5)", "c IN ({p}, -0.0)", "c IN [{p}]", "i IN ({p}, (-1.5))",
]  # fmt: skip


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
@pytest.mark.parametrize("form", ANYWHERE)
def test_a_long_list_means_what_the_parser_makes_of_it(
    form: str, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = form.format(n=NUMBERS, s=TEXTS, d=DATES, x=DATE_TEXTS, f=DOUBLES, p=DECIMALS)

    def answer() -> list[str]:
        try:
            return described(sql, dialect)
        except SqlError as error:
            return [type(error).__name__, str(error)]

    short = answer()
    monkeypatch.setattr(lists, "SHORTEST", 10**9)
    assert short == answer()


def test_it_is_read_as_an_array() -> None:
    sql = f"i IN ({NUMBERS})"
    (found,) = [node for node in walk(bind(sql, SCHEMA).tree) if isinstance(node, In)]
    assert found.values.to_pylist() == [number * 7 - 500 for number in range(400)]
    assert bind(sql, SCHEMA).sql() == f'"i" IN ({NUMBERS})'


@pytest.mark.parametrize(
    "params",
    [[10**17 + 1, list(range(1000))], {"a": 10**17 + 1, "b": list(range(1000))}, [str(10**17 + 1), list(range(1000))]],
)
def test_a_parameter_that_is_the_stand_in_is_no_list(params: Parameters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists.secrets, "randbelow", lambda limit: 0)
    named = isinstance(params, Mapping)
    subject = "s" if isinstance(next(iter(params.values() if isinstance(params, Mapping) else params)), str) else "i"
    sql = f"i IN ({NUMBERS}) AND {subject} IN ({'$a' if named else '?'}) AND i IN {'$b' if named else '?'}"
    bound = bind(sql, SCHEMA, params=params)
    sizes = [len(node.values) for node in walk(bound.tree) if isinstance(node, In)]
    assert sizes == [400, 1, 1000]
    assert bound.text == sql


def test_a_list_as_a_parameter_is_long_too() -> None:
    days = [dt.date(2020, 1, 1) + dt.timedelta(days=number) for number in range(1000)]
    bound = bind("d IN $days AND i > 3", SCHEMA, params={"days": days})
    (found,) = [node for node in walk(bound.tree) if isinstance(node, In)]
    assert found.values.to_pylist() == days
    assert bound.conjuncts[0].text == "d IN $days"


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


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
@pytest.mark.parametrize("kind", VALUES)
def test_a_parameter_means_what_its_literals_mean(kind: str, dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def answers() -> list[list[str]]:
        found = []
        for column in TYPES:
            try:
                found.append(described(f"t > 1 AND {column} IN $list", dialect, {"list": VALUES[kind]}))
            except SqlError as error:
                found.append([type(error).__name__, str(error)])
        return found

    short = answers()
    monkeypatch.setattr(lists, "FEWEST", 10**9)
    monkeypatch.setattr(lists, "SHORTEST", 10**9)
    bind_cache._cache.clear()
    assert short == answers()


def test_long_parameters_are_read_apart_from_the_parser() -> None:
    for values in ([number / 4 for number in range(100_000)], [f"it's {number}" for number in range(100_000)]):
        column = "f" if isinstance(values[0], float) else "s"
        found = bind(f"{column} IN ?", SCHEMA, params=[values]).tree
        assert isinstance(found, In)
        assert len(found.values) == 100_000
        again = bind(bind(f"{column} IN ?", SCHEMA, params=[values]).bound_text, SCHEMA).tree
        assert isinstance(again, In)
        assert again.values == found.values


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


def test_lists_in_great_number_are_written_out_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists.secrets, "randbelow", lambda limit: 0)
    taken = ", ".join(str(10**17 + number) for number in range(100))
    sql = " OR ".join([f"i IN ({NUMBERS})"] * 50 + [f"t = 5 AND i IN ({taken})"])
    bound = bind(sql, SCHEMA)
    assert bound.bound_text == sql.replace("i IN", '"i" IN').replace("t =", '"t" =')


@pytest.mark.parametrize("sql", ["i = ?", "i IN (?)", "i IN (1, ?)", "i BETWEEN 1 AND ?", "list_contains(?, i)"])
@pytest.mark.parametrize("value", [[1, 2], (1,), {3}, []])
def test_a_list_as_a_parameter_stands_behind_in_alone(sql: str, value: object) -> None:
    with pytest.raises(UnknownParameter, match="is allowed only after IN") as caught:
        bind(sql, SCHEMA, params=[value])
    assert caught.value.span == (sql.index("?"), sql.index("?") + 1)


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
def test_forty_thousand_constants_of_any_form_bind(column: str, first: str, dialect: str) -> None:
    point = ".25" if "." in first else ""
    listed = ", ".join([first, *(f"{'-' * (number % 2)}{number}{point}" for number in range(40_000))])
    bound = bind(f"{column} IN ({listed})", SCHEMA, dialect=dialect)
    assert bound.columns == {column}
    assert any(isinstance(node, In) for node in walk(bound.tree))
