"""The whole life of a table on every kind of store, and the stores on which a table must not live."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests.clouds import STORES, Place
from zskip.engines.duckdb import remote_files
from zskip.engines.duckdb.remote_files import KnownFile, _Ends, _RangedFile
from zskip.errors import DamagedIndex, InvalidOption, TableNotFound, UnsupportedStore
from zskip.inspect.audit import doctor
from zskip.storage import open_storage
from zskip.storage.remote import ObjectStorage
from zskip.tablelog import log

Store = tuple[str, dict[str, Any] | None]


@pytest.fixture(params=["file", "memory", *STORES])
def store(request: pytest.FixtureRequest, started: Callable[[str], Place], tmp_path: Path) -> Store:
    if request.param in STORES:
        url, options = started(request.param)
        return f"{url}/{tmp_path.name}", options
    return (tmp_path.as_uri() if request.param == "file" else f"memory://{tmp_path.name}"), None


@pytest.fixture
def server(started: Callable[[str], Place]) -> Place:
    return started("s3")


def rows_of(start: int, count: int) -> pa.Table:
    numbers = np.arange(start, start + count)
    return pa.table({"id": numbers, "a": (numbers * 7919) % 1000, "day": (numbers % 2).astype(str)})


def test_a_table_lives_its_whole_life(store: Store) -> None:
    place, options = store
    url = f"{place}/t"
    with pytest.raises(TableNotFound):
        zskip.open(url, storage_options=options)
    table = zskip.write(rows_of(0, 3000), url, by=["a"], partition_by="day", rows_per_file=250, storage_options=options)
    for number in range(4):
        table.append(rows_of(3000 + 100 * number, 100))
    assert table.delete("id < 10").rows == 10
    done = table.optimize(full=True)
    assert done.files_rewritten > 0
    assert table.optimize().files_rewritten == 0
    expected = rows_of(10, 3390).filter(pa.compute.field("a") == 7)
    plan = table.plan("a = 7")
    assert 0 < len(plan.paths) < done.files_after  # type: ignore[operator]
    assert sorted(plan.to_arrow().column("id").to_pylist()) == expected.column("id").to_pylist()
    with duckdb.connect() as con:
        assert plan.to_duckdb(con).aggregate("count(*)").fetchall() == [(len(expected),)]
        count = zskip.sql("SELECT count(*) FROM t WHERE a = 7", con, tables={"t": table})
        assert count.fetchall() == [(len(expected),)]
    assert table.verify(["a = 7"]).clean
    assert table.clustering()["a"].skipped > 0.5
    assert table.advise(["a = 7"]).candidates
    assert zskip.advise(url, ["a = 7"], storage_options=options).candidates
    assert [entry.operation for entry in table.history()] == ["optimize", "delete", *["append"] * 4, "write"]
    assert zskip.open(url, version=1, storage_options=options).plan().count() == 3000
    fifth = next(entry for entry in table.history() if entry.version == 5)
    assert zskip.open(url, as_of=fifth.time, storage_options=options).plan().count() == 3400
    table.restore(1)
    assert table.plan().count() == 3000
    assert zskip.repair(url, storage_options=options).parts == ()
    assert table.vacuum("0 days", dry_run=True).versions == tuple(range(1, 8))
    assert len(table.vacuum("0 days").paths) > 0
    assert zskip.open(url, storage_options=options).plan("a = 7").count() == table.plan("a = 7").count()
    assert table.overwrite(rows_of(0, 50)).rows == table.plan().count() == 50
    again = zskip.write(url, f"{place}/copy", by=["a"], storage_options=options)
    assert again.plan().count() == 50
    assert doctor(url, storage_options=options).files >= 50 / 250


def test_a_folder_of_others_is_indexed_and_followed(store: Store) -> None:
    place, options = store
    storage = open_storage(f"{place}/raw", options)
    for number in range(3):
        with storage.open_writer(f"{number}.parquet") as file:
            pq.write_table(rows_of(100 * number, 100), file)
    table = zskip.index(f"{place}/raw", storage_options=options)
    assert table.plan("id = 150").count() == 1
    with storage.open_writer("1.parquet") as file:
        pq.write_table(rows_of(900, 100), file)
    assert table.plan("id = 950").count() == 1
    table.refresh()
    assert table.plan("id = 950").skipped.files.part == 2
    with pytest.raises(InvalidOption, match="only indexes"):
        table.append(rows_of(0, 1))


def test_one_address_on_two_servers_is_two_tables(started: Callable[[str], Place]) -> None:
    """What a connection knows of one server's files is not asked about another's."""
    url, options = started("gs")
    with STORES["gs"]() as (same_url, others), duckdb.connect() as con:
        assert same_url == url
        tables = []
        for first, leading in ((0, options), (1000, others)):
            with open_storage(f"{url}/twice", leading).open_writer("a.parquet") as file:
                pq.write_table(rows_of(first, 100), file)
            tables.append(zskip.index(f"{url}/twice", storage_options=leading))
        for first, table in ((0, tables[0]), (1000, tables[1]), (0, tables[0])):
            found = zskip.sql("SELECT min(id) FROM t WHERE a >= 0", con, tables={"t": table})
            assert found.fetchall() == [(first,)]
            assert table.plan("a >= 0").to_duckdb(con).aggregate("min(id)").fetchall() == [(first,)]


def test_a_store_that_cannot_create_only_if_absent_is_read_but_not_written(server: Place) -> None:
    url, options = server
    zskip.write(rows_of(0, 100), f"{url}/guarded", by="a", storage_options=options)
    unguarded = {**options, "aws_conditional_put": "disabled"}
    before = open_storage(f"{url}/guarded", options).list("").path.to_pylist()
    table = zskip.open(f"{url}/guarded", storage_options=unguarded)
    assert table.plan("a = 919").count() == 1
    with pytest.raises(UnsupportedStore, match="only if it is absent"):
        table.append(rows_of(100, 10))
    with pytest.raises(UnsupportedStore):
        zskip.write(rows_of(0, 100), f"{url}/new", by="a", storage_options=unguarded)
    assert open_storage(f"{url}/guarded", options).list("").path.to_pylist() == before
    assert len(open_storage(f"{url}/new", options).list("")) == 0


@pytest.mark.parametrize(
    "url",
    [
        *("https://host/t", "ftp://host/t", "hdfs://host/t", "gs://", "az://"),
        *("file://host/t", "file:///t#1", "file:///t?x", "file:/t", "s3:/bucket/t", "file:///a%00b", "a\0b"),
        "memory://bucket/two\nlines",
    ],
)
def test_other_stores_are_refused_by_name(url: str) -> None:
    with pytest.raises(InvalidOption):
        zskip.open(url)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("gs://bucket/lake/t", {"skip_signature": "true"}),
        ("az://container/lake/t", {"account_name": "a", "access_key": "a2V5"}),
    ],
)
def test_clouds_are_opened_by_their_schemes(url: str, options: dict[str, Any]) -> None:
    """No cloud is asked: an address becomes a store with the same paths on it."""
    storage = open_storage(url, options)
    assert isinstance(storage, ObjectStorage)
    assert storage.uri_of("a/b.parquet") == f"{url}/a/b.parquet"


def test_opening_costs_two_reads_and_one_listing(
    server: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """However many versions there are: the hint, the log from there on, and the newest entry."""
    place, options = server
    url = f"{place}/{tmp_path.name}/many"
    table = zskip.write(rows_of(0, 10), url, by="a", storage_options=options)
    for number in range(12):
        table.append(rows_of(10 * number, 10))
    counted: list[str] = []
    for name in ("list", "get", "get_range", "head"):
        real = getattr(obstore, name)

        def count(*args: Any, real: Any = real, name: str = name, **options: Any) -> Any:
            counted.append(name)
            return real(*args, **options)

        monkeypatch.setattr(obstore, name, count)
    assert zskip.open(url, storage_options=options).version == 13
    assert sorted(counted) == ["get_range", "get_range", "list"]
    counted.clear()
    assert zskip.open(url, version=13, storage_options=options).version == 13
    assert counted == ["get_range"]


@pytest.mark.usefixtures("parts_in_files")
def test_a_reader_whose_version_was_vacuumed_is_told_to_open_the_table_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, options = store
    # These files are so small that they would be kept whole.
    monkeypatch.setattr(remote_files, "_LARGEST_END", 0)
    table = zskip.write(rows_of(0, 1000), url, by="id", files=4, storage_options=options)
    old = zskip.open(url, storage_options=options)
    plan, fresh = old.plan("a < 500"), zskip.open(url, storage_options=options)
    con = duckdb.connect()
    begun = plan.to_batches()
    first = next(begun)
    table.overwrite(rows_of(0, 10))
    assert plan.to_arrow().num_rows == 500, "nothing was removed yet"
    table.vacuum("0 days")
    again = re.escape(f'zskip.open("{table.uri}")')
    reads: list[Callable[[], object]] = [
        plan.to_arrow,
        lambda: list(plan.to_batches()),
        plan.count,
        lambda: plan.to_duckdb(con).fetchall(),
        lambda: zskip.sql("SELECT sum(id) FROM t WHERE a < 500", con, tables={"t": old}).fetchall(),
    ]
    for read in reads:
        # A lazy relation of a store's files is read when DuckDB likes, and so are the files missed.
        with pytest.raises((TableNotFound, duckdb.Error), match=again):
            read()
    with pytest.raises(DamagedIndex, match="open it again"):
        fresh.plan("a < 500")
    with suppress(TableNotFound):  # what was open may be read to its end
        assert first.num_rows + sum(batch.num_rows for batch in begun) == 500


def test_a_file_of_someone_else_that_goes_between_plan_and_reading_is_named(tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(rows_of(100 * number, 100), tmp_path / f"{number}.parquet")
    plan = zskip.index(tmp_path).plan("a < 500")
    (tmp_path / "1.parquet").unlink()
    with pytest.raises(TableNotFound, match=r"1 of the 3 files.*1\.parquet.*refresh"):
        plan.to_arrow()


@pytest.mark.parametrize("name", ["a b", "50%20", "a#b?c", "ü 日本", ".hidden", "it's [1]*"])
def test_a_name_is_a_name_as_a_path_as_a_url_and_in_a_statement(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    zskip.write(rows_of(0, 100), folder.as_uri(), by="id", files=2)
    assert [found.name for found in tmp_path.iterdir()] == [name]
    escaped = str(folder).replace("'", "''")
    assert zskip.sql(f"SELECT count(*) FROM '{escaped}' WHERE id < 7", duckdb.connect()).fetchall() == [(7,)]
    assert zskip.open(folder).append(rows_of(100, 1)).rows == 1


def test_two_threads_that_share_a_file_each_read_where_they_seek(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage("memory://two-threads")
    storage.put("x", bytes(range(100)))
    file = _RangedFile(storage, "x", KnownFile(100, None), _Ends())
    under_way, moved, ask = threading.Event(), threading.Event(), storage.read_range

    def slow(path: str, start: int, length: int) -> bytes:
        if threading.current_thread() is not threading.main_thread():
            under_way.set()
            assert moved.wait(10)
        return ask(path, start, length)

    monkeypatch.setattr(storage, "read_range", slow)
    found: list[bytes] = []
    other = threading.Thread(target=lambda: found.append((file.seek(10), file.read(5))[1]))
    other.start()
    assert under_way.wait(10)
    file.seek(50)
    moved.set()
    other.join()
    assert (file.read(5), found) == (bytes(range(50, 55)), [bytes(range(10, 15))])


def test_the_end_of_a_file_is_asked_for_once_while_it_is_the_same_file(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, data, ends = open_storage("memory://ends"), bytes(range(100)), _Ends()
    storage.put("x", data)
    asked: list[tuple[int, int]] = []
    ask = storage.read_range
    monkeypatch.setattr(
        storage, "read_range", lambda path, start, length: (asked.append((start, length)), ask(path, start, length))[1]
    )

    def read(known: KnownFile, start: int, length: int) -> bytes:
        file = _RangedFile(storage, "x", known, ends)
        file.seek(start)
        return file.read(length)

    for start, length in [(92, 8), (80, 12), (20, 10), (85, 10), (99, 1), (92, 8), (20, 10)]:
        assert read(KnownFile(100, 7), start, length) == data[start : start + length]
    assert asked == [(92, 8), (80, 12), (20, 10), (20, 10)]
    storage.put("x", data[::-1])
    assert read(KnownFile(100, 8), 92, 8) == data[7::-1]
    # Nothing tells a file without a time from the one that takes its place.
    assert [read(KnownFile(100, None), 92, 8) for _ in range(2)] == [data[7::-1]] * 2
    assert len(asked) == 7
    for number in range(40):
        ends.keep(("y", KnownFile(1 << 20, number)), 0, bytes(1 << 20))
    assert sum(map(len, ends._kept.values())) == ends._kept.currsize == 1 << 25


def test_commits_that_come_faster_than_a_store_replaces_an_object_do_not_wait_for_the_hint(
    started: Callable[[str], Place], tmp_path: Path
) -> None:
    bucket, options = started("gs")
    url = f"{bucket}/{tmp_path.name}"
    table = zskip.write(rows_of(0, 20), url, by="id", files=1, storage_options=options)
    behind = []
    for number in range(1, 11):
        table.append(rows_of(1000 * number, 1))
        behind.append((log.hinted(table.storage) or 0) < table.version)
    assert any(behind), "each commit waited until the hint could be replaced"
    found = zskip.open(url, storage_options=options)
    assert (found.version, found.to_arrow().num_rows) == (11, 30)
    time.sleep(1.1)
    table.append(rows_of(0, 1))
    assert log.hinted(table.storage) == 12


def test_a_copy_between_disk_and_stores(server: Place, tmp_path: Path) -> None:
    """The options are those of the end that is in a store; `target_options` are the table's, where both are."""
    url, options = server
    rows = rows_of(0, 300)
    zskip.write(rows, f"{url}/{tmp_path.name}/source", by=["a"], storage_options=options)
    down = zskip.write(f"{url}/{tmp_path.name}/source", tmp_path / "down", by=["a"], storage_options=options)
    up = zskip.write(tmp_path / "down", f"{url}/{tmp_path.name}/up", by=["a"], storage_options=options)
    other = zskip.write(
        f"{url}/{tmp_path.name}/source",
        f"memory://{tmp_path.name}-copy",
        by=["a"],
        storage_options=options,
        target_options={},
    )
    for copy in (down, up, other):
        assert copy.plan().to_arrow().sort_by("id").equals(rows)
    with pytest.raises(InvalidOption, match="is a local path"):
        zskip.write(rows, tmp_path / "local", by=["a"], storage_options=options)
