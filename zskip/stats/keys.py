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
        if _has_words(self.values.type):
            return partial(_search_words, self.values, _FirstWords.of(self.values))
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
        if _has_words(values.type) and len(values) > _WORDS_AT_ONCE:
            starts = range(0, len(values), _WORDS_AT_ONCE)
            return np.concatenate([self._codes(values.slice(start, _WORDS_AT_ONCE)) for start in starts])
        if not len(self.values):
            codes = np.ones(len(values), np.int32)
        elif _has_words(values.type) and _is_repetitive(values):
            # Search each distinct value once.
            return _of_encoded(values.dictionary_encode(), lambda plain: self._count(plain) + np.int32(1))
        else:
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
    if _has_words(plain.type):
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


def order_bits(values: Values, *, after_prefix: bool = False) -> NDArray[np.uint64]:
    """64 bits of each value that preserve order: the first eight bytes of a string, and zero for NULL.

    Decimals of more than 18 digits give their top 64 bits. Different values may have equal bits, but a greater value
    never has smaller ones. ``after_prefix``: take of strings and wide decimals the first eight-byte word in which the
    values differ.
    """
    chunks = [values] if isinstance(values, pa.Array) else values.chunks
    plain = [chunk.cast(_key_type(chunk.type)) for chunk in chunks]
    if plain and _has_words(plain[0].type):
        first = _shared_words(plain) if after_prefix else 0
        bits = _first_words([_words(chunk) for chunk in plain], [_valid(chunk) for chunk in plain], first, after_prefix)
    else:
        bits = [_number_bits(sortable_numbers(chunk)) for chunk in plain]
    parts = [
        np.where(_valid(chunk), part, np.uint64(0)) if chunk.null_count else part
        for chunk, part in zip(plain, bits, strict=True)
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _shared_words(chunks: list[pa.Array]) -> int:
    """The number of leading eight-byte words that all strings share, which are those of the least and the greatest."""
    if t.is_decimal(chunks[0].type):
        return 0
    ends = pc.min_max(pa.chunked_array([chunk.cast(pa.binary()) for chunk in chunks]))
    if not ends["min"].is_valid:
        return 0
    low, high = (np.frombuffer(ends[name].as_buffer(), np.uint8) for name in ("min", "max"))
    length = min(len(low), len(high))
    differ = np.flatnonzero(low[:length] != high[:length])
    return int(differ[0] if len(differ) else length) // 8


def _first_words(
    chunks: list[_Words], valid: list[NDArray[np.bool_]], number: int, after_prefix: bool
) -> list[NDArray[np.uint64]]:
    """Word ``number`` of each value, or with ``after_prefix`` the first word from there on that differs."""
    last = min(max(chunk.count for chunk in chunks) - 1, number + _FIRST_WORDS)
    while True:
        words = [chunk.word(number, np.arange(len(chunk))) for chunk in chunks]
        if not after_prefix or number >= last:
            return words
        known = np.concatenate([word[not_null] for word, not_null in zip(words, valid, strict=True)])
        if len(known) and known.min() != known.max():
            return words
        number += 1


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


def _has_words(arrow: pa.DataType) -> bool:
    """Whether values of a type take more than 64 bits, and are compared word by word."""
    return t.of(arrow).form == "bytes" or (t.is_decimal(arrow) and arrow.precision > 18)


def _is_repetitive(values: pa.Array) -> bool:
    """Whether the first values have few distinct ones."""
    return len(values) >= _PROBED_ROWS and len(values.slice(0, _PROBED_ROWS).unique()) <= _PROBED_ROWS // 4


_PROBED_ROWS = 1 << 11
_FIRST_WORDS = 8
_WORDS_AT_ONCE = 1 << 16
_STRINGS_AT_ONCE, _BYTES_AT_ONCE = 1 << 12, 1 << 26


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


@dataclass(frozen=True, slots=True)
class _Words:
    """Values as 64-bit words, most significant first, which compare first by their words, then by ``length``.

    ``count``: the most words of a value · ``word(number, rows)``: word ``number`` of these rows, padded by zeros ·
    ``length``: bytes of a string, 0 for a decimal.
    """

    count: int
    word: Callable[[int, NDArray[np.intp]], NDArray[np.uint64]]
    length: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.length)


