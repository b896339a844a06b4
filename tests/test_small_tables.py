"""What small data meets: row groups that can be skipped, or the reason why not; no survivors, in every engine."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import zskip
from tests import one_in
from zskip.bench import bench
from zskip.cli.main import main


def rows(count: int) -> pa.Table:
    return pa.table({"a": np.random.default_rng(1).permutation(count), "s": [f"{n % 977:03}" for n in range(count)]})


def test_a_small_table_has_row_groups_to_skip(tmp_path: Path) -> None:
    table = zskip.write(rows(50_000), tmp_path / "t", by=["a"])
    assert (table._index.snapshot.totals.files, table._index.snapshot.totals.row_groups) == (1, 13)
    plan = table.plan("a = 7")
    assert plan.skipped.row_groups.part == 12
    assert pq.read_metadata(plan.paths[0]).num_row_groups == 13
    table.append(rows(130_000))  # what comes later has row groups of the usual size
    assert table._index.snapshot.totals.row_groups - 13 == sum(
        -(-file.rows // 122_880) for file in table.plan().files if file.path != plan.paths[0]
    )


def test_row_groups_of_larger_tables_are_as_before(tmp_path: Path) -> None:
    counts = {
        "many files": zskip.write(rows(50_000), tmp_path / "a", by=["a"], files=40),
        "given": zskip.write(rows(50_000), tmp_path / "b", by=["a"], row_group_rows=50_000),
    }
    assert {name: table._index.snapshot.totals.row_groups for name, table in counts.items()} == {
        "many files": 40,
        "given": 1,
    }


def test_a_table_with_nothing_to_skip_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "few.parquet"
    pq.write_table(rows(1000), source)
    assert main(["write", str(source), str(tmp_path / "t"), "--by", "a"]) == 0
    assert "one file of one row group" in capsys.readouterr().out
    assert "read as a whole or not at all" in zskip.open(tmp_path / "t").plan("a = 7").explain()
    assert main(["write", str(source), str(tmp_path / "u"), "--by", "a", "--files", "4"]) == 0
    assert "one file" not in capsys.readouterr().out
    assert "as a whole" not in zskip.open(tmp_path / "u").plan("a = 7").explain()


def test_bench_says_that_a_table_is_too_small(tmp_path: Path) -> None:
    table = zskip.write(rows(1000), tmp_path / "t", by=["a"], files=4)
    assert "too small to tell" in str(bench(table, ["a = 7"], runs=1))


# --- no survivors ---

SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("m", pa.decimal128(9, 2)),
        ("l", pa.list_(pa.int64())),
        ("p", pa.int64()),
    ]
)
NONE = "i = 1000 AND p = 1"


def _duckdb_dataset(table: zskip.Table, path: str) -> Any:
    con = duckdb.connect()
    con.register("t", table.dataset())
    return con.sql(f"SELECT * FROM t WHERE {NONE}").to_arrow_table()


def _datafusion(table: zskip.Table, path: str) -> Any:
    datafusion = pytest.importorskip("datafusion")
    context = datafusion.SessionContext()
    table.to_datafusion(context, "t")
    return context.sql(f"SELECT * FROM t WHERE {NONE}").to_arrow_table()


def _polars_scan(table: zskip.Table, path: str) -> Any:
    pl = pytest.importorskip("polars")
    import zskip.polars

    return zskip.polars.scan(path).filter((pl.col("i") == 1000) & (pl.col("p") == 1)).collect()


def _ibis(table: zskip.Table, path: str) -> Any:
    ibis = pytest.importorskip("ibis")
    con = ibis.duckdb.connect()
    con.con.register("t", table.dataset())
    return con.table("t").filter((ibis._.i == 1000) & (ibis._.p == 1)).to_pyarrow()


ENGINES: dict[str, Callable[[zskip.Table, str], Any]] = {
    "arrow": lambda table, path: table.plan(NONE).to_arrow(),
    "stream": lambda table, path: pa.table(table.plan(NONE)),
    "pandas": lambda table, path: table.plan(NONE).to_pandas(),
    "polars": lambda table, path: table.plan(NONE).to_polars(),
    "polars scan": _polars_scan,
    "read": lambda table, path: zskip.read(path, where=NONE),
    "dataset": lambda table, path: table.dataset().to_table(filter=(pc.field("i") == 1000) & (pc.field("p") == 1)),
    "duckdb": lambda table, path: table.plan(NONE).to_duckdb(duckdb.connect()).to_arrow_table(),
    "duckdb dataset": _duckdb_dataset,
    "sql": lambda table, path: zskip.sql(f"SELECT * FROM '{path}' WHERE {NONE}", duckdb.connect()).to_arrow_table(),
    "datafusion": _datafusion,
    "ibis": _ibis,
}


def small_tables(lake: Path) -> dict[str, str]:
    """Small tables, written, partitioned, indexed and empty."""
    values = pa.table(
        [range(40), ["x", None] * 20, [date(2024, 1, 1)] * 40, [0] * 40, [1] * 40, [[1]] * 40, [0, 1] * 20],
        schema=SCHEMA,
    )
    zskip.write(values, lake / "written", by=["i"], files=4)
    zskip.write(values, lake / "partitioned", by=["i"], files=4, partition_by=["p"])
    zskip.write(values.slice(0, 0), lake / "empty", by=["i"])
    (lake / "indexed").mkdir()
    pq.write_table(values, lake / "indexed" / "a.parquet")
    zskip.index(lake / "indexed")
    return {name: str(lake / name) for name in ("written", "partitioned", "empty", "indexed")}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return small_tables(tmp_path_factory.mktemp("lake"))


@pytest.mark.parametrize(("kind", "engine"), one_in(2, ["written", "partitioned", "empty", "indexed"], ENGINES))
def test_no_survivors_give_all_columns(tables: dict[str, str], kind: str, engine: str) -> None:
    table = zskip.open(tables[kind])
    assert table.plan(NONE).paths == []
    found = ENGINES[engine](table, tables[kind])
    names = list(found.column_names if isinstance(found, pa.Table) else found.columns)
    assert sorted(names) == sorted(SCHEMA.names)
    assert len(found) == 0
    if isinstance(found, pa.Table):
        assert set(found.schema.field("t").type.tz.split("/")[-1:]) <= {"UTC"}
        assert {found.schema.field(name).type for name in ("i", "p")} == {pa.int32(), pa.int64()}
