"""Rows wait in narrow forms, in memory or in spill files; what comes out is what went in, whatever parts bring it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import zskip
from zskip.writer import compact_rows as narrowing
from zskip.writer import row_source
from zskip.writer.compact_rows import NarrowForms
from zskip.writer.scatter import SpilledBuckets
from zskip.writer.storable import ENCODED_STRING

EDGES = [
    0,
    1,
    *(edge + near for bits in (7, 8, 15, 16, 31, 32, 63) for edge in (2**bits, -(2**bits)) for near in (-1, 0)),
]
WHOLE = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("ns"), pa.timestamp("us"), pa.timestamp("ns", "UTC")),
    *(pa.duration("us"), pa.decimal32(9, 2), pa.decimal64(18, 3)),
]


def bits_as(values: list[int | None], type: pa.DataType) -> pa.Array:
    """The integers that fit, as what a type keeps inside; the others as NULL."""
    unsigned = pa.types.is_unsigned_integer(type)
    inner = type if pa.types.is_integer(type) else pa.int32() if type.bit_width == 32 else pa.int64()
    most = 2 ** (inner.bit_width - (not unsigned)) - 1
    least = 0 if unsigned else -most - 1
    fits = [value if value is not None and least <= value <= most else None for value in values]
    return pa.array(fits, inner).view(type)


@pytest.mark.parametrize("type", WHOLE, ids=str)
@given(parts=st.lists(st.lists(st.none() | st.sampled_from(EDGES), max_size=5), min_size=1, max_size=5))
@example(parts=[[1], [None, 200], [-(2**31)], [2**63 - 1, None], [3]])
@settings(max_examples=15)
def test_whole_numbers_come_back(type: pa.DataType, parts: list[list[int | None]]) -> None:
    schema = pa.schema([("n", type)])
    narrow = NarrowForms(schema, 1000)
    given = [bits_as(part, type) for part in parts]
    forms = [narrow.narrowed(pa.table([part], schema=schema))["n"] for part in given]
    widths = [form.type.bit_width for form in forms]
    assert all(before <= after for before, after in pairwise(widths)), "a later part is never narrower"
    chunks = [chunk for form in forms for chunk in form.chunks]
    assert narrow.widened("n", narrow.unified("n", chunks)).equals(pa.chunked_array(given, type))


def test_small_numbers_are_narrow() -> None:
    rows = pa.table({str(type): bits_as([0, 100, None], type) for type in WHOLE})
    assert set(NarrowForms(rows.schema, 1000).narrowed(rows).schema.types) == {pa.int8(), pa.uint8()}
    none = pa.table({"n": pa.nulls(5, pa.int64())})
    assert NarrowForms(none.schema, 1000).narrowed(none).schema.types == [pa.int8()]


TEXTS = st.lists(st.lists(st.none() | st.sampled_from([*"abcdefgh", "", "é" * 9]), max_size=6), min_size=1, max_size=6)


@given(parts=TEXTS, most=st.sampled_from([0, 3, 1000]), most_bytes=st.sampled_from([0, 20, 1000]))
@example(parts=[["a", None], ["b", "a"], list("abcdef"), ["a"]], most=3, most_bytes=1000)
@settings(max_examples=60)
def test_texts_come_back_also_when_they_become_too_many(
    parts: list[list[str | None]], most: int, most_bytes: int
) -> None:
    schema = pa.schema([("s", ENCODED_STRING)])
    narrow = NarrowForms(schema, most_bytes)
    given = [pa.array(part, pa.string()).dictionary_encode() for part in parts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(narrowing, "_MOST_STRINGS", most)
        forms = [narrow.narrowed(pa.table([part], schema=schema))["s"] for part in given]
    chunks = [chunk for form in forms for chunk in form.chunks]
    found = narrow.widened("s", narrow.unified("s", chunks))
    assert found.type == ENCODED_STRING
    assert found.to_pylist() == [text for part in parts for text in part]
    distinct = {text for part in parts for text in part if text is not None}
    if len(distinct) <= most and most_bytes == 1000:
        assert {form.type for form in forms} == {pa.int8()}


def test_codes_outgrow_a_byte() -> None:
    schema = pa.schema([("s", ENCODED_STRING)])
    narrow = NarrowForms(schema, 10_000)
    parts = [pa.array([f"{n:03d}" for n in range(first, first + 100)]).dictionary_encode() for first in (0, 50, 250)]
    forms = [narrow.narrowed(pa.table([part], schema=schema))["s"] for part in parts]
    assert [form.type for form in forms] == [pa.int8(), pa.int16(), pa.int16()]
    found = narrow.widened("s", narrow.unified("s", [chunk for form in forms for chunk in form.chunks]))
    assert found.to_pylist() == [text for part in parts for text in part.to_pylist()]


def test_the_order_in_which_texts_are_met_does_not_show() -> None:
    schema = pa.schema([("s", ENCODED_STRING)])
    parts = [pa.table([pa.array(list(part)).dictionary_encode()], schema=schema) for part in ("ca", "ab", "cd")]
    found = []
    for order in ([0, 1, 2], [2, 1, 0]):
        narrow = NarrowForms(schema, 1000)
        forms = {number: narrow.narrowed(parts[number]) for number in order}
        found.append([narrow.widened("s", forms[number]["s"]).chunk(0) for number in range(3)])
    for one, other in zip(*found, strict=True):
        assert one.dictionary.to_pylist() == other.dictionary.to_pylist() == list("abcd")
        assert one.indices.equals(other.indices)


def test_an_ordered_dictionary_keeps_its_order() -> None:
    sizes = pa.DictionaryArray.from_arrays(pa.array([2, 0, None], pa.int32()), ["S", "M", "L"], ordered=True)
    rows = pa.table({"size": sizes})
    assert NarrowForms(rows.schema, 1000).narrowed(rows).equals(rows)


def growing(rows: int) -> pa.Table:
    """Columns whose values need ever more room, with NULLs among them."""
    number = np.arange(rows)
    nothing = number % 7 == 3
    return pa.table(
        {
            "id": number,
            "wide": pa.array(2 ** (number * 62 // rows), mask=nothing),
            "price": pa.array(number**2 - 5000, mask=nothing).view(pa.decimal64(15, 0)).cast(pa.decimal128(15, 0)),
            "at": pa.array((number - 100) * 10**9, mask=nothing).cast(pa.timestamp("us", "UTC")),
            "day": pa.array(number.astype(np.int32) * 20, mask=nothing).cast(pa.date32()),
            "few": pa.array([f"text {n * n % 5}" for n in range(rows)], mask=nothing),
            "more": pa.array([f"text {n // 10:06d}" for n in range(rows)], mask=nothing).dictionary_encode(),
            "x": number / 3,
        }
    )


def plain(rows: pa.Table) -> pa.Table:
    """The rows by id, texts as such: dictionaries that hold them in other orders are not equal."""
    texts = rows.set_column(rows.column_names.index("more"), "more", rows["more"].cast(pa.string()))
    return texts.sort_by("id").combine_chunks()


def files_of(table: zskip.Table) -> list[pa.Table]:
    return [pq.read_table(path) for path in sorted(table.plan().paths)]


@pytest.mark.parametrize("given_as", ["table", "stream", "Parquet"])
@pytest.mark.parametrize("texts", [32_767, 100])
def test_every_way_makes_the_same_files(
    given_as: str, texts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a column's dictionaries differ by row group, and where all its texts are too many to be known."""
    monkeypatch.setattr(narrowing, "_MOST_STRINGS", texts)
    monkeypatch.setattr(row_source, "PART_ROWS", 400)
    rows = growing(6000)
    source: Any = rows
    if given_as == "Parquet":
        pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=700)
        source = tmp_path / "rows.parquet"

    def written(name: str, source: Any, **options: Any) -> zskip.Table:
        given = source.to_reader(max_chunksize=500) if given_as == "stream" else source
        return zskip.write(given, tmp_path / name, by=["day", "price"], files=7, row_group_rows=300, **options)

    resident = written("resident", source, threads=1)
    spilled = written("spilled", source, threads=3, memory_limit=300_000)
    expected = zskip.write(rows, tmp_path / "expected", by=["day", "price"], files=7, row_group_rows=300)
    for table in (resident, spilled):
        assert plain(table.to_arrow()).equals(plain(rows))
        assert [file.num_rows for file in files_of(table)] == [file.num_rows for file in files_of(expected)]
    for one, other, third in zip(files_of(resident), files_of(spilled), files_of(expected), strict=True):
        assert one.equals(other)
        assert plain(one).equals(plain(third))


