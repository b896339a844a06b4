"""What once raised an error of Python's or of another library's: now one of zskip's own, which names the thing."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import zskip
from zskip.errors import (
    CommitConflict,
    CorruptFile,
    FilesRemoved,
    ForeignTable,
    SchemaMismatch,
    TableError,
    TableNotFound,
)
from zskip.inspect.audit import doctor
from zskip.storage import open_storage

ROWS = pa.table({"a": range(100)})


def iceberg(folder: Path, metadata: bytes, name: str = "v1.metadata.json") -> Path:
    (folder / "metadata").mkdir(parents=True)
    (folder / "metadata" / name).write_bytes(metadata)
    pq.write_table(ROWS, folder / "x.parquet")
    return folder


@pytest.mark.parametrize("name", ["v1.metadata.json.gz", "version-hint.text", "v1.gz.metadata.json"])
@pytest.mark.parametrize("where", ["disk", "memory"])
def test_every_name_of_iceberg_metadata_is_known(name: str, where: str, tmp_path: Path) -> None:
    """Their deleted rows came back."""
    folder = iceberg(tmp_path / "t", gzip.compress(b"{}") if "gz" in name else b"1", name)
    place: Any = folder
    if where == "memory":
        place = f"memory://{tmp_path.name}/t"
        for path in folder.rglob("*.*"):
            open_storage(place).put(str(path.relative_to(folder)), path.read_bytes())
    with pytest.raises(ForeignTable, match="Iceberg"):
        zskip.index(place)
    with pytest.raises((ForeignTable, CorruptFile, TableNotFound)):
        zskip.write(place, tmp_path / "copy", by=["a"])


def test_a_version_hint_that_is_no_text_is_no_hint(tmp_path: Path) -> None:
    folder = iceberg(tmp_path / "t", b"{}")
    (folder / "metadata" / "version-hint.text").write_bytes(b"\xff\xfe")
    with pytest.raises(CorruptFile, match=r"v1\.metadata\.json"):
        zskip.open(folder)


def test_a_long_value_in_the_name_of_a_folder(tmp_path: Path) -> None:
    fits = zskip.write(pa.table({"p": ["x" * 253], "a": [1]}), tmp_path / "fits", by=["a"], partition_by=["p"])
    assert fits.plan("p > 'w'").count() == 1


def remove_temporaries(folder: Path) -> None:
    for path in folder.rglob("*.tmp"):
        path.unlink()


def test_a_writer_whose_file_was_vacuumed_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stood still for longer than the vacuum's time: a FileNotFoundError of a name that nobody knows."""
    storage = open_storage(tmp_path)
    file = storage.open_writer("part.parquet")
    file.write(b"x" * 100)
    remove_temporaries(tmp_path)
    with pytest.raises(FilesRemoved, match=r"part\.parquet was removed while it was written, by a vacuum"):
        file.close()
    link = os.link

    def stalled(source: str, target: str) -> None:
        remove_temporaries(tmp_path)
        link(source, target)

    monkeypatch.setattr(os, "link", stalled)
    with pytest.raises(FilesRemoved, match="entry was removed"):
        storage.put_if_absent("entry", b"x")
    assert not storage.exists("entry")


def replaced(path: Path) -> None:
    before = path.stat()
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000))


