"""Footers: the statistics are those that other readers see, and only those that can be trusted."""

from __future__ import annotations

import datetime as dt
import errno
import math
import os
import weakref
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zskip
from tests.tables import require_as_in_duckdb
from zskip.core.schema import Schema
from zskip.errors import CorruptFile, SchemaMismatch
from zskip.parquet import batch_footers, footer_reads, footers, from_rows, parsed_footers, thrift
from zskip.stats import DataFiles
from zskip.storage import open_storage
from zskip.tablelog import commit, log
from zskip.tablelog.index import Index

TYPED = {
    "i8": pa.array([-128, 127, None], pa.int8()),
    "i16": pa.array([-(2**15), 2**15 - 1, None], pa.int16()),
    "i32": pa.array([-(2**31), 2**31 - 1, None], pa.int32()),
    "i64": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
    "u8": pa.array([0, 255, None], pa.uint8()),
    "u16": pa.array([0, 2**16 - 1, None], pa.uint16()),
    "u32": pa.array([0, 2**32 - 1, None], pa.uint32()),
    "u64": pa.array([0, 2**64 - 1, None], pa.uint64()),
    "f16": pa.array([np.float16(-1.5), np.float16(2.5), None], pa.float16()),
    "f32": pa.array([-1.5, math.inf, None], pa.float32()),
    "f64": pa.array([-math.inf, 1e300, None], pa.float64()),
    "bool": pa.array([False, True, None], pa.bool_()),
    "text": pa.array(["", "žluťoučký 🐎", None], pa.string()),
    "large": pa.array(["a" * 3000, "b" * 3000, None], pa.large_string()),
    "bytes": pa.array([b"\x00\xff", b"\xff\x00", None], pa.binary()),
    "fixed": pa.array([b"abcd", b"\xff\xff\xff\xff", None], pa.binary(4)),
    "dictionary": pa.array(["x", "y", None]).dictionary_encode(),
    "d5": pa.array([Decimal("-9.99"), Decimal("9.99"), None], pa.decimal128(5, 2)),
    "d15": pa.array([Decimal("-1234567890.12345"), Decimal("9.5"), None], pa.decimal128(15, 5)),
    "d38": pa.array([Decimal(-(10**38 - 1)), Decimal(10**38 - 1), None], pa.decimal128(38, 0)),
    "d76": pa.array([Decimal(-(10**75)), Decimal(10**75), None], pa.decimal256(76, 0)),
    "date32": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None], pa.date32()),
    "date64": pa.array([dt.date(1970, 1, 1), dt.date(2018, 3, 24), None], pa.date64()),
    "t32": pa.array([dt.time(0), dt.time(23, 59, 59), None], pa.time32("ms")),
    "t64": pa.array([dt.time(0), dt.time(23, 59, 59, 999999), None], pa.time64("us")),
    "ts_s": pa.array([-(10**9), 10**9, None], pa.timestamp("s")),
    "ts_ms": pa.array([-(10**12), 10**12, None], pa.timestamp("ms")),
    "ts_us": pa.array([-(2**62), 2**62, None], pa.timestamp("us")),
    "ts_ns": pa.array([-(2**63) + 1, 2**63 - 1, None], pa.timestamp("ns")),
    "ts_tz": pa.array([0, 10**15, None], pa.timestamp("us", "Europe/Berlin")),
    "duration": pa.array([-5, 2**40, None], pa.duration("us")),
}


def read(folder: Path, **options: object) -> tuple[Schema, DataFiles]:
    storage = open_storage(folder)
    return footers.read(storage, storage.list("", hidden=False).path.to_pylist(), **options)  # type: ignore[arg-type]


def as_numbers(values: pa.Array) -> pa.Array:
    return values.cast(pa.int64()) if pa.types.is_duration(values.type) else values


