"""Every engine gives exactly the rows of a full scan through one list of tables and predicates, and reads no more files
than the plan names."""

from __future__ import annotations

import datetime
import functools
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import zskip
from tests import one_in
from tests.table_formats.test_iceberg import DataFileContent, FileFormat, commit_deletes, delete_parquet
from tests.tables import sorted_rows
from zskip.statements.duckdb import pruning_rule

polars = pytest.importorskip("polars")
datafusion = pytest.importorskip("datafusion")
ibis = pytest.importorskip("ibis")
import zskip.polars  # noqa: E402  # what it is about needs polars

F, P, T = pc.field, polars.col, ibis._
ROWS = 2000
DAY = datetime.date(2024, 1, 1)


def rows_of(first: int, count: int) -> pa.Table:
    numbers = np.arange(first, first + count)
    floats = np.where(numbers % 97 == 0, np.nan, numbers / 7)
    return pa.table(
        {
            "a": numbers,
            "f": pa.array([None if n % 11 == 0 else x for n, x in zip(numbers, floats, strict=True)], pa.float64()),
            "s": pa.array([None if n % 13 == 0 else f"x{n // 100:02d}" for n in numbers]),
            "d": pa.array([DAY + datetime.timedelta(int(n) // 50) for n in numbers], pa.date32()),
            "p": pa.array(numbers % 3, pa.int32()),
            "i8": pa.array(numbers % 5, pa.int8()),
            "in": pa.array([{"x": int(n) % 17} for n in numbers]),
        }
    )


def written(folder: Path) -> zskip.Table:
    return zskip.write(rows_of(0, ROWS), folder, by="a", files=20)


def partitioned(folder: Path) -> zskip.Table:
    return zskip.write(rows_of(0, ROWS), folder, by="a", files=18, partition_by="p")


def evolved(folder: Path) -> zskip.Table:
    """With columns that came later, and others whose types were widened."""
    early = rows_of(0, ROWS - 100).drop_columns(["i8", "in"])
    early = early.set_column(0, "a", early["a"].cast(pa.int16())).set_column(1, "f", early["f"].cast(pa.float32()))
    table = zskip.write(early, folder, by="a", files=19)
    table.append(rows_of(ROWS - 100, 100))
    return table


def indexed(folder: Path) -> zskip.Table:
    folder.mkdir()
    for number in range(20):
        pq.write_table(rows_of(100 * number, 100), folder / f"{number:02d}.parquet")
    return zskip.index(folder)


def delta(folder: Path) -> zskip.Table:
    """In partitions, with columns that came later and rows that were deleted."""
    deltalake = pytest.importorskip("deltalake")
    for first in range(0, ROWS - 100, 380):
        early = rows_of(first, 380).drop_columns(["i8", "in"])
        deltalake.write_deltalake(folder, early, mode="append", partition_by=["p"])
    deltalake.write_deltalake(folder, rows_of(ROWS - 100, 100), mode="append", schema_mode="merge")
    deltalake.DeltaTable(folder).delete("a >= 700 AND a < 705")
    return zskip.open(folder)


def iceberg(folder: Path) -> zskip.Table:
    """With a column that was renamed and rows that were deleted by position."""
    catalog = pytest.importorskip("pyiceberg.catalog").load_catalog("c", type="in-memory", warehouse=folder.as_uri())
    catalog.create_namespace("n")
    old = rows_of(0, ROWS).rename_columns(["a", "f", "text", "d", "p", "i8", "in"])
    table = catalog.create_table("n.t", schema=old.schema)
    for first in range(0, ROWS, 400):
        table.append(old.slice(first, 400))
    with table.update_schema() as update:
        update.rename_column("text", "s")
    file = min(task.file.file_path for task in table.scan("a < 100").plan_files())
    deletes = delete_parquet(table, {file: [3, 5, 199]})
    commit_deletes(table, deletes, DataFileContent.POSITION_DELETES, FileFormat.PARQUET, 3)
    return zskip.open(table)


TABLES: dict[str, Callable[[Path], zskip.Table]] = {
    one.__name__: one for one in (written, partitioned, evolved, indexed, delta, iceberg)
}

PREDICATES: dict[str, tuple[str, pc.Expression, Any, Any]] = {
    "point": ("a = 777", F("a") == 777, P("a") == 777, T.a == 777),
    "in": ("a IN (3, 1999, 5000)", F("a").isin([3, 1999, 5000]), P("a").is_in([3, 1999, 5000]), T.a.isin([3, 1999])),
    "prefix": (
        "starts_with(s, 'x1')",
        pc.starts_with(F("s"), "x1"),
        P("s").str.starts_with("x1"),
        T.s.startswith("x1"),
    ),
    "null": (
        "s IS NULL AND a < 40",
        F("s").is_null() & (F("a") < 40),
        P("s").is_null() & (P("a") < 40),
        T.s.isnull() & (T.a < 40),
    ),
    "float": ("f < 3.5", F("f") < 3.5, P("f") < 3.5, T.f < 3.5),
    "or": (
        "a = 5 OR s = 'x19'",
        (F("a") == 5) | (F("s") == "x19"),
        (P("a") == 5) | (P("s") == "x19"),
        (T.a == 5) | (T.s == "x19"),
    ),
    "not": ("NOT (a > 20)", ~(F("a") > 20), ~(P("a") > 20), ~(T.a > 20)),
    "date": (f"d = DATE '{DAY}'", F("d") == DAY, P("d") == DAY, T.d == DAY),
    "partition": (
        "p = 1 AND a < 30",
        (F("p") == 1) & (F("a") < 30),
        (P("p") == 1) & (P("a") < 30),
        (T.p == 1) & (T.a < 30),
    ),
    "nothing": ("a < 0", F("a") < 0, P("a") < 0, T.a < 0),
}


# What changed on the way is read in more ways than what was written at once.
CHANGED = ("evolved", "indexed", "delta", "iceberg")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], zskip.Table]]:
    """Each of the tables, made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield functools.cache(lambda name: TABLES[name](tmp_path_factory.mktemp("lake") / "t"))


@pytest.fixture(params=[pytest.param(name, marks=[] if name in CHANGED else [pytest.mark.slow]) for name in TABLES])
def table(request: pytest.FixtureRequest, made: Callable[[str], zskip.Table]) -> zskip.Table:
    return made(request.param)


def plans(table: zskip.Table, name: str) -> Iterator[tuple[str, pa.Table]]:
    """The rows of one predicate, by every way to plan and hand it over."""
    sql, arrow, frame, deferred = PREDICATES[name]
    yield "Arrow stream", pa.table(table.plan(sql))
    yield "to_polars", table.plan(sql).to_polars().to_arrow()
    yield "arrow expression", table.plan(arrow).to_arrow()
    yield "polars expression", table.plan(frame).to_arrow()
    yield "ibis expression", table.plan(deferred).to_arrow()
    with duckdb.connect() as con:
        yield "DuckDB", table.plan(sql).to_duckdb(con).to_arrow_table()
        yield "DuckDB expression", table.plan(duckdb.SQLExpression(sql)).to_arrow()


def scans(table: zskip.Table, name: str) -> Iterator[tuple[str, Callable[[], pa.Table]]]:
    """By every engine that scans the table itself: what gives the rows of one predicate."""
    sql, arrow, frame, deferred = PREDICATES[name]
    dataset, lazy = table.dataset(), zskip.polars.scan(table).filter(frame)
    yield "dataset", lambda: dataset.to_table(filter=arrow)
    yield "filtered dataset", lambda: dataset.filter(arrow).to_table()
    yield "dataset, batches", lambda: pa.Table.from_batches(dataset.to_batches(filter=arrow), table.schema)
    yield "polars", lambda: lazy.collect().to_arrow()
    yield "polars, streaming", lambda: lazy.collect(engine="streaming").to_arrow()
    yield "polars over the dataset", lambda: polars.scan_pyarrow_dataset(dataset).filter(frame).collect().to_arrow()
    with duckdb.connect() as con:
        yield "zskip.sql", lambda: zskip.sql(f"FROM t WHERE {sql}", con, tables={"t": table}).to_arrow_table()
        con.register("lake", dataset)
        yield "DuckDB", lambda: con.sql(f"FROM lake WHERE {sql}").to_arrow_table()
        yield "ibis on DuckDB", lambda: ibis.duckdb.from_connection(con).table("lake").filter(deferred).to_pyarrow()
    context = datafusion.SessionContext()
    table.to_datafusion(context, "t")
    yield "DataFusion", lambda: context.sql(f"SELECT * FROM t WHERE {sql}").to_arrow_table()


# Each predicate over one of the tables.
PAIRS = [
    *(("written", "point"), ("partitioned", "nothing"), ("evolved", "in"), ("evolved", "null"), ("indexed", "prefix")),
    *(("indexed", "float"), ("delta", "or"), ("delta", "partition"), ("iceberg", "not"), ("iceberg", "date")),
]


@pytest.mark.parametrize(
    ("table", "name"),
    [
        pytest.param(*pair, marks=[] if pair in PAIRS else [pytest.mark.slow])
        for pair in itertools.product(TABLES, PREDICATES)
    ],
    indirect=["table"],
)
def test_every_engine_gives_the_rows_of_a_full_scan(table: zskip.Table, name: str) -> None:
    whole = table.to_arrow()
    expected = sorted_rows(duckdb.from_arrow(whole).filter(PREDICATES[name][0]).to_arrow_table())
    for way, found in [*plans(table, name), *((way, scan()) for way, scan in scans(table, name))]:
        assert found.column_names == table.columns, way
        assert sorted_rows(found) == expected, way


def numbers(rows: pa.Table) -> list[int]:
    return sorted(rows["a"].to_pylist())


def test_nan_is_what_the_library_says(table: zskip.Table) -> None:
    """Arrow compares NaN with nothing; polars and SQL have it above every number."""
    whole = table.to_arrow()
    frame = polars.DataFrame(whole)
    for arrow in (F("f") > 284.0, ~(F("f") > 1.0), F("f").is_nan(), ~F("f").is_nan()):
        expected = numbers(whole.filter(arrow))
        assert numbers(table.dataset().to_table(filter=arrow)) == expected, arrow
        assert numbers(table.plan(arrow).to_arrow()) == expected, arrow
    for expression in (P("f") > 284.0, ~(P("f") > 1.0), P("f").is_nan(), P("f").is_not_nan()):
        expected = numbers(frame.filter(expression).to_arrow())
        assert numbers(zskip.polars.scan(table).filter(expression).collect().to_arrow()) == expected, expression
        assert numbers(table.plan(expression).to_arrow()) == expected, expression


def test_is_in_of_arrow_takes_null_for_a_value(table: zskip.Table) -> None:
    whole = table.to_arrow()
    for arrow in (
        F("s").isin(["x07", None]),
        ~F("s").isin(["x07"]),
        ~F("s").isin(["x07", None]),
        F("s").isin(pa.array([], pa.string())),
    ):
        assert numbers(table.plan(arrow).to_arrow()) == numbers(whole.filter(arrow)), arrow
        assert numbers(table.dataset().to_table(filter=arrow)) == numbers(whole.filter(arrow)), arrow


@pytest.mark.parametrize("type", [pa.float32(), pa.float64()])
def test_is_in_of_arrow_tells_negative_zero_from_zero(type: pa.DataType, tmp_path: Path) -> None:
    values = pa.array(
        [-0.0] * 100 + [0.0] * 100 + [float("nan")] * 100 + [1.0] * 100 + [-0.0, 0.0, None, 1.0] * 25, type
    )
    table = zskip.write(pa.table({"k": range(500), "f": values}), tmp_path / "t", by=["k"], files=5)
    whole, files = table.to_arrow(), ds.dataset(table.plan().paths)
    for zeros in ([0.0], [-0.0, None], [0.0, -0.0]):
        listed = F("f").isin(pa.array(zeros, type))
        for arrow in (listed, ~listed, ~listed & (F("k") > 300)):
            expected = sorted_rows(whole.filter(arrow))
            assert sorted_rows(table.plan(arrow).to_arrow()) == expected, arrow
            # Arrow itself skips row groups of zeros, whose bounds in the footer are -0.0 and 0.0, with the wrong sign.
            found = sorted_rows(table.dataset().to_table(filter=arrow))
            assert found in (expected, sorted_rows(files.to_table(filter=arrow))), arrow


# These hand no function to a dataset.
NOT_PUSHED = {(way, "prefix") for way in ("polars over the dataset", "DuckDB", "ibis on DuckDB", "DataFusion")}


@pytest.mark.parametrize(
    ("table", "name"),
    one_in(4, [name for name in TABLES if name != "indexed"], ["in", "partition", "prefix", "null"]),
    indirect=["table"],
)
def test_engines_read_no_file_that_the_plan_skips(
    table: zskip.Table, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Skipped files are gone from the disk meanwhile: an engine that opened one would fail."""
    monkeypatch.setattr(pruning_rule, "MOST_RANGES", -1)  # or `zskip.sql` leaves so few to DuckDB
    plan = table.plan(PREDICATES[name][0])
    skipped = set(table.plan().paths) - set(plan.paths)
    assert skipped
    expected, dataset = sorted_rows(plan.to_arrow()), table.dataset()
    for path in skipped:
        os.rename(path, f"{path}.away")
    try:
        for way, scan in scans(table, name):
            if (way, name) not in NOT_PUSHED:
                assert sorted_rows(scan()) == expected, way
        assert dataset.count_rows(filter=PREDICATES[name][1]) == len(expected)
    finally:
        for path in skipped:
            os.rename(f"{path}.away", path)


