"""`zskip.spark.write`: the local writer's layouts and format, from Spark; nothing left behind by what fails."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import zskip
from tests.tables import hostile, sorted_rows
from zskip import layouts
from zskip import spark as zs
from zskip.core.schema import Schema
from zskip.errors import ForeignTable, InvalidOption, MissingDependency, SchemaError, SchemaMismatch, TableExists
from zskip.spark import layout_expressions, spark_backend
from zskip.spark.executor_footers import on_executors
from zskip.spark.spark_session import setting
from zskip.stats import collect
from zskip.storage import Staged, open_storage
from zskip.table import Table
from zskip.tablelog import log
from zskip.writer import append
from zskip.writer.open_source import open_source
from zskip.writer.options import WriteOptions
from zskip.writer.routing import Routing
from zskip.writer.write import write_files


def left(folder: Path) -> set[str]:
    """All files of a folder but the index."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and not path.is_relative_to(folder / "_zskip" / "log")
        if not path.is_relative_to(folder / "_zskip" / "stats")
        and not path.is_relative_to(folder / "_zskip" / "layout")
    }


def files_of(table: Table) -> list[str]:
    return table._index.paths(np.arange(len(table._index))).to_pylist()


def skipped(table: Table, rows: pa.Table, by: list[str], *, row_groups: bool = False) -> float:
    """The share of rows that point look-ups of sampled values skip, by file or row group, averaged over the columns."""
    numbers = np.arange(len(table._index))
    units = table._index.file_statistics(numbers, by).statistics()
    if row_groups:
        units = table._index.row_groups(numbers, by).statistics
    counts = np.asarray(units.row_count)
    chosen = rows.take(pa.array(np.random.default_rng(5).choice(len(rows), 400)))
    shares = []
    for column in by:
        ranges = units.columns[column]
        values = np.asarray(chosen[column])
        hit = (np.asarray(ranges.lower)[None] <= values[:, None]) & (values[:, None] <= np.asarray(ranges.upper)[None])
        shares.append(1 - (hit * counts).sum(1).mean() / counts.sum())
    return float(np.mean(shares))


@pytest.fixture(scope="module")
def points() -> pa.Table:
    random = np.random.default_rng(1)
    return pa.table({c: random.integers(0, 1000, 60_000) for c in ("a", "b", "c")} | {"id": np.arange(60_000)})


@pytest.mark.parametrize(
    "layout",
    [pytest.param(name, marks=[] if name == "auto" else [pytest.mark.slow]) for name in sorted(layouts.LAYOUTS)],
)
def test_native_file_numbers_are_those_of_the_assignment(spark: SparkSession, layout: str) -> None:
    rows = hostile().select(["i", "d", "f", "m", "s", "code", "bin", "day", "ts", "local", "yes", "st", "big"])
    keys = [["i", "code"], ["d", "ts"], ["s", "m", "local"], ["bin", "yes", "day"], ["st.a", "st.Deep", "f", "big"]]
    fitted = [layouts.fit(rows, by, layout=layout, files=12, total_rows=len(rows)) for by in keys]
    numbered = spark.createDataFrame(rows)
    for number, one in enumerate(fitted):
        numbered = layout_expressions.file_numbers(Routing((), ((),), (one,)), numbered, f"n{number}", None)
    found = numbered.toArrow()
    given = found.select(rows.column_names).cast(rows.schema)
    for number, (by, one) in enumerate(zip(keys, fitted, strict=True)):
        salted = one.cells.salt[one.cell_of(given)] > 1
        wanted = Routing((), ((),), (one,)).route(given)
        assert (found[f"n{number}"].to_numpy()[~salted] == wanted[~salted]).all(), by


