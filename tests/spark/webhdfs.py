"""A WebHDFS server over a local folder: enough of the protocol for Hadoop's own client, with HDFS's atomic rename."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

_READS = {
    "OPEN",
    "GETFILESTATUS",
    "GETFILELINKSTATUS",
    "LISTSTATUS",
    "LISTSTATUS_BATCH",
    "GETFILEBLOCKLOCATIONS",
    "GETHOMEDIRECTORY",
}
_PREFIX = "/webhdfs/v1"


class Refused(Exception):
    """An error of Java's, by its class."""

    def __init__(self, status: int, java_class: str, message: object) -> None:
        self.status, self.java_class, self.message = status, java_class, str(message)


class WebHdfs(ThreadingHTTPServer):
    """``before`` and ``after`` are called with each operation and its path, and may raise or wait."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.names = threading.RLock()  # the name node's: one change of names at a time
        self.before: Callable[[str, str], None] = lambda operation, path: None
        self.after: Callable[[str, str], None] = lambda operation, path: None

    @property
    def url(self) -> str:
        return f"webhdfs://127.0.0.1:{self.server_address[1]}"


@contextmanager
def webhdfs(folder: Path) -> Iterator[WebHdfs]:
    """A server in a thread of this process."""
    with WebHdfs(folder) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer leaves as one packet: the second would wait 40 ms for the client to acknowledge the first
    server: WebHdfs

    def do_GET(self) -> None:
        self._answer(_READS)

    def do_PUT(self) -> None:
        self._answer({"CREATE", "MKDIRS", "RENAME", "SETPERMISSION"})

    def do_DELETE(self) -> None:
        self._answer({"DELETE"})

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self, known: set[str]) -> None:
        address = urlsplit(self.path)
        self.given = {key.lower(): values[0] for key, values in parse_qs(address.query).items()}
        # The client sends letters as they are, in UTF-8; the request line was read as if it were Latin-1.
        self.name = unquote(address.path.encode("latin-1").decode())[len(_PREFIX) :]
        self.place = self.server.folder / self.name.strip("/")
        operation = self.given["op"].upper()
        body = self._body()
        try:
            self.server.before(operation, self.name)
            if operation not in known:
                raise Refused(400, "java.lang.UnsupportedOperationException", operation)
            status, answer = getattr(self, f"_{operation.lower()}")(body)
            self.server.after(operation, self.name)
        except FileNotFoundError:
            status, answer = self._error(Refused(404, "java.io.FileNotFoundException", f"{self.name} is not there"))
        except Refused as error:
            status, answer = self._error(error)
        sent = answer if isinstance(answer, bytes) else json.dumps(answer).encode() if answer is not None else b""
        # Without a type: to parse one, the client that Spark bundles looks for a class that its jars leave out.
        self.send_response(status)
        self.send_header("Content-Length", str(len(sent)))
        if status == 307:
            self.send_header(
                "Location", f"http://{self.headers['Host']}{_PREFIX}{quote(self.name)}?{address.query}&data=true"
            )
        self.end_headers()
        self.wfile.write(sent)

    def _error(self, error: Refused) -> tuple[int, Any]:
        name = error.java_class.rpartition(".")[2]
        refusal = {"exception": name, "javaClassName": error.java_class, "message": error.message}
        return error.status, {"RemoteException": refusal}

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while length := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(length))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _open(self, body: bytes) -> tuple[int, bytes]:
        offset, length = int(self.given.get("offset", 0)), int(self.given.get("length", -1))
        with open(self.place, "rb") as file:
            if offset > self.place.stat().st_size:
                raise Refused(403, "java.io.IOException", f"Offset={offset} out of the range")
            file.seek(offset)
            return 200, file.read(length)

    def _status(self, place: Path, suffix: str) -> dict[str, Any]:
        found = place.stat()
        folder = place.is_dir()
        return {
            "accessTime": 0,
            "blockSize": 0 if folder else 134217728,
            "childrenNum": 0,
            "fileId": found.st_ino,
            "group": "users",
            "length": 0 if folder else found.st_size,
            "modificationTime": found.st_mtime_ns // 1_000_000,
            "owner": "zskip",
            "pathSuffix": suffix,
            "permission": "755",
            "replication": 0 if folder else 1,
            "storagePolicy": 0,
            "type": "DIRECTORY" if folder else "FILE",
        }

    def _getfilestatus(self, body: bytes) -> tuple[int, Any]:
        return 200, {"FileStatus": self._status(self.place, "")}

    _getfilelinkstatus = _getfilestatus

    def _liststatus(self, body: bytes) -> tuple[int, Any]:
        with self.server.names:
            found = sorted(self.place.iterdir()) if self.place.is_dir() else []
            statuses = [self._status(one, one.name) for one in found]
        return 200, {"FileStatuses": {"FileStatus": statuses or [self._status(self.place, "")][: self.place.is_file()]}}

    def _liststatus_batch(self, body: bytes) -> tuple[int, Any]:
        _, listed = self._liststatus(body)
        after = self.given.get("startafter", "")
        rest = [one for one in listed["FileStatuses"]["FileStatus"] if one["pathSuffix"] > after or not after]
        page = {"partialListing": {"FileStatuses": {"FileStatus": rest[:50]}}, "remainingEntries": len(rest[50:])}
        return 200, {"DirectoryListing": page}

    def _getfileblocklocations(self, body: bytes) -> tuple[int, Any]:
        return 200, {"BlockLocations": {"BlockLocation": []}}

    def _gethomedirectory(self, body: bytes) -> tuple[int, Any]:
        return 200, {"Path": "/user/zskip"}

    def _create(self, body: bytes) -> tuple[int, Any]:
        if self.given.get("data") != "true":
            return 307, None
        with self.server.names:
            if self.given.get("overwrite") != "true" and self.place.exists():
                raise Refused(403, "org.apache.hadoop.fs.FileAlreadyExistsException", self.name)
            self.place.parent.mkdir(parents=True, exist_ok=True)
            self.place.write_bytes(body)
        return 201, None

    def _mkdirs(self, body: bytes) -> tuple[int, Any]:
        with self.server.names:
            self.place.mkdir(parents=True, exist_ok=True)
        return 200, {"boolean": True}

    def _rename(self, body: bytes) -> tuple[int, Any]:
        target = self.server.folder / self.given["destination"].strip("/")
        options = self.given.get("renameoptions")
        with self.server.names:
            if options is None:  # the old form: false where it cannot be, and into a folder of that name
                target = target / self.place.name if target.is_dir() else target
                if not self.place.exists() or target.exists() or not target.parent.is_dir():
                    return 200, {"boolean": False}
                self.place.rename(target)
                return 200, {"boolean": True}
            if not self.place.exists() or not target.parent.is_dir():
                raise FileNotFoundError
            if target.exists() and options.upper() != "OVERWRITE":
                raise Refused(403, "org.apache.hadoop.fs.FileAlreadyExistsException", self.given["destination"])
            self.place.replace(target)
        return 200, None

    def _delete(self, body: bytes) -> tuple[int, Any]:
        with self.server.names:
            if not self.place.exists():
                return 200, {"boolean": False}
            if self.place.is_file():
                self.place.unlink()
            elif self.given.get("recursive") == "true":
                shutil.rmtree(self.place)
            else:
                try:
                    self.place.rmdir()
                except OSError:
                    java = "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException"
                    raise Refused(403, java, f"{self.name} is non empty") from None
        return 200, {"boolean": True}

    def _setpermission(self, body: bytes) -> tuple[int, Any]:
        return 200, None
