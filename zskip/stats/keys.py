"""Integers that sort as the values do: dense codes of a sample, codes between boundaries, order-preserving bits.

Every type has one order, the same on every engine: NULL first, then the values; NaN is the greatest value, −0.0 equals
0.0, strings and binary compare by bytes. A **code** is the number of the interval in which a value lies:

    boundaries       10       20       30
    code       NULL   |   1   |   2   |   3  …      0 is NULL; a boundary belongs to the interval above it
                 0    1
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from zskip.core import types as t
from zskip.core.schema import Schema
from zskip.core.types import is_orderable, logical_type
from zskip.errors import NotOrderable

Codes = NDArray[np.int32]
Values: TypeAlias = pa.Array | pa.ChunkedArray
_Integer = TypeVar("_Integer", np.int32, np.uint64)


@dataclass(frozen=True)
class Boundaries:
    """Sorted, distinct values that divide a column into numbered intervals. None is NULL; only the last may be NaN.

    >>> Boundaries(pa.array([10, 20])).codes(pa.array([None, 9, 10, 19, 20])).tolist()
    [0, 1, 2, 2, 3]
    """

    values: pa.Array

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def _count(self) -> Callable[[pa.Array], Codes]:
        """The number of boundaries <= each value, as a function of an array of values."""
        if _has_bytes(self.values.type):
            texts = sortable_bytes(self.values)
            return lambda values: count_at_most(texts, sortable_bytes(values)).astype(np.int32)
        numbers = sortable_numbers(self.values)
        return lambda values: np.searchsorted(numbers, sortable_numbers(values), side="right").astype(np.int32)

    def codes(self, values: Values) -> Codes:
        """The number of each value's interval: 0 for NULL, else 1 + the number of boundaries <= the value."""
        arrow, own = logical_type(values.type), self.values.type
        if _is_wider(arrow, own):
            # The column was widened after the boundaries were chosen. The wider type represents all of them exactly.
            return Boundaries(self.values.cast(arrow)).codes(values)
        chunks = [values] if isinstance(values, pa.Array) else values.chunks
        parts = [_of_encoded(chunk, lambda plain: self._codes(plain.cast(own))) for chunk in chunks]
        return np.concatenate([np.empty(0, np.int32), *parts]) if len(parts) != 1 else parts[0]

    def _codes(self, values: pa.Array) -> Codes:
        codes = self._count(values) + np.int32(1)
        if values.null_count:
            codes[~_valid(values)] = 0
        return codes


def dense_codes(values: Values) -> tuple[Codes, pa.Array]:
    """The codes of some values, and their distinct values in order: code 0 is NULL, code i + 1 the i-th distinct value.

    Raises `NotOrderable` for a type without an order.

    >>> dense_codes(pa.array([5, None, 3, 5]))[0].tolist()
    [2, 0, 1, 2]
    """
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if not is_orderable(whole.type):
        raise NotOrderable(f"{whole.type} has no agreed order.")
    plain = whole.cast(_key_type(whole.type))
    codes = np.zeros(len(plain), np.int32)
    valid = _valid(plain)
    if _has_bytes(plain.type):
        encoded = plain.dictionary_encode()
        order = pc.sort_indices(encoded.dictionary).to_numpy()
        ranks = np.empty(len(order), np.int32)
        ranks[order] = np.arange(1, len(order) + 1, dtype=np.int32)
        codes[valid] = ranks[encoded.indices.drop_null().to_numpy(zero_copy_only=False)]
        return codes, encoded.dictionary.take(pa.array(order))
    comparable = sortable_numbers(plain)[valid]
    _, first, inverse = np.unique(comparable, return_index=True, return_inverse=True)
    codes[valid] = inverse.reshape(-1) + 1
    return codes, plain.take(pa.array(np.flatnonzero(valid)[first]))


