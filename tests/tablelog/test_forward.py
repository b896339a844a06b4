"""Entries of other versions of the format: format 1 is moved, what a newer zskip wrote is never dropped."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests.tables import signed_entry
from zskip.errors import DamagedIndex, FilesRemoved, TableNotFound, UnsupportedFormat
from zskip.storage import Staged, open_storage
from zskip.tablelog import commit, log, runs
from zskip.tablelog.index import Index
from zskip.tablelog.parts import Drafts
from zskip.tablelog.snapshot import fields_of, from_bytes, to_bytes

GOLDEN = Path(__file__).parents[2] / "fixtures" / "golden" / "format-1"


def rows(first: int, count: int = 10) -> pa.Table:
    return pa.table({"id": list(range(first, first + count))})


def rewritten(entry: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """A valid entry whose snapshot was changed."""
    found = json.loads(entry)
    snapshot = fields_of(json.dumps(found["snapshot"]).encode())
    change(snapshot)
    body = json.dumps(snapshot, separators=(",", ":")).encode()
    return signed_entry(body, found["zskip"])


@pytest.fixture
def table(tmp_path: Path) -> zskip.Table:
    made = zskip.write(rows(0), tmp_path / "t", by=["id"])
    made.append(rows(10))
    return made


def alter(table: zskip.Table, change: Callable[[dict[str, Any]], object]) -> None:
    path = log.entry_path(2)
    table._index.storage.put(path, rewritten(table._index.storage.read(path), change))


UNKNOWN: list[Callable[[dict[str, Any]], object]] = [
    lambda json: json.update(row_ids=7),
    lambda json: json["shards"][0].update(bloom="x"),
    lambda json: json["shards"][0]["file_part"].update(key="x"),
    lambda json: json["layout"].update(seed=1),
]


@pytest.mark.parametrize("change", UNKNOWN)
def test_a_table_with_unknown_fields_is_read_and_not_changed(
    table: zskip.Table, change: Callable[[dict[str, Any]], object]
) -> None:
    alter(table, change)
    again = zskip.open(table.uri)
    assert sorted(again.to_arrow()["id"].to_pylist()) == list(range(20))
    before = set(table._index.storage.list("").path.to_pylist())
    for verb in (
        lambda: again.append(rows(20)),
        lambda: again.delete("id = 3"),
        lambda: again.restore(1),
        lambda: again.vacuum("0 days"),
    ):
        with pytest.raises(UnsupportedFormat, match="newer zskip"):
            verb()
    assert set(table._index.storage.list("").path.to_pylist()) == before


def test_a_table_that_requires_an_unknown_feature_is_not_read(table: zskip.Table) -> None:
    alter(table, lambda json: json.update(requires=["row groups in rings"]))
    with pytest.raises(UnsupportedFormat, match="requires row groups in rings"):
        zskip.open(table.uri)


def test_a_table_of_format_1_moves_with_its_first_commit(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path / "t")
    table = zskip.open(tmp_path / "t")
    assert (table.version, table._index.snapshot.format) == (2, 1)
    count = table.plan().count()
    extra = table.to_arrow().slice(0, 5)
    for version in (3, 4):
        assert table.append(extra).version == version
    folder = tmp_path / "t" / log.LOG
    # A zskip that knows only format 1 finds version 3, and refuses it.
    assert b'{"zskip":3' in (folder / f"{3:020}.json").read_bytes()
    assert (tmp_path / "t" / log.entry_path(4)).exists()
    assert not (folder / f"{4:020}.json").exists()
    assert [entry.version for entry in table.history()] == [4, 3, 2, 1]
    done = table.vacuum("0 days")
    assert done.versions == (1, 2, 3)
    again = zskip.open(tmp_path / "t")
    assert [entry.version for entry in again.history()] == [5, 4]
    assert again.plan().count() == count + 10
    for version in (1, 2, 3):
        with pytest.raises(TableNotFound, match="holds 4 to 5"):
            zskip.open(tmp_path / "t", version=version)


def test_an_entry_of_the_last_year_can_be_followed(table: zskip.Table) -> None:
    newest = log.load(table._index.storage)
    for time in (datetime.max.replace(tzinfo=UTC), datetime.now(UTC) + timedelta(days=1)):
        table._index.storage.put(log.entry_path(2), to_bytes(replace(newest, time=time)))
        made = commit.commit(table._index.storage, log.load(table._index.storage), commit.TableUpdate("append"))
        assert made.time >= time
        table._index.storage.delete([log.entry_path(3), log.HINT])


def test_a_schema_that_is_nested_too_deeply_is_damage(table: zskip.Table) -> None:
    deep = pa.int64()
    for _ in range(200):
        deep = pa.list_(deep)
    schema = base64.b64encode(pa.schema({"id": deep}).serialize().to_pybytes()).decode()
    entry = rewritten(table._index.storage.read(log.entry_path(2)), lambda json: json.update(schema=schema))
    with pytest.raises(DamagedIndex, match="holds what no snapshot does"):
        from_bytes(entry, "the entry")


def test_an_entry_whose_fields_cannot_be_decompressed_is_damage(table: zskip.Table) -> None:
    packed = json.loads(table._index.storage.read(log.entry_path(2)))["snapshot"]["gzip"]
    whole = base64.b64decode(packed)
    # Bit 3 of the flags announces a file name, which then takes the place of the data.
    for data in (b"", whole[:-9], whole[:3] + b"\x08" + whole[4:], b"no gzip", gzip.compress(b"[1]")):
        body = json.dumps({"commit_id": "0" * 32, "gzip": base64.b64encode(data).decode()}).encode()
        with pytest.raises(DamagedIndex, match="holds what no snapshot does"):
            from_bytes(signed_entry(body, 3), "the entry")
    body = json.dumps({"commit_id": "0" * 32, "gzip": packed}).encode()
    assert from_bytes(signed_entry(body, 3), "the entry").version == 2


@pytest.mark.usefixtures("parts_in_files")
def test_a_part_that_names_a_file_by_null_is_damage(tmp_path: Path) -> None:
    table = zskip.write(rows(0), tmp_path / "t", by=["id"])
    storage = open_storage(table.uri)
    shard = table._index.snapshot.shards[0]
    part = pq.read_table(io.BytesIO(storage.read(shard.file_part.path)))
    place = part.column_names.index("path")
    sink = io.BytesIO()
    pq.write_table(part.set_column(place, "path", pa.nulls(len(part), pa.string())), sink, use_dictionary=False)
    bad = replace(shard, file_part=Drafts(storage, Staged(storage.delete)).publish("stats", ".stats", sink.getvalue()))
    storage.put(log.entry_path(1), to_bytes(replace(table._index.snapshot, shards=(bad,))))
    with pytest.raises(DamagedIndex, match=re.escape(bad.file_part.path)):
        zskip.open(table.uri).plan("id = 3").paths  # noqa: B018  # the plan may be lazy


@pytest.mark.usefixtures("parts_in_files")
def test_a_change_whose_base_is_vacuumed_says_so(tmp_path: Path) -> None:
    table = zskip.write(rows(0), tmp_path / "t", by=["id"])
    base = table._index.snapshot
    table.overwrite(rows(50))
    zskip.open(table.uri).vacuum("0 days")
    with pytest.raises(FilesRemoved, match="expired"):
        commit.commit(table._index.storage, base, commit.TableUpdate("append"))
    with (
        pytest.raises(FilesRemoved, match="a vacuum removed files"),
        runs.naming_vacuums(table._index.storage, base),
    ):
        Index(table._index.storage, base).shard_paths(0)
