"""Replace files of an Iceberg table by others with the same rows, in one snapshot of the format."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np
import pyarrow as pa

from zskip.errors import CommitConflict, UnsupportedFormat
from zskip.sources.iceberg import IcebergSource, manifest_entries
from zskip.sources.iceberg_paths import path_in
from zskip.tablelog import Index

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

__all__ = ["replace_files", "require_replaceable"]


def require_replaceable(source: IcebergSource) -> Table:
    """The table, if it can be committed to. Raises `UnsupportedFormat` where only a catalog could, and says why."""
    from pyiceberg.table import StaticTable

    table = source.opened()
    if isinstance(table, StaticTable) or source.fixed is not None:
        raise UnsupportedFormat(
            f"The Iceberg table at {source.metadata} can only be laid out through its catalog: give the newest table "
            "that pyiceberg's catalog.load_table(…) returns in place of its path."
        )
    return table


def replace_files(source: IcebergSource, index: Index, gone: np.ndarray, rows: Iterable[pa.Table], run: UUID) -> int:
    """Write each table of rows as a file, and commit that they stand in the place of the files of ``gone``.

    pyiceberg writes the files, with the field ids, bounds and partitions of the table, and ``run`` in their names.
    Returns how many they are.
    Raises `CommitConflict` where the table has moved on since the index followed it.
    """
    from pyiceberg.exceptions import CommitFailedException, ValidationException

    table = require_replaceable(source)
    paths = set(index.paths(gone).to_pylist())
    replaced = [one for one in _data_files(table) if path_in(source.storage, one.file_path) in paths]
    if len(replaced) < len(gone) or table.current_snapshot() is None:
        raise CommitConflict(f"{source.metadata}: files that were to be replaced are no longer in the table.")
    numbers = itertools.count()
    written = [file for part in rows for file in _written(table, part, run, numbers)]
    try:
        with table.transaction() as transaction, transaction.update_snapshot().overwrite() as snapshot:
            for file in replaced:
                snapshot.delete_data_file(file)
            for file in written:
                snapshot.append_data_file(file)
    except (CommitFailedException, ValidationException) as error:
        raise CommitConflict(f"{source.metadata}: the table was changed meanwhile ({error}).") from error
    return len(written)


def _written(table: Table, rows: pa.Table, run: UUID, numbers: itertools.count[int]) -> Iterable[DataFile]:
    from pyiceberg.io.pyarrow import _dataframe_to_data_files, schema_to_pyarrow

    wanted = schema_to_pyarrow(table.schema(), include_field_ids=False)
    plain = pa.Table.from_arrays([rows.column(one.name).cast(one.type) for one in wanted], schema=wanted)
    return _dataframe_to_data_files(table.metadata, plain, table.io, run, numbers)


def _data_files(table: Table) -> Iterator[DataFile]:
    snapshot = table.current_snapshot()
    for manifest in [] if snapshot is None else snapshot.manifests(table.io):
        if manifest.content.name == "DATA":
            yield from (entry.data_file for entry in manifest_entries(table, manifest))
