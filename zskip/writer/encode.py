"""Encode one data file: rows in their order, cut into row groups, with a footer that every engine prunes by correctly.

Parquet's bounds ignore NaN: with bounds 1 to 2 and a NaN among the rows, Spark and DuckDB skip the file for ``x > 5``,
although NaN is greater. So a column that contains NaN gets no bounds in the footer. (The index keeps them.)
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zskip.core import types as t
from zskip.core.casts import flattened
from zskip.core.schema import split_path
from zskip.core.types import logical_type
from zskip.stats import FileStatistics
from zskip.writer.storable import TESTED_ROWS, first_values


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a file is encoded: the codec, and the leaves with a dictionary or with delta encoding.

    Delta encoding is for integers that rarely repeat.
    """

    compression: str
    dictionary: tuple[str, ...]
    delta: tuple[str, ...]


def fitted_encoding(rows: pa.Table, compression: str) -> Encoding:
    """The encoding for rows that begin like these."""
    paths, dictionary, delta = [], [], []
    for path, leaf in _leaves(rows.slice(0, TESTED_ROWS)):
        paths.append(path)
        values = first_values(leaf)
        integers = any(is_integer(values.type) for is_integer in _INTEGERS)
        if t.is_dictionary(values.type) or _repeats(values, _MOST_DISTINCT_INTEGERS if integers else _MOST_DISTINCT):
            dictionary.append(path)
        elif integers:
            delta.append(path)
    # Two leaves of one path, of a column "s.a" and of a field a of s, have a dictionary.
    shared = {path for path, leaves in Counter(paths).items() if leaves > 1}
    with_dictionary = dict.fromkeys([*dictionary, *(path for path in paths if path in shared)])
    return Encoding(compression, tuple(with_dictionary), tuple(path for path in delta if path not in shared))


def _repeats(values: pa.ChunkedArray, most: float) -> bool:
    """Whether at most this share of the values is distinct."""
    # Arrow cannot count distinct values of the type null.
    if t.is_null(values.type) or not len(values):
        return True
    return bool(pc.count_distinct(values, mode="all").as_py() <= most * len(values))


# Delta-encoded integers are small and cheap to write: only a short dictionary is better.
_MOST_DISTINCT, _MOST_DISTINCT_INTEGERS = 0.7, 0.125
_INTEGERS = (t.is_integer, t.is_temporal, t.is_decimal32, t.is_decimal64)


def stored_bytes(rows: pa.Table, encoding: Encoding) -> int:
    """The size in bytes of a file of these rows, which is written to memory to find out."""
    with pa.BufferOutputStream() as target:
        write_file(target, rows, even_cuts(rows.num_rows, max(1, rows.num_rows)), (), encoding, (), {})
        return int(target.tell())


