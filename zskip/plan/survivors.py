"""`Survivors`: the files and row groups of an index that a predicate leaves, by number; and what was skipped."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from zskip.expr import Predicate
from zskip.plan.shares import Share, Skipped, rest
from zskip.pruning import residuals
from zskip.scan import FILE_FIELDS, Groups, Scan
from zskip.tablelog import Changes, Index, RowGroupUnits

__all__ = ["Survivors", "surviving_groups"]


def surviving_groups(units: RowGroupUnits, may_match: np.ndarray, all_match: np.ndarray) -> Groups:
    """Those of all row groups of some files that may match; ``file`` is the number of each one's file."""
    known = pc.is_valid(units.statistics.row_count).to_numpy(zero_copy_only=False)
    rows = np.where(known, np.asarray(pc.fill_null(units.statistics.row_count, 0)), 0)
    starts = np.flatnonzero(np.diff(units.file, prepend=-1))
    counts = np.diff(starts, append=len(units.file))
    before = np.cumsum(rows) - rows
    first_row = before - np.repeat(before[starts], counts)
    if not known.all():
        doubtful = np.repeat(np.logical_or.reduceat(~known, starts), counts)
        first_row, rows = np.where(doubtful, -1, first_row), np.where(known, rows, -1)
    kept = np.flatnonzero(may_match)
    return Groups(
        units.file[kept],
        units.row_group[kept],
        first_row[kept],
        rows[kept],
        all_match[kept],
        np.repeat(counts, counts)[kept],
    )


