"""Facts that Spark lays out by the attributes of their dimensions: as the local writer does, in every change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import zskip
from tests.tables import sorted_rows
from zskip import spark as zs
from zskip.spark.spark_session import setting

REGIONS = ["AFRICA", "AMERICA", "ASIA", "EUROPE"]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Customers with the keys of nations, by text and number, and nations with regions."""
    folder = tmp_path_factory.mktemp("star")
    nations = pa.table({"nation": list(range(8)), "region": [REGIONS[n % 4] for n in range(8)]})
    customers = pa.table(
        {
            "key": pa.array(range(400), pa.int32()),
            "code": [f"c{n}" for n in range(400)],
            "nation": [n * 7 % 8 if n % 9 else None for n in range(400)],
            "since": pa.array([n * 86_400_000_000 for n in range(400)], pa.timestamp("us", "UTC")),
        }
    )
    zskip.write(nations, folder / "nation", by="nation", files=2)
    zskip.write(customers, folder / "customer", by="key", files=4)
    return folder


def facts(rows: int, seed: int) -> pa.Table:
    """Orders in random order: some without a customer, some of one whom nobody knows."""
    dice = np.random.default_rng(seed)
    keys = dice.integers(0, 440, rows)
    return pa.table(
        {
            "id": range(rows),
            "day": pa.array(dice.integers(0, 300, rows).astype(np.int32), pa.date32()),
            "custkey": pa.array(keys, pa.int64(), mask=keys % 11 == 0),
            "code": [f"c{key}" for key in keys],
        }
    )


def joins(lake: Path) -> dict[str, Any]:
    return {
        "customer": (lake / "customer", {"custkey": "key", "code": "code"}),
        "nation": (lake / "nation", {"customer.nation": "nation"}),
    }


BY = ["nation.region", "customer.since", "day"]
FROM = (
    "FROM 'facts' f JOIN 'customer' c ON f.custkey = c.key AND f.code = c.code JOIN 'nation' n ON c.nation = n.nation"
)
STATEMENTS = [
    f"SELECT f.id {FROM} WHERE {where}" for where in ("n.region = 'ASIA'", "c.since < '1970-03-01'", "n.nation < 2")
]


def require_same_answers(table: zskip.Table, rows: pa.Table, lake: Path) -> None:
    """Those of DuckDB over the rows themselves."""
    import duckdb

    for statement in STATEMENTS:
        for name in ("customer", "nation"):
            statement = statement.replace(f"'{name}'", f"'{lake / name}'")
        with duckdb.connect() as con:
            con.register("facts_in_memory", rows)
            plain = zskip.sql(statement.replace("'facts'", "facts_in_memory"), con=con).to_arrow_table()
        assert sorted_rows(zskip.sql(statement.replace("'facts'", f"'{table.uri}'")).to_arrow_table()) == sorted_rows(
            plain
        )


def ranges(table: zskip.Table, path: str) -> list[tuple[Any, Any]]:
    statistics = table._index.file_statistics(np.arange(len(table._index)), [path]).columns[path]
    return list(zip(statistics.lower.to_pylist(), statistics.upper.to_pylist(), strict=True))


@pytest.mark.parametrize(
    "partition_by",
    [[], pytest.param(["day"], marks=pytest.mark.slow)],
    ids=["plain", "partitioned"],
)
def test_spark_writes_the_layout_and_the_ranges_of_the_local_writer(
    spark: SparkSession, lake: Path, tmp_path: Path, partition_by: list[str]
) -> None:
    rows = facts(1200, 1)
    if partition_by:
        rows = rows.set_column(1, "day", pa.array(np.arange(1200) % 3, pa.int32()))
    by = [name for name in BY if name not in partition_by]
    given: dict[str, Any] = {"by": by, "joins": joins(lake), "files": 6, "partition_by": partition_by}
    df = spark.createDataFrame(rows).repartition(3)
    with setting(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        table = zs.write(df, tmp_path / "facts", **given)
    local = zskip.write(rows, tmp_path / "local", **given)
    assert table._index.snapshot.dimensions == local._index.snapshot.dimensions
    assert table.schema == local.schema
    assert table.verify().clean
    for path in ('"nation.region"', '"customer.since"'):
        assert ranges(table, path) == ranges(local, path)
    require_same_answers(table, rows, lake)


def test_every_change_by_spark_joins_again(spark: SparkSession, lake: Path, tmp_path: Path) -> None:
    first, second = facts(800, 2), facts(400, 3)
    table = zs.write(spark.createDataFrame(first), tmp_path / "facts", by=BY, joins=joins(lake), files=4)
    table.append(spark.createDataFrame(second.slice(0, 200)))
    zs.register_source(spark)
    spark.createDataFrame(second.slice(200)).write.format("zskip").mode("append").save(str(tmp_path / "facts"))
    table.refresh()
    everything = pa.concat_tables([first, second])
    assert table.verify().clean
    assert None not in {end for pair in ranges(table, '"nation.region"') for end in pair}
    require_same_answers(table, everything, lake)
    table.delete("id % 5 = 0", dialect="spark", session=spark)
    left = everything.filter(pa.array(np.asarray(everything["id"]) % 5 != 0))
    require_same_answers(table, left, lake)
    zs.optimize(spark, table, files=4)
    assert table.verify().clean
    require_same_answers(zskip.open(tmp_path / "facts"), left, lake)
    assert zs.table(spark, tmp_path / "facts").columns == first.column_names
    for act in (zs.read, zs.delete):
        with pytest.raises(zskip.UnknownColumn, match="is a dimension"):
            act(spark, tmp_path / "facts", where="customer.code = 'c1'")


def test_a_workload_finds_the_attributes_of_a_frame(spark: SparkSession, lake: Path, tmp_path: Path) -> None:
    rows = facts(800, 4)
    options: dict[str, Any] = {"workload": STATEMENTS, "joins": joins(lake), "files": 4}
    table = zs.write(spark.createDataFrame(rows), tmp_path / "facts", **options)
    local = zskip.write(rows, tmp_path / "local", **options)
    assert set(table.clustering()) == set(local.clustering()) >= {'"nation.region"', '"customer.since"'}
    require_same_answers(table, rows, lake)
    assert zs.cluster(spark, tmp_path / "facts", by=["customer.since"], files=2).files_rewritten == 4
    assert list(zskip.open(tmp_path / "facts").clustering()) == ['"customer.since"']
    require_same_answers(zskip.open(tmp_path / "facts"), rows, lake)


def test_a_dimension_whose_keys_are_not_unique_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    twice = pa.table({"key": [1, 1], "name": ["a", "b"]})
    with pytest.raises(zskip.InvalidOption, match="more than one row with the key"):
        zs.write(spark.range(9), tmp_path / "facts", by=["d.name"], joins={"d": (twice, {"id": "key"})})
    assert not list(tmp_path.glob("**/*.parquet"))
