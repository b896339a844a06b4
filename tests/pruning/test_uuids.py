"""UUIDs prune as DuckDB compares them: in files of its own writer and of Arrow's, and in tables ordered by them."""

from __future__ import annotations

import operator
import random
import uuid
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests.statements.cases import statements
from tests.tables import ranges_of, statistics_of
from zskip import pruning
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.core.types import UUID
from zskip.language import tree
from zskip.language.render import render
from zskip.language.tree import Compare, Literal, Reference

SCHEMA = Schema(pa.schema({"u": pa.uuid(), "b": pa.binary(16)}))


def rows_of(dice: random.Random, count: int) -> pa.Table:
    """UUIDs of every first byte, their neighbours among them, and NULLs."""
    numbers = [dice.getrandbits(128) for _ in range(count - 6)] + [0, 1, 2**127 - 1, 2**127, 2**128 - 2, 2**128 - 1]
    values = sorted(number.to_bytes(16, "big") for number in numbers)
    storage = pa.array([None if dice.random() < 0.01 else value for value in values], pa.binary(16))
    return pa.table({"u": pa.ExtensionArray.from_storage(pa.uuid(), storage), "n": range(count)})


def predicates(dice: random.Random, rows: pa.Table, count: int) -> list[str]:
    known = [value for value in rows["u"].to_pylist() if value is not None]

    def literal() -> str:
        near = dice.choice(known).int + dice.choice([-1, 0, 0, 0, 1])
        text = str(uuid.UUID(int=min(max(near, 0), 2**128 - 1)))
        return dice.choice([f"'{text}'", f"UUID '{text.upper()}'", f"'{text}'::UUID"])

    shapes = (
        lambda: f"u {dice.choice(['=', '<', '<=', '>', '>=', '<>'])} {literal()}",
        lambda: f"{literal()} {dice.choice(['<', '>='])} u",
        lambda: f"u IS {dice.choice(['', 'NOT '])}DISTINCT FROM {literal()}",
        lambda: f"NOT (u > {literal()} AND u < {literal()})",
        lambda: f"u IN ('{dice.choice(known)}', '{dice.choice(known)}')",
        lambda: f"u IN ({literal()}, UUID '{dice.choice(known)}', {literal()})",
        lambda: f"u BETWEEN {literal()} AND UUID '{dice.choice(known)}'",
        lambda: f"u BETWEEN '{dice.choice(known)}' AND '{dice.choice(known)}'",
        lambda: f"coalesce(u, {literal()}::UUID) = {literal()}",
        lambda: f"(u, n) IN ((UUID '{dice.choice(known)}', {dice.randrange(len(rows))}))",
        lambda: f"CASE WHEN n > 100 THEN u ELSE {literal()}::UUID END <= {literal()}",
        lambda: f"u = '{{{dice.choice(known)}}}'",
    )
    return [dice.choice(shapes)() for _ in range(count)]


def hold_to_duckdb(table: zskip.Table, rows: pa.Table, dice: random.Random, count: int) -> None:
    with duckdb.connect() as con:
        con.register("rows", rows)
        for sql in predicates(dice, rows, count):
            wanted = sorted(number for (number,) in con.execute(f"SELECT n FROM rows WHERE {sql}").fetchall())
            assert sorted(table.plan(sql).to_arrow()["n"].to_pylist()) == wanted, sql


def is_skipped(sql: str, dialect: str = "duckdb") -> bool:
    """Whether a unit is skipped whose UUIDs all begin with ff."""
    bounds = (pa.array([b"\xff" + end * 15], UUID) for end in (b"\0", b"\xff"))
    statistics = statistics_of(u=ranges_of(*bounds))
    return not pruning.outcomes(bind(sql, SCHEMA, dialect=dialect), statistics).may_match.any()