def test_bounds_of_every_type_are_the_values_own(tmp_path: Path) -> None:
    pq.write_table(pa.table(TYPED), tmp_path / "a.parquet")
    schema, files = read(tmp_path)
    stored = pq.read_table(tmp_path / "a.parquet")
    for name in TYPED:
        column, plain = files.files.columns[name], schema.columns[name].of(stored).combine_chunks()
        assert column.null_count.to_pylist() == [1], name
        assert column.lower.equals(plain[:1]), name
        assert column.upper.equals(plain[1:2]), name
        assert column.lower.type == schema.columns[name].type, name


def test_bounds_of_every_type_survive_the_index(tmp_path: Path) -> None:
    rows = pa.table(TYPED).take(pa.array([0, 1, 2, 0, 2]))
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=3)
    storage = open_storage(tmp_path)
    schema, files = read(tmp_path)
    commit.commit(storage, None, commit.TableUpdate("index", add=files, schema=schema, managed=False))
    index = Index(storage, log.load(storage))
    by_group = index.row_groups(np.array([0]), list(TYPED)).statistics.columns
    by_file = index.files(None, list(TYPED)).statistics.columns
    by_shard = index.shards(list(TYPED)).columns
    for name in TYPED.keys() - {"large"}:
        expected = files.row_groups.columns[name].ranges(files.row_groups.row_count)
        for units, count in ((by_group, 2), (by_file, 1), (by_shard, 1)):
            assert units[name].lower.equals(expected.lower[:count]), name
            assert units[name].upper.equals(expected.upper[:count]), name
    cut = index.file_statistics(np.array([0]), ["large"]).columns["large"]
    assert (cut.lower[0].as_py(), cut.upper[0].as_py()) == ("a" * 256, "b" * 255 + "c")
    assert (cut.lower_exact[0].as_py(), cut.upper_exact[0].as_py()) == (False, False)
    assert by_shard["large"].lower[0].as_py() <= "a" * 3000
    assert by_shard["large"].upper[0].as_py() >= "b" * 3000


