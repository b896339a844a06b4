"""Parts: the files of the index, each recorded in a snapshot with its size and a digest of each block.

A reader fetches the blocks that cover a byte range, and checks the digest of each before it uses them. So ranged reads
are checked like whole ones. A part of a few files lies in the log entry itself (`InlinePart`).
"""

from __future__ import annotations

import io
import itertools
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

import pyarrow as pa
import xxhash

from zskip.core.types import Json, decode_typed, encode_typed
from zskip.errors import DamagedIndex, UnsafePath, UnsupportedFormat
from zskip.storage.local import LocalStorage
from zskip.storage.staged import Staged
from zskip.storage.storage import Storage

if TYPE_CHECKING:
    from typing_extensions import Buffer

BLOCK_BYTES = 1 << 20
_DIGEST_BYTES = 8
_NAME = re.compile(r"_zskip/(stats|layout|sketches)/[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
_LARGEST = 1 << 36
_SMALL = 1 << 20
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Part:
    """A file of the side-car: its ``size`` in bytes, and the XXH3-64 digests of its 1 MiB blocks, concatenated."""

    path: str
    size: int
    digests: bytes

    def to_json(self) -> dict[str, str | int]:
        return {"path": self.path, "size": self.size, "xxh3_64": self.digests.hex()}

    @staticmethod
    def from_json(json: object) -> Part:
        """Raises `UnsafePath` for a path outside the side-car, `ValueError` for any other invalid field."""
        match json:
            case {"path": str(path), "size": int(size), "xxh3_64": str(digests)}:
                if not _NAME.fullmatch(path):
                    raise UnsafePath(f'A snapshot names "{path}" as a part of its index, which it cannot be.')
                part = Part(path, size, bytes.fromhex(digests))
                if not 0 < size < _LARGEST or len(part.digests) != _DIGEST_BYTES * -(-size // BLOCK_BYTES):
                    raise ValueError(f"the part {path} cannot have {size} bytes and {len(part.digests)} of digests")
                return part
        raise ValueError("a part needs a path, a size and its digests")


@dataclass(frozen=True, slots=True)
class InlinePart:
    """A small part in the log entry itself. ``columns``: each one as `encode_typed` gives it."""

    columns: Mapping[str, Json]

    @staticmethod
    def of(columns: Mapping[str, pa.Array]) -> InlinePart | None:
        """These columns as JSON; None if one of them is of a type that has no JSON form."""
        try:
            typed = {name: encode_typed(values) for name, values in columns.items()}
            return InlinePart(typed) if all(decode_typed(typed[name]).equals(columns[name]) for name in typed) else None
        except (UnicodeDecodeError, UnsupportedFormat):
            return None

    def column(self, name: str) -> pa.Array:
        """A column's values."""
        return decode_typed(self.columns[name])

    def to_json(self) -> dict[str, Json]:
        return {"columns": dict(self.columns)}

    @staticmethod
    def from_json(json: Json, rows: int) -> InlinePart:
        """Raises `TypeError` or `ValueError` for columns that do not have one value for each of the rows."""
        columns = json["columns"]
        for name, form in columns.items():
            if not isinstance(form["type"], str) or not isinstance(form["values"], list):
                raise TypeError(f'"{name}" has no type and values')
            if len(form["values"]) != rows:
                raise ValueError(f'"{name}" has {len(form["values"])} values for {rows} rows')
        if "path" not in columns and "file" not in columns:
            raise ValueError("a part names its files")
        return InlinePart(columns)


class Drafts:
    """The parts written for one change, under a run of its own. ``staged`` removes them if the change is not made."""

    def __init__(self, storage: Storage, staged: Staged) -> None:
        self.storage, self._staged = storage, staged
        self._run, self._numbers = secrets.token_hex(8), itertools.count()
        self._begun: list[str] = []

    def _name(self, folder: str, suffix: str) -> str:
        path = f"_zskip/{folder}/{self._run}-{next(self._numbers)}{suffix}"
        self._begun.append(path)
        self._staged.add([path])
        return path

    def publish(self, folder: str, suffix: str, data: bytes) -> Part:
        """Write a part durably under a unique name. ``folder``: "stats", "layout" or "sketches"."""
        path = self._name(folder, suffix)
        self.storage.put(path, data)
        blocks = (memoryview(data)[start : start + BLOCK_BYTES] for start in range(0, len(data), BLOCK_BYTES))
        return Part(path, len(data), b"".join(xxhash.xxh3_64_digest(block) for block in blocks))

    def write(self, folder: str, suffix: str, write: Callable[[BinaryIO], _Value]) -> tuple[Part, _Value]:
        """As `publish`, for data that ``write`` streams to a file; also returns the result of ``write``."""
        path = self._name(folder, suffix)
        with self.storage.open_writer(path) as target:
            digested = _Digested(target)
            value = write(cast(BinaryIO, digested))
        self.storage.make_durable([path])
        return digested.part(path), value

    @property
    def paths(self) -> frozenset[str]:
        """The parts that were started; some may be incomplete."""
        return frozenset(self._begun)

    def discard(self, keep: Collection[str] = ()) -> None:
        """Remove all parts that no version names, incomplete ones included, except those to keep."""
        unused = [path for path in self._begun if path not in keep]
        self._begun = [path for path in self._begun if path in keep]
        with suppress(Exception):  # of whatever class: it would hide a failure, or a commit that was made
            self.storage.delete(unused)


class _Digested(io.RawIOBase):
    """Writes to another file, and computes the digest of each block."""

    def __init__(self, target: BinaryIO) -> None:
        super().__init__()
        self._target, self._size = target, 0
        self._block, self._digests = xxhash.xxh3_64(), bytearray()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Buffer, /) -> int:
        view = memoryview(data).cast("B")
        self._target.write(view)
        for start in range(0, len(view), BLOCK_BYTES):
            piece = view[start : start + BLOCK_BYTES]
            left = BLOCK_BYTES - self._size % BLOCK_BYTES
            self._block.update(piece[:left])
            if len(piece) >= left:
                self._digests += self._block.digest()
                self._block = xxhash.xxh3_64(piece[left:])
            self._size += len(piece)
        return len(view)

    def part(self, path: str) -> Part:
        last = self._block.digest() if self._size % BLOCK_BYTES else b""
        return Part(path, self._size, bytes(self._digests) + last)


def read_part(storage: Storage, part: Part) -> bytes:
    """A whole part, every block checked. Raises `DamagedIndex`."""
    return PartFile(storage, part).read()


def is_intact(storage: Storage, part: Part | InlinePart) -> bool:
    """Whether a part exists and all its blocks match their digests."""
    if isinstance(part, InlinePart):
        return True  # the digest of its entry covers it
    try:
        read_part(storage, part)
    except DamagedIndex:
        return False
    return True


class PartFile(io.RawIOBase):
    """A part as a readable file. Blocks are fetched and checked on first use. Raises `DamagedIndex`."""

    def __init__(self, storage: Storage, part: Part) -> None:
        super().__init__()
        self._storage, self._part = storage, part
        self._blocks: dict[int, bytes] = {}
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._part.size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        start = self._position
        end = self._part.size if size < 0 else min(start + size, self._part.size)
        if end <= start:
            return b""
        self.fetch([(start, end)])
        first, last = start // BLOCK_BYTES, (end - 1) // BLOCK_BYTES
        self._position = end
        if first == last:
            return self._blocks[first][start - first * BLOCK_BYTES : end - first * BLOCK_BYTES]
        whole = b"".join(self._blocks[block] for block in range(first, last + 1))
        return whole[start - first * BLOCK_BYTES : end - first * BLOCK_BYTES]

    def fetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Fetch the blocks of these byte ranges (start, end), with one request per run of missing blocks."""
        wanted = {
            block
            for start, end in ranges
            for block in range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES))
            if block not in self._blocks
        }
        runs: list[tuple[int, int]] = []
        for block in sorted(wanted):
            if runs and runs[-1][1] == block:
                runs[-1] = (runs[-1][0], block + 1)
            else:
                runs.append((block, block + 1))
        if len(runs) == 1 or self._storage.local is not None:
            for run in runs:
                self._read_run(run)
        elif runs:
            with ThreadPoolExecutor(min(len(runs), 8)) as pool:
                list(pool.map(self._read_run, runs))

    @property
    def kept_bytes(self) -> int:
        """The most bytes that stay in memory after `release`."""
        return self._part.size if self._part.size <= _SMALL else 0

    def release(self) -> None:
        """Drop the fetched blocks, unless the part is small."""
        if self._part.size > _SMALL:
            self._blocks.clear()

    def _read_run(self, run: tuple[int, int]) -> None:
        part, (first, last) = self._part, run
        start = first * BLOCK_BYTES
        length = min(last * BLOCK_BYTES, part.size) - start
        try:
            data = self._storage.read_range(part.path, start, length)
        except FileNotFoundError as error:
            raise DamagedIndex(lost(self._storage, part, "is missing", maybe_vacuumed=True)) from error
        if len(data) != length:
            raise DamagedIndex(lost(self._storage, part, f"is shorter than its {part.size:,} bytes"))
        for block in range(first, last):
            piece = data[(block - first) * BLOCK_BYTES : (block - first + 1) * BLOCK_BYTES]
            expected = part.digests[block * _DIGEST_BYTES : (block + 1) * _DIGEST_BYTES]
            if xxhash.xxh3_64_digest(piece) != expected:
                raise DamagedIndex(lost(self._storage, part, f"fails its checksum in block {block}"))
            self._blocks[block] = piece


def lost(storage: Storage, part: Part | InlinePart, what: str, *, maybe_vacuumed: bool = False) -> str:
    """The error message for a part that does not match its snapshot, with the one thing to do.

    ``what``: the defect, as a predicate · ``maybe_vacuumed``: whether a vacuum since the opening may explain it.
    """
    if isinstance(part, InlinePart):
        return f"A part in an entry of the log of {storage.uri} {what}. Open an older version (version=N)."
    if isinstance(storage, LocalStorage) and not storage.durable:
        return f"The file {storage.uri_of(part.path)} of the cache {what}. Open the table again: it is made anew then."
    again = "Open the table again. If this is said then, too, make it" if maybe_vacuumed else "Make it"
    return (
        f"The part {part.path} of the index of {storage.uri} {what}. {again} again from the data files: "
        "zskip index --repair, or zskip.repair(path). What only older versions name cannot be made again: a vacuum "
        "with a shorter older_than= expires these versions."
    )
