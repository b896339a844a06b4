"""Files in Spark's legacy calendar are laid out by Spark only: other readers show other dates than Spark."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from zskip.errors import SchemaError

OLD, NEW = datetime.date(1560, 2, 20), datetime.date(1582, 10, 15)
OLD_TIME, NEW_TIME = datetime.datetime(1899, 12, 31, 23), datetime.datetime(1900, 1, 1)
MARK = {"org.apache.spark.legacyDateTime": "", "org.apache.spark.version": "4.0.0"}
SPARK_2 = {"org.apache.spark.version": "2.4.8"}


def written(folder: Path, rows: dict[str, Any], marks: dict[str, str], **options: Any) -> str:
    folder.mkdir()
    table = pa.table({"id": range(4), **rows})
    pq.write_table(table.replace_schema_metadata(marks), folder / "a.parquet", **options)
    pq.write_table(table.slice(0, 1), folder / "b.parquet")
    return str(folder)


@pytest.mark.parametrize("marks", [MARK, SPARK_2])
@pytest.mark.parametrize(
    ("rows", "options"),
    [
        ({"d": [NEW, NEW, None, OLD]}, {}),
        ({"d": [NEW_TIME, NEW_TIME, None, OLD_TIME]}, {"row_group_size": 1}),
        ({"d": [NEW_TIME, NEW_TIME, None, OLD_TIME]}, {"use_deprecated_int96_timestamps": True}),
        ({"d": [None, {"in": [NEW, OLD]}, None, None]}, {}),
        ({"d": pa.array([[("a", OLD)], None, [], None], pa.map_(pa.string(), pa.date32()))}, {}),
    ],
)
def test_old_values_are_refused(
    tmp_path: Path, rows: dict[str, Any], options: dict[str, Any], marks: dict[str, str]
) -> None:
    folder = written(tmp_path / "t", rows, marks, **options)
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
        folder = written(tmp_path / name, rows, marks)
        assert zskip.write(folder, tmp_path / f"{name} copy", by="id").count() == 5
        zskip.cluster(folder, by="id")
        assert zskip.open(folder).count() == 5
