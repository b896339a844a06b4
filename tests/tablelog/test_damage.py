"""Every byte of every file of a side-car, flipped, and every length that it may be cut to: an error, no wrong answer.

All reading of parts goes through `PartFile`, so each byte is tried there; the log is read as a table's opening does.
"""

from __future__ import annotations

import io
import json
import math
import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests.tables import signed_entry
from zskip.core.schema import Schema
from zskip.errors import DamagedIndex, TableNotFound, UnsupportedFormat, ZskipError
from zskip.storage import Staged, open_storage
from zskip.tablelog import log, shards
from zskip.tablelog.parts import Drafts, InlinePart, Part, read_part
from zskip.tablelog.shards import ShardReader
from zskip.tablelog.snapshot import fields_of, from_bytes


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
    table = zskip.write(rows, "memory://damage/t", by=["a", "s", "f"], files=60, row_group_rows=100)
    table.append(rows.slice(0, 300))
    table.delete("a = 7")
    return table


def parts(table: zskip.Table) -> list[Part]:
    snapshot = table._index.snapshot
    assert len(snapshot.parts) >= 2
    assert any(isinstance(shard.file_part, InlinePart) for shard in snapshot.shards)
    return snapshot.parts


def places(size: int, most: int) -> list[int]:
    """So many places of a longer file, spread over it, its ends among them."""
    return np.unique(np.linspace(0, size - 1, min(size, most)).astype(int)).tolist()


def flipped(whole: bytes, most: int) -> Iterator[tuple[int, bytes]]:
    for place in places(len(whole), most):
        yield place, whole[:place] + bytes([whole[place] ^ (1 << place % 8)]) + whole[place + 1 :]


def cut_short(whole: bytes, most: int) -> Iterator[tuple[int, bytes]]:
    for length in places(len(whole), most):
        yield length, whole[:length]


Harm = Callable[[bytes, int], Iterator[tuple[int, bytes]]]
HARMS = [
    (flipped, 200),
    *(pytest.param(harm, 40_000, marks=pytest.mark.slow) for harm in (flipped, cut_short)),
]


@pytest.mark.parametrize(("harm", "most"), HARMS)
def test_every_byte_of_every_part_is_checked(table: zskip.Table, harm: Harm, most: int) -> None:
    storage = table._index.storage
    for part in parts(table):
        whole = storage.read(part.path)
        for place, damaged in harm(whole, most):
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


@pytest.mark.parametrize(("harm", "most"), HARMS)
def test_every_byte_of_the_log_is_checked(table: zskip.Table, harm: Harm, most: int) -> None:
    storage, right = table._index.storage, table._index.snapshot
    for path in (log.entry_path(right.version), log.HINT):
        whole = storage.read(path)
        for place, damaged in harm(whole, most):
            storage.put(path, damaged)
            try:
                found = log.load(storage)
            except (DamagedIndex, UnsupportedFormat, TableNotFound):
                continue
            # a hint is no authority; an entry may say the same in another way, such as a digest in capitals
            assert found == right, f"{path}, {harm.__name__} at {place}, was read as something else"
        storage.delete([path])
        if path == log.HINT:
            assert log.load(storage) == right
        else:
            with pytest.raises(DamagedIndex):
                log.load(storage)
        storage.put(path, whole)
    assert log.load(storage) == right


def everything(table: zskip.Table) -> tuple[object, ...]:
    """All that the side-car says, and some plans."""
    opened = zskip.open(table.uri)
    found = opened._index.data_files()
    counts = [opened.plan(where).skipped for where in ("a = 500", "s LIKE 'host-1%' AND f < 0.1", "f > 2")]
    return opened._index.snapshot, found.path, found.files, found.row_groups, found.first_row_group.tolist(), counts


