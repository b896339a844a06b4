"""How rows travel into files is nobody's business: what is kept, what files say and what is skipped stay the same."""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import zskip
from tests import one_in
from zskip import layouts
from zskip.core.schema import Schema
from zskip.stats import FileStatistics, collect
from zskip.writer import compact_rows as narrowing
from zskip.writer import row_source
from zskip.writer.compact_rows import NarrowForms
from zskip.writer.encode import (
    even_cuts,
)
from zskip.writer.open_source import open_source
from zskip.writer.row_sample import RowSample
from zskip.writer.scatter import Pieces
from zskip.writer.storable import ENCODED_STRING, compact_strings, storable_rows, transit_schema

MONEY = st.decimals(min_value="-9999999999999.99", max_value="9999999999999.99", places=2)
CELLS = st.fixed_dictionaries(
    {
        "mode": st.one_of(st.none(), st.sampled_from(["AIR", "RAIL", "", "é"])),
        "price": st.one_of(st.none(), MONEY),
        "exact": st.one_of(st.none(), st.decimals(min_value=-(10**17), max_value=10**17, places=0)),
        "note": st.one_of(st.none(), st.text(max_size=5)),
        "n": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
        "at": st.one_of(st.none(), st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))),
    }
)
KEPT = pa.schema(
    [
        ("mode", pa.string()),
        ("price", pa.decimal128(15, 2)),
        ("exact", pa.decimal128(18, 0)),
        ("note", pa.string()),
        ("n", pa.int64()),
        ("at", pa.timestamp("us")),
    ]
)


def carried(rows: pa.Table) -> pa.Table:
    """Strings and decimals in the forms that travel, whether that pays or not."""
    schema = transit_schema(rows, rows.schema)
    schema = schema.set(0, schema.field(0).with_type(ENCODED_STRING))
    return storable_rows(rows, schema)


@given(cells=st.lists(CELLS, min_size=1, max_size=40), group=st.integers(1, 40))
@settings(max_examples=12)
def test_statistics_are_those_of_the_rows_as_they_are_kept(cells: list[dict[str, Any]], group: int) -> None:
    rows = pa.Table.from_pylist(cells, KEPT)
    moved = carried(rows)
    assert pa.types.is_decimal64(moved.schema.field("price").type)
    cuts = even_cuts(rows.num_rows, group)
    plain, found = (collect.row_groups(form, cuts, Schema(KEPT)) for form in (rows, moved))
    for path, column in plain.columns.items():
        assert found.columns[path] == column, path


def lineitems(rows: int) -> pa.Table:
    """Repeating and unique strings, and decimals, with nulls among them."""
    random = np.random.default_rng(5)
    price = random.integers(-(10**6), 10**6, rows)
    return pa.table(
        {
            "id": np.arange(rows),
            "mode": [None if n % 11 == 0 else f"mode {n % 5}" for n in range(rows)],
            "price": pa.array(
                [None if n % 13 == 0 else decimal.Decimal(int(n)) / 100 for n in price], pa.decimal128(15, 2)
            ),
            "note": [f"note {n}" for n in range(rows)],
            "day": pa.array(random.integers(0, 3000, rows).astype("int32")).cast(pa.date32()),
        }
    )


@functools.cache
def as_a_table(by: tuple[str, ...]) -> FileStatistics:
    """The statistics of the row groups that 1,000 rows have as a table of Arrow."""
    with tempfile.TemporaryDirectory() as folder:
        table = zskip.write(lineitems(1000), folder + "/t", by=list(by), files=6, row_group_rows=100)
        return table._index.data_files().row_groups


@pytest.mark.parametrize(
    ("given_as", "options"),
    one_in(
        2,
        ["table", "Parquet", "Parquet with views", "stream", "Parquet without dictionaries"],
        [(["mode", "price"], None), (["price", "note"], 70_000)],
    ),
)
def test_tables_are_equal_however_their_rows_come(
    given_as: str, options: tuple[list[str], int | None], tmp_path: Path
) -> None:
    by, memory_limit = options
    rows = lineitems(1000)
    source: Any = rows
    if given_as == "Parquet without dictionaries":
        source = [tmp_path / "rows.parquet"]
        pq.write_table(rows, source[0], row_group_size=400, use_dictionary=False)
        assert not open_source(source).encoded
    elif given_as.startswith("Parquet"):
        views = rows.set_column(1, "mode", rows["mode"].cast(pa.string_view()))
        source = tmp_path / "rows.parquet"
        pq.write_table(views if "views" in given_as else rows, source, row_group_size=300)
        assert open_source(source).encoded == {"mode"}
    elif given_as == "stream":
        source = rows.to_reader(max_chunksize=200)
    table = zskip.write(source, tmp_path / "t", by=by, files=6, row_group_rows=100, memory_limit=memory_limit)
    assert table.schema.equals(rows.schema)
    paths = [tmp_path / "t" / path for path in table._index.data_files().path.to_pylist()]
    expected = tmp_path / "expected.parquet"
    pq.write_table(rows, expected, store_decimal_as_integer=True)
    plain = pq.ParquetFile(expected)
    for file in map(pq.ParquetFile, paths):  # a reader of the file alone sees the kept types
        assert file.schema_arrow.equals(plain.schema_arrow)
        assert file.metadata.schema.equals(plain.metadata.schema)
    back = pa.concat_tables([pq.read_table(path) for path in paths])
    assert back.sort_by("id").combine_chunks().equals(rows)
    assert duckdb.sql(f"SELECT * FROM read_parquet({[str(path) for path in paths]}) ORDER BY id").fetchall() == [
        tuple(row.values()) for row in rows.to_pylist()
    ]
    one, other = as_a_table(tuple(by)), table._index.data_files().row_groups
    assert one.row_count.equals(other.row_count)
    assert {path: column == other.columns[path] for path, column in one.columns.items()} == dict.fromkeys(
        one.columns, True
    )


