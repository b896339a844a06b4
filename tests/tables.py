"""Small tables for tests: rows sorted by one column, cut into files and row groups, with exact statistics."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

import zskip
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.plan import Plan
from zskip.plan.planner import plan
from zskip.stats import DataFiles, Ranges, Statistics, collect
from zskip.storage import open_storage
from zskip.tablelog.commit import TableUpdate, commit
from zskip.tablelog.index import Index
from zskip.tablelog.snapshot import FORMAT


def build_table(
    folder: Path,
    rows: pa.Table,
    *,
    by: str | None = None,
    files: int = 8,
    row_group_rows: int = 50,
    managed: bool = True,
) -> Index:
    """Write rows as ``files`` Parquet files by pyarrow, commit their statistics, and open the index."""
    folder.mkdir(parents=True)
    schema = Schema(rows.schema)
    ordered = rows if by is None else rows.take(pa.compute.sort_indices(rows.column(by)))
    cuts = np.linspace(0, len(ordered), files + 1).astype(np.int64)
    group_cuts: list[int] = []
    first = [0]
    paths = [f"part-{number:05d}.parquet" for number in range(files)]
    for path, start, end in zip(paths, cuts[:-1], cuts[1:], strict=True):
        pq.write_table(ordered.slice(start, end - start), folder / path, row_group_size=row_group_rows)
        group_cuts += range(start, end, row_group_rows)
        first.append(len(group_cuts))
    found = [(folder / path).stat() for path in paths]
    data = DataFiles(
        pa.array(paths),
        pa.array([one.st_size for one in found]),
        pa.array([one.st_mtime_ns for one in found]),
        pa.nulls(files, pa.string()),
        collect.row_groups(ordered, cuts, schema),
        collect.row_groups(ordered, np.array([*group_cuts, len(ordered)]), schema),
        np.array(first),
    )
    storage = open_storage(str(folder))
    return Index(storage, commit(storage, None, TableUpdate("write", add=data, schema=schema, managed=managed)))


def ranges_of(lower: pa.Array, upper: pa.Array | None = None, *, null: bool | Sequence[bool] = False) -> Ranges:
    """Units that hold values from ``lower`` to ``upper``, or ``lower`` alone, no NaN, and NULL where ``null``."""
    count = len(lower)
    yes, no = pa.array([True] * count), pa.array([False] * count)
    has_null = pa.array([null] * count if isinstance(null, bool) else null)
    return Ranges(lower, lower if upper is None else upper, yes, has_null, no)


def statistics_of(**columns: Ranges) -> Statistics:
    """Units of nine rows each, with the ranges of their columns."""
    return Statistics(pa.array([9] * len(next(iter(columns.values())))), columns)


def signed_entry(body: bytes, form: int = FORMAT) -> bytes:
    """An entry of the log that holds this as its snapshot, with a right checksum."""
    return b'{"zskip":%d,"xxh3_128":"%s","snapshot":%s}' % (form, xxhash.xxh3_128_hexdigest(body).encode(), body)


def plan_of(index: Index, where: str, **options: object) -> Plan:
    """The plan of a predicate over a whole index."""
    return plan(index, bind(where, index.snapshot.schema, **options))  # type: ignore[arg-type]


def sorted_rows(rows: pa.Table | Sequence[tuple[object, ...]]) -> list[str]:
    """Rows as comparable text in an order of their own; NaN equals itself."""
    listed = rows if not isinstance(rows, pa.Table) else list(zip(*(c.to_pylist() for c in rows.columns), strict=True))
    return sorted(repr(tuple(row)) for row in listed)


def require_as_in_duckdb(folder: Path, *queries: str, con: duckdb.DuckDBPyConnection | None = None) -> None:
    """Queries of an indexed folder, ``{}``, give the names, types and rows that DuckDB gives over its files."""
    con = con or duckdb.connect()
    for query in queries:
        wanted = con.sql(query.replace("{}", f"read_parquet('{folder}/*.parquet', union_by_name = true)"))
        found = zskip.sql(query.replace("{}", f"'{folder}'"), con)
        assert (found.columns, found.types) == (wanted.columns, wanted.types), query
        assert found.fetchall() == wanted.fetchall(), query


def whole_scan(con: duckdb.DuckDBPyConnection, rows: pa.Table, where: str) -> pa.Table:
    """The rows of an Arrow table for which DuckDB finds the predicate TRUE."""
    con.register("whole_scan_rows", rows)
    return con.sql(f"SELECT * FROM whole_scan_rows WHERE {where}").to_arrow_table().cast(rows.schema)


# --- rows that break careless pruning: NULL, NaN, −0.0, infinities, extremes, quotes, awkward names, nested fields ---


_TEXTS = ["", "a", "A", "ab", "a%b", "a_b", "a\\b", "it's", '"', "`", "é", "😀", "\n", "zz", "Zz", "a" * 300, "\uffff"]


def hostile(rows: int = 2000, seed: int = 7) -> pa.Table:
    """A table whose columns are more or less sorted, so that files can be told apart, each with its own traps."""
    random = np.random.default_rng(seed)
    number = np.arange(rows)

    def with_nulls(values: list[object], kind: pa.DataType, share: float = 0.1) -> pa.Array:
        # The third eighth is all NULL, the fourth has none.
        eighth = number * 8 // rows
        null = np.where(eighth == 2, True, np.where(eighth == 3, False, random.random(rows) < share))
        return pa.array([None if gone else value for value, gone in zip(values, null, strict=True)], kind)

    noisy = number + random.integers(-20, 20, rows)
    doubles = (noisy / 10.0).astype(object)
    special = random.integers(0, 40, rows)
    for code, value in enumerate([np.nan, -0.0, 0.0, np.inf, -np.inf, 5e-324, 1.5]):
        doubles[(special == code) & (number % 3 > 0) & (number > rows // 4)] = value
    doubles[number * 8 // rows == 6] = np.nan
    days = [dt.date(1969, 12, 1) + dt.timedelta(days=int(n) // 4) for n in noisy]
    moments = [dt.datetime(2018, 10, 27, 20) + dt.timedelta(seconds=int(n) * 60, microseconds=7) for n in noisy]
    small = noisy % 100
    return pa.table(
        {
            "i": with_nulls([int(n) - rows // 2 for n in noisy], pa.int32()),
            "big": with_nulls([int(n) * 4_611_686_018_427 - 2**62 for n in number], pa.int64()),
            "edge": with_nulls([[2**31 - 1, -(2**31), 0, int(n)][int(n) % 4] for n in noisy], pa.int32(), 0.02),
            "d": with_nulls(list(doubles), pa.float64()),
            "f": with_nulls([np.float32(n / 7) for n in noisy], pa.float32()),
            "m": with_nulls([Decimal(int(n)).scaleb(-2) for n in noisy], pa.decimal128(12, 2)),
            "s": with_nulls([_TEXTS[int(n) * len(_TEXTS) // (rows + 41) % len(_TEXTS)] for n in noisy], pa.string()),
            "code": with_nulls([f"k{int(n):06d}" for n in noisy], pa.string()),
            "bin": with_nulls([int(n).to_bytes(3, "big", signed=True) for n in noisy], pa.binary()),
            "day": with_nulls(days, pa.date32()),
            "ts": with_nulls(moments, pa.timestamp("us", "UTC")),
            "local": with_nulls(moments, pa.timestamp("us")),
            "yes": with_nulls([bool(n % 2) for n in small], pa.bool_()),
            "st": pa.StructArray.from_arrays(
                [with_nulls([int(n) for n in noisy], pa.int64()), with_nulls([str(n % 7) for n in noisy], pa.string())],
                ["a", "Deep"],
            ),
            "we ird`x": with_nulls([int(n) for n in small], pa.int16()),
            "few": pa.array([int(n) // 500 for n in number], pa.int8()),
        }
    )
