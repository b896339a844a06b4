"""Columns whose values stand in folder names: ``day=2018-03-24/host=a%2Fb/part-0.parquet``."""

from __future__ import annotations

from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.stats.files import ColumnStatistics

__all__ = ["NULL", "partitions", "statistics"]

NULL = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"


def partitions(paths: pa.StringArray) -> dict[str, pa.StringArray]:
    """The raw value of each file in each column that its folders name; null where a path has no such folder.

    >>> partitions(pa.array(["day=1/a.parquet", "day=2/host=x%20y/b.parquet"]))["host"].to_pylist()
    [None, 'x y']
    """
    if not pc.any(pc.match_substring(paths, "=")).as_py():
        return {}
    folders = pc.dictionary_encode(pc.replace_substring_regex(paths, r"(^|/)[^/]*$", ""))
    found: dict[str, list[str | None]] = {}
    names = folders.dictionary.to_pylist()
    for number, folder in enumerate(names):
        for segment in folder.split("/"):
            key, equals, value = segment.partition("=")
            if equals and key:
                found.setdefault(unquote(key), [None] * len(names))[number] = unquote(value)
    return {key: pa.array(values, pa.string()).take(folders.indices) for key, values in found.items()}


def column_type(values: pa.StringArray) -> pa.DataType:
    """int64 or date32 where every value is spelled just as such a one would be, else string: "007" stays a string."""
    spoken = values.filter(pc.and_(pc.is_valid(values), pc.not_equal(values, NULL)))
    if len(spoken):
        if pc.all(pc.match_substring_regex(spoken, _INTEGER)).as_py():
            return pa.int64()
        if pc.all(pc.match_substring_regex(spoken, _DATE)).as_py():
            try:
                spoken.cast(pa.date32())
                return pa.date32()
            except pa.ArrowInvalid:  # spelled like a date, but no day of the calendar
                return pa.string()
    return pa.string()


def statistics(values: pa.StringArray, type: pa.DataType, row_count: pa.Int64Array) -> ColumnStatistics:
    """Every row of a file has its folder's value. An empty value is NULL to some readers, so it is unknown."""
    null = pc.fill_null(pc.equal(values, NULL), False)
    empty = pc.fill_null(pc.or_(pc.is_null(values), pc.equal(values, "")), True)
    spoken = pc.if_else(pc.or_(null, empty), pa.scalar(None, pa.string()), values)
    try:
        bound = spoken.cast(type)
    except pa.ArrowException:  # a value that the given type does not spell
        return ColumnStatistics.unknown(type, len(values))
    unknown = pa.scalar(None, pa.int64())
    null_count = pc.if_else(empty, unknown, pc.if_else(null, row_count, pa.scalar(0, pa.int64())))
    exact = pc.if_else(pc.is_valid(bound), True, pa.scalar(None, pa.bool_()))
    none = pa.array(np.zeros(len(values), np.int64))
    return ColumnStatistics(bound, bound, null_count, none, exact, exact)
