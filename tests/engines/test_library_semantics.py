"""Conditions mean over a table what they mean to the library over the same rows in memory, odd values included."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import zskip
import zskip.polars
from tests import one_in
from zskip.errors import CorruptFile

datafusion = pytest.importorskip("datafusion")
NAN = float("nan")
N = 1200
ROWS = pa.table(
    {
        "i": range(N),
        "p": [i % 3 for i in range(N)],
        "nans": [NAN if i % 5 == 0 else i % 7 - 3.0 for i in range(N)],
        "zeros": [(-0.0, 0.0, 1.5, -1.5)[i % 4] for i in range(N)],
        "apart": [0.0 if i < N / 2 else 1.5 for i in range(N)],
        "prices": [0.5 + i % 7 for i in range(N)],
        "big": pa.array([2**63 - 1 - i for i in range(N)], pa.int64()),
        "gaps": [None if i % 5 == 0 else i % 13 for i in range(N)],
        "names": [None if i % 5 == 0 else f"n{i % 13}" for i in range(N)],
        "inner": [{"x": None if i % 5 == 0 else i % 13} for i in range(N)],
    }
)


KINDS = ["plain", "partitioned", "grown"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], zskip.Table]:
    """Each kind of table, made once."""

    @functools.cache
    def make(kind: str) -> zskip.Table:
        path = tmp_path_factory.mktemp("t") / kind
        by_folder = ["p"] if kind == "partitioned" else []
        first = ROWS if kind != "grown" else ROWS.slice(0, 600).drop_columns("p")
        table = zskip.write(first, path, by=["i"], files=6, partition_by=by_folder)
        if kind == "grown":
            table.append(ROWS.slice(600))
        return table

    return make


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, made: Callable[[str], zskip.Table]) -> zskip.Table:
    return made(request.param)


COMPARISONS = ["{} > 1.5", "{} >= 0.0", "{} < 0.0", "{} = 0.0", "NOT ({} < 2)", "{} = 'NaN'::double", "{} <> 1.5"]


@pytest.mark.parametrize(
    ("table", "column", "test"), one_in(3, KINDS, ["nans", "zeros", "prices"], COMPARISONS), indirect=["table"]
)
def test_datafusion(table: zskip.Table, column: str, test: str) -> None:
    context = datafusion.SessionContext()
    table.to_datafusion(context, "t")
    context.from_arrow(table.to_arrow(), "rows")
    counts = [
        context.sql(f"SELECT count(*) AS n FROM {name} WHERE {test.format(column)}").to_pylist()
        for name in ("t", "rows")
    ]
    assert counts[0] == counts[1]


ABSENT = [
    "gaps NOT IN (1, 2, 3, 4, 5, 6)",
    "p NOT IN (1, 5, 6, 7, 8)",
    "NOT (names IN ('n1', 'n2', 'n3', 'n4', 'n5') AND i > 50)",
    "gaps IN (1, 2, 3, 4, 5, 6) IS NULL",
    "(gaps IN (1, 2, 3, 4, 5, 6)) = (i < 100)",
    "inner['x'] NOT IN (1, 2, 3, 4, 5, 6)",
    "gaps > 5 OR names IS NULL",
    "gaps NOT IN (1, NULL)",
    "gaps BETWEEN 1 AND NULL",
]


@pytest.mark.parametrize(("table", "test"), one_in(3, KINDS, ABSENT), indirect=["table"])
def test_in_is_null_for_null_in_datafusion(table: zskip.Table, test: str) -> None:
    test_datafusion(table, "", test)


def test_datafusion_sorts_what_has_no_file(table: zskip.Table) -> None:
    context = datafusion.SessionContext()
    table.to_datafusion(context, "t")
    for statement in (
        "SELECT i FROM t WHERE i = -7 ORDER BY i",
        "SELECT row_number() OVER (ORDER BY i) FROM t WHERE i = -7",
    ):
        assert context.sql(statement).to_pylist() == []


def test_datafusion_skips_files_by_columns_without_nan_and_null(table: zskip.Table) -> None:
    context = datafusion.SessionContext()
    table.to_datafusion(context, "t")
    plan = str(context.sql("SELECT i FROM t WHERE i > 3 AND prices > 3.5 AND zeros > 1 AND gaps > 1").execution_plan())
    applied = plan.partition("FilterExec:")[2].partition("DatasetExec")[0]
    assert "greatest(zeros" in applied
    assert "greatest(gaps" in applied
    assert "i@" not in applied.partition("projection")[0]
    assert "prices" not in applied


@pytest.mark.parametrize("name", ["Flights", "my flights", "public.Flights", "datafusion.public.t", '"A.b"', "no.such"])
@pytest.mark.parametrize("values", [[1, 2, 3], [1, 2, None]], ids=["plain", "with NULL"])
def test_a_name_means_to_datafusion_what_it_means_there(tmp_path: Path, name: str, values: list[int | None]) -> None:
    rows = pa.table({"Carrier.code": values})
    table = zskip.write(rows, tmp_path / "t", by='"Carrier.code"')
    registered: list[list[object]] = []
    for register in (table.to_datafusion, lambda context, name: context.register_dataset(name, ds.dataset(rows))):
        context = datafusion.SessionContext()
        found: list[object] = []
        for _ in range(2):  # the second time the name is taken
            try:
                register(context, name)
            except Exception as error:
                found.append(str(error))
        tables = context.catalog().schema("public").names()
        found += [sorted(tables), [context.table(f'"{each}"').to_pydict() for each in tables]]
        registered.append(found)
    assert registered[0] == registered[1]


COMPARED = {
    "=": lambda x, y: x == y,
    "<>": lambda x, y: x != y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
    "not <": lambda x, y: ~(x < y),
}


@pytest.mark.parametrize(
    ("table", "compared", "column"), one_in(3, KINDS, COMPARED.values(), ["nans", "prices"]), indirect=["table"]
)
def test_arrow_takes_a_constant_nan(
    table: zskip.Table, column: str, compared: Callable[[pc.Expression, pc.Expression], pc.Expression]
) -> None:
    test = compared(pc.field(column), pc.scalar(NAN))
    dataset, rows = table.dataset(), ds.dataset(table.to_arrow())
    expected = rows.to_table(filter=test).num_rows
    counts = dataset.count_rows(filter=test), dataset.to_table(filter=test).num_rows, dataset.filter(test).count_rows()
    assert counts == (expected,) * 3


ZEROS = [[0.0, 7.0], [0, 7], [-0.0], [0.0, 1.5], [1.5]]


@pytest.mark.parametrize(
    ("table", "column", "values"), one_in(3, KINDS, ["apart", "zeros", "i"], ZEROS), indirect=["table"]
)
def test_arrow_looks_for_zeros_in_a_list(table: zskip.Table, column: str, values: list[float]) -> None:
    dataset, rows = table.dataset(), table.to_arrow()
    for test in (pc.field(column).isin(values), ~pc.field(column).isin(values)):
        expected = rows.filter(test).num_rows
        assert (dataset.count_rows(filter=test), dataset.to_table(filter=test).num_rows) == (expected, expected)


POLARS: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "overflow": lambda rows: rows.filter(pl.col("big") + 100 < 0),
    "nan": lambda rows: rows.filter(pl.col("nans") > 1.5),
    "rank over": lambda rows: rows.select(pl.col("i").rank().over("zeros")),
    "sum over": lambda rows: rows.filter(pl.col("i") > 5).select(pl.col("i").sum().over("zeros")),
    "row index": lambda rows: rows.with_row_index().select("index", "i").filter(pl.col("index") < 7),
    "only a row index": lambda rows: rows.with_row_index("n").select("n"),
    "count": lambda rows: rows.filter(pl.col("i") > 700).select(pl.len()),
    "limit": lambda rows: rows.filter(pl.col("i") > 700).head(3),
    "filter after a limit": lambda rows: rows.head(8).filter(pl.col("i") % 300 > 5),
    "count after a limit": lambda rows: rows.limit(8).filter(pl.col("i") > 700).select(pl.len()),
    "nothing": lambda rows: rows.filter(pl.col("i") > 7000).with_row_index(),
    "join": lambda rows: rows.join(rows.filter(pl.col("i") == 3).select("zeros"), on="zeros").select(pl.col("i").sum()),
}


@pytest.mark.parametrize(
    ("table", "query", "engine"), one_in(3, KINDS, POLARS.values(), ["in-memory", "streaming"]), indirect=["table"]
)
def test_polars(table: zskip.Table, query: Callable[[pl.LazyFrame], pl.LazyFrame], engine: str) -> None:
    in_memory = pl.DataFrame(table.to_arrow()).lazy()
    found = query(zskip.polars.scan(table)).collect(engine=engine)  # type: ignore[call-overload]
    assert found.sort(pl.all()).equals(query(in_memory).collect().sort(pl.all()))


def test_polars_reads_no_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    """polars takes the files in a folder, and of an empty one nothing, without a word."""
    made = zskip.write(pa.table({"a": range(100)}), tmp_path / "t", by="a", files=4)
    (file,) = made.plan("a = 3").paths
    Path(file).unlink()
    Path(file).mkdir()
    with pytest.raises(CorruptFile, match="is a folder, where the table has a file"):
        zskip.polars.scan(made).collect()
    assert zskip.polars.scan(made).filter(pl.col("a") > 50).collect().height == 49