def test_damage_anywhere_never_changes_what_a_table_says(table: zskip.Table) -> None:
    storage, right = table._index.storage, everything(table)
    for path in storage.list("_zskip").path.to_pylist():
        whole = storage.read(path)
        tried = [damaged for harm in (flipped, cut_short) for _, damaged in harm(whole, 100)]
        for damaged in tried[:: max(1, len(tried) // 4)]:
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


def test_a_part_without_the_sizes_that_its_snapshot_adds_up_is_damage(
    table: zskip.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, columns = zskip.open(table.uri)._index, ShardReader.columns
    monkeypatch.setattr(
        ShardReader,
        "columns",
        lambda reader, names: columns(reader, names) | {"size": pa.nulls(reader._rows, pa.int64())},
    )
    with pytest.raises(DamagedIndex, match='adds up to None in "size"'):
        index.sizes(np.arange(len(index)))


# --- a log entry with a right checksum whose layout nobody could have written: named, and no row is lost ---


ROWS = pa.table({"n": range(64), "s": [f"k{number % 8}" for number in range(64)], "p": ["a", "b"] * 32})
MORE = pa.table({"n": [7], "s": ["k9"], "p": ["b"]})
HOSTILE = (None, True, -1, 0, 10**9, 10**30, 1.5, math.nan, "x", [], {}, [None, "x", -3, 10**12])
ABSENT = object()
Place = tuple[str | int, ...]


def fields_in(form: Any, here: Place = ()) -> Iterator[Place]:
    """Every field, and of every list its first and last item."""
    keys = (
        list(form) if isinstance(form, dict) else sorted({0, len(form) - 1}) if isinstance(form, list) and form else []
    )
    for key in keys:
        yield (*here, key)
        yield from fields_in(form[key], (*here, key))


def changed(form: Any, place: Place, value: object) -> Any:
    form = inner = deepcopy(form)
    for key in place[:-1]:
        inner = inner[key]
    if value is ABSENT:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return form


def signed(snapshot: Any) -> bytes:
    return signed_entry(json.dumps(snapshot).encode())


def written(folder: Path) -> Any:
    """A table with a full file, two small ones that an optimize merges, and a layout of three columns."""
    table = zskip.write(ROWS, folder, by=["n", "s"], partition_by="p", files=6, weights=[2, 1], workload=["n = 3"])
    table.append(MORE)
    table.append(MORE)
    found = json.loads((folder / log.entry_path(3)).read_bytes())["snapshot"]
    return fields_of(json.dumps(found).encode())


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Of a table whose statistics are in files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "INLINE_BYTES", 0)
        return written(tmp_path_factory.mktemp("entry"))


def is_refused(folder: Path, entry: Any) -> bool:
    """Whether any verb refuses this entry. What is refused leaves no file; no row is lost or doubled."""
    (folder / log.entry_path(3)).write_bytes(signed(entry))
    rows, refused = 66, False
    try:
        table = zskip.open(folder)
        assert table.plan("n >= 0").count() == rows
    except ZskipError:
        return True
    for change in (lambda: table.append(MORE), table.optimize, lambda: table.optimize(full=True)):
        files = sorted(folder.rglob("*.parquet"))
        try:
            done = change()
            rows += getattr(done, "rows", 0)
        except ZskipError:
            refused = True
            assert sorted(folder.rglob("*.parquet")) == files
    try:
        newest = zskip.open(folder)
        assert newest.plan("n >= 0").count() == newest.to_arrow().num_rows == rows
    except (DamagedIndex, TableNotFound):  # the latter if the entry names a file that is not there
        return True
    return refused


def check_all(folder: Path, every: int) -> None:
    """Every n-th change of the entry: one field has another value, or none."""
    entry = written(folder / "whole")
    changes = [(place, value) for place in fields_in(entry) for value in (*HOSTILE, ABSENT)][::every]
    # An entry without one of its shards is that of a smaller table.
    changes = [(place, value) for place, value in changes if not (value is ABSENT and place[:-1] == ("shards",))]
    refused = 0
    for place, value in changes:
        shutil.copytree(folder / "whole", folder / "copy")
        try:
            refused += is_refused(folder / "copy", changed(entry, place, value))
        except Exception as error:
            raise AssertionError(f"{'.'.join(map(str, place))} = {value!r}"[:300]) from error
        shutil.rmtree(folder / "copy")
    assert refused > len(changes) // 2


SHARD = ("shards", 0)


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [
        (("version",), "1", "version is not of the kind int"),
        (("shards",), [{}], "row_group_part"),
        (("shards",), "x" * 10, "shards is not of the kind list"),
        (("schema",), "!", "base64"),
        (("time",), "yesterday", "isoformat"),
        (("layout",), {"name": 3}, "name is not of the kind str"),
        (("managed",), 1, "managed is not of the kind bool"),
        # sizes that would fill the memory
        ((*SHARD, "files"), 1 << 31, "no shard holds"),
        ((*SHARD, "files"), 1 << 61, "no shard holds"),
        ((*SHARD, "files"), -1, "no table holds"),
        ((*SHARD, "row_groups"), 1 << 31, "no shard holds"),
        ((*SHARD, "rows"), 1 << 62, "no table holds"),
        ((*SHARD, "bytes"), True, "bytes is not of the kind int"),
    ],
)
def test_nonsense_under_a_right_checksum_is_damage(place: Place, value: object, why: str, entry: Any) -> None:
    """By its own check: the totals, which differ as well, are compared after all others."""
    with pytest.raises(DamagedIndex, match=why):
        from_bytes(signed(changed(entry, place, value)), "entry")


def test_too_many_shards_and_brackets_are_damage(entry: Any) -> None:
    shard = entry["shards"][0]
    parts = [shard["file_part"] | {"path": f"_zskip/stats/{number}.stats"} for number in range(300)]
    large = [shard | {"files": 1 << 20, "file_part": part} for part in parts]
    for many, why in (
        (signed(entry | {"shards": [shard] * 20_000}), "a part is named twice"),
        (signed(entry | {"shards": large}), "no table holds"),
        (signed_entry(b"[" * 100_000), "recursion"),
    ):
        with pytest.raises(DamagedIndex, match=why):
            from_bytes(many, "entry")


def test_some_malformed_entries_are_refused(tmp_path: Path) -> None:
    check_all(tmp_path, 661)


@pytest.mark.slow
def test_many_malformed_entries_are_refused(tmp_path: Path) -> None:
    check_all(tmp_path, 7)


@pytest.mark.filterwarnings("error")
def test_an_append_by_a_malformed_layout_names_the_version(tmp_path: Path) -> None:
    entry = written(tmp_path)
    for place, value in (
        (("options", "fitted_rows_per_file"), 0),
        (("options", "by"), 5),
        (("options", "row_group_rows"), "many"),
        (("options", "workload"), [5]),
    ):
        (tmp_path / log.entry_path(3)).write_bytes(signed(changed(entry, ("layout", *place), value)))
        table = zskip.open(tmp_path)
        with pytest.raises(DamagedIndex, match="Version 3 can be read, but not changed"):
            table.append(MORE)
        assert table.count() == 66


@pytest.mark.usefixtures("parts_in_files")
def test_totals_that_are_not_the_sums_are_named(tmp_path: Path) -> None:
    entry = written(tmp_path)
    path, first = tmp_path / log.entry_path(3), entry["shards"][0]
    for total in ("files", "row_groups", "rows", "bytes"):
        of_table = changed(entry, ("totals", total), entry["totals"][total] + 1)
        path.write_bytes(signed(of_table))
        with pytest.raises(DamagedIndex, match=path.name):
            zskip.open(tmp_path)
        # Of the table and a shard alike: then the shard's part knows better, when it is read.
        path.write_bytes(signed(changed(of_table, ("shards", 0, total), first[total] + 1)))
        table = zskip.open(tmp_path)
        read = {"row_groups": lambda: table._index.row_groups(np.arange(2), [])}  # noqa: B023
        with pytest.raises(DamagedIndex, match=first["file_part"]["path"]):
            read.get(total, lambda: table.plan("n >= 0").skipped)()  # noqa: B023
