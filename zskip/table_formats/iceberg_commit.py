"""Replaces files of an Iceberg table with others, of the same or of changed rows, in one Iceberg snapshot."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.errors import CommitConflict, UnsupportedFormat, first_line
from zskip.parquet.legacy_calendar import refuse_old_files
from zskip.storage import Staged
from zskip.table_formats.iceberg import IcebergSource, manifest_entries
from zskip.table_formats.iceberg_metadata import path_in
from zskip.table_formats.locate import index_of
from zskip.table_formats.source import reading
from zskip.tablelog.index import Index

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

_ATTEMPTS = 5
_RUN = "zskip.run"
"""The property of a snapshot that tells which call of zskip has made it."""


def require_replaceable(source: IcebergSource) -> Table:
    """The table, opened for commits. Raises `UnsupportedFormat` unless it is the newest state of a catalog's table."""
    table = source.opened()
    from pyiceberg.table import StaticTable

    if isinstance(table, StaticTable) or source.fixed is not None:
        raise UnsupportedFormat(
            f"The Iceberg table at {source.metadata} can only be changed through its catalog: give the newest table "
            "that pyiceberg's catalog.load_table(…) returns in place of its path."
        )
    return table


def replace_files(
    source: IcebergSource,
    index: Index,
    gone: np.ndarray,
    rows: Iterable[pa.Table],
    run: UUID,
    still: Callable[[Index], None] | None = None,
) -> int:
    """Write each table of rows as a file, and replace the files numbered ``gone`` with them in one commit.

    An empty table makes no file. pyiceberg writes the files, with the field ids, bounds and partitions of the table,
    and ``run`` in their names. Returns the number of files. If another writer commits first, the commit is retried
    while the replaced files are still live with the same deletes, and ``still`` accepts the newer index by not raising.
    Raises `CommitConflict`, with nothing changed, if they are not, or if the table was dropped or recreated; and
    `UncertainCommit` if the catalog does not report whether the commit was made; `SchemaError` for old dates in Spark's
    legacy calendar, and `UnsupportedFormat` for a NULL list of structs.
    """
    from pyiceberg.exceptions import CommitFailedException

    table = require_replaceable(source)
    refuse_old_files(index.storage, index.paths(gone).to_pylist(), index.snapshot.schema.arrow)
    paths, deletes, columns = index.paths(gone), index.deletes(gone), index.snapshot.schema
    written: list[DataFile] = []
    with Staged(partial(_delete, table)) as staged:
        replaced = _live_entries(source, table, paths)
        numbers = itertools.count()
        for part in filter(len, rows):
            made = list(_write_data_files(table, part, run, numbers))
            staged.add(file.file_path for file in made)
            written += made
        for attempt in range(_ATTEMPTS):
            for file in written:
                if not table.io.new_input(file.file_path).exists():
                    raise CommitConflict(f"{file.file_path} was removed, as by a clean-up of orphans, before its use.")
            try:
                _commit(table, replaced, written, run, staged)
                return len(written)
            except CommitFailedException as error:
                if attempt == _ATTEMPTS - 1:
                    raise CommitConflict(f"The catalog refuses the commit ({first_line(error)}).") from error
            _refresh(table)
            fresh = index_of(source.after_commit())
            found = np.flatnonzero(np.asarray(pc.is_in(fresh.paths(np.arange(len(fresh))), value_set=paths)))
            if fresh.snapshot.schema != columns or fresh.paths(found) != paths or fresh.deletes(found) != deletes:
                raise CommitConflict("Another writer changed files that were being replaced.")
            if still is not None:
                still(fresh)
            replaced = _live_entries(source, table, paths)
    raise AssertionError


def _commit(table: Table, replaced: Sequence[DataFile], written: Sequence[DataFile], run: UUID, staged: Staged) -> None:
    """Replace the files in one snapshot on top of the loaded one, without pyiceberg's retries.

    Raises pyiceberg's CommitFailedException if another writer came first, `CommitConflict` for any other refusal, and
    `UncertainCommit`.
    """
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, ValidationException
    from pyiceberg.table import Table, TableProperties

    # On a retry, pyiceberg would not check whether rows of the replaced files have been deleted since.
    once = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    metadata = table.metadata.model_copy(update={"properties": once})
    tried = Table(table.name(), metadata, table.metadata_location, table.io, table.catalog, table.config)
    name = ".".join(table.name())
    staged.maybe_committed(f"Load the table {name} again: it was made if a snapshot has zskip.run = {run}.")
    try:
        with (
            tried.transaction() as transaction,
            transaction.update_snapshot(snapshot_properties={_RUN: str(run)}).overwrite() as snapshot,
        ):
            for file in replaced:
                snapshot.delete_data_file(file)
            for file in written:
                snapshot.append_data_file(file)
    except (CommitFailedException, ValidationException, NoSuchTableError) as error:
        staged.refused()
        if isinstance(error, CommitFailedException):
            raise
        raise CommitConflict(f"The catalog refuses the commit ({first_line(error)}).") from error
    except Exception as error:
        # The catalog knows: its library also raises after a commit, and after a request whose answer was lost.
        now = _loaded(table)
        if now is None or str(run) not in _runs(now):
            # These come from reading the table before the request; any other request may still arrive.
            if isinstance(error, FileNotFoundError) or _is_recreated(error):
                staged.refused()
                raise CommitConflict(f"The table was changed ({first_line(error)}).") from error
            raise
        tried = now
    staged.committed()
    table.metadata, table.metadata_location = tried.metadata, tried.metadata_location


