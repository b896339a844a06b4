"""Parse thousands of Parquet footers: one is read field by field, the others of the same shape together.

Files of one writer have footers of one shape: the same fields in the same order, with other numbers and other bounds.
`trace` walks one footer in Thrift's compact protocol and notes the shape as a short program; `follow` runs a program
over many footers side by side with numpy, and tells which of them really have that shape. The rest are traced in turn.

A parser of our own, because pyarrow and DuckDB's `parquet_metadata`, which it takes together to learn bounds and their
exactness, need 10 times the processor's time, and pyarrow 26 ends the process at a bound of the wrong length.

A footer is refused that has a field twice, a field of the wrong kind, row groups of different columns, or not as many
rows in its row groups as it counts. What is taken of one, as offsets and lengths where it is not a number:
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from zskip.parquet.batch_footers import Step, follow

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
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = range(1, 14)
_VARINTS = (_I16, _I32, _I64)
_ROW_GROUP, _CHUNK = (4, 0), (4, 0, 1, 0)
# What each field that is read must be, by the path of field numbers, in which 0 is an element of a list.
_KINDS: Final = {
    (1,): (_I32,),
    (2,): (_LIST,),
    (2, 0): (_STRUCT,),
    (3,): (_I64,),
    (4,): (_LIST,),
    _ROW_GROUP: (_STRUCT,),
    (*_ROW_GROUP, 1): (_LIST,),
    (*_ROW_GROUP, 3): (_I64,),
    _CHUNK: (_STRUCT,),
    (*_CHUNK, 3): (_STRUCT,),
    (*_CHUNK, 3, 1): (_I32,),
    (*_CHUNK, 3, 3): (_LIST,),
    (*_CHUNK, 3, 3, 0): (_BINARY,),
    (*_CHUNK, 3, 12): (_STRUCT,),
    **{
        (*_CHUNK, *path): (_BINARY,) if len(names) == 2 else (_I64,) if names[0].endswith("count") else (_TRUE, _FALSE)
        for path, names in CHUNK_FIELDS.items()
    },
    (5,): (_LIST,),
    (5, 0): (_STRUCT,),
    (5, 0, 1): (_BINARY,),
    (5, 0, 2): (_BINARY,),
    (6,): (_BINARY,),
    (7,): (_LIST,),
    (7, 0): (_STRUCT,),
}
_REQUIRED = {1: "version", 2: "schema", 3: "number of rows", 4: "row groups"}
_TELLING = (b"ARROW:schema", b"org.apache.spark.")
_DEEPEST, _LONGEST_VARINT, _MOST = 64, 10, (1 << 64) - 1
_NARROW, _FUTILE = 8, 16
_BLOCK_BYTES, _LEAST_BLOCK = 16 << 20, 512


@dataclass(frozen=True, slots=True)
class Footers:
    """Footers of one schema text and one writer. ``files``: which of the footers that were given.

    ``leaves``: path and physical type of each leaf column, the type as Parquet numbers them; none without row groups.
    ``orders``: of each leaf column's bounds; 1 is the order of its type.
    ``rows``: of each row group, one row group after another; ``row_groups``: how many each file has.
    ``pairs``: the key-value metadata that say how the values are to be read; of other pairs the keys alone.
    ``places``: per row group, and per leaf column in it, where in ``kept`` each of its fields is, or a flag's value.
    ``kept``: a row a place, a column a footer. ``data``: the bytes of all footers, in which offsets count.
    """

    files: np.ndarray
    created_by: bytes
    pairs: dict[bytes, bytes]
    leaves: tuple[tuple[bytes, int], ...]
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
class _Chunk:
    """What is read of one column chunk: the places of its statistics, its column's path, its physical type."""

    places: dict[str, int | bool] = field(default_factory=dict)
    path: list[bytes] = field(default_factory=list)
    physical: int = -1

    @property
    def leaf(self) -> tuple[bytes, int]:
        return b".".join(self.path), self.physical


