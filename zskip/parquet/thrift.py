"""Trace a Parquet footer: read it field by field in Thrift's compact protocol, and note its shape.

The shape is a list of steps, by which `zskip.parquet.batch_footers` parses other footers of the same writer.
Footers are refused if a field occurs twice or has the wrong type, or if row groups have different columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from zskip.parquet.batch_footers import Step

CHUNK_FIELDS: Final[dict[tuple[int, ...], tuple[str, ...]]] = {
    # field numbers below ColumnChunk: the names of a text's offset and length, or of a number or flag
    (3, 12, 6): ("lower_at", "lower_length"),
    (3, 12, 5): ("upper_at", "upper_length"),
    (3, 12, 2): ("old_lower_at", "old_lower_length"),
    (3, 12, 1): ("old_upper_at", "old_upper_length"),
    (3, 12, 3): ("null_count",),
    (3, 12, 9): ("nan_count",),
    (3, 12, 8): ("lower_exact",),
    (3, 12, 7): ("upper_exact",),
}
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = range(1, 14)
_VARINTS = (_I16, _I32, _I64)
_ROW_GROUP, _CHUNK = (4, 0), (4, 0, 1, 0)
# The types that each field may have, by the path of field numbers, in which 0 is an element of a list.
_TYPES: Final = {
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
_KEPT_PAIRS = (b"ARROW:schema", b"org.apache.spark.")
_DEEPEST, _LONGEST_VARINT, _MOST = 64, 10, (1 << 64) - 1


@dataclass(slots=True)
class Chunk:
    """One column chunk. ``places``: the places of its statistics, or the values of flags · ``path``: of its column."""

    places: dict[str, int | bool] = field(default_factory=dict)
    path: list[bytes] = field(default_factory=list)
    physical: int = -1

    @property
    def leaf(self) -> tuple[bytes, int]:
        return b".".join(self.path), self.physical


@dataclass(slots=True)
class Shape:
    """The shape of a footer: its ``steps``, and the places of the values that are read.

    ``values``: those of the traced footer, by place · ``total_rows``: the place of the file's number of rows ·
    ``rows``: the place of each row group's number of rows
    """

    steps: list[Step] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    total_rows: int = -1
    rows: list[int] = field(default_factory=list)
    row_groups: list[list[Chunk]] = field(default_factory=list)
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
    """Reads one footer and notes its shape. Raises `ValueError`, and `IndexError` where the data ends too early."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.shape = data, 0, Shape()

    def footer(self) -> Shape:
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
        raise ValueError(f"a number has more than {_LONGEST_VARINT} bytes")

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
            raise ValueError("a text ends after the footer")

    def struct(self, where: tuple[int, ...]) -> set[int]:
        """Read a struct, and return the numbers of its fields."""
        fields: set[int] = set()
        last = 0
        while head := self.byte():
            step = head >> 4
            last = last + step if step else _zigzag(self.fixed_varint())
            if last in fields:
                raise ValueError(f"the field {'.'.join(map(str, (*where, last)))} occurs twice")
            fields.add(last)
            self.value(head & 15, (*where, last))
        return fields

    def value(self, type: int, where: tuple[int, ...]) -> None:
        if len(where) > _DEEPEST:
            raise ValueError("it is nested too deeply")
        if type not in _TYPES.get(where, (type,)):
            raise ValueError(f"the field {'.'.join(map(str, where))} has the type {type}")
        names = CHUNK_FIELDS.get(where[4:], ()) if where[:4] == _CHUNK else ()
        if type in (_TRUE, _FALSE):
            if names:
                self.chunk.places[names[0]] = type == _TRUE
        elif type in _VARINTS:
            self.integer(where, names)
        elif type == _BINARY:
            self.binary(where, names)
        elif type in (_LIST, _SET):
            self.list(where)
        elif type == _STRUCT:
            if where[:-1] == (7, 0):  # a union: the number of its field is the order
                self.shape.orders[-1] = where[-1]
            self.struct(where)
        elif type in (_BYTE, _DOUBLE, _UUID):
            self.fixed_bytes({_BYTE: 1, _DOUBLE: 8, _UUID: 16}[type])
        else:
            raise ValueError(f"a field has the unknown type {type}")

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
        elif where == (5, 0, 2) and self.shape.pairs and self.shape.pairs[-1][0].startswith(_KEPT_PAIRS):
            self.shape.pairs[-1] = (self.shape.pairs[-1][0], self.fixed_text())
        elif where == (*_CHUNK, 3, 3, 0):
            self.chunk.path.append(self.fixed_text())
        else:
            self.text(keep=False)

    def list(self, where: tuple[int, ...]) -> None:
        start, before = self.at, self.shape
        if where == (2,):  # the schema becomes one literal, so that a shape has one schema
            self.shape = Shape()
        head = self.byte()
        size, type = head >> 4, head & 15
        inner = (*where, 0)
        for _ in range(self.fixed_varint() if size == 15 else size):
            if inner == _ROW_GROUP:
                self.shape.row_groups.append([])
            elif inner == _CHUNK:
                self.shape.row_groups[-1].append(Chunk())
            elif inner == (7, 0):
                self.shape.orders.append(0)
            if type in (_TRUE, _FALSE):
                self.byte()
            else:
                self.value(type, inner)
        if where == (2,):
            self.shape = before
            self.shape.literal(self.data[start : self.at])

    @property
    def chunk(self) -> Chunk:
        return self.shape.row_groups[-1][-1]


def trace(data: bytes) -> Shape:
    """The shape of one footer. Raises `ValueError` for a damaged one."""
    try:
        return _Tracer(data).footer()
    except IndexError as error:
        raise ValueError("it ends too early") from error


def _zigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)
