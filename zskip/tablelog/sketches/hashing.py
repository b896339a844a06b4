"""Hashes that respect SQL equality: equal values have equal hashes, whatever the widths of their types.

| type | the bytes that are hashed (MurmurHash64A, little-endian) | seed |
| --- | --- | --- |
| integers, booleans, whole floats and decimals | the number as 64-bit two's complement, modulo 2^64 | 0 |
| other floats | the bits of the float64; one pattern for every NaN, so that −0.0 (whole) is 0 | 0 |
| other decimals | the unscaled number without trailing zeros, modulo 2^64 | its decimal places |
| dates, times, timestamps, durations | whole microseconds since the epoch or midnight, modulo 2^64 | nanoseconds left |
| strings, binary of up to 128 bytes, UUIDs | the bytes | 0 |
| longer strings, binary | the XXH3-64 digest of the bytes | 0 |

So a column that was widened (int32 to int64 or decimal, date to timestamp) keeps its hashes. NULL has none.
MurmurHash64A: Appleby 2008.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from zskip.core import types as t

Hashes = NDArray[np.uint64]

_M, _R = np.uint64(0xC6A4A7935BD1E995), np.uint64(47)
_LONGEST_MURMUR = 128
_NAN = np.uint64(0x7FF8000000000000)


def can_hash(type: pa.DataType) -> bool:
    """Whether values of a (logical) type are equal exactly if `hashes` hashes the same bytes for them.

    >>> can_hash(pa.string()), can_hash(pa.list_(pa.int64()))
    (True, False)
    """
    return t.of(type).form is not None


def hashes(values: pa.Array) -> Hashes:
    """The hash of each value that is not NULL, in order. The type must satisfy `can_hash`.

    >>> bool(hashes(pa.array([5], pa.int8())) == hashes(pa.array([5.0])))
    True
    """
    present = values.drop_null()
    type = present.type
    match t.of(type).form:
        case "bytes":
            return _of_bytes(present.cast(pa.binary()))
        case "float":
            return _of_floats(present)
        case "decimal":
            return _of_decimals(present)
    return _of_times(present) if t.is_temporal(type) else _of_words(_integers(present))


def _of_words(words: Hashes, seed: Hashes | None = None) -> Hashes:
    """MurmurHash64A of single 64-bit words."""
    with np.errstate(over="ignore"):
        start = np.uint64(8) * _M
        hashed = np.full(len(words), start) if seed is None else seed ^ start
        return _finalized(_mixed(hashed, words))


def _mixed(hashed: Hashes, words: Hashes) -> Hashes:
    words = words * _M
    words ^= words >> _R
    words *= _M
    return (hashed ^ words) * _M


def _finalized(hashed: Hashes) -> Hashes:
    hashed ^= hashed >> _R
    hashed *= _M
    hashed ^= hashed >> _R
    return hashed


def _integers(values: pa.Array) -> Hashes:
    """Whole numbers as 64-bit words, negative ones in two's complement."""
    if t.is_boolean(values.type):
        values = values.cast(pa.uint8())
    return np.asarray(values).astype(np.int64 if values.type != pa.uint64() else np.uint64).view(np.uint64)


def _of_floats(values: pa.Array) -> Hashes:
    numbers = np.asarray(values).astype(np.float64)
    is_nan = np.isnan(numbers)
    with np.errstate(invalid="ignore"):
        whole = (np.floor(numbers) == numbers) & (np.abs(numbers) < 2.0**63)
    words = np.where(is_nan, _NAN, numbers.view(np.uint64))
    words[whole] = numbers[whole].astype(np.int64).view(np.uint64)
    return _of_words(words)


def _of_decimals(values: pa.Array) -> Hashes:
    places = values.type.scale
    size = values.type.byte_width
    raw = values.buffers()[1]
    assert raw is not None or not len(values)
    data = b"" if raw is None else raw.to_pybytes()[values.offset * size : (values.offset + len(values)) * size]
    limbs = np.frombuffer(data, np.int64).reshape(len(values), size // 8)
    if (limbs[:, 1:] == (limbs[:, :1] >> 63)).all():
        return _of_words(*_without_trailing_zeros(limbs[:, 0].copy(), places))
    unscaled = [int.from_bytes(data[at : at + size], "little", signed=True) for at in range(0, len(data), size)]
    words, seeds = np.zeros(len(unscaled), np.uint64), np.zeros(len(unscaled), np.uint64)
    for row, number in enumerate(unscaled):
        left = places
        while left > 0 and number % 10 == 0:
            number, left = number // 10, left - 1
        while left < 0:
            number, left = number * 10, left + 1
        words[row], seeds[row] = number % 2**64, left
    return _of_words(words, seeds)


def _without_trailing_zeros(unscaled: NDArray[np.int64], places: int) -> tuple[Hashes, Hashes]:
    """The unscaled numbers without trailing zeros, and the decimal places left in each."""
    left = np.full(len(unscaled), max(places, 0), np.int64)
    for _ in range(places):
        zero = (left > 0) & (unscaled % 10 == 0)
        if not zero.any():
            break
        unscaled[zero] //= 10
        left[zero] -= 1
    with np.errstate(over="ignore"):
        words = unscaled.view(np.uint64) * np.uint64(10 ** max(-places, 0) % 2**64)
    return words, left.view(np.uint64)


def _of_times(values: pa.Array) -> Hashes:
    number, tick = t.ticks(values.type), t.of(values.type).tick(values.type)
    assert number is not None
    assert tick is not None
    ticks = np.asarray(values.view(number)).astype(np.int64)
    if tick == 1:
        return _of_words((ticks // 1000).view(np.uint64), (ticks % 1000).view(np.uint64))
    with np.errstate(over="ignore"):
        return _of_words(ticks.view(np.uint64) * np.uint64(tick // 1000))


def _of_bytes(values: pa.Array) -> Hashes:
    """MurmurHash64A of short strings, vectorized over eight-byte blocks; XXH3-64 of long ones, one by one."""
    if not len(values):
        return np.zeros(0, np.uint64)
    _, offset_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    padded = np.concatenate([data[offsets[0] : offsets[-1]], np.zeros(8, np.uint8)])
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    long = lengths > _LONGEST_MURMUR
    # A view of the eight bytes that begin at each offset, aligned or not.
    words = np.ndarray((len(padded) - 7,), "<u8", padded, 0, (1,))
    with np.errstate(over="ignore"):
        hashed = lengths.view(np.uint64) * _M
        blocks = np.where(long, 0, lengths >> 3)
        for block in range(int(blocks.max())):
            rows = np.flatnonzero(blocks > block)
            hashed[rows] = _mixed(hashed[rows], words[starts[rows] + 8 * block])
        rest = np.flatnonzero(lengths & 7)
        mask = (np.uint64(1) << (np.uint64(8) * (lengths[rest] & 7).view(np.uint64))) - np.uint64(1)
        tails = words[np.minimum(starts[rest] + (lengths[rest] & ~7), len(words) - 1)] & mask
        hashed[rest] = (hashed[rest] ^ tails) * _M
        hashed = _finalized(hashed)
    for row in np.flatnonzero(long).tolist():
        start = int(starts[row])
        hashed[row] = xxhash.xxh3_64_intdigest(padded[start : start + int(lengths[row])].tobytes())
    return hashed
