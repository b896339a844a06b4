"""Files that really have the defects: indexed by their footers, planned, and held against a full scan.

And the proof that the rules of trust are needed: without them, rows are lost.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as t
import pytest

from tests import FIXTURES, one_in
from tests.pruning.oracles import DuckDBOracle, asked, breaches
from zskip import pruning
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.parquet import footers, trust
from zskip.stats import ColumnStatistics, FileStatistics, Ranges, Statistics
from zskip.storage import open_storage

FOLDER = FIXTURES / "defects"
NAMES = sorted(path.stem for path in FOLDER.glob("*.parquet"))
INSTANTS = ("'1950-06-01'", "'2020-01-01'", "'2021-01-01'", "'2262-01-01'", "'1200-01-01'", "'1850-01-01'")
FINE = (
    "'2020-01-01 12:00:00.999'",
    "'2020-01-01 12:00:00.999999'",
    "'2020-01-01 12:00:01'",
    "'2020-01-01 12:00:01.000001'",
)
WORDS = ("A", "a", "b", "zoo", "zz", "été", "ê", "apple", "Z", "m", "ab", "ab   ", "y", "c", "az", "bé", "aé")
LONG = ("m" * 16, "m" * 30, "m" * 30 + "zz", "y" * 64, "y" * 256, "y" * 300 + "z")
VALUES = {
    "t": (*INSTANTS, *FINE),
    "d": ("DATE '1200-01-01'", "DATE '2020-01-01'", "DATE '1582-10-15'"),
    "u": ("0", "1", "2", "2147483647", "2147483648", "4294967295"),
    "v": ("0", "5", "6", "9223372036854775808", "18446744073709551615"),
    "f": ("0", "-1", "1", "2", "5", "100", "'NaN'::DOUBLE", "-0.0"),
    "h": ("-2", "0", "1.5", "100", "'NaN'::FLOAT"),
    "n": ("-123.45", "0", "0.01", "1", "999.99", "1000", "1.28", "163.85", "165.11"),
    "x": ("0", "1", "2", "3", "4", "5", "50", "100", "200", "300"),
    "s": tuple(f"'{word}'" for word in WORDS + LONG),
}


def indexed(name: str) -> tuple[Schema, FileStatistics, pa.Table]:
    """A file's schema, the statistics of its row groups, and its rows with the row group of each."""
    schema, files = footers.read(open_storage(str(FOLDER)), [f"{name}.parquet"])
    source = pq.ParquetFile(FOLDER / f"{name}.parquet", coerce_int96_timestamp_unit="us")
    groups = [source.read_row_group(group) for group in range(source.num_row_groups)]
    rows = pa.concat_tables(groups) if groups else source.read()
    for index, field in enumerate(rows.schema):
        if t.is_float16(field.type) or t.is_decimal256(field.type):
            plain = pa.float32() if t.is_float16(field.type) else pa.decimal128(38, field.type.scale)
            rows = rows.set_column(index, field.name, rows.column(index).cast(plain))
    unit = np.repeat(np.arange(len(groups)), [len(group) for group in groups]).astype(np.int32)
    return schema, files.row_groups, rows.append_column("__unit", pa.array(unit))


def questions(rows: pa.Table) -> list[str]:
    """Predicates that a wrong bound, count or flag would answer wrongly."""
    asked = []
    for field in rows.schema.remove(len(rows.schema) - 1):
        name = field.name
        values = VALUES["n" if t.is_decimal(field.type) else name]
        asked += [f"{name} {op} {value}" for op in ("=", "<>", "<", ">=") for value in values]
        asked += [f"NOT ({name} {op} {value})" for op in ("=", "<=", ">") for value in values[-2:]]
        asked += [f"{name} IS NULL", f"{name} IS NOT NULL", f"{name} IN ({', '.join(values)})"]
        asked += [f"{name} NOT IN ({', '.join(values[:2])})", f"{name} BETWEEN {values[0]} AND {values[-1]}"]
        if t.is_string(field.type):
            asked += [
                f"{name} {negate}LIKE '{p}'" for p in ("a%", "m%", "y%", "é%", "z%", "ab") for negate in ("", "NOT ")
            ]
    return asked


def lost(name: str) -> list[str]:
    """What a plan over the file's row groups gets wrong."""
    schema, files, rows = indexed(name)
    statistics = files.statistics()
    oracle, found = DuckDBOracle(), []
    oracle.read(rows)
    asked = questions(rows)
    unit = np.asarray(rows.column("__unit"))
    for sql, yielded in zip(asked, oracle.yields(asked), strict=True):
        if yielded is None:
            continue
        outcomes = pruning.outcomes(bind(sql, schema), statistics)
        found += [f"{sql}: {breach}" for breach in breaches(outcomes, yielded, unit)]
    return found


@pytest.mark.parametrize("name", one_in(2, NAMES))
def test_no_row_is_lost(name: str) -> None:
    assert lost(name) == []


