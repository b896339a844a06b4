"""The caller's decimal context changes no answer: whatever rounds to it would move bounds inwards."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog

import zskip

DIGITS = [("12", 5, 2), ("123456789.01", 18, 2), ("1234567890123456789012345678.0123456789", 38, 10)]


@pytest.fixture(autouse=True)
def small_context() -> Iterator[None]:
    """Six digits, and an error for every operation of zskip's that rounds."""
    with decimal.localcontext() as context:
        context.prec = 6
        context.traps[decimal.Inexact] = True
        yield


def rows_of_each() -> pa.Table:
    """A column for each number: the number, its negative, and NULL."""
    columns = {
        f"d{number}": pa.array([value, f"-{value}", None]).cast(pa.decimal128(precision, scale))
        for number, (value, precision, scale) in enumerate(DIGITS)
    }
    return pa.table({**columns, "n": [1, 2, 3]})


def assert_found(table: zskip.Table, *further: tuple[str, list[int]]) -> None:
    conditions = [("{d} = {v}", [1]), ("{d} IN ({v}, 0)", [1]), ("{d} >= {v}", [1]), ("{d} <= -{v}", [2]), *further]
    for number, (value, *_) in enumerate(DIGITS):
        for form, expected in conditions:
            condition = form.format(d=f"d{number}", v=value)
            assert sorted(table.plan(condition).to_arrow()["n"].to_pylist()) == expected, condition


def test_own_tables_and_folders(tmp_path: Path) -> None:
    table = rows_of_each()
    own = zskip.write(table, tmp_path / "own", by=["d0", "d1", "d2"], files=3)
    computed = [("{d} + 0 = {v}", [1]), ("-{d} = {v}", [2]), ("{d} * 1 >= {v}", [1]), ("abs({d}) = {v}", [1, 2])]
    assert_found(own, *computed, ("{d} = -{v}", [2]), ("{d} IS NULL", [3]))
    (tmp_path / "raw").mkdir()
    ds.write_dataset(table, tmp_path / "raw", format="parquet", existing_data_behavior="overwrite_or_ignore")
    assert_found(zskip.index(tmp_path / "raw"), *computed)
    own.append(table)
    assert own.delete(" AND ".join(f"d{number} = {value}" for number, (value, *_) in enumerate(DIGITS))).rows == 2
    own.optimize(full=True)
    assert own.count() == 4
    zskip.open(tmp_path / "own").verify()


def test_expressions_of_libraries(tmp_path: Path) -> None:
    table = rows_of_each()
    own = zskip.write(table, tmp_path / "own", by=["d0", "d1", "d2"], files=3)
    for name, (value, *_) in zip(table.column_names, DIGITS, strict=False):
        number = table[name][0].as_py()
        for expression in (ds.field(name) == pa.scalar(number, table[name].type), pl.col(name) == number):
            assert own.plan(expression).to_arrow()["n"].to_pylist() == [1]
        assert own.plan(f"{name} = $x", params={"x": number}).to_arrow()["n"].to_pylist() == [1]
        assert zskip.sql(f"SELECT n FROM '{tmp_path / 'own'}' WHERE {name} = {value}").fetchall() == [(1,)]


def test_delta_and_iceberg(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    table = rows_of_each()
    with decimal.localcontext(decimal.DefaultContext):  # for their own writers
        for row in range(3):
            write_deltalake(tmp_path / "delta", table.slice(row, 1), mode="append")
        catalog = load_catalog("c", type="in-memory", warehouse=f"file://{tmp_path}")
        catalog.create_namespace("n")
        iceberg = catalog.create_table("n.t", table.schema)
        for row in range(3):
            iceberg.append(table.slice(row, 1))
    assert_found(zskip.open(tmp_path / "delta"))
    with decimal.localcontext(traps=[]):  # pyiceberg's own arithmetic rounds
        assert_found(zskip.open(iceberg))
