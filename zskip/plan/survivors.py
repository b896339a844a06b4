"""`Survivors`: the files and row groups of an index that remain after pruning, and how much was skipped."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from zskip.core.late_loading import pc
from zskip.plan.scan import FILE_FIELDS, Groups, Scan
from zskip.tablelog.index import Index

if TYPE_CHECKING:
    from zskip.language import Predicate
    from zskip.tablelog.freshness import Changes
    from zskip.tablelog.index import RowGroupUnits

_Value = TypeVar("_Value")
_MOST_DERIVED = 16

FEW_FILES = 48
"""Local files whose footers an engine reads in less time than pruning takes here."""


def surviving_groups(units: RowGroupUnits, may_match: np.ndarray, all_match: np.ndarray) -> Groups:
    """The row groups of some files that may match; their ``file`` is the file's number."""
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
    """The files of an index that may hold a matching row, and the new and changed files in a listing of the folder.

    ``numbers``: the survivors' numbers in the snapshot, ascending · ``all_match``: for each, whether every row matches
    · ``groups``: the surviving row groups of the others, whose ``file`` is such a number · ``changes``: differences
    between a listing and the index; new and changed files come after those of the index
    """

    index: Index
    predicate: Predicate | None
    numbers: np.ndarray
    all_match: np.ndarray
    groups: Groups = field(default_factory=Groups.none)
    changes: Changes | None = None

    @classmethod
    def of_all(cls, index: Index, changes: Changes | None = None) -> Survivors:
        """All files, without a predicate; cached where there is no listing."""

        def made() -> Survivors:
            everything = np.arange(len(index), dtype=np.int64)
            return cls(index, None, everything, np.ones(len(everything), bool), changes=changes).without_stale()

        return made() if changes is not None else index.once(("survivors", None), made)

    def __len__(self) -> int:
        return len(self.numbers) + (0 if self.changes is None else len(self.changes.added) + len(self.changes.changed))

    @property
    def nbytes(self) -> int:
        """The approximate memory in bytes, with the paths that are created later."""
        return 1 << 14 | 200 * (len(self) + len(self.groups.file))

    def without_stale(self) -> Survivors:
        """Without the files that were changed or removed, for which the index is no longer valid."""
        if not self.changes or not len(self.numbers):
            return self
        return self.kept(~np.isin(self.numbers, self._stale))

    def narrowed(self, numbers: np.ndarray) -> Survivors:
        """Only some of the index's files, by ascending numbers, and none from the listing."""
        return replace(self.kept(np.isin(self.numbers, numbers)), changes=None)

    def kept(self, kept: np.ndarray) -> Survivors:
        """Only some of the index's files, by a flag for each, and all from the listing."""
        groups = self.groups.take(np.isin(self.groups.file, self.numbers[kept]))
        return replace(self, numbers=self.numbers[kept], all_match=self.all_match[kept], groups=groups)

    def once(self, key: Hashable, make: Callable[[], _Value]) -> _Value:
        """A value derived from these survivors, from a cache of the last few values."""
        derived = self._derived
        if key in derived:
            return derived[key]  # type: ignore[no-any-return]
        value = make()
        if len(derived) >= _MOST_DERIVED:
            # A new one, since another thread may be reading the old one.
            self.__dict__["_derived"] = derived = {}
        derived[key] = value
        return value

    @cached_property
    def _derived(self) -> dict[Hashable, Any]:
        return {}

    # --- what is read ---

    @cached_property
    def relative_paths(self) -> pa.StringArray:
        """The paths of the survivors in the table, in the table's order."""
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
        """The number of rows of each surviving file; null if unknown."""
        return self._padded(self.index.row_counts(self.numbers))

    @cached_property
    def sizes(self) -> pa.Int64Array:
        """The size of each surviving file in bytes; null if unknown."""
        known = self.index.sizes(self.numbers)
        if self.changes is None:
            return known
        return pa.concat_arrays([known, self.changes.added.size, self.changes.changed.size])

    def _padded(self, known: pa.Array) -> pa.Array:
        lacking = len(self) - len(known)
        return known if not lacking else pa.concat_arrays([known, pa.nulls(lacking, known.type)])

    @cached_property
    def scan(self) -> Scan:
        """The survivors as a self-contained value, without the index.

        It names no row groups of files that others write, since a file that is replaced later has other row groups.
        """
        snapshot, storage = self.index.snapshot, self.index.storage
        # Only files of an object store are compared by their times.
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
        """The facts that only tables of other formats have: deleted rows, and partition values not in paths."""
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
        """The row groups that may hold a match in the file at a position; None for all."""
        return None if position >= len(self.numbers) else self.groups.numbers_in(int(self.numbers[position]))

    def residual_of(self, position: int) -> Predicate | None:
        """The predicate by which the rows of the file at a position must be filtered; None if all rows match."""
        return None if position < len(self.numbers) and self.all_match[position] else self.predicate

    # --- what is not ---

    @property
    def total_files(self) -> int:
        """The number of files that the table has now."""
        return len(self.index) + (0 if self.changes is None else len(self.changes.added) - len(self.changes.removed))

    @cached_property
    def skipped(self) -> Skipped:
        """Files, row groups, rows and bytes that need not be read, each with its total.

        Bytes are those of skipped files. Rows and row groups include those skipped in files that are read in part. If a
        folder has changed since it was indexed, they are those of its `counted_files`, and unknown if there are none.
        """
        files = Share(self.total_files - len(self), self.total_files)
        if self.changes and not self.counted_files:
            return Skipped(files, *[Share(None, None)] * 3)
        all_groups, all_rows, all_bytes = self._totals
        part = np.isin(self.numbers, self.groups.file)
        groups = int(self.index.row_group_counts(self.numbers[~part]).sum()) + len(self.groups.file)
        rows = pc.sum(self.index.row_counts(self.numbers[~part]), skip_nulls=False, min_count=0).as_py()
        in_groups = None if (self.groups.rows < 0).any() else int(self.groups.rows.sum())
        read = None if rows is None or in_groups is None else rows + in_groups
        size = pc.sum(self.index.sizes(self.numbers), skip_nulls=False, min_count=0).as_py()
        return Skipped(
            files,
            Share(all_groups - groups, all_groups),
            rest(all_rows, read),
            rest(all_bytes, size),
        )

    @property
    def counted_files(self) -> int:
        """The number of files of which the index knows rows and row groups: those that it has, and as it has them."""
        return len(self.index) - len(self._stale)

    @cached_property
    def _stale(self) -> np.ndarray:
        """The numbers of the index's files that have changed or gone."""
        if not self.changes or not (len(self.changes.changed) or len(self.changes.removed)):
            return np.zeros(0, np.int64)
        paths = pa.concat_arrays([self.changes.changed.path, self.changes.removed])
        return np.flatnonzero(pc.is_in(self.index.paths(np.arange(len(self.index))), value_set=paths))

    @property
    def _totals(self) -> tuple[int, int | None, int | None]:
        """The row groups, rows and bytes of the counted files."""
        totals, stale = self.index.snapshot.totals, self._stale
        if not len(stale):
            return totals.row_groups, totals.rows, totals.bytes
        rows = pc.sum(self.index.row_counts(stale), skip_nulls=False).as_py()
        size = pc.sum(self.index.sizes(stale), skip_nulls=False).as_py()
        return (
            totals.row_groups - int(self.index.row_group_counts(stale).sum()),
            rest(totals.rows, rows).part,
            rest(totals.bytes, size).part,
        )