def test_native_leaves_below_the_table_and_of_many_trees(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the table holds only the top of a tree, or each row has a tree of its own, the walk goes on by levels."""
    monkeypatch.setattr(layout_expressions, "_GRID_ENTRIES", 6)
    zeros = pa.array([-0.0, 0.0, float("nan"), None, -1.0, 1.0] * 100)
    rows = hostile(600).select(["i", "code", "few"]).append_column("z", zeros)
    by = ["i", "code", "z"]
    parts = [layouts.fit(rows.slice(100 * i), by, files=n, total_rows=600) for i, n in enumerate((1, 5, 9, 30))]
    for assignments in [parts[3:], parts]:
        number = np.arange(600) % len(assignments)
        given = spark.createDataFrame(rows.append_column("t", pa.array(number, pa.int32())))
        forest = layout_expressions.Forest.of(assignments)
        assert forest.levels
        found = forest.with_leaf(given, "n", None if len(assignments) == 1 else f.col("t")).toArrow()
        wanted = np.stack([one.cell_of(found.select(by)) for one in assignments])[found["t"].to_numpy(), np.arange(600)]
        starts = np.cumsum([0, *(one.tree.cells for one in assignments)])
        assert (found["n"].to_numpy() == wanted + starts[found["t"].to_numpy()]).all()


@pytest.mark.slow
def test_quality_is_that_of_the_local_writer(spark: SparkSession, tmp_path: Path, points: pa.Table) -> None:
    by = ["a", "b", "c"]
    local = zskip.write(points, tmp_path / "local", by=by, files=30, row_group_rows=250)
    ours = zs.write(spark.createDataFrame(points), tmp_path / "spark", by=by, files=30, row_group_rows=250)
    assert ours._index.snapshot.totals.rows == 60_000
    assert abs(skipped(ours, points, by) - skipped(local, points, by)) < 0.01
    assert abs(skipped(ours, points, by, row_groups=True) - skipped(local, points, by, row_groups=True)) < 0.01
    assert sorted_rows(pq.read_table(tmp_path / "spark")) == sorted_rows(points)
    first = pq.read_metadata(tmp_path / "spark" / files_of(ours)[0])
    assert {first.row_group(number).num_rows for number in range(first.num_row_groups - 1)} == {250}


@pytest.fixture(scope="module")
def connections() -> pa.Table:
    """Addresses and ports, even and independent: strings and numbers."""
    random = np.random.default_rng(4)
    octets = pa.array([str(octet) for octet in range(256)])

    def addresses() -> pa.Array:
        parts = [octets.take(pa.array(part)) for part in random.integers(0, 256, (24_000, 4)).T]
        return pc.binary_join_element_wise(*parts, ".")

    ports = [pa.array(random.integers(0, 65536, 24_000, dtype=np.int32)) for _ in range(2)]
    return pa.table({"src_ip": addresses(), "src_port": ports[0], "dst_ip": addresses(), "dst_port": ports[1]})


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["hilbert", "auto", "linear"])
def test_row_groups_skip_as_much_as_those_of_the_local_writer(
    spark: SparkSession, tmp_path: Path, connections: pa.Table, layout: str
) -> None:
    by = connections.column_names
    tables = [
        zskip.write(given, tmp_path / name, by=by, files=8, row_group_rows=500, layout=layout, session=session)
        for name, given, session in (("local", connections, None), ("spark", spark.createDataFrame(connections), spark))
    ]
    by_file, by_row_group = (
        [skipped(table, connections, by, row_groups=level) for table in tables] for level in (False, True)
    )
    assert abs(by_file[0] - by_file[1]) < 0.01
    assert abs(by_row_group[0] - by_row_group[1]) < 0.01
    assert layout == "linear" or by_row_group[1] > by_file[1] + 0.1
    assert pq.read_table(tmp_path / "spark").num_rows == 24_000


def test_hostile_rows_come_back_with_true_statistics(spark: SparkSession, tmp_path: Path) -> None:
    rows = hostile()
    made = zs.write(spark.createDataFrame(rows), tmp_path / "t", by=["i", "d"], files=5, row_group_rows=100)
    found = zs.table(spark, made).toArrow()
    assert sorted_rows(found) == sorted_rows(rows.cast(found.schema))
    for number, path in enumerate(files_of(made)):
        written = pq.read_table(tmp_path / "t" / path)
        exact = collect.row_groups(written, np.array([0, len(written)]), made._index.snapshot.schema)
        kept = made._index.file_statistics(np.array([number]), list(exact.columns))
        for column, statistics in exact.columns.items():
            ours, true = kept.columns[column], statistics
            assert ours.null_count.to_pylist() == true.null_count.to_pylist(), (path, column)
            if column in ("d", "f"):
                assert ours.nan_count.to_pylist() == true.nan_count.to_pylist(), (path, column)
            if made._index.snapshot.schema.columns[column].orderable:
                assert ours.lower.to_pylist() == true.lower.to_pylist(), (path, column)
                assert ours.upper.to_pylist() == true.upper.to_pylist(), (path, column)


def test_options_layouts_and_the_session_are_kept(spark: SparkSession, tmp_path: Path, points: pa.Table) -> None:
    before = spark.sql("SET").collect()
    rows = spark.createDataFrame(points.slice(0, 4_000))
    table = zs.write(rows, tmp_path / "t", by="a", rows_per_file=1_000, compression="snappy", layout="linear")
    assert spark.sql("SET").collect() == before
    assert 3 <= len(files_of(table)) <= 5
    assert table._index.snapshot.layout.name == "linear"
    assert pq.read_metadata(tmp_path / "t" / files_of(table)[0]).row_group(0).column(0).compression == "SNAPPY"
    with pytest.raises(TableExists):
        zs.write(rows, tmp_path / "t", by="a")
    again = zs.write(rows.limit(100), tmp_path / "t", by="b", files=1, mode="overwrite")
    assert (again.version, again._index.snapshot.totals.rows) == (2, 100)
    again.overwrite(rows.limit(50), session=spark)
    assert (again.version, again.to_arrow().num_rows, again._index.snapshot.layout.columns) == (3, 50, ("b",))
    small = zs.write(rows.limit(0), tmp_path / "empty", by="a")
    assert (small._index.snapshot.totals.rows, len(files_of(small))) == (0, 0)
    assert zs.table(spark, small).count() == 0


def test_partitions_are_hive_folders(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"p": [1, 2, None, 2] * 100, "q": ["a/b", "c d"] * 200, "x": list(range(400))})
    table = zs.write(spark.createDataFrame(rows), tmp_path / "t", by="x", partition_by=["p", "q"], files=4)
    assert {path.rpartition("/")[0].split("/")[0] for path in files_of(table)} == {
        "p=1",
        "p=2",
        "p=__HIVE_DEFAULT_PARTITION__",
    }
    more = spark.createDataFrame(pa.table({"p": [9], "q": ["new"], "x": [1000]}))
    zskip.open(tmp_path / "t").append(more, session=spark)
    found = zs.table(spark, tmp_path / "t")
    assert found.where("p = 9").count() == found.where("x = 1000").count() == 1
    assert found.count() == 401
    assert sorted_rows(found.where("p IS NULL").toArrow()) == sorted_rows(rows.filter(pa.compute.is_null(rows["p"])))


def test_times_without_a_zone_are_no_instants_of_the_session(spark: SparkSession, tmp_path: Path) -> None:
    """One that the session's clocks skip, and one that they show twice."""
    times = [dt.datetime(2024, 3, 31, 2, 30), dt.datetime(2024, 10, 27, 2, 30)]
    rows = pa.table({"id": [1, 2], "at": pa.array(times, pa.timestamp("us"))})
    with setting(spark, {"spark.sql.session.timeZone": "Europe/Berlin"}):
        table = zskip.write(rows, tmp_path / "arrow", by="id", session=spark)
        frame = spark.createDataFrame([(1, times[0]), (2, times[1])], "id BIGINT, at TIMESTAMP_NTZ")
        parted = zs.write(frame, tmp_path / "parted", by="id", partition_by="at")
    for made in (table, parted):
        assert made.to_arrow().sort_by("id").select(["id", "at"]).equals(rows)


@pytest.mark.parametrize(
    "type",
    [pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.timestamp("ms"), pa.uint8(), pa.float16(), pa.time64("us")],
)
def test_rows_that_spark_would_store_as_others_are_refused(
    spark: SparkSession, tmp_path: Path, type: pa.DataType
) -> None:
    """Spark stored nanoseconds as microseconds, without what was lost."""
    rows = pa.table({"id": [1], "v": pa.nulls(1, type)})
    zskip.write(pa.table({"id": [0]}), tmp_path / "t", by="id")
    for change in (
        lambda: zskip.write(rows, tmp_path / "new", by="id", session=spark),
        lambda: zskip.open(tmp_path / "t").append(rows, session=spark),
    ):
        with pytest.raises(SchemaError, match='column "v"'):
            change()
    assert not (tmp_path / "new").exists()
    assert zskip.open(tmp_path / "t").version == 1


def test_rows_of_arrow_keep_the_types_that_only_an_index_knows(spark: SparkSession, tmp_path: Path) -> None:
    """Spark knows neither dictionaries nor the time zone of a column."""
    at = pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("us", "UTC"))
    rows = pa.table(
        {"id": [1], "s": pa.array(["a"]).dictionary_encode(), "at": at.cast(pa.timestamp("us", "Europe/Berlin"))}
    )
    zskip.write(rows, tmp_path / "new", by="id", session=spark)
    zskip.write(pa.table({"id": [0]}), tmp_path / "old", by="id").append(rows, session=spark)
    for name in ("new", "old"):
        assert zskip.open(tmp_path / name).plan("id = 1").to_arrow().cast(rows.schema).equals(rows)
        assert zskip.open(tmp_path / name).schema.types == rows.schema.types
    zskip.open(tmp_path / "new").append(rows, session=spark)
    assert zskip.open(tmp_path / "new").schema.types == rows.schema.types