def removed(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("sql", ["a >= 0", "a BETWEEN 0 AND 99", None])
def test_a_count_is_of_what_a_read_finds(sql: str | None, tmp_path: Path) -> None:
    """A foreign file that was replaced after the plan was counted as it had been."""
    for name in ("x", "y"):
        pq.write_table(ROWS, tmp_path / f"{name}.parquet")
    plan = zskip.index(tmp_path).plan(sql)
    assert plan.count() == 200
    replaced(tmp_path / "x.parquet")
    assert plan.count() == plan.to_arrow().num_rows == 100


def test_a_count_of_a_file_that_is_gone_says_so(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "x.parquet")
    plan = zskip.index(tmp_path).plan("a >= 0")
    removed(tmp_path / "x.parquet")
    for read in (plan.count, plan.to_arrow):
        with pytest.raises(TableNotFound, match=r"x\.parquet"):
            read()


def test_an_optimize_of_a_file_that_is_gone_says_so(tmp_path: Path) -> None:
    """It said that the file is not a complete one of Parquet."""
    table = zskip.write(ROWS, tmp_path, by="a", files=2)
    removed(Path(table.plan().paths[0]))
    with pytest.raises(TableNotFound, match=r"part-000000-.*\.parquet.* is gone"):
        table.optimize(full=True)


@pytest.mark.parametrize("managed", [True, False])
def test_a_damaged_file_is_named_by_a_plans_reads(managed: bool, tmp_path: Path) -> None:
    """Errors of DuckDB's, which name no file."""
    rows = ROWS.append_column("s", pa.array([f"k{number % 7}" for number in range(100)]))
    if managed:
        table = zskip.write(rows, tmp_path / "t", by="a", files=4)
    else:
        (tmp_path / "t").mkdir()
        for number in range(4):
            pq.write_table(rows.slice(number * 25, 25), tmp_path / "t" / f"{number}.parquet")
        table = zskip.index(tmp_path / "t")
    planned = table.plan("a % 2 = 0")
    damaged = Path(planned.paths[2])
    whole = damaged.read_bytes()
    stamp = damaged.stat().st_mtime_ns
    damaged.write_bytes(whole[:4] + b"\xff" * 40 + whole[44:])
    os.utime(damaged, ns=(stamp, stamp))
    for read in (planned.to_arrow, planned.count, lambda: list(planned.to_batches())):
        with pytest.raises(CorruptFile, match=damaged.name):
            read()
    damaged.write_bytes(whole)
    assert table.plan("a % 2 = 0").count() == 50


@pytest.mark.parametrize(("cut", "kind"), [(None, TableNotFound), (100, CorruptFile)])
def test_a_bad_file_is_named_by_a_datasets_reads(cut: int | None, kind: type[Exception], tmp_path: Path) -> None:
    """FileNotFoundError and ArrowInvalid."""
    table = zskip.write(ROWS, tmp_path / "t", by="a", files=4)
    dataset, every = table.dataset(), pc.field("a") >= 0
    assert (dataset.count_rows(), dataset.head(3).num_rows, dataset.take([0, 99]).num_rows) == (100, 3, 2)
    assert sum(batch.num_rows for batch in dataset.to_batches(["a"], every)) == dataset.to_table().num_rows == 100
    for path in map(Path, table.plan().paths):
        if cut is None:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:cut])
    for filter in (None, every):
        reads: list[Callable[[], object]] = [
            lambda filter=filter: dataset.to_table(filter=filter),
            lambda filter=filter: list(dataset.to_batches(filter=filter)),
            lambda filter=filter: dataset.head(3, filter=filter),
            lambda filter=filter: dataset.take([0], filter=filter),
            lambda filter=filter: dataset.count_rows(filter=filter),
        ]
        for read in reads:
            with pytest.raises(kind, match=r"part-.*\.parquet"):
                read()


def test_a_column_chunk_of_another_name_than_its_columns(tmp_path: Path) -> None:
    """A KeyError of Python's."""
    source = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": range(100), "s": ["k"] * 100}), source)
    whole = source.read_bytes()
    chunk = b"\x19\x18\x01s"  # path_in_schema, a list of one text
    assert whole.count(chunk) == 1
    source.write_bytes(whole.replace(chunk, b"\x19\x18\x01c"))
    table = zskip.write(source, tmp_path / "t", by="a")
    assert table.plan("s = 'k'").count() == 100


@pytest.mark.parametrize("link", [False, True])
def test_a_file_in_place_of_a_folder_is_refused(link: bool, tmp_path: Path) -> None:
    """Errors of Python's: NotADirectoryError, and FileExistsError from a write."""
    path = tmp_path / "x.parquet"
    pq.write_table(ROWS, path)
    if link:
        (tmp_path / "link.parquet").symlink_to(path)
        path = tmp_path / "link.parquet"
    for attempt in (
        zskip.index,
        doctor,
        lambda at: zskip.write(ROWS, at, by="a"),
        lambda at: zskip.cluster(at, by="a"),
    ):
        with pytest.raises(TableError, match=r"\.parquet is not a folder, and a table is one"):
            attempt(path)
    assert pq.read_table(path).num_rows == 100


