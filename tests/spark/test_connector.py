"""The connector: keys of joins prune at run time, first rows and aggregates read few files; all rows as without it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import zskip
from tests.spark.files import answered, files_read, scanned
from tests.tables import build_table, sorted_rows
from zskip import spark as zs
from zskip.spark import connector
from zskip.spark.join_keys import parse_keys
from zskip.spark.jvm import Jvm
from zskip.spark.snapshot_files import SnapshotFiles
from zskip.spark.spark_session import setting
from zskip.table import Table

_FILES, _ROWS = 10, 200
_START = dt.datetime(2018, 10, 27, 20)
# What the sides of the joins are to have: values of files 1 and 5, NULLs, and what no file has.
_CHOSEN = [25, 112, None, 5000]


def _fact() -> pa.Table:
    """Each column ascends, so that its values tell files apart, and is NULL in every seventh row.

    The only zero of ``d`` is a negative one: of two, either may be the least.
    """

    def of(values: list[object], kind: pa.DataType) -> pa.Array:
        return pa.array([None if row % 7 == 3 else value for row, value in enumerate(values)], kind)

    rows = range(_ROWS)
    return pa.table(
        {
            "row": pa.array(rows, pa.int64()),
            "i": of(list(rows), pa.int32()),
            "big": of([row * 10**12 for row in rows], pa.int64()),
            "d": of(
                [float("nan") if row % 50 == 1 else -0.0 if row == 25 else (row + 1) / 2 for row in rows], pa.float64()
            ),
            "m": of([Decimal(row).scaleb(-2) for row in rows], pa.decimal128(12, 2)),
            "s": of([f"it's, '{row:04}" for row in rows], pa.string()),
            "day": of([_START.date() + dt.timedelta(row) for row in rows], pa.date32()),
            "ts": of([_START + dt.timedelta(minutes=row) for row in rows], pa.timestamp("us", "UTC")),
            "local": of([_START + dt.timedelta(minutes=row) for row in rows], pa.timestamp("us")),
        }
    )


def _dim() -> pa.Table:
    """A few rows of it, to be filtered by ``keep``."""
    taken = _fact().take(pa.array([row if row is None or row < _ROWS else None for row in _CHOSEN]))
    return taken.append_column("keep", pa.array([1] * len(taken)))


@pytest.fixture(scope="module")
def fact(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataFrame]:
    """``fact`` through zskip, ``plain`` and ``dim`` of one file.

    Keys of joins are asked for although so few files do not pay for it.
    """
    folder = tmp_path_factory.mktemp("connector")
    built = build_table(folder / "fact", _fact(), files=_FILES)
    rows = zs.register(spark, "fact", Table(built.storage, built.snapshot), connector=True)
    pq.write_table(_fact(), folder / "plain.parquet")
    spark.read.parquet(str(folder / "plain.parquet")).createOrReplaceTempView("plain")
    pq.write_table(_dim(), folder / "dim.parquet")
    spark.read.parquet(str(folder / "dim.parquet")).createOrReplaceTempView("dim")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(connector, "_SECONDS_PER_KEY_QUERY", 1e-9)
        yield rows
    for name in ("fact", "plain", "dim"):
        spark.catalog.dropTempView(name)


def same(spark: SparkSession, query: str) -> int:
    """How many files are read of ``fact``, after the rows were found to be those of DuckDB."""
    found = spark.sql(query)
    rows = found.toArrow()
    assert sorted_rows(rows) == answered(query, rows.schema, fact=_fact(), dim=_dim()), query
    return scanned(found)


@pytest.mark.parametrize("key", ["row", "i", "big", "m", "s", "day", "ts", "local"])
def test_keys_of_a_join_choose_files(spark: SparkSession, fact: DataFrame, key: str) -> None:
    found = spark.sql(f"SELECT fact.row FROM fact JOIN dim ON fact.{key} = dim.{key} WHERE dim.keep > 0")
    assert sorted(found.collect()) == [(25,), (112,)]
    assert scanned(found) <= 2 + 1, "the files of two keys, and the file of the other side"


@pytest.mark.parametrize("zone", [pytest.param("Europe/Berlin", marks=pytest.mark.slow), "America/St_Johns"])
def test_keys_join_filters_of_a_session_in_another_zone(spark: SparkSession, fact: DataFrame, zone: str) -> None:
    query = (
        "SELECT fact.row FROM fact JOIN dim ON fact.{0} = dim.{0} WHERE dim.keep > 0 AND fact.ts > '2018-10-27 12:00'"
    )
    with setting(spark, {"spark.sql.session.timeZone": zone}):
        for key in ("day", "ts", "local"):
            found = spark.sql(query.format(key))
            assert sorted(found.collect()) == [(25,), (112,)], key
            assert scanned(found) <= 2 + 1, key


def test_keys_that_cannot_be_planned_with_are_left_out(
    spark: SparkSession, fact: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("a fault of this test")

    monkeypatch.setattr(connector, "conjunction", refuse)
    with pytest.warns(RuntimeWarning, match="a fault of this test"):
        assert same(spark, "SELECT fact.row FROM fact JOIN dim ON fact.i = dim.i WHERE dim.keep > 0") == _FILES + 1


def test_keys_of_wider_integers_are_compared_as_such(spark: SparkSession, fact: DataFrame) -> None:
    keys = "(SELECT CAST(row AS BIGINT) + IF(row > 100, 4294967296, 0) AS key, keep FROM dim WHERE keep > 0)"
    same(spark, f"SELECT fact.row FROM fact JOIN {keys} k ON fact.i = k.key")
    narrow = "(SELECT CAST(row AS INT) AS key FROM dim WHERE keep > 0)"
    same(spark, f"SELECT fact.row FROM fact JOIN {narrow} k ON fact.big = k.key * 1000000000000")


def test_floats_keep_their_files(spark: SparkSession, fact: DataFrame) -> None:
    """NaN equals itself in a join, and -0.0 equals 0.0."""
    keys = "(SELECT explode(array(double('NaN'), 0.0D, 30.5D)) AS key, keep FROM dim WHERE keep > 0)"
    assert same(spark, f"SELECT fact.row FROM fact JOIN {keys} k ON fact.d = k.key") == _FILES + 1


_JOINS = {
    "SELECT row FROM fact WHERE i IN (SELECT i FROM dim WHERE keep > 0)": 3,
    "SELECT row FROM fact LEFT SEMI JOIN (SELECT * FROM dim WHERE keep > 0) k ON fact.i = k.i AND fact.row > 100": 3,
    "SELECT row FROM fact LEFT ANTI JOIN (SELECT * FROM dim WHERE keep > 0) k ON fact.i = k.i": _FILES + 1,
    "SELECT row FROM fact WHERE i NOT IN (SELECT i FROM dim WHERE keep > 0 AND i IS NOT NULL)": _FILES + 1,
    "SELECT fact.row, k.keep FROM fact LEFT JOIN (SELECT * FROM dim WHERE keep > 0) k ON fact.i = k.i": _FILES + 1,
}
# Whether Spark has the keys in time depends on which side it broadcasts.
_OTHER_JOINS = [
    "SELECT fact.row, k.keep FROM fact RIGHT JOIN (SELECT * FROM dim WHERE keep > 0) k ON fact.i = k.i",
    "SELECT fact.row, k.keep FROM fact FULL JOIN (SELECT * FROM dim WHERE keep > 0) k ON fact.i = k.i",
    "SELECT fact.row FROM fact JOIN (SELECT * FROM dim WHERE keep > 0) k ON fact.i <=> k.i",
    "SELECT fact.row FROM fact JOIN dim ON fact.i = dim.i WHERE dim.keep > 1",
    "SELECT fact.row FROM fact JOIN dim a ON fact.i = a.i JOIN dim b ON fact.s = b.s WHERE a.keep > 0 AND b.row < 9",
    "SELECT x.row FROM fact x JOIN fact y ON x.i = y.i JOIN dim ON y.day = dim.day WHERE dim.keep > 0",
    "WITH f AS (SELECT * FROM fact) SELECT a.row FROM f a JOIN dim d ON a.i = d.i JOIN f b ON a.row = b.row JOIN dim e "
    "ON b.s = e.s WHERE d.row < 100 AND e.keep > 0",
    "SELECT k.n FROM dim JOIN (SELECT i, count(*) AS n FROM fact GROUP BY i) k ON k.i = dim.i WHERE dim.keep > 0",
    "SELECT u.row FROM (SELECT * FROM fact UNION ALL SELECT * FROM fact) u JOIN dim ON u.i = dim.i WHERE keep > 0",
]


_SETTINGS: dict[str, dict[str, str]] = {
    "adaptive": {},
    "static": {"spark.sql.adaptive.enabled": "false"},
    "merge": {
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.adaptive.autoBroadcastJoinThreshold": "-1",
        "spark.sql.optimizer.dynamicPartitionPruning.reuseBroadcastOnly": "false",
    },
    "rows": {"spark.sql.parquet.enableVectorizedReader": "false", "spark.sql.codegen.wholeStage": "false"},
}


@pytest.mark.parametrize(
    "name", [name if name == "adaptive" else pytest.param(name, marks=pytest.mark.slow) for name in _SETTINGS]
)
def test_all_kinds_of_joins(spark: SparkSession, fact: DataFrame, name: str) -> None:
    with setting(spark, _SETTINGS[name]):
        for query, most in _JOINS.items():
            files = same(spark, query)
            assert name != "adaptive" or files <= most, (query, files)
        for query in _OTHER_JOINS[:: 3 if name == "adaptive" else 1]:
            same(spark, query)


def test_a_cached_frame_and_one_that_is_run_again(spark: SparkSession, fact: DataFrame) -> None:
    joined = spark.sql("SELECT fact.row FROM fact JOIN dim ON fact.i = dim.i WHERE dim.keep > 0")
    first = sorted_rows(joined.toArrow())
    assert sorted_rows(joined.toArrow()) == first
    cached = joined.cache()
    try:
        assert cached.count() == len(first)
        assert (
            sorted_rows(spark.sql("SELECT fact.row FROM fact JOIN dim ON fact.i = dim.i WHERE dim.keep > 0").toArrow())
            == first
        )
    finally:
        cached.unpersist()
    assert spark.table("fact").count() == _ROWS


def test_partitions(spark: SparkSession, fact: DataFrame, tmp_path: Path) -> None:
    rows = pa.table({"p": [1, 1, 2, None] * 50, "x": list(range(200))})
    made = zskip.write(rows, tmp_path / "t", by=["x"], partition_by=["p"], files=4)
    more = pa.table({"p": [2, 3], "x": [500, 501]})
    made.append(more)
    found = zs.register(spark, "parts", zskip.open(tmp_path / "t"), connector=True)
    plain = spark.createDataFrame(pa.concat_tables([rows, more]))
    keys = spark.sql("SELECT CAST(row AS INT) - 23 AS p, keep FROM dim WHERE keep > 0")
    joined, wanted = found.join(keys, "p"), plain.join(keys, "p")
    assert sorted_rows(joined.toArrow()) == sorted_rows(wanted.toArrow())
    assert scanned(joined) < len(zskip.open(tmp_path / "t")._index)
    spark.catalog.dropTempView("parts")


def test_a_folder_that_changes_while_a_query_is_made(spark: SparkSession, fact: DataFrame, tmp_path: Path) -> None:
    built = build_table(tmp_path / "t", pa.table({"i": list(range(400))}), files=8, managed=False)
    found = zs.table(spark, Table(built.storage, built.snapshot), connector=True)
    joined = found.join(spark.table("dim").where("keep > 0"), "i")
    assert joined.count() == 2
    pq.write_table(pa.table({"i": [25, 25]}), tmp_path / "t" / "new.parquet")
    assert joined.count() == 4
    assert found.count() == 402
    assert sorted(row.i for row in found.orderBy("i").limit(3).collect()) == [0, 1, 2]


_FIRST = {
    "SELECT row, i FROM fact ORDER BY i DESC LIMIT 5": _FILES,
    "SELECT row FROM fact ORDER BY row LIMIT 5": 1,
    "SELECT row FROM fact ORDER BY row DESC LIMIT 25": 2,
    "SELECT row FROM fact WHERE row >= 100 ORDER BY row LIMIT 5": _FILES,
    "SELECT row, d FROM fact ORDER BY d DESC, row LIMIT 5": _FILES,
    "SELECT row, s FROM fact ORDER BY s NULLS FIRST, row LIMIT 5": _FILES,
    "SELECT row FROM fact ORDER BY row % 7, row LIMIT 5": _FILES,
    "SELECT max(row) FROM (SELECT row FROM fact ORDER BY row LIMIT 30)": 2,
}


def test_filters_that_every_row_meets_are_not_asked_again(spark: SparkSession, tmp_path: Path) -> None:
    """Of a column that is not read, Parquet's reader takes every value for NULL where it looks into page indexes."""
    rows = pa.table(
        {"k": [f"k{row // 10}" for row in range(100)], "n": range(100), "m": [row % 3 for row in range(100)]}
    )
    table = zskip.write(rows, tmp_path / "t", by="k", files=10, layout="linear")
    assert (
        pq.read_metadata(tmp_path / "t" / table.plan().scan.relative_paths[0]).row_group(0).column(0).has_column_index
    )
    frame = zs.table(spark, table, connector=True)
    for where, wanted in {
        "k = 'k3'": range(30, 40),
        "k >= 'k5'": range(50, 100),
        "k > 'k3' AND n >= 50": range(50, 100),
        "k IN ('k1', 'k2')": range(10, 30),
    }.items():
        found = frame.where(where).select("m").collect()
        assert sorted(row.m for row in found) == sorted(row % 3 for row in wanted), where