@pytest.mark.slow
def test_partitions_may_read_other_columns(spark: SparkSession, tmp_path: Path) -> None:
    """A column that only the workload names is left out of a partition's layout where it cuts nothing."""
    number = np.arange(40_000)
    part = np.where(number < 20_000, "a", "b")
    other = np.where(number < 20_000, 5, number * 7919 % 1000)
    rows = pa.table({"p": part, "x": number * 104_729 % 997, "y": other.astype(str), "id": number})
    asked = [f"y = '{value}'" for value in range(100, 1000, 25)]
    layout = {"by": "x", "partition_by": "p", "files": 16, "row_group_rows": 400, "workload": asked, "layout": "tree"}
    local = zskip.write(rows, tmp_path / "local", **layout)
    options = WriteOptions(**layout | {"by": ("x",), "partition_by": ("p",)})
    folder = open_storage(tmp_path / "routed")
    with Staged(folder.delete) as staged:
        routing = write_files(open_source(rows, None), folder, Schema(rows.schema), options, None, staged).routing
    assert [one.columns for one in routing.assignments] == [("x",), ("x", "y")]

    numbers = pa.array((number >= 20_000).astype(np.int32))
    numbered = layout_expressions.file_numbers(
        routing, spark.createDataFrame(rows.append_column("t", numbers)), "n", "t"
    ).toArrow()
    assert np.array_equal(numbered["n"], routing.route(numbered.select(rows.column_names)))

    ours = zs.write(spark.createDataFrame(rows), tmp_path / "spark", **layout)
    assert sorted_rows(ours.to_arrow().select(["id", "y"])) == sorted_rows(rows.select(["id", "y"]))
    for column, query in (("x", "x = 500"), ("y", "y = '500'")):
        read = [1 - table.plan(query).skipped.row_groups.fraction for table in (local, ours)]
        assert abs(read[0] - read[1]) < 0.05, column


