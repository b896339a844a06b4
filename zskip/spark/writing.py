"""Writing tables with Spark: sample → fit → native file numbers → one task per file → commit.

    DataFrame ──sample──▶ driver: layouts.fit ──▶ constant arrays
        └── file number, order (native) ──▶ repartitionById ──▶ sortWithinPartitions ──▶ _zskip/staging-…/ ──▶ table

Spark's own commit protocol fills a staging folder, in which no file of a failed or speculative task remains. Only then
are the files moved into the table, their footers read, and one snapshot committed.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip import layouts, sidecar
from zskip.engines.spark import (
    arrow_schema,
    column,
    planned_files,
    read_files,
    require_pyspark,
    setting,
    spark_schema,
    spark_uri,
)
from zskip.errors import InvalidOption, MissingDependency, TableExists
from zskip.layouts import Assignment
from zskip.schema import Schema
from zskip.sidecar import Snapshot, Storage
from zskip.spark import cells
from zskip.spark.footers import read_footers
from zskip.spark.reading import survey
from zskip.stats import DataFiles, FileStatistics
from zskip.table import Table
from zskip.writer import Routing, WriteOptions, Written, changes, evolved, hive, storable_schema
from zskip.writer.encode import fitted_encoding, stored_bytes
from zskip.writer.routing import partition_numbers, top_level

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["append", "optimize", "write"]

_FILE, _PARTITION, _ORDER = "__zskip_file", "__zskip_partition", "__zskip_order"
_DEFAULT_FILE_SIZE = 128_000_000
_SAMPLED_PER_FILE = 400
_LEAST_SAMPLE, _LARGEST_SAMPLE = 50_000, 1_000_000
_CODECS = {"none": "uncompressed", "lz4": "lz4_raw"}
# What a table's footers can be believed in; a session may have been set to the forms of old readers.
_PARQUET_FORM = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
}
# HotSpot compiles no longer method, and Spark's own limit lets it generate some that run ten times slower for that.
_COMPILED = {"spark.sql.codegen.hugeMethodLimit": "8000"}


def write(
    df: DataFrame,
    path: str | os.PathLike[str],
    *,
    by: str | Sequence[str] = (),
    layout: str = "auto",
    files: int | None = None,
    rows_per_file: int | None = None,
    file_size: int | str | None = None,
    row_group_rows: int = 122_880,
    compression: str = "zstd",
    weights: Mapping[str, float] | Sequence[float] | None = None,
    workload: Sequence[str] | None = None,
    partition_by: str | Sequence[str] = (),
    mode: str = "error",
    seed: int = 0,
    storage_options: Mapping[str, Any] | None = None,
) -> Table:
    """Lay out a DataFrame's rows as a table, as `zskip.write` does, on the cluster. The options are the same.

    The DataFrame is run three times: to count it, to sample it, to write it. Cache it if it is costly.

    Raises `TableExists`, `InvalidOption`, `UnknownColumn`, `NotOrderable` and `SchemaError`. After an error nothing is
    left behind; a driver that is killed leaves files that no snapshot names, for `vacuum`.
    """
    options = WriteOptions(
        by=by,
        layout=layout,
        files=files,
        rows_per_file=rows_per_file,
        file_size=file_size,
        row_group_rows=row_group_rows,
        compression=compression,
        weights=weights,
        workload=workload,
        partition_by=partition_by,
        seed=seed,
    )
    if mode not in ("error", "append", "overwrite"):
        raise InvalidOption(f'mode is "error", "append" or "overwrite", not {mode!r}.')
    storage = sidecar.open_storage(path, storage_options)
    base = sidecar.load(storage) if sidecar.latest_version(storage) else None
    if base is not None and mode == "error":
        raise TableExists(f'There is a table at {storage.uri} already. Say mode="append" or mode="overwrite".')
    if base is not None and mode == "append":
        return Table(storage, _append(df, storage, base, options))
    return Table(storage, _create(df, storage, base, options))


def append(
    df: DataFrame,
    path: str | os.PathLike[str] | Table,
    *,
    batch: tuple[str, int] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Table:
    """Write a DataFrame's rows as new files of a table, after its own layout; nothing that is there is touched.

    ``batch``: an application's name and the number of its batch: one that was appended before changes nothing.
    Raises `TableNotFound`, `SchemaMismatch` and `CommitConflict`.
    """
    storage = path.storage if isinstance(path, Table) else sidecar.open_storage(path, storage_options)
    return Table(storage, _append(df, storage, sidecar.load(storage), WriteOptions(), batch))


def optimize(
    spark: SparkSession,
    path: str | os.PathLike[str] | Table,
    *,
    by: str | Sequence[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Table:
    """Lay out all rows of a table anew, after a layout that is fitted to what they have become; ``by``: or to others.

    ``options`` are `write`'s; those that are not given stay as they were. Readers see the old files or the new ones,
    never a mixture. Raises `TableNotFound`, and `CommitConflict` where another writer removed files meanwhile.
    """
    require_pyspark()
    storage = path.storage if isinstance(path, Table) else sidecar.open_storage(path, storage_options)
    table = Table(storage, sidecar.load(storage))
    base = table.snapshot
    kept = changes.kept_options(base, WriteOptions())
    sizes = {name: None for name in ("files", "rows_per_file", "file_size") if any(n in options for n in _SIZES)}
    given = {**sizes, **options, **({} if by is None else {"by": by, "weights": options.get("weights")})}
    wanted = replace(kept, **given)
    plan = survey(table, None)
    rows = read_files(spark, storage, planned_files(plan), base.schema.arrow, base.partition_by)
    write = _SparkWrite(rows, storage, base.schema, wanted)
    with write.staged(None, None) as written:
        snapshot = sidecar.commit(
            storage,
            base,
            "optimize",
            add=written.files,
            remove=plan.relative_paths.to_pylist(),
            layout=changes.recorded(written, wanted),
            details={"rows": written.rows, "files": len(written.files), "removed": len(plan)},
        )
    return Table(storage, snapshot)


_SIZES = ("files", "rows_per_file", "file_size")


def create(df: DataFrame, storage: Storage, options: WriteOptions, batch: tuple[str, int]) -> Snapshot:
    """A new table whose first rows are a batch of an application."""
    return _create(df, storage, None, options, batch)


def _create(
    df: DataFrame,
    storage: Storage,
    base: Snapshot | None,
    options: WriteOptions,
    batch: tuple[str, int] | None = None,
) -> Snapshot:
    require_pyspark()
    schema = Schema(storable_schema(arrow_schema(df.schema)))
    for name in options.partition_by:
        hive.refuse_unfit(name, schema.column(name).type)
    partition_by = tuple(schema.column(name).parts[0] for name in options.partition_by)
    if set(partition_by) >= set(schema.arrow.names):
        raise InvalidOption("partition_by= names every column; at least one must stay in the files.")
    if not options.by:
        raise InvalidOption("by= names no column. Name at least one column to cluster by.")
    schema.orderable(options.by)
    options = replace(options, partition_by=partition_by)
    with _SparkWrite(df, storage, schema, options).staged(None, None) as written:
        return sidecar.commit(
            storage,
            base,
            "write" if base is None else "overwrite",
            add=written.files,
            replace_all=base is not None,
            schema=schema,
            layout=changes.recorded(written, options),
            partition_by=partition_by,
            details={"rows": written.rows, "files": len(written.files)},
            batch=batch,
        )


def _append(
    df: DataFrame,
    storage: Storage,
    base: Snapshot,
    options: WriteOptions,
    batch: tuple[str, int] | None = None,
) -> Snapshot:
    require_pyspark()
    if not base.managed:
        raise InvalidOption(
            f"zskip only indexes the files at {storage.uri}; it did not write them and will not change them."
        )
    if batch is not None and base.applications.get(batch[0], -1) >= batch[1]:
        return base
    kept = changes.kept_options(base, options)
    schema = Schema(evolved(base.schema.arrow, storable_schema(arrow_schema(df.schema)), "the rows"))
    routing, rows_per_file = changes.routing_of(storage, base)
    with _SparkWrite(df, storage, schema, kept).staged(routing, rows_per_file) as written:
        if not written.rows and batch is None:
            return base
        grown = routing is None or len(written.routing.keys) > len(routing.keys)
        return sidecar.commit(
            storage,
            base,
            "append",
            add=written.files,
            schema=None if schema.arrow.equals(base.schema.arrow) else schema,
            layout=changes.recorded(written, kept) if grown else None,
            details={"rows": written.rows, "files": len(written.files)},
            batch=batch,
        )


@dataclass(frozen=True, slots=True)
class _Sampled:
    """What the driver knows of the rows: a sample of the columns that the layout reads, and rows by partition."""

    rows: pa.Table
    total: int
    keys: list[tuple[str, ...]]
    counts: list[int]
    values: pa.Table


@dataclass(frozen=True, slots=True)
class _SparkWrite:
    """One write under way."""

    df: DataFrame
    storage: Storage
    schema: Schema
    options: WriteOptions

    @contextmanager
    def staged(self, routing: Routing | None, rows_per_file: int | None) -> Iterator[Written]:
        """Write the files, and move them into the table; they are removed again where the block fails.

        ``routing``: the one to follow, or None to fit one.
        """
        identity = secrets.token_hex(8)
        staging = f"_zskip/staging-{identity}"
        moved: list[str] = []
        try:
            sampled = self._sampled(routing)
            if routing is None:
                routing = self._fitted(sampled)
                rows_per_file = max(1, -(-sampled.total // max(routing.files, 1)))
            else:
                routing = routing.extended(sampled.keys, self._one_file(routing))
            self._write(staging, routing, sampled, rows_per_file or max(1, sampled.total))
            self._move(staging, identity, moved)
            files = self._data_files(moved)
            rows = pc.sum(files.files.row_count).as_py() or 0
            yield Written(routing, files, rows, rows_per_file or max(rows, 1))
        except BaseException:
            self.storage.delete(moved)
            raise
        finally:
            self._clear(staging)

    # --- what the driver learns ---

    def _sampled(self, routing: Routing | None) -> _Sampled:
        partition_by = self.options.partition_by
        rows = self._conformed()
        values, total = pa.table({}), 0
        keys: list[tuple[str, ...]] = [()]
        if partition_by:
            counted = rows.groupBy(*[column(name) for name in partition_by]).count().toArrow()
            values = counted.select(list(partition_by)).cast(
                pa.schema([self.schema.arrow.field(name).with_nullable(True) for name in partition_by])
            )
            keys, numbers = partition_numbers(values, partition_by)
            order = np.argsort(numbers)
            values = values.take(pa.array(order))
            counts = np.asarray(counted["count"])[order].astype(np.int64).tolist()
            total = sum(counts)
        else:
            total = rows.count()
            counts = [total]
        by = [found.path for found in self.schema.orderable(self.options.by)]
        wanted = list(dict.fromkeys([*top_level(by, self.schema), *partition_by]))
        if not wanted:
            return _Sampled(pa.table({}), total, keys, counts, values)
        files = self.options.files or (routing.files if routing else 0)
        size = min(max(files * _SAMPLED_PER_FILE, _LEAST_SAMPLE), _LARGEST_SAMPLE)
        part = rows.select(*[column(name) for name in wanted])
        if total > size:
            part = part.sample(fraction=size / total, seed=self.options.seed)
        arrow = pa.schema([self.schema.arrow.field(name).with_nullable(True) for name in wanted])
        return _Sampled(_plain(part.toArrow()).cast(arrow), total, keys, counts, values)

    def _fitted(self, sampled: _Sampled) -> Routing:
        options = self.options
        by = [found.path for found in self.schema.orderable(options.by)]
        wanted = self._files(sampled)
        weights = options.weights
        if isinstance(weights, Mapping):
            unknown = set(weights) - set(options.by)
            if unknown:
                raise InvalidOption(f"weights= names {sorted(unknown)}, which by= does not.")
            weights = [float(weights.get(name, 0.0)) for name in options.by]
        keys, numbers = partition_numbers(sampled.rows, options.partition_by)
        number_of = {key: number for number, key in enumerate(keys)}
        assignments = []
        for key, count in zip(sampled.keys, sampled.counts, strict=True):
            mine = sampled.rows
            if options.partition_by:
                mine = sampled.rows.take(pa.array(np.flatnonzero(numbers == number_of.get(key, -1))))
            assignments.append(
                layouts.fit(
                    mine,
                    by,
                    layout=options.layout,
                    files=max(1, round(wanted * count / max(sampled.total, 1))),
                    weights=weights,
                    workload=options.workload,
                    total_rows=count,
                )
            )
        return Routing(tuple(options.partition_by), tuple(sampled.keys), tuple(assignments))

    def _files(self, sampled: _Sampled) -> int:
        options = self.options
        if options.files is not None:
            return options.files
        if options.rows_per_file is not None:
            return max(1, -(-sampled.total // options.rows_per_file))
        head = _plain(self._conformed().limit(20_000).toArrow())
        if not head.num_rows:
            return 1
        per_row: float = stored_bytes(head, fitted_encoding(head, options.compression)) / head.num_rows
        return max(1, round(sampled.total * per_row / int(options.file_size or _DEFAULT_FILE_SIZE)))

    def _one_file(self, routing: Routing) -> Assignment:
        """An assignment for partitions that no one has fitted: one file each."""
        like = routing.assignments[0]
        return layouts.fit(
            self.schema.arrow.empty_table(), list(like.columns), layout=like.layout, files=1, total_rows=0
        )

    # --- what the cluster does ---

    def _conformed(self) -> DataFrame:
        """The rows in the table's types; columns that they lack stay away, and are NULL."""
        given = dict(self.df.dtypes)
        types = spark_schema(self.schema.arrow)
        chosen = []
        for field in types:
            if field.name in given:
                same = given[field.name] == field.dataType.simpleString()
                chosen.append(column(field.name) if same else column(field.name).cast(field.dataType).alias(field.name))
        return self.df.select(*chosen)

    def _write(self, staging: str, routing: Routing, sampled: _Sampled, rows_per_file: int) -> None:
        from pyspark.sql import functions as f

        rows = self._conformed()
        if not hasattr(rows, "repartitionById"):
            raise MissingDependency("Writing tables needs Spark 4.1 or later: pip install 'pyspark>=4.1'.")
        names = rows.columns
        partition_by = list(routing.partition_by)
        order = [column(name) for name in partition_by]
        if partition_by:
            rows = self._with_partition(rows, routing, sampled)
        rows = cells.file_numbers(routing, rows, _FILE, _PARTITION if partition_by else None)
        if rows_per_file > self.options.row_group_rows:
            rows = cells.row_group_order(
                routing, sampled.rows, sampled.total, self.options.row_group_rows, rows, _FILE, _ORDER
            )
            order.append(f.col(_ORDER))
        # A small append fills no file of the layout: neighbours in its order share one.
        merged = max(1, int(rows_per_file / 2 / max(1.0, sampled.total / max(1, routing.files))))
        tasks = -(-routing.files // merged)
        number = f.col(_FILE) if merged == 1 else (f.col(_FILE) / merged).cast("int")
        rows = rows.repartitionById(max(1, tasks), number)
        first = [] if merged == 1 else [f.col(_FILE)]
        if order or first:
            rows = rows.sortWithinPartitions(*order[: len(partition_by)], *first, *order[len(partition_by) :])
        writer = (
            rows.select(*[column(name) for name in names])
            .write.option("compression", _CODECS.get(self.options.compression, self.options.compression))
            .option("parquet.block.row.count.limit", str(self.options.row_group_rows))
            .option("maxRecordsPerFile", str(max(2 * rows_per_file, 1)))
        )
        if partition_by:
            writer = writer.partitionBy(*partition_by)
        with setting(self.df.sparkSession, {**_PARQUET_FORM, **_COMPILED}):
            writer.parquet(unquote(spark_uri(self.storage, staging)))

    def _with_partition(self, rows: DataFrame, routing: Routing, sampled: _Sampled) -> DataFrame:
        """The rows with the number of their partition in the routing, by a broadcast join on its values."""
        from pyspark.sql import functions as f

        known = {key: number for number, key in enumerate(routing.keys)}
        numbers = pa.array([known[key] for key in sampled.keys], pa.int32())
        names = [f"__zskip_key_{number}" for number in range(len(routing.partition_by))]
        keys = pa.Table.from_arrays([*sampled.values.columns, numbers], [*names, _PARTITION])
        small = f.broadcast(rows.sparkSession.createDataFrame(keys))
        same = [column(name).eqNullSafe(f.col(key)) for name, key in zip(routing.partition_by, names, strict=True)]
        condition = same[0]
        for other in same[1:]:
            condition = condition & other
        return rows.join(small, condition).drop(*names)

    # --- from the staging folder into the table ---

    def _move(self, staging: str, identity: str, moved: list[str]) -> None:
        """Move the committed files, in the order of the numbers that their names say. ``moved`` grows as it goes."""
        found = []
        for path in self.storage.list(staging).path.to_pylist():
            inner = path[len(staging) + 1 :]
            folder, _, name = inner.rpartition("/")
            match = re.match(r"part-(\d+)-.*[-.]c(\d+)", name)
            if match and name.endswith(".parquet") and not inner.startswith("_temporary/"):
                found.append((int(match[1]), folder, int(match[2]), path))
        for number, folder, piece, path in sorted(found):
            suffix = f"-{piece}" if piece else ""
            target = f"{folder}/" if folder else ""
            target += f"part-{number:06d}-{identity}{suffix}.parquet"
            moved.append(target)
            self.storage.move(path, target)

    def _data_files(self, paths: list[str]) -> DataFiles:
        """The files with their statistics, in layout order; files without rows are removed."""
        if not paths:
            nothing = FileStatistics(pa.array([], pa.int64()), {})
            texts, whole = pa.array([], pa.string()), pa.array([], pa.int64())
            return DataFiles(texts, whole, whole, texts, nothing, nothing, np.zeros(1, np.int64))
        files = read_footers(self.df.sparkSession, self.storage, paths, self.schema)
        place = np.asarray(pc.index_in(pa.array(paths), files.path))
        files = files.take(place.astype(np.int64))
        empty = np.asarray(pc.equal(files.files.row_count, 0))
        self.storage.delete([path for path, gone in zip(paths, empty.tolist(), strict=True) if gone])
        return files.take(np.flatnonzero(~empty)) if empty.any() else files

    def _clear(self, staging: str) -> None:
        if self.storage.local is not None:
            shutil.rmtree(self.storage.local / staging, ignore_errors=True)
        else:
            self.storage.delete(self.storage.list(staging).path.to_pylist())


def _plain(rows: pa.Table) -> pa.Table:
    """Arrow rows from Spark with instants in UTC, whatever the session's zone."""
    fields = [
        field.with_type(pa.timestamp("us", "UTC"))
        if pa.types.is_timestamp(field.type) and field.type.tz is not None
        else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))
