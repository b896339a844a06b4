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


@pytest.fixture(params=DIGITS, ids=[f"{precision},{scale}" for _, precision, scale in DIGITS])
def data(request: pytest.FixtureRequest) -> tuple[str, pa.Table]:
    value, precision, scale = request.param
    given = pa.array([value], pa.string()).cast(pa.decimal128(precision, scale))
    low = pa.array([f"-{value}"], pa.string()).cast(pa.decimal128(precision, scale))
    numbers = pa.concat_arrays([given, low, pa.nulls(1, given.type)])
    return value, pa.table({"d": numbers, "n": [1, 2, 3]})


def assert_found(table: zskip.Table, value: str) -> None:
    for condition, expected in {
        f"d = {value}": [1],
        f"d = -{value}": [2],
        f"d IN ({value}, 0)": [1],
        f"d >= {value}": [1],
        f"d <= -{value}": [2],
        f"d + 0 = {value}": [1],
        f"-d = {value}": [2],
        f"d * 1 >= {value}": [1],
        f"abs(d) = {value}": [1, 2],
        "d IS NULL": [3],
    }.items():
        assert sorted(table.plan(condition).to_arrow()["n"].to_pylist()) == expected, condition


def test_own_tables_and_folders(data: tuple[str, pa.Table], tmp_path: Path) -> None:
    value, table = data
    own = zskip.write(table, tmp_path / "own", by=["d"], files=3)
    assert_found(own, value)
    assert_found(zskip.index(_folder(table, tmp_path / "raw")), value)
    own.append(table)
    assert own.delete(f"d = {value}").rows == 2
    own.optimize(full=True)
    assert own.count() == 4
    zskip.open(tmp_path / "own").verify()


def _folder(table: pa.Table, path: Path) -> Path:
    path.mkdir()
    ds.write_dataset(table, path, format="parquet", existing_data_behavior="overwrite_or_ignore")
    return path


def test_expressions_of_libraries(data: tuple[str, pa.Table], tmp_path: Path) -> None:
    value, table = data
    own = zskip.write(table, tmp_path / "own", by=["d"], files=3)
    number = table["d"][0].as_py()
    expressions = [ds.field("d") == pa.scalar(number, table["d"].type), pl.col("d") == number]
    for expression in expressions:
        assert own.plan(expression).to_arrow()["n"].to_pylist() == [1]
    assert own.plan("d = $x", params={"x": number}).to_arrow()["n"].to_pylist() == [1]
    assert zskip.sql(f"SELECT n FROM '{tmp_path / 'own'}' WHERE d = {value}").fetchall() == [(1,)]


def test_delta_and_iceberg(
    data: tuple[str, pa.Table],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    value, table = data
    with decimal.localcontext(decimal.DefaultContext):  # for their own writers
        for row in range(3):
            write_deltalake(tmp_path / "delta", table.slice(row, 1), mode="append")
        catalog = load_catalog("c", type="in-memory", warehouse=f"file://{tmp_path}")
        catalog.create_namespace("n")
        iceberg = catalog.create_table("n.t", table.schema)
        for row in range(3):
            iceberg.append(table.slice(row, 1))
    assert_found(zskip.open(tmp_path / "delta"), value)
    with decimal.localcontext(traps=[]):  # pyiceberg's own arithmetic rounds
        assert_found(zskip.open(iceberg), value)
