"""Files in Spark's LEGACY calendar: Spark alone converts their old dates and timestamps when it reads them.

Spark shows a day as 1560-02-10 that is stored as that of the Julian calendar, which others show as 1560-02-20: after a
rewrite, without the mark in the footer, Spark would show that too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zskip.core import types as t
from zskip.core.casts import leaf_values
from zskip.errors import CorruptFile, SchemaError
from zskip.parquet import footers, trust
from zskip.parquet.arrow_differences import is_damage, leaves
from zskip.storage import Storage


def refuse_old_values_of_files(storage: Storage, paths: Sequence[str], schema: pa.Schema) -> None:
    """`refuse_old_values` of files of a storage; their footers are read if a column has such a type."""
    if not paths or not _has_times(schema):
        return
    listed = storage.size_and_modified(paths)
    for number in footers.files_of(storage, listed, lambda writer: writer.legacy):
        path = listed.path[number].as_py()
        with footers.whole(storage, path) as file:
            refuse_old_values(file, storage.uri_of(path))


def refuse_old_values(file: pq.ParquetFile, name: str) -> None:
    """Raise `SchemaError` if rewriting a file would change its dates or timestamps for Spark.

    That is so before 1582-10-15 and 1900-01-01, if the footer says that Spark wrote the file in its legacy calendar;
    only then are the columns of these types read. Raises `CorruptFile`.
    """
    metadata = file.metadata
    if not trust.writer(metadata.created_by, metadata.metadata or {}).legacy:
        return
    for field in file.schema_arrow:
        if not _has_times([field]):
            continue
        try:
            for group in range(metadata.num_row_groups):
                for chunk in file.read_row_group(group, columns=[field.name]).column(0).chunks:
                    _require_new(chunk, field.name, name)
        except (pa.ArrowException, OSError) as error:
            if not is_damage(error):
                raise
            raise CorruptFile(f'"{name}" cannot be read as Parquet: {error}') from error


def _require_new(rows: pa.Array, column: str, name: str) -> None:
    for leaf in leaf_values(rows):
        least = pc.min(leaf) if trust.is_of_calendar(leaf.type) else pa.scalar(None)
        if least.is_valid and pc.less(least, trust.calendars_agree_since(leaf.type)).as_py():
            raise SchemaError(
                f'"{name}" was written by Spark in its legacy calendar, in which its "{column}" has a value before '
                f"{'1582-10-15' if t.is_date(leaf.type) else '1900-01-01'}. Spark would read other values after a "
                "rewrite: lay the files out with zskip.spark.cluster or zskip.spark.write, which read as Spark does."
            )


def _has_times(fields: Iterable[pa.Field]) -> bool:
    return any(trust.is_of_calendar(leaf) for field in fields for leaf in leaves(field.type))
