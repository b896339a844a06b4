"""Delta and Iceberg tables through Spark: deleted rows stay deleted, and what cannot be read so is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import zskip
from tests import ROOT
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


def test_a_table_without_deletes_prunes_itself(spark: SparkSession) -> None:
    path = FOLDER / "basic-with-inserts-deletes-checkpoint"
    live = pa.table(DeltaTable(path).scan())["id"].to_pylist()
    assert ids(zspark.table(spark, path)) == sorted(live)
    rows = zspark.sql(spark, f"SELECT id FROM '{path}' WHERE id = 60")
    assert ids(rows) == [60]


def test_renamed_columns_are_read_by_their_names(spark: SparkSession) -> None:
    path = FOLDER / "data-skipping-basic-stats-all-types-columnmapping-name"
    assert zspark.read(spark, path, "as_int = 0").select("as_string").collect()[0][0] == "0"