def test_first_rows(spark: SparkSession, fact: DataFrame) -> None:
    for query, most in _FIRST.items():
        assert same(spark, query) <= most, query
    assert files_read(spark.sql("SELECT * FROM fact LIMIT 5")) == 1
    some = spark.sql("SELECT * FROM fact WHERE row >= 100 LIMIT 25")
    assert len(some.collect()) == 25
    assert scanned(some) <= 2


_KNOWN = [
    "SELECT count(*), count(i), count(d), min(row), max(row) + 1 FROM fact",
    "SELECT min(i), max(i), min(big), max(big), min(m), max(m), min(day), max(day), min(ts), max(local) FROM fact",
    "SELECT count(*) FROM fact WHERE row >= 100",
    "SELECT max(row), count(s) FROM fact WHERE row BETWEEN 40 AND 99 AND row >= 0",
]
_UNKNOWN = [
    "SELECT min(s), max(d), min(d) FROM fact",
    "SELECT count(DISTINCT i) FROM fact",
    "SELECT avg(row), count(*) FROM fact",
    "SELECT i % 3, count(*) FROM fact GROUP BY 1",
    "SELECT count(*) FROM fact WHERE row > 105",
    "SELECT count(*) FROM fact WHERE i >= 100",
    "SELECT count(*), max(row) FROM fact WHERE row > 5000",
    "SELECT count(*) FILTER (WHERE row > 5) FROM fact",
]