def test_values_that_are_new_behind_the_first_rows_come_back(tmp_path: Path) -> None:
    texts = ["same"] * 20_000 + [f"text {n}" * 40 for n in range(20_000)]
    rows = pa.table({"id": np.arange(len(texts)), "text": texts})
    assert transit_schema(rows, rows.schema).field("text").type == ENCODED_STRING
    table = zskip.write(rows, tmp_path / "t", by="text", files=5, memory_limit=3_000_000)
    assert table.to_arrow().sort_by("id").combine_chunks().equals(rows)
    assert table.plan("text = 'text 7'").to_arrow().num_rows == 0
    assert table.plan(f"text = '{'text 7' * 40}'").to_arrow()["id"].to_pylist() == [20_007]


def test_salted_rows_go_where_they_went_before() -> None:
    rows = lineitems(4000).set_column(4, "day", pa.nulls(4000, pa.date32()))
    assignment = layouts.fit(rows, ["day"], files=8, total_rows=4000)
    assert (assignment.cells.salt > 1).any()
    moved = storable_rows(rows, transit_schema(rows, rows.schema))
    assert moved.schema.types != rows.schema.types
    assert (assignment.assign(moved) == assignment.assign(rows)).all()


def test_only_short_dictionaries_are_read_as_such(tmp_path: Path) -> None:
    rows = lineitems(5000)
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=500)
    pq.write_table(rows, tmp_path / "b.parquet", use_dictionary=["note"])
    footers = [pq.read_metadata(tmp_path / name) for name in ("a.parquet", "b.parquet")]
    assert compact_strings(footers[:1], rows.schema) == ["mode"]
    assert compact_strings(footers[1:], rows.schema) == []
    assert compact_strings(footers, rows.schema) == []


@given(rows=st.integers(1, 60_000), size=st.integers(1, 3000), part=st.integers(1, 20_000), seed=st.integers(0, 5))
@settings(max_examples=10)
def test_a_sample_does_not_depend_on_the_parts(rows: int, size: int, part: int, seed: int) -> None:
    values = pa.table({"x": np.arange(rows)})
    whole, sample = RowSample(size, seed), RowSample(size, seed)
    whole.add(values, 0)
    for start in range(0, rows, part):
        sample.add(values.slice(start, part), start)
    found = sample.rows()
    assert found is not None
    assert found.equals(whole.rows())
    assert found.num_rows == min(size, rows)


def test_a_file_holds_no_texts_of_other_files(tmp_path: Path) -> None:
    """A dictionary is carried as a whole: what a file's own rows do not have must not be written into it."""
    texts = pa.array([f"{number:032d}" for number in range(2_000)]).dictionary_encode()
    some = pa.table({"s": texts.take(pa.array(list(range(2_000)) * 5)), "a": range(10_000)})
    table = zskip.write(some, tmp_path / "t", by=["s"], files=100, layout="linear")
    assert table.plan(f"s = '{7:032d}'").to_arrow().num_rows == 5
    for path in table.plan().paths:
        column = pq.read_metadata(path).row_group(0).column(0)
        assert column.path_in_schema == "s"
        assert column.total_uncompressed_size < 100 * 40
    nulls = pa.table({"s": pa.array(["a", None, "b", None]).dictionary_encode(), "a": [1, 2, 3, 4]})
    assert zskip.write(nulls, tmp_path / "n", by=["a"], files=4).to_arrow().sort_by("a")["s"].to_pylist() == [
        "a",
        None,
        "b",
        None,
    ]


# --- rows wait in narrow forms, in memory or in spill files; what comes out is what went in ---


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
    narrow = NarrowForms(schema, 1000, 100_000)
    given = [bits_as(part, type) for part in parts]
    forms = [narrow.narrowed(pa.table([part], schema=schema))["n"] for part in given]
    widths = [form.type.bit_width for form in forms]
    assert all(before <= after for before, after in pairwise(widths)), "a later part is never narrower"
    chunks = [chunk for form in forms for chunk in form.chunks]
    assert narrow.widened("n", narrow.unified("n", chunks)).equals(pa.chunked_array(given, type))


