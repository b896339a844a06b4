"""INT96 timestamps are microseconds everywhere, as DuckDB and Spark read them: nanoseconds end in 2262."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip

LAST, FIRST, NOW = dt.datetime(9999, 12, 31, 23, 59, 59), dt.datetime(1, 1, 1), dt.datetime(2020, 1, 1, 1, 2, 3, 456789)
TYPE = pa.timestamp("us")


@pytest.fixture(params=[False, True], ids=["by Spark", "by Arrow"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Two files of INT96, at the top level and inside a struct; with Arrow's schema in the footer or without."""
    for number, times in enumerate([[NOW, None], [LAST, FIRST]]):
        rows = pa.table(
            {
                "id": pa.array([2 * number, 2 * number + 1], pa.int64()),
                "t": pa.array(times, TYPE),
                "s": pa.array([{"t": time} for time in times], pa.struct([("t", TYPE)])),
                "l": pa.array([[time] for time in times], pa.list_(TYPE)),
            }
        )
        path = tmp_path / f"{number}.parquet"
        pq.write_table(rows, path, use_deprecated_int96_timestamps=True, store_schema=request.param)
        assert pq.ParquetFile(path).schema.column(1).physical_type == "INT96"
    return tmp_path


@pytest.mark.parametrize(
    ("predicate", "ids"),
    [
        (None, [0, 1, 2, 3]),
        ("t > TIMESTAMP '2500-01-01'", [2]),
        ("t < TIMESTAMP '1500-01-01'", [3]),
        ("s.t = TIMESTAMP '9999-12-31 23:59:59'", [2]),
        ("t = TIMESTAMP '2020-01-01 01:02:03.456789'", [0]),
        ("t IS NULL", [1]),
        ("id = 2", [2]),
    ],
)
@pytest.mark.parametrize("deep", [False, True])
def test_every_year_is_read_from_an_indexed_folder(
    folder: Path, deep: bool, predicate: str | None, ids: list[int]
) -> None:
    table = zskip.index(str(folder), deep=deep)
    assert table.schema.field("t").type == TYPE
    plan = table.plan(predicate) if predicate else table.plan()
    times = dict(enumerate([NOW, None, LAST, FIRST]))
    rows = plan.to_arrow().sort_by("id")
    assert rows["id"].to_pylist() == ids
    for name in ("t", "s", "l"):
        wrap = {"t": lambda time: time, "s": lambda time: {"t": time}, "l": lambda time: [time]}[name]
        assert rows[name].to_pylist() == [wrap(times[number]) for number in ids]
    con = duckdb.connect()
    assert sorted(row[0] for row in plan.to_duckdb(con, columns=["id"]).fetchall()) == ids


def test_the_years_survive_a_rewrite(folder: Path, tmp_path: Path) -> None:
    table = zskip.write(f"{folder}/*.parquet", str(tmp_path / "written"), by=["t"])
    rows = table.plan().to_arrow().sort_by("id")
    assert rows["t"].to_pylist() == [NOW, None, LAST, FIRST]
    assert rows["s"].to_pylist() == [{"t": time} for time in (NOW, None, LAST, FIRST)]
    assert rows["l"].to_pylist() == [[time] for time in (NOW, None, LAST, FIRST)]
    assert table.plan("t > TIMESTAMP '9000-01-01'").to_arrow()["id"].to_pylist() == [2]
