"""What is no predicate raises and points at its place; what cannot be proved is kept; and nothing is executed."""

from __future__ import annotations

import contextlib
import pickle
import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests.statements.cases import statements
from zskip import language as expr
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.errors import (
    IncomparableTypes,
    InvalidOption,
    SqlError,
    SqlSyntaxError,
    UnknownColumn,
    UnknownParameter,
    UnsupportedSql,
)
from zskip.language.tree import Opaque, walk

SCHEMA = Schema(
    pa.schema({
        "x": pa.int32(),
        "s": pa.string(),
        "d": pa.date32(),
        "b": pa.bool_(),
        "st": pa.struct({"a": pa.int32()}),
    })
)  # fmt: skip
DIALECTS = ("duckdb", "spark")

# The predicate, with what is pointed at between « and »; nothing where there is no place to show.
ERRORS: list[tuple[type[SqlError], str]] = [
    (kind, marked)
    for kind in (UnknownColumn, IncomparableTypes, UnsupportedSql, SqlSyntaxError, UnknownParameter)
    for marked in statements("errors", kind.__name__, "binder")
]
ERRORS += [(SqlSyntaxError, ""), (SqlSyntaxError, "   ")]


def underlined(error: SqlError) -> str:
    """What the carets of a message stand under."""
    lines = str(error).splitlines()
    carets = re.search(r"\^+", lines[-1])
    return "" if carets is None else lines[-2][slice(*carets.span())]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("kind", "marked"), ERRORS, ids=lambda each: each if isinstance(each, str) else each.__name__)
def test_an_error_points_at_its_place(kind: type[SqlError], marked: str, dialect: str) -> None:
    sql = marked.replace("«", "").replace("»", "")
    wanted = marked.partition("«")[2].partition("»")[0]
    with pytest.raises(kind) as caught:
        bind(sql, SCHEMA, dialect=dialect)
    assert underlined(caught.value) == wanted


@pytest.mark.parametrize("sql", ["SELECT * FROM t WHERE x = 1", "FROM t", "WITH q AS (SELECT 1) SELECT * FROM q"])
def test_a_whole_query_is_called_one(sql: str) -> None:
    with pytest.raises(UnsupportedSql, match=r"whole query.*WHERE.*zskip\.sql\(\)") as caught:
        bind(sql, SCHEMA)
    assert underlined(caught.value) == sql
    with pytest.raises(UnsupportedSql, match="There is a subquery"):
        bind(f"x IN ({sql})", SCHEMA)


@pytest.mark.parametrize(("dialect", "types"), [("duckdb", "INTEGER with DATE"), ("spark", "INT with DATE")])
def test_types_are_called_as_the_dialect_does(dialect: str, types: str) -> None:
    with pytest.raises(IncomparableTypes, match=types):
        bind("x = DATE '2020-01-01'", SCHEMA, dialect=dialect)


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("x = 1 && s = 'a'", r"joined by AND, not by &&\.\n.*\n {8}\^\^$"),
        ("s = '&&' || s = 'a'", r"joined by OR, not by \|\|\.\n.*\n {11}\^\^$"),
        ("x IS NULL || x = 1", r"joined by OR, not by \|\|\.\n.*\n {12}\^\^$"),
        ("1 < x < 5", "join them by AND or OR"),
        ("b = x < 5", "join them by AND or OR"),
        ("x == None", "the test for it is IS NULL"),
        ("x IN (1, None)", "the test for it is IS NULL"),
        ("d > 2025-03-01", "need quotes"),
        ("2025-03-01 < d", "need quotes"),
        ("d > 2025-03-01 10:00:00", "need quotes"),
        ("x = 3; s = 'a'", "give one condition, and join two by AND or OR"),
        ("s LIKE DE%", r"needs single quotes: LIKE 'DE%'\."),
        ("s ilike %DE%", r"needs single quotes: LIKE 'DE%'\."),
        ("s = ‘DE’", r"no column \"‘DE’\"\. It has curly quotes: text needs straight ones, '…'\."),
        ("s = “D E” AND x = 1", "has curly quotes"),
        ("s = 'DE’", r"never closed\. It has curly quotes"),
        ("s = = ‘DE’", "has curly quotes"),
        ("x = ?", r"In a shell, --param 1=… gives it\."),
    ],
)
def test_an_error_suggests_what_may_be_meant(sql: str, hint: str) -> None:
    with pytest.raises(SqlError, match=hint):
        bind(sql, SCHEMA)