def _words(values: pa.Array) -> _Words:
    if t.is_decimal(values.type):
        width = values.type.bit_width // 64
        raw = np.asarray(_buffer(values, np.dtype(np.uint64), width))

        def decimal_word(number: int, rows: NDArray[np.intp]) -> NDArray[np.uint64]:
            word: NDArray[np.uint64] = raw[rows, width - 1 - number]
            return word ^ np.uint64(1 << 63) if number == 0 else word

        return _Words(width, decimal_word, np.zeros(len(values), np.int64))
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4) if len(values) else None
    offsets = np.zeros(1, np.int64) if offsets is None else offsets.astype(np.int64)
    start, length = offsets[:-1], np.diff(offsets)
    data = values.buffers()[2]
    content = np.zeros(8, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    content = content if len(content) >= 8 else np.concatenate([content, np.zeros(8, np.uint8)])
    windows = np.ndarray((len(content) - 7,), ">u8", content, strides=(1,))  # the word at each byte

    def string_word(number: int, rows: NDArray[np.intp]) -> NDArray[np.uint64]:
        position = start[rows] + 8 * number
        left = np.clip(length[rows] - 8 * number, 0, 8)
        inside = np.clip(position, 0, len(windows) - 1)
        beyond = np.clip(position - inside, 0, 8)
        word = windows[inside].astype(np.uint64) << (8 * beyond).astype(np.uint64)
        masked: NDArray[np.uint64] = word & _LEADING_BYTES[left]
        return masked

    return _Words(int(-(-length.max(initial=0) // 8)), string_word, length)


_LEADING_BYTES = np.array([(1 << 64) - (1 << (64 - 8 * count)) for count in range(9)], np.uint64)
"""Masks of the first 0 to 8 bytes of a word."""


@dataclass(frozen=True, slots=True)
class _FirstWords:
    """Sorted values, the words that all of them begin with, and the distinct words that follow these.

    ``starts``: for each distinct word the first value that has it, and at the end the number of values.
    """

    words: _Words
    shared: list[np.uint64]
    distinct: NDArray[np.uint64]
    starts: Codes

    @staticmethod
    def of(values: pa.Array) -> _FirstWords:
        words = _words(values)
        rows = np.arange(len(words))
        shared: list[np.uint64] = []
        following = words.word(0, rows)
        while following[0] == following[-1] and len(shared) < min(words.count - 1, _FIRST_WORDS):
            shared.append(following[0])
            following = words.word(len(shared), rows)
        distinct, starts = np.unique(following, return_index=True)
        return _FirstWords(words, shared, distinct, np.append(starts, len(words)).astype(np.int32))


def _search_words(sorted_values: pa.Array, first: _FirstWords, rows: pa.Array) -> Codes:
    """The number of boundaries <= each value. Ties are decided word by word, and after a few words by whole values."""
    boundaries, starts, values = first.words, first.starts, _words(rows)
    every = np.arange(len(values))
    below, above = np.zeros(len(values), bool), np.zeros(len(values), bool)
    for number, shared in enumerate(first.shared):
        word, open_ = values.word(number, every), ~(below | above)
        below |= open_ & (word < shared)
        above |= open_ & (word > shared)
    wanted = values.word(len(first.shared), every)
    reached = np.searchsorted(first.distinct, wanted, side="right")
    low = starts[reached]
    low[below], low[above] = 0, len(boundaries)
    # A value ties with the boundaries that begin with the same words.
    tied = np.flatnonzero((first.distinct[reached - 1] == wanted) & (reached > 0) & ~below & ~above)
    high = low.copy()
    low[tied] = starts[reached[tied] - 1]
    all_boundaries = np.arange(len(boundaries))
    words_compared = len(first.shared) + _FIRST_WORDS
    for number in range(len(first.shared) + 1, min(boundaries.count, words_compared)):
        table = boundaries.word(number, all_boundaries)
        wanted = values.word(number, tied)
        least, most = low[tied], high[tied]
        low[tied] = _search_between(table, wanted, least, most, upper=False)
        high[tied] = _search_between(table, wanted, least, most, upper=True)
        tied = tied[low[tied] < high[tied]]
        if not len(tied):
            return low
    if boundaries.count > words_compared:
        low[tied] = _search_strings(sorted_values, rows.take(pa.array(tied)), low[tied], high[tied])
    else:
        low[tied] = _search_between(boundaries.length, values.length[tied], low[tied], high[tied], upper=True)
    return low


def _search_strings(table: pa.Array, wanted: pa.Array, low: Codes, high: Codes) -> Codes:
    """The number of strings in a sorted table that are <= each wanted one, known to be between low and high."""
    longest = max(pc.max(pc.binary_length(values)).as_py() or 1 for values in (table, wanted)) if len(wanted) else 1
    at_once = max(1, min(_STRINGS_AT_ONCE, _BYTES_AT_ONCE // longest))
    while len(open_ := np.flatnonzero(low < high)):
        middle = (low[open_] + high[open_]) // 2
        reached = np.zeros(len(open_), bool)
        for start in range(0, len(open_), at_once):
            part = slice(start, start + at_once)
            boundary, value = table.take(pa.array(middle[part])), wanted.take(pa.array(open_[part]))
            # The result for a NULL does not matter: its code is set to 0 afterwards.
            reached[part] = pc.fill_null(pc.less_equal(boundary, value), True).to_numpy(zero_copy_only=False)
        low[open_[reached]], high[open_[~reached]] = middle[reached] + 1, middle[~reached]
    return low


def _search_between(table: NDArray[Any], wanted: NDArray[Any], low: Codes, high: Codes, *, upper: bool) -> Codes:
    """`numpy.searchsorted` of each value within its own range from low to high; ``upper``: side="right"."""
    low, high = low.copy(), high.copy()
    while (searching := low < high).any():
        middle = np.where(searching, (low + high) // 2, 0)
        candidate = table[middle]
        right = (candidate <= wanted) if upper else (candidate < wanted)
        low = np.where(searching & right, middle + 1, low)
        high = np.where(searching & ~right, middle, high)
    return low


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
    if _has_words(values.type):
        words = _words(values)
        rows = np.arange(len(values))
        hashes: NDArray[np.uint64] = _mixed(words.length.astype(np.uint64))
        for number in range(min(words.count, 8)):
            hashes = _mixed(hashes ^ words.word(number, rows))
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