def test_small_numbers_are_narrow() -> None:
    rows = pa.table({str(type): bits_as([0, 100, None], type) for type in WHOLE})
    assert set(NarrowForms(rows.schema, 1000, 100_000).narrowed(rows).schema.types) == {pa.int8(), pa.uint8()}
    none = pa.table({"n": pa.nulls(5, pa.int64())})
    assert NarrowForms(none.schema, 1000, 100_000).narrowed(none).schema.types == [pa.int8()]


TEXTS = st.lists(st.lists(st.none() | st.sampled_from([*"abcdefgh", "", "é" * 9]), max_size=6), min_size=1, max_size=6)


@given(parts=TEXTS, most=st.sampled_from([0, 3, 1000]), most_bytes=st.sampled_from([0, 20, 1000]))
@example(parts=[["a", None], ["b", "a"], list("abcdef"), ["a"]], most=3, most_bytes=1000)
@settings(max_examples=60)
def test_texts_come_back_also_when_they_become_too_many(
    parts: list[list[str | None]], most: int, most_bytes: int
) -> None:
    schema = pa.schema([("s", ENCODED_STRING)])
    narrow = NarrowForms(schema, most_bytes, 100_000)
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


def test_an_ordered_dictionary_keeps_its_order() -> None:
    sizes = pa.DictionaryArray.from_arrays(pa.array([2, 0, None], pa.int32()), ["S", "M", "L"], ordered=True)
    rows = pa.table({"size": sizes})
    assert NarrowForms(rows.schema, 1000, 100_000).narrowed(rows).equals(rows)


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


@pytest.mark.parametrize(("texts", "given_as"), one_in(2, [32_767, 100], ["table", "stream", "Parquet"]))
def test_every_way_makes_the_same_files(
    given_as: str, texts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a column's dictionaries differ by row group, and where all its texts are too many to be known."""
    monkeypatch.setattr(narrowing, "_MOST_STRINGS", texts)
    monkeypatch.setattr(row_source, "PART_ROWS", 150)
    rows = growing(2000)
    source: Any = rows
    if given_as == "Parquet":
        pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=250)
        source = tmp_path / "rows.parquet"

    def written(name: str, source: Any, **options: Any) -> zskip.Table:
        given = source.to_reader(max_chunksize=200) if given_as == "stream" else source
        return zskip.write(given, tmp_path / name, by=["day", "price"], files=4, row_group_rows=100, **options)

    resident = written("resident", source, threads=1)
    spilled = written("spilled", source, threads=3, memory_limit=100_000)
    expected = zskip.write(rows, tmp_path / "expected", by=["day", "price"], files=4, row_group_rows=100)
    for table in (resident, spilled):
        assert plain(table.to_arrow()).equals(plain(rows))
        assert [file.num_rows for file in files_of(table)] == [file.num_rows for file in files_of(expected)]
    for one, other, third in zip(files_of(resident), files_of(spilled), files_of(expected), strict=True):
        assert one.equals(other)
        assert plain(one).equals(plain(third))


def test_spill_files_hold_rows_of_several_forms_in_their_order(tmp_path: Path) -> None:
    buckets = Pieces(str(tmp_path))
    pieces = [
        pa.table({"n": pa.array([n], type)}) for n, type in enumerate([pa.int8(), pa.int8(), pa.int16(), pa.int8()])
    ]
    for piece in pieces:
        buckets.add(1, piece)
    assert buckets.rows(1) == 4
    assert len(list(tmp_path.iterdir())) == 1
    assert buckets.take(1) == pieces
    assert list(tmp_path.iterdir()) == []
    assert buckets.take(0) == []


@pytest.mark.parametrize(("text", "share"), [(True, 0.5), (False, 1.1)])
def test_spill_files_are_compressed_where_it_pays(text: bool, share: float, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    values = ["a long line of words " * 3] * 5000 if text else random.integers(0, 2**32, 5000)  # half of it zeros
    rows = pa.table({"v": values})
    buckets = Pieces(str(tmp_path))
    buckets.add(0, rows)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size <= share * rows.nbytes
    assert (file.stat().st_size < rows.nbytes) == text
    assert pa.concat_tables(buckets.take(0)).equals(rows)


def test_a_long_dictionary_is_not_spilled_with_every_piece(tmp_path: Path) -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([70_000, 3], pa.int32()), [f"{n:06d}" for n in range(100_000)])
    buckets = Pieces(str(tmp_path))
    for _ in range(5):
        buckets.add(0, pa.table({"s": texts}))
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size < 10_000
    assert [piece["s"].to_pylist() for piece in buckets.take(0)] == [["070000", "000003"]] * 5
