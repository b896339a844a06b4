"""A plan without survivors gives Spark an empty DataFrame with the table's columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import zskip
import zskip.spark
from tests.test_small_tables import NONE, SCHEMA, small_tables


@pytest.mark.spark
def test_no_survivors_give_all_columns(spark: Any, tmp_path: Path) -> None:
    for kind, path in small_tables(tmp_path).items():
        table = zskip.open(path)
        for found in (
            table.plan(NONE).to_spark(spark),
            zskip.spark.read(spark, path, where=NONE),
            zskip.spark.table(spark, path).where(NONE),
        ):
            types = {field.name: field.dataType.simpleString() for field in found.schema}
            assert sorted(types) == sorted(SCHEMA.names), kind
            assert (types["i"], types["t"], types["m"]) == ("int", "timestamp", "decimal(9,2)")
            assert found.collect() == []
