"""Hashes of values, and segments: what is written is found, whatever the number of bits, sources and row groups."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zskip.core.types import widens
from zskip.errors import DamagedIndex
from zskip.tablelog.sketches import pairs
from zskip.tablelog.sketches.hashing import can_hash, hashes
from zskip.tablelog.sketches.pairs import Coverage, MergeInput, Run, Segment, write_segment


class _Kept(io.BytesIO):
    def close(self) -> None:
        """Stays open, so that what was written can be read."""


def segment_of(files: dict[int, list[int]], key_bits: int = 33) -> Segment:
    """A segment of files by id and the keys of each."""
    ids = sorted(files)
    rows = [Run.of(np.array(files[id], np.uint64), number) for number, id in enumerate(ids)]
    run = Run(np.sort(np.concatenate([np.zeros(0, np.int64), *rows])))
    return written([MergeInput(run, np.arange(len(ids)))], Coverage.of(np.array(ids, np.int64)), key_bits)


def written(sources: list[MergeInput], coverage: Coverage, key_bits: int) -> Segment:
    sink = _Kept()
    entries = write_segment(sink, sources, coverage, key_bits)
    segment = Segment(pa.BufferReader(sink.getvalue()), "the segment")
    assert len(segment) == entries
    return segment


def segment_in(table: pa.Table, header: bytes | None) -> Segment:
    """A segment that consists of any table with any header, or with none."""
    sink = pa.BufferOutputStream()
    metadata: dict[Any, Any] = {} if header is None else {b"zskip.segment": header}
    pq.write_table(table.replace_schema_metadata(metadata), sink)
    return Segment(pa.BufferReader(sink.getvalue()), "the segment")


def found(segment: Segment, keys: list[int]) -> set[tuple[int, int]]:
    """The pairs of a key and the id of a file that may hold it."""
    asked, files = segment.find(np.array(keys, np.uint64))
    return {(keys[place], int(id)) for place, id in zip(asked.tolist(), segment.coverage.ids(files), strict=True)}


KEYS = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**25, 2**63, 2**64 - 1, 2**64 - 2**25]))
FILES = st.dictionaries(st.integers(0, 60) | st.integers(2**61, 2**61 + 9), st.lists(KEYS, max_size=9), min_size=1)


def truth(files: dict[int, list[int]], keys: list[int], key_bits: int) -> set[tuple[int, int]]:
    """What a look-up must say: keys are told apart by their first bits."""
    shift = 64 - key_bits
    return {
        (key, id) for key in keys for id, held in files.items() if any(key >> shift == one >> shift for one in held)
    }


@given(FILES, st.sampled_from([1, 5, 24, 33, 39]), st.lists(KEYS, max_size=5, unique=True))
def test_a_segment_finds_what_it_holds(files: dict[int, list[int]], key_bits: int, others: list[int]) -> None:
    asked = list(dict.fromkeys([*others, *(key for held in files.values() for key in held)]))
    segment = segment_of(files, key_bits)
    assert found(segment, asked) == truth(files, asked, key_bits)
    held = segment.files_holding(np.array(others, np.uint64), np.arange(len(segment.coverage)))
    assert {id for _, id in truth(files, others, key_bits)} == set(segment.coverage.ids(np.flatnonzero(held)).tolist())


@given(st.lists(FILES, min_size=2, max_size=4), st.sampled_from([3, 20, 30]), st.integers(0, 99))
def test_merging_keeps_every_file_that_is_left(parts: list[dict[int, list[int]]], bits: int, seed: int) -> None:
    whole: dict[int, list[int]] = {}
    for part in parts:
        for id, keys in part.items():
            whole.setdefault(id, []).extend(keys)
    left = {id: keys for id, keys in whole.items() if (id + seed) % 3} or whole
    coverage = Coverage.of(np.array(sorted(left), np.int64))
    segments = [segment_of(part, 33) for part in parts]
    sources = [MergeInput(segment, coverage.numbers(segment.coverage.ids())) for segment in segments]
    asked = list({key for keys in whole.values() for key in keys})
    assert found(written(sources, coverage, bits), asked) == truth(left, asked, bits)


def test_many_row_groups_are_searched_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_LEAST_GROUP": 16, "_CHUNK": 8, "_GROUPS": 1 << 20, "_CACHED_PAIRS": 40}.items():
        monkeypatch.setattr(pairs, name, value)
    random = np.random.default_rng(3)
    files = {id: random.integers(0, 2**64, 50, dtype=np.uint64).tolist() for id in range(7)}
    files[3] += files[4][:20]
    files[5] = [key >> 40 << 40 for key in files[5]]
    segment = segment_of(files)
    assert len(segment.boundaries()) > 20
    asked = [
        *(key for held in files.values() for key in held),
        *random.integers(0, 2**64, 99, dtype=np.uint64).tolist(),
    ]
    assert found(segment, asked) == truth(files, asked, 33)
    again = written([MergeInput(segment, np.arange(7))], segment.coverage, 33)
    assert found(again, asked) == truth(files, asked, 33)


def test_a_value_in_every_file_costs_little() -> None:
    segment_bytes = _Kept()
    files = 4000
    run = Run(np.sort(np.concatenate([Run.of(np.arange(8, dtype=np.uint64) << 60, n) for n in range(files)])))
    write_segment(segment_bytes, [MergeInput(run, np.arange(files))], Coverage.of(np.arange(files)), 33)
    assert len(segment_bytes.getvalue()) < 0.6 * 8 * files  # bytes for as many pairs


@given(st.sets(st.integers(0, 2**62), min_size=1, max_size=30), st.lists(st.integers(0, 2**62), max_size=10))
def test_coverage_numbers_its_files_by_place(ids: set[int], others: list[int]) -> None:
    ordered = sorted(ids)
    coverage = Coverage.of(np.array(ordered, np.int64))
    asked = [*ordered, *others]
    expected = [ordered.index(id) if id in ids else -1 for id in asked]
    assert coverage.numbers(np.array(asked, np.int64)).tolist() == expected
    assert coverage.ids().tolist() == ordered


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"pair": [1, 2]}),
        pa.table({"pair": ["a"]}),
        pa.table({"pair": [1], "more": [2]}),
    ],
)
@pytest.mark.parametrize(
    "header", [None, b"{}", b"[" * 100_000, b'{"key_bits":33,"file_bits":99,"first":[0],"count":[1],"smallest":[1]}']
)
def test_what_is_no_segment_is_damaged(table: pa.Table, header: bytes | None) -> None:
    with pytest.raises(DamagedIndex, match="the segment is not a segment"):
        segment_in(table, header)
    with pytest.raises(DamagedIndex):
        Segment(pa.BufferReader(b"PAR1 no footer PAR1"), "the segment")


HEADER = {"key_bits": 33, "file_bits": 3, "first": [0], "count": [4], "smallest": [8]}


@pytest.mark.parametrize(
    "pairs",
    [[8, 15], [9, 10], [8, 8], [8, 3], [8, 1 << 40], [-8, 8], [8, None]],
    ids=["unknown file", "another first", "twice", "descending", "beyond", "negative", "null"],
)
def test_pairs_that_cannot_be_are_damage(pairs: list[int | None]) -> None:
    """Behind valid digests they raised IndexError where segments were merged."""
    segment = segment_in(pa.table({"pair": pa.array(pairs, pa.int64())}), json.dumps(HEADER).encode())
    for read in (segment.distinct_keys, lambda: segment.find(np.array([1 << 31, 1 << 63], np.uint64))):
        with pytest.raises(DamagedIndex, match="the segment holds"):
            read()
    with pytest.raises(DamagedIndex, match="the segment holds"):
        write_segment(_Kept(), [MergeInput(segment, np.arange(4))], Coverage.of(np.arange(4)), 33)


FORGED = """
import struct, sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from zskip.errors import DamagedIndex
from zskip.tablelog.sketches.pairs import Coverage, Run, Segment, MergeInput, write_segment

