"""Servers that speak the protocols of S3, Google Cloud Storage and Azure, on this machine, each in its own process.

`STORES` names them by the scheme of their URLs. Each gives the URL of an empty bucket, and the storage options that
lead there; `unavailable` says what is missing where one cannot be started.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib.util
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

from tests.clouds import gcs

__all__ = ["STORES", "Place", "unavailable"]

Place = tuple[str, dict[str, Any]]
_PLAIN = {"client_options": {"allow_http": True}}
# Where `make` installs Azure's emulator: beside Python's own packages.
_AZURITE = Path(sys.prefix) / "azurite" / "node_modules" / ".bin" / "azurite-blob"
_ACCOUNT, _KEY = "zskip", base64.b64encode(b"no secret").decode()


def unavailable(scheme: str) -> str | None:
    """What is missing for this server; None where nothing is."""
    if scheme == "s3" and importlib.util.find_spec("moto") is None:
        return "moto, a server of S3's protocol, is not installed"
    if scheme == "az" and _azurite() is None:
        return "Azurite, a server of Azure's protocol, is not installed: make test does it where there is npm"
    return None


@contextmanager
def _s3() -> Iterator[Place]:
    with _serving(_serve_s3) as port:
        endpoint = f"http://127.0.0.1:{port}"
        _put(f"{endpoint}/bucket")
        yield (
            "s3://bucket",
            {
                "aws_access_key_id": "key",
                "aws_secret_access_key": "secret",
                "aws_region": "us-east-1",
                "aws_endpoint": endpoint,
                "aws_virtual_hosted_style_request": "false",
                **_PLAIN,
            },
        )


@contextmanager
def _gs() -> Iterator[Place]:
    with _serving(_serve_gs) as port:
        account = {
            "gcs_base_url": f"http://127.0.0.1:{port}",
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        yield "gs://bucket", {"service_account_key": json.dumps(account), **_PLAIN}


@contextmanager
def _az() -> Iterator[Place]:
    command = [str(_azurite()), "--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence"]
    command += ["--disableTelemetry", "--skipApiVersionCheck"]
    environment = {**os.environ, "AZURITE_ACCOUNTS": f"{_ACCOUNT}:{_KEY}"}
    server = subprocess.Popen(
        [*command, "--silent"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert server.stdout is not None
        lines: list[str] = []
        for line in server.stdout:
            lines.append(line)
            if listening := re.search(r"listens on (http://\S+)", line):
                break
        else:
            raise AssertionError(f"Azurite did not start: {''.join(lines)}")
        endpoint = f"{listening[1]}/{_ACCOUNT}"
        _put(f"{endpoint}/bucket?restype=container", _signed(f"/{_ACCOUNT}/{_ACCOUNT}/bucket\nrestype:container"))
        yield (
            "az://bucket",
            {"account_name": _ACCOUNT, "account_key": _KEY, "azure_endpoint": endpoint, **_PLAIN},
        )
    finally:
        server.kill()
        server.wait()


STORES: dict[str, Callable[[], AbstractContextManager[Place]]] = {"s3": _s3, "gs": _gs, "az": _az}


def _azurite() -> Path | None:
    found = shutil.which(_AZURITE) or shutil.which("azurite-blob")
    return Path(found) if found and shutil.which("node") else None


def _signed(resource: str) -> dict[str, str]:
    """The headers of an empty PUT, signed with the account's key: Azure's Shared Key."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
    text = "PUT" + "\n" * 12 + "".join(f"{name}:{value}\n" for name, value in headers.items()) + resource
    digest = hmac.digest(base64.b64decode(_KEY), text.encode(), hashlib.sha256)
    return {**headers, "Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}"}


def _put(url: str, headers: dict[str, str] | None = None) -> None:
    urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers or {})).close()


@contextmanager
def _serving(serve: Callable[[Any], None]) -> Iterator[int]:
    """A server in a process of its own, which puts its port into a queue; the port."""
    context = multiprocessing.get_context("spawn")
    ports = context.Queue()
    server = context.Process(target=serve, args=(ports,), daemon=True)
    server.start()
    try:
        yield ports.get(timeout=60)
    finally:
        server.kill()
        server.join()


def _serve_gs(ports: Any) -> None:
    server = gcs.server()
    ports.put(server.server_port)
    server.serve_forever()


def _serve_s3(ports: Any) -> None:
    import logging
    import threading

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    application = DomainDispatcherApplication(create_backend_app)
    turn = threading.Lock()

    def one_at_a_time(environ: Any, start_response: Any) -> list[bytes]:
        # S3 compares and creates in one; this server does so only while no other request is under way.
        with turn:
            return list(application(environ, start_response))

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True)
    ports.put(server.server_port)
    server.serve_forever()