@settings(max_examples=8)
@given(st.data())
def test_what_is_read_holds_every_row(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Each bound and count of each row group and file is true of the rows in it."""
    folder = tmp_path_factory.mktemp("rows")
    texts = st.text(st.characters(codec="utf-8"), max_size=12)
    numbers = st.integers(-(2**63), 2**63 - 1)
    for file in range(data.draw(st.integers(1, 4))):
        count = data.draw(st.integers(0, 12))
        columns = {
            "n": pa.array(data.draw(st.lists(st.none() | numbers, min_size=count, max_size=count)), pa.int64()),
            "f": pa.array(data.draw(st.lists(st.none() | st.floats(), min_size=count, max_size=count)), pa.float64()),
            "s": pa.array(data.draw(st.lists(st.none() | texts, min_size=count, max_size=count)), pa.string()),
        }
        pq.write_table(pa.table(columns), folder / f"{file}.parquet", row_group_size=data.draw(st.integers(1, 5)))
    schema, files = read(folder)
    everything = from_rows.with_statistics_from_rows(open_storage(folder), schema, files)
    for known in (files, everything):
        for file, path in enumerate(known.path.to_pylist()):
            with pq.ParquetFile(folder / path) as parquet:
                first, last = int(known.first_row_group[file]), int(known.first_row_group[file + 1])
                assert parquet.num_row_groups == last - first
                whole = parquet.read()
                for path in schema.columns:
                    assert_true_of(known.files, file, path, whole)
                    for group in range(last - first):
                        assert_true_of(known.row_groups, first + group, path, parquet.read_row_group(group))


def assert_true_of(units: object, unit: int, path: str, rows: pa.Table) -> None:
    column = units.columns[path]  # type: ignore[attr-defined]
    values = rows.column(path)
    assert column.null_count[unit].as_py() in (None, values.null_count)
    nans = sum(value != value for value in values.drop_null().to_pylist())
    assert column.nan_count[unit].as_py() in (None, nans)
    translated = [value for value in values.drop_null().to_pylist() if value == value]
    if translated:
        lower, upper = column.lower[unit].as_py(), column.upper[unit].as_py()
        assert lower is None or lower <= min(translated)
        assert upper is None or upper >= max(translated)
        assert column.lower_exact[unit].as_py() is not True or lower == min(translated)
        assert column.upper_exact[unit].as_py() is not True or upper == max(translated)


def test_shapes_that_differ_are_told_apart(tmp_path: Path) -> None:
    """Many files of few shapes, read in lockstep, give what each file gives alone."""
    random = np.random.default_rng(7)
    for number in range(60):
        size = int(random.integers(0, 30))
        rows = pa.table({"a": random.integers(-(10**12), 10**12, size), "b": [f"v{x}" for x in range(size)]})
        if number % 3 == 0:
            rows = rows.append_column("c", pa.nulls(size, pa.float64()))
        pq.write_table(rows, tmp_path / f"{number:03}.parquet", row_group_size=10, write_statistics=number % 7 != 0)
    schema, together = read(tmp_path)
    storage = open_storage(tmp_path)
    for number, path in enumerate(together.path.to_pylist()):
        _, alone = footers.read(storage, [path], schema)
        assert together.take(np.array([number])).row_groups == alone.row_groups


@pytest.mark.slow
def test_blocks_of_any_size_tell_the_same_and_let_their_footers_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns that come, widen and go by file; never are the footers of more than one block in memory."""
    days = pa.array([dt.date(1, 1, 1), dt.date(2018, 3, 24)])
    for number in range(50):
        columns = {
            "a": pa.array([number, -number], (pa.int16(), pa.int64())[number % 2]),
            "b": (pa.nulls(2), pa.array([f"v{number}", None]), pa.array(["x", "y"]))[number % 3],
            "d": (days, days[1:].take([0, 0]))[number % 2],
        }
        if number % 5 == 0:
            columns["c"] = pa.array([math.nan, number / 4])
        pq.write_table(pa.table(columns), tmp_path / f"{number:03}.parquet", row_group_size=1 + number % 2)

    def told(**options: object) -> tuple[object, ...]:
        table, files = read(tmp_path, **options)
        return table, files.path, files.files, files.row_groups, files.first_row_group.tolist()

    expected = told()
    finer = Schema(read(tmp_path)[0].arrow.set(2, pa.field("d", pa.timestamp("ns"))))  # which does not reach the year 1
    as_finer = told(schema=finer)
    assert as_finer[3].columns["d"].lower.null_count == 25  # type: ignore[attr-defined]
    alive: list[weakref.ref[np.ndarray]] = []
    most = 0

    def watched(*laid: np.ndarray) -> object:
        nonlocal most
        most = max(most, sum(one() is not None for one in alive))
        found = parsed_footers.parse(*laid)
        alive.extend({id(group.data): weakref.ref(group.data) for group in found[0]}.values())
        return found

    monkeypatch.setattr(footer_reads, "_FIRST", 3)
    monkeypatch.setattr(footers, "parse", watched)
    for block_bytes in (1, 5_000, 1 << 30):
        alive.clear()
        assert told(block_bytes=block_bytes, threads=1) == expected
        assert told(schema=finer, block_bytes=block_bytes) == as_finer
        assert told(block_bytes=block_bytes, threads=3) == expected
        assert (len(alive) > 20) == (block_bytes < 1 << 30)
    assert most == 0


def test_footer_cut_anywhere_is_an_error_and_no_crash(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2], "s": ["x", "y"]}), tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    length = int.from_bytes(whole[-8:-4], "little")
    footer = whole[-8 - length : -8]
    for cut in range(0, length, 7):
        (tmp_path / "a.parquet").write_bytes(b"PAR1" + footer[:cut] + cut.to_bytes(4, "little") + b"PAR1")
        with pytest.raises(CorruptFile, match=r"a\.parquet"):
            read(tmp_path)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet at all, surely", b"PAR1\xff\xff\xff\x7fPAR1"])
def test_a_file_that_is_no_parquet_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.parquet").write_bytes(content)
    with pytest.raises(CorruptFile, match=r"bad\.parquet"):
        read(tmp_path)


