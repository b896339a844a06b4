"""The functions of ``import zskip``: write, index, open, read, cluster, advise and repair a table."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack, cast, get_args

import numpy as np
import pyarrow as pa

from zskip.core.option_checks import Progress, bytes_of, check_options, require_choice, unreported
from zskip.core.schema import Schema, names_given
from zskip.errors import InvalidOption, TableExists, TableNotFound
from zskip.plan import Plan
from zskip.storage import Storage, open_storage
from zskip.storage.opening import is_in_store
from zskip.table import Table, require_version
from zskip.tablelog.index import CACHE_BYTES
from zskip.tablelog.log import load, newest
from zskip.tablelog.runs import runs_of
from zskip.tablelog.table_folders import own_snapshot, refuse_folder

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyiceberg.table import Table as IcebergTable

    from zskip.advisor import Advice, Weigh
    from zskip.advisor.query_logs import LoggedQueries
    from zskip.binder import Parameters
    from zskip.binder.bind_condition import Condition
    from zskip.core.receipts import Clustered, Repaired
    from zskip.writer.options import Resources
    from zskip.writer.workload_input import Workload

__all__ = ["Mode", "advise", "attach", "cluster", "index", "logged_queries", "open", "read", "repair", "write"]

_ADVISED_FILES = 100
Mode: TypeAlias = Literal["error", "append", "overwrite"]


def write(
    source: Any,
    path: str | os.PathLike[str],
    *,
    by: str | Sequence[str] | None = None,
    layout: str = "auto",
    files: int | None = None,
    rows_per_file: int | None = None,
    file_size: int | str | None = None,
    row_group_rows: int | None = None,
    compression: str = "zstd",
    weights: Mapping[str, float] | Sequence[float] | None = None,
    workload: Workload | None = None,
    partition_by: str | Sequence[str] = (),
    sketches: Mapping[str, str | Sequence[str]] | None = None,
    joins: Mapping[str, tuple[Any, Mapping[str, str]]] | None = None,
    mode: Mode = "error",
    memory_limit: int | str | None = None,
    temp_directory: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    session: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
) -> Table:
    """Write the rows of a source as a table at a path or URL, and return the table.

    Where the rows come from, and where they go:

    - ``source``: anything with an Arrow stream (pyarrow, pandas, polars, DuckDB relations), a dataset, or paths, globs,
      folders and URLs of Parquet, CSV or JSON
    - ``path``: the folder or URL of the table
    - ``mode``: if the table exists: "error", "append" (by its own layout) or "overwrite". "error" also refuses a folder
      with other Parquet files
    - ``storage_options``: of the object stores of the source and of the table
    - ``target_options``: of the table's store, where they differ

    How the rows are laid out:

    - ``by``: the columns that queries filter on, the most important first; by default those of the ``workload``
    - ``workload``: predicates or SELECT statements like the expected queries, or a file of them
    - ``weights``: the relative frequency of look-ups on each column of ``by``
    - ``layout``: "auto", "tiles", "tree", "hilbert", "zorder" or "linear"; docs/layouts.md
    - ``joins``: dimensions whose attributes ``by`` or the workload names: ``{"customer": ("lake/customer", {"custkey":
      "c_custkey"})}`` joins each row with the customer of its key; ``by=["customer.region"]``; docs/star-schema.md
    - ``partition_by``: columns that become hive folders, with a layout inside each
    - ``sketches``: columns that are looked up by value or text but are not clustered, with their kinds of sketches:
      ``{"uid": "values", "url": ["values", "substrings"]}``; docs/sketches.md explains when they pay

    The files; give at most one of the first three:

    - ``files``: their number, at most one per row
    - ``rows_per_file``: the rows of each
    - ``file_size``: their size in bytes or as text, "128MB" by default
    - ``row_group_rows``: the most rows of a row group, by default 122,880, and fewer in a table of less than two
      million rows, so that queries can skip some
    - ``compression``: "zstd", "snappy", "gzip", "brotli", "lz4" or "none"

    The work:

    - ``memory_limit``: in bytes or as "2GB", by default half of the free memory; larger inputs use spill files
    - ``temp_directory``: the folder for spill files
    - ``threads``: the greatest number of threads
    - ``seed``: for drawing the sample to which the layout is fitted
    - ``progress``: called with the phase ("read", "sample", "scatter", "write"), the number of rows done, and the total
      or None
    - ``session``: a Spark session that does the work, by default that of a Spark DataFrame

    Raises `TableExists`, `ForeignTable`, `InvalidOption`, `UnknownColumn`, `NotOrderable`, `SchemaError`, `NoParquet`,
    `CorruptFile`. After an error no file is left behind.
    """
    from zskip.writer.append import append, create
    from zskip.writer.backend import backend_of
    from zskip.writer.options import WriteOptions
    from zskip.writer.star import given_joins
    from zskip.writer.workload_input import queries_of

    if mode not in get_args(Mode):
        raise InvalidOption(f'mode= is "error", "append" or "overwrite", not {mode!r}.')
    check_options(target_options=target_options)
    if target_options and is_in_store(path) is False:
        raise InvalidOption("target_options= are for the object store of a table, but its path is local.")
    options = WriteOptions(
        by=() if by is None else by,
        layout=layout,
        files=files,
        rows_per_file=rows_per_file,
        file_size=file_size,
        row_group_rows=row_group_rows,
        compression=compression,
        weights=weights,
        workload=None if workload is None else queries_of(workload),
        partition_by=partition_by,
        sketches=sketches or {},
        memory_limit=memory_limit,
        temp_directory=temp_directory,
        threads=threads,
        seed=seed,
        progress=progress,
        storage_options=storage_options,
    )
    backend = backend_of(session, source)
    storage = backend.open_storage(path, options_of_end(path, source, storage_options, target_options))
    base = newest(storage)
    if base is not None and not base.managed:
        refuse_folder(storage)
    if base is not None and mode == "error":
        raise TableExists(f'There is a table at {storage.uri} already. Say mode="append" or mode="overwrite".')
    if base is None and mode == "error":
        _refuse_others(storage)
    if base is None:
        _refuse_own_source(storage, source)
    rows = backend.open_rows(source, options_of_end(source, path, storage_options, None))
    dimensions = given_joins(joins)
    if base is not None and mode == "append":
        if dimensions:
            raise InvalidOption("An append joins the table's own dimensions; give joins= when you write the table.")
        from zskip.tablelog.sketches import named_sketches

        known = {each.name for each in base.sketches}
        if any(name not in known for name in named_sketches(options.sketches, base.schema)):
            raise InvalidOption("An append has the table's own sketches. Make new ones with add_sketches().")
        return Table(storage, append(storage, base, rows, options, backend=backend)[0])
    if dimensions and options.workload:
        from zskip.advisor.attribute_workload import star_workload

        queries, dimensions = star_workload(
            options.workload, dimensions, Path(storage.uri).name, Schema(rows.schema), storage_options
        )
        options = replace(options, workload=queries)
    return Table(storage, create(storage, base, rows, options, backend, joins=dimensions))


def _refuse_own_source(storage: Storage, source: Any) -> None:
    """Raise `InvalidOption` if a new table would lie in a local folder that is its source: who reads or indexes that
    folder again would find the table's files among its own."""
    for path in source if isinstance(source, (list, tuple)) else [source]:
        if not isinstance(path, (str, os.PathLike)) or storage.local is None or not os.path.isdir(path):
            continue
        inside = Path(os.path.realpath(storage.uri))
        if Path(os.path.realpath(path)) in inside.parents:
            raise InvalidOption(
                f"{storage.uri} lies in its own source, the folder {os.fspath(path)}, which could then not be read "
                "again: choose a folder outside it, or lay it out in place by zskip.cluster(path, by=…)."
            )