@pytest.mark.parametrize("sql", ["d > '2025-03-01' AND", "x = DATE '2025-03-01'"])
def test_no_quotes_are_suggested_where_a_date_has_them(sql: str) -> None:
    with pytest.raises(SqlError) as caught:
        bind(sql, SCHEMA)
    assert "need quotes" not in str(caught.value)


def test_curly_quotes_within_a_text_are_part_of_it() -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        bind("x = = 1 AND s = 'it’s'", SCHEMA)
    assert "curly" not in str(caught.value)


@pytest.mark.parametrize("sql", ["(x = 1) = b", "b = (x < 5)", "b = x BETWEEN 1 AND 2", "b = (x IN (1, 2))"])
def test_a_comparison_in_parentheses_is_a_value(sql: str) -> None:
    assert duckdb.sql(f"SELECT {sql} FROM (SELECT 1 AS x, TRUE AS b)").fetchall() == [(True,)]
    assert bind(sql, SCHEMA).columns == {"x", "b"}


def test_a_name_with_a_dot_is_quoted_once() -> None:
    pos = pa.struct({"lat": pa.float64()})
    schema = Schema(pa.schema({"id.orig_h": pa.string(), "plain": pa.string(), "pos": pos}))
    for sql, column in (
        ('"id.orig_hh" = 5', '"id.orig_hh". Did you mean "id.orig_h"?'),
        ("plan = 5", '"plan". Did'),
        ('"pos.lat" = 5', '"pos.lat". pos.lat is a field of a struct: write it without quotes.'),
    ):
        with pytest.raises(UnknownColumn, match=re.escape(f"There is no column {column}")):
            bind(sql, schema)


@pytest.mark.parametrize(
    "sql", ["-2*x = hash(x)", "(hash(x) + 1) * 2 > 5", "- hash(x) > 5 ", "(((hash(x)))) = 1", "hash(x) = (1)"]
)
def test_what_is_opaque_is_shown_whole(sql: str) -> None:
    """With the signs and parentheses at its ends."""
    for around in ("{}", "x > 5 AND ({})", "NOT ({})"):
        bound = bind(around.format(sql), SCHEMA)
        (opaque,) = [node for node in walk(bound.tree) if isinstance(node, Opaque)]
        assert opaque.sql.replace('"', "") == sql.strip()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("sql", ["ATTACH 'x.db'", "DETACH x", "EXPORT DATABASE 'x'", "USE x", "CREATE TABLE t (a INT)"])
def test_other_statements_are_refused(sql: str, dialect: str) -> None:
    with pytest.raises(SqlError):
        bind(sql, SCHEMA, dialect=dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("sql", statements("errors", "kept with a reason", "binder"))
def test_what_cannot_be_proved_is_kept_with_a_reason(sql: str, dialect: str) -> None:
    bound = bind(sql, SCHEMA, dialect=dialect)
    opaque = [node for node in walk(bound.tree) if isinstance(node, Opaque)]
    assert opaque or not bound.columns <= {"x"}, bound.tree
    assert all(node.reason for node in opaque)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_comments_are_no_part_of_a_predicate(dialect: str) -> None:
    two = "x = 1 -- a\n AND s = 'b' -- c"
    for sql in ("x = 1 -- AND s = 'b'", "x = 1 /* OR TRUE */", "/* a */ x = /* b */ 1", two):
        bound = bind(sql, SCHEMA, dialect=dialect)
        assert bound.columns == ({"x", "s"} if sql is two else {"x"})
        # What the engine gets ends with the predicate: a comment must not swallow what stands behind it.
        assert expr.conjunction([bound, bind("b", SCHEMA, dialect=dialect)]).columns >= {"x", "b"}
        assert not (bound.sql() or "").rstrip().endswith(("c", "*/"))


HOSTILE = [
    "x = 1; COPY (SELECT 1) TO '{victim}'",
    "x = 1) ; COPY (SELECT 1) TO '{victim}' --",
    "COPY (SELECT 1) TO '{victim}'",
    "x = (SELECT count(*) FROM read_text('{victim}'))",
    "x IN (SELECT 1 FROM query('COPY (SELECT 1) TO ''{victim}'''))",
    "query('COPY (SELECT 1) TO ''{victim}''') = 1",
    "ATTACH '{victim}'",
    "x = 1 /*; COPY (SELECT 1) TO '{victim}' */",
    "s = '''; COPY (SELECT 1) TO ''{victim}''; --'",
    "x = 1 -- \n; COPY (SELECT 1) TO '{victim}'",
    '"x""; COPY (SELECT 1) TO \'{victim}\'" = 1',
]


@pytest.mark.parametrize("sql", HOSTILE)
def test_hostile_text_executes_nothing(sql: str, tmp_path: Path) -> None:
    """Neither the plan, nor the engines that are handed its predicate, write a file that the text names."""
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table({"x": [1, 2], "s": ["a", "b"]}), tmp_path / "lake" / "a.parquet")
    table, victim = zskip.index(tmp_path / "lake"), tmp_path / "victim"
    # What gets as far as DuckDB fails there: no function runs a statement.
    with contextlib.suppress(SqlError, duckdb.Error):
        plan = table.plan(sql.format(victim=victim))
        plan.explain()
        plan.count()
        plan.to_arrow()
        plan.to_duckdb(duckdb.connect()).fetchall()
    assert not victim.exists()
    assert table.plan("x = 1").count() == 1


