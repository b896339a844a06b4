"""`Table`: a folder of Parquet with its index, and its operations."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

import numpy as np
import pyarrow as pa

from zskip import plan as planning
from zskip.core.late_loading import ask_duckdb, pc
from zskip.core.option_checks import Progress, bytes_of, check_options, refuse, size_text, unreported
from zskip.core.schema import names_given
from zskip.core.types import is_floating
from zskip.errors import CommitConflict, InvalidOption, SqlError, UnsupportedFormat, amount
from zskip.language import Predicate, tree
from zskip.language.tree import Cause
from zskip.plan import Plan, Survivors
from zskip.stats import Ranges
from zskip.storage import Storage
from zskip.tablelog import log
from zskip.tablelog.freshness import dropped_files, listed
from zskip.tablelog.index import CACHE_BYTES, Index
from zskip.tablelog.query_log import QueryLog
from zskip.tablelog.runs import naming_vacuums
from zskip.tablelog.snapshot import Snapshot

# What changes, analyses or draws a table is loaded by the first call that does so.
if TYPE_CHECKING:
    import altair
    import datafusion
    import duckdb
    import pandas
    import polars
    from pyspark.sql import DataFrame, SparkSession

    from zskip.advisor import Advice, Weigh
    from zskip.advisor.query_logs import LoggedQueries
    from zskip.binder import Parameters
    from zskip.binder.bind_condition import Condition
    from zskip.core.receipts import (
        Adopted,
        Appended,
        Deleted,
        History,
        JoinsRefreshed,
        Optimized,
        Overwritten,
        Refreshed,
        Restored,
        Sketched,
        Step,
        Tended,
        Upserted,
        Vacuumed,
    )
    from zskip.engines.dataset import PrunedDataset
    from zskip.inspect.audit import Verification
    from zskip.layouts.depth import Clustering
    from zskip.table_formats.source import Source
    from zskip.writer.backend import Backend
    from zskip.writer.options import Resources, Rewrite, WriteOptions
    from zskip.writer.workload_input import Workload

__all__ = ["Table", "require_version"]

_LOG = logging.getLogger("zskip")
_ATTEMPTS = 50
_SAMPLED_FILES = 200
_FEWEST_ASKED, _MUCH_LESS = 20, 0.8
"""Logged plans by which a layout is judged, and the share of today's reading below which another one is proposed."""

_CHANGES = (
    "zskip.cluster lays it out, and upsert replaces rows, by a commit of that format. For other changes use a library "
    "of that format."
)