@pytest.mark.slow
def test_either_engine_appends_to_deletes_from_and_optimizes_what_the_other_wrote(
    spark: SparkSession, tmp_path: Path, points: pa.Table
) -> None:
    """The same changes on the same rows, first one engine's then the other's: the same rows, and the same quality."""
    by = ["a", "b"]
    ends = {}
    for first, second in ((None, spark), (spark, None)):
        folder = tmp_path / ("local" if first is None else "spark")

        def given(rows: pa.Table, session: SparkSession | None) -> object:
            return rows if session is None else session.createDataFrame(rows)

        zskip.write(given(points.slice(0, 20_000), first), folder, by=by, files=8, session=first)
        table = zskip.open(folder)
        for start in range(20_000, 60_000, 8_000):  # five of one size, which are merged
            done = table.append(given(points.slice(start, 8_000), second), session=second)
            assert done.rows == 8_000
        appended = skipped(table, points, by)
        gone = table.delete("a BETWEEN 100 AND 149 OR id = 7", dialect="spark", session=second)
        wanted = points.filter(~((pc.field("a") >= 100) & (pc.field("a") < 150) | (pc.field("id") == 7)))
        assert gone.rows == 60_000 - len(wanted)
        assert table.optimize(session=second, dry_run=True).files_rewritten > 0
        merged = table.optimize(session=second)
        assert table.version == 8
        assert len(files_of(table)) == merged.files_after
        assert merged.depth_after < merged.depth_before
        assert table.optimize(session=second).files_rewritten == 0
        assert sorted_rows(table.to_arrow()) == sorted_rows(zs.table(spark, table).toArrow()) == sorted_rows(wanted)
        whole = table.optimize(full=True, session=second)
        assert whole.skipped_after > 0.6
        ends[first is None] = (appended, skipped(table, wanted, by))
        assert sorted_rows(table.to_arrow()) == sorted_rows(wanted)
    assert abs(ends[True][0] - ends[False][0]) < 0.01
    assert abs(ends[True][1] - ends[False][1]) < 0.01


def test_spark_optimizes_after_other_columns(spark: SparkSession, tmp_path: Path, points: pa.Table) -> None:
    rows = points.slice(0, 6_000)
    zskip.write(rows, tmp_path / "t", by=["a"], files=4)
    zs.optimize(spark, tmp_path / "t", by=["b", "c"], files=6)
    table = zskip.open(tmp_path / "t")
    assert table._index.snapshot.layout is not None
    assert table._index.snapshot.layout.columns == ("b", "c")
    assert 5 <= len(files_of(table)) <= 7
    assert sorted_rows(zs.table(spark, table).toArrow()) == sorted_rows(rows)


def test_a_delete_on_spark_means_what_the_session_means(spark: SparkSession, tmp_path: Path) -> None:
    moments = [dt.datetime(2018, 10, 28, hour, 30, tzinfo=dt.UTC) for hour in range(24)]
    rows = pa.table({"n": list(range(24)), "ts": pa.array(moments, pa.timestamp("us", "UTC"))})
    with setting(spark, {"spark.sql.session.timeZone": "Europe/Berlin"}):
        zskip.write(rows, tmp_path / "t", by=["n"], files=4)
        assert zs.delete(spark, tmp_path / "t", "ts >= TIMESTAMP '2018-10-28 12:00:00'").version == 2
        table = zskip.open(tmp_path / "t")
        assert sorted(table.to_arrow()["n"].to_pylist()) == list(range(11))
        # a predicate keeps its own zone, whatever the session's
        table.delete("ts >= TIMESTAMPTZ '2018-10-28 06:00:00'", timezone="America/New_York", session=spark)
        assert sorted(table.to_arrow()["n"].to_pylist()) == list(range(10))
        would = table.delete("ts >= TIMESTAMP '2018-10-28 10:00:00'", dialect="spark", session=spark, dry_run=True)
        assert would.rows == 1
        assert table.delete("hour(ts) = 10", dialect="spark", session=spark).rows == 1
        assert sorted(table.to_arrow()["n"].to_pylist()) == list(range(9))
        assert spark.conf.get("spark.sql.session.timeZone") == "Europe/Berlin"


