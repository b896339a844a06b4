"""Delta tables as other writers left them: their rows are those that deltalake reads."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import zskip
from tests import ROOT
from tests.table_formats.asking import as_ours, require_same, rows
from zskip.errors import TableNotFound, UnsupportedFormat

FOLDER = ROOT / "fixtures" / "delta"
REFUSED = "deltalog-invalid-protocol-version"
NAMES = sorted(path.name for path in FOLDER.iterdir() if path.name != REFUSED)
PREDICATES = {
    "basic-decimal-table": ["part = 234", "col1 < 0", "col3 >= 2"],
    "basic-with-inserts-deletes-checkpoint": ["id = 60", "id BETWEEN 55 AND 62"],
    "data-reader-escaped-chars": ["_2 = 'bar+%21'", "_2 LIKE 'bar+%'"],
    "data-reader-partition-values": ["as_int = 0", "as_string IS NULL", "as_date >= DATE '2021-01-01'"],
    "data-reader-timestamp_ntz": ["tsNtz >= TIMESTAMP '2021-11-18 02:30:00.1234'", "tsNtzPartition IS NULL"],
    "data-reader-timestamp_ntz-name-mode": ["tsNtz >= TIMESTAMP '2021-11-18 02:30:00.1234'", "id = 3"],
    "data-skipping-basic-stats-all-types-columnmapping-name": ["as_int = 0", "as_int = 1", "as_string = '0'"],
    "dv-partitioned-with-checkpoint": ["part = 6", "col1 = 26", "col1 < 10 AND part > 4", "col2 <> 'foo1'"],
    "kernel-timestamp-INT96": ["time < TIMESTAMPTZ '2000-01-01 00:00:00Z'", "part IS NULL"],
    "parquet-all-types": ["ByteType = -128", "StringType > '1'", "nested_struct IS NULL"],
}


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_those_that_deltalake_reads(name: str) -> None:
    theirs = pa.table(DeltaTable(FOLDER / name).scan())
    opened = zskip.open(FOLDER / name)
    assert opened.version == DeltaTable(FOLDER / name).version()
    require_same(opened, theirs, PREDICATES.get(name, []))
    relation = opened.plan().to_duckdb(duckdb.connect())
    assert relation.count("*").fetchall() == [(len(theirs),)]
    # DuckDB failed with an internal error: it late-materializes the first rows.
    first = opened.schema.names[0]
    present = opened.plan(f'"{first}" IS NOT NULL').to_duckdb(duckdb.connect()).order(f'"{first}"')
    assert [row[0] for row in present.limit(3).fetchall()] == [row[0] for row in present.fetchall()][:3]


def test_an_object_of_deltalake_is_opened_as_its_path_is() -> None:
    table = DeltaTable(FOLDER / "basic-with-inserts-updates")
    assert rows(zskip.open(table).to_arrow()) == rows(zskip.open(FOLDER / "basic-with-inserts-updates").to_arrow())


def test_a_log_that_deltalake_refuses_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFormat, match=REFUSED):
        zskip.open(FOLDER / REFUSED)


def test_deleted_rows_stay_deleted_in_a_statement_and_in_a_copy(tmp_path: Path) -> None:
    path = FOLDER / "dv-partitioned-with-checkpoint"
    theirs = pa.table(DeltaTable(path).scan())
    counted = zskip.sql(f"SELECT part, count(*) FROM '{path}' WHERE col1 > 5 GROUP BY part ORDER BY part").fetchall()
    ours = duckdb.sql("SELECT part, count(*) FROM theirs WHERE col1 > 5 GROUP BY part ORDER BY part").fetchall()
    assert counted == ours
    copy = zskip.write(path, tmp_path / "copy", by="col1")
    assert rows(copy.to_arrow()) == rows(as_ours(theirs, copy.to_arrow()))


def test_a_time_and_a_version_are_deltas_own() -> None:
    path = FOLDER / "basic-with-inserts-updates"
    older = zskip.open(path, version=0)
    assert older.version == 0
    assert rows(older.to_arrow()) == rows(pa.table(DeltaTable(path, version=0).scan()))
    assert zskip.open(path, as_of="2100-01-01").version == 1


def test_a_time_before_the_table_and_a_version_after_it_are_refused() -> None:
    path = FOLDER / "basic-with-inserts-updates"
    with pytest.raises(TableNotFound, match="as old as 2000-01-01"):
        zskip.open(path, as_of="2000-01-01")
    with pytest.raises(TableNotFound, match="no version 7"):
        zskip.open(path, version=7)
    assert zskip.open(path).verify(random=1).version == 1


def test_an_attached_side_car_lies_in_the_table(tmp_path: Path, cache_folder: Path) -> None:
    path = shutil.copytree(FOLDER / "basic-with-inserts-updates", tmp_path / "table")
    attached = zskip.attach(path)
    assert attached.index.parts.uri == str(path)
    assert (path / "_zskip" / "log").is_dir()
    assert not any(cache_folder.iterdir())
    assert len(zskip.open(path).to_arrow()) == len(pa.table(DeltaTable(path).scan()))
    DeltaTable(path).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert len(zskip.open(path).to_arrow()) == 100


def test_verbs_that_change_rows_are_refused() -> None:
    opened = zskip.open(FOLDER / "basic-with-inserts-updates")
    for change in (
        lambda: opened.append(pa.table({"id": [1]})),
        lambda: opened.delete("id = 1"),
        lambda: opened.overwrite(pa.table({"id": [1]})),
        opened.optimize,
        lambda: opened.restore(1),
        opened.history,
        opened.vacuum,
    ):
        with pytest.raises(UnsupportedFormat, match="Delta"):
            change()


def test_a_plan_names_the_version_that_delta_does() -> None:
    plan = zskip.open(FOLDER / "dv-partitioned-with-checkpoint").plan("part = 3")
    assert plan.as_dict()["version"] == plan.scan.version == 15
