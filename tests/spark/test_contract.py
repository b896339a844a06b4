"""Spark gives the rows of a full scan too, of the tables and predicates of every other engine; of Delta and Iceberg
deleted rows stay deleted, and what cannot be read so is refused. Plain folders are in `test_self_pruning`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import zskip
from tests import ROOT
from tests.engines.test_contract import PREDICATES, TABLES
from tests.spark.files import files_read
from tests.table_formats.logs import delete_rows
from tests.tables import sorted_rows
from zskip import spark as zspark
from zskip.errors import UnsupportedFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = ROOT / "fixtures" / "delta"


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def ids(rows: object) -> list[int]:
    return sorted(row[0] for row in rows.collect())  # type: ignore[attr-defined]


@pytest.mark.parametrize("where", [None, "col1 > 5 AND part < 8"])
def test_deleted_rows_stay_deleted(spark: SparkSession, where: str | None) -> None:
    path = FOLDER / "dv-partitioned-with-checkpoint"
    wanted = zskip.open(path).plan(where).to_arrow(["col1"])["col1"].to_pylist()
    assert ids(zspark.read(spark, path, where, columns=["col1"])) == sorted(wanted)
    assert ids(zskip.open(path).plan(where).to_spark(spark, ["col1"])) == sorted(wanted)
    with pytest.raises(UnsupportedFormat, match=r"zskip\.spark\.read"):
        zspark.table(spark, path)


def with_deletes(path: Path, files: int, deleted: dict[int, list[int]]) -> None:
    """A Delta table of files of ten rows, some of whose rows are deleted by vectors in the log."""
    for number in range(files):
        ids = range(number * 10, number * 10 + 10)
        rows = {"id": ids, "text": [None if n % 3 else f"t{n}" for n in ids], "s": [{"x": n} for n in ids]}
        write_deltalake(path, pa.table(rows), mode="append")
    for number, some in deleted.items():
        delete_rows(path, some, number)


def test_only_files_with_deletes_come_through_this_machine(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    with_deletes(path, 4, {1: [0, 9], 2: list(range(10))})
    theirs = pa.table(DeltaTable(path).scan())["id"].to_pylist()
    assert sorted(theirs) == [n for n in range(40) if n not in (10, 19, *range(20, 30))]
    rows = zspark.read(spark, path)
    assert ids(rows) == sorted(theirs)
    assert len(rows.inputFiles()) == 2
    where = "s.x >= 8 AND id < 21 AND text IS NULL"
    assert ids(zspark.read(spark, path, where, columns=["id"])) == [8, 11, 13, 14, 16, 17]
    structs = zspark.read(spark, path, "id = 12 OR id = 2").select("s", "text").collect()
    assert sorted(row.s.x for row in structs) == [2, 12]


def test_a_table_without_deletes_prunes_itself(spark: SparkSession) -> None:
    path = FOLDER / "basic-with-inserts-deletes-checkpoint"
    live = pa.table(DeltaTable(path).scan())["id"].to_pylist()
    assert ids(zspark.table(spark, path)) == sorted(live)
    rows = zspark.sql(spark, f"SELECT id FROM '{path}' WHERE id = 60")
    assert ids(rows) == [60]


def test_renamed_columns_are_read_by_their_names(spark: SparkSession) -> None:
    path = FOLDER / "data-skipping-basic-stats-all-types-columnmapping-name"
    assert zspark.read(spark, path, "as_int = 0").select("as_string").collect()[0][0] == "0"


@pytest.mark.parametrize("kind", ["partitioned", "evolved"])
def test_spark_gives_the_rows_of_a_full_scan(spark: SparkSession, kind: str, tmp_path: Path) -> None:
    table = TABLES[kind](tmp_path / "t")
    whole, frame = table.to_arrow(), zspark.table(spark, table)
    for name in ("prefix", "or", "partition"):
        sql = PREDICATES[name][0]
        found = frame.where(sql.replace("starts_with(", "startswith("))
        wanted = duckdb.from_arrow(whole).filter(sql).to_arrow_table()
        assert sorted_rows(found.toArrow()) == sorted_rows(wanted), name
        assert files_read(found) <= len(table.plan(sql)), name
