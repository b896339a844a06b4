"""Paths that would lead out of a table: in a shard, in the name of a hive folder, behind a link. None is followed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from zskip import tablelog
from zskip.errors import UnsafePath
from zskip.storage import Staged
from zskip.tablelog import log
from zskip.tablelog.parts import Drafts
from zskip.tablelog.shards import write_shards
from zskip.tablelog.snapshot import to_bytes

HOSTILE = [
    "../outside.parquet",
    "/etc/passwd",
    "a/../../outside.parquet",
    "..\\outside.parquet",
    "C:\\x.parquet",
    "a\x00b",
]


@pytest.mark.parametrize("path", HOSTILE)
def test_a_shard_that_names_a_file_outside_is_refused(path: str, tmp_path: Path) -> None:
    """Its checksums are right: whoever made it meant it."""
    (tmp_path / "outside.parquet").write_bytes(b"secret")
    table = zskip.write(pa.table({"a": [1, 2]}), tmp_path / "t", by="a")
    storage, snapshot = table.storage, table.snapshot
    files = replace(table.index.data_files(), path=pa.array([path]))
    shards = write_shards(Drafts(storage, Staged(storage.delete)), files, snapshot.schema, 2)
    storage.put(log.entry_path(2), to_bytes(replace(snapshot, version=2, parent=1, shards=shards)))
    forged = zskip.open(table.uri)
    assert forged.version == 2
    for read in (
        lambda: forged.plan("a = 1").paths,
        lambda: forged.to_arrow(),
        lambda: forged.optimize(full=True),
        lambda: forged.delete("a = 1"),
        lambda: forged.vacuum("0 days"),
    ):
        with pytest.raises(UnsafePath):
            read()
    assert (tmp_path / "outside.parquet").read_bytes() == b"secret"


@pytest.mark.parametrize("value", ["..", "../../outside", "/etc", ".", "a/b", "a\\..\\b", "%2e%2e%2f", "_zskip"])
def test_a_partition_value_stays_inside_and_comes_back(value: str, tmp_path: Path) -> None:
    rows = pa.table({"a": [1, 2], "day": [value, "other"]})
    table = zskip.write(rows, tmp_path / "lake" / "t", by="a", partition_by="day")
    assert sorted(table.to_arrow().column("day").to_pylist()) == sorted([value, "other"])
    everything = {path.resolve() for path in tmp_path.rglob("*") if path.is_file()}
    assert all(path.is_relative_to(tmp_path / "lake" / "t") for path in everything)
    assert len(table.plan("day = 'other'").paths) == 1


def test_a_hive_folder_that_is_a_link_to_the_outside_is_refused(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"a": [1, 2], "day": ["0", "1"]}), tmp_path / "t", by="a", partition_by="day")
    (tmp_path / "t" / "day=0").rename(tmp_path / "elsewhere")
    (tmp_path / "t" / "day=0").symlink_to(tmp_path / "elsewhere")
    again = zskip.open(table.uri)
    with pytest.raises(UnsafePath):
        again.to_arrow()
    with pytest.raises(UnsafePath):
        tablelog.vacuum(again.storage)
    assert len(np.unique(again.plan("day = '1'").paths)) == 1


@pytest.mark.parametrize("links", [{"loop": "."}, {"a/up": ".."}, {"a/l": "b", "b/l": "a"}, {"a/1": "a", "a/2": "a"}])
def test_links_that_lead_round_in_a_circle_are_refused(links: dict[str, str], tmp_path: Path) -> None:
    """Each file was listed forty times, and then the system's own error came through."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        pq.write_table(pa.table({"a": [1]}), tmp_path / folder / "1.parquet")
    for link, target in links.items():
        (tmp_path / link).symlink_to((tmp_path / target).resolve() if target in "ab" else target)
    with pytest.raises(UnsafePath, match="a link to a folder above it"):
        zskip.index(tmp_path)


def test_a_link_to_a_folder_beside_it_is_followed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a" / "1.parquet")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert zskip.index(tmp_path).count() == 2