def test_texts_among_uuids_are_uuids() -> None:
    other, known = "00000000-0000-0000-0000-000000000001", "ffffffff-0000-0000-0000-000000000001"
    assert is_skipped(f"u IN ('{other}', UUID '{other}')")
    assert is_skipped(f"u BETWEEN '{other}' AND UUID '{other}'")
    assert not is_skipped(f"u IN ('{other}', UUID '{known}')")
    assert not is_skipped(f"u IN ('{known}', UUID '{other}')")
    assert not is_skipped(f"u IN ('x', UUID '{other}')")
    for sql in (f"s IN ('x', UUID '{other}')", f"s BETWEEN 'x' AND UUID '{other}'"):
        assert tree.has_call_or_opaque(bind(sql, Schema(pa.schema({"s": pa.string()}))).tree), sql


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_foreign_files_give_the_rows_of_duckdb(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    rows = rows_of(dice, 800)
    with duckdb.connect() as con:
        for number in range(8):
            part, path = rows.slice(100 * number, 100), str(tmp_path / f"{number}.parquet")
            con.register("part", part)
            if number % 2:
                pq.write_table(part, path)
            else:
                con.execute(f"COPY part TO '{path}'")
    table = zskip.index(tmp_path)
    hold_to_duckdb(table, rows, dice, 24)
    some = rows["u"][450].as_py() or rows["u"][451].as_py()
    for plan in (table.plan(f"u = '{some}'"), table.plan("u = $u", params={"u": some})):
        assert len(plan.files) == 1
        assert set(plan.to_arrow()["u"].to_pylist()) == {some}
        assert plan.to_duckdb().aggregate("count(DISTINCT u)").fetchall() == [(1,)]
    assert len(table.plan(f"u < '{some}'").files) == 5


@pytest.mark.parametrize(
    "layout", ["auto", *(pytest.param(one, marks=pytest.mark.slow) for one in ("hilbert", "tree", "zorder", "linear"))]
)
def test_a_table_is_clustered_by_a_uuid(tmp_path: Path, layout: str) -> None:
    dice = random.Random(layout)
    rows = rows_of(dice, 800)
    shuffled = rows.take(pa.array(dice.sample(range(800), 800)))
    table = zskip.write(shuffled, tmp_path / "t", by="u", layout=layout, files=8, sketches={"u": "values"})
    hold_to_duckdb(table, rows, dice, 12)
    some = next(value for value in rows["u"].to_pylist() if value is not None and value.int > 2**127)
    assert len(table.plan(f"u = '{some}'").files) == 1
    assert zskip.open(tmp_path / "t").verify(random=6, engines=("duckdb", "arrow")).clean


def test_a_sketch_of_values_finds_the_file_of_a_uuid(tmp_path: Path) -> None:
    dice = random.Random(7)
    rows = rows_of(dice, 800)
    shuffled = rows.set_column(1, "n", pa.array(dice.sample(range(800), 800)))
    table = zskip.write(shuffled, tmp_path / "t", by="n", files=8, sketches={"u": "values"})
    hold_to_duckdb(table, shuffled, dice, 12)
    some = next(value for value in rows["u"].to_pylist() if value is not None and value.int > 2**127)
    assert len(table.plan(f"u = '{some}'").files) == 1


@pytest.mark.parametrize("sql", statements("uuids", "left to the engine", "pruning"))
def test_what_only_the_engine_reads_is_left_to_it(sql: str) -> None:
    assert not is_skipped(sql)


def test_bytes_of_the_same_width_are_no_uuids() -> None:
    assert SCHEMA.columns["b"].type == pa.binary()
    assert bind("b = 'abc'", SCHEMA).sql("duckdb") is not None


def test_a_uuid_is_written_as_one() -> None:
    node = Compare("<", Reference("u", UUID), Literal(pa.scalar(bytes(range(16)), UUID)))
    assert render(node, "duckdb") == "\"u\" < CAST('00010203-0405-0607-0809-0a0b0c0d0e0f' AS UUID)"
    assert render(node, "spark") is None


def spelled(dice: random.Random, text: str) -> str:
    """A canonical text, or another that is no UUID, or not in lower case."""
    return dice.choice(
        [text, text, text, text.upper(), f"{{{text}}}", text.replace("-", ""), text[:-1], text + "0", ""]
    )


TEXT_TESTS = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip


def test_in_spark_uuids_compare_as_their_texts() -> None:
    dice = random.Random(3)
    units = [[uuid.UUID(int=dice.getrandbits(128) >> 120 * (n % 2)) for _ in range(1 + n % 3)] for n in range(60)]
    ends = (pa.array([end(unit).bytes for unit in units], UUID) for end in (min, max))
    statistics = statistics_of(u=ranges_of(*ends))
    skipped = 0
    for number in range(200):
        op, text = dice.choice(list(TEXT_TESTS)), spelled(dice, str(dice.choice(dice.choice(units))))
        sql = f"u IN ('{text}', '{units[0][0]}')" if number % 5 == 0 else f"u {op} '{text}'"
        test = TEXT_TESTS[op]
        found = pruning.outcomes(bind(sql, SCHEMA, dialect="spark"), statistics)
        for at, unit in enumerate(units):
            true = [str(u) in (text, str(units[0][0])) if number % 5 == 0 else test(str(u), text) for u in unit]
            assert found.may_match[at] or not any(true), (sql, unit)
            assert not found.all_match[at] or all(true), (sql, unit)
        skipped += int((~found.may_match).sum())
    assert skipped > 2_000
    assert is_skipped("u = '00000000-0000-0000-0000-00000000000a'", "spark")
    assert not is_skipped("u = '00000000-0000-0000-0000-00000000000A'", "spark")
