"""Addresses of tables of other formats: names with escapes, metadata files in SQL, folders that hold a side-car."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog

import zskip
from tests.table_formats.asking import require_same, rows
from tests.table_formats.logs import changed_commit, not_yet_made, with_deletion_vectors
from zskip.errors import ForeignTable, SchemaError, TableNotFound, UnsupportedFormat
from zskip.table_formats import deletion_vectors

ROWS = pa.table({"id": pa.array(range(9), pa.int64())})


@pytest.mark.parametrize("folder", ["a b", "100%", "a#b", "a+b", "ü"])
def test_paths_of_the_log_are_decoded_once(folder: str, tmp_path: Path) -> None:
    values = [
        "a b", "%20", "%2520", "ü", "+", "#", "a/b", "a%2Fb", "?", "x=y", "'", '"', "..", "\\", "%", "日", "*", ":",
    ]  # fmt: skip
    made = pa.table({"id": pa.array(range(len(values)), pa.int64()), "part": values})
    path = tmp_path / folder
    write_deltalake(path, made, partition_by=["part"])
    predicates = ["part = '" + value.replace("'", "''") + "'" for value in values]
    theirs = pa.table(DeltaTable(path).scan())
    require_same(zskip.open(path), theirs, predicates)
    require_same(zskip.open(DeltaTable(path)), theirs)
    zskip.cluster(path, by=["id"], files=1)
    assert rows(pa.table(DeltaTable(path).scan())) == rows(theirs)
    require_same(zskip.open(path), theirs, predicates[:4])


def test_a_delta_table_object_stays_at_its_version_when_the_log_is_cleaned(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for _ in range(3):
        write_deltalake(path, ROWS, mode="append")
    older = DeltaTable(path)
    for _ in range(3):
        write_deltalake(path, ROWS, mode="append")
    DeltaTable(path).create_checkpoint()
    for version in range(5):
        (path / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(TableNotFound, match="no version 2"):
        zskip.open(older)


def test_a_folder_that_deltalake_looks_for_elsewhere_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", ROWS)
    (tmp_path / "t").rename(tmp_path / "a%20b")
    with pytest.raises(UnsupportedFormat, match=r'"%20" in .*/a%20b .*Rename the folder'):
        zskip.open(tmp_path / "a%20b")


def test_a_metadata_file_in_a_statement_is_its_table(catalog: Catalog, tmp_path: Path) -> None:
    """It was read as a file of JSON."""
    table = catalog.create_table("n.t", schema=ROWS.schema)
    table.append(ROWS)
    before = table.metadata_location
    table.delete("id < 4")
    for address, count in ((table.metadata_location, 5), (before, 9)):
        for name in (address, address.removeprefix("file://")):
            assert zskip.sql(f"SELECT count(*) FROM '{name}'").fetchall() == [(count,)]
    (tmp_path / "other.metadata.json").write_text('{"a": 1}')
    assert zskip.sql(f"SELECT a FROM '{tmp_path}/other.metadata.json'").fetchall() == [(1,)]


def test_a_column_without_a_name_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"": [1], "b": [2]}))
    with pytest.raises(SchemaError, match="no name"):
        zskip.open(tmp_path / "t")


def test_nothing_is_written_into_a_folder_with_a_side_car(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", ROWS)
    zskip.attach(tmp_path / "t")
    for mode in ("error", "append", "overwrite"):
        with pytest.raises(ForeignTable, match="Delta"):
            zskip.write(ROWS, tmp_path / "t", by=["id"], mode=mode)
    with pytest.raises(ForeignTable, match=r"zskip\.open"):
        zskip.index(tmp_path / "t")
    assert zskip.open(tmp_path / "t").plan().count() == 9


def test_deletion_vectors_by_an_absolute_path_are_applied(tmp_path: Path) -> None:
    """They were refused in a commit that came after the first opening."""
    table = tmp_path / "t"
    commits = with_deletion_vectors(table)
    for commit in commits:
        with changed_commit(commit) as actions:
            vectors = [action.get(kind, {}).get("deletionVector") for action in actions for kind in ("add", "remove")]
            for vector in filter(None, vectors):
                name = uuid.UUID(bytes=deletion_vectors._z85(vector["pathOrInlineDv"][-20:])[:16])
                vector |= {"storageType": "p", "pathOrInlineDv": f"file://{table}/deletion_vector_{name}.bin"}
    with not_yet_made(commits[6:], tmp_path):
        zskip.open(table)
    theirs = pa.table(DeltaTable(table).scan())
    assert len(theirs) == 35
    require_same(zskip.open(table), theirs)
