"""Read the ends of Parquet files, where the footers are: usually by one request each, sometimes by two."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from zskip.errors import CorruptFile

__all__ = ["TRAILER_BYTES", "Listed", "Readable", "footer_lengths", "read"]

TRAILER_BYTES: Final = 8  # behind a footer: its length, and PAR1
_LEAST_BYTES = 12  # of a file: it begins with PAR1 too
_LOCAL_TAIL, _REMOTE_TAIL = 8 << 10, 64 << 10
_LOCAL_READERS, _REMOTE_READERS = 4, 32
_FIRST, _QUICK_SECONDS = 16, 100e-6
_LONGEST_STEP, _LONGEST_QUICK_STEP = 256, 4096
_Ends = Callable[[Sequence[str], Sequence[int], int], list[bytes]]


class Listed(Protocol):
    """What a storage lists of its files, by path."""

    @property
    def path(self) -> pa.StringArray: ...
    @property
    def size(self) -> pa.Int64Array: ...
    @property
    def modified(self) -> pa.Int64Array: ...
    @property
    def etag(self) -> pa.StringArray: ...


class Readable(Protocol):
    """What is needed of a storage to read footers."""

    @property
    def local(self) -> Path | None: ...
    def uri_of(self, path: str) -> str: ...
    def read_range(self, path: str, start: int, length: int) -> bytes: ...
    def size_and_modified(self, paths: Sequence[str]) -> Listed: ...
    def require_inside(self, paths: pa.StringArray) -> None: ...


def read(storage: Readable, listed: Listed, threads: int | None, block_bytes: int) -> Iterator[list[bytes]]:
    """The ends of the listed files, some at a time, in their order: each from before its footer to its last byte.

    ``block_bytes``: about how many bytes the caller holds at once; no part that is read is much larger. Raises
    `CorruptFile` for a file that does not end as Parquet does.
    """
    local = storage.local is not None
    ends = _local_ends(str(storage.local)) if local else _remote_ends(storage)
    guess = _LOCAL_TAIL if local else _REMOTE_TAIL

    def run(files: range) -> list[bytes]:
        names, sizes = (column.slice(files.start, len(files)).to_pylist() for column in (listed.path, listed.size))
        return _whole(storage, names, sizes, ends(names, sizes, guess), ends)

    count, workers = len(listed.path), threads or (_LOCAL_READERS if local else _REMOTE_READERS)
    longest = _LONGEST_STEP
    first = min(_FIRST, count) if local else 0
    if local:
        # Files of one folder mostly have footers of about one length: a few tell how much to read of the others.
        started = time.perf_counter()
        found = run(range(first))
        guess = int(np.sort(footer_lengths(found))[len(found) // 2]) * 5 // 4 + TRAILER_BYTES
        # Where files come from the system's memory, threads only get into each other's way.
        if threads is None and time.perf_counter() - started < _QUICK_SECONDS * len(found):
            workers, longest = 1, _LONGEST_QUICK_STEP
        yield found
    step = int(np.clip(min(longest, block_bytes // (4 * guess), -(-count // workers)), 1, None))
    rest = (range(start, min(start + step, count)) for start in range(first, count, step))
    if workers == 1:
        yield from map(run, rest)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting = deque(pool.submit(run, files) for files in islice(rest, 2 * workers))
        while waiting:
            done = waiting.popleft().result()
            waiting.extend(pool.submit(run, files) for files in islice(rest, 1))
            yield done


def _local_ends(root: str) -> _Ends:
    open_file, read_at, close, read_only = os.open, os.pread, os.close, os.O_RDONLY

    def ends(names: Sequence[str], sizes: Sequence[int], length: int) -> list[bytes]:
        found: list[bytes] = []
        add, located = found.append, ""
        try:
            # All that is done per file: each line of it is a fifth of a second in a million.
            for name, size in zip(names, sizes, strict=True):
                located = f"{root}/{name}"
                descriptor = open_file(located, read_only)
                try:
                    add(read_at(descriptor, length, size - length if size > length else 0))
                finally:
                    close(descriptor)
        except OSError as error:
            error.filename = located  # the error of a descriptor names no file
            raise
        return found

    return ends


def _remote_ends(storage: Readable) -> _Ends:
    def ends(names: Sequence[str], sizes: Sequence[int], length: int) -> list[bytes]:
        return [
            storage.read_range(name, max(0, size - length), min(size, length))
            for name, size in zip(names, sizes, strict=True)
        ]

    return ends


def _whole(
    storage: Readable, names: Sequence[str], sizes: Sequence[int], found: list[bytes], ends: _Ends
) -> list[bytes]:
    """The ends that were found, read once more where a footer begins before what was read."""
    lengths = np.array([len(end) for end in found], np.int64)
    trailers = [end[-TRAILER_BYTES:] for end in found]
    none = (lengths < _LEAST_BYTES) | ~np.array([trailer.endswith(b"PAR1") for trailer in trailers])
    for number in np.flatnonzero(none)[:1].tolist():
        magic = trailers[number][-4:]
        encrypted = " It is encrypted." if magic == b"PARE" else ""
        raise CorruptFile(
            f"The file {storage.uri_of(names[number])} is no Parquet file: it ends in {magic!r}.{encrypted}"
        )
    footers = footer_lengths(trailers)
    for number in np.flatnonzero(footers + _LEAST_BYTES > np.array(sizes))[:1].tolist():
        raise CorruptFile(f"The file {storage.uri_of(names[number])} is shorter than its footer says that it is.")
    for number in np.flatnonzero(footers + TRAILER_BYTES > lengths).tolist():
        length = int(footers[number]) + TRAILER_BYTES
        (found[number],) = ends(names[number : number + 1], sizes[number : number + 1], length)
        if len(found[number]) < length:
            raise CorruptFile(f"The file {storage.uri_of(names[number])} is shorter than it was listed.")
    return found


def footer_lengths(ends: Sequence[bytes]) -> np.ndarray:
    """The lengths of the footers in bytes, as the last bytes of the files give them."""
    trailers = np.frombuffer(b"".join([end[-TRAILER_BYTES:] for end in ends]), "<u4")
    return trailers[::2].astype(np.int64)
