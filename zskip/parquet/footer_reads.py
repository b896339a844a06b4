"""Read the ends of Parquet files, which hold the footers: mostly with one request per file, sometimes with two."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final

import numpy as np

from zskip.errors import CorruptFile
from zskip.storage import Listing, Storage

TRAILER_BYTES: Final = 8  # after the footer: its length, and PAR1
_LEAST_BYTES = 12  # of a file, which begins with PAR1 too
_LOCAL_TAIL, _REMOTE_TAIL = 8 << 10, 64 << 10
_LOCAL_READERS, _REMOTE_READERS = 4, 32
_FIRST, _QUICK_SECONDS = 16, 100e-6
_LONGEST_STEP, _LONGEST_QUICK_STEP = 256, 4096
_Ends = Callable[[Sequence[str], Sequence[int], int], list[bytes]]


def read(storage: Storage, listed: Listing, threads: int | None, block_bytes: int) -> Iterator[list[bytes]]:
    """Yield the ends of the listed files in their order, several at a time. Each includes the whole footer.

    ``block_bytes``: the approximate number of bytes that the caller holds at once, which limits each step. Raises
    `CorruptFile` for a file that does not end like Parquet.
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
    if first:
        # The footers of a folder's files mostly have similar lengths, so a few show how much to read of the others.
        started = time.perf_counter()
        found = run(range(first))
        guess = int(np.sort(footer_lengths(found))[len(found) // 2]) * 5 // 4 + TRAILER_BYTES
        # Threads do not help if the files are in the page cache.
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
            # Everything that is done per file: each line costs 0.2 s per million files.
            for name, size in zip(names, sizes, strict=True):
                located = f"{root}/{name}"
                descriptor = open_file(located, read_only)
                try:
                    add(read_at(descriptor, length, size - length if size > length else 0))
                finally:
                    close(descriptor)
        except OSError as error:
            error.filename = located  # an error of os.pread names no file
            raise
        return found

    return ends


def _remote_ends(storage: Storage) -> _Ends:
    def ends(names: Sequence[str], sizes: Sequence[int], length: int) -> list[bytes]:
        return [
            storage.read_range(name, max(0, size - length), min(size, length))
            for name, size in zip(names, sizes, strict=True)
        ]

    return ends


def _whole(
    storage: Storage, names: Sequence[str], sizes: Sequence[int], found: list[bytes], ends: _Ends
) -> list[bytes]:
    """The ends of files, read again from the start of the footer if the first read did not include all of it."""
    lengths = np.array([len(end) for end in found], np.int64)
    trailers = [end[-TRAILER_BYTES:] for end in found]
    none = (lengths < _LEAST_BYTES) | ~np.array([trailer.endswith(b"PAR1") for trailer in trailers])
    for number in np.flatnonzero(none)[:1].tolist():
        magic = trailers[number][-4:]
        encrypted = " It is encrypted." if magic == b"PARE" else ""
        raise CorruptFile(
            f"The file {storage.uri_of(names[number])} is not a Parquet file: it ends with {magic!r}.{encrypted}"
        )
    footers = footer_lengths(trailers)
    for number in np.flatnonzero(footers + _LEAST_BYTES > np.array(sizes))[:1].tolist():
        raise CorruptFile(f"The file {storage.uri_of(names[number])} is shorter than its footer says.")
    for number in np.flatnonzero(footers + TRAILER_BYTES > lengths).tolist():
        length = int(footers[number]) + TRAILER_BYTES
        (found[number],) = ends(names[number : number + 1], sizes[number : number + 1], length)
        if len(found[number]) < length:
            raise CorruptFile(f"The file {storage.uri_of(names[number])} is shorter than listed.")
    return found


def footer_lengths(ends: Sequence[bytes]) -> np.ndarray:
    """The lengths of the footers in bytes, which the last bytes of the files state."""
    trailers = np.frombuffer(b"".join([end[-TRAILER_BYTES:] for end in ends]), "<u4")
    return trailers[::2].astype(np.int64)
