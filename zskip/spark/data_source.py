"""``format("zskip")``: a Python data source. Convenient, and slower than `zskip.spark.table` and `zskip.spark.write`.

All files of the table are read, and rows pass through Python as Arrow batches. No internals of Spark are used. A source
may take filters (``pushFilters``), but Spark then keeps one list of files for all scans of a DataFrame, that of the
filters it pushed down last: a union or a join of two conditions, or the whole after a condition, would lack rows.

``CREATE TABLE … USING zskip LOCATION …`` works without a list of columns. Spark passes the options of such a table only
when it asks for the schema, and later only the schema, so the metadata of the first field carries the options.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.api import open as open_table
from zskip.core import types as t
from zskip.core.schema import Schema
from zskip.errors import InvalidOption, SchemaMismatch, TableExists
from zskip.plan.scan import Scan
from zskip.spark import hadoop, inferred_types, spark_backend
from zskip.spark.inferred_types import Inference, with_spark_types
from zskip.spark.spark_session import Semantics, is_connect, require_session
from zskip.spark.spark_types import arrow_schema, spark_schema
from zskip.stats import DataFiles
from zskip.storage import Staged, Storage, abandon, hive, open_storage
from zskip.storage.opening import is_supported
from zskip.table import Table
from zskip.tablelog import log
from zskip.tablelog.dimensions import with_attributes
from zskip.tablelog.index import Index
from zskip.tablelog.snapshot import Snapshot, with_segments
from zskip.writer import append
from zskip.writer import append as append_rows
from zskip.writer.backend import LOCAL
from zskip.writer.evolution import appended
from zskip.writer.options import WriteOptions
from zskip.writer.routing import fitted
from zskip.writer.row_source import of_reader
from zskip.writer.storable import storable_schema
from zskip.writer.write import Written, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, InputPartition
    from pyspark.sql.types import StructType


_PARTITION_BYTES = 128_000_000
# The key in the metadata of a catalog table's first column whose value is the options of the zskip table.
_TABLE = "zskip"


def register_source(spark: SparkSession) -> None:
    """Register ``spark.read.format("zskip").load(path)`` and ``df.write.format("zskip").save(path)`` in a session.

    A write appends to an existing table, or replaces its rows with ``mode("overwrite")``, and keeps the table's layout.
    Options: ``version``, and ``storage_options`` as JSON. Executors need zskip.

    The session becomes the active one of this thread, where Spark looks for the sources of a write: call it in each
    thread that writes.
    """
    require_session(spark)
    if not is_connect(spark):
        type(spark)._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
    spark.dataSource.register(_source(Semantics.of(spark), Inference.of(spark)))


@dataclass(frozen=True, slots=True)
class Read:
    """A version of a table, planned once, in the driver. ``columns``: the schema that Spark expects."""

    path: str
    version: int
    storage_options: dict[str, Any]
    semantics: Semantics
    columns: StructType

    def scans(self) -> list[Scan]:
        """Scans of about 128 MB of files, one for each task; a single empty scan if there is no file.

        They have the types that the files have outside of Spark.
        """
        scan = open_table(self.path, version=self.version, storage_options=self.storage_options or None).plan().scan
        return scan.split(_PARTITION_BYTES) or [scan]


def batches(scan: Scan, read: Read) -> Iterator[pa.RecordBatch]:
    """The rows of one task, with the columns of the catalog table, which may lack some of the table's.

    The values of hive columns are Spark's, which may be others than the index's.
    """
    target = arrow_schema(read.columns)
    own = scan.schema.arrow
    if all(own.field(name).type == target.field(name).type for name in scan.partition_by if name in target.names) and (
        scan.managed or not scan.partition_by
    ):
        for batch in scan.to_batches(target.names):
            yield from pa.Table.from_batches([batch]).cast(target).to_batches()
        return
    folders = pa.array([path.rpartition("/")[0] + "/" for path in scan.relative_paths])
    kinds = {field.name: field.dataType for field in read.columns if field.name in scan.partition_by}
    for folder in folders.unique().to_pylist():
        texts = inferred_types.values_of(folder)
        values = {
            name: pa.array([inferred_types.value(texts.get(name, hive.NULL), kind, read.semantics.zone)]).cast(
                target.field(name).type
            )[0]
            for name, kind in kinds.items()
        }
        stored = [name for name in target.names if name not in kinds]
        for batch in scan.narrowed(np.asarray(pc.equal(folders, folder))).to_batches(stored):
            rows = [
                pa.repeat(values[field.name], len(batch))
                if field.name in kinds
                else batch.column(field.name).cast(field.type)
                for field in target
            ]
            yield pa.RecordBatch.from_arrays(rows, schema=target)


# Spark's base classes are imported lazily, so the classes derived from them are defined in functions.


def _reader_class() -> Callable[[Read], DataSourceReader]:
    from pyspark.sql.datasource import DataSourceReader, InputPartition

    class TablePartition(InputPartition):
        pass

    class Reader(DataSourceReader):
        def __init__(self, of_table: Read) -> None:
            self.of_table = of_table

        def partitions(self) -> Sequence[InputPartition]:
            return [TablePartition(scan) for scan in self.of_table.scans()]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            return batches(partition.value, self.of_table)

    return Reader


def _writer_class() -> Callable[[_WriteJob], DataSourceWriter]:
    from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

    @dataclass
    class TaskFiles(WriterCommitMessage):
        written: Written

    class Writer(DataSourceArrowWriter):
        def __init__(self, job: _WriteJob) -> None:
            self.job = job

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            return TaskFiles(self.job.write(iterator))

        def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
            self.job.commit(_written(messages))

        def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
            # Without a message for each task, no commit was begun. A commit removes its files itself, unless it may
            # have been made; Spark calls this then too.
            if None in messages:
                self.job.abort(_written(messages))

    return Writer


def _require_types(table: StructType, catalog: StructType) -> None:
    """Raise `SchemaMismatch` for a column that has been widened since Spark's catalog took its type.

    Its values need not fit.
    """
    types = {own.name: own.dataType for own in table._as_nullable()}
    for kept in catalog._as_nullable():
        type = types.get(kept.name, kept.dataType)
        if type != kept.dataType:
            raise SchemaMismatch(
                f'The column "{kept.name}" is {type.simpleString()} in the table, and {kept.dataType.simpleString()} '
                "in Spark's catalog, which keeps the types of CREATE TABLE. Create the catalog's table again, or read "
                "this one with zskip.spark.table."
            )


def _source(semantics: Semantics, inference: Inference) -> type[DataSource]:
    """The class that Spark registers."""
    from pyspark.sql.datasource import DataSource

    reader_class, writer_class = _reader_class(), _writer_class()

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "zskip"

        def schema(self) -> StructType:
            types = spark_schema(with_spark_types(_opened(self.options), inference).schema)
            if "provider" in self.options:  # CREATE TABLE
                types.fields[0].metadata = {_TABLE: json.dumps({key: self.options.get(key) for key in _OPTIONS})}
            return types

        def reader(self, schema: StructType) -> DataSourceReader:
            kept = schema.fields[0].metadata.get(_TABLE)
            options = json.loads(kept) if kept and not self.options.get("path") else self.options
            table = _opened(options)
            _require_types(spark_schema(with_spark_types(table, inference).schema), schema)
            return reader_class(Read(table.uri, table.version, _storage_options(options), semantics, schema))

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            table = _opened(self.options)
            if self.options.get("version"):
                raise InvalidOption("A table is written at its newest version: leave out the option version.")
            job = _write_job(table.uri, _storage_options(self.options), arrow_schema(schema), overwrite=overwrite)
            return writer_class(job)

    return Source


def _written(messages: Sequence[Any]) -> list[Written]:
    return [message.written for message in messages if message is not None]


_OPTIONS = ("path", "version", "storage_options")


def _opened(options: Mapping[str, str]) -> Table:
    path = options.get("path")
    if not path:
        raise InvalidOption(
            'format("zskip") needs a path: .load("lake/conn"), or CREATE TABLE conn USING zskip LOCATION \'…\' '
            "without a list of columns. INSERT INTO gives no path: append by "
            'df.write.format("zskip").mode("append").save(path).'
        )
    if not is_supported(path):
        raise InvalidOption(
            f'format("zskip") reads "{path}" in Python, which has no Hadoop client. Use zskip.spark.table(spark, path).'
        )
    version = options.get("version")
    if version and not version.isdecimal():
        raise InvalidOption(f'The option "version" is the number of a version, not "{version}".')
    return open_table(
        re.sub(r"^file:/(?!/)", "file:///", path),  # Spark makes URIs with one slash.
        version=int(version) if version else None,
        storage_options=_storage_options(options) or None,
    )


def _storage_options(options: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(options.get("storage_options") or "{}")
    return found


# ``df.write.format("zskip")``: tasks write data files in a table's layout, then the driver commits all of them.

# The resources of one task: an executor runs several at once. No user gave this limit, so no file is refused by it.
_TASK = WriteOptions(threads=1, memory_limit="512MB", strict_memory=False)


def _write_job(path: str, storage_options: dict[str, Any], rows: pa.Schema, *, overwrite: bool) -> _WriteJob:
    """A job that appends rows with this schema to the newest version of a table, or replaces all of its rows.

    Raises `TableNotFound`, `SchemaMismatch`, and `InvalidOption` for a table without a layout.
    """
    job = _WriteJob(path, storage_options, 0, storable_schema(rows), overwrite)
    base = log.load(job.storage)
    append.require_managed(job.storage, base)
    if base.layout is None or not base.layout.columns:
        raise InvalidOption(f"{job.storage.uri} has no layout by which tasks could write. Use zskip.spark.write.")
    evolved = appended(base.schema.arrow, job.rows)
    own = (base.schema.columns.get(path) for path in base.layout.columns)
    columns = {*base.partition_by, *(column.parts[0] for column in own if column is not None)}
    for name in columns if overwrite else ():
        if name not in job.rows.names or evolved.field(name).type != job.rows.field(name).type:
            raise InvalidOption(
                f'The table is laid out by "{name}" of type {base.schema.arrow.field(name).type}, and the new rows '
                "have no such column. Replace the table by zskip.open(path).overwrite(df, by=…, session=spark)."
            )
    return replace(job, version=base.version)


@dataclass(frozen=True, slots=True)
class _WriteJob:
    """A write of a DataFrame, as Spark sends it to the tasks. ``version``: the table's version that it is based on."""

    path: str
    storage_options: dict[str, Any] = field(repr=False)
    version: int
    rows: pa.Schema
    overwrite: bool

    @property
    def storage(self) -> Storage:
        return open_storage(self.path, self.storage_options or None)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Write the rows of a task. After an error none of its files remains."""
        storage, base = self._base()
        kept = append.kept_options(base, _TASK)
        given = of_reader(pa.RecordBatchReader.from_batches(self.rows, self._cast(batches)))
        schema = self.rows if self.overwrite else appended(base.schema.arrow, self.rows)
        look_ups = None if self.overwrite else partial(append.look_ups_of, Index(storage, base), kept)
        with Staged(storage.delete) as staged:
            written = write_files(given, storage, Schema(schema), append.sized_by_rows(base, kept), look_ups, staged)
            staged.handed_over()  # the driver commits the files of all tasks, or removes them
            return written

    def commit(self, parts: Sequence[Written]) -> None:
        """Commit the files of all tasks at once. Raises `CommitConflict` after removing the files."""
        storage, base = self._base()
        by = append.kept_options(base, WriteOptions()).by
        columns = self.rows if self.overwrite else appended(base.schema.arrow, self.rows)
        columns = with_attributes(columns, base.dimensions)
        sketches = [each for part in parts for each in part.sketches]
        names = {each.name: replace(each, segments=()) for each in sketches}
        whole = Written(
            fitted(t.empty_table(columns), by, {(): 0}, 1, WriteOptions(by=by)),
            DataFiles.concat([part.files for part in parts]),
            sum(part.rows for part in parts),
            max([part.rows_per_file for part in parts], default=1),
            with_segments(tuple(names.values()), sketches),
        )

        def handed_over(*given: Any) -> Written:
            staged: Staged = given[-1]
            staged.add(whole.paths)
            return whole

        done = replace(LOCAL, write=handed_over)
        given = of_reader(self.rows.empty_table().to_reader())
        if self.overwrite:
            options = append.kept_options(base, WriteOptions())
            append.create(storage, base, given, options, done)
        else:
            append.append(storage, base, given, WriteOptions(), backend=done)

    def abort(self, parts: Sequence[Written]) -> None:
        """Remove the files of the tasks that succeeded."""
        for part in parts:
            abandon(self.storage, part.paths)

    def _base(self) -> tuple[Storage, Snapshot]:
        storage = self.storage
        return storage, log.load(storage, self.version)

    def _cast(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from pa.Table.from_batches([batch]).cast(self.rows).to_batches()


# A sink for structured streaming that commits each micro-batch exactly once.


def append_batch(
    path: str | os.PathLike[str],
    *,
    application: str | None = None,
    storage_options: dict[str, Any] | None = None,
    **options: Any,
) -> Callable[[DataFrame, int], None]:
    """A function for ``writeStream.foreachBatch`` that appends each batch to a table exactly once.

    A batch that Spark runs again after a failure is recognised by its id and not appended again. ``application``
    identifies the stream among all that write to the table: by default the query's id, which Spark keeps in its
    checkpoint. On Spark Connect, which does not tell it, a name is needed, and a new one for a new checkpoint.
    ``options`` are those of `zskip.spark.write`, at least ``by=``: the first batch creates a missing table with them.

    The function raises `InvalidOption` without a name where there is no such id.
    """

    def append(df: DataFrame, batch_id: int) -> None:
        storage = hadoop.open_storage(df.sparkSession, path, storage_options)
        batch = (application or _query_id(df.sparkSession), batch_id)
        newest = log.newest(storage)
        if newest is None:
            backend = spark_backend.backend(df.sparkSession)
            rows = backend.open_rows(df, None)
            try:
                append_rows.create(storage, None, rows, WriteOptions(**options), backend, batch)
                return
            except TableExists:
                newest = log.newest(storage)  # another stream has made the table meanwhile
                if newest is None:
                    raise
        Table(storage, newest).append(df, batch=batch, session=df.sparkSession)

    return append


def _query_id(spark: SparkSession) -> str:
    """The id of the streaming query whose batch runs in this thread."""
    found = None if is_connect(spark) else spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not found:
        raise InvalidOption(
            "This batch is of no streaming query of this session, so nothing tells it from those of other streams: "
            'name the stream in append_batch(…, application="…").'
        )
    return str(found)