def test_spill_files_hold_rows_of_several_forms_in_their_order(tmp_path: Path) -> None:
    buckets = SpilledBuckets(2, str(tmp_path))
    pieces = [
        pa.table({"n": pa.array([n], type)}) for n, type in enumerate([pa.int8(), pa.int8(), pa.int16(), pa.int8()])
    ]
    for piece in pieces:
        buckets.add(1, piece)
    buckets.finish()
    assert buckets.rows(1) == 4
    assert len(list(tmp_path.iterdir())) == 3
    assert [batch.column(0) for batch in buckets.take(1)] == [piece["n"].chunk(0) for piece in pieces]
    assert list(tmp_path.iterdir()) == []
    assert buckets.take(0) == []


@pytest.mark.parametrize(("text", "share"), [(True, 0.5), (False, 1.1)])
def test_spill_files_are_compressed_where_it_pays(text: bool, share: float, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    values = ["a long line of words " * 3] * 5000 if text else random.integers(0, 2**32, 5000)  # half of it zeros
    rows = pa.table({"v": values})
    buckets = SpilledBuckets(1, str(tmp_path))
    buckets.add(0, rows)
    buckets.finish()
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size <= share * rows.nbytes
    assert (file.stat().st_size < rows.nbytes) == text
    assert pa.Table.from_batches(buckets.take(0)).equals(rows)


def test_a_long_dictionary_is_not_spilled_with_every_piece(tmp_path: Path) -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([70_000, 3], pa.int32()), [f"{n:06d}" for n in range(100_000)])
    buckets = SpilledBuckets(1, str(tmp_path))
    for _ in range(5):
        buckets.add(0, pa.table({"s": texts}))
    buckets.finish()
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size < 10_000
    assert [batch.column(0).to_pylist() for batch in buckets.take(0)] == [["070000", "000003"]] * 5