def _refuse_others(storage: Storage) -> None:
    """Raise `TableExists` for a folder with Parquet files of others, which readers of the folder would take for the
    table's, and `ForeignTable` for a table of another format. Files that a write has left which was killed are none."""
    found = storage.list(hidden=False).parquet()
    others = found.take(np.asarray(runs_of(found.path).is_null()))
    if len(others):
        refuse_folder(storage)
        raise TableExists(
            f"{storage.uri} holds Parquet files that would not be part of the table: {others.path[0]}"
            f"{f' and {len(others) - 1:,} more' if len(others) > 1 else ''}. Lay them out in place by "
            'zskip.cluster(path, by=…), choose another folder, or say mode="append" to write the table beside them.'
        )


def options_of_end(
    place: Any, other: Any, shared: Mapping[str, Any] | None, own: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """The options of one end of a copy: its own, else those that both share, which a local end does not need."""
    if own is not None:
        return own
    return None if is_in_store(place) is False and is_in_store(other) else shared


def index(
    path: str | os.PathLike[str],
    *,
    schema: pa.Schema | None = None,
    statistics: pa.Table | None = None,
    deep: bool = False,
    sketches: Mapping[str, str | Sequence[str]] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Table:
    """Index the Parquet files of a folder in place, without rewriting them.

    Statistics come from the footers if these can be trusted. ``deep``: read the rows for statistics that the footers
    lack · ``schema``: the schema of the rows, by default that of the footers · ``sketches``: as for `write`; their
    columns are read · ``progress``: called with the phase ("footers", then "rows" with ``deep``), the number of files
    done, and the total. A plan lists the folder and reads new and changed files in full; `Table.refresh` updates the
    index.

    ``statistics``, with ``schema``: a table of statistics that is trusted in place of footers: one row per file, or per
    row group if it has a column ``row_group``: ``path``, ``row_count``, ``size``, and for a column c any of
    ``c.lower``, ``c.upper``, ``c.null_count``, ``c.nan_count``, ``c.lower_exact``, ``c.upper_exact``. Absent and null
    values are unknown. The files need not exist yet, and the folder is not listed.

    Raises `TableExists`, `ForeignTable`, `NoParquet`, `CorruptFile`, `SchemaMismatch`.
    """
    from zskip.tablelog.indexing import index_files
    from zskip.tablelog.sketches import named_sketches
    from zskip.writer.options import WriteOptions
    from zskip.writer.sketching import complete_sketches

    check_options(
        schema=schema, statistics=statistics, deep=deep, sketches=sketches, threads=threads, progress=progress
    )
    storage = open_storage(path, storage_options)
    given = None if schema is None else Schema(schema)
    snapshot = index_files(
        storage,
        schema=given,
        statistics=statistics,
        deep_scan=deep,
        threads=threads,
        check=lambda found: named_sketches(sketches or {}, found),
        progress=progress or unreported,
    )
    if sketches:
        names = named_sketches(sketches, snapshot.schema)
        snapshot = complete_sketches(storage, snapshot, WriteOptions(threads=threads), names)[0]
    return Table(storage, snapshot)


def open(
    path: str | os.PathLike[str] | DeltaTable | IcebergTable,
    *,
    version: int | str | None = None,
    as_of: datetime | str | None = None,
    deep: bool = False,
    cache_limit: int | str = CACHE_BYTES,
    session: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Table:
    """The table at a path or URL: its newest version, or an older one by number or by time.

    A Delta or Iceberg table is opened in place, by its path or as an object of deltalake or pyiceberg: plans and reads
    follow its log. ``version`` is then a version of the Delta table, or the id of a snapshot, a branch or a tag of the
    Iceberg table. ``deep``: also read the footers of its files, each once, for row groups, exact bounds, and columns
    without statistics in the log; the index of a zskip table always has them.

    ``as_of``: a time, as text in ISO 8601, in UTC unless it names a zone · ``cache_limit``: the memory for statistics
    that plans have read, in bytes or as "256MB"; 1 GiB by default. All statistics take about 16 bytes for each file and
    numeric column · ``session``: a Spark session, whose Hadoop client opens URLs that zskip does not support.

    Raises `TableNotFound`, `InvalidOption`, and `UnsupportedFormat` for a feature of the other format that would be
    read wrongly.
    """
    check_options(deep=deep)
    most = bytes_of(cache_limit, "cache_limit")
    if version is not None and as_of is not None:
        raise InvalidOption("version= and as_of= both choose a version; give one of them.")
    moment = _moment(as_of)
    if session is None:
        own = own_snapshot(path, version, moment, storage_options)
        if own is not None:
            return Table(*own, most)
        from zskip.table_formats.locate import source_of

        source = source_of(path, version, moment, storage_options, deep)
        if source is not None:
            return Table._of_source(source, most)
    from zskip.writer.backend import backend_of

    storage = backend_of(session).open_storage(cast("str", path), storage_options)
    return Table(storage, load(storage, None if version is None else require_version(version), moment), most)


open_table = open  # used in this module, where `open` would look like Python's own


def attach(
    path: str | os.PathLike[str] | DeltaTable | IcebergTable,
    *,
    deep: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Table:
    """Store the index of a Delta or Iceberg table in the table's own folder, in ``_zskip/``, and open the table.

    Otherwise, each user has an index in the cache folder. The readers and vacuums of both formats ignore such folders.
    ``deep``: as for `open`, for all users of the table. Raises `InvalidOption` for a zskip table.
    """
    from zskip.table_formats.locate import attach

    check_options(deep=deep)
    return Table._of_source(attach(path, deep=deep, storage_options=storage_options))


def cluster(
    path: str | os.PathLike[str] | DeltaTable | IcebergTable,
    *,
    by: str | Sequence[str] | None = None,
    layout: str = "auto",
    files: int | None = None,
    rows_per_file: int | None = None,
    file_size: int | str | None = None,
    weights: Mapping[str, float] | Sequence[float] | None = None,
    workload: Workload | None = None,
    where: str | None = None,
    max_bytes: int | str | None = None,
    full: bool = False,
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **options: Unpack[Resources],
) -> Clustered:
    """Lay out a folder of Parquet or a zskip table in place, or a Delta or Iceberg table by a commit of its own format.

    No row changes. ``by`` to ``workload``: as for `write`; later calls use the same ``by`` · ``where``: of a Delta or
    Iceberg table, lay out only files that may hold such rows, by a condition in DuckDB's SQL · ``max_bytes``: the most
    bytes to rewrite · ``full``: fit a new layout, and also lay out the files of earlier calls · ``dry_run``: only
    report what would be done. Other options are those of `Table.append`. Pass an Iceberg table as the object that
    pyiceberg's catalog returns: only the catalog can commit.

    On a zskip table, and so on a folder that was laid out before, this is `Table.optimize`; but if one of these options
    is new, all rows are laid out by it.

    A folder of Parquet, indexed or not, is laid out as a whole, and then is a zskip table: programs that write to it
    must use zskip; files that others put there are not part of it until `Table.adopt` takes them in. The new files are
    in its subfolder ``_data``, which programs that list the folder ignore. They read the old files until `Table.vacuum`
    removes them after its ``older_than``. Until then, `Table.restore` can return to the old files.

    Raises `UnsupportedFormat` for a table that the format's library cannot write, and `CommitConflict` if others
    changed the same files in the meantime; then nothing is changed.
    """
    from zskip.table_formats.locate import source_of
    from zskip.writer.compaction.cluster import cluster, cluster_folder
    from zskip.writer.options import OF_CLUSTER, resources_of
    from zskip.writer.workload_input import queries_of

    check_options(full=full, dry_run=dry_run)
    source = source_of(path, storage_options=storage_options)
    chosen = replace(
        resources_of(options, *OF_CLUSTER, "where", "max_bytes", "full", "dry_run", "storage_options"),
        by=() if by is None else names_given(by, "by"),
        layout=layout,
        files=files,
        rows_per_file=rows_per_file,
        file_size=file_size,
        weights=weights,
        workload=None if workload is None else queries_of(workload),
    )
    most = None if max_bytes is None else bytes_of(max_bytes, "max_bytes")
    if source is None:
        storage = open_storage(cast("str", path), storage_options)
        base = newest(storage)
        if where is not None:
            raise InvalidOption("where= chooses files of a Delta or Iceberg table: leave it out.")
        if base is not None and base.managed:
            from zskip.writer.compaction.compact import cluster_table

            if base.dimensions and chosen.workload:
                from zskip.advisor.attribute_workload import workload_of_table

                chosen = replace(chosen, workload=workload_of_table(chosen.workload, storage, base, storage_options))
            return cluster_table(storage, base, chosen, max_bytes=most, full=full, dry_run=dry_run)
        if most is not None:
            raise InvalidOption("A folder of Parquet is laid out as a whole: leave out max_bytes=.")
        return cluster_folder(storage, chosen, dry_run=dry_run)
    return cluster(source, chosen, where=where, max_bytes=most, full=full, dry_run=dry_run)


def read(
    path: str | os.PathLike[str],
    *,
    where: Condition | None = None,
    filters: list[Any] | None = None,
    params: Parameters | None = None,
    columns: Sequence[str] | None = None,
    into: Literal["arrow", "pandas", "polars"] = "arrow",
    version: int | None = None,
    as_of: datetime | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """The rows of a table for which ``where`` is TRUE, as a table of Arrow, pandas or polars.

    ``where`` and ``params``: as for `Table.plan` · ``filters``: the same in the form of `pandas.read_parquet`:
    ``[("a", "=", 1), ("b", "in", [2, 3])]`` for AND, a list of such lists for OR. Raises `InvalidOption` for both of
    them, and the errors of `open` and `Table.plan`.
    """
    ways = {"arrow": Plan.to_arrow, "pandas": Plan.to_pandas, "polars": Plan.to_polars}
    require_choice("into", into, ways)
    check_options(columns=columns, filters=filters)
    table = open_table(path, version=version, as_of=as_of, storage_options=storage_options)
    return ways[into](table.plan(where=where, filters=filters, params=params), columns)


def repair(
    path: str | os.PathLike[str],
    *,
    go_back: bool = False,
    threads: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Repaired:
    """Rebuild damaged or lost parts of an index from the data files' footers.

    Statistics that footers lack are unknown from then on, so plans read more; sketches are rebuilt from the rows.
    ``go_back``: if the newest log entry itself is lost, return to the newest readable version.

    Raises `DamagedIndex`, with the reason, if the loss cannot be repaired; then nothing is changed.
    """
    from zskip.tablelog.repair import repair
    from zskip.writer.options import WriteOptions
    from zskip.writer.sketching import complete_sketches

    check_options(go_back=go_back, threads=threads)
    storage = open_storage(path, storage_options)
    snapshot, repaired = repair(storage, go_back=go_back, threads=threads)
    if not snapshot.sketches:
        return repaired
    snapshot, segments = complete_sketches(storage, snapshot, WriteOptions(threads=threads), repair=True)
    return replace(repaired, version=snapshot.version, parts=(*repaired.parts, *segments))


def advise(
    source: Any,
    workload: Workload,
    *,
    files: int | None = None,
    weigh: Weigh = "bytes",
    joins: Mapping[str, tuple[Any, Mapping[str, str]]] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Advice:
    """Rank layouts and columns for a workload, on a sample of any source.

    ``workload``: predicates or SELECT statements, or a file of them · ``files``: the number of files of the new table,
    100 by default · ``weigh``, ``joins`` and ``progress``: as for `Table.advise`. For the path of a table, the result
    is that of `Table.advise`. Raises `InvalidOption`, `SqlError`.
    """
    from zskip.table_formats.locate import source_of
    from zskip.writer.open_source import open_source
    from zskip.writer.row_sample import RowSample
    from zskip.writer.star import given_joins
    from zskip.writer.workload_input import file_of, queries_of

    check_options(files=files, seed=seed, progress=progress)
    queries = queries_of(workload)
    if isinstance(source, str | os.PathLike):
        found = source_of(source, storage_options=storage_options)
        if found is not None:
            return Table._of_source(found).advise(
                workload, files=files, weigh=weigh, joins=joins, seed=seed, progress=progress
            )
        storage = open_storage(source, storage_options)
        base = newest(storage)
        if base is not None:
            table = Table(storage, base)
            return table.advise(workload, files=files, weigh=weigh, joins=joins, seed=seed, progress=progress)
    from zskip import advisor
    from zskip.advisor.attribute_workload import with_attributes

    sample, total, started = RowSample(advisor.SAMPLE_ROWS, seed), 0, time.perf_counter()
    for part in open_source(source, storage_options).parts(None):
        rows = part()
        sample.add(rows, total)
        total += rows.num_rows
        if progress is not None:
            progress("sample", total, None)
    found = sample.rows()
    if found is None:
        raise InvalidOption("The source has no rows to advise on.")
    name = os.fspath(source) if isinstance(source, str | os.PathLike) else "SOURCE"
    if dimensions := given_joins(joins):
        queries, found = with_attributes(queries, found, dimensions, Path(name).name, storage_options)
    return advisor.advise(
        found,
        queries,
        files=files or min(_ADVISED_FILES, total),
        total_rows=total,
        weigh=weigh,
        read_seconds=time.perf_counter() - started,
        source=str(name),
        workload_file=file_of(workload),
        joins=dimensions,
        progress=progress,
    )


def logged_queries(
    source: Any,
    *,
    duckdb_log: str | os.PathLike[str] | None = None,
    spark_event_log: str | os.PathLike[str] | None = None,
    log_name: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> LoggedQueries:
    """As `Table.logged_queries`, for a table or for any source of `write`."""
    from zskip.writer.open_source import open_source

    if isinstance(source, str | os.PathLike):
        try:
            table = open_table(source, storage_options=storage_options)
        except TableNotFound:
            pass
        else:
            return table.logged_queries(duckdb_log=duckdb_log, spark_event_log=spark_event_log, log_name=log_name)
    schema = Schema(open_source(source, storage_options).schema)
    address = os.fspath(source) if isinstance(source, str | os.PathLike) else "SOURCE"
    from zskip.advisor.query_logs import queries_of_log

    return queries_of_log(address, schema, duckdb_log, spark_event_log, log_name)


def _moment(as_of: datetime | str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(as_of) if isinstance(as_of, str) else as_of
    except ValueError:
        moment = None
    if as_of is not None and not isinstance(moment, datetime):
        raise InvalidOption(f'as_of= is a time such as "2018-03-24 17:15:00", not {as_of!r}.')
    return moment