def test_a_delete_after_a_column_got_another_type_says_so(tmp_path: Path) -> None:
    """DuckDB's ConversionException, or another meaning of the same text."""
    table = zskip.write(ROWS, tmp_path / "t", by="a")
    zskip.open(tmp_path / "t").overwrite(pa.table({"a": ["x", "3"]}), by="a")
    with pytest.raises(
        CommitConflict, match='"a" is int64 in version 1, at which this object is, and string in version 2'
    ):
        table.delete("a = 3")
    assert zskip.open(tmp_path / "t").delete("a = '3'").rows == 1
    narrow = zskip.write(pa.table({"a": pa.array([1, 2], pa.int8())}), tmp_path / "n", by="a")
    zskip.open(tmp_path / "n").append(pa.table({"a": [1000]}))
    assert narrow.delete("a = 2").rows == 1


def test_a_far_timestamp_beside_nanoseconds_says_so(tmp_path: Path) -> None:
    """DuckDB's ConversionException."""
    far, near = (pa.table({"t": pa.array([value], pa.timestamp("us"))}) for value in (253_370_764_800_000_000, 0))
    pq.write_table(far, tmp_path / "1.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(near.cast(pa.schema([("t", pa.timestamp("ns"))])), tmp_path / "2.parquet")
    table = zskip.index(tmp_path)
    plan = table.plan("t >= TIMESTAMP '2021-01-01'")
    for read in (table.to_arrow, plan.to_arrow, plan.count):
        with pytest.raises(SchemaMismatch, match='"t" has nanoseconds'):
            read()


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_times_at_the_ends_of_years_stand_in_lists(unit: str, tmp_path: Path) -> None:
    """Python's times have no local ones beyond the years 1 to 9999."""
    rows = pa.table({"n": [1, 2, 3], "t": pa.array([0, 1, None]).cast(pa.timestamp(unit, "Asia/Tokyo"))})
    table = zskip.write(rows, tmp_path / "t", by="n", files=3)
    ends = "TIMESTAMPTZ '9999-12-31 23:59:59+00', TIMESTAMPTZ '0001-01-01 00:00:00+00'"
    assert table.plan(f"t IN ({ends}, TIMESTAMPTZ '1970-01-01 00:00:00+00')").to_arrow()["n"].to_pylist() == [1]
    assert len(table.plan(f"t NOT IN ({ends})").to_arrow()) == 2


READS: dict[str, Callable[[zskip.Table], object]] = {
    "to_arrow": lambda table: table.plan(MISSPELT).to_arrow(),
    "to_duckdb": lambda table: table.plan(MISSPELT).to_duckdb(),
    "count": lambda table: table.plan(MISSPELT).count(),
    "delete": lambda table: table.delete(MISSPELT),
}
MISSPELT = "lowr(s) = 'a'"


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_misspelt_function_is_underlined_in_the_predicate(
    read: Callable[[zskip.Table], object], tmp_path: Path
) -> None:
    """And zskip's own SQL, with its parameters, is not shown."""
    table = zskip.write(pa.table({"s": ["a", "b"]}), tmp_path / "t", by="s")
    with pytest.raises(duckdb.CatalogException, match="name lowr does not exist") as caught:
        read(table)
    assert "  lowr(s) = 'a'\n  ^^^^" in str(caught.value)
    assert "read_parquet" not in str(caught.value)
    assert 'Did you mean "lower"?' in table.plan(MISSPELT).explain()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"a": ["text"]}, 'The column "a" has types without a common type: int64 in {others}, and string in 7.parquet'),
        ({"A": [1]}, 'A column is named "a" in {others} and "A" in 7.parquet'),
    ],
)
def test_a_file_that_does_not_fit_is_named(rows: dict[str, Any], message: str, tmp_path: Path) -> None:
    for number in range(20):
        pq.write_table(pa.table({"a": [number]}), tmp_path / f"{number}.parquet")
    table = zskip.index(tmp_path)
    pq.write_table(pa.table(rows), tmp_path / "7.parquet")
    with pytest.raises(SchemaMismatch, match=re.escape(message.format(others="the table"))):
        table.refresh()
    shutil.rmtree(tmp_path / "_zskip")
    with pytest.raises(SchemaMismatch, match=re.escape(message.format(others="0.parquet"))):
        zskip.index(tmp_path)


def test_an_interrupt_of_duckdb_is_a_keyboard_interrupt(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"a": np.arange(2_000_000) % 100}), tmp_path / "t", by="a", files=2)
    child = f"""
import os, signal, threading, zskip
table = zskip.open({str(tmp_path / "t")!r})
threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    table.delete("list_sum(range(100 + a)) < 0")
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, timeout=60)
    assert done.stdout == "interrupted\n", done.stderr
    assert zskip.open(tmp_path / "t").version == table.version
