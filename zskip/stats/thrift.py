"""Parquet footers by the thousand: one is read field by field, and its shape followed through all others at once.

Files of one writer have footers of one shape: the same fields in the same order, with other numbers and other bounds.
`trace` walks one footer in Thrift's compact protocol and notes the shape as a short program; `follow` runs a program
over many footers in lockstep with numpy, and says which of them really have that shape. The rest are traced in turn.

What is taken of a footer, as offsets and lengths into its bytes where it is not a number:
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from zskip.stats.batch_footers import Step, follow

__all__ = ["CHUNK_FIELDS", "Footers", "parse"]

CHUNK_FIELDS: Final[dict[tuple[int, ...], tuple[str, ...]]] = {
    # the path of field numbers below ColumnChunk: the places of its offset, and of its length, or of its value
    (3, 12, 6): ("lower_at", "lower_length"),
    (3, 12, 5): ("upper_at", "upper_length"),
    (3, 12, 2): ("old_lower_at", "old_lower_length"),
    (3, 12, 1): ("old_upper_at", "old_upper_length"),
    (3, 12, 3): ("null_count",),
    (3, 12, 9): ("nan_count",),
    (3, 12, 8): ("lower_exact",),
    (3, 12, 7): ("upper_exact",),
}
SLOTS: Final = tuple(name for names in CHUNK_FIELDS.values() for name in names)
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = 1, 2, 3, 7, 8, 9, 10, 11, 12, 13
_VARINTS = (4, 5, 6)
_TELLING = (b"ARROW:schema", b"org.apache.spark.")
_DEEPEST = 64
_NARROW, _FUTILE = 8, 16
_BLOCK_BYTES, _LEAST_BLOCK = 16 << 20, 512


@dataclass(frozen=True, slots=True)
class Footers:
    """Footers of one schema text and one writer. ``files``: which of the footers that were given.

    ``rows``: of each row group, one row group after another; ``row_groups``: how many each file has.
    ``pairs``: the key-value metadata that say how the values are to be read; of other pairs the keys alone.
    ``places``: per row group, and per leaf column in it, where in ``kept`` each of its fields is, or a flag's value.
    ``kept``: a row a place, a column a footer. ``data``: the bytes of all footers, in which offsets count.
    """

    files: np.ndarray
    created_by: bytes
    pairs: dict[bytes, bytes]
    paths: tuple[bytes, ...]
    orders: tuple[int, ...]
    rows: np.ndarray
    row_groups: np.ndarray
    places: Sequence[Sequence[Mapping[str, int | bool]]]
    kept: np.ndarray
    data: np.ndarray

    def slots(self, column: int) -> dict[str, np.ndarray]:
        """The fields of `SLOTS` for a leaf column: one number per row group, -1 where absent."""
        absent = np.full(len(self.files), -1, np.int64)

        def of_group(chunks: Sequence[Mapping[str, int | bool]], name: str) -> np.ndarray:
            place = chunks[column].get(name)
            if place is None:
                return absent
            return np.full(len(self.files), place, np.int64) if isinstance(place, bool) else self.kept[place]

        return {name: np.stack([of_group(one, name) for one in self.places], axis=1).reshape(-1) for name in SLOTS}


@dataclass(slots=True)
class _Shape:
    """A footer's shape: literal bytes, numbers (varints) and texts (length and bytes) in their order.

    A step is a literal's bytes, or the place where its number, or its offset and length, is kept (-1: nowhere).
    """

    steps: list[Step] = field(default_factory=list)
    values: list[int] = field(default_factory=list)  # this footer's own, at their places
    rows: list[int] = field(default_factory=list)  # per row group: the place of its number of rows
    chunks: list[list[dict[str, int | bool]]] = field(default_factory=list)  # per row group, per column: places
    paths: list[list[bytes]] = field(default_factory=list)
    orders: list[int] = field(default_factory=list)
    pairs: list[tuple[bytes, bytes]] = field(default_factory=list)
    schema: bytes = b""
    created_by: bytes = b""

    def literal(self, data: bytes) -> None:
        if self.steps and isinstance(self.steps[-1], bytes):
            self.steps[-1] += data
        else:
            self.steps.append(data)


class _Tracer:
    """Reads one footer and notes its shape."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.shape = data, 0, _Shape()

    def byte(self) -> int:
        value = self.data[self.at]
        self.shape.literal(self.data[self.at : self.at + 1])
        self.at += 1
        return value

    def plain_varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 70:
                raise ValueError("a number of more than ten bytes")

    def fixed_varint(self) -> int:
        start = self.at
        value = self.plain_varint()
        self.shape.literal(self.data[start : self.at])
        return value

    def number(self, keep: bool) -> int:
        place = len(self.shape.values) if keep else -1
        value = _zigzag(self.plain_varint())
        if keep:
            self.shape.values.append(value)
        self.shape.steps.append(("number", place))
        return place

    def text(self, keep: bool) -> int:
        place = len(self.shape.values) if keep else -1
        length = self.plain_varint()
        if keep:
            self.shape.values += (self.at, length)
        self.skip(length)
        self.shape.steps.append(("text", place))
        return place

    def fixed_text(self) -> bytes:
        length = self.fixed_varint()
        start = self.at
        self.skip(length)
        self.shape.literal(self.data[start : self.at])
        return self.data[start : self.at]

    def skip(self, length: int) -> None:
        self.at += length
        if self.at > len(self.data):
            raise ValueError("a text that ends behind the footer")

    def size(self) -> tuple[int, int]:
        head = self.byte()
        size = head >> 4
        return (self.fixed_varint() if size == 15 else size), head & 15

    def struct(self, where: tuple[int, ...]) -> None:
        if len(where) > _DEEPEST:
            raise ValueError("a footer nested too deeply")
        last = 0
        while head := self.byte():
            step = head >> 4
            last = last + step if step else _zigzag(self.fixed_varint())
            self.value(head & 15, (*where, last))

    def value(self, kind: int, where: tuple[int, ...]) -> None:
        chunk = where[4:] if len(where) > 4 and where[0] == 4 and where[2] == 1 else None
        names = CHUNK_FIELDS.get(chunk) if chunk is not None else None
        if kind in (_TRUE, _FALSE):
            if names:
                self.chunk(where)[names[0]] = kind == _TRUE
        elif kind in _VARINTS:
            place = self.number(keep=names is not None or (len(where) == 3 and where[0] == 4 and where[2] == 3))
            if names:
                self.chunk(where)[names[0]] = place
            elif place >= 0:
                self.shape.rows.append(place)
        elif kind == _BINARY:
            self.binary(where, names)
        elif kind in (_LIST, _SET):
            self.list(where)
        elif kind == _STRUCT:
            self.struct(where)
        elif kind in (_BYTE, _DOUBLE, _UUID):
            self.fixed_bytes({_BYTE: 1, _DOUBLE: 8, _UUID: 16}[kind])
        else:
            raise ValueError(f"a field of the unknown kind {kind}")

    def fixed_bytes(self, length: int) -> None:
        start = self.at
        self.skip(length)
        self.shape.literal(self.data[start : self.at])

    def binary(self, where: tuple[int, ...], names: tuple[str, ...] | None) -> None:
        if names:
            place = self.text(keep=True)
            self.chunk(where)[names[0]], self.chunk(where)[names[1]] = place, place + 1
        elif where[0] == 6 and len(where) == 1:
            self.shape.created_by = self.fixed_text()
        elif where[0] == 5 and where[-1] == 1:
            self.shape.pairs.append((self.fixed_text(), b""))
        elif where[0] == 5 and where[-1] == 2 and self.shape.pairs:
            key, _ = self.shape.pairs[-1]
            self.shape.pairs[-1] = (key, self.fixed_text() if key.startswith(_TELLING) else b"")
            if not key.startswith(_TELLING):
                self.text(keep=False)
        elif len(where) > 6 and where[4:7] == (3, 3, where[6]):
            self.shape.paths[-1].append(self.fixed_text())
        else:
            self.text(keep=False)

    def list(self, where: tuple[int, ...]) -> None:
        if where == (2,):
            self.schema()
            return
        size, kind = self.size()
        for number in range(size):
            inner = (*where, number)
            if len(inner) == 2 and where == (4,):
                self.shape.chunks.append([])
                self.shape.paths.clear()
            elif len(inner) == 4 and where[0] == 4 and where[2] == 1:
                self.shape.chunks[-1].append({})
                self.shape.paths.append([])
            if where == (7,):
                self.shape.orders.append(self.data[self.at] >> 4)
            if kind in (_TRUE, _FALSE):
                self.byte()
            else:
                self.value(kind, inner)

    def schema(self) -> None:
        """The schema's elements, as one literal: files of one shape have one schema."""
        outer, start = self.shape, self.at
        self.shape = _Shape()
        size, _ = self.size()
        for number in range(size):
            self.struct((2, number))
        self.shape = outer
        self.shape.schema = self.data[start : self.at]
        self.shape.literal(self.shape.schema)

    def chunk(self, where: tuple[int, ...]) -> dict[str, int | bool]:
        return self.shape.chunks[where[1]][where[3]]


