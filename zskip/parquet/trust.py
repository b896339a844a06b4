"""Which statistics of a footer can be trusted, by its writer and physical types.

| what the footer has                                | what is trusted                                             |
| -------------------------------------------------- | ----------------------------------------------------------- |
| INT96 timestamps                                   | counts: the bounds have no agreed order                     |
| a type without order, an interval                  | counts                                                      |
| bytes or unsigned numbers, of an old writer        | counts: it compared bytes as signed                         |
| a column with a collation                          | counts: the bounds are in byte order, the values are not    |
| CHAR(n)                                            | counts: padded in one reader, not in the other              |
| a truncated upper bound of an unknown writer       | the lower bound: the upper one may not have been rounded up |
| dates before 1582, timestamps before 1900, rebased | counts: readers convert the values to another calendar      |
| NaN as a bound                                     | counts: the other bound may have been compared with NaN     |
| an upper bound that is not NaN, of parquet-mr 1.17 | also the absence of NaN, which would be the upper bound     |
| as many NULLs as rows                              | also the absence of NaN                                     |
| 0 to 0 for floats, of an unknown writer            | counts: some writers replace NaN bounds by zero             |
| lower above upper                                  | counts                                                      |
| a count below zero or above the number of rows     | the bounds; a missing count is unknown, not zero            |
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.core.schema import join_path
from zskip.core.types import is_orderable
from zskip.stats.files import ColumnStatistics

_SPARK_ROW = b"org.apache.spark.sql.parquet.row.metadata"
_SPARK_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SPARK_VERSION = b"org.apache.spark.version"

# The first version of each writer, by its name in `created_by`, that compares bytes and unsigned numbers as unsigned.
_COMPARES_UNSIGNED_SINCE = {
    "parquet-mr": (1, 10, 0),
    "parquet-cpp": (1, 3, 0),
    "parquet-cpp-arrow": (0,),
    "parquet-rs": (4, 0, 0),
    "delta-rs": (0,),
    "duckdb": (0, 9, 0),
    "polars": (0,),
    "zskip": (0,),
}
# Writers that do not truncate strings, or round a truncated upper bound up, and never replace a bound by zero.
_ROUNDS_UP = {"parquet-mr", "parquet-cpp-arrow", "parquet-rs", "delta-rs", "polars", "duckdb", "zskip"}
# No known writer truncates bounds to fewer bytes.
_FEWEST_TRUNCATED = 16
# From these days on, the hybrid Julian and the proleptic Gregorian calendar agree, and no zone has local mean time.
_DATES_AGREE_SINCE = "1582-10-15"
_TIMESTAMPS_AGREE_SINCE = "1900-01-01"


@dataclass(frozen=True, slots=True)
class Writer:
    """The writer of a footer: all that determines which statistics are trusted.

    ``rebased``: dates and timestamps may be in the hybrid Julian calendar · ``legacy``: Spark converts them when it
    reads the file, which other readers do not · ``opaque``: the columns that are not compared by their bytes, each with
    the reason.
    """

    name: str
    version: tuple[int, ...]
    rebased: bool = False
    legacy: bool = False
    opaque: tuple[tuple[str, str], ...] = ()

    @property
    def compares_unsigned(self) -> bool:
        """Whether it compares bytes and unsigned numbers as the format requires. False for unknown writers."""
        since = _COMPARES_UNSIGNED_SINCE.get(self.name)
        return since is not None and self.version >= since

    @property
    def known(self) -> bool:
        return self.compares_unsigned and self.name in _ROUNDS_UP

    @property
    def keeps_nan(self) -> bool:
        """Whether the upper bound is NaN if there is any NaN, so that any other upper bound proves its absence."""
        return self.name == "parquet-mr" and self.version[:2] == (1, 17)


def writer(created_by: str | None, metadata: Mapping[bytes, bytes] | None = None) -> Writer:
    """The writer of a footer from its ``created_by`` and its key-value metadata.

    >>> writer("parquet-mr version 1.8.1 (build 4aba4dae7bb0d4edbcf7923ae1339f28fd3f7fcf)")
    Writer(name='parquet-mr', version=(1, 8, 1), rebased=True, legacy=False, opaque=())
    >>> writer(None).compares_unsigned
    False
    """
    pairs = metadata or {}
    keys = (_SPARK_ROW, *_SPARK_LEGACY, _SPARK_VERSION)
    return _writer(created_by or "", tuple((key, pairs[key]) for key in keys if key in pairs))


@lru_cache(maxsize=1024)
def _writer(created_by: str, pairs: tuple[tuple[bytes, bytes], ...]) -> Writer:
    match = re.match(r"\s*([A-Za-z0-9_.-]+?)(?:\s*\(\w+\))?\s+version\s+[A-Za-z-]*(\d{1,9}(?:\.\d{1,9})*)", created_by)
    name, version = (match[1].lower(), tuple(map(int, match[2].split(".")))) if match else ("", ())
    metadata = dict(pairs)
    spark = re.match(rb"(\d{1,9})", metadata.get(_SPARK_VERSION, b""))
    legacy = any(key in metadata for key in _SPARK_LEGACY) or (spark is not None and int(spark[1]) < 3)
    rebased = legacy or (name == "parquet-mr" and spark is None)
    return Writer(name, version, rebased, legacy, _opaque(metadata.get(_SPARK_ROW, b"")))


def is_of_calendar(type: pa.DataType) -> bool:
    """Whether the days of a type's values depend on the calendar."""
    return bool(t.is_date(type) or t.is_timestamp(type))


