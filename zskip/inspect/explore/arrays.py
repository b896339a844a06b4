"""The arrays of the page in their compact form, and the columns whose arrays fit into the page."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def packed(data: bytes) -> str:
    """Bytes in the form in which the page contains them: compressed, in Base64."""
    return base64.b64encode(zlib.compress(data, 9)).decode()


class Arrays:
    """Arrays in one block of bytes, each in the narrowest form that holds it exactly.

    The bytes of an array are ordered by their position in a value: the first byte of each value, then the second, and
    so on. Nearby values are similar, so these runs compress better.
    """

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._length = 0

    @property
    def block(self) -> bytes:
        """All arrays, each aligned to eight bytes."""
        return b"".join(self._blocks)

    def packed(self) -> str:
        """The block, compressed, in Base64."""
        return packed(self.block)

    def add(self, values: NDArray[Any]) -> dict[str, Any]:
        """Add an array. Returns its position in the block and its form: ``value = base + number``."""
        base = 0.0
        if values.dtype == np.float64:
            finite = values[np.isfinite(values)]
            integral = len(finite) == len(values) and bool((finite == np.floor(finite)).all())
            if integral and len(finite) and finite.max() - finite.min() < 1 << 32:
                base = float(finite.min())
                shifted = values - base
                values = shifted.astype(np.uint16 if shifted.max() < 1 << 16 else np.uint32)
        raw = np.ascontiguousarray(values).view(np.uint8).reshape(-1, values.dtype.itemsize).T.tobytes()
        place = {"at": self._length, "length": len(values), "type": values.dtype.name, "base": base}
        padded = raw + bytes(-len(raw) % 8)
        self._blocks.append(padded)
        self._length += len(padded)
        return place


def fitting(
    columns: Mapping[str, tuple[Sequence[str], Sequence[NDArray[Any]]]], needed: set[str], characters: int
) -> set[str]:
    """The columns that fit into so many characters: all ``needed`` ones, then the others in their order.

    ``columns``: the texts and arrays of each column. At least one column is returned.
    """
    kept: set[str] = set()
    for path in sorted(columns, key=lambda path: path not in needed):
        texts, values = columns[path]
        arrays = Arrays()
        for each in values:
            arrays.add(each)
        characters -= len(arrays.packed()) + (len(json.dumps(list(texts), ensure_ascii=False)) if texts else 0)
        if not kept or path in needed or characters >= 0:
            kept.add(path)
    return kept