@dataclass(slots=True)
class _Shape:
    """A footer's shape: literal bytes, numbers (varints) and texts (length and bytes) in their order.

    A step is a literal's bytes, or the place where its number, or its offset and length, is kept (-1: nowhere).
    """

    steps: list[Step] = field(default_factory=list)
    values: list[int] = field(default_factory=list)  # this footer's own, at their places
    total_rows: int = -1  # the place of the file's number of rows
    rows: list[int] = field(default_factory=list)  # per row group: the place of its number of rows
    row_groups: list[list[_Chunk]] = field(default_factory=list)
    orders: list[int] = field(default_factory=list)
    pairs: list[tuple[bytes, bytes]] = field(default_factory=list)
    created_by: bytes = b""

    def literal(self, data: bytes) -> None:
        if self.steps and isinstance(self.steps[-1], bytes):
            self.steps[-1] += data
        else:
            self.steps.append(data)

    @property
    def leaves(self) -> tuple[tuple[bytes, int], ...]:
        return tuple(chunk.leaf for chunk in self.row_groups[0]) if self.row_groups else ()


class _Tracer:
    """Reads one footer and notes its shape. Raises `ValueError` and `IndexError` where it is none."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.shape = data, 0, _Shape()

    def footer(self) -> _Shape:
        fields = self.struct(())
        for number, name in _REQUIRED.items():
            if number not in fields:
                raise ValueError(f"it has no {name}")
        shape = self.shape
        if len(shape.rows) != len(shape.row_groups):
            raise ValueError("a row group has no number of rows")
        for number, chunks in enumerate(shape.row_groups):
            if tuple(chunk.leaf for chunk in chunks) != shape.leaves:
                raise ValueError(f"row group {number} has other columns than row group 0")
        return shape

    def byte(self) -> int:
        value = self.data[self.at]
        self.shape.literal(self.data[self.at : self.at + 1])
        self.at += 1
        return value

    def varint(self) -> int:
        value = 0
        for shift in range(0, 7 * _LONGEST_VARINT, 7):
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & _MOST
        raise ValueError(f"a number of more than {_LONGEST_VARINT} bytes")

    def fixed_varint(self) -> int:
        start = self.at
        value = self.varint()
        self.shape.literal(self.data[start : self.at])
        return value

    def number(self, keep: bool) -> int:
        place = len(self.shape.values) if keep else -1
        value = _zigzag(self.varint())
        if keep:
            self.shape.values.append(value)
        self.shape.steps.append(("number", place))
        return place

    def text(self, keep: bool) -> int:
        place = len(self.shape.values) if keep else -1
        length = self.varint()
        if keep:
            self.shape.values += (self.at, length)
        self.skip(length)
        self.shape.steps.append(("text", place))
        return place

    def fixed_text(self) -> bytes:
        return self.fixed_bytes(self.fixed_varint())

    def fixed_bytes(self, length: int) -> bytes:
        start = self.at
        self.skip(length)
        self.shape.literal(self.data[start : self.at])
        return self.data[start : self.at]

    def skip(self, length: int) -> None:
        self.at += length
        if self.at > len(self.data):
            raise ValueError("a text that ends behind the footer")

    def struct(self, where: tuple[int, ...]) -> set[int]:
        """Read a struct, and return the numbers of its fields."""
        fields: set[int] = set()
        last = 0
        while head := self.byte():
            step = head >> 4
            last = last + step if step else _zigzag(self.fixed_varint())
            if last in fields:
                raise ValueError(f"a field that stands twice: {'.'.join(map(str, (*where, last)))}")
            fields.add(last)
            self.value(head & 15, (*where, last))
        return fields

    def value(self, kind: int, where: tuple[int, ...]) -> None:
        if len(where) > _DEEPEST:
            raise ValueError("it is nested too deeply")
        if kind not in _KINDS.get(where, (kind,)):
            raise ValueError(f"a field of the wrong kind: {'.'.join(map(str, where))} is of kind {kind}")
        names = CHUNK_FIELDS.get(where[4:], ()) if where[:4] == _CHUNK else ()
        if kind in (_TRUE, _FALSE):
            if names:
                self.chunk.places[names[0]] = kind == _TRUE
        elif kind in _VARINTS:
            self.integer(where, names)
        elif kind == _BINARY:
            self.binary(where, names)
        elif kind in (_LIST, _SET):
            self.list(where)
        elif kind == _STRUCT:
            if where[:-1] == (7, 0):  # a union: its one field is the order
                self.shape.orders[-1] = where[-1]
            self.struct(where)
        elif kind in (_BYTE, _DOUBLE, _UUID):
            self.fixed_bytes({_BYTE: 1, _DOUBLE: 8, _UUID: 16}[kind])
        else:
            raise ValueError(f"a field of the unknown kind {kind}")

    def integer(self, where: tuple[int, ...], names: tuple[str, ...]) -> None:
        if names:
            self.chunk.places[names[0]] = self.number(keep=True)
        elif where == (3,):
            self.shape.total_rows = self.number(keep=True)
        elif where == (*_ROW_GROUP, 3):
            self.shape.rows.append(self.number(keep=True))
        elif where == (*_CHUNK, 3, 1):
            self.chunk.physical = _zigzag(self.fixed_varint())
        else:
            self.number(keep=False)

    def binary(self, where: tuple[int, ...], names: tuple[str, ...]) -> None:
        if names:
            place = self.text(keep=True)
            self.chunk.places |= {names[0]: place, names[1]: place + 1}
        elif where == (6,):
            self.shape.created_by = self.fixed_text()
        elif where == (5, 0, 1):
            self.shape.pairs.append((self.fixed_text(), b""))
        elif where == (5, 0, 2) and self.shape.pairs and self.shape.pairs[-1][0].startswith(_TELLING):
            self.shape.pairs[-1] = (self.shape.pairs[-1][0], self.fixed_text())
        elif where == (*_CHUNK, 3, 3, 0):
            self.chunk.path.append(self.fixed_text())
        else:
            self.text(keep=False)

    def list(self, where: tuple[int, ...]) -> None:
        start, before = self.at, self.shape
        if where == (2,):  # the schema is one literal: files of one shape have one schema
            self.shape = _Shape()
        head = self.byte()
        size, kind = head >> 4, head & 15
        inner = (*where, 0)
        for _ in range(self.fixed_varint() if size == 15 else size):
            if inner == _ROW_GROUP:
                self.shape.row_groups.append([])
            elif inner == _CHUNK:
                self.shape.row_groups[-1].append(_Chunk())
            elif inner == (7, 0):
                self.shape.orders.append(0)
            if kind in (_TRUE, _FALSE):
                self.byte()
            else:
                self.value(kind, inner)
        if where == (2,):
            self.shape = before
            self.shape.literal(self.data[start : self.at])

    @property
    def chunk(self) -> _Chunk:
        return self.shape.row_groups[-1][-1]


def trace(data: bytes) -> _Shape:
    """The shape of one footer. Raises `ValueError` where it is not one."""
    try:
        return _Tracer(data).footer()
    except IndexError as error:
        raise ValueError("it breaks off") from error


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
            broken.append((first, "it cannot be followed"))
            rest = rest[1:]
            continue
        futile += good.sum() < min(_NARROW, len(rest))
        files = chosen[good]
        counted = _counts_agree(shape, kept)
        broken += [(int(file), "its row groups do not have the rows that it counts") for file in files[~counted]]
        groups.append(_group(shape, files[counted], kept[:, counted], data))
        rest = np.concatenate([chosen[~good], rest[len(chosen) :]])
    return groups, broken


def _counts_agree(shape: _Shape, kept: np.ndarray) -> np.ndarray:
    """Whose row groups have as many rows together as the file, none a number below zero."""
    rows = kept[shape.rows]
    agree: np.ndarray = (rows >= 0).all(axis=0) & (rows.sum(axis=0) == kept[shape.total_rows])
    return agree


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
    for chunks in shape.row_groups:
        for chunk in chunks:
            kept[[place for name, place in chunk.places.items() if name.endswith("_at")]] += start
    return kept


def _group(shape: _Shape, files: np.ndarray, kept: np.ndarray, data: np.ndarray) -> Footers:
    return Footers(
        files,
        shape.created_by,
        dict(shape.pairs),
        shape.leaves,
        tuple(shape.orders),
        kept[shape.rows].T.reshape(-1),
        np.full(len(files), len(shape.row_groups), np.int64),
        [[chunk.places for chunk in chunks] for chunks in shape.row_groups],
        kept,
        data,
    )