path = sys.argv[1]
with open(path, "wb") as sink:
    write_segment(sink, [MergeInput(Run(np.array([5 << 30, 9 << 30])), np.arange(1))], Coverage.of(np.arange(1)), 33)
good = pq.ParquetFile(path)
with pq.ParquetWriter(path + ".forged", good.schema_arrow, compression="zstd", write_statistics=True) as writer:
    writer.write_table(good.read())
    writer.add_key_value_metadata(good.metadata.metadata)
data = open(path + ".forged", "rb").read()
(length,) = struct.unpack("<I", data[-8:-4])
smallest = pq.ParquetFile(path + ".forged").metadata.row_group(0).column(0).statistics.min
footer = data[-8 - length : -8]
bound = struct.pack("<bq", 8, smallest)  # its length and its eight bytes
assert bound in footer
footer = footer.replace(bound, bytes([4]) + bound[1:5])
forged = data[: -8 - length] + footer + struct.pack("<I", len(footer)) + b"PAR1"
try:
    Segment(pa.BufferReader(forged), "the segment").between(0, 2**62)
except DamagedIndex as error:
    print(error)
"""


def test_a_bound_that_is_too_short_does_not_end_the_process(tmp_path: Path) -> None:
    """Pyarrow calls abort() where such a footer's statistics are asked for."""
    ran = subprocess.run([sys.executable, "-c", FORGED, str(tmp_path / "s")], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("the segment cannot be decoded")


# --- hashes of values: equal wherever SQL says that two values are equal, of whatever types and widths ---


_MASK = (1 << 64) - 1
_M = 0xC6A4A7935BD1E995


def murmur(key: bytes, seed: int = 0) -> int:
    """MurmurHash64A, as its author wrote it down, byte by byte."""
    hashed = (seed ^ len(key) * _M) & _MASK
    whole = len(key) // 8 * 8
    for start in range(0, whole, 8):
        word = int.from_bytes(key[start : start + 8], "little") * _M & _MASK
        word = (word ^ word >> 47) * _M & _MASK
        hashed = (hashed ^ word) * _M & _MASK
    if key[whole:]:
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 47) * _M & _MASK
    return hashed ^ hashed >> 47


