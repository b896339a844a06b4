"""The whole life of a table on every kind of store, and the stores on which a table must not live."""

from __future__ import annotations

import pickle
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests import ROOT
from tests.clouds import STORES, Place
from zskip.engines.duckdb import remote_files
from zskip.engines.duckdb.remote_files import KnownFile, _Ends, _RangedFile
from zskip.errors import CorruptFile, DamagedIndex, InvalidOption, TableError, TableNotFound, UnsupportedStore
from zskip.inspect.audit import doctor
from zskip.storage import open_storage
from zskip.storage.remote import _OPTIONS, _STORES, ObjectStorage
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


def quick_in(*names: str) -> list[Any]:
    """The stores, of which all but these are slow."""
    every = ("file", "memory", *STORES)
    return [pytest.param(name, marks=[] if name in names else [pytest.mark.slow]) for name in every]


def rows_of(start: int, count: int) -> pa.Table:
    numbers = np.arange(start, start + count)
    return pa.table({"id": numbers, "a": (numbers * 7919) % 1000, "day": (numbers % 2).astype(str)})


@pytest.mark.parametrize("store", quick_in("file", "s3"), indirect=True)
def test_a_table_lives_its_whole_life(store: Store) -> None:
    place, options = store
    url = f"{place}/t"
    with pytest.raises(TableNotFound):
        zskip.open(url, storage_options=options)
    table = zskip.write(rows_of(0, 1000), url, by=["a"], partition_by="day", rows_per_file=250, storage_options=options)
    for number in range(2):
        table.append(rows_of(1000 + 100 * number, 100))
    assert table.delete("id < 10").rows == 10
    done = table.optimize(full=True)
    assert done.files_rewritten > 0
    assert table.optimize().files_rewritten == 0
    expected = rows_of(10, 1190).filter(pa.compute.field("a") == 7)
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
    assert [entry.operation for entry in table.history()] == ["optimize", "delete", "append", "append", "write"]
    assert zskip.open(url, version=1, storage_options=options).plan().count() == 1000
    third = next(entry for entry in table.history() if entry.version == 3)
    assert zskip.open(url, as_of=third.time, storage_options=options).plan().count() == 1200
    table.restore(1)
    assert table.plan().count() == 1000
    assert zskip.repair(url, storage_options=options).parts == ()
    assert table.vacuum("0 days", dry_run=True).versions == tuple(range(1, 6))
    assert len(table.vacuum("0 days").paths) > 0
    assert zskip.open(url, storage_options=options).plan("a = 7").count() == table.plan("a = 7").count()
    assert table.overwrite(rows_of(0, 50)).rows == table.plan().count() == 50
    again = zskip.write(url, f"{place}/copy", by=["a"], storage_options=options)
    assert again.plan().count() == 50
    assert doctor(url, storage_options=options).files >= 1


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


