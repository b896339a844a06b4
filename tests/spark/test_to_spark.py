"""`Plan.to_spark`: the matching rows, from the surviving files alone, whatever the paths look like."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import zskip
from tests.spark.files import matching
from tests.tables import build_table, hostile, plan_of, sorted_rows
from zskip import spark as zs
from zskip.errors import CorruptFile, SchemaError, UnknownColumn
from zskip.plan import find_survivors
from zskip.spark.data_source import Read, batches
from zskip.spark.handoff import read_files
from zskip.spark.spark_session import Semantics
from zskip.spark.spark_types import spark_schema
from zskip.storage import open_storage
from zskip.tablelog.index import Index
from zskip.tablelog.indexing import index_files

PREDICATES = [
    "i < -900",
    "code = 'k000123'",
    "day BETWEEN DATE '1970-01-01' AND DATE '1970-01-09'",
    "few = 1",
    "i > 9999",
]


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return hostile()


@pytest.fixture(scope="module")
def index(rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build_table(tmp_path_factory.mktemp("to_spark") / "t", rows, files=20)


def test_rows_and_files_are_those_of_the_plan(spark: SparkSession, index: Index) -> None:
    everything, settings = spark.read.parquet(f"{index.storage.uri}/*.parquet"), spark.sql("SET").collect()
    for where, wanted in zip(PREDICATES, matching(everything, PREDICATES), strict=True):
        plan = plan_of(index, where, dialect="spark")
        found = plan.to_spark(spark)
        assert len(plan) < 20
        assert len(found.inputFiles()) == len(plan)
        assert sorted_rows(found.toArrow()) == wanted, where
        assert found.schema == everything.schema
    assert spark.sql("SET").collect() == settings


def test_columns_are_chosen_even_those_that_are_not_filtered(spark: SparkSession, index: Index) -> None:
    plan = plan_of(index, "few = 2", dialect="spark")
    found = plan.to_spark(spark, ["we ird`x", "i"])
    assert found.columns == ["we ird`x", "i"]
    assert found.count() == 500


def test_columns_are_named_as_for_all_readers(spark: SparkSession, tmp_path: Path) -> None:
    """A struct was refused, and by the name of one of its fields it came as a whole."""
    rows = pa.table({"id": range(9), "sx": [{"a": n, "b": "x"} for n in range(9)], "p.q": range(9), "k": ["1"] * 9})
    path = tmp_path / "t"
    plan = zskip.write(rows, path, by="id", files=3, partition_by=["k"]).plan("sx.a < 5")
    for read in (
        lambda columns: plan.to_spark(spark, columns=columns),
        lambda columns: zs.read(spark, path, where="sx.a < 5", columns=columns),
        lambda columns: zs.table(spark, path, columns=columns).where("sx.a < 5"),
    ):
        for columns in (["id", "sx"], ["SX", "P.q"], ["k", "sx"], "sx"):
            assert sorted_rows(read(columns).toArrow()) == sorted_rows(plan.to_arrow(columns)), columns
        for columns in (["sx.a"], ["id", "x"], ["q"]):
            with pytest.raises(UnknownColumn) as meant:
                plan.to_arrow(columns)
            with pytest.raises(UnknownColumn, match=re.escape(str(meant.value))):
                read(columns)


@pytest.mark.parametrize("name", ["a b", "a%20b", "a[1]{x}", "what?*", "o=1/t", "ü"])
def test_any_folder_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    plan = plan_of(build_table(tmp_path / name, pa.table({"x": range(8)}), files=2), "x > 5", dialect="spark")
    assert plan.to_spark(spark, ["x"]).count() == 2


@pytest.mark.parametrize("name", ["plain", "a b%20[1]", "o=1/t"])
def test_hive_folders_become_columns(spark: SparkSession, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    parts = {"p=1/q=x%2F%20y": [1, 2], "p=2/q=__HIVE_DEFAULT_PARTITION__": [3], "p=07/q=z": [4]}
    for part, values in parts.items():
        (folder / part).mkdir(parents=True)
        pq.write_table(pa.table({"id": values}), folder / part / "a.parquet")
    schema = pa.schema([("p", pa.int32()), ("id", pa.int64()), ("q", pa.string())])
    found = read_files(spark, find_survivors(indexed(folder), None).scan, schema)
    assert sorted(map(tuple, found.collect()), key=lambda row: row[1]) == [
        (1, 1, "x/ y"),
        (1, 2, "x/ y"),
        (2, 3, None),
        (7, 4, "z"),
    ]


def test_a_file_that_is_not_taken_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    schema = pa.schema([("id", pa.int64())])
    scan = find_survivors(indexed(tmp_path), None).scan
    twice = replace(scan, files=pa.concat_tables([scan.files, scan.files]))
    with pytest.raises(CorruptFile, match="1 of the 2 files"):
        read_files(spark, twice, schema)


def indexed(folder: Path) -> Index:
    storage = open_storage(str(folder))
    return Index(storage, index_files(storage))


TYPES = {
    "int8": pa.int8(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "large_string": pa.large_string(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "fixed": pa.binary(3),
    "decimal32": pa.decimal32(5, 2),
    "decimal": pa.decimal128(38, 10),
    "date64": pa.date64(),
    "seconds": pa.timestamp("s"),
    "zoned": pa.timestamp("ms", "Europe/Berlin"),
    "duration": pa.duration("us"),
    "null": pa.null(),
    "nested": pa.struct([("l", pa.list_(pa.map_(pa.string(), pa.int16())))]),
}


def test_types_are_those_that_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({name: pa.nulls(2, type) for name, type in TYPES.items()})
    pq.write_table(rows, tmp_path / "x.parquet")
    assert spark_schema(rows.schema) == spark.read.parquet(str(tmp_path / "x.parquet")).schema


@pytest.mark.parametrize(
    "type", [pa.float16(), pa.decimal256(50, 2), pa.time64("us"), pa.timestamp("ns", "UTC"), pa.uuid()]
)
def test_types_that_spark_lacks_are_named(spark: SparkSession, type: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r'"st\.x"'):
        spark_schema(pa.schema([("st", pa.struct([("x", type)]))]))


# --- ``format("zskip")`` sends its tasks the files that the driver planned, and no second plan ---


def test_tasks_read_the_files_that_the_driver_planned(tmp_path: Path) -> None:
    """A file that others replace, or add, between driver and tasks is not planned on again."""
    for number in range(3):
        pq.write_table(pa.table({"x": [2 * number, 2 * number + 1]}), tmp_path / f"{number}.parquet")
    table = zskip.index(tmp_path)
    read = Read(table.uri, table.version, {}, Semantics("UTC", True), spark_schema(table.schema))
    sent = [pickle.dumps(scan) for scan in read.scans()]
    pq.write_table(pa.table({"x": [20, 30, 40]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"x": [50]}), tmp_path / "new.parquet")
    found = [row for task in sent for batch in batches(pickle.loads(task), read) for row in batch["x"].to_pylist()]
    assert sorted(found) == [0, 1, 4, 5, 20, 30, 40]


def test_a_table_without_files_is_one_empty_task(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"x": pa.array([], pa.int64())}), tmp_path / "t", by="x")
    read = Read(table.uri, table.version, {}, Semantics("UTC", True), spark_schema(table.schema))
    assert [len(scan) for scan in read.scans()] == [0]
    assert list(batches(read.scans()[0], read)) == []
