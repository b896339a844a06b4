"""Secrets in addresses, pipes and devices in place of files, names that no table gives: own errors, and no waiting."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests.clouds import Place
from tests.tables import signed_entry
from zskip.errors import DamagedIndex, ForeignTable, InvalidOption, TableError, TableNotFound, UnsafePath, ZskipError
from zskip.storage import Staged, open_storage
from zskip.storage.remote import ObjectStorage
from zskip.storage.secrets import refuse_secrets, without_secrets
from zskip.tablelog import log, vacuum
from zskip.tablelog.parts import Drafts
from zskip.tablelog.shards import write_shards
from zskip.tablelog.snapshot import fields_of, to_bytes

ROWS = pa.table({"id": [1, 2, 3]})

posix = pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes with names")


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    if sys.platform != "win32":
        signal.alarm(60)
    yield
    if sys.platform != "win32":
        signal.alarm(0)


@pytest.mark.parametrize(
    "url",
    [
        "s3://KEY:SECRET@bucket/table",
        "s3://SECRET@bucket/table",
        "s3a://KEY:SECRET@bucket",
        "az://container/table?sv=2022&sig=SECRET",
        "https://KEY:SECRET@host/table?sig=SECRET",
        "gs://bucket/table?token=SECRET",
        "gs://bucket/table#token=SECRET",
        "s3://bucket/table;sig=SECRET",
        "s3://KEY:SEC/SECRET@bucket/table",
        "s3://KEY:SECRET%40bucket/table",
        "abfs://container@account.dfs.core.windows.net/x?sv=1&sig=SECRET",
        "https://KEY:SECRET@host/x.parquet",
        "https://host/x.parquet?sig=SECRET",
        "file://KEY:SECRET@host/x",
        "s3:/KEY:SECRET@bucket",
        "s3:/SECRET@bucket/table",
        " s3://KEY:SECRET@bucket/table",
        "\ts3://bucket/table?sig=SECRET",
        "s3::KEY:SECRET@bucket",
        "simplecache::s3://KEY:SECRET@bucket/x",
    ],
)
def test_secrets_in_an_address_are_neither_taken_nor_shown(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    verbs = (zskip.open, zskip.index, zskip.read, zskip.attach, zskip.repair, open_storage)
    for verb in (
        *verbs,
        lambda url: zskip.write(ROWS, url, by="id"),
        lambda url: zskip.advise(url, ["id = 1"]),
        lambda url: zskip.sql(f"SELECT * FROM '{url}'"),
        lambda url: zskip.sql(f'SELECT * FROM "{url}"'),
    ):
        with pytest.raises(InvalidOption) as caught:
            verb(url)
        assert "SECRET" not in str(caught.value)
    with pytest.raises((ZskipError, PermissionError)) as error:  # a store may refuse an address that is one
        zskip.write(url, "memory://nowhere/t", by="id")
    assert "SECRET" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_names_with_signs_of_secrets_are_addresses(tmp_path: Path) -> None:
    """A sign in the name of a folder, a port, a container before its account: none of them is a secret."""
    for name in ("a@b", "12:30 me@host;x=1", "why?", " s3"):
        zskip.write(ROWS, tmp_path / name, by="id")
        assert zskip.read(tmp_path / name).num_rows == 3
    for url in ("hdfs://name:8020/user/@me", "abfss://container@account/x", "s3://bucket/a;b#c@d"):
        refuse_secrets(url)
        assert without_secrets(url).endswith(url[-2:])


def test_what_a_client_says_of_a_request_is_masked() -> None:
    message = 'Error performing GET "https://a.blob.core.windows.net/c/x?sv=1&sig=SECRET" in 3 s (https://u:SECRET@h/x)'
    assert "SECRET" not in without_secrets(message)
    assert "a.blob.core.windows.net/c/x" in without_secrets(message)


@pytest.mark.parametrize(("name", "meant"), [("evnts", "events"), (".events", "events"), ("dotted", ".dotted")])
def test_the_folder_nearest_to_a_wrong_name_is_offered(name: str, meant: str, tmp_path: Path) -> None:
    for folder in ("events", ".dotted", "other"):
        zskip.write(ROWS, tmp_path / folder, by="id")
    with pytest.raises(TableNotFound, match=rf'/{re.escape(name)}, and no Parquet file\. Did you mean "{meant}"\?'):
        zskip.open(tmp_path / name)
    for far in ("none/events", "zzz"):
        with pytest.raises(TableNotFound, match=r"and no Parquet file\. Make one with zskip\.write\."):
            zskip.open(tmp_path / far)
    (tmp_path / "event").mkdir()
    with pytest.raises(TableNotFound, match=r"Make one with zskip\.write\."):
        zskip.open(tmp_path / "event")


def test_one_statement_reads_tables_in_a_store_and_on_the_disk(started: Callable[[str], Place], tmp_path: Path) -> None:
    zskip.write(ROWS, tmp_path / "t", by="id")
    store, options = started("s3")
    url = f"{store}/{tmp_path.name}"
    zskip.write(ROWS, f"{url}/t", by="id", storage_options=options)
    both = f"SELECT count(*) FROM '{url}/t' JOIN '{tmp_path}/t' USING (id)"
    assert zskip.sql(both, storage_options=options).fetchall() == [(3,)]
    with pytest.raises(TableNotFound, match="nothing"):
        zskip.sql(f"SELECT * FROM '{url}/nothing'", storage_options=options)


def test_what_was_opened_with_credentials_serves_no_one_without(
    started: Callable[[str], Place], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same address with other keys is another place: nothing that is kept of one serves the other."""
    store, options = started("s3")
    url = f"{store}/{tmp_path.name}"
    zskip.write(ROWS, f"{url}/t", by="id", storage_options=options)
    query = f"SELECT count(*) FROM '{url}/t' WHERE id > 1"
    assert zskip.sql(query, storage_options=options).fetchall() == [(2,)]
    read: list[str] = []
    real = ObjectStorage.read_range

    def noted(self: ObjectStorage, *given: Any) -> bytes:
        read.append(self.identity)
        return real(self, *given)

    monkeypatch.setattr(ObjectStorage, "read_range", noted)
    around = {"ACCESS_KEY_ID": "other", "SECRET_ACCESS_KEY": "other", "REGION": "us-east-1", "ALLOW_HTTP": "true"}
    for key, value in (around | {"ENDPOINT": options["aws_endpoint"]}).items():
        monkeypatch.setenv(f"AWS_{key}", value)
    for one in (None, {**options, "aws_access_key_id": "another"}):
        read.clear()
        assert zskip.sql(query, storage_options=one).fetchall() == [(2,)]
        assert set(read) == {open_storage(f"{url}/t", one).identity}