@given(st.lists(st.binary(max_size=129)))
def test_short_strings_are_hashed_by_murmur(values: list[bytes]) -> None:
    short = [value for value in values if len(value) <= 128]
    assert hashes(pa.array(short, pa.binary())).tolist() == [murmur(value) for value in short]
    sliced = pa.array([b"before", *values, b"after"], pa.binary())[1:-1]
    assert hashes(sliced).tolist() == hashes(pa.array(values, pa.binary())).tolist()


@given(st.integers(-(2**63), 2**63 - 1))
def test_whole_numbers_are_hashed_as_eight_bytes(value: int) -> None:
    assert hashes(pa.array([value])).tolist() == [murmur(value.to_bytes(8, "little", signed=True))]


def one(value: Any, type: pa.DataType) -> int:
    (found,) = hashes(pa.array([value], type)).tolist()
    return int(found)


@pytest.mark.parametrize(
    ("value", "old", "new"),
    [
        (-7, pa.int8(), pa.int64()),
        (200, pa.uint8(), pa.int16()),
        (-7, pa.int32(), pa.float64()),
        (7, pa.int64(), pa.decimal128(38, 6)),
        (-7, pa.int16(), pa.decimal128(9, 2)),
        (0.375, pa.float32(), pa.float64()),
        (1e300, pa.float64(), pa.float64()),
        (Decimal("1.50"), pa.decimal128(5, 2), pa.decimal128(38, 20)),
        (Decimal("-123456789012345678901.25"), pa.decimal128(30, 2), pa.decimal256(60, 10)),
        (Decimal("-0.10"), pa.decimal128(5, 2), pa.decimal128(20, 1)),
        (date(1931, 5, 1), pa.date32(), pa.timestamp("ns")),
        (date(1931, 5, 1), pa.date32(), pa.date64()),
        (datetime(1931, 5, 1, 1, 2, 3), pa.timestamp("s"), pa.timestamp("ns")),
        (datetime(1931, 5, 1, 1, 2, 3, 456789), pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC")),
        (time(1, 2, 3), pa.time32("s"), pa.time64("ns")),
        (timedelta(seconds=-3), pa.duration("s"), pa.duration("us")),
        (True, pa.bool_(), pa.bool_()),
    ],
)
def test_a_widened_column_keeps_its_hashes(value: Any, old: pa.DataType, new: pa.DataType) -> None:
    assert widens(old, new) or are_decimals(old, new)
    narrow = pa.array([value], old)
    assert hashes(narrow).tolist() == hashes(narrow.cast(new)).tolist()


def are_decimals(old: pa.DataType, new: pa.DataType) -> bool:
    """Decimals of any scales: what one holds of the value is the same."""
    return bool(pa.types.is_decimal(old) and pa.types.is_decimal(new))


def test_floats_that_are_equal_in_sql_have_one_hash() -> None:
    strange = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    nans = hashes(pa.array([*strange, math.nan]))
    assert len(set(nans.tolist())) == 1
    assert one(-0.0, pa.float64()) == one(0.0, pa.float32()) == one(0, pa.int8())
    assert one(math.inf, pa.float64()) != one(-math.inf, pa.float64())


@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9)))
def test_decimals_are_hashed_by_value(values: list[Decimal]) -> None:
    narrow, wide = (hashes(pa.array(values, type)) for type in (pa.decimal128(13, 3), pa.decimal128(38, 7)))
    assert narrow.tolist() == wide.tolist()
    assert len(set(narrow.tolist())) == len(set(values))


def test_nulls_have_no_hash() -> None:
    assert len(hashes(pa.array([None, "a", None]))) == 1


@pytest.mark.parametrize("type", [pa.list_(pa.int64()), pa.struct([]), pa.month_day_nano_interval(), pa.null()])
def test_types_without_equality_are_refused(type: pa.DataType) -> None:
    assert not can_hash(type)