def calendars_agree_since(type: pa.DataType) -> pa.Scalar:
    """The first date or timestamp of a type that both calendars write alike."""
    since = _DATES_AGREE_SINCE if t.is_date(type) else _TIMESTAMPS_AGREE_SINCE
    return pa.scalar(since).cast(pa.timestamp("s")).cast(type)


def _opaque(row: bytes) -> tuple[tuple[str, str], ...]:
    """The columns of a Spark schema with collated or padded strings, each with the reason."""
    try:
        return tuple(_opaque_fields(json.loads(row) if row else {}, ()))
    except (ValueError, RecursionError):  # not Spark's JSON
        return ()


def _opaque_fields(node: Any, above: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    fields = node.get("fields") if isinstance(node, dict) else None
    for field in fields if isinstance(fields, list) else ():
        if not isinstance(field, dict):
            continue
        parts = (*above, str(field.get("name", "")))
        metadata = field.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        if "__COLLATIONS" in metadata:
            # Its keys are paths below the field. No leaf of the field is trusted.
            yield join_path(parts), "its strings are compared by a collation"
        elif str(metadata.get("__CHAR_VARCHAR_TYPE_STRING", "")).lower().startswith("char"):
            yield join_path(parts), "CHAR(n) is padded by some readers"
        yield from _opaque_fields(field.get("type"), parts)


def reason_to_distrust(origin: Writer, path: str, type: pa.DataType, physical: str) -> str | None:
    """Why the bounds of a column cannot be trusted in the files of a writer; None if they can.

    ``type``: the logical Arrow type · ``physical``: Parquet's name of the physical type.

    >>> reason_to_distrust(writer("parquet-mr version 1.8.1"), "s", pa.string(), "BYTE_ARRAY")
    'parquet-mr 1.8.1 compared bytes as signed'
    """
    if physical == "INT96":
        return "INT96 timestamps have no agreed order"
    if not is_orderable(type):
        return f"{type} has no order"
    for column, reason in origin.opaque:
        if path == column or path.startswith(column + "."):
            return reason
    if not origin.compares_unsigned:
        who = f"{origin.name} {'.'.join(map(str, origin.version))}" if origin.name else "an unnamed writer"
        if physical in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"):
            return f"{who} {'compared' if origin.name in _COMPARES_UNSIGNED_SINCE else 'may compare'} bytes as signed"
        if t.is_unsigned_integer(type):
            return f"{who} may compare unsigned numbers as signed"
    return None


def trusted(statistics: ColumnStatistics, row_count: pa.Int64Array, origin: Writer) -> ColumnStatistics:
    """The statistics of one column, with those that cannot be trusted as unknown.

    Judges the values only; `reason_to_distrust` judges the column.
    """
    lower, upper, type = statistics.lower, statistics.upper, statistics.lower.type
    nan_count = statistics.nan_count
    if not is_orderable(type):
        return replace(
            statistics,
            null_count=_possible(statistics.null_count, row_count),
            nan_count=_possible(nan_count, row_count),
        )
    distrusted = pc.greater(lower, upper)
    if t.is_floating(type):
        if origin.keeps_nan:
            without = pc.fill_null(pc.invert(pc.is_nan(upper)), False)
            nan_count = pc.if_else(without, pc.fill_null(nan_count, 0), nan_count)
        all_null = pc.fill_null(pc.equal(statistics.null_count, row_count), False)
        nan_count = pc.if_else(all_null, pc.fill_null(nan_count, 0), nan_count)
        distrusted = pc.or_kleene(distrusted, pc.or_kleene(pc.is_nan(lower), pc.is_nan(upper)))
        if not origin.known:
            zeros = pc.and_(pc.equal(lower, pa.scalar(0, type)), pc.equal(upper, pa.scalar(0, type)))
            distrusted = pc.or_kleene(distrusted, zeros)
    if origin.rebased and is_of_calendar(type):
        distrusted = pc.or_kleene(distrusted, pc.less(lower, calendars_agree_since(type)))
    unknown = pa.scalar(None, type)
    if pc.any(distrusted).as_py():
        distrusted = pc.fill_null(distrusted, False)
        lower, upper = pc.if_else(distrusted, unknown, lower), pc.if_else(distrusted, unknown, upper)
    if (t.is_string(type) or t.is_binary(type)) and not origin.known:
        # The upper bound may have been truncated without rounding it up.
        truncated = pc.greater_equal(pc.binary_length(upper), _FEWEST_TRUNCATED)
        truncated = pc.and_(truncated, pc.invert(pc.fill_null(statistics.upper_exact, False)))
        upper = pc.if_else(pc.fill_null(truncated, False), unknown, upper)
    return replace(
        statistics,
        lower=lower,
        upper=upper,
        null_count=_possible(statistics.null_count, row_count),
        nan_count=_possible(nan_count, row_count),
    )


def _possible(count: pa.Int64Array, row_count: pa.Int64Array) -> pa.Int64Array:
    """The counts, with those below 0 or above the number of rows as unknown."""
    impossible = pc.or_(pc.less(count, 0), pc.greater(count, row_count))
    if not pc.any(impossible).as_py():
        return count
    return pc.if_else(pc.fill_null(impossible, False), pa.scalar(None, pa.int64()), count)