def test_a_dry_run_of_a_delete_on_spark_counts_there(spark: SparkSession, tmp_path: Path) -> None:
    table = zskip.write(pa.table({"n": range(40), "s": [f"word {n}" for n in range(40)]}), tmp_path, by="n", files=4)
    for predicate in ("initcap(s) = 'Word 7' OR n < 10", "n < 10", "n = 99"):  # DuckDB has no initcap
        would = table.delete(predicate, dialect="spark", session=spark, dry_run=True)
        assert table.version == 1
        assert would.rows == sum(n < 10 for n in range(40)) * (predicate != "n = 99")
    assert would.dry_run
    done = table.delete("initcap(s) = 'Word 7' OR n < 10", dialect="spark", session=spark)
    assert done.rows == 10
    assert sorted(table.to_arrow()["n"].to_pylist()) == list(range(10, 40))


KEPT = {
    "int8": pa.array([1, None, -128], pa.int8()),
    "float": pa.array([1.5, None, float("nan")], pa.float32()),
    "decimal": pa.array([Decimal("1.25"), None, Decimal("-9.99")], pa.decimal128(5, 2)),
    "zoned": pa.array([0, None, 10**15], pa.timestamp("us", "Europe/Berlin")),
    "naive": pa.array([0, None, 10**15], pa.timestamp("us")),
    "date": pa.array([0, None, 20_000], pa.date32()),
    "dictionary": pa.array(["a", None, "b"]).dictionary_encode(),
    "list": pa.array([[1], None, [2, None]], pa.list_(pa.int64())),
    "struct": pa.array([{"x": 1, "y": [{"z": "s"}]}, None, {"x": None, "y": None}]),
    "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int16())),
}
CHANGED = {
    "uint8": pa.array([1], pa.uint8()),
    "uint64": pa.array([1], pa.uint64()),
    "milliseconds": pa.array([1], pa.timestamp("ms")),
    "decimal32": pa.array([Decimal(1)], pa.decimal32(5, 2)),
    "fixed": pa.array([b"abc"], pa.binary(3)),
    "nested": pa.array([{"x": 1}], pa.struct([("x", pa.uint16())])),
}


def test_types_survive_a_change_by_the_other_engine(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3], **KEPT})
    table = zskip.write(rows, tmp_path / "t", by=["id"], files=2)
    before, schema = table.to_arrow(), table.schema
    table.optimize(full=True, session=spark)
    assert table.schema == schema
    assert sorted_rows(table.to_arrow()) == sorted_rows(before)
    assert table.verify(["int8 < 0", "float > 1", "decimal < 0", "zoned IS NULL", "dictionary = 'b'"]).clean
    # Of what is drawn, an engine is asked what its SQL can say.
    drawn = table.verify(random=12, sample=2, engines=["duckdb", "spark"])
    assert drawn.clean
    assert {len(check.rows) for check in drawn.checks} == {1, 2}


@pytest.mark.parametrize("name", CHANGED)
def test_a_type_that_spark_would_change_is_refused(spark: SparkSession, tmp_path: Path, name: str) -> None:
    table = zskip.write(pa.table({"id": [1], name: CHANGED[name]}), tmp_path / "t", by=["id"])
    with pytest.raises(SchemaError, match=f'"{name}".*leave the session out'):
        table.optimize(full=True, session=spark)
    assert zskip.open(tmp_path / "t").version == 1


def test_what_is_not_sparks_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="memory_limit"):
        zs.write(spark.range(3), tmp_path / "t", by="id", memory_limit="1GB")
    with pytest.raises(InvalidOption, match="Spark writes DataFrames"):
        zskip.write(["a.parquet"], tmp_path / "t", by="id", session=spark)
    assert not (tmp_path / "t").exists()


def test_an_append_may_lack_and_add_columns(spark: SparkSession, tmp_path: Path) -> None:
    table = zs.write(spark.createDataFrame(pa.table({"x": [1, 2], "s": ["a", "b"]})), tmp_path / "t", by="x")
    table.append(spark.createDataFrame(pa.table({"x": pa.array([3], pa.int32()), "new": [1.5]})), session=spark)
    found = zs.table(spark, tmp_path / "t")
    assert sorted(map(tuple, found.collect())) == [(1, "a", None), (2, "b", None), (3, None, 1.5)]
    assert found.where("new IS NULL").count() == 2
    with pytest.raises(SchemaMismatch):
        table.append(spark.createDataFrame(pa.table({"x": ["text"]})), session=spark)


def test_an_append_may_lack_the_columns_of_the_layout(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 2], "part": ["a", "b"], "y": [3, 4]})
    table = zskip.write(rows, tmp_path / "t", by=["x", "y"], partition_by="part")
    few = spark.createDataFrame(pa.table({"y": [5]}))
    table.append(few)
    zs.register_source(spark)
    few.write.format("zskip").mode("append").save(str(tmp_path / "t"))
    found = zs.table(spark, tmp_path / "t").select("x", "part", "y")
    assert sorted(map(tuple, found.where("x IS NULL").collect())) == [(None, None, 5)] * 2
    assert zskip.open(tmp_path / "t").plan("y = 5 AND part IS NULL").count() == 2
    assert found.count() == 4