@posix
@pytest.mark.parametrize("kind", ["pipe", "folder"])
@pytest.mark.parametrize("name", ["entry", "latest", "part"])
@pytest.mark.usefixtures("parts_in_files")
def test_what_is_no_file_is_not_waited_for(name: str, kind: str, tmp_path: Path) -> None:
    table = tmp_path / "t"
    zskip.write(ROWS, table, by="id")
    path = {
        "entry": table / log.entry_path(2),
        "latest": table / log.HINT,
        "part": next((table / "_zskip" / "stats").iterdir()),
    }[name]
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    if name == "latest":
        assert zskip.open(table).version == 1
        return
    with pytest.raises(TableError, match=re.escape(path.name)):
        zskip.open(table).plan("id = 2")
    if name == "entry":
        with pytest.raises(TableError, match=re.escape(path.name)):
            zskip.open(table).append(ROWS)


@posix
def test_a_pipe_is_no_data_file(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "1.parquet")
    os.mkfifo(tmp_path / "2.parquet")
    table = zskip.index(tmp_path)
    assert table._index.snapshot.totals.files == 1
    assert table.plan("id > 0").count() == 3
    (tmp_path / "1.parquet").unlink()
    os.mkfifo(tmp_path / "1.parquet")
    assert zskip.open(tmp_path).plan("id > 0").paths == []
    for source in (tmp_path / "1.parquet", tmp_path / "*.parquet"):
        with pytest.raises(TableError):
            zskip.write(str(source), tmp_path / "out", by="id")


@posix
def test_a_name_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    try:
        (tmp_path / os.fsdecode(b"a\xff.parquet")).write_bytes(b"")
    except OSError:
        pytest.skip("the file system takes UTF-8 only")
    with pytest.raises(UnsafePath, match=r"a\\xff\.parquet"):
        zskip.index(tmp_path)


def test_a_number_that_no_version_has_is_no_entry(tmp_path: Path) -> None:
    zskip.write(ROWS, tmp_path, by="id")
    (tmp_path / log.LOG / "99999999999999999999.json").write_bytes(b"{}")
    assert zskip.open(tmp_path).append(ROWS).version == 2
    with pytest.raises(TableNotFound, match="no version 99999999999999999999"):
        zskip.open(tmp_path, version=99999999999999999999)


