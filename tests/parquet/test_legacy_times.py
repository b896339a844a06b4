"""Times of old writers: INT96 is microseconds everywhere, as DuckDB and Spark read it; and Spark's legacy calendar."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from zskip.errors import SchemaError

LAST, FIRST, NOW = dt.datetime(9999, 12, 31, 23, 59, 59), dt.datetime(1, 1, 1), dt.datetime(2020, 1, 1, 1, 2, 3, 456789)
TYPE, INSTANT = pa.timestamp("us"), pa.timestamp("us", "UTC")


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
                "m": pa.array([[("k", time)] for time in times], pa.map_(pa.string(), TYPE)),
            }
        )
        path = tmp_path / f"{number}.parquet"
        pq.write_table(rows, path, use_deprecated_int96_timestamps=True, store_schema=request.param)
        assert pq.ParquetFile(path).schema.column(1).physical_type == "INT96"
    return tmp_path


@pytest.mark.parametrize(("folder", "deep"), [(False, False), (True, True)], indirect=["folder"])
def test_every_year_is_read_from_an_indexed_folder(folder: Path, deep: bool) -> None:
    table = zskip.index(str(folder), deep=deep)
    assert table.schema.field("t").type == TYPE
    times = dict(enumerate([NOW, None, LAST, FIRST]))
    for predicate, ids in (
        (None, [0, 1, 2, 3]),
        ("t > TIMESTAMP '2500-01-01'", [2]),
        ("t < TIMESTAMP '1500-01-01'", [3]),
        ("s.t = TIMESTAMP '9999-12-31 23:59:59'", [2]),
        ("t = TIMESTAMP '2020-01-01 01:02:03.456789'", [0]),
        ("t IS NULL", [1]),
        ("id = 2", [2]),
    ):
        plan = table.plan(predicate)
        rows = plan.to_arrow().sort_by("id")
        assert rows["id"].to_pylist() == ids, predicate
        assert rows["t"].to_pylist() == [times[number] for number in ids]
        assert rows["s"].to_pylist() == [{"t": times[number]} for number in ids]
        assert rows["l"].to_pylist() == [[times[number]] for number in ids]
        found = plan.to_duckdb(duckdb.connect(), columns=["id"]).fetchall()
        assert sorted(row[0] for row in found) == ids, predicate


@pytest.fixture
def machine_in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def written(folder: Path) -> zskip.Table:
    return zskip.write(f"{folder}/*.parquet", str(folder / "written"), by=["t"])


def clustered(folder: Path) -> zskip.Table:
    zskip.cluster(folder, by=["t"])
    return zskip.open(folder)


@pytest.mark.usefixtures("machine_in_new_york")
@pytest.mark.parametrize("rewritten", [written, clustered])
def test_a_rewrite_keeps_the_instants(folder: Path, rewritten: Callable[[Path], zskip.Table]) -> None:
    """INT96 is an instant, so a rewritten column is adjusted to UTC, whatever the zone of the machine."""
    table = rewritten(folder)
    instants = [None if clock is None else clock.replace(tzinfo=dt.UTC) for clock in (NOW, None, LAST, FIRST)]
    assert table.schema.field("t").type == INSTANT
    rows = table.to_arrow().sort_by("id")
    assert rows["t"].to_pylist() == instants
    assert rows["s"].to_pylist() == [{"t": time} for time in instants]
    assert rows["l"].to_pylist() == [[time] for time in instants]
    assert rows["m"].to_pylist() == [[("k", time)] for time in instants]
    assert table.plan("t > TIMESTAMPTZ '9000-01-01 00:00:00Z'").to_arrow()["id"].to_pylist() == [2]
    for path in table.plan().paths:
        stored = pq.ParquetFile(path)
        leaves = [stored.schema.column(n) for n in range(len(stored.schema.names))]
        assert all(json.loads(leaf.logical_type.to_json())["isAdjustedToUTC"] for leaf in leaves if "t" in leaf.path)


@pytest.mark.parametrize("beside", [TYPE, INSTANT], ids=["clocks", "instants"])
def test_files_of_other_writers_beside_int96_are_instants_too(tmp_path: Path, beside: pa.DataType) -> None:
    for number, (type, old) in enumerate([(beside, False), (TYPE, True), (beside, False)]):
        rows = pa.table({"id": [number], "t": pa.array([NOW], type)})
        pq.write_table(rows, tmp_path / f"{number}.parquet", use_deprecated_int96_timestamps=old)
    table = zskip.write(str(tmp_path), tmp_path.with_name(f"{tmp_path.name} written"), by="id")
    assert table.schema.field("t").type == INSTANT
    assert table.to_arrow()["t"].to_pylist() == [NOW.replace(tzinfo=dt.UTC)] * 3


# --- files in Spark's legacy calendar are laid out by Spark only: other readers show other dates than Spark ---


OLD, NEW = dt.date(1560, 2, 20), dt.date(1582, 10, 15)
OLD_TIME, NEW_TIME = dt.datetime(1899, 12, 31, 23), dt.datetime(1900, 1, 1)
MARK = {"org.apache.spark.legacyDateTime": "", "org.apache.spark.version": "4.0.0"}
SPARK_2 = {"org.apache.spark.version": "2.4.8"}


def in_calendar(folder: Path, rows: dict[str, Any], marks: dict[str, str], **options: Any) -> str:
    folder.mkdir()
    table = pa.table({"id": range(4), **rows})
    pq.write_table(table.replace_schema_metadata(marks), folder / "a.parquet", **options)
    pq.write_table(table.slice(0, 1), folder / "b.parquet")
    return str(folder)


@pytest.mark.parametrize(
    ("marks", "rows", "options"),
    [
        (MARK, {"d": [NEW, NEW, None, OLD]}, {}),
        (MARK, {"d": [NEW_TIME, NEW_TIME, None, OLD_TIME]}, {"row_group_size": 1}),
        (MARK, {"d": [NEW_TIME, NEW_TIME, None, OLD_TIME]}, {"use_deprecated_int96_timestamps": True}),
        (SPARK_2, {"d": [None, {"in": [NEW, OLD]}, None, None]}, {}),
        (SPARK_2, {"d": pa.array([[("a", OLD)], None, [], None], pa.map_(pa.string(), pa.date32()))}, {}),
    ],
)
def test_old_values_are_refused(
    tmp_path: Path, rows: dict[str, Any], options: dict[str, Any], marks: dict[str, str]
) -> None:
    folder = in_calendar(tmp_path / "t", rows, marks, **options)
    with pytest.raises(SchemaError, match=r'a.parquet" was written by Spark in its legacy calendar, in which its "d"'):
        zskip.write(folder, tmp_path / "copy", by="id")
    with pytest.raises(SchemaError, match=r"zskip\.spark\.cluster"):
        zskip.cluster(folder, by="id")
    assert zskip.open(folder).count() == 5


def test_new_values_and_unmarked_files_are_laid_out(tmp_path: Path) -> None:
    for name, rows, marks in (
        ("new", {"d": [NEW, NEW, None, NEW], "t": [NEW_TIME] * 4}, MARK),
        ("unmarked", {"d": [OLD, NEW, None, NEW], "t": [OLD_TIME] * 4}, {}),
    ):
        folder = in_calendar(tmp_path / name, rows, marks)
        assert zskip.write(folder, tmp_path / f"{name} copy", by="id").count() == 5
        zskip.cluster(folder, by="id")
        assert zskip.open(folder).count() == 5
