"""A server of Google Cloud Storage's XML API: the part that clients of object stores speak, over a dictionary.

The emulators that can be installed speak the JSON API, or put without comparing. So this one follows the reference at
https://cloud.google.com/storage/docs/xml-api. Objects are put whole, in parts, or as copies. Each put makes a new
generation, and is refused with 412 where ``x-goog-if-generation-match`` names another than the one that is there; 0
is the generation of what is not there. Ranges are answered with 206, or 416 behind the end; listings in pages of 1,000
keys, their times to the millisecond, where headers tell seconds. As there, an object may be replaced once a second:
who is faster is told 429. Signatures are not looked at.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

MOST_KEYS = 1000
SECONDS_BETWEEN_REPLACEMENTS = 1.0
Answer = tuple[int, Mapping[str, str], bytes]


def server() -> ThreadingHTTPServer:
    """A server of an empty store, on a free port of this machine. Its only bucket is called so."""
    made = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Request,), {"store": _Store()}))
    made.daemon_threads = True
    return made


class _Refused(Exception):
    """An answer that is an error: its status, and the code that its body names."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    generation: int
    modified: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data).hexdigest()}"'

    @property
    def headers(self) -> dict[str, str]:
        return {
            "ETag": self.etag,
            "Last-Modified": format_datetime(self.modified, usegmt=True),
            "x-goog-generation": str(self.generation),
            "x-goog-stored-content-length": str(len(self.data)),
        }

    def listed(self, key: str) -> str:
        modified = self.modified.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return (
            f"<Contents><Key>{escape(key)}</Key><Generation>{self.generation}</Generation>"
            f"<LastModified>{modified}</LastModified><ETag>{self.etag}</ETag><Size>{len(self.data)}</Size></Contents>"
        )


class _Store:
    """All objects by bucket and key, and the uploads that are under way: their parts by number."""

    def __init__(self) -> None:
        self.objects: dict[str, _Object] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.numbers = itertools.count(int(time.time() * 1e6))
        self._turn = threading.Lock()

    def get(self, path: str) -> _Object:
        found = self.objects.get(path)
        if found is None:
            raise _Refused(404, "NoSuchKey")
        return found

    def put(self, path: str, data: bytes, wanted: str | None) -> _Object:
        """Compare and put, in one."""
        with self._turn:
            found, made = self.objects.get(path), _Object(data, next(self.numbers))
            if wanted is not None and int(wanted) != (found.generation if found else 0):
                raise _Refused(412, "PreconditionFailed")
            if found and (made.modified - found.modified).total_seconds() < SECONDS_BETWEEN_REPLACEMENTS:
                raise _Refused(429, "SlowDown")
            self.objects[path] = made
        return made

    def delete(self, path: str) -> None:
        with self._turn:
            self.get(path)
            del self.objects[path]

    def page(self, bucket: str, prefix: str, after: str) -> tuple[list[tuple[str, _Object]], bool]:
        """The first keys behind one, and whether there are more."""
        with self._turn:
            whole = f"{bucket}/{prefix}"
            found = [(path[len(bucket) + 1 :], each) for path, each in self.objects.items() if path.startswith(whole)]
        rest = sorted((key, each) for key, each in found if key.encode() > after.encode())
        return rest[:MOST_KEYS], len(rest) > MOST_KEYS


class _Request(BaseHTTPRequestHandler):
    """One connection."""

    store: _Store
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer leaves as one packet

    def do_GET(self) -> None:
        self._answer(lambda: self._page() if "list-type" in self.asked else self._object())

    def do_HEAD(self) -> None:
        self._answer(self._object)

    def do_PUT(self) -> None:
        self._answer(lambda: self._part() if "uploadId" in self.asked else self._put())

    def do_POST(self) -> None:
        self._answer(lambda: self._complete() if "uploadId" in self.asked else self._begin())

    def do_DELETE(self) -> None:
        self._answer(self._delete)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a test's output is not a log."""

    def _answer(self, found: Callable[[], Answer]) -> None:
        address = urlsplit(self.path)
        self.place = unquote(address.path).strip("/")
        self.asked = dict(parse_qsl(address.query, keep_blank_values=True))
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            status, headers, data = found()
        except _Refused as refused:
            status, headers, data = refused.status, {}, f"<Error><Code>{refused.code}</Code></Error>".encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _object(self) -> Answer:
        found = self.store.get(self.place)
        size = len(found.data)
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if self.command == "HEAD" or wanted is None:
            return 200, {**found.headers, "Content-Length": str(size)}, found.data
        first, last = wanted.groups()
        start = int(first) if first else max(size - int(last), 0)
        stop = min(int(last) + 1, size) if first and last else size
        if start >= stop:
            raise _Refused(416, "InvalidRange")
        return 206, {**found.headers, "Content-Range": f"bytes {start}-{stop - 1}/{size}"}, found.data[start:stop]

    def _put(self) -> Answer:
        source = self.headers.get("x-goog-copy-source")
        data = self.body if source is None else self.store.get(unquote(source).strip("/")).data
        made = self.store.put(self.place, data, self.headers.get("x-goog-if-generation-match"))
        return (
            200,
            made.headers,
            b"" if source is None else f"<CopyObjectResult><ETag>{made.etag}</ETag></CopyObjectResult>".encode(),
        )

    def _begin(self) -> Answer:
        upload = f"upload-{next(self.store.numbers)}"
        self.store.uploads[upload] = {}
        named = f"<Key>{escape(self.place)}</Key><UploadId>{upload}</UploadId>"
        return 200, {}, f"<InitiateMultipartUploadResult>{named}</InitiateMultipartUploadResult>".encode()

    def _upload(self) -> dict[int, bytes]:
        found = self.store.uploads.get(self.asked["uploadId"])
        if found is None:
            raise _Refused(404, "NoSuchUpload")
        return found

    def _part(self) -> Answer:
        self._upload()[int(self.asked["partNumber"])] = self.body
        return 200, {"ETag": f'"{hashlib.md5(self.body).hexdigest()}"'}, b""

    def _complete(self) -> Answer:
        parts = self._upload()
        named = [int(number) for number in re.findall(r"<PartNumber>(\d+)</PartNumber>", self.body.decode())]
        if not named or not parts.keys() >= set(named):
            raise _Refused(400, "InvalidPart")
        wanted = self.headers.get("x-goog-if-generation-match")
        made = self.store.put(self.place, b"".join(parts[number] for number in named), wanted)
        del self.store.uploads[self.asked["uploadId"]]
        answer = f"<CompleteMultipartUploadResult><ETag>{escape(made.etag)}</ETag></CompleteMultipartUploadResult>"
        return 200, made.headers, answer.encode()

    def _delete(self) -> Answer:
        if "uploadId" in self.asked:
            self._upload()
            del self.store.uploads[self.asked["uploadId"]]
        else:
            self.store.delete(self.place)
        return 204, {}, b""

    def _page(self) -> Answer:
        if self.place != "bucket":
            raise _Refused(404, "NoSuchBucket")
        after = self.asked.get("continuation-token") or self.asked.get("start-after", "")
        found, more = self.store.page(self.place, self.asked.get("prefix", ""), after)
        token = f"<NextContinuationToken>{escape(found[-1][0])}</NextContinuationToken>" if more else ""
        listed = "".join(each.listed(key) for key, each in found)
        body = f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{listed}"
        return 200, {}, f"<ListBucketResult><KeyCount>{len(found)}</KeyCount>{body}</ListBucketResult>".encode()