def test_messages_about_long_input_are_cut() -> None:
    """A name of two million characters was repeated whole."""
    name = "a" * 1_900_000
    with pytest.raises(UnknownColumn, match=r'no column "aaaa.* … .*There are') as caught:
        bind(f"{name} = 3", SCHEMA)
    assert len(str(caught.value)) < 2_000
    assert len(caught.value.message) < 2_000
    assert str(pickle.loads(pickle.dumps(InvalidOption(name)))) == str(InvalidOption(name))
    assert len(str(InvalidOption(name))) < 2_000


def test_a_column_named_like_a_type_needs_no_quotes() -> None:
    schema = Schema(pa.schema({"date": pa.date32()}))
    assert bind("date = DATE '2025-03-01'", schema).columns == {"date"}
    with pytest.raises(SqlSyntaxError) as told:
        bind("date = '2025-03-01' and", schema)
    assert "Quote" not in str(told.value)


def test_a_span_of_time_without_its_keyword() -> None:
    schema = Schema(pa.schema({"t": pa.timestamp("us")}))
    with pytest.raises(UnsupportedSql, match="INTERVAL 7 DAY"):
        bind("t > now() - 7 days", schema)


def test_any_and_all_may_be_compared() -> None:
    schema = Schema(pa.schema({"a": pa.int64(), "l": pa.list_(pa.int64())}))
    for text in ("a = ANY(l) = TRUE", "NOT a = ALL(l) = false", "true = a = ANY(l)"):
        assert bind(text, schema).columns == {"a", "l"}
    with pytest.raises(SqlSyntaxError, match="not chained"):
        bind("1 < a < 5", schema)


def test_a_column_named_like_a_keyword_needs_quotes() -> None:
    schema = Schema(pa.schema({"select": pa.string(), "x": pa.int32()}))
    with pytest.raises(SqlSyntaxError, match='Quote the column\'s name: "select"'):
        bind("x = 1 AND select = 'a'", schema)
    with pytest.raises(SqlSyntaxError) as told:
        bind("x = = 'select'", schema)
    assert "Quote" not in str(told.value)
    assert bind("\"select\" = 'a'", schema).columns == {"select"}


@pytest.mark.parametrize(
    "name", ["current_date", "current_timestamp", "localtimestamp", "current_user", "current_time"]
)
def test_a_column_named_like_a_value_of_the_session_is_the_column(name: str, tmp_path: Path) -> None:
    table = zskip.write(pa.table({name: [1, 2, 3], "a": [1, 2, 3]}), tmp_path / "t", by="a", files=3)
    for text in (f"{name} = 2", f"greatest({name}, 1) = 2", f"{name} + 0 = a AND a = 2", f"{name}::VARCHAR = '2'"):
        assert table.plan(text).to_arrow()["a"].to_pylist() == [2]
        assert zskip.sql(f"SELECT a FROM '{tmp_path}/t' WHERE {text}").fetchall() == [(2,)]