@pytest.mark.slow
def test_one_value_in_most_rows_is_spread(spark: SparkSession, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    user = np.where(random.random(50_000) < 0.6, 7, random.integers(0, 10_000, 50_000))
    rows = pa.table({"user": user, "id": np.arange(50_000)})
    table = zs.write(spark.createDataFrame(rows), tmp_path / "t", by="user", files=20)
    counts = np.asarray(table._index.row_counts(np.arange(len(table._index))))
    assert counts.max() <= 3 * np.median(counts)
    assert sorted_rows(zs.table(spark, table).toArrow()) == sorted_rows(rows)


def test_an_older_spark_says_that_it_cannot_write(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(DataFrame, "repartitionById")
    with pytest.raises(MissingDependency, match=r"Spark 4\.1 or later"):
        zs.write(spark.range(3), tmp_path / "t", by="id")
    assert not (tmp_path / "t").exists()


def test_bad_input_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(10)
    with pytest.raises(InvalidOption, match="by="):
        zs.write(rows, tmp_path / "t")
    with pytest.raises(zskip.UnknownColumn):
        zs.write(rows, tmp_path / "t", by="idd")
    with pytest.raises(InvalidOption, match="mode"):
        zs.write(rows, tmp_path / "t", by="id", mode="merge")
    with pytest.raises(SchemaError, match="collate"):
        zs.write(rows.selectExpr("id", "'a' COLLATE UTF8_LCASE AS s"), tmp_path / "t", by="id")
    assert not (tmp_path / "t").exists()


def test_failed_tasks_leave_no_file(spark: SparkSession, tmp_path: Path) -> None:
    """A task that fails after writing some of its rows: the old table stays, and nothing is beside it."""
    folder = tmp_path / "t"
    zs.write(spark.range(100).withColumn("x", f.col("id") % 7), folder, by="x", files=2)
    before = left(folder)
    # Counting and sampling do not look at the column that fails, writing does.
    failing = spark.range(20_000).selectExpr(
        "id", "id % 7 AS x", "IF(id = 19000, CAST(raise_error('planted') AS STRING), 'fine') AS y"
    )
    with pytest.raises(Exception, match="planted"):
        zs.write(failing, folder, by="x", files=2, mode="overwrite")
    assert left(folder) == before
    assert zskip.open(folder).version == 1
    assert zs.write(spark.range(10), folder, by="id", mode="overwrite").version == 2


def test_a_failed_commit_leaves_no_file(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError("planted")

    monkeypatch.setattr(type(open_storage(tmp_path)), "make_durable", fails)
    with pytest.raises(OSError, match="planted"):
        zs.write(spark.range(100), tmp_path / "t", by="id", files=3)
    assert left(tmp_path / "t") == set()


def test_an_interrupt_after_the_commit_keeps_its_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupts(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(log, "write_hint", interrupts)
    with pytest.raises(KeyboardInterrupt):
        zs.write(spark.range(100), tmp_path / "t", by="id", files=3)
    assert zs.table(spark, tmp_path / "t").count() == 100


def test_a_batch_that_came_first_leaves_no_file_of_the_second(spark: SparkSession, tmp_path: Path) -> None:
    zs.append_batch(tmp_path / "t", application="stream", by=["id"])(spark.range(10), 0)
    late = zskip.open(tmp_path / "t")
    assert zskip.open(tmp_path / "t").append(spark.range(10, 20), batch=("stream", 1), session=spark).version == 2
    before = left(tmp_path / "t")
    # As two runs of one batch at a time: the second has looked before the first had committed.
    backend = spark_backend.backend(spark)
    snapshot, done = append.append(
        late._index.storage,
        late._index.snapshot,
        backend.open_rows(spark.range(10, 20), None),
        WriteOptions(),
        ("stream", 1),
        backend,
    )
    assert (snapshot.version, done.rows) == (2, 0)
    assert left(tmp_path / "t") == before


def test_a_batch_is_appended_once(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="of no streaming query"):
        zs.append_batch(tmp_path / "t", by=["id"])(spark.range(10), 0)
    sink = zs.append_batch(tmp_path / "t", application="stream", by=["id"], files=2)
    sink(spark.range(10), 0)
    sink(spark.range(10), 0)
    sink(spark.range(10, 15), 1)
    zs.append_batch(tmp_path / "t", application="other", by=["id"])(spark.range(3), 0)
    assert zskip.open(tmp_path / "t")._index.snapshot.totals.rows == 18


def test_streams_end_in_a_table_with_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for number in range(2):
        pq.write_table(pa.table({"id": range(50 * number, 50 * number + 50)}), source / f"{number}.parquet")
    stream = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).parquet(str(source))

    def run(*checkpoints: str) -> int:
        queries = [
            stream.writeStream.foreachBatch(zs.append_batch(tmp_path / "t", by=["id"]))
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
            for checkpoint in checkpoints
        ]
        for query in queries:
            query.awaitTermination()
        return zs.table(spark, tmp_path / "t").count()

    assert run("one", "beside") == 200  # both find no table at first
    (tmp_path / "one" / "commits" / "1").unlink()  # as if Spark had failed after the last batch
    (tmp_path / "one" / "commits" / ".1.crc").unlink()
    assert run("one") == 200


def test_the_output_of_a_streaming_query_is_read_by_its_log_alone(spark: SparkSession, tmp_path: Path) -> None:
    """A driver that dies leaves files, which Spark passes over: they doubled rows, and `cluster` kept them."""
    source, sink, before = tmp_path / "in", tmp_path / "sink", tmp_path / "before"
    for folder, name in ((source, "new"), (before, "old")):
        folder.mkdir()
        pq.write_table(pa.table({"id": range(3)}), folder / f"{name}.parquet")
    zs.index(spark, before)
    for place in (sink, before):
        query = spark.readStream.schema("id bigint").parquet(str(source)).writeStream.trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / f"of {place.name}")).start(str(place)).awaitTermination()
        pq.write_table(pa.table({"id": range(3)}), place / "part-left.parquet")
        assert spark.read.parquet(str(place)).count() == 3
    rows = spark.read.parquet(str(sink))
    for do in (
        lambda: zs.index(spark, sink),
        lambda: zs.cluster(spark, sink, by="id"),
        lambda: zskip.write(rows, sink, mode="append", by="id"),
        lambda: zs.table(spark, before).count(),
        lambda: zs.read(spark, before),
        lambda: zs.cluster(spark, before, by="id"),
    ):
        with pytest.raises(ForeignTable, match=r"is the output of a Spark streaming query.*remove"):
            do()
    assert zskip.write(rows, tmp_path / "t", by="id").count() == 3


def test_index_is_that_of_the_footers(spark: SparkSession, tmp_path: Path) -> None:
    rows = hostile().drop_columns(["local"])
    folder = tmp_path / "t"
    spark.createDataFrame(rows).repartitionByRange(6, "i").write.parquet(str(folder))
    pq.write_table(pa.table({"i": [5], "extra": ["x"]}), folder / "z.parquet")
    table = zs.index(spark, folder, files_per_task=2)
    from zskip.parquet import footers

    schema, wanted = footers.read(table._index.storage, files_of(table), None)
    assert table._index.snapshot.schema == schema
    found = table._index.data_files()
    assert found.files.row_count.equals(wanted.files.row_count)
    for path, column in wanted.files.columns.items():
        assert found.files.columns[path].lower.equals(column.lower), path
        assert found.files.columns[path].nan_count.equals(column.nan_count), path
    pruned = zs.table(spark, table)
    assert pruned.where("extra = 'x'").count() == 1
    assert pruned.where("i < -990").count() == sum(1 for i in rows["i"].to_pylist() if i is not None and i < -990)


def test_fields_of_structs_are_stored_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """By place, as Spark casts them, a and b would change sides."""

    def rows(number: int, struct: str, many: str) -> DataFrame:
        return spark.range(number, number + 1).selectExpr("id", f"{struct} AS s", f"{many} AS many")

    one, other = "named_struct('a', 1L, 'b', 2L)", "named_struct('b', 20L, 'a', 10L)"
    table = zs.write(rows(0, one, f"array({one})"), tmp_path / "lake", by="id")
    table.append(rows(1, other, f"array({other})"), session=spark)
    table.append(rows(2, "named_struct('b', 30)", "CAST(NULL AS array<struct<b: bigint>>)"), session=spark)
    found = zs.table(spark, table).orderBy("id").toArrow().to_pylist()
    assert [row["s"] for row in found] == [{"a": 1, "b": 2}, {"a": 10, "b": 20}, {"a": None, "b": 30}]
    assert [row["many"] for row in found] == [[{"a": 1, "b": 2}], [{"a": 10, "b": 20}], None]
    assert table.plan("s.a = 10").count() == 1


@pytest.mark.parametrize("partitions", [pytest.param([], marks=pytest.mark.slow), ["c"]], ids=["flat", "hive folders"])
def test_a_plain_folder_is_laid_out_in_place(
    spark: SparkSession, tmp_path: Path, points: pa.Table, partitions: list[str]
) -> None:
    path = tmp_path / "plain"
    rows = spark.createDataFrame(points.slice(0, 3000)).withColumn("c", (f.col("c") % 2).cast("int"))
    rows.coalesce(2).write.partitionBy(*partitions).parquet(str(path))
    before = sorted(map(tuple, spark.read.parquet(str(path)).collect()))
    done = zs.cluster(spark, path, by=["a", "b"], files=4)
    assert done.files_written is not None
    assert sorted(map(tuple, spark.read.parquet(str(path)).collect())) == before
    laid_out = zs.table(spark, path)
    assert sorted(map(tuple, laid_out.collect())) == before
    assert zskip.open(path).plan("a < 100").skipped.files.part > 0.3
    zskip.open(path).append(laid_out.limit(5), session=spark)
    zskip.open(path).vacuum("0 days")
    assert zs.table(spark, path).count() == zs.read(spark, path).count() == len(before) + 5
    assert {"_data" in name for name in zskip.open(path).plan().paths} == {True}
    assert zs.cluster(spark, path, by=["b"], files=2).version == zskip.open(path).version
    assert list(zskip.open(path).clustering()) == ["b"]
    assert zs.table(spark, path).count() == len(before) + 5


def test_a_frame_brings_its_own_session(spark: SparkSession, tmp_path: Path) -> None:
    """Also to a table at a URI."""
    rows = spark.range(60).selectExpr("id", "id % 7 AS x")
    uri = (tmp_path / "a b").as_uri()
    zskip.write(rows, uri, by="id", files=2)
    table = zskip.open(uri, session=spark)
    assert table.append(rows).rows == 60
    assert zskip.write(rows, uri, mode="append")._index.snapshot.totals.rows == 180
    assert zs.table(spark, uri).where("id = 5").count() == zs.read(spark, uri, where="id = 7").count() == 3
    table.refresh()
    assert table.overwrite(rows).rows == 60
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(60))


