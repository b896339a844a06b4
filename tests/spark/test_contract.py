"""Spark gives the rows of a full scan too, of the tables and predicates of every other engine.

Plain tables and folders are in `test_self_pruning`, those of other formats in `test_other_formats`.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

import zskip.spark as zs
from tests.engines.test_contract import PREDICATES, TABLES
from tests.spark.files import files_read
from tests.tables import sorted_rows

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.mark.parametrize("kind", ["partitioned", "evolved"])
def test_spark_gives_the_rows_of_a_full_scan(spark: SparkSession, kind: str, tmp_path: Path) -> None:
    table = TABLES[kind](tmp_path / "t")
    whole, frame = table.to_arrow(), zs.table(spark, table)
    for name in ("prefix", "or", "partition"):
        sql = PREDICATES[name][0]
        found = frame.where(sql.replace("starts_with(", "startswith("))
        wanted = duckdb.from_arrow(whole).filter(sql).to_arrow_table()
        assert sorted_rows(found.toArrow()) == sorted_rows(wanted), name
        assert files_read(found) <= len(table.plan(sql)), name