def even_cuts(rows: int, row_group_rows: int) -> np.ndarray:
    """The first row of each row group, and at the end the number of rows: groups of nearly equal length.

    None is longer than ``row_group_rows``.

    >>> even_cuts(130, 100).tolist()
    [0, 65, 130]
    """
    groups = max(1, -(-rows // row_group_rows))
    length = max(1, -(-rows // groups))
    return np.minimum(np.arange(groups + 1, dtype=np.int64) * length, rows)


def footer_metadata(kept: pa.Schema) -> dict[bytes, bytes]:
    """The metadata of footers of files with this Arrow schema, since their rows may have transit types."""
    return {b"ARROW:schema": base64.b64encode(kept.serialize()), **(kept.metadata or {})}


def write_file(
    target: BinaryIO,
    rows: pa.Table,
    cuts: np.ndarray,
    with_nan: Collection[str],
    encoding: Encoding,
    sorting: Sequence[pq.SortingColumn],
    metadata: Mapping[bytes, bytes],
) -> None:
    """Write rows as one Parquet file, with one row group between each two cuts.

    ``with_nan``: the Parquet paths of leaves that hold NaN · ``sorting``: the columns by which each row group is
    sorted · ``metadata``: as from `footer_metadata`.
    """
    statistics: Any = True
    if with_nan:
        statistics = [path for path, _ in _leaves(rows.slice(0, 0)) if path not in with_nan]
    writer = pq.ParquetWriter(
        target,
        rows.schema,
        compression=encoding.compression,
        use_dictionary=list(encoding.dictionary) or False,
        column_encoding=dict.fromkeys(encoding.delta, "DELTA_BINARY_PACKED") or None,
        write_statistics=statistics,
        write_page_index=True,
        store_decimal_as_integer=True,
        sorting_columns=sorting or None,
        store_schema=False,
    )
    with writer:
        for start, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            writer.write_table(rows.slice(start, end - start), row_group_size=max(1, end - start))
        # Arrow's own entry would contain the transit types.
        writer.add_key_value_metadata(metadata)


def sorting_columns(rows: pa.Table, cuts: np.ndarray, sorted_by: Sequence[str]) -> list[pq.SortingColumn]:
    """The longest prefix of these columns by which every row group is sorted in ascending order, NULLs at one end."""
    sorting: list[pq.SortingColumn] = []
    within = np.ones(max(0, rows.num_rows - 1), bool)
    within[cuts[1:-1] - 1] = False
    tied = within
    leaf_of, first = {}, 0
    for name in rows.schema.names:
        paths = [path for path, _ in _leaves_below(name, rows.column(name).slice(0, 0))]
        if paths == [name]:
            leaf_of[name] = first
        first += len(paths)
    for name in sorted_by:
        if name not in leaf_of:
            return sorting
        values = rows.column(name).combine_chunks() if rows.num_rows else pa.array([], rows.schema.field(name).type)
        values = values.cast(logical_type(values.type))  # Arrow's kernels compare neither half floats nor UUIDs
        if t.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            return sorting
        nulls = values.is_null().to_numpy(zero_copy_only=False)
        before, after = values[:-1], values[1:]
        not_null = ~nulls[:-1] & ~nulls[1:]
        descends = _true(pc.greater(before, after)) if len(before) else np.zeros(0, bool)
        if (descends & tied & not_null).any():
            return sorting
        null_before, null_after = nulls[:-1] & ~nulls[1:] & tied, ~nulls[:-1] & nulls[1:] & tied
        if null_before.any() and null_after.any():
            return sorting
        sorting.append(pq.SortingColumn(leaf_of[name], nulls_first=bool(null_before.any())))
        same = _true(pc.equal(before, after)) if len(before) else np.zeros(0, bool)
        tied = tied & ((same & not_null) | (nulls[:-1] & nulls[1:]))
    return sorting


def _true(mask: pa.BooleanArray) -> np.ndarray:
    return np.asarray(pc.fill_null(mask, False).to_numpy(zero_copy_only=False), bool)


def columns_with_nan(rows: pa.Table, units: FileStatistics) -> set[str]:
    """The Parquet paths of leaves with a NaN, by the statistics, or by the values for leaves in lists."""
    counted = {
        ".".join(split_path(path))
        for path, column in units.columns.items()
        if t.is_floating(column.lower.type) and pc.sum(column.nan_count).as_py() != 0
    }
    with_lists = [field.name for field in rows.schema if _has_listed_floats(field.type)]
    return counted | {
        path
        for path, values in _leaves(rows.select(with_lists))
        if t.is_floating(values.type) and pc.any(pc.is_nan(values.cast(logical_type(values.type)))).as_py()
    }


def _has_listed_floats(type: pa.DataType, listed: bool = False) -> bool:
    """Whether a type contains floats inside lists or maps. ``listed``: whether it is inside one itself."""
    if isinstance(type, pa.BaseExtensionType):
        return _has_listed_floats(type.storage_type, listed)
    if t.is_nested(type):
        below = (type.field(index).type for index in range(type.num_fields))
        return any(_has_listed_floats(inner, listed or not t.is_struct(type)) for inner in below)
    return listed and t.is_floating(type)


def _leaves(rows: pa.Table) -> Iterator[tuple[str, pa.Array | pa.ChunkedArray]]:
    """The leaves of some rows with their Parquet paths, in Parquet's order and with lists flattened."""
    for field, column in zip(rows.schema, rows.columns, strict=True):
        yield from _leaves_below(field.name, column)


def _leaves_below(path: str, values: pa.ChunkedArray) -> Iterator[tuple[str, pa.ChunkedArray]]:
    type = values.type
    if isinstance(type, pa.BaseExtensionType):
        values = pa.chunked_array([chunk.storage for chunk in values.chunks], type.storage_type)
        type = type.storage_type
    if t.is_struct(type):
        for index in range(type.num_fields):
            yield from _leaves_below(f"{path}.{type.field(index).name}", pc.struct_field(values, [index]))
    elif t.is_map(type):
        keys = pa.chunked_array([_map_part(chunk, "keys") for chunk in values.chunks], type.key_type)
        items = pa.chunked_array([_map_part(chunk, "items") for chunk in values.chunks], type.item_type)
        yield from _leaves_below(f"{path}.key_value.key", keys)
        yield from _leaves_below(f"{path}.key_value.value", items)
    elif t.is_list(type) or t.is_large_list(type) or t.is_fixed_size_list(type):
        items = pa.chunked_array([flattened(chunk) for chunk in values.chunks], type.value_type)
        yield from _leaves_below(f"{path}.list.element", items)
    else:
        yield path, values


def _map_part(chunk: pa.MapArray, part: str) -> pa.Array:
    # Slicing an array does not slice its children.
    child = getattr(chunk, part)
    if not len(chunk):
        return child[:0]
    start, end = chunk.offsets[0].as_py(), chunk.offsets[len(chunk)].as_py()
    return child.slice(start, end - start) if len(child) != end - start else child