def _loaded(table: Table) -> Table | None:
    """The table as its catalog has it now; None if the catalog does not answer, or has no such table."""
    with suppress(Exception):
        return table.catalog.load_table(table.name())
    return None


def _runs(table: Table) -> set[str]:
    """The calls of zskip that made snapshots of the table."""
    summaries = [snapshot.summary for snapshot in table.metadata.snapshots if snapshot.summary is not None]
    return {each.additional_properties[_RUN] for each in summaries if _RUN in each.additional_properties}


def _refresh(table: Table) -> None:
    """Load the newest state of the table. Raises `CommitConflict` if it was dropped or recreated."""
    from pyiceberg.exceptions import NoSuchTableError

    try:
        table.refresh()
    except (NoSuchTableError, ValueError) as error:
        if isinstance(error, ValueError) and not _is_recreated(error):
            raise
        raise CommitConflict(f"The table was dropped or recreated ({first_line(error)}).") from error


def _is_recreated(error: BaseException) -> bool:
    """Whether pyiceberg's error means that the table was recreated under its name."""
    return isinstance(error, ValueError) and "UUID does not match" in str(error)


def _live_entries(source: IcebergSource, table: Table, paths: pa.StringArray) -> list[DataFile]:
    """The table's entries for these files. Raises `CommitConflict` if some are no longer live."""
    wanted = set(paths.to_pylist())
    found = [one for one in _data_files(table) if path_in(source.storage, one.file_path) in wanted]
    if len(found) < len(paths):
        raise CommitConflict(f"{source.metadata}: files that were to be replaced are no longer in the table.")
    return found


def _delete(table: Table, paths: Sequence[str]) -> None:
    for path in paths:
        with suppress(OSError):  # an orphan, which Iceberg's clean-up removes
            table.io.delete(path)


def _write_data_files(table: Table, rows: pa.Table, run: UUID, numbers: itertools.count[int]) -> Iterable[DataFile]:
    from pyiceberg.io.pyarrow import _dataframe_to_data_files, schema_to_pyarrow

    _require_lists_kept(table, rows)
    schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    arranged = pa.Table.from_arrays([rows.column(one.name).cast(one.type) for one in schema], schema=schema)
    return _dataframe_to_data_files(table.metadata, arranged, table.io, run, numbers)


def _require_lists_kept(table: Table, rows: pa.Table) -> None:
    """Raise `UnsupportedFormat` if a list of structs is NULL: pyiceberg writes it as an empty list."""
    for name, values in zip(rows.column_names, rows.columns, strict=True):
        if any(map(_has_null_list_of_structs, values.chunks)):
            raise UnsupportedFormat(
                f'A list of structs in the column "{name}" of the Iceberg table {".".join(table.name())} is NULL: '
                "pyiceberg would write an empty list in its place. Change the table with another library."
            )


def _has_null_list_of_structs(values: pa.Array) -> bool:
    type = values.type
    if t.is_struct(type):
        return any(map(_has_null_list_of_structs, values.drop_null().flatten()))
    if t.is_map(type):
        entries = values.drop_null()
        return any(map(_has_null_list_of_structs, (entries.keys, entries.items)))
    if not t.is_list(type) and not t.is_large_list(type) and not t.is_fixed_size_list(type):
        return False
    return bool(t.is_struct(type.value_type) and values.null_count) or _has_null_list_of_structs(values.flatten())


def _data_files(table: Table) -> Iterator[DataFile]:
    from pyiceberg.manifest import ManifestContent

    snapshot = table.current_snapshot()
    if snapshot is None:
        return
    with reading(snapshot.manifest_list, "a list of manifests of an Iceberg table"):
        manifests = snapshot.manifests(table.io)
    for manifest in manifests:
        if manifest.content == ManifestContent.DATA:  # a number in the manifests of tables of version 1
            yield from (entry.data_file for entry in manifest_entries(table, manifest))