def test_nan_is_unknown_in_floats_of_others(tmp_path: Path) -> None:
    pq.write_table(pa.table({"f": [1.0, math.nan, 3.0]}), tmp_path / "a.parquet")
    schema, files = read(tmp_path)
    assert files.files.columns["f"].nan_count.to_pylist() == [None]
    ranges = files.files.statistics().columns["f"]
    assert ranges.has_nan.to_pylist() == [None]
    known = from_rows.with_statistics_from_rows(open_storage(tmp_path), schema, files)
    assert known.files.columns["f"].nan_count.to_pylist() == [1]
    assert known.files.statistics().columns["f"].has_nan.to_pylist() == [True]


def test_no_nan_is_among_rows_that_are_all_null(tmp_path: Path) -> None:
    """Or one such row group would make a whole file's count unknown, deep scan or not."""
    pq.write_table(pa.table({"f": pa.array([None, None, 1.5, math.nan])}), tmp_path / "a.parquet", row_group_size=2)
    schema, files = read(tmp_path)
    assert files.row_groups.columns["f"].nan_count.to_pylist() == [0, None]
    known = from_rows.with_statistics_from_rows(open_storage(tmp_path), schema, files)
    assert known.row_groups.columns["f"].nan_count.to_pylist() == [0, 1]
    assert known.files.columns["f"].nan_count.to_pylist() == [1]


def test_files_that_spell_a_column_differently_are_not_taken_for_a_table(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "s": [{"x": 1}]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [2], "s": [{"X": 2}]}), tmp_path / "b.parquet")
    with pytest.raises(SchemaMismatch, match=r'"s\.x" in a\.parquet and "s\.X" in b\.parquet'):
        read(tmp_path)
    pq.write_table(pa.table({"id": [2], "ID": [2]}), tmp_path / "b.parquet")
    schema, _ = read(tmp_path)  # one file that has both means two
    assert list(schema.columns) == ["id", "s.x", "ID"]


def test_folders_that_spell_a_column_differently_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ID=1").mkdir()
    pq.write_table(pa.table({"id": [10], "x": [1]}), tmp_path / "ID=1" / "a.parquet")
    with pytest.raises(SchemaMismatch, match=r'"ID" in the names of folders.*or rename the folders'):
        zskip.index(tmp_path)


def test_numbers_are_widened_and_other_changes_of_type_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([1], pa.int32())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": pa.array([2**40], pa.int64())}), tmp_path / "b.parquet")
    schema, files = read(tmp_path)
    assert schema.columns["a"].type == pa.int64()
    assert files.files.columns["a"].upper.to_pylist() == [1, 2**40]
    pq.write_table(pa.table({"a": ["x"]}), tmp_path / "c.parquet")
    with pytest.raises(SchemaMismatch, match="a"):
        read(tmp_path)


@pytest.mark.parametrize("decimal", [pa.decimal128(3, 2), pa.decimal128(9, 0), pa.decimal128(38, 30)], ids=str)
def test_integers_beside_decimals_have_the_type_that_duckdb_gives_them(decimal: pa.DataType, tmp_path: Path) -> None:
    """Also within structs, lists and maps."""
    kinds = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    most = {kind: min(np.iinfo(kind).max, 10 ** (38 - decimal.scale) - 1) for kind in kinds}
    for number in range(2):
        columns: dict[str, pa.Array] = {}
        for kind in kinds:
            integers = pa.array([most[kind], 1], pa.type_for_alias(kind))
            value = pa.array([Decimal(1), None], decimal) if number else integers
            columns[kind] = value
            columns[f"{kind} s"] = pa.StructArray.from_arrays([value], ["x"])
            columns[f"{kind} l"] = pa.array([[each] for each in value], pa.list_(value.type))
            columns[f"{kind} m"] = pa.array([[("a", each)] for each in value], pa.map_(pa.string(), value.type))
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet")
    zskip.index(tmp_path)
    require_as_in_duckdb(tmp_path, "FROM {}")
    for kind in kinds:
        assert zskip.open(tmp_path).plan(f"{kind} = {most[kind]}").count() == 1


