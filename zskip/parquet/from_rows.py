"""Statistics that footers lack, computed from the rows: NaN counts, exact bounds, missing bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core.option_checks import Progress, unreported
from zskip.core.schema import Column, Schema
from zskip.core.types import is_floating, widened, widens
from zskip.errors import CorruptFile
from zskip.parquet import trust
from zskip.parquet.arrow_differences import is_damage
from zskip.parquet.footers import whole
from zskip.stats import collect
from zskip.stats.files import ColumnStatistics, DataFiles, FileStatistics, hull
from zskip.storage import Storage


def with_statistics_from_rows(
    storage: Storage, schema: Schema, files: DataFiles, progress: Progress = unreported
) -> DataFiles:
    """The same files, with statistics computed from the rows where those of the footers are incomplete.

    One row group is read at a time, and only the columns that need it. Values on which readers disagree, such as dates
    of a rebased calendar or collated strings, stay unknown. Raises `CorruptFile`.
    """
    incomplete = {
        path: _incomplete_in(files.row_groups, path) for path, column in schema.columns.items() if column.orderable
    }
    owner = np.repeat(np.arange(len(files)), np.diff(files.first_row_group))
    found: dict[str, list[tuple[int, ColumnStatistics]]] = {path: [] for path in incomplete}
    names = files.path.to_pylist()
    numbers = np.unique(owner[np.logical_or.reduce([*incomplete.values(), np.zeros(len(owner), bool)])])
    for done, number in enumerate(numbers):
        progress("rows", done, len(numbers))
        first = int(files.first_row_group[number])
        try:
            for path, unit, statistics in _scanned(storage, names[number], schema, incomplete, first):
                found[path].append((unit, statistics))
        except (pa.ArrowException, OSError) as error:
            if not is_damage(error):
                raise
            raise CorruptFile(f"The file {storage.uri_of(names[number])} cannot be read: {error}") from error
    columns = {
        path: _with_replaced(files.row_groups.columns[path], found.get(path, [])) for path in files.row_groups.columns
    }
    row_groups = FileStatistics(files.row_groups.row_count, columns)
    return replace(files, row_groups=row_groups, files=hull(row_groups, owner, len(files)))


def _incomplete_in(units: FileStatistics, path: str) -> np.ndarray:
    """Whether each row group lacks an exact bound or a count of a column."""
    column = units.columns[path]
    ranges = column.ranges(units.row_count)
    has_value = np.asarray(pc.fill_null(ranges.has_value, True))
    lacking = np.asarray(pc.or_(pc.is_null(ranges.lower), pc.is_null(ranges.upper))) & has_value
    lacking |= ~np.asarray(pc.fill_null(pc.and_(column.lower_exact, column.upper_exact), False)) & has_value
    lacking |= np.asarray(pc.is_null(column.null_count))
    if is_floating(column.lower.type):
        lacking |= np.asarray(pc.is_null(column.nan_count)) & has_value
    return np.asarray(lacking, dtype=bool)


def _scanned(
    storage: Storage, path: str, schema: Schema, incomplete: Mapping[str, np.ndarray], first: int
) -> list[tuple[str, int, ColumnStatistics]]:
    with whole(storage, path) as file:
        metadata = file.metadata
        own = Schema(file.schema_arrow)
        origin = trust.writer(metadata.created_by, metadata.metadata or {})
        agreed = {column.path for column in own if column.path in incomplete and _readers_agree(origin, column)}
        agreed = {name for name in agreed if widens(own.columns[name].type, schema.columns[name].type)}
        scanned = []
        for group in range(metadata.num_row_groups):
            wanted = [name for name in agreed if incomplete[name][first + group]]
            if not wanted:
                continue
            rows = file.read_row_group(group, columns=sorted({own.columns[name].parts[0] for name in wanted}))
            seen = collect.row_groups(rows, np.array([0, rows.num_rows]), Schema(rows.schema))
            scanned += [(name, first + group, _as(seen.columns[name], schema.columns[name].type)) for name in wanted]
    return scanned


def _readers_agree(origin: trust.Writer, column: Column) -> bool:
    opaque = any(column.path == path or column.path.startswith(path + ".") for path, _ in origin.opaque)
    return not opaque and not (origin.rebased and trust.is_of_calendar(column.type))


def _as(column: ColumnStatistics, type: pa.DataType) -> ColumnStatistics:
    return replace(column, lower=widened(column.lower, type), upper=widened(column.upper, type))


def _with_replaced(column: ColumnStatistics, found: list[tuple[int, ColumnStatistics]]) -> ColumnStatistics:
    """A column in which the statistics of some units are replaced."""
    if not found:
        return column
    both = ColumnStatistics.concat([column, *(statistics for _, statistics in found)])
    place = np.arange(len(column))
    place[[unit for unit, _ in found]] = len(column) + np.arange(len(found))
    return both.take(place)