@dataclass(frozen=True, eq=False)
class Survivors:
    """The files of an index that may hold a matching row, and those that a listing of the folder found besides.

    ``numbers``: the survivors' numbers in the snapshot, ascending · ``all_match``: one flag each: every row matches ·
    ``groups``: surviving row groups of the others, ``file`` being a number too · ``changes``: what a listing found that
    the index does not know; the files that it found come after those of the index.
    """

    index: Index
    predicate: Predicate | None
    numbers: np.ndarray
    all_match: np.ndarray
    groups: Groups = field(default_factory=Groups.none)
    changes: Changes | None = None

    def __len__(self) -> int:
        return len(self.numbers) + (0 if self.changes is None else len(self.changes.added) + len(self.changes.changed))

    def without_stale(self) -> Survivors:
        """Without the files that the listing found changed or gone: what the index says of them no longer holds."""
        if not self.changes or not len(self.numbers):
            return self
        stale = pa.concat_arrays([self.changes.changed.path, self.changes.removed])
        return self.kept(~np.asarray(pc.is_in(self.index.paths(self.numbers), value_set=stale)))

    def narrowed(self, numbers: np.ndarray) -> Survivors:
        """Only these of the index's files (ascending numbers), and none that the listing found."""
        return replace(self.kept(np.isin(self.numbers, numbers)), changes=None)

    def kept(self, kept: np.ndarray) -> Survivors:
        """Only some of the index's files, by one flag each, and all that the listing found."""
        groups = self.groups.take(np.isin(self.groups.file, self.numbers[kept]))
        return replace(self, numbers=self.numbers[kept], all_match=self.all_match[kept], groups=groups)

    # --- what is read ---

    @cached_property
    def relative_paths(self) -> pa.StringArray:
        """The survivors' paths in the table, in its order."""
        known = self.index.paths(self.numbers)
        return (
            known
            if self.changes is None
            else pa.concat_arrays([known, self.changes.added.path, self.changes.changed.path])
        )

    @cached_property
    def paths(self) -> list[str]:
        """The survivors' paths or URLs, in the table's order."""
        return [self.index.storage.uri_of(path) for path in self.relative_paths.to_pylist()]

    @cached_property
    def rows(self) -> pa.Int64Array:
        """The rows of each surviving file; null where unknown."""
        return self._padded(self.index.row_counts(self.numbers))

    @cached_property
    def sizes(self) -> pa.Int64Array:
        """The bytes of each surviving file; null where unknown."""
        known = self.index.sizes(self.numbers)
        if self.changes is None:
            return known
        return pa.concat_arrays([known, self.changes.added.size, self.changes.changed.size])

    def _padded(self, known: pa.Array) -> pa.Array:
        lacking = len(self) - len(known)
        return known if not lacking else pa.concat_arrays([known, pa.nulls(lacking, known.type)])

    @cached_property
    def scan(self) -> Scan:
        """The same as a closed value, without the index.

        Of files that others write it names no row groups: those of a file that was replaced meanwhile are others.
        """
        snapshot, storage = self.index.snapshot, self.index.storage
        # Only a store's files are told apart by their times.
        modified = self.index.modified(self.numbers) if storage.local is None else pa.nulls(len(self), pa.int64())
        unknown = self.predicate is None
        all_match = np.concatenate([self.all_match, np.full(len(self) - len(self.numbers), unknown)])
        files = [self.relative_paths, self.sizes, self._padded(modified), self.rows, pa.array(all_match)]
        places = np.searchsorted(self.numbers, self.groups.file)
        return Scan(
            storage,
            snapshot.table_id,
            self.index.version,
            snapshot.commit_id,
            snapshot.managed,
            snapshot.schema,
            tuple(snapshot.partition_by),
            frozenset(snapshot.added),
            self.predicate,
            pa.Table.from_arrays(files, schema=FILE_FIELDS),
            replace(self.groups, file=places) if snapshot.managed else Groups.none(),
            **({} if self.index.source is None else self._of_source),
        )

    @property
    def _of_source(self) -> dict[str, Any]:
        """What only another format's tables have: deleted rows, and partition values that are in no path."""
        index, snapshot = self.index, self.index.snapshot
        if not len(self.numbers):
            return {"source": index.source}
        gone = index.deletes(self.numbers)
        deletes = {}
        if gone.null_count < len(gone):
            pairs = zip(self.relative_paths.to_pylist(), gone.to_pylist(), strict=True)
            deletes = {path: np.frombuffer(rows, "<i8") for path, rows in pairs if rows is not None}
        columns = {name: snapshot.schema.column(name).path for name in snapshot.partition_by}
        known = index.file_statistics(self.numbers, list(columns.values())).columns
        values = {name: known[path].lower for name, path in columns.items()}
        return {"source": index.source, "deletes": deletes, "values": values}

    def row_groups_of(self, position: int) -> tuple[int, ...] | None:
        """The row groups that may hold a match in the file at this place; None for all."""
        if position >= len(self.numbers):
            return None
        number = self.numbers[position]
        first, last = np.searchsorted(self.groups.file, [number, number + 1])
        if first == last or self.groups.of_file[first] == last - first:
            return None
        return tuple(self.groups.number[first:last].tolist())

    def residual_of(self, position: int) -> Predicate | None:
        """What is left of the predicate to ask of the rows of the file at this place; None where all match."""
        if self.predicate is None or position >= len(self.numbers):
            return self.predicate
        choices, chosen = self._residuals
        return choices[int(chosen[position])]

    @cached_property
    def _residuals(self) -> tuple[list[Predicate | None], npt.NDArray[np.int64]]:
        assert self.predicate is not None
        units = self.index.file_statistics(self.numbers, sorted(self.predicate.columns)).statistics()
        return residuals(self.predicate, units)

    # --- what is not ---

    @property
    def total_files(self) -> int:
        """How many files the table has now."""
        return len(self.index) + (0 if self.changes is None else len(self.changes.added) - len(self.changes.removed))

    @cached_property
    def skipped(self) -> Skipped:
        """Files, row groups, rows and bytes that need not be read, each with its total.

        Bytes are those of skipped files; rows and row groups also those skipped in files that are read in part. Of a
        folder that has changed since it was indexed only the files can be counted.
        """
        files = Share(self.total_files - len(self), self.total_files)
        if self.changes:
            return Skipped(files, *[Share(None, None)] * 3)
        totals = self.index.snapshot.totals
        part = np.isin(self.numbers, self.groups.file)
        groups = int(self.index.row_group_counts(self.numbers[~part]).sum()) + len(self.groups.file)
        rows = pc.sum(self.index.row_counts(self.numbers[~part]), skip_nulls=False, min_count=0).as_py()
        in_groups = None if (self.groups.rows < 0).any() else int(self.groups.rows.sum())
        read = None if rows is None or in_groups is None else rows + in_groups
        size = pc.sum(self.index.sizes(self.numbers), skip_nulls=False, min_count=0).as_py()
        return Skipped(
            files,
            Share(totals.row_groups - groups, totals.row_groups),
            rest(totals.rows, read),
            rest(totals.bytes, size),
        )
