"""Deletion vectors: the numbers of a file's deleted rows, as Delta and Iceberg V3 keep them.

Both keep a 64-bit Roaring bitmap (Lemire 2016) in its portable form behind a magic number: Delta in a file of its own
or as text in the log, Iceberg as a blob of a Puffin file.
"""

from __future__ import annotations

import base64
import struct
import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np

from zskip.errors import CorruptFile, MissingDependency, UnsupportedFormat
from zskip.storage.storage import Storage

__all__ = ["bitmap_rows", "positions"]

_MAGIC = 1681511377
_SIZE_AND_MAGIC = struct.Struct(">i")
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_UUID_DIGITS = 20


def positions(storage: Storage, vector: Mapping[str, Any]) -> np.ndarray:
    """The row numbers of a Delta deletion vector, ascending. Raises `CorruptFile` and `UnsupportedFormat`."""
    kind, location = vector["storageType"], str(vector["pathOrInlineDv"])
    if kind == "i":
        data = _z85(location)
    elif kind == "u":
        prefix, name = location[:-_UUID_DIGITS], uuid.UUID(bytes=_z85(location[-_UUID_DIGITS:])[:16])
        path = f"{prefix}/deletion_vector_{name}.bin" if prefix else f"deletion_vector_{name}.bin"
        start, size = int(vector.get("offset") or 0), int(vector["sizeInBytes"])
        framed = storage.read_range(path, start, size + 8)
        if len(framed) < size + 8 or _SIZE_AND_MAGIC.unpack_from(framed)[0] != size:
            raise CorruptFile(
                f"The deletion vector in {storage.uri_of(path)} at byte {start:,} is not one of {size:,} bytes."
            )
        data = framed[4 : 4 + size]
    else:
        raise UnsupportedFormat(
            f'The deletion vector {location} is outside of the table (storage type "{kind}"). zskip reads only those '
            "inside."
        )
    rows = bitmap_rows(data)
    if len(rows) != int(vector["cardinality"]):
        raise CorruptFile(
            f"A deletion vector of {storage.uri} holds {len(rows):,} rows, not {vector['cardinality']:,}."
        )
    return rows


def bitmap_rows(data: bytes) -> np.ndarray:
    """The numbers in a bitmap behind its magic number. Raises `CorruptFile`."""
    try:
        from pyroaring import BitMap64
    except ImportError as error:
        raise MissingDependency('Deletion vectors need pyroaring: pip install "zskip[delta]"') from error
    if len(data) < 4 or struct.unpack_from("<i", data)[0] != _MAGIC:
        raise CorruptFile("A deletion vector does not begin as one does.")
    try:
        return np.array(BitMap64.deserialize(data[4:]).to_array(), np.int64)
    except ValueError as error:
        raise CorruptFile(f"A deletion vector holds no bitmap: {error}") from error


def _z85(text: str) -> bytes:
    """ZeroMQ's base 85, of which Python has the digits of another order."""
    return base64.b85decode(text.encode().translate(bytes.maketrans(_Z85, _B85)))