def order_bits(values: Values) -> NDArray[np.uint64]:
    """64 bits of each value that preserve order; zero for NULL.

    Of strings and wide decimals, they are the first eight-byte word in which the values differ. Different values may
    have equal bits, but a greater value never has smaller ones.
    """
    chunks = [values] if isinstance(values, pa.Array) else values.chunks
    plain = [chunk.cast(_key_type(chunk.type)) for chunk in chunks]
    if plain and _has_bytes(plain[0].type):
        texts = list(map(sortable_bytes, plain))
        number = _shared_words(texts)
        bits = [word_at(each, number) for each in texts]
    else:
        bits = [_number_bits(sortable_numbers(chunk)) for chunk in plain]
    parts = [
        np.where(_valid(chunk), part, np.uint64(0)) if chunk.null_count else part
        for chunk, part in zip(plain, bits, strict=True)
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _shared_words(texts: list[pa.BinaryArray]) -> int:
    """The number of leading eight-byte words that all texts share, which are those of the least and the greatest."""
    ends = pc.min_max(pa.chunked_array(texts))
    if not ends["min"].is_valid:
        return 0
    low, high = (np.frombuffer(ends[name].as_buffer(), np.uint8) for name in ("min", "max"))
    length = min(len(low), len(high))
    differ = np.flatnonzero(low[:length] != high[:length])
    return int(differ[0] if len(differ) else length) // 8


def sortable_numbers(values: pa.Array) -> NDArray[Any]:
    """Values of up to 64 bits as a numpy array that sorts as they do. The element of a NULL may be any number."""
    arrow = values.type
    if t.is_boolean(arrow):
        return _buffer(pc.cast(values, pa.uint8()), np.dtype(np.uint8))
    if t.is_floating(arrow):
        dtype = np.dtype(f"f{arrow.bit_width // 8}")
        floats = _buffer(values, dtype).astype(np.float32 if dtype.itemsize == 2 else dtype, copy=False)
        normalised: NDArray[Any] = floats + floats.dtype.type(0)  # -0.0 becomes 0.0
        return normalised
    if t.is_decimal(arrow):
        if arrow.bit_width == 32:
            return _buffer(values, np.dtype(np.int32))
        # Little-endian: the value fits in the lowest word.
        width = arrow.bit_width // 64
        words: NDArray[Any] = _buffer(values, np.dtype(np.int64), width).reshape(-1, width)
        return words[:, 0]
    kind = "u" if t.is_unsigned_integer(arrow) else "i"
    return _buffer(values, np.dtype(f"{kind}{arrow.bit_width // 8}"))


def _key_type(arrow: pa.DataType) -> pa.DataType:
    """The type in which values are compared: the logical type, or the type that represents it."""
    logical = logical_type(arrow)
    return t.of(logical).compared(logical)


def _is_wider(arrow: pa.DataType, than: pa.DataType) -> bool:
    """Whether a numeric type is wider than another one."""
    if t.is_decimal(arrow) and t.is_decimal(than):
        return bool(arrow.precision > than.precision)
    numbers = all(t.of(one).kind == "number" for one in (arrow, than))
    return numbers and bool(arrow.bit_width > than.bit_width)


def _has_bytes(arrow: pa.DataType) -> bool:
    """Whether values of a type take more than 64 bits, and are compared by bytes."""
    return t.of(arrow).form == "bytes" or (t.is_decimal(arrow) and arrow.precision > 18)


def sortable_bytes(values: pa.Array) -> pa.BinaryArray:
    """Strings, and decimals of more than 18 digits, as bytes that sort as they do."""
    if not t.is_decimal(values.type):
        return values.cast(pa.binary())
    width = values.type.bit_width // 8
    big = _buffer(values, np.dtype(np.uint8), width).reshape(-1, width)[:, ::-1].copy()
    big[:, 0] ^= 0x80
    offsets = pa.py_buffer(np.arange(len(values) + 1, dtype=np.int32) * width)
    whole = pa.BinaryArray.from_buffers(pa.binary(), len(values), [None, offsets, pa.py_buffer(big)])
    return pc.if_else(values.is_valid(), whole, pa.scalar(None, pa.binary()))


def count_at_most(ascending: pa.BinaryArray, values: pa.BinaryArray) -> NDArray[np.uint64]:
    """The number of ascending texts <= each value. NULL is above all.

    >>> count_at_most(pa.array([b"b", b"d"]), pa.array([b"a", b"b", None])).tolist()
    [0, 1, 2]
    """
    return np.asarray(pc.fill_null(pc.search_sorted(ascending, values, side="right"), len(ascending)))


def word_at(texts: pa.BinaryArray, number: int) -> NDArray[np.uint64]:
    """Eight bytes of each text, from byte 8 * ``number`` on, as a number that sorts as they do; zero beyond its end.

    >>> word_at(pa.array([b"\\0\\0\\0\\0\\0\\0\\1\\2", b"\\0", None]), 0).tolist()[:2]
    [258, 0]
    """
    padded = pc.binary_join_element_wise(pc.binary_slice(texts, 8 * number, 8 * number + 8), bytes(8), b"")
    words = pc.binary_slice(padded.fill_null(bytes(8)), 0, 8).cast(pa.binary(8))
    return _buffer(words, np.dtype(">u8")).astype(np.uint64)


def _valid(values: pa.Array) -> NDArray[np.bool_]:
    if not values.null_count:
        return np.ones(len(values), bool)
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False), bool)