def test_decimals_of_two_scales_have_the_type_that_duckdb_gives_them(tmp_path: Path) -> None:
    for number, type in enumerate((pa.decimal128(37, 3), pa.decimal128(20, 5), pa.decimal128(4, 1))):
        values = pa.array([Decimal("123.5"), Decimal("-1.5")], type)
        nested = pa.StructArray.from_arrays([values], ["x"])
        pq.write_table(pa.table({"v": values, "s": nested}), tmp_path / f"{number}.parquet")
    zskip.index(tmp_path)
    require_as_in_duckdb(tmp_path, "FROM {}")
    assert zskip.open(tmp_path).plan("v = 123.5").count() == 3


def test_what_is_only_a_note_of_a_files_writer_keeps_no_files_apart(tmp_path: Path) -> None:
    """A dictionary is how values are stored, a zone how instants are shown."""
    instant = pa.timestamp("us", "UTC")
    words = pa.array(["a", "b"])
    one = {"s": words.dictionary_encode(), "t": pa.array([1, 2], instant), "n": pa.array([1, 2], instant)}
    other = {"s": words, "t": pa.array([3, 4], pa.timestamp("us", "Europe/Berlin")), "n": pa.array([3, 4], instant)}
    pq.write_table(pa.table(one), tmp_path / "a.parquet")
    pq.write_table(pa.table(other), tmp_path / "b.parquet")
    schema, files = read(tmp_path)
    assert [column.type for column in schema] == [pa.string(), instant, instant]
    assert files.files.columns["s"].upper.to_pylist() == ["b", "b"]
    index = zskip.index(tmp_path)
    assert index.plan("t >= TIMESTAMPTZ '1970-01-01 00:00:00.000003+00'").skipped.files.part == 1
    assert index.plan("s = 'b'").to_arrow()["t"].cast(pa.int64()).to_pylist() == [2, 4]


def test_bounds_that_the_tables_type_cannot_hold_are_unknown(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [2**60 + 1]}), tmp_path / "a.parquet")
    _, files = read(tmp_path, schema=Schema(pa.schema({"a": pa.float64()})))
    assert files.files.columns["a"].lower.to_pylist() == [None]
    assert files.files.columns["a"].null_count.to_pylist() == [None]


def test_one_unknown_row_group_makes_its_file_unknown(tmp_path: Path) -> None:
    """The bounds of one row group are not the file's."""
    rows = pa.table({"f": [1.0, 2.0, math.nan, math.nan, None, None]})
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=2)
    _, files = read(tmp_path)
    assert files.row_groups.columns["f"].lower.to_pylist() == [1.0, None, None]
    assert files.files.columns["f"].lower.to_pylist() == [None]
    assert files.files.columns["f"].null_count.to_pylist() == [2]


def test_a_data_column_beside_a_folder_of_its_name_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "a=5").mkdir()
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "a=5" / "x.parquet")
    _, files = read(tmp_path)
    assert files.files.columns["a"].lower.to_pylist() == [None]


def test_struct_fields_have_bounds_and_lists_have_none(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "l": pa.array([[1, 2], None, []], pa.list_(pa.int64())),
            "s": pa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}]),
            "m": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
            "z": [7, 8, 9],
        }
    )
    pq.write_table(rows, tmp_path / "a.parquet")
    _, files = read(tmp_path)
    columns = files.files.columns
    assert columns["s.x"].lower.to_pylist() == [1]
    assert columns["s.x"].null_count.to_pylist() == [2]
    assert columns["s.y"].upper.to_pylist() == ["b"]
    assert columns["z"].lower.to_pylist() == [7]
    assert columns["l"].null_count.to_pylist() == [None]