# The shares of a table that a plan skips.


class Share(NamedTuple):
    """A part of a whole. A count that is not known is None.

    >>> str(Share(9_950, 10_000))
    '9,950 of 10,000 (99.5 %)'
    """

    part: int | None
    whole: int | None

    @property
    def fraction(self) -> float:
        """The part as a fraction from 0 to 1; 0 if the whole is 0, or a count is not known."""
        return self.part / self.whole if self.part and self.whole else 0.0

    def __str__(self) -> str:
        if self.part is None or self.whole is None:
            return "unknown"
        return f"{self.part:,} of {self.whole:,} ({percent(self.fraction)})"


class Skipped(NamedTuple):
    """The files, row groups, rows and bytes that a plan skips, each as a share of the table."""

    files: Share
    row_groups: Share
    rows: Share
    bytes: Share

    def __str__(self) -> str:
        return ", ".join(f"{name.replace('_', ' ')} {share}" for name, share in self._asdict().items())


def rest(total: int | None, read: int | None) -> Share:
    """The part of a total that is not read; unknown if either count is."""
    return Share(None if total is None or read is None else total - read, total)


def percent(fraction: float) -> str:
    """A percentage as text, in which a part never rounds to 0 % or 100 %."""
    if fraction in (0.0, 1.0):
        return f"{fraction:.0%}".replace("%", " %")
    digits = 1
    while digits < 6 and round(fraction * 100, digits) in (0.0, 100.0):
        digits += 1
    return f"{round(fraction * 100, digits):g} %"
