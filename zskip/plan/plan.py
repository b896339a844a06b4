"""`Plan`: the files and row groups that survive, what was skipped, and the way to the engines."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from zskip.expr import Predicate
from zskip.plan import explain as explaining
from zskip.plan.shares import Share, Skipped, rest
from zskip.pruning import residuals
from zskip.tablelog import Index, RowGroupUnits, Snapshot

if TYPE_CHECKING:
    import duckdb

__all__ = ["Changes", "Groups", "Plan", "PlannedFile"]


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file that a plan reads.

    ``path``: absolute, or a URL · ``row_groups``: the numbers of those to read, None for all · ``rows`` and ``bytes``:
    of the whole file, None where unknown · ``residual``: what is left of the predicate to ask of the file's rows; None
    where every row of the file matches.
    """

    path: str
    row_groups: tuple[int, ...] | None
    rows: int | None
    bytes: int | None
    residual: Predicate | None


@dataclass(frozen=True, slots=True)
class Changes:
    """How a folder differs from its index, by paths in the table. ``new`` and ``changed`` come with their sizes."""

    new: pa.StringArray
    new_size: pa.Int64Array
    changed: pa.StringArray
    changed_size: pa.Int64Array
    gone: pa.StringArray

    def __bool__(self) -> bool:
        return bool(len(self.new) or len(self.changed) or len(self.gone))


@dataclass(frozen=True, slots=True)
class Groups:
    """Surviving row groups of files that match in part, ascending by ``file`` (its number in the snapshot).

    ``number``: in its file · ``first_row``: how many rows of the file stand before it, −1 where unknown · ``rows``:
    −1 where unknown · ``whole``: every row matches · ``of_file``: how many row groups its file has.
    """

    file: np.ndarray
    number: np.ndarray
    first_row: np.ndarray
    rows: np.ndarray
    whole: np.ndarray
    of_file: np.ndarray

    @classmethod
    def none(cls) -> Groups:
        """No row group was looked at."""
        nothing = np.zeros(0, np.int64)
        return cls(nothing, nothing, nothing, nothing, np.zeros(0, bool), nothing)

    @classmethod
    def of(cls, units: RowGroupUnits, may_match: np.ndarray, all_match: np.ndarray) -> Groups:
        """Those of all row groups of some files that may match."""
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
        return cls(
            units.file[kept],
            units.row_group[kept],
            first_row[kept],
            rows[kept],
            all_match[kept],
            np.repeat(counts, counts)[kept],
        )

    def take(self, chosen: np.ndarray) -> Groups:
        """Some of them, by mask or by number."""
        return Groups(*(getattr(self, name)[chosen] for name in self.__slots__))