def _buffer(values: pa.Array, dtype: np.dtype[Any], width: int = 1) -> NDArray[Any]:
    """The data of an array without copying, ``width`` numbers per value."""
    buffer = values.buffers()[1]
    if buffer is None or not len(values):
        whole = np.zeros(len(values) * width, dtype)
    else:
        start = values.offset * width * dtype.itemsize
        whole = np.frombuffer(buffer, dtype, len(values) * width, start)
    return whole.reshape(-1, width) if width > 1 else whole


def _number_bits(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Order-preserving bits of numbers."""
    if values.dtype.kind == "u":
        return values.astype(np.uint64)
    if values.dtype.kind == "i":
        return values.astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)
    wide = values.astype(np.float64)
    wide[np.isnan(wide)] = np.nan  # every NaN gets the same bits, whatever its sign
    bits = wide.view(np.uint64)
    negative = bits >> np.uint64(63) == 1
    return np.where(negative, ~bits, bits | np.uint64(1 << 63))


def row_hashes(rows: pa.Table | pa.RecordBatch, chosen: NDArray[np.intp]) -> NDArray[np.uint64]:
    """A hash of each chosen row over its orderable columns; rows that are equal in them get successive numbers.

    It spreads rows over files where no clustering column divides them. A row that is unique in its batch has the same
    hash in every batch. Only the first 64 bytes of a string count.
    """
    hashes: NDArray[np.uint64] = np.full(len(chosen), 0x9E3779B97F4A7C15, np.uint64)
    row_numbers = pa.array(chosen)
    for column in Schema(rows.schema):
        if column.orderable:
            parts: list[NDArray[np.uint64]] = [
                _of_encoded(chunk, partial(_chunk_hashes, _key_type(column.type)))
                for chunk in column.encoded(rows).take(row_numbers).chunks
            ]
            hashes = _mixed(hashes ^ np.concatenate(parts))
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    repetition = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.append(starts, len(ordered))))
    spread = np.empty_like(hashes)
    spread[order] = ordered + repetition.astype(np.uint64)
    return spread


def _of_encoded(values: pa.Array, of: Callable[[pa.Array], NDArray[_Integer]]) -> NDArray[_Integer]:
    """An integer for each value, 0 for NULL; found once for each entry of a dictionary."""
    if not t.is_dictionary(values.type):
        return of(values)
    entries = of(values.dictionary)
    entries = np.append(entries, entries.dtype.type(0))
    return entries[np.asarray(values.indices.fill_null(len(values.dictionary)), np.int64)]


def _chunk_hashes(type: pa.DataType, values: pa.Array) -> NDArray[np.uint64]:
    values = values.cast(type)
    if _has_bytes(values.type):
        texts = sortable_bytes(values)
        length = np.asarray(pc.fill_null(pc.binary_length(texts), 0), np.int64)
        hashes: NDArray[np.uint64] = _mixed(length.astype(np.uint64))
        for number in range(min(-(-int(length.max(initial=0)) // 8), 8)):
            hashes = _mixed(hashes ^ word_at(texts, number))
    else:
        hashes = _mixed(_number_bits(sortable_numbers(values)))
    if values.null_count:
        hashes = np.where(_valid(values), hashes, np.uint64(0))
    return hashes


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    # the finaliser of splitmix64 (Steele 2014)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