def test_a_read_may_stop_early(server: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What DuckDB still read lost the exception that ends a generator, and a traceback was printed."""
    url, options = server
    rows = pa.table({"id": range(200_000), "x": np.random.default_rng(0).random(200_000)})
    table = zskip.write(rows, f"{url}/{tmp_path.name}", by="id", files=20, target_options=options)
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    for _ in range(10):
        assert table.head(10).num_rows == 10
        batches = table.plan("id > 50000").to_batches()
        assert next(batches).num_rows
        del batches
    assert not lost


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
@pytest.mark.parametrize("store", quick_in("file", "gs"), indirect=True)
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
    with pytest.raises(DamagedIndex, match="Open the table again"):
        fresh.plan("a < 500")
    with suppress(TableNotFound):  # what was open may be read to its end
        assert first.num_rows + sum(batch.num_rows for batch in begun) == 500


@pytest.mark.usefixtures("parts_in_files")
@pytest.mark.parametrize(
    ("act", "every"),
    [
        *(("optimize", 3), ("copy", 2), ("read", 1), ("sketch", 1), ("index", 1)),
        *(pytest.param(act, 1, marks=pytest.mark.slow) for act in ("optimize", "copy")),
    ],
)
def test_a_lost_connection_is_not_taken_for_damage(
    act: str, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is lost: the error says so, and nothing that would make a user repair or restore."""
    left, lost, raised = [0], "the connection was lost", []

    def losing(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise ConnectionResetError(lost)
            return call(*given, **named)

        return called

    def acted(url: str) -> Any:
        match act:
            case "optimize":
                return zskip.open(url).optimize(full=True)
            case "read":
                return zskip.open(url).plan("a < 500").to_arrow()
            case "copy":
                return zskip.write(url, tmp_path / f"{url[-3:]}", by="id")
            case "sketch":
                return zskip.open(url).plan("a = 7").to_arrow()
            case _:
                return zskip.index(f"{url}/raw", deep=True)

    for name in ("list", "names", "read", "read_range", "size_and_modified"):
        monkeypatch.setattr(ObjectStorage, name, losing(getattr(ObjectStorage, name)))
    begin = f"memory://{tmp_path.name}/first"
    table = zskip.write(rows_of(0, 100), begin, by="id", files=3, sketches={"a": "values"})
    table.append(rows_of(100, 10))
    first = open_storage(begin)
    first.put("raw/1.parquet", _without_bounds(rows_of(0, 10)))
    held = {path: first.read(path) for path in first.list("").path.to_pylist()}
    for number in range(100, 200, every):
        url = f"memory://{tmp_path.name}/{number}"
        for path, data in held.items():
            open_storage(url).put(path, data)
        left[0] = number - 99
        try:
            acted(url)
        except OSError as error:
            raised.append(error)
        if left[0] > 0:
            break
    assert len(raised) > 2
    assert not [error for error in raised if isinstance(error, CorruptFile | DamagedIndex) or lost not in str(error)]


def _without_bounds(rows: pa.Table) -> bytes:
    written = pa.BufferOutputStream()
    pq.write_table(rows, written, write_statistics=False)
    return written.getvalue().to_pybytes()


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
        behind.append((log.hinted(table._index.storage) or 0) < table.version)
    assert any(behind), "each commit waited until the hint could be replaced"
    found = zskip.open(url, storage_options=options)
    assert (found.version, found.to_arrow().num_rows) == (11, 30)
    time.sleep(1.1)
    table.append(rows_of(0, 1))
    assert log.hinted(table._index.storage) == 12


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


# --- what is wrong with an address, its options or its credentials is one error, which says what to do ---


ROWS = pa.table({"a": range(100)})
KEYS = {"aws_access_key_id", "aws_secret_access_key", "aws_region"}
AT_ONCE = {"max_retries": 0}


@pytest.fixture
def in_s3(started: Callable[[str], Place], tmp_path: Path) -> Place:
    """A table, and the options that lead to it without keys and region."""
    url, options = started("s3")
    url = f"{url}/{tmp_path.name}"
    zskip.write(ROWS, url, by="a", storage_options=options)
    return url, {name: value for name, value in options.items() if name not in KEYS}


@contextmanager
def answering(status: int, headers: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The options of a server of S3's protocol that answers every request so."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": "0"}.items():
                self.send_header(name, value)
            self.end_headers()

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: Any) -> None:
            """A test's output is not a log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {"endpoint": f"http://127.0.0.1:{server.server_port}", "allow_http": True, "retry_config": AT_ONCE}
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def refusing() -> Iterator[dict[str, Any]]:
    """The options of a server that answers as S3 does for a bucket of another region."""
    with answering(301, {"x-amz-bucket-region": "eu-west-1"}) as options:
        yield options


@pytest.mark.parametrize("scheme", STORES)
def test_a_bucket_that_is_not_there(started: Callable[[str], Place], scheme: str) -> None:
    _, options = started(scheme)
    for call in (zskip.open, zskip.index, lambda url, **more: zskip.write(ROWS, url, by="a", **more)):
        with pytest.raises(TableError, match=f"{scheme}://nowhere/t/_zskip/log: there is no such bucket or container"):
            call(f"{scheme}://nowhere/t", storage_options=options)


@pytest.mark.parametrize("options", [5, "key=s3cr3t", [("key", "s3cr3t")]])
def test_storage_options_that_are_no_mapping_are_refused_without_their_value(options: Any) -> None:
    for place in ("s3://bucket/t", "memory://x/t", "t"):
        with pytest.raises(
            InvalidOption, match=f"storage_options= is a mapping .* not a {type(options).__name__}"
        ) as e:
            zskip.open(place, storage_options=options)
        assert "s3cr3t" not in str(e.value)


def test_another_region(refusing: dict[str, Any]) -> None:
    options = {**refusing, "access_key_id": "key", "secret_access_key": "secret"}
    with pytest.raises(TableError, match=r'the bucket is in another region\. Give it as "region"'):
        zskip.open("s3://bucket/t", storage_options=options)


def test_no_rights(in_s3: Place) -> None:
    url, options = in_s3
    with pytest.raises(PermissionError, match="these credentials may not do that, or there are none"):
        zskip.open(url, storage_options={**options, "skip_signature": True}).count()


@pytest.mark.parametrize("status", [401, 403])
def test_no_right_to_list(status: int) -> None:
    with answering(status, {}) as options, pytest.raises(PermissionError, match="these credentials may not do that"):
        zskip.open("s3://bucket/t", storage_options={**options, "access_key_id": "key", "secret_access_key": "secret"})


def test_no_credentials(monkeypatch: pytest.MonkeyPatch, refusing: dict[str, Any]) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    options = {**refusing, "metadata_endpoint": "http://127.0.0.1:9"}
    with pytest.raises(TableError, match="no credentials were found"):
        zskip.open("s3://bucket/t", storage_options=options)


def test_what_is_no_address_of_a_server(in_s3: Place) -> None:
    url, options = in_s3
    keys = {"access_key_id": "key", "secret_access_key": "secret", "retry_config": AT_ONCE}
    without_http = {name: value for name, value in options.items() if name != "client_options"}
    with pytest.raises(TableError, match=r'needs "allow_http": True.*--storage-option allow_http=true.*AWS_ALLOW_HTTP'):
        zskip.open(url, storage_options={**without_http, **keys})
    nobody = {name: value for name, value in options.items() if "endpoint" not in name}
    with pytest.raises(TableError, match="no answer came from there"):
        zskip.open(url, storage_options={**nobody, **keys, "endpoint": "http://127.0.0.1:9"})
    for place, name, meant in (
        (url, "regoin", "region"),
        (url, "acess_key", "access_key_id"),
        ("gs://bucket/t", "service_acount", "service_account"),
        ("az://bucket/t", "client_option", "client_options"),
    ):
        with pytest.raises(InvalidOption, match=f"'{name}' is not valid .* Did you mean \"{meant}\""):
            zskip.open(place, storage_options={name: "x"})
    for retries, message in (
        ({"max_retris": 3}, "retry_config has no 'max_retris'. Did you mean \"max_retries\""),
        ({"backoff": {"base": 2.0, "int_backoff": 1}}, "backoff has no 'int_backoff'. Did you mean \"init_backoff\""),
        ({"backoff": 2}, "backoff is a dictionary of init_backoff, max_backoff, base, not 2"),
        ("3", "retry_config is a dictionary of max_retries, retry_timeout, backoff, not '3'"),
    ):
        with pytest.raises(InvalidOption, match=message):
            zskip.open(url, storage_options={**options, "retry_config": retries})
    with pytest.raises(InvalidOption, match='"key" is "access_key_id" here, "secret" is "secret_access_key" here') as e:
        zskip.open(url, storage_options={"key": "k3y", "secret": "s3cr3t"})
    assert "s3cr3t" not in str(e.value)


@pytest.mark.parametrize(("heading", "scheme"), [("## S3", "s3"), ("## Google", "gs"), ("## Azure", "az")])
def test_the_page_of_options_names_what_stores_know(heading: str, scheme: str) -> None:
    page = (ROOT / "docs" / "object-stores.md").read_text(encoding="utf-8")
    table = page.split(heading)[1].split("\n## ")[0].split("| --- | --- | --- |")[1]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    named = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert named == _OPTIONS[_STORES[scheme]].split()
    for name in (each for each in named if each != "profile"):
        config = {"account_name": "a", name: "x"} if scheme == "az" else {name: "x"}
        with suppress(InvalidOption):  # of a value that is none
            open_storage(f"{scheme}://bucket", config)
            continue
        with pytest.raises(InvalidOption) as refused:
            open_storage(f"{scheme}://bucket", config)
        assert "Configuration key" not in str(refused.value), name


def test_profiles_of_aws(in_s3: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, options = in_s3
    (tmp_path / "credentials").write_text("[lake]\naws_access_key_id = key\naws_secret_access_key = secret\n")
    (tmp_path / "config").write_text("[profile lake]\nregion = us-east-1\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    scan = zskip.open(url, storage_options={**options, "profile": "lake"}).plan("a < 5").scan
    assert pickle.loads(pickle.dumps(scan)).to_arrow().num_rows == 5
    with pytest.raises(InvalidOption, match=r'The profile "lakes" gives no keys.*The profiles are: lake'):
        zskip.open(url, storage_options={**options, "profile": "lakes"})
    monkeypatch.setenv("AWS_PROFILE", "lake")
    assert zskip.open(url, storage_options=options).count() == 100


# Of the user and password of an endpoint or a proxy, nothing may be shown. Nobody listens at port 9.
SECRET_OPTIONS: dict[str, dict[str, Any]] = {
    "endpoint": {"endpoint": "http://me:s3cr3t@127.0.0.1:9", "allow_http": True},
    "proxy": {
        "endpoint": "http://lake.example",
        "allow_http": True,
        "client_options": {"proxy_url": "http://me:s3cr3t@127.0.0.1:9"},
    },
}
REQUESTS: dict[str, Callable[[Any], object]] = {
    "exists": lambda storage: storage.exists("a"),
    "list": lambda storage: storage.list(),
    "names": lambda storage: storage.names("a"),
    "size_and_modified": lambda storage: storage.size_and_modified(["a"]),
    "read": lambda storage: storage.read("a"),
    "read_range": lambda storage: storage.read_range("a", 0, 1),
    "put": lambda storage: storage.put("a", b""),
    "put_once": lambda storage: storage.put_once("a", b""),
    "put_if_absent": lambda storage: storage.put_if_absent("a", b""),
    "move": lambda storage: storage.move("a", "b"),
    "delete": lambda storage: storage.delete(["a"]),
    "filesystem": lambda storage: storage.filesystem().open(storage.uri_of("a")),
}


@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("options", SECRET_OPTIONS.values(), ids=SECRET_OPTIONS)
def test_no_error_in_a_chain_shows_a_secret(
    options: dict[str, Any], request_of: Callable[[Any], object], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    keys = {"access_key_id": "key", "secret_access_key": "s3cr3t", "region": "x", "retry_config": AT_ONCE}
    storage = open_storage("s3://bucket/t", {**options, **keys})
    with pytest.raises(TableError) as caught:
        request_of(storage)
    chain: list[BaseException] = [caught.value]
    while (one := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(one)
    assert len(chain) > 1
    shown = [*map(str, chain), *map(repr, chain), repr(storage), str(storage.filesystem()), storage.identity]
    assert not [text for text in (*shown, caplog.text) if "s3cr3t" in text]