class PlannedFiles(Sequence[PlannedFile]):
    """The files of a plan, each made when it is looked at."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __len__(self) -> int:
        return len(self._plan)

    @overload
    def __getitem__(self, index: int) -> PlannedFile: ...

    @overload
    def __getitem__(self, index: slice) -> list[PlannedFile]: ...

    def __getitem__(self, index: int | slice) -> PlannedFile | list[PlannedFile]:
        if isinstance(index, slice):
            return [self._file(position) for position in range(*index.indices(len(self)))]
        return self._file(range(len(self))[index])

    def __iter__(self) -> Iterator[PlannedFile]:
        return map(self._file, range(len(self)))

    def __repr__(self) -> str:
        return f"<{len(self):,} planned files>"

    def _file(self, position: int) -> PlannedFile:
        plan = self._plan
        return PlannedFile(
            plan.index.storage.uri_of(plan.relative_paths[position].as_py()),
            plan.row_groups_of(position),
            plan.rows[position].as_py(),
            plan.bytes[position].as_py(),
            plan.residual_of(position),
        )


@dataclass(frozen=True, eq=False)
class Plan:
    """The files that may hold a matching row: a value that any engine reads.

    ``numbers``: the survivors' numbers in the snapshot, ascending · ``whole``: one flag each: every row matches ·
    ``groups``: surviving row groups of the others · ``changes``: what a listing found that the index does not know.
    Files that the listing found come after those of the index.
    """

    index: Index
    predicate: Predicate | None
    numbers: np.ndarray
    whole: np.ndarray
    groups: Groups
    changes: Changes | None = None

    def __len__(self) -> int:
        return len(self.numbers) + (0 if self.changes is None else len(self.changes.new) + len(self.changes.changed))

    def __repr__(self) -> str:
        said = "every row" if self.predicate is None else str(self.predicate)
        return f"<Plan of {self.index.storage.uri}: {said}: reads {len(self):,} of {self._total_files:,} files>"

    @property
    def snapshot(self) -> Snapshot:
        """The state of the table that was planned on."""
        return self.index.snapshot

    def without_stale(self) -> Plan:
        """Without the files that the listing found changed or gone: what the index says of them no longer holds."""
        if not self.changes or not len(self.numbers):
            return self
        stale = pa.concat_arrays([self.changes.changed, self.changes.gone])
        fresh = ~np.asarray(pc.is_in(self.index.paths(self.numbers), value_set=stale))
        numbers = self.numbers[fresh]
        return replace(
            self, numbers=numbers, whole=self.whole[fresh], groups=self.groups.take(np.isin(self.groups.file, numbers))
        )

    # --- what is read ---

    @cached_property
    def relative_paths(self) -> pa.StringArray:
        """The survivors' paths in the table, in its order."""
        known = self.index.paths(self.numbers)
        return known if self.changes is None else pa.concat_arrays([known, self.changes.new, self.changes.changed])

    @cached_property
    def paths(self) -> list[str]:
        """The survivors' paths or URLs, in the table's order."""
        return [self.index.storage.uri_of(path) for path in self.relative_paths.to_pylist()]

    @property
    def files(self) -> Sequence[PlannedFile]:
        """The survivors, each with its row groups and what is left to ask of its rows."""
        return PlannedFiles(self)

    @cached_property
    def rows(self) -> pa.Int64Array:
        """The rows of each surviving file; null where unknown."""
        known = self.index.row_counts(self.numbers)
        return pa.concat_arrays([known, pa.nulls(len(self) - len(known), pa.int64())])

    @cached_property
    def bytes(self) -> pa.Int64Array:
        """The size of each surviving file; null where unknown."""
        known = self.index.sizes(self.numbers)
        return (
            known
            if self.changes is None
            else pa.concat_arrays([known, self.changes.new_size, self.changes.changed_size])
        )

    @property
    def all_match(self) -> bool:
        """Whether every row of every surviving file matches, so that nothing is left to filter."""
        return self.predicate is None or bool(len(self) == len(self.numbers) and self.whole.all())

    def without_counted(self) -> tuple[int, Plan]:
        """How many rows match for certain, in files whose every match is proved, and the plan of the other files."""
        starts = np.flatnonzero(np.diff(self.groups.file, prepend=-1))
        counted = self.whole & ~pc.is_null(self.index.row_counts(self.numbers)).to_numpy(zero_copy_only=False)
        rows = int(np.asarray(pc.fill_null(self.index.row_counts(self.numbers), 0))[counted].sum())
        if len(starts):
            proved = np.logical_and.reduceat(self.groups.whole & (self.groups.rows >= 0), starts)
            rows += int(np.add.reduceat(self.groups.rows, starts)[proved].sum())
            counted |= np.isin(self.numbers, self.groups.file[starts][proved])
        rest = self.numbers[~counted]
        groups = self.groups.take(np.isin(self.groups.file, rest))
        return rows, replace(self, numbers=rest, whole=self.whole[~counted], groups=groups)

    def narrowed(self, numbers: np.ndarray) -> Plan:
        """The plan of only these of its files (ascending)."""
        chosen = np.isin(self.numbers, numbers)
        groups = self.groups.take(np.isin(self.groups.file, self.numbers[chosen]))
        return replace(self, numbers=self.numbers[chosen], whole=self.whole[chosen], groups=groups)

    def row_groups_of(self, position: int) -> tuple[int, ...] | None:
        """The row groups to read of the file at this place; None for all."""
        first, last = self._group_slice(position)
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

    def _group_slice(self, position: int) -> tuple[int, int]:
        if position >= len(self.numbers):
            return 0, 0
        number = self.numbers[position]
        return int(np.searchsorted(self.groups.file, number)), int(np.searchsorted(self.groups.file, number, "right"))

    # --- what is not ---

    @property
    def _total_files(self) -> int:
        return len(self.index) + (0 if self.changes is None else len(self.changes.new) - len(self.changes.gone))

    @cached_property
    def skipped(self) -> Skipped:
        """Files, row groups, rows and bytes that need not be read, each with its total.

        Bytes are those of skipped files; rows and row groups also those skipped in files that are read in part. Of a
        folder that has changed since it was indexed only the files can be counted.
        """
        files = Share(self._total_files - len(self), self._total_files)
        if self.changes:
            return Skipped(files, *[Share(None, None)] * 3)
        totals = self.snapshot.totals
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

    # --- to the engines ---

    def to_batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The matching rows as record batches, in the table's order and types, in bounded memory."""
        return self._engine("arrow").to_batches(self, columns)  # type: ignore[no-any-return]

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The matching rows as a table, in the table's order and types."""
        return self._engine("arrow").to_arrow(self, columns)

    def to_duckdb(
        self, con: duckdb.DuckDBPyConnection | None = None, columns: Sequence[str] | None = None
    ) -> duckdb.DuckDBPyRelation:
        """The matching rows as a relation of this connection; of DuckDB's default one where it is None."""
        return self._engine("duckdb").to_duckdb(self, con, columns)  # type: ignore[no-any-return]

    def to_spark(self, spark: Any, columns: Sequence[str] | None = None) -> Any:
        """The matching rows as a DataFrame of this Spark session."""
        return self._engine("spark").to_spark(self, spark, columns)

    def count(self) -> int:
        """How many rows match. Files and row groups that match wholly are counted without being read."""
        return self._engine("arrow").count(self)  # type: ignore[no-any-return]

    def counts(self) -> np.ndarray:
        """How many rows match in each file, by one scan of the predicate's columns."""
        return self._engine("arrow").counts(self)  # type: ignore[no-any-return]

    def _engine(self, name: str) -> Any:
        # By name: a plan knows that there are engines, and nothing about them.
        return importlib.import_module("zskip.spark.handoff" if name == "spark" else f"zskip.engines.{name}")

    # --- why ---

    def explain(self, file: str | None = None) -> str:
        """Why files were skipped or kept, as text: by conjunct, or of one file beside its ranges."""
        return explaining.explain(self, file)

    def as_dict(self, file: str | None = None) -> Mapping[str, Any]:
        """What `explain` says, in plain values that JSON takes."""
        return explaining.facts(self, file)