def test_a_dataset_is_lazy_in_columns_and_rows(table: zskip.Table) -> None:
    dataset = table.dataset()
    assert dataset.count_rows() == table.count()
    assert dataset.head(3, columns=["s", "a"]).column_names == ["s", "a"]
    assert dataset.head(3).num_rows == 3
    assert dataset.to_table(columns={"twice": F("a") * 2}, filter=F("a") == 21).to_pylist() == [{"twice": 42}]
    assert dataset.filter(F("a") < 10).count_rows(filter=F("a") > 5) == 4
    assert isinstance(dataset, ds.Dataset)


def test_polars_takes_columns_limits_and_nested_fields(table: zskip.Table) -> None:
    lazy = zskip.polars.scan(table)
    assert lazy.select("s", "a").filter(P("a") == 70).collect().rows() == [("x00", 70)]
    assert lazy.head(7).collect().height == 7
    assert lazy.filter(P("a") < 0).select("d").collect().schema == {"d": polars.Date}
    assert lazy.select(polars.len()).collect().item() == table.count()
    nested = lazy.filter(P("in").struct.field("x") == 3, P("a") >= ROWS - 100).select("a").collect()
    assert sorted(nested["a"]) == [n for n in range(ROWS - 100, ROWS) if n % 17 == 3]