LIARS = {
    "unsigned_of_nobody",
    "nan_cleared_to_zero",
    "signed_bytes_in_new_fields",
    "decimal_binary_old",
    "cut_and_not_rounded_up",
    "cut_and_not_rounded_up_unnamed",
    "impossible_counts",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LIARS))
def test_without_trust_rows_would_be_lost(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trust_out(monkeypatch)
    assert lost(name)


@pytest.mark.parametrize("name", ["collated", "char_padded", "julian_dates", "julian_timestamps", "int96_bounds"])
def test_bounds_that_readers_understand_differently_are_not_kept(name: str) -> None:
    """No reader here shows the other values, so it is said of the statistics themselves."""
    _, statistics, rows = indexed(name)
    column = statistics.columns[rows.schema.names[0]]
    assert column.lower.null_count == column.upper.null_count == len(statistics)
    assert column.null_count.null_count == 0


@pytest.mark.parametrize(
    "name", ["cut_by_polars", "cut_by_delta", "cut_by_duckdb", "cut_and_rounded_up", "decimal_fixed"]
)
def test_trust_is_not_mistrust(name: str) -> None:
    """Trusted bounds skip the file for values beyond them."""
    schema, statistics, rows = indexed(name)
    column = rows.schema.names[0]
    beyond = "1000" if t.is_decimal(rows.schema.field(0).type) else "'zz'"
    outcomes = pruning.outcomes(bind(f"{column} > {beyond}", schema), statistics.statistics())
    assert not outcomes.may_match.any()


def test_a_row_group_without_statistics_leaves_its_file_open() -> None:
    """One row group's bounds are not the file's."""
    for name in ("first_row_group_silent", "second_row_group_silent"):
        schema, files = footers.read(open_storage(str(FOLDER)), [f"{name}.parquet"])
        column: ColumnStatistics = files.files.columns["x"]
        assert column.lower.null_count == column.upper.null_count == column.null_count.null_count == 1
        outcomes = pruning.outcomes(bind("x = 100 OR x = 1", schema), files.row_groups.statistics())
        assert outcomes.may_match.all()


def test_a_row_group_of_nulls_does_not_hide_the_bounds_of_the_other() -> None:
    schema, files = footers.read(open_storage(str(FOLDER)), ["first_row_group_null.parquet"])
    bound = bind("x > 2", schema)
    assert not pruning.outcomes(bound, files.files.statistics()).may_match.any()
    assert list(pruning.outcomes(bind("x IS NULL", schema), files.row_groups.statistics()).all_match) == [
        True,
        False,
    ]


@pytest.mark.parametrize("name", ["cut_by_polars", "cut_by_delta", "cut_by_duckdb", "cut_and_rounded_up"])
def test_a_bound_that_was_cut_is_never_called_exact(name: str) -> None:
    """Neither in the row group nor, merged with others, in the file: it must not answer a MIN or a MAX."""
    _, files = footers.read(open_storage(str(FOLDER)), [f"{name}.parquet"])
    for units in (files.row_groups, files.files):
        column = units.columns["s"]
        assert True not in column.upper_exact.to_pylist() + column.lower_exact.to_pylist()


def test_bounds_of_uuids_are_those_of_writers_that_compare_unsigned(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = pa.array([bytes([first]) * 16 for first in (1, 200)], pa.binary(16))
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(pa.table({"u": pa.ExtensionArray.from_storage(pa.uuid(), storage)}), f"{folder}/u.parquet")
        _, files = footers.read(open_storage(folder), ["u.parquet"])
        monkeypatch.setattr(trust, "writer", lambda *_: trust.Writer("parquet-mr", (1, 8, 1)))
        _, doubted = footers.read(open_storage(folder), ["u.parquet"])
    for units in (files.row_groups, files.files):
        column = units.columns["u"]
        assert column.lower.equals(storage[:1])
        assert column.upper.equals(storage[1:])
    for units in (doubted.row_groups, doubted.files):
        assert units.columns["u"].lower.null_count == units.columns["u"].upper.null_count == 1
        assert units.columns["u"].null_count.to_pylist() == [0]


# ── taking guards out: what is said above of the statistics is then no longer so ──


def trust_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(trust, "reason_to_distrust", lambda *_: None)
    patch.setattr(trust, "trusted", lambda statistics, *_: statistics)


def silence_is_null(patch: pytest.MonkeyPatch) -> None:
    """The mistake of taking a row group without statistics for one without values."""
    right = footers.hull

    def wrong(row_groups: FileStatistics, owner: np.ndarray, files: int) -> FileStatistics:
        count = row_groups.row_count
        columns = {
            path: replace(column, null_count=pc.if_else(pc.is_null(column.lower), count, column.null_count))
            for path, column in row_groups.columns.items()
        }
        return right(FileStatistics(count, columns), owner, files)

    patch.setattr(footers, "hull", wrong)


def every_bound_is_a_value(patch: pytest.MonkeyPatch) -> None:
    """The mistake of answering MIN and MAX from bounds."""
    right = footers._with_bounds

    def wrong(*arguments: Any) -> ColumnStatistics:
        found = right(*arguments)
        return replace(found, lower_exact=pc.is_valid(found.lower), upper_exact=pc.is_valid(found.upper))

    patch.setattr(footers, "_with_bounds", wrong)


GUARDED: list[tuple[Callable[..., None], str | None, Callable[[pytest.MonkeyPatch], None]]] = [
    # Not int96_bounds: such bounds are not even decoded.
    *(
        (test_bounds_that_readers_understand_differently_are_not_kept, name, trust_out)
        for name in ("collated", "char_padded", "julian_dates", "julian_timestamps")
    ),
    (test_a_row_group_without_statistics_leaves_its_file_open, None, silence_is_null),
    *(
        (test_a_bound_that_was_cut_is_never_called_exact, name, every_bound_is_a_value)
        for name in ("cut_by_polars", "cut_by_delta", "cut_by_duckdb", "cut_and_rounded_up")
    ),
]


@pytest.mark.parametrize(("test", "name", "guard"), GUARDED, ids=lambda each: getattr(each, "__name__", each))
def test_without_its_guard_it_would_be_kept(
    test: Callable[..., None],
    name: str | None,
    guard: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guard(monkeypatch)
    with pytest.raises(AssertionError):
        test(*[] if name is None else [name])


@pytest.mark.parametrize("type", ["DOUBLE", "FLOAT"])
@pytest.mark.parametrize("nan", ["'nan'", "'-NaN'", "'nan'::{type}", "-'nan'::{type}"])
def test_a_negated_number_beside_nan_is_kept(type: str, nan: str) -> None:
    """DuckDB turns the comparison round, and NaN has no sign: ``-x > 'nan'`` is TRUE for every number."""
    values = [float("-inf"), -1.0, 0.0, 1.5, float("inf"), float("nan")]
    ends = pa.array([*values[:5], None], pa.float64() if type == "DOUBLE" else pa.float32())
    known, no = ends.is_valid(), pa.array([False] * 6)
    statistics = Statistics(pa.array([1] * 6), {"x": Ranges(ends, ends, known, no, ends.is_null())})
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE t AS SELECT unnest($1)::{type} AS x", [values])
        for op in ("<", "<=", ">", ">=", "=", "<>"):
            for side in ("-x", "-(x + 1)", f"-x::{type}"):
                sql = f"{side} {op} {nan.format(type=type)}"
                found = asked(sql, Schema(pa.schema({"x": ends.type})), statistics)
                live = [row for (row,) in con.sql(f"SELECT rowid FROM t WHERE {sql}").fetchall()]
                assert found.may_match[live].all(), sql
                assert np.isin(np.flatnonzero(found.all_match), live).all(), sql


NAN = float("nan")


@pytest.mark.parametrize(
    ("lower", "upper", "nulls", "nans", "pruned", "proved", "kept"),
    [
        (None, None, 10, None, ["x = 1", "x > 1", "x <> 1", "x IS NOT NULL", "isnan(x)"], ["x IS NULL"], []),
        (None, None, 9, None, [], [], ["x = 1", "x > 1", "x <> 1", "x IS NOT NULL", "isnan(x)", "x IS NULL"]),
        (None, None, None, 10, ["NOT isnan(x)", "x < 1", "x IS NULL"], ["isnan(x)", "x > 1"], []),
        (None, None, None, 9, [], [], ["NOT isnan(x)", "x < 1", "x IS NULL", "isnan(x)"]),
        (3.0, NAN, 0, None, ["x < 2", "x = 2"], [], ["x > 6", "x = 4", "isnan(x)"]),
        (NAN, 5.0, 0, 0, ["x > 6", "x = 6", "x BETWEEN 8 AND 9", "isnan(x)"], [], ["x > 4", "x < -1", "x = 4"]),
        (NAN, 5.0, 0, None, ["x = 6", "x BETWEEN 8 AND 9"], [], ["x > 6", "x < -1", "x = 4", "isnan(x)"]),
    ],
    ids=["all null", "all but one null", "all nan", "all but one nan", "upper nan", "lower nan, none", "lower nan"],
)
def test_counts_of_all_rows_and_one_nan_bound_leave_the_other_proofs(
    lower: float | None,
    upper: float | None,
    nulls: int | None,
    nans: int | None,
    pruned: list[str],
    proved: list[str],
    kept: list[str],
) -> None:
    bounds = (pa.array([value], pa.float64()) for value in (lower, upper))
    counts = (pa.array([value], pa.int64()) for value in (nulls, nans))
    column = ColumnStatistics(*bounds, *counts, pa.array([True]), pa.array([True]))
    units = FileStatistics(pa.array([10]), {"x": column}).statistics()
    found = {
        sql: pruning.outcomes(bind(sql, Schema(pa.schema({"x": pa.float64()}))), units)
        for sql in [*pruned, *proved, *kept]
    }
    assert [sql for sql, outcomes in found.items() if not outcomes.may_match[0]] == pruned
    assert [sql for sql, outcomes in found.items() if outcomes.all_match[0]] == proved