def trace(data: bytes) -> _Shape:
    """The shape of one footer. Raises `ValueError` where it is not one."""
    tracer = _Tracer(data)
    try:
        tracer.struct(())
    except IndexError as error:
        raise ValueError("a footer that breaks off") from error
    return tracer.shape


def _zigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def parse(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> tuple[list[Footers], list[tuple[int, str]]]:
    """All footers, in groups of one shape, and those that are none, by number, each with what is wrong.

    ``data``: the bytes that `joined` gave; footer i stands from ``starts[i]`` to ``ends[i]`` in them.
    """
    groups: list[Footers] = []
    broken: list[tuple[int, str]] = []
    rest = np.arange(len(starts))
    futile = 0
    while len(rest):
        first = int(rest[0])
        try:
            shape = trace(data[starts[first] : ends[first]].tobytes())
        except ValueError as error:
            broken.append((first, str(error)))
            rest = rest[1:]
            continue
        # Where shapes turn out to be many and rarely shared, looking for others of the same is not worth its cost.
        chosen = rest if futile < _FUTILE else rest[:1]
        if len(chosen) == 1:
            good, kept = np.ones(1, bool), _alone(shape, starts[first])
        else:
            good, kept = _followed(shape, data, starts[chosen], ends[chosen])
        if not good[0]:
            broken.append((first, "a footer that cannot be followed"))
            rest = rest[1:]
            continue
        futile += good.sum() < min(_NARROW, len(rest))
        groups.append(_group(shape, chosen[good], kept, data))
        rest = np.concatenate([chosen[~good], rest[len(chosen) :]])
    return groups, broken


def _followed(shape: _Shape, data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`follow`, by blocks of as many footers as the processor's caches hold, in threads: numpy releases the lock."""
    block = int(np.clip(_BLOCK_BYTES * len(starts) // max(1, (ends - starts).sum()), _LEAST_BLOCK, len(starts)))
    firsts = range(0, len(starts), block)
    if len(firsts) == 1:
        return follow(shape.steps, len(shape.values), data, starts, ends)

    def part(first: int) -> tuple[np.ndarray, np.ndarray]:
        return follow(shape.steps, len(shape.values), data, starts[first : first + block], ends[first : first + block])

    with ThreadPoolExecutor() as pool:
        good, kept = zip(*pool.map(part, firsts), strict=True)
    return np.concatenate(good), np.concatenate(kept, axis=1)


def _alone(shape: _Shape, start: np.int64) -> np.ndarray:
    """What `follow` would keep of the footer itself that was traced."""
    kept = np.array(shape.values, np.int64).reshape(-1, 1)
    for of_group in shape.chunks:
        for places in of_group:
            offsets = [place for name, place in places.items() if name.endswith("_at")]
            kept[offsets] += start
    return kept


def _group(shape: _Shape, files: np.ndarray, kept: np.ndarray, data: np.ndarray) -> Footers:
    row_groups, columns = len(shape.chunks), len(shape.chunks[0]) if shape.chunks else 0
    if len(shape.rows) != row_groups or any(len(chunks) != columns for chunks in shape.chunks):
        raise ValueError("row groups of different columns")
    return Footers(
        files,
        shape.created_by,
        dict(shape.pairs),
        tuple(b".".join(path) for path in shape.paths),
        tuple(shape.orders),
        kept[shape.rows].T.reshape(-1) if row_groups else np.zeros(0, np.int64),
        np.full(len(files), row_groups, np.int64),
        shape.chunks,
        kept,
        data,
    )
