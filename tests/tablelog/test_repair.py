"""Repair: every part of the side-car, flipped, cut short or removed, is noticed by name and made again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import zskip
from zskip.cli.main import main
from zskip.core.receipts import Repaired
from zskip.errors import DamagedIndex
from zskip.storage import Storage, open_storage
from zskip.tablelog import log, shards
from zskip.tablelog.parts import Part

pytestmark = pytest.mark.usefixtures("parts_in_files")

QUERIES = ("a = 7", "a > 590", "f > 1.5", "f <> 0.5", "s LIKE 'k1%'", "a IS NULL", "day = '1' AND a < 100", "late = 3")


def rows_of(start: int, count: int, *, nan: bool = False) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {
            "a": pa.array([None if n % 50 == 0 else n for n in numbers], pa.int64()),
            "f": [float("nan") if nan and n % 10 == 0 else n % 7 / 2 for n in numbers],
            "s": [f"k{n % 300}" for n in numbers],
            "day": [str(n % 3) for n in numbers],
        }
    )


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partitioned table of several shards and versions, with an added column and files that hold NaN."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "INLINE_BYTES", 0)
        path = tmp_path_factory.mktemp("kept") / "t"
        options: dict[str, Any] = {"by": ["a", "s"], "partition_by": "day", "rows_per_file": 100, "row_group_rows": 25}
        table = zskip.write(rows_of(0, 600), path, **options)
        table.append(rows_of(600, 60, nan=True))
        table.append(rows_of(660, 90).append_column("late", pa.array([3] * 90, pa.int64())))
        table.delete("a = 5")
    return path


@pytest.fixture
def table(kept: Path, tmp_path: Path) -> zskip.Table:
    return zskip.open(shutil.copytree(kept, tmp_path / "t"))


def answers(table: zskip.Table) -> list[list[str]]:
    return [sorted(map(str, table.plan(query).to_arrow().to_pylist())) for query in QUERIES]


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


HARMS: dict[str, Callable[[bytes], bytes | None]] = {
    "flipped": flip,
    "cut short": lambda data: data[: len(data) // 2],
    "removed": lambda _: None,
}


def harm(storage: Storage, path: str, how: str) -> None:
    data = HARMS[how](storage.read(path))
    if data is None:
        storage.delete([path])
    else:
        storage.put(path, data)


@pytest.mark.parametrize(
    ("place", "how", "every"),
    [
        ("local", "flipped", 2),
        pytest.param("local", "cut short", 1, marks=pytest.mark.slow),
        pytest.param("local", "removed", 1, marks=pytest.mark.slow),
        pytest.param("memory", "flipped", 1, marks=pytest.mark.slow),
    ],
)
def test_every_part_is_made_again(place: str, how: str, every: int, table: zskip.Table) -> None:
    if place == "memory":
        files = {path: table._index.storage.read(path) for path in table._index.storage.list("").path.to_pylist()}
        storage = open_storage(f"memory:/{table.uri}")
        for path, data in files.items():
            storage.put(path, data)
        table = zskip.open(f"memory:/{table.uri}")
    url, right, before, storage = table.uri, answers(table), table.version, table._index.storage
    skipped = [table.plan(query).skipped.files.part for query in QUERIES]
    parts = storage.list("_zskip/stats").path.to_pylist()
    repaired = 0
    for path in parts[::every]:
        whole = storage.read(path)
        harm(storage, path, how)
        done = zskip.repair(url)
        if done.parts:
            assert done.parts == (path,)
            again = zskip.open(url)
            assert answers(again) == right
            assert again._index.snapshot.totals == table._index.snapshot.totals
            assert again.history(1)[0].operation == "repair"
            # NaN counts of one append are lost; whatever holds none is skipped as before
            assert [again.plan(query).skipped.files.part for query in QUERIES[4:]] == skipped[4:]
            assert again.verify([QUERIES[2]]).clean
            repaired += 1
            storage.delete([log.entry_path(again.version)])
            storage.put(log.HINT, b"%d" % before)
        storage.put(path, whole)
    assert repaired >= 4
    assert zskip.repair(url).parts == ()


def test_damage_is_named_with_what_helps(table: zskip.Table) -> None:
    part = table._index.snapshot.shards[0].file_part.path
    harm(table._index.storage, part, "flipped")
    with pytest.raises(DamagedIndex, match=f"{part}.*--repair"):
        zskip.open(table.uri).plan("a = 500")


def test_two_lost_parts_and_an_orphan_that_is_told_apart(table: zskip.Table) -> None:
    """Files of an older version lie there too; the ones that were lost are told by number, bytes, rows and bounds."""
    right = answers(table)
    for shard in table._index.snapshot.shards[:2]:
        harm(table._index.storage, shard.file_part.path, "removed")
    done = zskip.repair(table.uri)
    assert len(done.parts) == 2
    assert answers(zskip.open(table.uri)) == right


def test_names_that_cannot_be_told_are_not_guessed(tmp_path: Path) -> None:
    table = zskip.write(rows_of(0, 400), tmp_path / "t", by=["a"], files=4)
    victim = Path(table.plan().paths[0])
    harm(table._index.storage, table._index.snapshot.shards[0].file_part.path, "removed")
    moved = victim.read_bytes()
    victim.unlink()
    with pytest.raises(DamagedIndex, match="cannot be told"):
        zskip.repair(table.uri)
    # a file of as many bytes, with other rows, is no substitute
    other = zskip.write(rows_of(5000, 400), tmp_path / "other", by=["a"], files=4)
    (tmp_path / "t" / "part-000000-0123456789abcdef.parquet").write_bytes(Path(other.plan().paths[0]).read_bytes())
    with pytest.raises(DamagedIndex):
        zskip.repair(table.uri)
    (tmp_path / "t" / "part-000000-0123456789abcdef.parquet").unlink()
    victim.write_bytes(moved)
    assert zskip.repair(table.uri).version == 2
    assert zskip.open(table.uri).to_arrow().num_rows == 400


@pytest.mark.parametrize("how", ["flipped", "removed", pytest.param("cut short", marks=pytest.mark.slow)])
def test_a_lost_newest_entry_is_given_up_only_when_told_to(how: str, table: zskip.Table) -> None:
    older = answers(zskip.open(table.uri, version=3))
    harm(table._index.storage, log.entry_path(4), how)
    for attempt in (zskip.open, zskip.repair):
        with pytest.raises(DamagedIndex, match="go_back=True"):
            attempt(table.uri)
    assert zskip.repair(table.uri, go_back=True).went_back_to == 3
    again = zskip.open(table.uri)
    assert (again.version, again.history()[0].operation) == (5, "repair")
    assert answers(again) == older
    again.append(rows_of(9000, 10))
    assert again.version == 6
    assert zskip.repair(table.uri) == Repaired(6, (), None)
    assert [entry.version for entry in again.history()] == [6, 5, 3, 2, 1]


def test_nothing_is_repaired_where_no_entry_can_be_read(tmp_path: Path) -> None:
    table = zskip.write(rows_of(0, 100), tmp_path / "t", by=["a"])
    harm(table._index.storage, log.entry_path(1), "cut short")
    with pytest.raises(DamagedIndex, match="No entry"):
        zskip.repair(table.uri, go_back=True)


def test_an_indexed_folder_is_taken_in_as_it_is_now(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    for number in range(4):
        pq.write_table(rows_of(100 * number, 100), tmp_path / f"{number}.parquet", row_group_size=10)
    table = zskip.index(tmp_path)
    for part in ("file_part", "row_group_part"):
        harm(table._index.storage, getattr(zskip.open(tmp_path)._index.snapshot.shards[-1], part).path, "flipped")
        pq.write_table(rows_of(100, 50), tmp_path / "1.parquet", row_group_size=10)
        assert len(zskip.repair(tmp_path).parts) == 1
        again = zskip.open(tmp_path)
        assert again._index.snapshot.totals.rows == 350
        assert again.plan("a = 7").count() == 1


def test_the_command_line_repairs(table: zskip.Table, capsys: pytest.CaptureFixture[str]) -> None:
    part = table._index.snapshot.shards[0].file_part.path
    harm(table._index.storage, part, "removed")
    assert main(["plan", table.uri, "a = 500"]) == 1
    assert "--repair" in capsys.readouterr().err
    assert main(["index", table.uri, "--repair", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parts"] == [part]
    assert main(["plan", table.uri, "a = 7"]) == 0
    assert main(["index", table.uri, "--go-back"]) == 2


def test_older_versions_with_a_part_that_was_made_again_let_a_vacuum_go_on(tmp_path: Path) -> None:
    table = zskip.write(rows_of(0, 600), tmp_path, by=["a"], files=6)
    (shard,) = table._index.snapshot.shards
    assert isinstance(shard.file_part, Part)
    (tmp_path / shard.file_part.path).write_bytes(b"damaged")
    with pytest.raises(DamagedIndex):
        table.vacuum()
    zskip.repair(tmp_path)
    before = sorted(path.name for path in tmp_path.glob("*.parquet"))
    zskip.open(tmp_path).vacuum()
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == before
    assert zskip.open(tmp_path).plan().count() == 600
    assert zskip.open(tmp_path).tend() is not None


def test_a_damaged_part_of_older_versions_names_what_helps(tmp_path: Path) -> None:
    table = zskip.write(rows_of(0, 600), tmp_path, by=["a"], files=6)
    (shard,) = table._index.snapshot.shards
    table.overwrite(rows_of(0, 300))
    assert isinstance(shard.file_part, Part)
    (tmp_path / shard.file_part.path).write_bytes(b"damaged")
    assert zskip.repair(tmp_path).parts == ()
    with pytest.raises(DamagedIndex, match=r"only older versions name .* shorter older_than="):
        zskip.open(tmp_path).vacuum()
    assert zskip.open(tmp_path).vacuum("0 seconds").versions
    assert zskip.open(tmp_path).vacuum().versions == ()
    assert zskip.open(tmp_path).plan().count() == 300