def test_polars_reads_files_of_narrower_types(tmp_path: Path) -> None:
    """polars' own reader raises where the second file's type is not the first one's."""
    table = zskip.write(pa.table({"a": pa.array(range(100), pa.int32())}), tmp_path / "t", by="a", files=4)
    table.append(pa.table({"a": [2**40, 5]}))
    assert zskip.polars.scan(table).filter(P("a") == 5).collect()["a"].to_list() == [5, 5]


def test_a_lazy_frame_follows_a_folder_and_stays_at_its_version(tmp_path: Path) -> None:
    table = indexed(tmp_path / "i")
    lazy, query = zskip.polars.scan(table), P("a") == 5
    assert lazy.filter(query).collect().height == 1
    pq.write_table(rows_of(0, 100), tmp_path / "i" / "new.parquet")
    assert lazy.filter(query).collect().height == 2
    own = written(tmp_path / "t")
    before = zskip.polars.scan(own)
    own.delete("a = 5")
    assert (before.filter(query).collect().height, zskip.polars.scan(own).filter(query).collect().height) == (1, 0)


def test_polars_scans_in_joins_and_slices(table: zskip.Table) -> None:
    """What polars hands down to one scan of a table is not taken for what it hands to another."""
    lazy, frame = zskip.polars.scan(table), polars.DataFrame(table.to_arrow())

    def asked(one: Any) -> Any:
        few, many = one.filter(P("a") < 40).select("a", "p"), one.filter(P("a") >= 20).select("a", "s")
        return few.join(many, on="a").sort("a").with_row_index().filter(P("s") == "x00")

    assert asked(lazy).collect().rows() == asked(frame.lazy()).collect().rows()
    both = polars.concat([lazy.filter(P("a") == 7), lazy.filter(P("a") == 8)]).select("a")
    assert sorted(both.collect()["a"]) == [7, 8]
    assert lazy.slice(5, 3).filter(P("a") >= 0).collect().height == 3


