r"""Constants of bytes are bound, as literals and as parameters, and prune as DuckDB compares them."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import zskip
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.language.tree import Opaque, walk

SCHEMA = Schema(pa.schema({"b": pa.binary()}))
VALUES = [bytes([first, second]) for first in range(0, 256, 5) for second in (0, 127, 128, 255)] + [b"", b"ab", None]
BOUND = [
    "b = from_hex('0A7F')", "b < unhex('80')", "b >= from_hex('')", "b BETWEEN from_hex('10') AND from_hex('8080')",
    r"b = '\x0A\x7F'::BLOB", "b = 'ab'::BLOB", r"b > CAST('a\x62' AS BLOB)", "b IN (from_hex('0a7f'), 'ab'::BLOB)",
    "b <> from_hex('0aff')", "NOT b IN ('ab'::BLOB, NULL)",
]  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> zskip.Table:
    rows = pa.table({"b": pa.array(VALUES, pa.binary())})
    return zskip.write(rows, tmp_path_factory.mktemp("t") / "t", by=["b"], files=8)


@pytest.mark.parametrize("sql", BOUND)
def test_they_are_bound_and_find_what_duckdb_finds(sql: str, table: zskip.Table) -> None:
    assert not any(isinstance(node, Opaque) for node in walk(bind(sql, SCHEMA).tree))
    rows = pa.table({"b": pa.array(VALUES, pa.binary())})
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
    assert any(isinstance(node, Opaque) for node in walk(bind(sql, SCHEMA).tree))


def test_spark_has_a_literal_of_its_own(table: zskip.Table) -> None:
    bound = bind("b = X'0A7F'", SCHEMA, dialect="spark")
    assert not any(isinstance(node, Opaque) for node in walk(bound.tree))
    assert len(table.plan("b = X'0A7F'", dialect="spark").files) == 1


def test_a_deleted_value_is_gone(tmp_path: Path) -> None:
    own = zskip.write(pa.table({"b": pa.array(VALUES, pa.binary())}), tmp_path / "t", by=["b"], files=4)
    assert own.delete("b = $v", params={"v": b"ab"}).rows == 1
    assert own.plan("b = 'ab'::BLOB").count() == 0