class Table:
    """A table at one of its versions. A method that changes the table moves this object to the new version.

    Threads may plan on one table concurrently.
    """

    def __init__(self, storage: Storage, snapshot: Snapshot, cache_bytes: int = CACHE_BYTES) -> None:
        self._storage = storage
        self._index = Index(storage, snapshot, cache_bytes)
        self._source: Source | None = None

    @classmethod
    def _of_source(cls, source: Source, cache_bytes: int = CACHE_BYTES) -> Table:
        """A table of another format, at the newest version of its log."""
        from zskip.table_formats.locate import index_of

        index = index_of(source, cache_bytes)
        table = cls(index.storage, index.snapshot)
        table._index, table._source = index, source
        return table

    def __repr__(self) -> str:
        totals = self._index.snapshot.totals
        rows = "unknown rows" if totals.rows is None else amount(totals.rows, "row")
        return f"<zskip table {self.uri}, version {self.version}: {amount(totals.files, 'file')}, {rows}>"

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.plan().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        totals = self._index.snapshot.totals
        facts = {"version": self.version, "files": totals.files, "rows": totals.rows, "bytes": totals.bytes}
        layout = self._index.snapshot.layout
        head = "".join(f"<th>{name}</th>" for name in facts)
        cells = "".join(f"<td>{'unknown' if value is None else f'{value:,}'}</td>" for value in facts.values())
        columns = ", ".join(f"{name} {type}" for name, type in zip(self.columns, self.schema.types, strict=True))
        by = "" if layout is None else f"<p>laid out by {escape(', '.join(layout.columns))} ({escape(layout.name)})</p>"
        return (
            f"<p>zskip table {escape(self.uri)}</p><table><tr>{head}</tr><tr>{cells}</tr></table>{by}"
            f"<p>{escape(columns)}</p>"
        )

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the table's rows."""
        return self._index.snapshot.schema.arrow

    @property
    def columns(self) -> list[str]:
        """The names of the table's columns."""
        return list(self.schema.names)

    @property
    def version(self) -> int:
        """The number of this version, from 1. For a Delta or Iceberg table: its own version or snapshot id."""
        return self._index.version

    @property
    def uri(self) -> str:
        """The table's address."""
        return self._storage.uri

    # --- reading ---

    def plan(
        self,
        predicate: Condition | None = None,
        *,
        where: Condition | None = None,
        filters: list[Any] | None = None,
        dialect: str = "duckdb",
        timezone: str = "UTC",
        params: Parameters | None = None,
        freshness: Literal["list", "trust"] = "list",
    ) -> Plan:
        """The files and row groups that may hold a row for which the predicate is TRUE.

        ``predicate``: SQL, a boolean expression of pyarrow, polars, ibis or DuckDB, with that library's meaning, or a
        list as ``filters`` of `zskip.read` · ``where`` and ``filters``: other names of it, as `zskip.read` has them ·
        ``dialect``: of the SQL, by sqlglot's name · ``timezone``: of the session, an IANA name · ``params``: values for
        ``?`` and ``$name`` · ``freshness``: for a folder that zskip only indexes, "list" lists it to find changed files
        and "trust" does not; the files of a table that zskip wrote never change.

        Raises `SqlError`, which points at the error in the text, and `InvalidOption` for two predicates.
        """
        check_options(filters=filters)
        given = [each for each in (predicate, where, filters) if each is not None]
        if len(given) > 1:
            raise InvalidOption("The predicate, where= and filters= all choose rows; give one of them.")
        predicate = given[0] if given else None
        found = planning.logged(
            self._find_survivors(predicate, dialect=dialect, timezone=timezone, params=params, freshness=freshness)
        )
        if found.predicate is not None:
            _name_misspelt_functions(found.predicate)
        return Plan(found)

    def _find_survivors(
        self,
        predicate: Condition | None,
        *,
        dialect: str = "duckdb",
        timezone: str = "UTC",
        params: Parameters | None = None,
        freshness: Literal["list", "trust"] = "list",
    ) -> Survivors:
        check_options(dialect=dialect, timezone=timezone)
        if freshness not in ("list", "trust"):
            raise InvalidOption(f'freshness= is "list" or "trust", not {freshness!r}.')
        schema = self._index.snapshot.schema
        bound = None
        if predicate is not None:
            from zskip.binder.bind_condition import bind_condition

            bound = bind_condition(predicate, schema, dialect, timezone, params)
        changed = listed(self._index) if freshness == "list" else None
        return planning.find_survivors(self._index, bound, changes=changed)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows, in the order of the files."""
        return self.plan().to_arrow(columns)

    def to_pandas(self, columns: Sequence[str] | None = None) -> pandas.DataFrame:
        """All rows as a DataFrame of pandas. Raises `MissingDependency` without pandas."""
        return self.plan().to_pandas(columns)

    def to_polars(self, columns: Sequence[str] | None = None) -> polars.DataFrame:
        """All rows as a DataFrame of polars; `zskip.polars.scan` is lazy. Raises `MissingDependency` without polars."""
        return self.plan().to_polars(columns)

    def to_duckdb(
        self, con: duckdb.DuckDBPyConnection | None = None, columns: Sequence[str] | None = None
    ) -> duckdb.DuckDBPyRelation:
        """All rows as a lazy relation of a connection, by default DuckDB's default connection.

        The relation reads all files: `zskip.sql`, or `plan(predicate).to_duckdb()`, prunes.
        """
        return self.plan().to_duckdb(con, columns)

    def to_spark(self, spark: SparkSession, columns: Sequence[str] | None = None) -> DataFrame:
        """All rows as a DataFrame of a Spark session; `zskip.spark.table` prunes by the filters of each query."""
        return self.plan().to_spark(spark, columns)

    def head(self, rows: int = 10, columns: Sequence[str] | None = None) -> pa.Table:
        """The first rows, in the order of the files. Raises `InvalidOption`, `UnknownColumn`."""
        if not isinstance(rows, int) or rows < 0:
            raise refuse("rows", "a number of rows", rows)
        from zskip.engines.arrow import to_batches

        scan = self.plan().scan
        found: list[pa.RecordBatch] = []
        for batch in to_batches(scan, columns):
            left = rows - sum(one.num_rows for one in found)
            if left <= 0:
                break
            found.append(batch.slice(0, min(left, len(batch))))
        return pa.Table.from_batches(found, scan.schema.selected(columns))

    def count(self) -> int:
        """The number of rows."""
        return self.plan().count()

    def dataset(self) -> PrunedDataset:
        """This version as a `pyarrow.dataset.Dataset` that prunes by the filter of each scan.

        DuckDB reads it by ``con.register``, polars by ``scan_pyarrow_dataset``, DataFusion by ``register_dataset``.
        """
        from zskip.engines.dataset import dataset

        index = self._index
        changed = partial(listed, index)
        return dataset(lambda predicate: planning.kept_survivors(index, predicate, changes=changed()).scan)

    def to_datafusion(self, context: datafusion.SessionContext, name: str) -> None:
        """Register this version under a name with DataFusion, where it prunes by comparisons and IN.

        Conditions on a column that may hold NULL, and on a floating one that may hold NaN or zero, skip no files:
        DataFusion applies them itself. In a folder that zskip only indexed, that is each column.

        Raises `InvalidOption` for an object that is not a context of DataFusion.
        """
        if not hasattr(context, "register_dataset"):
            given = type(context).__name__
            raise InvalidOption(
                f"A context of DataFusion is needed, not {given}: datafusion.SessionContext() makes one."
            )
        from zskip.engines.dataset import register_with_datafusion

        register_with_datafusion(context, name, self.dataset(), self._columns_that_engines_read_differently())

    def _columns_that_engines_read_differently(self) -> set[str]:
        """The columns that may hold a value on which SQL and pyarrow's filters disagree: NULL, NaN or zero."""
        snapshot = self._index.snapshot
        columns = {column.path: column.parts[0] for column in snapshot.schema if len(column.parts) == 1}
        if not snapshot.managed and self._index.source is None:
            return set(columns.values())  # files may be added after the look at the statistics
        found = self._index.shards([*columns]).columns
        return {name for path, name in columns.items() if _is_read_differently(found.get(path))}

    # --- changing ---

    def append(
        self,
        source: Any,
        *,
        batch: tuple[str, int] | None = None,
        session: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        **options: Unpack[Resources],
    ) -> Appended:
        """Add the rows of a source as new files, by the table's layout; no existing file changes.

        Columns may be added and types widened without loss; added columns are NULL in existing files. ``batch``: an
        application's name and the number of its batch; a batch that is not after the application's last one does
        nothing, and so a repeated one · ``session``: a Spark session that does the work; the source is one of its
        DataFrames · ``storage_options``: of the source, if it is a URL. Other options are ``memory_limit``,
        ``temp_directory``, ``threads`` and ``progress``.

        Raises `SchemaMismatch`, which names the column, and the errors of `write`.
        """
        from zskip.writer.append import append
        from zskip.writer.backend import backend_of
        from zskip.writer.options import resources_of

        backend = backend_of(session, source)
        rows = backend.open_rows(source, storage_options)
        given = resources_of(options, "batch", "session", "storage_options")
        base = self._newest()
        snapshot, done = append(self._storage, base, rows, given, batch, backend)
        self._move_to(snapshot)
        return done

    def adopt(self, **options: Unpack[Resources]) -> Adopted:
        """Append the rows of Parquet files that other programs put into the table's folder, and remove these files.

        Columns may be added, as by `append`. A call that was interrupted is finished by the next. Options as for
        `append`. Raises `SchemaMismatch`, which names the column, `CorruptFile`, and `TableError` for files that may be
        copies of files that `cluster` replaced.
        """
        from zskip.writer.adopt import adopt
        from zskip.writer.options import resources_of

        given = resources_of(options)
        base = self._newest()
        snapshot, done = adopt(self._storage, base, given)
        self._move_to(snapshot)
        return done

    def upsert(
        self,
        source: Any,
        *,
        on: str | Sequence[str],
        batch: tuple[str, int] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **options: Unpack[Resources],
    ) -> Upserted:
        """Replace the rows that have the keys of the source's rows, and insert the others, in one commit.

        ``on``: the column, or the columns, that identify a row; −0.0 equals 0.0, and NaN equals NaN. The source must
        have all columns, one row for each key, and no NULL in a key; what exceeds ``memory_limit`` is spilled. Files
        with such rows are rewritten, so keys that are spread over the whole layout rewrite the whole table. The rows of
        a Spark DataFrame are collected on this machine. ``batch``, ``storage_options`` and the other options as for
        `append`. A Delta or Iceberg table is changed by a commit of its format, and keeps its schema.

        If other writers change the same rows meanwhile, it starts again from the newest version. Raises
        `SchemaMismatch`, which names a key that is NULL or occurs twice, `InvalidOption`, `UnknownColumn` and
        `CommitConflict`.
        """
        from zskip.writer.open_source import open_source
        from zskip.writer.options import resources_of
        from zskip.writer.upsert import upsert, upsert_source

        rows = open_source(source, storage_options)
        given = resources_of(options, "on", "batch", "storage_options")
        if self._source is not None:
            self._source, done = upsert_source(self._source.newest(), rows, names_given(on, "on"), given, batch)
            self.refresh()
            return done
        base = self._newest()
        snapshot, done = upsert(self._storage, base, rows, names_given(on, "on"), given, batch)
        self._move_to(snapshot)
        return done

    def overwrite(
        self, source: Any, *, by: str | Sequence[str] | None = None, session: Any = None, **options: Unpack[Rewrite]
    ) -> Overwritten:
        """Replace all rows, in one commit.

        Options are those of `write`; by default they keep their values. A new ``by`` resets the layout, its weights and
        its workload. ``session``: a Spark session that does the work; the source is one of its DataFrames. Raises the
        errors of `write`, and `CommitConflict`.
        """
        from zskip.writer.append import changed_options, create
        from zskip.writer.backend import backend_of

        backend = backend_of(session, source)
        base = self._newest()
        rows = backend.open_rows(source, options.get("storage_options"))
        chosen = changed_options(base, by, options)
        snapshot = create(self._storage, base, rows, chosen, backend)
        self._move_to(snapshot)
        from zskip.core.receipts import Overwritten

        rows_now, size = (cast("int", each) for each in (snapshot.totals.rows, snapshot.totals.bytes))
        return Overwritten(snapshot.version, rows_now, snapshot.totals.files, size)

    def delete(
        self,
        where: Condition,
        *,
        dialect: str = "duckdb",
        timezone: str | None = None,
        params: Parameters | None = None,
        dry_run: bool = False,
        session: Any = None,
        **options: Unpack[Resources],
    ) -> Deleted:
        """Delete the rows for which the predicate is TRUE. ``params``: values for ``?`` and ``$name``.

        Files whose rows all match are dropped without reading them, files with some matching rows are rewritten, all
        others stay. ``dry_run``: only count the rows, and the files that would be dropped and rewritten · ``session``:
        a Spark session that does the work; for Spark's SQL add ``dialect="spark"`` · ``timezone``: of the predicate, by
        default the session's in Spark's SQL, else UTC. Options as for `append`. Raises `SqlError`, `CommitConflict`,
        `CorruptFile`, and `InvalidOption` if the session's time zone is unknown.
        """
        from zskip.binder.bind_condition import bind_with_complement
        from zskip.language import clocks
        from zskip.writer.backend import backend_of
        from zskip.writer.delete import delete, would_delete
        from zskip.writer.options import resources_of

        check_options(dialect=dialect, dry_run=dry_run)
        if timezone is not None:
            check_options(timezone=timezone)
        given = resources_of(options, "dialect", "timezone", "params", "dry_run", "session")
        backend = backend_of(session)
        zone = timezone or (backend.timezone() if dialect == "spark" else "UTC")
        if dry_run:
            base = self._newest()
            with clocks.using(backend.clocks):
                matching, _ = bind_with_complement(where, base.schema, dialect, zone, params)
            self._require_same_types(base, matching)
            return would_delete(self._storage, base, matching, backend)
        for attempt in range(_ATTEMPTS):
            base = self._newest()
            with clocks.using(backend.clocks):
                matching, rest = bind_with_complement(where, base.schema, dialect, zone, params)
            self._require_same_types(base, matching)
            try:
                snapshot, done = delete(self._storage, base, matching, rest, given, backend)
                break
            except CommitConflict:
                if attempt == _ATTEMPTS - 1:
                    raise
        self._move_to(snapshot)
        return done

    def add_sketches(
        self, sketches: Mapping[str, str | Sequence[str]], *, session: Any = None, **options: Unpack[Resources]
    ) -> Sketched:
        """Add sketches of columns, such as ``{"uid": "values"}``, for the existing rows; later appends extend them.

        Only these columns are read. A sketch that the table already has is extended to files that it does not cover.
        ``session``: a Spark session whose executors read the files. Options as for `append`. Raises `InvalidOption`,
        `UnknownColumn`, `CorruptFile` and `CommitConflict`.
        """
        from zskip.tablelog.sketches import named_sketches
        from zskip.writer.backend import backend_of
        from zskip.writer.options import resources_of
        from zskip.writer.sketching import complete_sketches

        backend = backend_of(session)
        self.refresh()
        base = self._index.snapshot
        names = named_sketches(sketches, base.schema)
        given = resources_of(options, "session")
        done = complete_sketches(self._storage, base, given, names, parts=self._index.parts, backend=backend)
        self._move_to(done[0])
        return self._sketched()

    def drop_sketches(self, columns: str | Sequence[str]) -> Sketched:
        """Remove all sketches of these columns. Raises `InvalidOption` for a column that has none."""
        from zskip.writer.sketching import drop_sketches

        index = self._index if self._source is not None else Index(self._storage, self._newest())
        found = [index.snapshot.schema.column(name).path for name in names_given(columns, "columns")]
        self._move_to(drop_sketches(index, found))
        return self._sketched()

    def _sketched(self) -> Sketched:
        from zskip.core.receipts import Sketched

        names = (sketch.name for sketch in self._index.snapshot.sketches)
        return Sketched(self.version, tuple(f"{name.kind} of {name.column}" for name in names))

    def optimize(
        self,
        *,
        full: bool = False,
        dry_run: bool = False,
        max_bytes: int | str | None = None,
        session: Any = None,
        **options: Unpack[Resources],
    ) -> Optimized:
        """Rewrite files if that pays: small files of appends, and files whose boxes overlap too much.

        ``full``: fit a new layout and rewrite all rows · ``max_bytes``: the most bytes to rewrite · ``dry_run``: only
        report what would be done · ``session``: a Spark session that does the work. Options as for `append`. A second
        run on an unchanged table does nothing. If another writer removes files in the meantime, their groups are left
        out and counted in the receipt. Raises `CommitConflict` if no group remains.
        """
        from zskip.writer.backend import backend_of
        from zskip.writer.compaction.compact import optimize
        from zskip.writer.options import resources_of

        check_options(full=full, dry_run=dry_run)
        base = self._newest()
        most = None if max_bytes is None else bytes_of(max_bytes, "max_bytes")
        given = resources_of(options, "full", "dry_run", "max_bytes", "session")
        backend = backend_of(session)
        snapshot, done = optimize(
            self._storage, base, given, full=full, dry_run=dry_run, max_bytes=most, backend=backend
        )
        self._move_to(snapshot)
        return done

    # --- time ---

    def history(self, limit: int | None = None) -> History:
        """The available versions as a list, the newest first, at most ``limit``.

        Of a Delta table: the commits in its log, with what they record of themselves, which does not include the
        table's files, rows and bytes. Of an Iceberg table: its snapshots.
        """
        from zskip.core.receipts import History, Version

        if limit is not None and (not isinstance(limit, int) or limit < 0):
            raise InvalidOption(f"limit= is a number of versions, not {limit!r}.")
        if self._source is not None:
            return History(self._source.newest().history(limit))
        return History(
            Version(
                snapshot.version,
                snapshot.time,
                snapshot.operation,
                snapshot.totals.files,
                snapshot.totals.rows,
                snapshot.totals.bytes,
                snapshot.details,
            )
            for snapshot in log.history(self._storage, limit)
        )

    def restore(self, version: int) -> Restored:
        """Make a new version with the content of an older one. The versions in between stay in the history.

        Raises `TableNotFound` if that version or one of its files is gone, or a file of other programs has changed, and
        `FilesRemoved` if a vacuum removes a file in the meantime; then the table is unchanged.
        """
        from zskip.tablelog.commit import TableUpdate, commit
        from zskip.tablelog.vacuum import require_files

        require_version(version)
        self._require_own()
        base = self._newest()
        with naming_vacuums(self._storage, base):
            older = log.load(self._storage, version)
            require_files(self._storage, older)
            snapshot = commit(self._storage, base, TableUpdate("restore", restore=older, details={"restored": version}))
        self._move_to(snapshot)
        from zskip.core.receipts import Restored

        return Restored(snapshot.version, version)

    def refresh_joins(self, **options: Unpack[Resources]) -> JoinsRefreshed:
        """Compute the ranges of the dimensions' attributes anew for the files whose dimensions have changed since.

        Reads the keys of these files, and rewrites none. Raises `InvalidOption` for a table without ``joins=``, and
        `CommitConflict`.
        """
        from zskip.writer.options import resources_of
        from zskip.writer.refresh_joins import refresh_joins

        given = resources_of(options)
        snapshot, receipt = refresh_joins(self._storage, self._newest(), given)
        self._move_to(snapshot)
        return receipt

    def refresh(self, progress: Progress | None = None) -> Refreshed:
        """Move to the newest version. For a folder that zskip only indexes, update the index first.

        A Delta or Iceberg table that was opened at a version, by a metadata file or as a StaticTable stays there. For
        a table of a pyiceberg catalog, the catalog is asked again. ``progress``: as for `zskip.index`.
        """
        from zskip.table_formats.locate import index_of
        from zskip.tablelog.indexing import refresh
        from zskip.writer.options import WriteOptions
        from zskip.writer.sketching import complete_sketches

        check_options(progress=progress)
        from zskip.core.receipts import Refreshed

        before = self.version
        if self._source is not None:
            self._source = self._source.newest()
            self._index = index = index_of(self._source, self._index.cache_bytes)
            if index.snapshot.sketches:
                made = complete_sketches(self._storage, index.snapshot, WriteOptions(), parts=index.parts)
                self._move_to(made[0])
            return Refreshed(self.version, before)
        known = newest = self._newest()
        counts: dict[str, int] = {}
        if not newest.managed:
            newest = refresh(Index(self._storage, known), progress=progress or unreported)
            if newest.version != known.version and newest.operation == "refresh":
                counts = {name: newest.details.get(name, 0) for name in ("added", "changed", "removed")}
            if newest.sketches:
                newest, _ = complete_sketches(self._storage, newest, WriteOptions())
        if newest.version != self.version:
            self._move_to(newest)
        return Refreshed(self.version, before, len(dropped_files(self._storage, newest)), **counts)

    def vacuum(self, older_than: str | timedelta = "7 days", *, dry_run: bool = False) -> Vacuumed:
        """Remove versions that were replaced longer ago than ``older_than``, and files that no other version names.

        Choose a long time: a reader that takes longer may lose its files, and a writer's commit is refused. Raises
        `FilesRemoved` if another vacuum removed files of the newest version, and its writer has not finished; then
        nothing is removed. Raises `CommitConflict` if another table now lies at this path.
        """
        from zskip.tablelog.vacuum import vacuum
        from zskip.writer.options import timedelta_of

        check_options(dry_run=dry_run)
        self._newest()  # for its errors: ``older_than`` was not meant for another table
        return vacuum(self._storage, older_than=timedelta_of(older_than), dry_run=dry_run)

    def tend(
        self,
        *,
        max_seconds: float | None = None,
        max_bytes: int | str | None = None,
        older_than: str | timedelta = "7 days",
        dry_run: bool = False,
        recluster: bool = False,
        session: Any = None,
        **options: Unpack[Resources],
    ) -> Tended:
        """Do the maintenance that is due: refresh, sketches, optimize, joins, vacuum. Meant to run regularly.

        ``max_seconds``: no step begins later, but a step that has begun is finished · ``max_bytes``: the most bytes to
        rewrite · ``older_than``: as for `vacuum` · ``dry_run``: only report what would be done · ``session``: as for
        `optimize`. Options as for `append`. The receipt lists for each step what was done, what is left, and why. Other
        writers may work at the same time. For a Delta or Iceberg table only the index is updated: use `zskip.cluster`
        and that format's own vacuum for its files.

        If the table's `query_log` is on, a step says whether another layout would serve its queries much better;
        ``recluster``: then all rows are laid out by that, if writing them is expected to end within ``max_seconds``.
        """
        from zskip.writer.backend import backend_of
        from zskip.writer.compaction.tend import tend
        from zskip.writer.options import resources_of, timedelta_of

        check_options(dry_run=dry_run, recluster=recluster)
        from zskip.core.receipts import Refreshed, Step, Tended

        started = time.monotonic()
        most = None if max_bytes is None else bytes_of(max_bytes, "max_bytes")
        if max_seconds is not None and not (isinstance(max_seconds, int | float) and max_seconds >= 0):
            raise InvalidOption(f"max_seconds= is a number of at least 0, not {max_seconds!r}.")
        given = resources_of(options, "max_seconds", "max_bytes", "older_than", "dry_run", "session")
        if self._source is not None:
            before = self.version
            step = Step("refresh", "follows the table's own log", receipt=Refreshed(before, before))
            if not dry_run:
                followed = self.refresh()
                step = replace(step, done=f"follows version {followed.version} of the table's log", receipt=followed)
            return Tended(self.version, (step,), time.monotonic() - started, dry_run)
        newest = Table(self._storage, self._newest())
        is_judged = newest._index.snapshot.managed and self.query_log.is_on
        backend = backend_of(session)
        until = math.inf if max_seconds is None else started + max_seconds
        steps = [newest._layout_step(given, most, until, recluster, dry_run, backend)] if is_judged else []
        done = tend(
            self._storage,
            given,
            max_seconds=None if max_seconds is None else max(0, max_seconds - (time.monotonic() - started)),
            max_bytes=most,
            older_than=timedelta_of(older_than),
            dry_run=dry_run,
            backend=backend,
        )
        if not dry_run:
            self._move_to(self._newest())
        return replace(done, steps=(*steps, *done.steps), seconds=time.monotonic() - started)

    def _layout_step(
        self,
        given: WriteOptions,
        max_bytes: int | None,
        until: float,
        recluster: bool,
        dry_run: bool,
        backend: Backend,
    ) -> Step:
        """Whether the layout still serves the queries of the log, and a better one, if that is asked for.

        ``until``: a time of `time.monotonic`, before which a new layout is expected to be written, or is not begun.
        """
        from zskip.advisor.query_logs import queries_asked
        from zskip.core.receipts import Step
        from zskip.writer.compaction.compact import cluster_table

        logged = queries_asked(self.query_log, self._index.snapshot.schema)
        asked = len(logged)
        if asked < _FEWEST_ASKED:
            return Step("layout", f"too few plans were logged to judge it: {asked:,} of {_FEWEST_ASKED}")
        snapshot = self._index.snapshot
        if not snapshot.totals.rows:
            return Step("layout", "the table has no rows")
        laid_out = () if snapshot.layout is None else snapshot.layout.columns
        if attributes := [path for path in laid_out if path not in snapshot.schema.columns]:
            named = f"the layout is by {', '.join(attributes)}, and the log has no statements over dimensions"
            return Step("layout", "was not judged", named)
        if time.monotonic() >= until:
            return Step("layout", "was not judged", "the time was over")
        advice = self.advise(logged)
        best, today = advice.candidates[0], advice.today
        if today is None or best.read > _MUCH_LESS * today:
            return Step("layout", f"serves the {asked:,} logged plans, which read {today or 0:.1%}")
        drift = f"the {asked:,} logged plans read {today:.1%}, and would read {best.read:.1%} by {', '.join(best.by)}"
        size = self._index.snapshot.totals.bytes or 0
        why = None
        if not recluster:
            why = "tend(recluster=True)"
        elif max_bytes is not None and size > max_bytes:
            why = f"since max_bytes is {size_text(max_bytes)}"
        elif time.monotonic() + advice.rewrite_seconds > until:
            why = f"since writing it takes about {advice.rewrite_seconds:,.0f} seconds, more than are left"
        if why is not None:
            return Step("layout", drift, f"a new layout of {size_text(size)}: {why}")
        wanted = replace(given, by=best.by, layout=best.layout)
        receipt = cluster_table(self._storage, self._index.snapshot, wanted, dry_run=dry_run, backend=backend)
        return Step("layout", f"{drift}; {'would lay' if dry_run else 'laid'} it out so", receipt=receipt)

    # --- analysing ---

    def verify(
        self,
        predicates: str | Sequence[str] | None = None,
        *,
        random: int = 20,
        sample: int | None = 20,
        engines: Sequence[str] | None = None,
        spark: Any = None,
        seed: int = 0,
        dialect: str = "duckdb",
        timezone: str = "UTC",
        params: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
    ) -> Verification:
        """Read the rows that plans skip, and report every row that matches. Options as for `inspect.audit.verify`.

        The attributes of dimensions are computed anew for ``sample`` files, by the keys of their rows.
        """
        from zskip.inspect.audit import verify
        from zskip.writer.refresh_joins import wrong_attributes

        report = verify(
            self._index,
            predicates,
            random=random,
            sample=sample,
            engines=engines,
            spark=spark,
            seed=seed,
            dialect=dialect,
            timezone=timezone,
            params=params,
            progress=progress or unreported,
        )
        if not self._index.snapshot.dimensions:
            return report
        wrong, unjoined = wrong_attributes(self._index, sample, seed)
        return replace(report, attributes=wrong, unjoined=unjoined)

    def clustering(self, columns: Sequence[str] | None = None) -> Clustering:
        """The quality of the layout by column: its depth, the share of rows that a look-up skips, and the limit.

        ``columns``: by default the clustering columns; the keys are the names as given. Raises `UnknownColumn` and
        `NotOrderable`.
        """
        from zskip.layouts.depth import Clustering, depths

        layout = self._index.snapshot.layout
        names = tuple(layout.columns if layout else ()) if columns is None else names_given(columns, "columns")
        paths = names if columns is None else [column.path for column in self._index.schema.orderable(names)]
        found = depths(self._index.files(None, paths).statistics, paths)
        return Clustering({name: found[path] for name, path in zip(names, paths, strict=True)})

    def advise(
        self,
        workload: Workload,
        *,
        files: int | None = None,
        weigh: Weigh = "bytes",
        joins: Mapping[str, tuple[Any, Mapping[str, str]]] | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Advice:
        """Rank layouts and columns for a workload, on a sample, and compare them with the current layout.

        ``workload``: predicates or SELECT statements, or a file of them; `logged_queries` extracts them from a log ·
        ``files``: the number of files of the new table, by default as now · ``weigh``: "bytes" weighs a query by the
        bytes of a row that it reads, "queries" weighs all equally · ``joins``: dimensions, as for `zskip.write`: the
        statements of the workload then propose their attributes too; by default those of the table · ``progress``:
        called with a phase, the number done and the total. Raises `InvalidOption`, `SqlError`.
        """
        from zskip.writer.star import Join, given_joins
        from zskip.writer.workload_input import file_of, queries_of

        check_options(files=files, seed=seed, progress=progress)
        queries = queries_of(workload)
        count = len(self._index)
        started = time.perf_counter()
        rows, today, read = self._sample(seed, progress)
        total = self._index.snapshot.totals.rows or read
        from zskip import advisor
        from zskip.advisor.attribute_workload import with_attributes

        dimensions = given_joins(joins) or tuple(Join.recorded(each) for each in self._index.snapshot.dimensions)
        if dimensions:
            queries, rows = with_attributes(queries, rows, dimensions, Path(self.uri).name)
        return advisor.advise(
            rows,
            queries,
            files=files or max(min(count, total), 1),
            total_rows=total,
            today=today,
            kept=self._shares_kept,
            weigh=weigh,
            read_seconds=(time.perf_counter() - started) * total / max(1, read),
            source=self.uri,
            workload_file=file_of(workload),
            joins=dimensions,
            version=self.version if self._source is not None and self._source.format == "delta" else None,
            progress=progress,
        )

    def _shares_kept(self, conditions: Sequence[str]) -> np.ndarray:
        """The share of the rows in the files that the plan of each condition keeps; NaN if it cannot be planned."""
        from zskip.binder import bind

        total, shares = self._index.snapshot.totals.rows or 0, np.full(len(conditions), np.nan)
        for number, condition in enumerate(conditions if total else ()):
            with suppress(SqlError):  # an attribute of a dimension is no column
                kept = planning.find_survivors(self._index, bind(condition, self._index.schema))
                shares[number] = (pc.sum(kept.rows).as_py() or 0) / total
        return shares

    def _sample(self, seed: int, progress: Progress | None = None) -> tuple[pa.Table, np.ndarray, int]:
        """Some rows of some files, the number of each row's file, and the number of rows that were read."""
        from zskip.advisor import SAMPLE_ROWS
        from zskip.engines.arrow import to_arrow

        some = np.sort(np.random.default_rng(seed).permutation(len(self._index))[:_SAMPLED_FILES])
        parts, today, every = [], [], planning.find_survivors(self._index, None)
        read = 0
        for done, number in enumerate(some.tolist(), 1):
            rows = to_arrow(every.narrowed(np.array([number])).scan)
            read += len(rows)
            parts.append(_sampled(rows, SAMPLE_ROWS // len(some), seed))
            today.append(np.full(len(parts[-1]), number, np.int64))
            if progress is not None:
                progress("sample", done, len(some))
        if not parts:
            raise InvalidOption(f"{self.uri} has no rows to advise on.")
        return pa.concat_tables(parts), np.concatenate(today), read

    @property
    def query_log(self) -> QueryLog:
        """What this table was asked on this machine: the conditions of plans, and how many files they kept.

        ``query_log.start()`` logs the plans of all processes of this user from then on, in the user's cache folder:
        through `plan`, `zskip.sql`, datasets and Spark; ``stop()`` ends that and removes the log. ``print(query_log)``
        shows it by columns.
        """
        return self._index.query_log

    def logged_queries(
        self,
        *,
        duckdb_log: str | os.PathLike[str] | None = None,
        spark_event_log: str | os.PathLike[str] | None = None,
        log_name: str | None = None,
    ) -> LoggedQueries:
        """The queries on this table in a log of DuckDB or Spark: a workload for `write`, `advise` and `bench`.

        ``duckdb_log``: the folder or file of DuckDB's query log · ``spark_event_log``: an event log, or a folder of
        them · ``log_name``: the table's name in the log, if it is neither its path nor its folder. Without these: the
        conditions in the table's own `query_log`. Raises `UnreadableFile` if there is no log, and `InvalidOption` if
        the log has no such query.
        """
        from zskip.advisor.query_logs import queries_asked, queries_of_log

        if duckdb_log is None and spark_event_log is None and log_name is None and self.query_log.is_on:
            asked = queries_asked(self.query_log, self._index.snapshot.schema)
            if not asked:
                raise InvalidOption(f"The log of {self.uri} has no query yet: it is filled by the plans of the table.")
            return asked
        return queries_of_log(self.uri, self._index.snapshot.schema, duckdb_log, spark_event_log, log_name)

    def plot(
        self,
        *columns: str,
        depth: bool = False,
        where: Condition | None = None,
        dialect: str = "duckdb",
        timezone: str = "UTC",
        params: Parameters | None = None,
    ) -> altair.Chart | altair.HConcatChart:
        """Draw the files' boxes on two columns, and highlight those that the predicate ``where`` needs.

        ``depth``: instead draw how many files a look-up reads: a histogram for each of the columns, by default those of
        the layout. Notebooks display the chart; a tooltip names each file. `zskip.plot.save` writes it.
        ``dialect``, ``timezone`` and ``params`` are those of `plan`. Raises `MissingDependency` without Altair.
        """
        check_options(dialect=dialect, timezone=timezone)
        from zskip.plot import boxes, depth_histogram

        if depth:
            if where is not None:
                raise InvalidOption("depth=True counts all look-ups: leave where= out.")
            return depth_histogram(self.clustering(columns or None))
        if len(columns) != 2:
            raise InvalidOption(f"A picture of boxes has two columns, not {len(columns)}: name two, or say depth=True.")
        paths = [column.path for column in self._index.schema.orderable(columns)]
        every = np.arange(len(self._index))
        lit = None
        if where is not None:
            lit = np.zeros(len(every), bool)
            found = self._find_survivors(where, dialect=dialect, timezone=timezone, params=params, freshness="trust")
            lit[found.numbers] = True
        known = {"file": self._index.paths(every), "bytes": self._index.sizes(every)}
        return boxes(self._index.files(None, paths).statistics, *paths, survivors=lit, details=known)

    def explore(
        self,
        path: str | os.PathLike[str],
        *,
        where: Condition | None = None,
        columns: Sequence[str] | None = None,
        workload: Workload = (),
        alternatives: bool = False,
    ) -> Path:
        """Write an HTML file that shows which files a predicate needs, and why; it needs no network.

        The page draws the files as boxes on any two of ``columns``, and the ranges of each column. The reader can
        change the constants of ``where``, and the page plans again. ``path``: an earlier page is replaced, and no other
        file · ``columns``: by default at most six, of the predicate and the layout first; the page names the others ·
        ``workload``: predicates or SELECT statements, or a file of them; the page lists how much each reads. Columns
        and ``where`` may also name attributes of dimensions, as ``"customer.region"``, whose ranges are those of the
        versions with which the files were joined · ``alternatives``: read a sample of the rows, and list how much
        ``where`` and the workload would read in other layouts of the same columns, and in four times as many files.

        Raises `SqlError`, `UnknownColumn`, `InvalidOption` for a table without files, a path that cannot be written or
        has another file, and `MissingDependency` without Bokeh.
        """
        from zskip.writer.workload_input import queries_of

        check_options(columns=columns, alternatives=alternatives)
        from zskip.binder.bind_condition import bind_condition
        from zskip.inspect import explore

        target = explore.require_replaceable(path)
        predicate = None if where is None else bind_condition(where, self._index.schema, "duckdb", "UTC", None)
        queries = queries_of(workload) if workload else ()
        others: list[explore.Alternative] = []
        if alternatives:
            rows, today, _ = self._sample(seed=0)
            if self._index.snapshot.dimensions:
                from zskip.writer.star import as_recorded

                rows = as_recorded(self._index.snapshot, self._storage).with_attributes(rows)
            layout, asked = self._index.snapshot.layout, [] if predicate is None else [predicate.text]
            others = explore.alternatives(
                rows,
                today,
                layout.columns if layout is not None else sorted(predicate.columns if predicate else ()),
                [*asked, *queries],
                files=len(self._index),
                total_rows=self._index.snapshot.totals.rows or len(rows),
            )
        page = explore.page(self._index, predicate, columns=columns, workload=queries, others=others)
        return explore.save(page, target)

    def _newest(self) -> Snapshot:
        """The newest version of this table. Raises `CommitConflict` if another table now lies at its path."""
        self._require_own()
        newest = log.newest(self._storage, self.version) or log.load(self._storage)
        if newest.table_id != self._index.snapshot.table_id:
            raise CommitConflict(f"{self.uri}: the table was replaced by another one. Open it with zskip.open.")
        return newest

    def _require_same_types(self, newest: Snapshot, predicate: Predicate) -> None:
        """Raise `CommitConflict` if a column of a predicate has a new type that is not a widening of the old one."""
        from zskip.writer.evolution import common_type

        for path in sorted(predicate.columns):
            here, now = (one.schema.columns.get(path) for one in (self._index.snapshot, newest))
            if here is not None and now is not None and common_type(here.type, now.type) != now.type:
                raise CommitConflict(
                    f'The column "{path}" is {here.type} in version {self.version}, at which this object is, and '
                    f"{now.type} in version {newest.version}: open the table again, and check the predicate."
                )

    def _require_own(self) -> None:
        """Raise `UnsupportedFormat` for a table of another format."""
        if self._source is not None:
            raise UnsupportedFormat(f"{self.uri} is a table of {self._source.format.capitalize()}: {_CHANGES}")

    def _move_to(self, snapshot: Snapshot) -> None:
        self._index = Index(self._storage, snapshot, self._index.cache_bytes, self._index.parts)


def _name_misspelt_functions(predicate: Predicate) -> None:
    """Log functions that neither zskip nor DuckDB has, and the names like theirs. A connection may define them, so
    this is no error."""
    if "(" not in (predicate.written or ""):
        return
    misspelt = [
        node.reason.text
        for node in tree.walk(predicate.tree)
        if isinstance(node, tree.Opaque) and node.reason.cause is Cause.MISSPELT
    ]
    if misspelt:
        known = {name for (name,) in ask_duckdb("SELECT function_name FROM duckdb_functions()")}
        for text in misspelt:
            if text.partition("(")[0].lower() not in known:
                _LOG.warning("%s", text)


def _is_read_differently(ranges: Ranges | None) -> bool:
    if ranges is None or pc.any(pc.fill_null(ranges.has_null, True)).as_py():
        return True
    if not is_floating(ranges.lower.type):
        return False
    above = pc.fill_null(pc.or_(pc.greater(ranges.lower, 0), pc.less(ranges.upper, 0)), False)
    is_zero = pc.and_(pc.invert(above), pc.fill_null(ranges.has_value, True))
    return bool(pc.any(pc.or_(is_zero, pc.fill_null(ranges.has_nan, True))).as_py())


def require_version(version: object) -> int:
    if isinstance(version, bool) or not isinstance(version, int):
        raise InvalidOption(f"A version is a whole number, as history() lists them, not {version!r}.")
    return version


def _sampled(rows: pa.Table, most: int, seed: int) -> pa.Table:
    if rows.num_rows <= most:
        return rows
    return rows.take(pa.array(np.sort(np.random.default_rng(seed).choice(rows.num_rows, most, replace=False))))
