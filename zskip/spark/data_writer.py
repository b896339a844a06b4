"""``df.write.format("zskip")``: tasks write data files in a table's layout, then the driver commits all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import pyarrow as pa

from zskip import tablelog
from zskip.core.schema import Schema
from zskip.errors import InvalidOption
from zskip.stats import DataFiles
from zskip.storage import Storage, open_storage
from zskip.tablelog import Index, Snapshot, with_segments
from zskip.writer import WriteOptions, Written, append, storable_schema, write_files
from zskip.writer.backend import LOCAL
from zskip.writer.evolution import appended
from zskip.writer.routing import fitted
from zskip.writer.row_source import of_reader

__all__ = ["WriteJob", "write_job"]

# The resources of one task: an executor runs several at once. No user gave this limit, so no file is refused by it.
_TASK = WriteOptions(threads=1, memory_limit="512MB", strict_memory=False)


def write_job(path: str, storage_options: dict[str, Any], rows: pa.Schema, *, overwrite: bool) -> WriteJob:
    """A job that appends rows with this schema to the newest version of a table, or replaces all of its rows.

    Raises `TableNotFound`, `SchemaMismatch`, and `InvalidOption` for a table without a layout.
    """
    job = WriteJob(path, storage_options, 0, storable_schema(rows), overwrite)
    base = tablelog.load(job.storage)
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
class WriteJob:
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
        look_ups = None if self.overwrite else append.look_ups_of(Index(storage, base), kept)
        return write_files(given, storage, Schema(schema), append.sized_by_rows(base, kept), look_ups)

    def commit(self, parts: Sequence[Written]) -> None:
        """Commit the files of all tasks at once. Raises `CommitConflict` after removing the files."""
        storage, base = self._base()
        by = append.kept_options(base, WriteOptions()).by
        whole = Written(
            fitted(self.rows.empty_table(), by, {(): 0}, 1, WriteOptions(by=by)),
            DataFiles.concat([part.files for part in parts]),
            sum(part.rows for part in parts),
            max([part.rows_per_file for part in parts], default=1),
            reduce(with_segments, [part.sketches for part in parts], ()),
        )
        done = replace(LOCAL, write=lambda *_: whole)
        given = of_reader(self.rows.empty_table().to_reader())
        with tablelog.naming_vacuums(storage, base):
            if self.overwrite:
                options = append.kept_options(base, WriteOptions())
                append.create(storage, base, given, options, done)
            else:
                append.append(storage, base, given, WriteOptions(), backend=done)

    def abort(self, parts: Sequence[Written]) -> None:
        """Remove the files of the tasks that succeeded."""
        for part in parts:
            append.removal(self.storage, part)()

    def _base(self) -> tuple[Storage, Snapshot]:
        storage = self.storage
        return storage, tablelog.load(storage, self.version)

    def _cast(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from pa.Table.from_batches([batch]).cast(self.rows).to_batches()