def test_aggregates(spark: SparkSession, fact: DataFrame) -> None:
    for query in _KNOWN:
        assert same(spark, query) == 0, query
        assert spark.sql(query).schema == spark.sql(query.replace("fact", "plain")).schema
    for query in _UNKNOWN:
        same(spark, query)


def test_without_the_connector_filters_prune_still(
    spark: SparkSession, fact: DataFrame, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built = build_table(tmp_path / "t", _fact(), files=_FILES)
    monkeypatch.setattr(connector, "_SOURCES", "org.apache.spark.nowhere")
    with pytest.warns(RuntimeWarning, match=r"no org\.apache\.spark\.nowhere.*only by filters"):
        rows = zs.table(spark, Table(built.storage, built.snapshot), connector=True)
    assert files_read(rows.where("row = 25")) == 1
    assert rows.join(spark.table("dim").where("keep > 0"), "i").count() == 2
    assert rows.select("_metadata.file_name").distinct().count() == _FILES


def test_a_folder_that_was_empty_when_it_was_indexed(spark: SparkSession, fact: DataFrame, tmp_path: Path) -> None:
    built = build_table(tmp_path / "t", pa.table({"i": [7]}), files=1, managed=False)
    next((tmp_path / "t").glob("*.parquet")).unlink()
    zskip.open(tmp_path / "t").refresh()
    found = zs.table(spark, tmp_path / "t", connector=True)
    pq.write_table(pa.table({"i": [25, 25]}), tmp_path / "t" / "new.parquet")
    assert built.snapshot.version < zskip.open(tmp_path / "t").version
    assert found.join(spark.table("dim").where("keep > 0"), "i").count() == 2


def test_few_files_are_not_worth_a_query_for_keys(
    spark: SparkSession, fact: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = "SELECT fact.row FROM fact JOIN dim ON fact.i = dim.i WHERE dim.keep > 0"
    assert "dynamicpruning" in str(spark.sql(joined)._jdf.queryExecution().optimizedPlan())
    monkeypatch.setattr(connector, "_SECONDS_PER_KEY_QUERY", 0.15)
    assert "dynamicpruning" not in str(spark.sql(joined)._jdf.queryExecution().optimizedPlan())


def test_batches_of_columns_are_promised_where_the_reader_gives_them(
    spark: SparkSession, fact: DataFrame, tmp_path: Path
) -> None:
    rows = pa.table({"i": [1, 2], "s": [{"x": 1, "y": [2]}] * 2})
    built = build_table(tmp_path / "t", rows, files=2)
    files = SnapshotFiles(Jvm(spark), built, rows.schema)
    reader = "spark.sql.parquet.enableVectorizedReader"
    nested = "spark.sql.parquet.enableNestedColumnVectorizedReader"
    promised = []
    for chosen in [{}, {reader: "false"}, {nested: "false"}, {"spark.sql.codegen.maxFields": "1"}]:
        with setting(spark, {"spark.sql.codegen.wholeStage": "true", **chosen}):
            scan = connector.Table(files).newScanBuilder(None).build()
            given = scan.toBatch().createReaderFactory().supportColumnarReads(None)
            assert (str(scan.columnarSupportMode()) == "SUPPORTED") is given, chosen
            promised.append(given)
    assert promised == [True, False, False, False]


def test_keys_that_cannot_be_told_for_certain_are_not_used() -> None:
    assert parse_keys("'a\ufffd'", "string", pa.string()) is None
    assert parse_keys("'a', b'", "string", pa.string()) is None
    assert parse_keys("'a'", "string collate UTF8_LCASE", pa.string()) is None
    assert parse_keys("5", "int", pa.int64()) is None, "a narrowing cast made equal what is not"
    assert parse_keys("5", "bigint", pa.timestamp("us")) is None
    assert parse_keys("5", "timestamp", pa.timestamp("us")) is None
    assert parse_keys("5.00", "decimal(12,2)", pa.decimal128(13, 2)) is None
    assert parse_keys("x", "int", pa.int32()) is None
    assert parse_keys("NULL", "int", pa.int32()).to_pylist() == []