def test_ibis_and_duckdb_expressions(table: zskip.Table) -> None:
    assert table.plan((T.a > 1990) & T.s.startswith("x")).count() == table.plan("a > 1990 AND s LIKE 'x%'").count()
    bound = ibis.table(ibis.Schema.from_pyarrow(table.schema), name="any")
    both = table.plan(bound.a.isin([1, 2]) | (bound.d == DAY))
    assert both.count() == table.plan(f"a IN (1, 2) OR d = DATE '{DAY}'").count() > 0
    column, constant = duckdb.ColumnExpression, duckdb.ConstantExpression
    assert table.plan((column("a") >= constant(7)) & (column("d") == constant(DAY))).count() == 43


def test_fields_of_structs_in_ibis(tmp_path: Path) -> None:
    """`src.ip` was taken for the column `ip`."""
    numbers = range(100)
    rows = pa.table(
        {
            "n": numbers,
            "ip": [number % 10 for number in numbers],
            "src": [{"ip": number // 20, "geo": {"ip": number // 50, "x": {"y": number}}} for number in numbers],
            "t0": [{"a": number // 5} for number in numbers],
            "st": [{"a": number // 25} for number in numbers],
        }
    )
    lake, con = zskip.write(rows, tmp_path / "t", by="n", files=10), ibis.duckdb.connect()
    con.con.register("flows", rows)
    bound = con.table("flows")
    for flows in (bound, ibis.table(bound.schema(), name="t0"), ibis.memtable(rows)):
        for condition, wanted in (
            (flows.src.ip == 3, range(60, 80)),
            (flows.src["ip"].isin([1, 4]) & (flows.ip == 1), [21, 31, 81, 91]),
            (flows.src.geo.ip == 1, range(50, 100)),
            (flows.src.geo.x.y < 5, range(5)),
            (flows.t0.a == 3, range(15, 20)),
            (flows.st.a == 3, range(75, 100)),
        ):
            assert lake.plan(condition).to_arrow()["n"].to_pylist() == list(wanted)


def test_a_column_of_selected_rows_in_ibis_is_refused(table: zskip.Table) -> None:
    """The condition alone would give, and delete, rows that the user had filtered out."""
    bound = ibis.table(ibis.Schema.from_pyarrow(table.schema), name="any")
    assert table.plan(bound.select(x=bound.a).x > 1990).count() == table.plan("a > 1990").count()
    for condition in (
        bound.filter(bound.a < 5).a > 3,
        bound.drop_null(["s"]).a > 3,
        bound.limit(5).a > 3,
        bound.distinct().a > 3,
        bound.a > bound.a.max(),
        ibis.row_number() < 5,
        bound.a == ibis.param("int64"),
    ):
        with pytest.raises(zskip.SqlError):
            table.plan(condition)


def test_what_has_no_certain_meaning_is_refused_in_a_plan_and_kept_in_a_scan(table: zskip.Table) -> None:
    arrow, frame = F("a") + F("i8") > 5, P("a").cum_sum() > 5
    for expression in (arrow & (F("a") < 3), frame & (P("a") < 3)):
        with pytest.raises(zskip.SqlError, match="Write it in SQL"):
            table.plan(expression)
    with pytest.raises(zskip.InvalidOption, match="an expression of pyarrow, polars, ibis or DuckDB, not int"):
        table.plan(5)
    found = zskip.polars.scan(table).filter((P("a") * 2 > 10) & (P("a") < 8)).select("a").collect()
    assert sorted(found["a"]) == [6, 7]


def test_delete_takes_expressions(tmp_path: Path) -> None:
    table = written(tmp_path / "t")
    assert table.delete(F("a") < 150).rows == 150
    deleted, after = table.delete(P("f") > 200.0).rows, table.count()
    table.restore(2)
    assert deleted == table.count() - after


def test_read_gives_what_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "t"
    written(path)
    pandas = pytest.importorskip("pandas")
    assert zskip.read(path, where="a < 3", columns=["a"]).to_pydict() == {"a": [0, 1, 2]}
    assert isinstance(zskip.read(path, where=F("a") < 3, into="pandas"), pandas.DataFrame)
    assert zskip.open(path).plan("s = 'x07' AND a < 702").to_pandas(["a"])["a"].tolist() == [700, 701]
    assert zskip.read(path, where=P("a") < 3, columns="a", into="polars").rows() == [(0,), (1,), (2,)]
    assert zskip.read(path, where="a < $most", params={"most": 3}).num_rows == 3
    assert zskip.read(path).num_rows == ROWS
    with pytest.raises(zskip.InvalidOption, match="into= is one of arrow, pandas, polars"):
        zskip.read(path, into="rows")  # type: ignore[call-overload, arg-type]


def test_datafusion_need_not_sort_what_the_footers_say_is_sorted(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    rows = pa.table({"a": random.permutation(40_000), "b": random.permutation(40_000)})
    zskip.write(rows, tmp_path / "t", by="a", files=4)
    context = datafusion.SessionContext()
    context.register_parquet("t", str(tmp_path / "t"))
    for column, sorts in (("a", False), ("b", True)):
        query = context.sql(f"SELECT * FROM t ORDER BY {column}")
        assert ("SortExec" in query.execution_plan().display_indent()) == sorts
        assert pa.Table.from_batches(query.collect())[column].to_pylist() == list(range(40_000))


def test_rows_that_delta_deleted_stay_deleted(fixtures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    table = zskip.open(fixtures / "delta" / "dv-partitioned-with-checkpoint")
    expected = sorted_rows(table.plan("part = 6 AND col1 < 40").to_arrow())
    arrow, frame = (F("part") == 6) & (F("col1") < 40), (P("part") == 6) & (P("col1") < 40)
    dataset = table.dataset()
    assert 0 < len(expected) < dataset.count_rows() == table.count()
    assert sorted_rows(dataset.to_table(filter=arrow)) == expected
    assert sorted_rows(zskip.polars.scan(table).filter(frame).collect().to_arrow()) == expected
    context = datafusion.SessionContext()
    table.to_datafusion(context, "t")
    found = pa.Table.from_batches(context.sql("SELECT * FROM t WHERE part = 6 AND col1 < 40").collect())
    assert sorted_rows(found) == expected
    with pytest.raises(FileNotFoundError, match="read through its scanner"):
        ds.UnionDataset(dataset.schema, [dataset]).to_table()
