"""Decodes deletion vectors, the numbers of a file's deleted rows, of Delta and Iceberg V3.

Both are a magic number and a 64-bit Roaring bitmap (Lemire 2016) in the portable format: in Delta in a file of its own
or as text in the log, in Iceberg a blob of a Puffin file.
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from zskip.errors import CorruptFile, MissingDependency, UnsupportedFormat
from zskip.storage.storage import Storage
from zskip.table_formats.source import RESTORE

_MAGIC = 1681511377
_SIZE, _CHECKSUM = struct.Struct(">i"), struct.Struct(">I")
FRAME = _SIZE.size + _CHECKSUM.size
"""The bytes around a bitmap in a file: its size before it, its checksum behind it."""

_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_UUID_DIGITS = 20


def positions(storage: Storage, vector: Mapping[str, Any]) -> np.ndarray:
    """The row numbers of a Delta deletion vector, ascending. Raises `CorruptFile` and `UnsupportedFormat`."""
    kind, location = vector["storageType"], str(vector["pathOrInlineDv"])
    where = f"the log of {storage.uri}"
    if kind == "i":
        data = _z85(location)
    elif kind == "u":
        prefix, name = location[:-_UUID_DIGITS], uuid.UUID(bytes=_z85(location[-_UUID_DIGITS:])[:16])
        path = f"{prefix}/deletion_vector_{name}.bin" if prefix else f"deletion_vector_{name}.bin"
        start, size = int(vector.get("offset") or 0), int(vector["sizeInBytes"])
        framed = storage.read_range(path, start, size + FRAME)
        where = f"{storage.uri_of(path)} at byte {start:,}"
        data = unframed(framed, size, where)
    else:
        raise UnsupportedFormat(
            f'The deletion vector {location} is outside of the table (storage type "{kind}"). zskip reads only those '
            "inside."
        )
    return bitmap_rows(data, int(vector["cardinality"]), where)


def unframed(framed: bytes, size: int, where: str) -> bytes:
    """The bitmap without the size before it and the checksum after it.

    ``size``: of the bitmap, in bytes · ``where``: the file and the offset, for errors. Raises `CorruptFile`.
    """
    data = framed[_SIZE.size : _SIZE.size + size]
    if size < 0 or len(framed) != size + FRAME or _SIZE.unpack_from(framed)[0] != size:
        raise CorruptFile(f"The deletion vector in {where} is not one of {size:,} bytes. {RESTORE}")
    if _CHECKSUM.unpack_from(framed, _SIZE.size + size)[0] != zlib.crc32(data):
        raise CorruptFile(f"The deletion vector in {where} does not match its checksum. {RESTORE}")
    return data


def bitmap_rows(data: bytes, count: int, where: str) -> np.ndarray:
    """The row numbers in a bitmap with its magic number, ascending. ``count``: their expected number.

    Raises `CorruptFile`, which names ``where``.
    """
    try:
        from pyroaring import BitMap64
    except ImportError as error:
        raise MissingDependency('Deletion vectors need pyroaring: pip install "zskip[delta]"') from error
    if len(data) < 4 or struct.unpack_from("<i", data)[0] != _MAGIC:
        raise CorruptFile(f"The deletion vector in {where} does not start with its magic number. {RESTORE}")
    try:
        rows = np.array(BitMap64.deserialize(data[4:]).to_array(), np.int64)
    except ValueError as error:
        raise CorruptFile(f"The deletion vector in {where} is not a valid bitmap: {error}. {RESTORE}") from error
    if len(rows) != count:
        raise CorruptFile(f"The deletion vector in {where} holds {len(rows):,} rows, not {count:,}. {RESTORE}")
    return rows


def _z85(text: str) -> bytes:
    """Decode ZeroMQ's base 85, which has the digits of Python's in another order."""
    return base64.b85decode(text.encode().translate(bytes.maketrans(_Z85, _B85)))