def test_an_upsert_reads_a_frame_as_an_append_does(spark: SparkSession, tmp_path: Path) -> None:
    """Also in tables of other formats. Spark's own stream of a frame failed for any instant."""
    sql = (
        "SELECT id, timestamp '2024-07-01 12:00:00' AS at, timestamp_ntz '2024-03-31 02:30:00' AS clock, "
        "array(named_struct('t', timestamp '2024-01-01 12:00:00')) AS deep FROM range({})"
    )
    with setting(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        own = zskip.write(spark.sql(sql.format("0, 5")), tmp_path / "own", by="id")
        rows = own.to_arrow()
        write_deltalake(tmp_path / "delta", rows)
        catalog = load_catalog("c", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
        catalog.create_namespace("n")
        iceberg = catalog.create_table("n.t", rows.schema)
        iceberg.append(rows)
        for table in (own, zskip.open(tmp_path / "delta"), zskip.open(iceberg)):
            done = table.upsert(spark.sql(sql.format("3, 8")), on="id")
            assert (done.inserted, done.updated) == (3, 2)
            found = table.to_arrow().sort_by("id").to_pylist()
            assert found == [{**rows.slice(0, 1).to_pylist()[0], "id": id} for id in range(8)]
            assert table.upsert(spark.sql(sql.format("3, 8")), on=["id", "at"]).inserted == 0
    assert found[0]["at"] == dt.datetime(2024, 7, 1, 16, tzinfo=dt.UTC)


def test_a_condition_may_mention_columns_that_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    table = zskip.write(pa.table({"id": range(9), "x": range(9)}), tmp_path / "t", by="id", files=2)
    for where in ("x = NULL", "x = x AND id < 3"):
        wanted = table.plan(where, dialect="spark").to_arrow(["id"])["id"].to_pylist()
        assert sorted(row.id for row in table.plan(where, dialect="spark").to_spark(spark, ["id"]).collect()) == wanted


# --- sketches of tables that Spark writes: the same as this machine's, through appends, deletes and optimize ---


UIDS = [f"{number * 2654435761 % 2**32:08x}" for number in range(1200)]


def with_uids(spark: SparkSession, first: int, last: int) -> object:
    numbers = list(range(first, last))
    table = pa.table({"n": numbers, "part": [number % 2 for number in numbers], "uid": UIDS[first:last]})
    return spark.createDataFrame(table)


def found_by_uid(table: zskip.Table, n: int) -> tuple[int, list[int]]:
    plan = table.plan(f"uid = '{UIDS[n]}'")
    return len(plan), plan.to_arrow(["n"])["n"].to_pylist()


def test_spark_makes_sketches_and_keeps_them_up(spark: SparkSession, tmp_path: Path) -> None:
    sketches = {"uid": ["values", "substrings"], "part": "values"}
    table = zs.write(with_uids(spark, 0, 1000), tmp_path / "t", by="n", files=4, partition_by="part", sketches=sketches)
    assert found_by_uid(table, 77) == (1, [77])
    assert len(table.plan(f"uid LIKE '%{UIDS[500][1:7]}%'")) <= 2
    alone = zskip.write(table.to_arrow(), tmp_path / "alone", by="n", files=4, partition_by="part", sketches=sketches)
    assert table._index.snapshot.sketches[0].segments[0].entries == 1000
    assert alone._index.snapshot.sketches[0].segments[0].entries == 1000
    table.append(with_uids(spark, 1000, 1200), session=spark)
    assert found_by_uid(table, 1100) == (1, [1100])
    table.delete(f"uid = '{UIDS[77]}'", session=spark)
    assert found_by_uid(table, 77) == (0, [])
    assert found_by_uid(table, 79) == (1, [79])
    table.optimize(session=spark)
    assert [len(each.segments) for each in table._index.snapshot.sketches] == [1, 1, 1]
    assert found_by_uid(table, 1199) == (1, [1199])
    table.drop_sketches("uid")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zskip.spark.spark_backend.on_executors", asked := Mock(side_effect=on_executors))
        table.add_sketches({"uid": "values"}, session=spark)
    assert asked.call_count == 1
    assert found_by_uid(table, 1199) == (1, [1199])
    read = zs.table(spark, str(tmp_path / "t")).where(f"uid = '{UIDS[500]}'")
    assert [row.n for row in read.collect()] == [500]
