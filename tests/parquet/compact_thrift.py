"""Thrift's compact protocol as nested Python lists, so that tests can change a footer's fields and not only its bytes.

A struct is a list of fields ``[number, kind, value]``; a list is ``(element kind, [values])``.
"""

from __future__ import annotations

from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
Fields = list[list[Any]]


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, length: int) -> bytes:
        self.at += length
        return self.data[self.at - length : self.at]

    def varint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def number(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def struct(self) -> Fields:
        fields: Fields = []
        last = 0
        while head := self.take(1)[0]:
            last = last + (head >> 4) if head >> 4 else self.number()
            fields.append([last, head & 15, self.value(head & 15)])
        return fields

    def value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE):
            return None
        if kind in (I16, I32, I64):
            return self.number()
        if kind in (BYTE, DOUBLE):
            return self.take(1 if kind == BYTE else 8)
        if kind == BINARY:
            return self.take(self.varint())
        if kind == STRUCT:
            return self.struct()
        assert kind == LIST, kind
        (head,) = self.take(1)
        size = self.varint() if head >> 4 == 15 else head >> 4
        return (head & 15, [self.value(head & 15) for _ in range(size)])


def decode(footer: bytes) -> Fields:
    return Reader(footer).struct()


def encode(fields: Fields) -> bytes:
    return b"".join(
        bytes([kind]) + varint(number << 1 ^ number >> 63) + encode_value(kind, value) for number, kind, value in fields
    ) + bytes([0])


def encode_value(kind: int, value: Any) -> bytes:
    if kind in (I16, I32, I64):
        return varint((value << 1 ^ value >> 63) & (1 << 64) - 1)
    if kind == BINARY:
        return varint(len(value)) + bytes(value)
    if kind == STRUCT:
        return encode(value)
    if kind == LIST:
        element, values = value
        return bytes([0xF0 | element]) + varint(len(values)) + b"".join(encode_value(element, one) for one in values)
    return value or b""


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
