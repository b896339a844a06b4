"""What is wrong with an address, its options or its credentials is one error, which says what to do."""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import zskip
from tests import ROOT
from tests.clouds import STORES, Place
from zskip.errors import InvalidOption, TableError
from zskip.storage import open_storage

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
    with pytest.raises(TableError, match='needs "allow_http": True'):
        zskip.open(url, storage_options={**without_http, **keys})
    nobody = {name: value for name, value in options.items() if "endpoint" not in name}
    with pytest.raises(TableError, match="no answer came from there"):
        zskip.open(url, storage_options={**nobody, **keys, "endpoint": "http://127.0.0.1:9"})
    with pytest.raises(InvalidOption, match="'regoin' is not valid"):
        zskip.open(url, storage_options={**options, "regoin": "eu-west-1"})


@pytest.mark.parametrize(("heading", "scheme"), [("## S3", "s3"), ("## Google", "gs"), ("## Azure", "az")])
def test_the_page_of_options_names_what_stores_know(heading: str, scheme: str) -> None:
    page = (ROOT / "docs" / "object-stores.md").read_text(encoding="utf-8")
    table = page.split(heading)[1].split("\n## ")[0].split("| --- | --- | --- |")[1]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    named = [name for cell in cells for name in re.findall(r"`(\w+)`", cell) if name != "profile"]
    assert len(named) > 4
    for name in named:
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
