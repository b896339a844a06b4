"""Damaged, cut and missing files of a log: an error of zskip, or the rows that the library reads."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import StaticTable

import zskip
from tests import one_in
from tests.table_formats.logs import as_ours, new_catalog, not_yet_made, rows, with_deletion_vectors
from tests.table_formats.test_iceberg import (
    commit_delete_files,
    commit_deletes,
    delete_parquet,
    puffin,
    table_of_two_files,
)
from zskip.errors import CorruptFile, InvalidOption, TableError, TableNotFound, UnsupportedFormat, ZskipError


def delta_table(folder: Path) -> Path:
    data = pa.table(
        {"id": pa.array(range(20), pa.int64()), "text": [f"t{i}" for i in range(20)], "day": ["a", "b"] * 10}
    )
    for first in range(4):
        write_deltalake(folder, data.slice(first, 5), partition_by=["day"], mode="append")
    DeltaTable(folder).create_checkpoint()
    write_deltalake(folder, data.slice(7, 3), mode="append")
    DeltaTable(folder).delete("id = 3")
    return folder


def iceberg_table(folder: Path) -> Path:
    catalog = new_catalog(folder)
    table, files = table_of_two_files(catalog)
    path = delete_parquet(table, {files[0]: [0, 5], files[1]: [10]})
    commit_deletes(table, path, DataFileContent.POSITION_DELETES, FileFormat.PARQUET, 3)
    table = catalog.load_table("n.t")
    commit_delete_files(table, puffin(table, {files[1]: [1, 2, 3, 50]}))
    catalog.load_table("n.t").append(pa.table({"id": [500], "text": ["y"]}))
    return folder / "n" / "t"


def delta_rows(folder: Path) -> pa.Table:
    return pa.table(DeltaTable(folder).scan())


def iceberg_rows(folder: Path) -> pa.Table:
    newest = max((folder / "metadata").glob("*.metadata.json"))
    return StaticTable.from_metadata(f"file://{newest}").scan().to_arrow()


def log_files(folder: Path) -> list[Path]:
    log = folder / ("_delta_log" if (folder / "_delta_log").is_dir() else "metadata")
    deletes = [path for path in folder.glob("data/*") if path.name.startswith(("deletes", "vector"))]
    return sorted(path for path in [*log.iterdir(), *deletes] if path.is_file())


# --- damage ---


def flipped(random_: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random_.choice([1, 1, 3])):
        changed[random_.randrange(len(data))] ^= 1 << random_.randrange(8)
    return bytes(changed)


def garbled(random_: random.Random, data: bytes) -> bytes:
    size, at = random_.randrange(1, 30), random_.randrange(len(data))
    return data[:at] + random_.randbytes(size) + data[at + size :]


def cut(random_: random.Random, data: bytes) -> bytes:
    return data[: random_.randrange(len(data))]


def retyped(random_: random.Random, data: bytes) -> bytes:
    """A document of JSON with one value of another type, or without it; something short in place of other files."""
    try:
        documents = [json.loads(line) for line in data.splitlines()]
    except ValueError:
        return random_.choice([b"{}", b"[]", b"null", b"1\n", b"\xff"])
    spots = list(places(documents))
    holder, key = random_.choice(spots)
    value = random_.choice([None, -1, 10**30, "x", [], {}, True, 1.5])
    if value == -1 and isinstance(holder, dict):
        del holder[key]
    else:
        holder[key] = value
    return "\n".join(map(json.dumps, documents)).encode()


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield value, key
        yield from places(one)


DAMAGES: list[Callable[[random.Random, bytes], bytes | None]] = [
    flipped,
    flipped,
    garbled,
    cut,
    retyped,
    lambda _random, _data: b"",
    lambda _random, _data: None,
]


def outcomes(
    table: Path, read: Callable[[Path], pa.Table], cache: Path, count: int, seed: int, *, followed: bool
) -> Counter[str]:
    """How often a damaged table is refused, and how often its rows are those of its library.

    ``followed``: it was opened before its newest commit, so that this commit alone is read.
    """
    random_ = random.Random(seed)
    undamaged = read(table)
    kept = table.with_name("kept")
    shutil.copytree(table, kept)
    found: Counter[str] = Counter()
    for _ in range(count):
        for folder in (table, cache):
            shutil.rmtree(folder)
        cache.mkdir()
        shutil.copytree(kept, table)
        files = log_files(table)
        newest = max(path for path in files if path.suffix == ".json")
        if followed:
            aside = newest.rename(cache / newest.name)
            zskip.open(table)
            aside.rename(newest)
        path = newest if followed and random_.random() < 0.7 else random_.choice(files)
        changed = random_.choice(DAMAGES)(random_, path.read_bytes())
        path.unlink()
        if changed is not None:
            path.write_bytes(changed)
        try:
            ours = zskip.open(table).plan().to_arrow()
        except ZskipError:
            found["refused"] += 1
            continue
        try:
            theirs = read(table)
        except Exception:  # of any library; some of them read statistics that no predicate asks for
            found["read"] += 1
            continue
        # pyiceberg finds a deletion vector by the footer of its Puffin file, and loses it where that is damaged.
        right = [theirs, undamaged] if path.suffix == ".puffin" else [theirs]
        assert any(rows(ours) == rows(as_ours(one, ours)) for one in right), (path, changed)
        found["same"] += 1
    return found


FORMATS = {"delta": (delta_table, delta_rows), "iceberg": (iceberg_table, iceberg_rows)}
TABLES = pytest.mark.parametrize(("make", "read"), FORMATS.values(), ids=FORMATS)


@pytest.mark.parametrize(("format", "followed"), one_in(2, ["delta", "iceberg"], [False, True]))
def test_a_damaged_log_is_refused_or_read_right(
    format: str, followed: bool, tmp_path: Path, cache_folder: Path
) -> None:
    make, read = FORMATS[format]
    found = outcomes(make(tmp_path / "t"), read, cache_folder, 12, 7, followed=followed)
    assert found["refused"] > 1
    assert found["same"] > 1


@TABLES
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_many_damaged_logs(
    make: Callable[[Path], Path], read: Callable[[Path], pa.Table], seed: int, tmp_path: Path, cache_folder: Path
) -> None:
    outcomes(make(tmp_path / "t"), read, cache_folder, 200, seed, followed=seed % 2 == 1)


# --- messages ---


def test_an_error_names_the_file_of_iceberg(tmp_path: Path) -> None:
    table = iceberg_table(tmp_path)
    newest = StaticTable.from_metadata(f"file://{max((table / 'metadata').glob('*.json'))}")
    address = newest.metadata_location.removeprefix("file://")
    for name in ("*-m0.avro", "snap-*.avro", "00005-*.metadata.json", "../data/vector*.puffin"):
        whole = {path: path.read_bytes() for path in (table / "metadata").glob(name)}
        for error in (CorruptFile, TableNotFound):
            for path, data in whole.items():
                path.write_bytes(data[:40])
                if error is TableNotFound:
                    path.unlink()
            with pytest.raises(error, match=rf"(?s){name.rpartition('*')[2]}.*Restore it"):
                zskip.open(address)
        for path, data in whole.items():
            path.write_bytes(data)


def test_an_error_names_the_file_of_delta(tmp_path: Path) -> None:
    log = delta_table(tmp_path / "t") / "_delta_log"
    for name in ("00000000000000000005.json", "00000000000000000003.checkpoint.parquet"):
        whole = (log / name).read_bytes()
        (log / name).write_bytes(whole[:50])
        with pytest.raises(CorruptFile, match=f"{name}.*Restore it"):
            zskip.open(tmp_path / "t")
        (log / name).write_bytes(whole)


@pytest.mark.parametrize("followed", [False, True], ids=["first opening", "later commit"])
@pytest.mark.parametrize(("place", "bit"), [(-1, 1), (-5, 2)], ids=["checksum", "row number"])
def test_a_deletion_vector_is_compared_with_its_checksum(place: int, bit: int, followed: bool, tmp_path: Path) -> None:
    """Another row was deleted, where the vector came with a later commit."""
    table = tmp_path / "t"
    commits = with_deletion_vectors(table)
    if followed:
        with not_yet_made(commits[6:], tmp_path):
            zskip.open(table)
    for file in table.glob("deletion_vector_*.bin"):
        data = bytearray(file.read_bytes())
        data[place] ^= bit
        file.write_bytes(data)
    with pytest.raises(CorruptFile, match=r"deletion_vector_[-0-9a-f]{36}\.bin.*Restore it"):
        zskip.open(table)


def test_an_error_tells_what_the_log_of_delta_lacks(tmp_path: Path) -> None:
    table = delta_table(tmp_path / "t")
    (table / "_delta_log" / f"{4:020}.json").unlink()
    missing = "Gap between checkpoint version 3 and next commit 5"
    with pytest.raises(UnsupportedFormat, match=f"(?s){missing}.*restore what its log lacks"):
        zskip.open(table)


def test_a_moved_iceberg_table_names_the_file_outside(tmp_path: Path) -> None:
    moved = iceberg_table(tmp_path / "a").rename(tmp_path / "moved")
    with pytest.raises(UnsupportedFormat, match=r"(?s)snap-.*avro.*move it back"):
        zskip.open(moved)


# --- versions and times ---


def test_versions_that_are_not_there_and_of_another_kind(tmp_path: Path) -> None:
    others: list[Any] = [0.0, 1.5, float("nan"), True, False, np.True_, b"1", [1], object()]
    for table in (delta_table(tmp_path / "t"), iceberg_table(tmp_path)):
        for version in (-1, 99, 2**31, 10**30):
            with pytest.raises(TableNotFound, match=str(version)):
                zskip.open(table, version=version)
        for version in others:
            with pytest.raises(InvalidOption, match="A version is a whole number"):
                zskip.open(table, version=version)


def test_an_integer_of_numpy_is_a_version(tmp_path: Path) -> None:
    """It opened the newest one."""
    table = delta_table(tmp_path / "t")
    assert zskip.open(table, version=np.int64(0)).version == 0
    snapshot = max(zskip.open(iceberg_table(tmp_path)).version, 1)
    assert zskip.open(tmp_path / "n" / "t", version=np.int64(snapshot)).version == snapshot


def at(table: Path, moment: datetime) -> int:
    theirs = DeltaTable(table)
    theirs.load_as_version(moment)
    return theirs.version()


def test_times_from_the_first_commit_on_are_versions_of_delta(tmp_path: Path) -> None:
    table = delta_table(tmp_path / "t")
    made = [one["timestamp"] for one in DeltaTable(table).history()][::-1]
    for version, milliseconds in enumerate(made):
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
        assert zskip.open(table, as_of=moment).version == at(table, moment) >= version - 1
    (table / "_delta_log" / f"{0:020}.json").touch()  # later than the commit says of itself
    assert zskip.open(table, as_of=datetime.fromtimestamp(made[0] / 1000, UTC)).version == 0
    with pytest.raises(TableNotFound, match="no version as old"):
        zskip.open(table, as_of=datetime.fromtimestamp(made[0] / 1000, UTC) - timedelta(seconds=1))


def test_a_time_without_a_zone_is_in_utc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    table = iceberg_table(tmp_path)
    now = datetime.now(UTC).replace(tzinfo=None)
    with pytest.raises(TableError, match="no snapshot"):
        zskip.open(table, as_of=now - timedelta(hours=2))
    monkeypatch.undo()
    time.tzset()


@TABLES
def test_a_log_that_is_replaced_by_one_of_its_size_and_time_is_read_anew(
    make: Callable[[Path], Path], read: Callable[[Path], pa.Table], tmp_path: Path
) -> None:
    """The rows of the table that was there came from the index."""
    table = make(tmp_path / "a")
    before = zskip.open(table).count()
    newest = max(path for path in log_files(table) if path.suffix == ".json")
    status, data = newest.stat(), newest.read_bytes()
    newest.write_bytes(b" " * len(data))
    os.utime(newest, ns=(status.st_atime_ns, status.st_mtime_ns))
    if read is delta_rows:  # takes it for a commit without actions
        assert zskip.open(table).count() == len(read(table)) != before
    else:
        with pytest.raises(CorruptFile, match=newest.name):
            zskip.open(table)
    newest.write_bytes(data)
    assert zskip.open(table).count() == before
