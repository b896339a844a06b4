"""`Scan`: the files and row groups to read, as a self-contained value for any engine and for other processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from zskip.core.late_loading import engine, pc
from zskip.core.schema import Schema
from zskip.core.types import fields_within
from zskip.errors import amount
from zskip.storage import Storage

if TYPE_CHECKING:
    from zskip.language import Predicate

FILE_FIELDS = pa.schema(
    {
        "path": pa.string(),
        "size": pa.int64(),
        "modified": pa.int64(),
        "rows": pa.int64(),
        "all_match": pa.bool_(),
    }
)


@dataclass(frozen=True, slots=True)
class Groups:
    """Surviving row groups of files that match in part, ascending by ``file``, the position of their file in the scan.

    ``number``: in its file · ``first_row``: the number of rows of the file before it, −1 if unknown · ``rows``: −1 if
    unknown · ``all_match``: whether every row matches · ``of_file``: the number of row groups in its file
    """

    file: np.ndarray
    number: np.ndarray
    first_row: np.ndarray
    rows: np.ndarray
    all_match: np.ndarray
    of_file: np.ndarray

    @classmethod
    def none(cls) -> Groups:
        """No row groups."""
        empty = np.zeros(0, np.int64)
        return cls(empty, empty, empty, empty, np.zeros(0, bool), empty)

    def take(self, chosen: np.ndarray) -> Groups:
        """Some of the row groups, by mask or by index."""
        return Groups(*(getattr(self, name)[chosen] for name in self.__slots__))

    def of_files(self, kept: np.ndarray) -> Groups:
        """The row groups of the files with a flag in ``kept``, with the positions of the files among these."""
        chosen = self.take(kept[self.file])
        return replace(chosen, file=(np.cumsum(kept) - 1)[chosen.file])

    def numbers_in(self, file: int) -> tuple[int, ...] | None:
        """The row groups to read of the file that has this position or number; None for all."""
        first, last = np.searchsorted(self.file, [file, file + 1])
        if first == last or self.of_file[first] == last - first:
            return None
        return tuple(self.number[first:last].tolist())


@dataclass(frozen=True, eq=False)
class Scan:
    """The rows that a predicate selects, and the files that hold them. A scan is never planned again.

    ``files``: one row per file, in the table's order: ``path`` in the table · ``size`` in bytes · ``modified`` in
    nanoseconds since the epoch · ``rows`` of the whole file · ``all_match``: whether every row of it matches. A null
    means unknown. ``groups``: the row groups to read, of files that are read in part · ``deletes``: by path, the
    ascending numbers (int64) of rows that another format has deleted.
    ``table_id``, ``version`` and ``commit_id`` identify the snapshot. ``managed``: whether zskip wrote the files, so
    that they never change; other files may be replaced after planning.
    ``added``: columns that some files may lack. ``source``: the other format of the table, "delta" or "iceberg" ·
    ``values``: by name, each file's values of partition columns in the log of that format · ``exact``: the rows are
    those for which the predicate is computed to be TRUE, whatever an engine's optimizer concludes without them.

    It can be pickled. The pickle contains the storage's address and options, and so the credentials of a table that was
    opened with explicit ones.
    """

    storage: Storage
    table_id: str
    version: int
    commit_id: str
    managed: bool
    schema: Schema
    partition_by: tuple[str, ...]
    added: frozenset[str]
    predicate: Predicate | None
    files: pa.Table
    groups: Groups = field(default_factory=Groups.none)
    deletes: Mapping[str, np.ndarray] = field(default_factory=dict)
    source: str | None = None
    values: Mapping[str, pa.Array] = field(default_factory=dict)
    exact: bool = False

    def __len__(self) -> int:
        return int(self.files.num_rows)

    def __repr__(self) -> str:
        which = "every row" if self.predicate is None else str(self.predicate)
        return f"<Scan of {self.storage.uri}, version {self.version}: {which}: {amount(len(self), 'file')}>"

    @cached_property
    def relative_paths(self) -> list[str]:
        """The files' paths in the table."""
        return self.files.column("path").to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def paths(self) -> list[str]:
        """The files' absolute paths or URLs."""
        return [self.storage.uri_of(path) for path in self.relative_paths]

    @cached_property
    def sizes(self) -> list[int]:
        """The files' sizes in bytes; those that are not known are looked up in the storage."""
        known = self.files.column("size")
        if known.null_count:
            listed = self.storage.size_and_modified(self.relative_paths)
            found = dict(zip(listed.path.to_pylist(), listed.size.to_pylist(), strict=True))
            return [found[path] for path in self.relative_paths]
        return known.to_pylist()  # type: ignore[no-any-return]

    @property
    def plain(self) -> bool:
        """Whether the files hold exactly the table's rows: no deleted rows, and all values, under the same names."""
        if self.source is None:
            return True
        # its name or id in the files
        marked = any(inner.metadata for field in self.schema.arrow for inner in fields_within(field))
        return not (self.deletes or self.values or marked)

    @property
    def rows(self) -> int | None:
        """The number of rows in the files; None if it is not known for one of them."""
        return pc.sum(self.files.column("rows"), skip_nulls=False, min_count=0).as_py()  # type: ignore[no-any-return]

    @cached_property
    def all_match(self) -> bool:
        """Whether every row of every file matches."""
        return self.predicate is None or bool(self._all_match.all())

    @cached_property
    def filter(self) -> Predicate | None:
        """The predicate by which the rows must be filtered; None if every row matches.

        Files that others write are always filtered, since they may be replaced before they are read.
        """
        return self.predicate if not self.all_match or not self.managed else None

    @property
    def _all_match(self) -> np.ndarray:
        return self.files.column("all_match").to_numpy()  # type: ignore[no-any-return]

    def narrowed(self, kept: np.ndarray) -> Scan:
        """The scan of only some of its files, by a flag for each file."""
        files = self.files.filter(pa.array(kept))
        paths = set(files.column("path").to_pylist()) if self.deletes else set()
        return replace(
            self,
            files=files,
            groups=self.groups.of_files(kept),
            deletes={path: rows for path, rows in self.deletes.items() if path in paths},
            values={name: values.filter(pa.array(kept)) for name, values in self.values.items()},
        )

    def split(self, most_bytes: int) -> list[Scan]:
        """Scans of consecutive files, each of about ``most_bytes``; none if there are no files."""
        run = np.cumsum(np.array(self.sizes, np.int64)) // most_bytes
        return [self.narrowed(run == one) for one in np.unique(run)]

    def unfiltered(self) -> Scan:
        """The scan of all rows of the same files and row groups, whether or not they match."""
        every = pa.array(np.ones(len(self), bool))
        files = self.files.set_column(self.files.schema.get_field_index("all_match"), "all_match", every)
        return replace(self, predicate=None, files=files)

    def without_counted(self) -> tuple[int, Scan]:
        """The number of matching rows in files where it is known without reading, and the scan of the other files."""
        known = self.files.column("rows").fill_null(0).to_numpy()
        counted = self._all_match & self.files.column("rows").is_valid().to_numpy()
        if self.deletes:
            counted &= np.array([path not in self.deletes for path in self.relative_paths], bool)
        rows = np.where(counted, known, 0)
        starts = np.flatnonzero(np.diff(self.groups.file, prepend=-1))
        if len(starts) and not self.deletes:
            proved = np.logical_and.reduceat(self.groups.all_match & (self.groups.rows >= 0), starts)
            files = self.groups.file[starts][proved]
            rows[files] += np.add.reduceat(self.groups.rows, starts)[proved]
            counted[files] = True
        if not self.managed and self.source is None:
            counted[counted] = self._unchanged(counted)
        return int(rows[counted].sum()), self.narrowed(~counted)

    def _unchanged(self, kept: np.ndarray) -> np.ndarray:
        """For each file with a flag in ``kept``, whether it still has the size and modification time of the plan."""
        planned = self.files.filter(pa.array(kept))
        now = self.storage.size_and_modified(planned.column("path").to_pylist())
        same_size = pc.fill_null(pc.equal(planned.column("size"), now.size), False)
        same_time = pc.fill_null(pc.equal(planned.column("modified"), now.modified), True)
        return np.asarray(pc.and_(same_size, same_time))

    def row_groups_of(self, file: int) -> tuple[int, ...] | None:
        """The row groups to read of the file at a position; None for all."""
        return self.groups.numbers_in(file)

    # --- to Arrow: what another process reads; a `Plan` has the other engines too ---

    def to_batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The matching rows as record batches, in the table's order and types, in bounded memory."""
        return engine("arrow").to_batches(self, columns)  # type: ignore[no-any-return]

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The matching rows as a table, in the table's order and types."""
        return engine("arrow").to_arrow(self, columns)
