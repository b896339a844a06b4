"""Long chains of one comparison are bound as one list: they mean what their terms mean, wherever they stand."""

from __future__ import annotations

import random

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from zskip import language as expr
from zskip import pruning
from zskip.binder import bind, bind_cache, chains, fast_path
from zskip.core.schema import Schema
from zskip.errors import SqlError
from zskip.language.tree import In, Not, walk
from zskip.stats.collect import row_groups

TYPES = {"i": pa.int64(), "t": pa.int8(), "u": pa.uint64(), "f": pa.float64(), "s": pa.string(), "d": pa.date32()}
SCHEMA = Schema(pa.schema({**TYPES, "Mixed Case": pa.int32()}))


def chain(form: str, link: str, count: int = 150) -> str:
    """A form again and again: `{n}` stands for a number in it."""
    return link.join(form.format(n=number * 7) for number in range(count))


ORED, ANDED = chain("i = {n}", " OR "), chain("i <> {n}", " AND ")
QUOTED = chain("'{n}'", ", ")
TAKEN = [
    ORED, ANDED, chain("t = {n}", " OR "), chain("u != {n}", " AND "), chain("s = 'k{n}'", "\nor\n"),
    chain("I = {n}", " OR "), f"f > 3 AND ({ORED})", f"NOT ({ORED})", f"({ORED}) AND ({ANDED})", f"{ORED} OR t = 999",
    f"f > 3 AND {ORED}", f"{ORED} AND f > 3", f"f > 3 OR {ORED} OR t = 1 AND f < 9", f"{ANDED} AND i <> NULL",
    f"f BETWEEN 1 AND {ORED}", f"{ANDED} OR f > 9", f"NOT {ORED}", f"CASE WHEN {ORED} THEN t = 7 ELSE f > 5 END",
    chain("i = {n}", " OR ") + chain(" OR t = {n}", ""), f"{ORED} OR s = '{ORED.replace('i', 's')}'", f"{ORED} -- i",
    chain("s = 'it''s {n}'", " OR ") + " OR s = 'k7'", f"coalesce({ORED}, f > 3)",
    f"{ORED} /* or */ + 1", f"{ORED} + 1",
]  # fmt: skip
NESTED = " OR ".join(["s = 'k7'", f"s = '({ANDED})'"] * 60)
LEFT = [
    NESTED,    chain("f = {n}", " OR "), chain("s = {n}", " OR "), f"f BETWEEN 1 AND {ANDED}",
    chain("i = '{n}'", " OR "), chain("d = '2020-01-0{n}'", " OR "), chain("i = -{n}", " OR "),
    chain("i = 9999999999999999999{n}", " OR "), chain("i = {n}", " AND "), chain("i <> {n}", " OR "),
    chain("i = {n} OR t = {n}", " OR "), f"s = '{ORED}'", f"{ORED} OR", chain("nothing = {n}", " OR "),
    chain("(s = 'k{n}')", " OR "), chain("i = {n} + 1", " OR "), chain("i = {n}.5", " OR "),
    f"{ORED})", f"s IN ('{ORED}', {QUOTED})", f"$${ORED}$$ = s", f"t = 1 /* {ORED} */",
    f"len(list_filter([7, 8], i -> {ORED})) = 1",
]  # fmt: skip


def bound(sql: str, dialect: str = "duckdb") -> expr.Predicate | str:
    bind_cache._cache.clear()
    try:
        return bind(sql, SCHEMA, dialect=dialect)
    except SqlError as error:
        return f"{type(error).__name__}: {error}"


def rows(count: int = 300) -> pa.Table:
    draw = random.Random(3)
    numbers = [[draw.choice([None, 0, 1, 7, 14, 99]) for _ in range(count)] for _ in range(7)]
    texts = [draw.choice([None, "k0", "k7", "x"]) for _ in range(count)]
    values = dict(zip(SCHEMA.arrow.names, numbers, strict=True)) | {"s": texts, "d": [None] * count}
    return pa.table({name: pa.array(values[name], SCHEMA.arrow.field(name).type) for name in values})