def test_names_with_dots_and_quotes(tmp_path: Path) -> None:
    rows = pa.table({"a.b": [1], "select": [2], 'q"q': [3], "a": [{"b": 4}]})
    pq.write_table(rows, tmp_path / "a.parquet")
    schema, files = read(tmp_path)
    for path, value in zip(schema.columns, (1, 2, 3, 4), strict=True):
        assert files.files.columns[path].lower.to_pylist() == [value]
    storage = open_storage(tmp_path)
    commit.commit(storage, None, commit.TableUpdate("index", add=files, schema=schema, managed=False))
    found = Index(storage, log.load(storage)).files(None, list(schema.columns)).statistics
    assert [found.columns[path].upper[0].as_py() for path in schema.columns] == [1, 2, 3, 4]


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 300), st.integers(0, 2**63 - 1)), min_size=1))
def test_numbers_of_any_length_are_followed(numbers: list[tuple[int, int, int]]) -> None:
    def varint(value: int) -> bytes:
        return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([value])

    steps: list[batch_footers.Step] = [b"\x15", ("number", -1), b"ab\x03", ("text", 0), ("number", 2), b"end"]
    made = [
        b"\x15" + varint(skipped) + b"ab\x03" + varint(length) + b"x" * length + varint(kept << 1) + b"end"
        for skipped, length, kept in ((skipped, length, kept >> 1) for skipped, length, kept in numbers)
    ]
    made.append(made[0].replace(b"ab", b"ac"))
    ends = np.cumsum([len(one) for one in made])
    starts = ends - [len(one) for one in made]
    data, _ = batch_footers.joined(made)
    good, kept = batch_footers.follow(steps, 3, data, starts, ends)
    assert good.tolist() == [True] * len(numbers) + [False]
    assert kept[1].tolist() == [length for _, length, _ in numbers]
    assert kept[2].tolist() == [value >> 1 for _, _, value in numbers]
    assert [bytes(data[at : at + length]) for at, length in kept[:2].T] == [b"x" * n for _, n, _ in numbers]


@pytest.fixture(scope="module")
def footers_of_many(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Footers of several writers, versions and contents, with numbers and texts of several lengths."""
    path = tmp_path_factory.mktemp("writers") / "one.parquet"
    found = []
    for number in range(24):
        rows = pa.table({"a": [1, 8 ** (number % 20)] * 2, "s": ["x" * number, "y"] * 2, "f": [None, 1.5 + number] * 2})
        if number % 8 == 0:
            duckdb.from_arrow(rows).write_parquet(str(path))
        elif number % 8 == 1:
            polars.from_arrow(rows).write_parquet(path)
        else:
            pq.write_table(rows.slice(0, 1 + number % 4), path, row_group_size=2 + number % 3)
        data = path.read_bytes()
        found.append(data[-8 - int.from_bytes(data[-8:-4], "little") : -8])
    return found


@settings(max_examples=25)
@given(st.data())
def test_only_footers_of_the_shape_are_parsed_by_it(footers_of_many: list[bytes], data: st.DataObject) -> None:
    """Of any writer's footers, changed at any bit, those are good that have the shape, with their own numbers."""
    chosen = data.draw(st.lists(st.sampled_from(footers_of_many), min_size=1, max_size=12))
    made = []
    for footer in chosen:
        changed = bytearray(footer)
        for _ in range(data.draw(st.integers(0, 2))):
            changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        made.append(bytes(changed))
    shape = thrift.trace(chosen[0])
    joined, ends = batch_footers.joined(made)
    starts = ends - [len(one) for one in made]
    good, kept = batch_footers.follow(shape.steps, len(shape.values), joined, starts, ends)
    place = 0
    for number, footer in enumerate(made):
        try:
            own = thrift.trace(footer)
        except ValueError:
            assert not good[number]
            continue
        assert good[number] == (own.steps == shape.steps), number
        if good[number]:
            assert kept[:, place].tolist() == parsed_footers._kept_of_traced(own, starts[number])[:, 0].tolist()
            place += 1
    assert place == kept.shape[1]


def test_a_disk_that_fails_in_a_footer_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", broken)
    with pytest.raises(OSError, match=r"a\.parquet"):
        footers.read(open_storage(tmp_path), ["a.parquet"])


def test_no_files_have_no_schemas(tmp_path: Path) -> None:
    """As where a statement fails by itself, of which no file was left to read."""
    storage = open_storage(tmp_path)
    assert list(footers.both_schemas(storage, storage.size_and_modified([]))) == []