def test_a_signed_entry_that_partitions_by_an_unknown_column_is_damage(tmp_path: Path) -> None:
    zskip.write(ROWS, tmp_path, by="id")
    path = tmp_path / log.entry_path(1)
    entry = fields_of(json.dumps(json.loads(path.read_bytes())["snapshot"]).encode())
    entry["partition_by"] = ["nowhere"]
    path.write_bytes(signed_entry(json.dumps(entry).encode()))
    with pytest.raises(DamagedIndex, match="nowhere"):
        zskip.open(tmp_path)


@pytest.mark.parametrize("name", ["_zskip_file", "_ZSKIP_FILE"])
def test_a_table_may_have_any_name_for_a_column(name: str, tmp_path: Path) -> None:
    rows = pa.table({name: [1, 2, 3], "day": ["a", "b", "b"]})
    for folder, options in (("flat", {}), ("hive", {"partition_by": "day"})):
        table = zskip.write(rows, tmp_path / folder, by=name, files=2, **options)
        assert table.plan(f"{name} < 3").to_duckdb().fetchall()[0][0] == 1
        assert table.delete(f"{name} = 1").rows == 1
        assert table.to_arrow().num_rows == 2


def test_half_of_a_surrogate_pair_is_no_address() -> None:
    for place in ("\ud800", "/tmp/\udfff/t", "memory://\ud800/t"):
        with pytest.raises(InvalidOption, match="half of a surrogate pair"):
            zskip.open(place)


# --- paths that would lead out of a table: in a shard, in the name of a hive folder, behind a link ---


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
    storage, snapshot = table._index.storage, table._index.snapshot
    files = replace(table._index.data_files(), path=pa.array([path]))
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
        vacuum.vacuum(again._index.storage)
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


@posix
def test_above_a_link_is_above_its_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for DuckDB and for the system, so that two programs mean one folder by one path."""
    (tmp_path / "far" / "inner").mkdir(parents=True)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "link").symlink_to(tmp_path / "far" / "inner")
    zskip.write(ROWS, tmp_path / "far" / "t", by="id")
    monkeypatch.chdir(tmp_path)
    for path in ("sub/link/../t", str(tmp_path / "sub" / "link" / ".." / "t"), "sub/../sub/link/../t"):
        assert zskip.open(path).count() == 3
        assert zskip.sql(f"FROM '{path}'").fetchall() == [(1,), (2,), (3,)]
        with pytest.raises(ForeignTable):
            zskip.write(f"{path}/*.parquet", tmp_path / "copy", by="id")
        with pytest.raises(ForeignTable):
            zskip.sql(f"COPY (SELECT 4 AS id) TO '{path}/4.parquet'")


def test_a_name_in_a_store_may_be_that_of_a_pattern() -> None:
    zskip.write(ROWS, "memory://patterns/star*", by="id")
    zskip.write(ROWS, "memory://patterns/start", by="id")
    assert zskip.sql("SELECT count(*) FROM 'memory://patterns/star*'").fetchall() == [(3,)]
    with pytest.raises(TableNotFound):
        zskip.sql("FROM 'memory://patterns/sta*'")


@posix
@pytest.mark.parametrize("name", ["a\\b[1]", "a[1]", "a*", "a\\b"])
def test_no_file_is_taken_for_one_that_a_name_matches(name: str, tmp_path: Path) -> None:
    """DuckDB takes the names of files for patterns, and a backslash in a pattern for the end of a folder's name."""
    table = zskip.write(ROWS, tmp_path / name, by="id")
    zskip.write(pa.table({"id": [7]}), tmp_path / "axb1", by="id")
    if "\\" in name and "[" in name:
        for read in (table.to_arrow, lambda: zskip.sql(f"FROM '{tmp_path / name}'")):
            with pytest.raises(UnsafePath, match="backslash"):
                read()
    else:
        assert table.to_arrow().sort_by("id").equals(ROWS)


@posix
def test_a_working_directory_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for call in (lambda: zskip.open("t"), lambda: zskip.write(ROWS, "t", by="id"), lambda: zskip.sql("FROM 'a/t'")):
        with pytest.raises(TableError, match="the working directory, which is gone"):
            call()
    assert zskip.write(ROWS, tmp_path / "t", by="id").count() == 3