@pytest.mark.parametrize(
    ("sql", "dialect"),
    [
        pytest.param(sql, dialect, id=f"{dialect}-{at}", marks=[pytest.mark.slow] if (at + second) % 2 else [])
        for at, sql in enumerate(TAKEN + LEFT)
        for second, dialect in enumerate(("duckdb", "spark"))
    ],
)
def test_a_chain_means_what_its_terms_mean(sql: str, dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = bound(sql, dialect)
    monkeypatch.setattr(chains, "chains_as_lists", lambda source, names: source)
    by_term = bound(sql, dialect)
    if isinstance(found, str) or isinstance(by_term, str):
        assert found == by_term
        return
    assert (found.text, found.columns) == (by_term.text, by_term.columns)
    assert (" IN (" in found.bound_text and found.bound_text != by_term.bound_text) == (sql in TAKEN)
    duckdb_texts = [each.bound_text if dialect == "duckdb" else each.sql("duckdb") for each in (found, by_term)]
    if None in duckdb_texts:
        return
    answers, by_terms = map(answered, duckdb_texts)
    assert answers == by_terms
    assert sql not in TAKEN or len(set(answers)) > 1
    units = row_groups(rows(), np.arange(rows().num_rows + 1), SCHEMA).statistics(sorted(found.columns))
    outcomes, right = pruning.outcomes(found, units), np.array([each is True for each in answers])
    assert not answers or outcomes.may_match[right].all()
    assert not answers or not outcomes.all_match[~right].any()


def answered(text: str) -> list[object]:
    """A predicate's answer for every row; nothing where DuckDB refuses it."""
    with duckdb.connect() as con:
        con.register("rows", rows())
        try:
            return [answer for (answer,) in con.sql(f"SELECT ({text}\n) FROM rows").fetchall()]
        except duckdb.Error:
            return []


def test_a_hundred_thousand_terms_are_read_as_a_list() -> None:
    for sql in (chain("i = {n}", " OR ", 100_000), chain("s = 'k{n}'", " OR ", 100_000)):
        assert isinstance(bind(sql, SCHEMA).tree, In)


def test_six_thousand_plain_conditions_bind() -> None:
    """More than 5,000 were refused, though they take no longer than a tenth of as many others."""
    for form, count in (
        ("i = {n} AND t < {n}", 3_100),
        ("i BETWEEN {n} AND {n}", 4_100),
        ("i > {n} OR s = 'a'", 3_100),
    ):
        assert len(bind(chain(form, " OR ", count), SCHEMA).columns) > 0
    with pytest.raises(SqlError, match="too long to be read"):
        bind(chain("i = {n} AND t < {n}", " OR ", 3_200), SCHEMA)
    with pytest.raises(SqlError, match="too long to be read"):
        bind(chain("i + 1 = {n} OR t < {n}", " OR ", 4_000), SCHEMA)


def test_four_thousand_terms_are_one_list() -> None:
    ored, anded = (bound(chain(form, link, 4_000)) for form, link in (("i = {n}", " OR "), ("i <> {n}", " AND ")))
    assert isinstance(ored, expr.Predicate)
    assert isinstance(anded, expr.Predicate)
    assert isinstance(ored.tree, In)
    assert len(ored.tree.values) == 4_000
    assert isinstance(anded.tree, Not)
    assert len(anded.conjuncts) == 1


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
@pytest.mark.parametrize(
    "sql",
    [
        "{c} BETWEEN 3 AND 7", "{c} BETWEEN -3 AND -1", "{c} BETWEEN 7 AND 3", "{c} BETWEEN 1.5 AND 2.5",
        "{c} BETWEEN 1 AND 2.5", "{c} BETWEEN 1e1 AND 2", "{c} BETWEEN 'a' AND 'b'", "{c} BETWEEN '3' AND '7'",
        "{c} BETWEEN 'a' AND 3", "{c} BETWEEN '2020-01-01' AND '2020-02-01'", "{c} BETWEEN 3 AND NULL",
        "{c} BETWEEN 3 AND -", "{c} BETWEEN 3 AND 7 8", "{c} BETWEEN 99999999999999999999 AND 7", "{c} BETWEEN",
        "{c} = DATE '2020-01-31'", "{c} < DATE '2020-02-30'", "{c} >= DATE '20-1-1'", "DATE '2020-01-31' <> {c}",
        "{c} BETWEEN DATE '2020-01-01' AND DATE '2020-02-01'", "{c} = DATE 'x'", "{c} = DATE", "{c} = 0", "{c} < 127",
        "{c} >= 128", "{c} = 18446744073709551615", "{c} <> 1.0", "{c} LIKE 'a%'", "{c} LIKE 'a'", "{c} LIKE ''",
        "{c} LIKE '%'", "{c} LIKE 'a%b'", "{c} LIKE '%b'", "{c} LIKE 'a\\_b'", "{c} NOT LIKE 'a%'", "{c} LIKE",
        "{c} LIKE 'a' 'b'", "{c} LIKE 7",
        "{c} BETWEEN 'a\\b' AND 'c'", "{c} NOT BETWEEN 3 AND 7", "{c} BETWEEN SYMMETRIC 7 AND 3", "{c} BETWEEN 3",
    ],
)  # fmt: skip
def test_a_leaf_without_the_parser_means_what_the_parser_makes_of_it(
    sql: str, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves = [f"NOT ({sql.format(c=column)}) OR i > 2" for column in [*TYPES, '"Mixed Case"']]
    quick = [bound(each, dialect) for each in leaves]
    monkeypatch.setattr(fast_path.FastPath, "leaf", lambda self, tokens: None)
    for found, slow in zip(quick, [bound(each, dialect) for each in leaves], strict=True):
        if isinstance(found, str) or isinstance(slow, str):
            assert found == slow
        else:
            assert (found.bound_text, found.columns) == (slow.bound_text, slow.columns)
            assert [shown(node) for node in walk(found.tree)] == [shown(node) for node in walk(slow.tree)]


def shown(node: object) -> str:
    values = node.values.to_pylist() if isinstance(node, In) else None
    names = ("op", "left", "right", "term", "sql", "reason")
    return f"{type(node).__name__} {values} {[getattr(node, name) for name in names if hasattr(node, name)]}"
