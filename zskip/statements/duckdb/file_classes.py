"""What the index says of the surviving files of a table, for DuckDB to read them with right estimates.

| what is known of a column in a file                 | from                                              |
| --------------------------------------------------- | ------------------------------------------------- |
| zskip wrote the file after the column was added     | the snapshot                                      |
| it has a value there                                | the index                                         |
| it is NULL in every row, or the index does not know | the file's footer; in an object store, the index  |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.core.schema import Column, Schema
from zskip.engines.duckdb.stored_form import StoredColumn, stored_columns
from zskip.errors import ZskipError
from zskip.parquet import footers
from zskip.plan import Survivors
from zskip.stats import Statistics
from zskip.tablelog.dimensions import keys_of_dimensions

_MOST_CLASSES = 4
_HELD, _NULL, _UNKNOWN = 1, 2, 3
_FIRST_YEAR, _LAST_YEAR = 1, 9999
_CACHED_BYTES = 64
_Names = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class FileClass:
    """Files that hold the same columns.

    ``files``: a flag for each survivor · ``held``: the name of each column in the files, None for one that none of them
    holds; None if that is unknown.
    """

    files: np.ndarray
    held: Mapping[str, str | None] | None


def file_classes(survivors: Survivors, columns: Sequence[str]) -> list[FileClass]:
    """The survivors by the columns that they hold.

    ``columns``: those that a statement may read, by the table's names. The others count as held: DuckDB raises an error
    if it reads a column that a file lacks, so a column that is left out here by mistake is never taken for NULL.
    """
    snapshot = survivors.index.snapshot
    stored = {one.name: one for one in stored_columns(snapshot.schema.arrow) if one.name not in snapshot.partition_by}
    if any(isinstance(one.key, int) for one in stored.values()):
        wanted = list(stored.values())
        states = np.full((len(survivors), len(wanted)), _UNKNOWN, np.int8)
    else:
        wanted = [stored[name] for name in columns if name in stored]
        states = _states(survivors, wanted)
    doubtful = (states != _HELD).any(axis=1)
    kinds: dict[_Names | None, list[np.ndarray]] = {tuple(str(one.key) for one in wanted): [np.flatnonzero(~doubtful)]}
    for files, names in _names_of_doubtful(survivors, np.flatnonzero(doubtful), states, wanted):
        kinds.setdefault(names, []).append(files)
    found = [(names, np.concatenate(files)) for names, files in kinds.items()]
    found = [(names, files) for names, files in found if len(files)]
    if len(found) > _MOST_CLASSES:
        return [FileClass(np.ones(len(survivors), bool), None)]
    others = {name: one.key for name, one in stored.items() if isinstance(one.key, str)}
    classes = []
    for names, files in found:
        flags = np.zeros(len(survivors), bool)
        flags[files] = True
        held: dict[str, str | None] | None = None
        if names is not None:
            held = {**others, **dict(zip((one.name for one in wanted), names, strict=True))}
        classes.append(FileClass(flags, held))
    return classes


def _states(survivors: Survivors, wanted: Sequence[StoredColumn]) -> np.ndarray:
    """What the snapshot and the index say of each column (the second axis) in each survivor."""
    index = survivors.index
    snapshot, indexed = index.snapshot, len(survivors.numbers)
    states = np.full((len(survivors), len(wanted)), _UNKNOWN, np.int8)
    leaves: dict[str, list[str]] = {}
    for path, column in snapshot.schema.columns.items():
        leaves.setdefault(column.parts[0], []).append(path)
    asked = list(range(len(wanted)))
    if snapshot.managed and index.source is None:
        states[:indexed] = _HELD
        asked = [number for number in asked if set(leaves.get(wanted[number].name, ())) & snapshot.added.keys()]
        states[:indexed, asked] = _UNKNOWN
    paths = [path for number in asked for path in leaves.get(wanted[number].name, ())]
    if not paths or not indexed:
        return states
    columns = index.files_at(survivors.numbers, paths).statistics.columns
    for number in asked:
        name = wanted[number].name
        for path in leaves.get(name, ()):
            ranges = columns[path]
            has_value, has_nan = (np.asarray(pc.fill_null(flag, False)) for flag in (ranges.has_value, ranges.has_nan))
            states[:indexed, number][has_value | has_nan] = _HELD
            # A struct of NULLs is not NULL.
            if len(snapshot.schema.columns[path].parts) == 1 and wanted[number].default is None:
                nothing = pc.or_(pc.fill_null(ranges.has_value, True), pc.fill_null(ranges.has_nan, True))
                states[:indexed, number][~np.asarray(nothing)] = _NULL
    return states


def _names_of_doubtful(
    survivors: Survivors, files: np.ndarray, states: np.ndarray, wanted: Sequence[StoredColumn]
) -> Iterator[tuple[np.ndarray, _Names | None]]:
    """The files in groups, each with the names of the columns in them; None where these are unknown."""
    if not len(files):
        return
    if survivors.index.storage.local is not None:
        for found, schema in _schemas(survivors, files):
            yield found, _names_in(schema, wanted) if schema is not None else None
        return
    patterns, numbers = np.unique(states[files], axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        known = [None if state == _NULL else str(one.key) for state, one in zip(pattern.tolist(), wanted, strict=True)]
        yield files[numbers.reshape(-1) == number], None if _UNKNOWN in pattern else tuple(known)


def _names_in(own: Schema, wanted: Sequence[StoredColumn]) -> _Names | None:
    """The names of the columns in files with the schema ``own``; None if they are unclear."""
    spellings = [name.lower() for name in own.arrow.names]
    ids: dict[int, list[str]] = {}
    for field in own.arrow:
        if (number := (field.metadata or {}).get(footers.FIELD_ID)) is not None:
            ids.setdefault(int(number), []).append(field.name)
    names: list[str | None] = []
    for one in wanted:
        if isinstance(one.key, str):
            names.append(one.key if one.key.lower() in spellings else None)
        elif ids:
            names += ids.get(one.key, [None])[:1]
        else:
            return None  # the columns of files without ids are found by a name mapping
    clear = len(set(spellings)) == len(spellings) and all(len(same) == 1 for same in ids.values())
    return tuple(names) if clear else None


def _schemas(survivors: Survivors, files: np.ndarray) -> Iterator[tuple[np.ndarray, Schema | None]]:
    """Local files by the schemas in their footers; None for files that cannot be read, on which DuckDB fails too."""
    index = survivors.index
    known: dict[int, Schema] = index.once(("schemas of files",), dict, lambda _: _CACHED_BYTES * len(index))
    indexed = files[files < len(survivors.numbers)]
    new = {int(survivors.numbers[file]): int(file) for file in indexed}
    unread = [file for number, file in new.items() if number not in known]
    changed = files[files >= len(survivors.numbers)].tolist()
    paths = survivors.relative_paths
    read: dict[int, Schema] = {}
    if unread or changed:
        by_path = {paths[file].as_py(): file for file in (*unread, *changed)}
        try:
            listing = index.storage.size_and_modified(sorted(by_path, key=str.encode))
            for numbers, schema in footers.schemas(index.storage, listing):
                read |= dict.fromkeys((by_path[listing.path[number].as_py()] for number in numbers.tolist()), schema)
        except (ZskipError, OSError):
            yield files, None
            return
    known.update((int(survivors.numbers[file]), read[file]) for file in unread)
    groups: dict[int, tuple[list[int], Schema]] = {}
    for file in files.tolist():
        own = read[file] if file in read else known[int(survivors.numbers[file])]
        groups.setdefault(id(own), ([], own))[0].append(file)
    for found, own in groups.values():
        yield np.array(found, np.int64), own


def is_current(survivors: Survivors, listed: bool) -> bool:
    """Whether all survivors are in the index, and as the index describes them.

    ``listed``: files that others may change were compared with the index, unless its statistics are the user's.
    """
    snapshot = survivors.index.snapshot
    if survivors.changes:
        return False
    listed = listed and snapshot.details.get("source") != "statistics"
    return snapshot.managed or survivors.index.source is not None or listed


def column_statistics(survivors: Survivors, columns: Sequence[str]) -> dict[str, dict[str, str]]:
    """For integers, dates and timestamps, what DuckDB may know of them in the survivors, as texts.

    ``min`` and ``max``: a column is left out if its bounds are unknown in some file. DuckDB trusts these bounds: it
    drops a condition that they prove, and loses rows outside them · ``distinct_count``: of the key of a dimension, the
    dimension's rows. DuckDB estimates joins by it, and without it takes a range to be dense: dates as 19981231 are then
    twenty times too many, and the joins are run in another order.
    """
    schema = survivors.index.snapshot.schema
    stored = set(schema.arrow.names) - set(survivors.index.snapshot.partition_by)
    wanted = [
        column
        for name in columns
        if name in stored
        and (column := schema.find([name], case_sensitive=True)) is not None
        and (t.is_integer(column.type) or t.is_date(column.type) or t.is_timestamp(column.type))
    ]
    if not wanted or not len(survivors.numbers):
        return {}
    index, paths = survivors.index, tuple(column.path for column in wanted)

    def known() -> dict[str, dict[str, str]]:
        found = _hull(index.files_at(survivors.numbers, paths).statistics, wanted)
        for name, rows in keys_of_dimensions(index.snapshot.dimensions).items():
            if name in found:
                found[name]["distinct_count"] = str(rows)
        return found

    if len(survivors.numbers) < len(index):
        return known()
    return index.once(("bounds", paths), known, lambda _: _CACHED_BYTES * len(paths))


def _hull(files: Statistics, wanted: Sequence[Column]) -> dict[str, dict[str, str]]:
    found = {}
    for column in wanted:
        ranges = files.columns[column.path]
        matters = pc.fill_null(ranges.has_value, True)
        lower, upper = ranges.lower.filter(matters), ranges.upper.filter(matters)
        if len(lower) and not lower.null_count and not upper.null_count:
            least, greatest = _text(pc.min(lower)), _text(pc.max(upper))
            if least is not None and greatest is not None:
                found[column.parts[0]] = {"min": least, "max": greatest}
    return found


def _text(value: pa.Scalar) -> str | None:
    """A bound as DuckDB reads it; None for a year that Arrow and DuckDB write in different ways."""
    if t.is_integer(value.type):
        return str(value.as_py())
    if not _FIRST_YEAR <= pc.year(value).as_py() <= _LAST_YEAR:
        return None
    if t.is_timestamp(value.type) and value.type.tz is not None:
        value = value.cast(pa.timestamp(value.type.unit, "UTC"))
    text: str = value.cast(pa.string()).as_py()
    return text
