"""Every byte of every file of a side-car, flipped, and every length that it may be cut to: an error, no wrong answer.

All reading of parts goes through `PartFile`, so each byte is tried there; the log is read as a table's opening does.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from zskip import tablelog
from zskip.core.schema import Schema
from zskip.errors import DamagedIndex, TableNotFound, UnsupportedFormat
from zskip.storage import Staged, open_storage
from zskip.tablelog import log
from zskip.tablelog.parts import Drafts, InlinePart, Part, read_part
from zskip.tablelog.shards import ShardReader

MOST = 40_000
"""Of a longer file, so many places are tried, spread over it, its ends among them."""


@pytest.fixture(scope="module")
def table() -> zskip.Table:
    """A table with every kind of side-car file: shards with row groups, an inline part, three versions, a hint."""
    dice = np.random.default_rng(3)
    rows = pa.table(
        {
            "a": dice.integers(0, 1000, 12_000),
            "s": [f"host-{n}" for n in dice.integers(0, 500, 12_000)],
            "f": dice.random(12_000),
        }
    )
    table = zskip.write(rows, "memory://damage/t", by=["a", "s", "f"], files=120, row_group_rows=60)
    table.append(rows.slice(0, 300))
    table.delete("a = 7")
    return table


def parts(table: zskip.Table) -> list[Part]:
    snapshot = table.snapshot
    assert len(snapshot.parts) >= 2
    assert any(isinstance(shard.file_part, InlinePart) for shard in snapshot.shards)
    return snapshot.parts


def places(size: int) -> list[int]:
    return np.unique(np.linspace(0, size - 1, min(size, MOST)).astype(int)).tolist()


def flipped(whole: bytes) -> Iterator[tuple[int, bytes]]:
    for place in places(len(whole)):
        yield place, whole[:place] + bytes([whole[place] ^ (1 << place % 8)]) + whole[place + 1 :]


def cut_short(whole: bytes) -> Iterator[tuple[int, bytes]]:
    for length in places(len(whole)):
        yield length, whole[:length]


Harm = Callable[[bytes], Iterator[tuple[int, bytes]]]


@pytest.mark.parametrize("harm", [flipped, cut_short])
def test_every_byte_of_every_part_is_checked(table: zskip.Table, harm: Harm) -> None:
    storage = table.storage
    for part in parts(table):
        whole = storage.read(part.path)
        for place, damaged in harm(whole):
            storage.put(part.path, damaged)
            try:
                read_part(storage, part)
            except DamagedIndex as error:
                message = str(error)
            else:
                message = "nothing"
            assert part.path in message, f"{part.path}, {harm.__name__} at {place}: {message}"
        storage.delete([part.path])
        with pytest.raises(DamagedIndex, match=part.path):
            read_part(storage, part)
        storage.put(part.path, whole)
        assert read_part(storage, part) == whole


@pytest.mark.parametrize("harm", [flipped, cut_short])
def test_every_byte_of_the_log_is_checked(table: zskip.Table, harm: Harm) -> None:
    storage, right = table.storage, table.snapshot
    for path in (log.entry_path(right.version), log.HINT):
        whole = storage.read(path)
        for place, damaged in harm(whole):
            storage.put(path, damaged)
            try:
                found = tablelog.load(storage)
            except (DamagedIndex, UnsupportedFormat, TableNotFound):
                continue
            # a hint is no authority; an entry may say the same in another way, such as a digest in capitals
            assert found == right, f"{path}, {harm.__name__} at {place}, was read as something else"
        storage.delete([path])
        if path == log.HINT:
            assert tablelog.load(storage) == right
        else:
            with pytest.raises(DamagedIndex):
                tablelog.load(storage)
        storage.put(path, whole)
    assert tablelog.load(storage) == right


def everything(table: zskip.Table) -> tuple[object, ...]:
    """All that the side-car says, and some plans."""
    opened = zskip.open(table.uri)
    found = opened.index.data_files()
    counts = [opened.plan(where).skipped for where in ("a = 500", "s LIKE 'host-1%' AND f < 0.1", "f > 2")]
    return opened.snapshot, found.path, found.files, found.row_groups, found.first_row_group.tolist(), counts


def test_damage_anywhere_never_changes_what_a_table_says(table: zskip.Table) -> None:
    storage, right = table.storage, everything(table)
    for path in storage.list("_zskip").path.to_pylist():
        whole = storage.read(path)
        tried = [damaged for harm in (flipped, cut_short) for _, damaged in harm(whole)]
        for damaged in tried[:: max(1, len(tried) // 8)]:
            storage.put(path, damaged)
            try:
                found = everything(table)
            except (DamagedIndex, UnsupportedFormat, TableNotFound):
                continue
            assert found == right, f"{path} was damaged, and what was read is not what was written"
        storage.put(path, whole)
    assert everything(table) == right


@pytest.mark.parametrize(
    ("name", "values", "held"),
    [("path", [1], "int64"), ("id", [b"x"], "binary"), ("a.null_count", ["x"], "string"), ("size", [0.5], "double")],
)
def test_a_signed_part_with_a_column_of_another_type_is_damage(
    tmp_path: Path, name: str, values: list[object], held: str
) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"row_count": [1], name: values}), sink, use_dictionary=False)
    storage = open_storage(str(tmp_path))
    part = Drafts(storage, Staged(storage.delete)).publish("stats", ".stats", sink.getvalue())
    reader = ShardReader(storage, part, 1, Schema(pa.schema({"a": pa.int64()})))
    assert reader.row_count().to_pylist() == [1]
    with pytest.raises(DamagedIndex, match=f'holds {held} in "{name}", not'):
        reader.columns([name])
