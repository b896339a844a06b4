"""Catalogs of Iceberg and logs of Delta, as the tests make and change them, and what their own readers find."""

from __future__ import annotations

import base64
import json
import shutil
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table as IcebergTable
from pyroaring import BitMap64

import zskip
from tests import ROOT

_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_BASE_85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
"""The digits of Delta, and those of Python, for the same values."""


def new_catalog(folder: Path, name: str = "c") -> Catalog:
    """A catalog in memory, with the namespace ``n``, whose tables are in the folder."""
    catalog = load_catalog(name, type="in-memory", warehouse=f"file://{folder}")
    catalog.create_namespace("n")
    return catalog


class Delta:
    """A Delta table as its own library has it; one commit for each of the first tables of rows."""

    def __init__(self, folder: Path, *first: pa.Table, partition_by: list[str] | None = None) -> None:
        self.path = folder / "t"
        for rows in first:
            write_deltalake(self.path, rows, mode="append", partition_by=partition_by)

    def given(self) -> Path:
        """What zskip's functions are called with, as of now."""
        return self.path

    def open(self) -> zskip.Table:
        return zskip.open(self.path)

    def cluster(self, **options: Any) -> zskip.Optimized:
        return zskip.cluster(self.path, **options)

    def append(self, rows: pa.Table) -> None:
        write_deltalake(self.path, rows, mode="append")

    def delete(self, where: str) -> None:
        DeltaTable(self.path).delete(where)

    def content(self) -> pa.Table:
        return pa.table(DeltaTable(self.path).scan())

    def version(self) -> int:
        return DeltaTable(self.path).version()

    def files(self) -> set[str]:
        return set(DeltaTable(self.path).file_uris())

    def files_with(self, column: str, value: int) -> int:
        """How many files may have this value, by the statistics that other readers use."""
        read = pa.table(DeltaTable(self.path).get_add_actions(flatten=True))
        bounds = zip(read[f"min.{column}"].to_pylist(), read[f"max.{column}"].to_pylist(), strict=True)
        return sum(lower <= value <= upper for lower, upper in bounds)


class Iceberg:
    """An Iceberg table in a catalog of its own, with the same methods.

    A catalog in memory has its tables for one thread alone; ``catalog``: one that any thread may ask.
    """

    def __init__(self, folder: Path, *first: pa.Table, version: int = 2, catalog: Catalog | None = None) -> None:
        self.catalog = catalog or new_catalog(folder)
        self.path = folder / "n" / "t"
        self.create(*first, version=version)

    def create(self, *first: pa.Table, version: int = 2) -> None:
        table = self.catalog.create_table("n.t", first[0].schema, properties={"format-version": str(version)})
        for rows in first:
            table.append(rows)

    def given(self) -> IcebergTable:
        return self.catalog.load_table("n.t")

    def open(self) -> zskip.Table:
        return zskip.open(self.given())

    def cluster(self, **options: Any) -> zskip.Optimized:
        return zskip.cluster(self.given(), **options)

    def append(self, rows: pa.Table) -> None:
        self.given().append(rows)

    def delete(self, where: str) -> None:
        self.given().delete(where)

    def content(self) -> pa.Table:
        return self.given().scan().to_arrow()

    def version(self) -> int:
        return self.given().metadata.current_snapshot_id or 0

    def files(self) -> set[str]:
        return {task.file.file_path for task in self.given().scan().plan_files()}

    def files_with(self, column: str, value: int) -> int:
        return len(list(self.given().scan(row_filter=f"{column} = {value}").plan_files()))


@contextmanager
def changed_commit(commit: Path) -> Iterator[list[dict[str, Any]]]:
    """The actions of a commit of Delta; what the block leaves of them is written back."""
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    yield actions
    commit.write_text("\n".join(map(json.dumps, actions)))


def commit_of(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020}.json"


def first_commit(table: Path) -> Path:
    return commit_of(table, 0)


def delete_rows(table: Path, rows: Sequence[int], version: int = 0) -> None:
    """Give each file that a commit of Delta adds a deletion vector."""
    with changed_commit(first_commit(table)) as actions:
        features = {name: ["deletionVectors"] for name in ("readerFeatures", "writerFeatures")}
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
        next(action for action in actions if "protocol" in action)["protocol"] = protocol
    with changed_commit(commit_of(table, version)) as actions:
        for add in (action["add"] for action in actions if "add" in action):
            add["deletionVector"] = inline_vector(rows)


def inline_vector(rows: Sequence[int]) -> dict[str, object]:
    data = struct.pack("<i", 1681511377) + BitMap64(rows).serialize()
    text = base64.b85encode(data + b"\0" * (-len(data) % 4))
    inline = text.translate(bytes.maketrans(_BASE_85, _Z85)).decode()
    return {"storageType": "i", "pathOrInlineDv": inline, "sizeInBytes": len(data), "cardinality": len(rows)}


@contextmanager
def not_yet_made(commits: Sequence[Path], aside: Path) -> Iterator[None]:
    """A table of Delta as it was before these commits."""
    for commit in commits:
        commit.rename(aside / commit.name)
    yield
    for commit in commits:
        (aside / commit.name).rename(commit)


def with_deletion_vectors(table: Path) -> list[Path]:
    """Make a Delta table whose deletion vectors are in files, without a checkpoint; its commits."""
    shutil.copytree(ROOT / "fixtures" / "delta" / "dv-partitioned-with-checkpoint", table)
    log = table / "_delta_log"
    (log / "_last_checkpoint").unlink()
    (log / f"{10:020}.checkpoint.parquet").unlink()
    return sorted(log.glob("*.json"))


# --- what a table is asked, and the same of the format's own reader: rows, counts and predicates ---


def rows(table: pa.Table) -> list[str]:
    """The rows in no order, as texts; NaN and -0.0 as they are written."""
    with connection(table=table) as con:
        found = con.sql('SELECT CAST("table" AS VARCHAR) AS text FROM "table" ORDER BY text')
        texts: list[str] = found.to_arrow_table()["text"].to_pylist()
    return texts


@contextmanager
def connection(**tables: pa.Table) -> Iterator[duckdb.DuckDBPyConnection]:
    """One connection for all, since a new one takes 30 ms; the tables are its own until the end."""
    con = _connection()
    for name, table in tables.items():
        con.register(name, table)
    yield con
    for name in tables:
        con.unregister(name)


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    return con


def as_ours(theirs: pa.Table, ours: pa.Table) -> pa.Table:
    """The other reader's rows with our columns' order and types."""
    fields = [pa.field(field.name, field.type) for field in ours.schema]
    return theirs.select(ours.column_names).cast(pa.schema(fields))


def require_same(opened: zskip.Table, theirs: pa.Table, predicates: list[str] | tuple[str, ...] = ()) -> None:
    """All rows, their count, and the rows and count of each predicate are those of the other reader."""
    plan = opened.plan()
    ours = plan.to_arrow()
    theirs = as_ours(theirs, ours)
    assert rows(ours) == rows(theirs)
    assert plan.count() == len(theirs)
    with connection(theirs=theirs) as con:
        for predicate in predicates:
            wanted = con.sql(f"SELECT * FROM theirs WHERE {predicate}").to_arrow_table().cast(theirs.schema)
            found = opened.plan(predicate)
            assert rows(found.to_arrow()) == rows(wanted), predicate
            assert found.count() == len(wanted), predicate
