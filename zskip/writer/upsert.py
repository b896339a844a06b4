"""Upsert: rows whose key exists are replaced, the others are inserted, in one commit.

    batch ─keys─▶ ranges, sketches ─▶ semi-join on the key columns of each candidate file
                     files with a key ─▶ rewritten in place, with the new rows where the old ones were
                     all other rows ───▶ new files, a layout group of their own

An old row is replaced where it is, unless the new one is in another partition or outside the file's ranges of a
clustering column: then it goes with the inserted rows, so that the layout stays sharp. An upsert is serializable: if
other writers added files with one of its keys, or removed a file that it replaces, it starts again from the newest
version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from zskip.core import types as t
from zskip.core.receipts import Upserted
from zskip.core.schema import Schema
from zskip.errors import CommitConflict, SchemaMismatch
from zskip.language import Predicate
from zskip.language.bound import Dialect
from zskip.language.tree import Reference, and_, in_
from zskip.plan import find_survivors
from zskip.stats import DataFiles
from zskip.stats.keys import dense_codes
from zskip.storage import Staged, Storage, hive
from zskip.tablelog import Index, Snapshot, commit, load, with_segments
from zskip.writer.append import (
    kept_options,
    look_ups_of,
    require_batch,
    require_managed,
    sized_by_rows,
)
from zskip.writer.evolution import appended
from zskip.writer.key_match import Keys, read_rows, require_key_columns
from zskip.writer.options import WriteOptions
from zskip.writer.routing import partition_numbers
from zskip.writer.row_source import RowSource, of_table
from zskip.writer.storable import storable_rows
from zskip.writer.write import Written, available_cores, rewrite_files, write_files

_ATTEMPTS = 50
# The types for which the planner is asked; the key columns of other types are read from all files.
_LISTED = (t.is_integer, t.is_floating, t.is_string, t.is_binary, t.is_date, t.is_timestamp, t.is_decimal128)


def upsert(
    storage: Storage,
    base: Snapshot,
    source: RowSource,
    on: Sequence[str],
    options: WriteOptions,
    batch: tuple[str, int] | None = None,
) -> tuple[Snapshot, Upserted]:
    """Replace the rows that have the keys of some new rows, and insert the others. ``on``: the key columns.

    A ``batch`` (application, number) that the table already contains changes nothing. Raises `InvalidOption` for a key
    that is NULL or occurs twice, `SchemaMismatch` for rows that lack a column, `UnknownColumn`, and `CommitConflict` if
    the table was replaced or others always came first. Then the table is unchanged.
    """
    require_managed(storage, base)
    require_batch(batch)
    require_key_columns(on, base.schema)
    rows = pa.concat_tables([part() for part in source.parts(None)] or [source.schema.empty_table()])
    table_id = base.table_id
    for _ in range(_ATTEMPTS):
        if batch is not None and base.applications.get(batch[0], -1) >= batch[1]:
            return base, Upserted(base.version, 0, 0, 0)
        if base.table_id != table_id:
            break
        try:
            return _Upsert(storage, base, rows, tuple(on), kept_options(base, options), batch).run()
        except CommitConflict as error:
            conflict = error
            base = load(storage)
    raise CommitConflict(f"{storage.uri}: the upsert was not made, since other writers came first: {conflict}")


class _Upsert:
    """One attempt, on one version of the table."""

    def __init__(
        self,
        storage: Storage,
        base: Snapshot,
        rows: pa.Table,
        on: tuple[str, ...],
        kept: WriteOptions,
        batch: tuple[str, int] | None,
    ) -> None:
        self.storage, self.base, self.on, self.kept, self.batch = storage, base, on, kept, batch
        lacking = [name for name in base.schema.arrow.names if name not in rows.column_names]
        if lacking:
            raise SchemaMismatch(f'The rows lack the column "{lacking[0]}". An upsert replaces whole rows.')
        self.schema = Schema(appended(base.schema.arrow, rows.schema))
        self.rows = storable_rows(rows, self.schema.arrow)
        self.keys = Keys.of(self.rows, on)
        self._by = [column.path for column in base.indexed.orderable(kept.by)]
        self.threads = kept.threads or available_cores()

    def run(self) -> tuple[Snapshot, Upserted]:
        """Make the new version; return the base unchanged if there are no rows."""
        if not self.rows.num_rows:
            return self.base, Upserted(self.base.version, 0, 0, 0)
        index = Index(self.storage, self.base)
        matches = self.keys.in_files(index, self._candidates(index), self.schema.arrow, self.threads)
        new = np.ones(len(self.keys), bool)
        stays = self._first_matches(index, matches)
        for numbers in stays.values():
            new[numbers[numbers >= 0]] = False
        existing = ~new
        for numbers in matches.values():
            existing[numbers[numbers >= 0]] = True

        def replaced(file: int) -> pa.Table:
            old = read_rows(index, file, self.schema.arrow)
            first, matched = stays[file], matches[file] >= 0
            taken = np.where(first >= 0, old.num_rows + first, np.arange(old.num_rows))[~matched | (first >= 0)]
            return pa.concat_tables([old, self.rows]).take(pa.array(taken))

        files = np.array(list(matches), np.int64)
        with Staged(self.storage.delete) as staged:
            written = [rewrite_files(index, files, replaced, self.kept, staged, self.schema)]
            if new.any():
                inserted = of_table(self.rows.filter(pa.array(new)))
                look_ups = look_ups_of(index, self.kept)
                sized = sized_by_rows(self.base, self.kept)
                written.append(write_files(inserted, self.storage, self.schema, sized, look_ups, staged))
            return self._commit(index, files, written, int(existing.sum()), staged)

    def _candidates(self, index: Index) -> NDArray[np.int64]:
        """The files that may have one of the keys, by their ranges and sketches."""
        now = index.snapshot.schema
        tests = []
        for name in self.on:
            values, column = self.rows.column(name), now.column(name)
            if values.type == column.type and any(holds(column.type) for holds in _LISTED):
                tests.append(in_(Reference(column.path, column.type), values.combine_chunks()))
        if not tests:
            return np.arange(len(index), dtype=np.int64)
        text = f"{', '.join(self.on)} IN the keys of a batch"
        survivors = find_survivors(index, Predicate(text, None, and_(tests), now, Dialect()))
        return np.asarray(survivors.numbers, np.int64)

    def _first_matches(self, index: Index, matches: dict[int, NDArray[np.int64]]) -> dict[int, NDArray[np.int64]]:
        """For each row of these files, the row of the batch that takes its place; -1 for none.

        A key takes the place of its first row only, and only in a file of its partition whose ranges hold it.
        """
        free = np.ones(len(self.keys), bool)
        inside = self._inside(index, np.array(list(matches), np.int64))
        found = {}
        for file, numbers in matches.items():
            at = np.flatnonzero(numbers >= 0)
            _, first = np.unique(numbers[at], return_index=True)
            at = at[np.sort(first)]
            at = at[free[numbers[at]]]
            free[numbers[at]] = False
            at = at[inside(file, numbers[at])]
            found[file] = np.full(len(numbers), -1, np.int64)
            found[file][at] = numbers[at]
        return found

    def _inside(self, index: Index, files: NDArray[np.int64]) -> Callable[[int, NDArray[np.int64]], NDArray[np.bool_]]:
        """A function of a file and of rows of the batch: whether each is in its partition and its ranges."""
        by = [path for path in self._by if path in index.snapshot.schema.columns] if len(files) else []
        ranges = index.files_at(files, by).statistics.columns
        codes = {}
        for path in by:
            ends = [ranges[path].lower, ranges[path].upper]
            values = self.schema.columns[path].of(self.rows)
            codes[path] = dense_codes(pa.chunked_array([*values.chunks, *(end.cast(values.type) for end in ends)]))[0]
        partitions = list(self.base.partition_by)
        keys, partition_of = partition_numbers(self.rows, partitions)
        folders = [hive.folder(partitions, key) for key in keys] if partitions else [""]
        paths = dict(zip(files.tolist(), index.paths(files).to_pylist(), strict=True))
        place = {file: number for number, file in enumerate(files.tolist())}

        def inside(file: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
            here: NDArray[np.bool_] = np.array([folder in paths[file] for folder in folders])[partition_of[rows]]
            for code in codes.values():
                values, ends = code[: len(self.keys)], code[len(self.keys) :]
                lower, upper = ends[place[file]], ends[len(files) + place[file]]
                known = lower > 0 and upper > 0
                here &= (values[rows] == 0) | ((values[rows] >= lower) & (values[rows] <= upper)) if known else True
            return here

        return inside

    def _commit(
        self, index: Index, files: NDArray[np.int64], written: list[Written], updated: int, staged: Staged
    ) -> tuple[Snapshot, Upserted]:
        inserted = len(self.keys) - updated
        snapshot = commit(
            self.storage,
            self.base,
            "upsert",
            add=DataFiles.concat([each.files for each in written if len(each.files)]),
            remove=index.paths(files).to_pylist(),
            schema=None if self.schema.arrow.equals(self.base.schema.arrow) else self.schema,
            details={"inserted": inserted, "updated": updated, "files_rewritten": len(files)},
            batch=self.batch,
            still=self._require_no_added_keys,
            staged=staged,
            sketches=lambda before: reduce(with_segments, [each.sketches for each in written], before),
        )
        if not staged.is_committed:  # another writer committed this batch
            return snapshot, Upserted(snapshot.version, 0, 0, 0)
        return snapshot, Upserted(snapshot.version, inserted, updated, len(files))

    def _require_no_added_keys(self, newest: Snapshot) -> None:
        """Raise `CommitConflict` if the version has another schema, or new files with one of the keys."""
        if newest.schema != self.base.schema:
            raise CommitConflict(f"{self.storage.uri}: version {newest.version} has changed the table's schema.")
        shards = tuple(shard for shard in newest.shards if shard not in self.base.shards)
        added = Index(self.storage, replace(newest, shards=shards))
        before = Index(self.storage, self.base)
        known = before.paths(np.arange(len(before), dtype=np.int64))
        candidates = self._candidates(added)
        candidates = candidates[~np.asarray(pc.is_in(added.paths(candidates), value_set=known), bool)]
        if self.keys.in_files(added, candidates, self.schema.arrow, self.threads):
            raise CommitConflict(f"{self.storage.uri}: version {newest.version} has rows with keys of the batch.")
