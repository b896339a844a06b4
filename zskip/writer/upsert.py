"""Upsert: rows whose key exists are replaced, the others are inserted, in one commit.

    batch ─keys─▶ ranges, sketches ─▶ semi-join on the key columns of each candidate file
                     files with a key ─▶ rewritten in place, with the new rows where the old ones were
                     all other rows ───▶ new files, a layout group of their own

A batch that exceeds memory is matched part by part (`batch`), and its rows wait in a spill file until they are written.
An old row is replaced where it is, unless the new one is in another partition or outside the file's ranges of a
clustering column: then it goes with the inserted rows, so that the layout stays sharp. An upsert is serializable: if
other writers added files with one of its keys, or removed a file that it replaces, it starts again from the newest
version. The same holds for Delta and Iceberg tables, which are changed by commits of their formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from zskip.core import types as t
from zskip.core.receipts import Upserted
from zskip.core.schema import Schema, join_path, require_distinct
from zskip.errors import CommitConflict, InvalidOption, SchemaMismatch, TableNotFound
from zskip.language import Predicate
from zskip.language.bound import Dialect
from zskip.language.tree import Reference, and_, in_
from zskip.plan import find_survivors
from zskip.stats import DataFiles
from zskip.stats.keys import dense_codes
from zskip.storage import Staged, Storage, hive
from zskip.table_formats.locate import index_of
from zskip.table_formats.source import Replacement, Source
from zskip.tablelog.commit import TableUpdate, commit
from zskip.tablelog.index import Index
from zskip.tablelog.log import load
from zskip.tablelog.runs import may_meet_vacuums
from zskip.tablelog.snapshot import Snapshot
from zskip.writer.append import (
    kept_options,
    look_ups_of,
    require_batch,
    require_managed,
    sized_by_rows,
)
from zskip.writer.batch import Batch
from zskip.writer.evolution import appended, new_and_widened
from zskip.writer.key_match import FileRows, Keys, Matches
from zskip.writer.options import WriteOptions
from zskip.writer.routing import partition_numbers
from zskip.writer.row_source import RowSource, of_tables
from zskip.writer.scatter import MakeFolder, Pieces, spill_folders
from zskip.writer.storable import storable_rows, storable_schema
from zskip.writer.write import Written, rewrite_files, write_files

_ATTEMPTS = 50
# The share of the memory limit for a part of the batch: its rows are in memory twice while they are sorted by file, and
# those of a batch in a single part while files are rewritten too. Arrow combines a column of up to 2 GB.
_PART_SHARE, _LARGEST_PART = 0.2, 1 << 30
_PLACE = "\x00place"
# The types for which the planner is asked; the key columns of other types are read from all files.
_LISTED = (t.is_integer, t.is_floating, t.is_string, t.is_binary, t.is_date, t.is_timestamp, t.is_decimal128)


@may_meet_vacuums
def upsert(
    storage: Storage,
    base: Snapshot,
    source: RowSource,
    on: Sequence[str],
    options: WriteOptions,
    batch: tuple[str, int] | None = None,
) -> tuple[Snapshot, Upserted]:
    """Replace the rows that have the keys of some new rows, and insert the others. ``on``: the key columns.

    A ``batch`` (application, number) that the table already contains changes nothing. Raises `SchemaMismatch` for rows
    that lack a column, and for a key that is NULL or occurs twice; `InvalidOption`, `UnknownColumn`; `CommitConflict`
    if the table was replaced or others always came first. Then the table is unchanged.
    """
    require_managed(storage, base)
    require_batch(batch)
    on = _key_columns(on, base.schema)
    table_id = base.table_id
    _schema_after(Index(storage, base), source.schema)  # what does not fit is refused before it is read
    with spill_folders(options.temp_directory) as make_folder:
        rows = Batch.of(source, on, _part_bytes(options), make_folder)
        for _ in range(_ATTEMPTS):
            if not rows.rows or (batch is not None and base.applications.get(batch[0], -1) >= batch[1]):
                return base, Upserted(base.version, 0, 0, 0)
            if base.table_id != table_id:
                break
            try:
                with _begun(Index(storage, base), rows, on, kept_options(base, options)) as changed:
                    return changed.into_table(batch)
            except CommitConflict as error:
                conflict = error
                base = load(storage)
    raise CommitConflict(f"{storage.uri}: the upsert was not made, since other writers came first: {conflict}")


def upsert_source(
    table: Source, source: RowSource, on: Sequence[str], options: WriteOptions, batch: tuple[str, int] | None = None
) -> tuple[Source, Upserted]:
    """The same for a Delta or Iceberg table, by one commit of its format. Returns the table after it.

    The table keeps its schema. Raises also `UnsupportedFormat` for a table that zskip or the format's library cannot
    change, and `UncertainCommit`.
    """
    require_batch(batch)
    index = index_of(table)
    identity = index.snapshot.details["table"]
    on = _key_columns(on, index.snapshot.schema)
    _schema_after(index, source.schema)
    # What no upsert can change is refused before rows are read: their keys may have no place in such a table.
    table.require_replaceable(index, np.zeros(0, np.int64), rows_change=True, batch=batch)
    with spill_folders(options.temp_directory) as make_folder:
        rows = Batch.of(source, on, _part_bytes(options), make_folder)
        for _ in range(_ATTEMPTS):
            snapshot = index.snapshot
            if snapshot.details["table"] != identity:
                conflict: Exception = CommitConflict("The table was replaced by another one.")
                break
            kept = replace(kept_options(snapshot, options), sketches={})  # the index is extended by whoever opens it
            kept = replace(kept, by=kept.by or tuple(on))  # a table without a layout
            try:
                with _begun(index, rows, on, kept) as changed:
                    return changed.into_source(table, batch)
            except (CommitConflict, TableNotFound) as error:  # not found: a vacuum of others took the files
                conflict = error
            table = table.newest()
            index = index_of(table)
    raise CommitConflict(f"{table.home.uri}: the upsert was not made, since other writers came first: {conflict}")


def _key_columns(on: Sequence[str], schema: Schema) -> tuple[str, ...]:
    """The names of the key columns, as the schema spells them.

    Raises `InvalidOption` or `UnknownColumn` unless these are top-level columns with an order.
    """
    if not on:
        raise InvalidOption("on= names no column. Name the column, or the columns, that identify a row.")
    nested = {field.name.lower(): field for field in schema.arrow if t.is_nested(field.type)}
    for name in on:
        if name.lower() in nested:
            field = nested[name.lower()]
            raise _no_key(f'"{field.name}" of type {field.type}')
    columns = schema.orderable(on)
    require_distinct([column.path for column in columns], "on")
    for column in columns:
        if len(column.parts) > 1:
            raise _no_key(f'"{column.path}", a field of a column')
    return tuple(column.parts[0] for column in columns)


def _no_key(named: str) -> InvalidOption:
    return InvalidOption(f"on= names {named}. A key consists of whole columns that are not nested.")


def _schema_after(index: Index, given: pa.Schema) -> pa.Schema:
    """The columns of a table after an upsert of rows with a schema. Raises `SchemaMismatch` if they do not fit."""
    now = index.snapshot.schema.arrow
    lacking = [name for name in now.names if name not in given.names]
    if lacking:
        raise SchemaMismatch(f'The rows lack the column "{lacking[0]}". An upsert replaces whole rows.')
    if index.source is None:
        return appended(now, given)
    # A column that allows no NULL stays as it is, if the batch has none there.
    arrow = appended(now, pa.schema([field.with_nullable(False) for field in given]))
    if not arrow.equals(now):
        changes = [field.name for field in arrow if field.name not in now.names or now.field(field.name) != field]
        raise SchemaMismatch(
            f'The column "{changes[0]}" of the rows would change the columns of the {index.source} table. Cast the '
            "rows, or change the table by that format's library first."
        )
    return pa.schema([field.remove_metadata() for field in arrow])


def _part_bytes(options: WriteOptions) -> int:
    """The bytes of the batch that are in memory together."""
    return min(int(options.memory * _PART_SHARE), _LARGEST_PART)


@contextmanager
def _begun(index: Index, batch: Batch, on: Sequence[str], kept: WriteOptions) -> Iterator[_Upsert]:
    """An attempt, whose spill files are removed after it."""
    with spill_folders(kept.temp_directory) as make_folder:
        yield _Upsert(index, batch, on, kept, make_folder)


class _Upsert:
    """One attempt, on one version of a table: the files that change, and the rows that are new.

    ``files``: the numbers of the files that hold keys of the batch, ascending · ``inserted``: the rows of the batch
    that replace none in place · ``updated``: the number of keys of the batch that the table holds
    """

    def __init__(
        self, index: Index, batch: Batch, on: Sequence[str], kept: WriteOptions, make_folder: MakeFolder
    ) -> None:
        self.index, self.base, self.batch, self.on, self.kept = index, index.snapshot, batch, tuple(on), kept
        arrow = _schema_after(index, batch.schema)
        self.schema = Schema(arrow)
        self.threads = kept.cores
        self._by = [column.path for column in self.base.indexed.orderable(kept.by)]
        self._rows_of = FileRows(index, arrow)
        self.inserted = Pieces(make_folder() if batch.pieces.is_spilled else None)
        # For each file, the rows of the batch that take a place in it, with the number of the row that they replace;
        # and the rows that go without one in their place.
        self._placed = Pieces(make_folder() if batch.pieces.is_spilled else None)
        self._dropped: dict[int, list[NDArray[np.uint32]]] = {}
        self.updated = sum(map(self._match, batch.parts()))
        self.files = np.array(sorted(self._dropped), np.int64)

    def _match(self, part: pa.Table) -> int:
        """Find out where the rows of a part go. Returns the number of its keys that the table holds."""
        rows = storable_rows(part, self.schema.arrow)
        keys = Keys.of(rows, self.on)
        matches = keys.in_files(self._rows_of, self._candidates(self.index, rows), self.threads)
        stays = self._first_matches(rows, matches)
        taken = _joined([found.keys[stays[file]] for file, found in matches.items()])
        places = _joined([found.rows[stays[file]] for file, found in matches.items()])
        placed = rows.take(pa.array(taken)).append_column(_PLACE, pa.array(places))
        start = 0
        for file, found in matches.items():
            count = int(stays[file].sum())
            if count:
                self._placed.add(file, placed.slice(start, count))
            start += count
            self._dropped.setdefault(file, []).append(found.rows[~stays[file]].astype(np.uint32))
        del placed
        if len(taken) < len(keys):
            self.inserted.add(0, rows.take(pa.array(np.setdiff1d(np.arange(len(keys)), taken))))
        if self.batch.pieces.is_spilled:
            pa.default_memory_pool().release_unused()
        return len(np.unique(_joined([found.keys for found in matches.values()])))

    def replaced(self, file: int) -> pa.Table:
        """The rows of a file of ``files`` after the upsert."""
        old = self._rows_of(file)
        empty = t.empty_table(self.schema.arrow.append(pa.field(_PLACE, pa.int64())))
        placed = pa.concat_tables([*self._placed.of(file)] or [empty])
        taken = np.arange(old.num_rows)
        taken[np.asarray(placed.column(_PLACE))] = old.num_rows + np.arange(placed.num_rows)
        dropped = np.concatenate(self._dropped[file])
        return pa.concat_tables([old, storable_rows(placed, old.schema)]).take(pa.array(np.delete(taken, dropped)))

    def _upserted(self, version: int) -> Upserted:
        changes = new_and_widened(self.base.schema.arrow, self.schema.arrow)
        return Upserted(version, self.batch.rows - self.updated, self.updated, len(self.files), *changes)

    def _written(self, staged: Staged) -> list[Written]:
        """Write the files that change, and the new rows as files of their own."""
        written = [rewrite_files(self.index, self.files, self.replaced, self.kept, staged, self.schema)]
        if self.inserted.row_count:
            look_ups = partial(look_ups_of, self.index, self.kept)
            sized = sized_by_rows(self.base, self.kept)
            new = partial(self.inserted.of, 0)
            rows = of_tables(storable_schema(self.schema.arrow), new, self.inserted.row_count)
            written.append(write_files(rows, self.index.storage, self.schema, sized, look_ups, staged))
        return [each for each in written if len(each.files)]

    def _candidates(self, index: Index, rows: pa.Table) -> NDArray[np.int64]:
        """The files that may have one of the keys of some rows, by their ranges and sketches."""
        now = index.snapshot.schema
        tests = []
        for name in self.on:
            values, column = rows.column(name), now.column(name)
            if values.type == column.type and any(holds(column.type) for holds in _LISTED):
                tests.append(in_(Reference(column.path, column.type), values.combine_chunks()))
        if not tests:
            return np.arange(len(index), dtype=np.int64)
        text = f"{', '.join(self.on)} IN the keys of a batch"
        survivors = find_survivors(index, Predicate(text, None, and_(tests), now, Dialect()))
        return np.asarray(survivors.numbers, np.int64)

    def _first_matches(self, rows: pa.Table, matches: Mapping[int, Matches]) -> dict[int, NDArray[np.bool_]]:
        """For each match of each file, whether the row of the batch takes its place.

        A key takes the place of its first row only, and only in a file of its partition whose ranges hold it.
        """
        free = np.ones(rows.num_rows, bool)
        inside = self._inside(rows, np.array(list(matches), np.int64))
        found = {}
        for file, each in matches.items():
            first = np.zeros(len(each.keys), bool)
            first[np.unique(each.keys, return_index=True)[1]] = True
            found[file] = first & free[each.keys] & inside(file, each.keys)
            free[each.keys] = False
        return found

    def _inside(
        self, rows: pa.Table, files: NDArray[np.int64]
    ) -> Callable[[int, NDArray[np.int64]], NDArray[np.bool_]]:
        """A function of a file and of numbers of rows: whether each is in its partition and its ranges."""
        by = [path for path in self._by if path in self.base.schema.columns] if len(files) else []
        ranges = self.index.files_at(files, by).statistics.columns
        codes = {}
        for path in by:
            ends = [ranges[path].lower, ranges[path].upper]
            values = self.schema.columns[path].of(rows)
            codes[path] = dense_codes(pa.chunked_array([*values.chunks, *(end.cast(values.type) for end in ends)]))[0]
        partitions = list(self.base.partition_by)
        keys, partition_of = partition_numbers(rows, partitions)
        folders = [hive.folder(partitions, key) for key in keys] if partitions else [""]
        of_file = dict(zip(files.tolist(), self._folders(files), strict=True))
        place = {file: number for number, file in enumerate(files.tolist())}

        def inside(file: int, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
            here: NDArray[np.bool_] = np.array([folder == of_file[file] for folder in folders])[partition_of[numbers]]
            for code in codes.values():
                values, ends = code[: rows.num_rows], code[rows.num_rows :]
                lower, upper = ends[place[file]], ends[len(files) + place[file]]
                known = lower > 0 and upper > 0
                own = values[numbers]
                here &= (own == 0) | ((own >= lower) & (own <= upper)) if known else True
            return here

        return inside

    def _folders(self, files: NDArray[np.int64]) -> list[str]:
        """For each file the folder of its partition, as `hive.folder` writes it."""
        partitions = list(self.base.partition_by)
        if not partitions or not len(files):
            return [""] * len(files)
        if self.index.source is None:
            texts = hive.partitions(self.index.paths(files))
            values = {
                name: hive.cast(hive.decoded(texts[name]), self.schema.arrow.field(name).type) for name in partitions
            }
        else:  # In another format, the log names the values: they are both bounds.
            paths = {name: join_path([name]) for name in partitions}
            ranges = self.index.files_at(files, [*paths.values()]).statistics.columns
            values = {name: ranges[path].lower for name, path in paths.items()}
        keys, numbers = partition_numbers(pa.table(values), partitions)
        return [hive.folder(partitions, keys[number]) for number in numbers.tolist()]

    def into_table(self, batch: tuple[str, int] | None) -> tuple[Snapshot, Upserted]:
        """Make the new version of a table of zskip."""
        storage = self.index.storage
        with Staged(storage.delete) as staged:
            written = self._written(staged)
            done = self._upserted(self.base.version)
            snapshot = commit(
                storage,
                self.base,
                TableUpdate(
                    "upsert",
                    add=DataFiles.concat([each.files for each in written]),
                    remove=self.index.paths(self.files).to_pylist(),
                    schema=None if self.schema.arrow.equals(self.base.schema.arrow) else self.schema,
                    details={"inserted": done.inserted, "updated": done.updated, "files_rewritten": done.files},
                    batch=batch,
                    still=self._require_no_added_files,
                    sketches=[sketch for each in written for sketch in each.sketches],
                ),
                staged=staged,
            )
            if not staged.is_committed:  # another writer committed this batch
                return snapshot, Upserted(snapshot.version, 0, 0, 0)
        return snapshot, replace(done, version=snapshot.version)

    def into_source(self, table: Source, batch: tuple[str, int] | None) -> tuple[Source, Upserted]:
        """Make the new version of a Delta or Iceberg table, whose newest version must be that of the index."""
        table.require_replaceable(self.index, self.files, rows_change=True, batch=batch)
        made = None
        if self.batch.rows:
            verb = "MERGE by zskip: rows replaced and inserted by key"
            write, rows, still = self._data_files, self._tables, self._require_no_added_keys
            made = table.replace_files(Replacement(self.index, self.files, write, rows, index_of, verb, batch, still))
        if made is None:
            return table, Upserted(int(self.base.details["version"]), 0, 0, 0)
        return made.source, self._upserted(made.version)

    def _data_files(self, storage: Storage, staged: Staged) -> DataFiles:
        """The files that take the place of ``files``, written into the table's storage."""
        return DataFiles.concat([each.files for each in self._written(staged)])

    def _tables(self) -> Iterator[pa.Table]:
        """The rows of each of these files."""
        return chain(map(self.replaced, self.files.tolist()), self.inserted.of(0))

    def _require_no_added_files(self, newest: Snapshot) -> None:
        """Raise `CommitConflict` if the version has another schema, or new files with one of the keys."""
        if newest.schema != self.base.schema:
            raise CommitConflict(f"{self.index.storage.uri}: version {newest.version} has changed the table's schema.")
        shards = tuple(shard for shard in newest.shards if shard not in self.base.shards)
        self._require_no_added_keys(Index(self.index.storage, replace(newest, shards=shards)))

    def _require_no_added_keys(self, newest: Index) -> None:
        """Raise `CommitConflict` if some of these files are not those of the base, and have one of the keys."""
        known = self.index.paths(np.arange(len(self.index), dtype=np.int64))
        rows_of = FileRows(newest, self.schema.arrow)
        for part in self.batch.parts():
            rows = storable_rows(part, self.schema.arrow)
            candidates = self._candidates(newest, rows)
            candidates = candidates[~np.asarray(pc.is_in(newest.paths(candidates), value_set=known), bool)]
            if len(candidates) and Keys.of(rows, self.on).in_files(rows_of, candidates, self.threads):
                raise CommitConflict(f"{newest.storage.uri}: version {newest.version} has rows with keys of the batch.")


def _joined(numbers: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(0, np.int64), *numbers])
