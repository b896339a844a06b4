"""Files of zskip's own tables, named by a glob, a partition or a folder above, are refused like other formats'."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from zskip.errors import ForeignTable

WAYS: dict[str, Callable[[Path], object]] = {
    "index above": lambda lake: zskip.index(lake),
    "index of a partition": lambda lake: zskip.index(lake / "t" / "p=1"),
    "source above": lambda lake: zskip.write(str(lake), lake.parent / "new", by=["id"]),
    "source by glob": lambda lake: zskip.write(f"{lake}/t/*/*.parquet", lake.parent / "new", by=["id"]),
    "source of a partition": lambda lake: zskip.write(str(lake / "t" / "p=1"), lake.parent / "new", by=["id"]),
}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    rows = pa.table({"id": range(100), "p": [number % 2 for number in range(100)]})
    table = zskip.write(rows, tmp_path / "lake" / "t", by=["id"], files=4, partition_by=["p"])
    table.delete("id < 51")
    return tmp_path / "lake"


@pytest.mark.parametrize("way", WAYS)
def test_deleted_rows_do_not_come_back_by_the_names_of_files(way: str, lake: Path) -> None:
    with pytest.raises(ForeignTable, match="is a table of zskip"):
        WAYS[way](lake)
    assert not (lake.parent / "new").exists()


def test_a_refresh_refuses_a_table_that_was_written_into_the_folder(tmp_path: Path) -> None:
    rows = pa.table({"id": range(100)})
    pq.write_table(rows, tmp_path / "plain.parquet")
    indexed = zskip.index(tmp_path)
    zskip.write(rows, tmp_path / "t", by=["id"], files=4).delete("id < 51")
    for verb in (indexed.refresh, indexed.to_arrow, indexed.count, lambda: zskip.sql(f"FROM '{tmp_path}'")):
        with pytest.raises(ForeignTable, match="t is a table of zskip"):
            verb()


def test_a_table_as_a_source_gives_its_live_rows(lake: Path) -> None:
    assert zskip.write(str(lake / "t"), lake.parent / "new", by=["id"]).count() == 49


def test_a_folder_of_others_may_hold_files_beside_a_table(lake: Path, tmp_path: Path) -> None:
    zskip.write(pa.table({"id": [1, 2]}), tmp_path / "raw" / "copy", by=["id"])
    for path in (tmp_path / "raw" / "copy").glob("*.parquet"):
        path.rename(tmp_path / "raw" / path.name)  # no table's any more
    assert zskip.index(tmp_path / "raw").count() == 2
