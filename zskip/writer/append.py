"""Create a table and append to it: write data files first, then commit. After an error no file is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from zskip.core.option_checks import require_number
from zskip.core.receipts import Appended
from zskip.core.schema import Schema
from zskip.errors import CommitConflict, DamagedIndex, FilesRemoved, InvalidOption, SchemaMismatch, nearest, shown
from zskip.storage import Staged, Storage, hive
from zskip.tablelog.commit import TableUpdate, commit
from zskip.tablelog.dimensions import require_attributes
from zskip.tablelog.index import Index
from zskip.tablelog.log import load
from zskip.tablelog.runs import may_meet_vacuums
from zskip.tablelog.sketches import SKETCHES, named_sketches
from zskip.tablelog.snapshot import LayoutRecord, Snapshot
from zskip.tablelog.table_folders import refuse_folder, refuse_within_index
from zskip.writer.backend import LOCAL, Backend, Rows
from zskip.writer.evolution import appended, new_and_widened
from zskip.writer.look_ups import LookUps
from zskip.writer.options import ROW_GROUP_ROWS, WriteOptions
from zskip.writer.routing import weights_of
from zskip.writer.star import Join, as_recorded, joined_with
from zskip.writer.write import Written

_ATTEMPTS = 10
_MOST_FILES = 20_000
_LARGEST_BATCH = 1 << 63
_SIZES = ("files", "rows_per_file", "file_size")


@may_meet_vacuums
def create(
    storage: Storage,
    base: Snapshot | None,
    source: Rows,
    options: WriteOptions,
    backend: Backend = LOCAL,
    batch: tuple[str, int] | None = None,
    joins: Sequence[Join] = (),
) -> Snapshot:
    """Write a table, or replace all rows of ``base``. ``batch``: the name of an application and its batch number.
    ``joins``: the dimensions whose attributes the layout and the index use.

    Raises `InvalidOption`, `UnknownColumn`, `NotOrderable`, `SchemaError`, `CommitConflict`.
    """
    if base is None:
        refuse_folder(storage)
        refuse_within_index(storage)
    else:
        require_managed(storage, base)
        kept = kept_options(base, WriteOptions())
        options = replace(options, hidden=kept.hidden, folder_names=kept.folder_names)
    schema = Schema(source.schema)
    for name in options.partition_by:
        hive.require_partition_type(name, schema.column(name).type)
    partition_by = tuple(schema.column(name).parts[0] for name in options.partition_by)
    if set(partition_by) >= set(schema.arrow.names):
        raise InvalidOption("partition_by= names every column; at least one must stay in the files.")
    named_sketches(options.sketches, schema)
    star = joined_with(joins, schema, options.by, options.storage_options)
    if star is None and options.star is not None:  # an overwrite keeps the table's dimensions
        star = options.star(storage)
    Schema(pa.schema([*schema.arrow, *([] if star is None else star.attributes)])).orderable(options.by)
    options = replace(options, partition_by=partition_by, star=None if star is None else lambda _: star)
    with Staged(storage.delete) as staged:
        written = backend.write(source, storage, schema, options, None, staged)
        return commit(
            storage,
            base,
            TableUpdate(
                "write" if base is None else "overwrite",
                add=written.files,
                replace_all=base is not None,
                schema=schema,
                layout=layout_record(written, options),
                partition_by=partition_by,
                details={"rows": written.rows, "files": len(written.files)},
                batch=batch,
                sketches=written.sketches,
                dimensions=() if star is None else star.dimensions,
            ),
            staged=staged,
        )


def require_batch(batch: object) -> None:
    """Raise `InvalidOption` unless a batch is a name and a number."""
    if batch is not None and not _is_batch(batch):
        raise InvalidOption(
            f"batch= is an application's name and the number of its batch, from 0 to 2^63 - 1, not {shown(batch)}."
        )


def _is_batch(batch: object) -> bool:
    if not isinstance(batch, tuple | list) or [type(each) for each in batch] != [str, int]:
        return False
    try:
        batch[0].encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return bool(0 <= batch[1] < _LARGEST_BATCH)


@may_meet_vacuums
def append(
    storage: Storage,
    base: Snapshot,
    source: Rows,
    options: WriteOptions,
    batch: tuple[str, int] | None = None,
    backend: Backend = LOCAL,
) -> tuple[Snapshot, Appended]:
    """Write rows as new files, a layout group of their own; no existing file changes.

    A ``batch`` (application, number) that the table already contains adds nothing. Raises `InvalidOption`,
    `SchemaMismatch` and `CommitConflict`.
    """
    require_managed(storage, base)
    require_batch(batch)
    if batch is not None and base.applications.get(batch[0], -1) >= batch[1]:
        return base, Appended(base.version, 0, 0, 0)
    kept = kept_options(base, options)
    columns = appended(base.schema.arrow, source.schema)
    schema = base.schema if columns.equals(base.schema.arrow) else Schema(columns)
    _require_same_partition_types(base, schema)
    newest = base

    def look_ups() -> LookUps | None:
        return look_ups_of(Index(storage, base), kept)

    with Staged(storage.delete) as staged:
        written = backend.write(source, storage, schema, sized_by_rows(base, kept), look_ups, staged)
        if not written.rows:
            return base, Appended(base.version, 0, 0, 0)
        for attempt in range(_ATTEMPTS):
            try:
                snapshot = commit(
                    storage,
                    newest,
                    TableUpdate(
                        "append",
                        add=written.files,
                        schema=None if schema.arrow.equals(newest.schema.arrow) else schema,
                        layout=layout_record(written, kept) if newest.layout is None and not attempt else None,
                        details={"rows": written.rows, "files": len(written.files)},
                        batch=batch,
                        sketches=written.sketches,
                    ),
                    since=base.version,
                    staged=staged,
                )
                break
            except FilesRemoved:
                raise
            except CommitConflict:
                if attempt == _ATTEMPTS - 1:
                    raise
            # Another writer extended the schema or changed the layout. The files can still be added if they fit.
            newest = _newest(storage, newest)
            schema = Schema(appended(newest.schema.arrow, schema.arrow))
        if not staged.is_committed:  # another writer has committed this batch
            return snapshot, Appended(snapshot.version, 0, 0, 0)
    size = pc.sum(written.files.size).as_py()
    changes = new_and_widened(newest.schema.arrow, snapshot.schema.arrow)
    return snapshot, Appended(snapshot.version, written.rows, len(written.files), size, *changes)


def _require_same_partition_types(base: Snapshot, schema: Schema) -> None:
    for name in base.partition_by:
        if schema.arrow.field(name).type != base.schema.arrow.field(name).type:
            raise SchemaMismatch(f'The partition column "{name}" cannot change its type.')


def _newest(storage: Storage, base: Snapshot) -> Snapshot:
    """The newest version. Raises `CommitConflict` if files written for ``base`` do not fit it."""
    newest = load(storage)
    if newest.table_id != base.table_id:
        raise CommitConflict(f"{storage.uri}: the table was replaced by another one. Open it, and append again.")
    for name, what in (("partition_by", "partitions"), ("dimensions", "dimensions")):
        if getattr(newest, name) != getattr(base, name):
            raise CommitConflict(f"{storage.uri}: version {newest.version} has other {what}. Append again.")
    return newest


def layout_record(written: Written, options: WriteOptions) -> LayoutRecord:
    """The layout record for the snapshot of a write; later writes keep to its options."""
    assignments = written.routing.assignments
    columns = assignments[0].columns if assignments else ()
    recorded_options = {
        "files": options.files,
        "rows_per_file": options.rows_per_file,
        "file_size": options.file_size,
        "fitted_rows_per_file": options.rows_per_file or written.rows_per_file,
        "row_group_rows": options.row_group_rows or ROW_GROUP_ROWS,
        "compression": options.compression,
        "weights": as_logged(options.weights),
        "workload": as_logged(options.workload),
        "layout": options.layout,
        "by": list(options.by),
        **({"hidden": True} if options.hidden else {}),
        **({"folder_names": dict(options.folder_names)} if options.folder_names else {}),
    }
    name = assignments[0].layout if assignments else options.layout
    return LayoutRecord(name, columns, recorded_options)


def as_logged(option: Any) -> Any:
    """An option in the form in which the log records it."""
    if isinstance(option, Mapping):
        return dict(option)
    return list(option) if isinstance(option, tuple) else option


def rows_per_file(snapshot: Snapshot, kept: WriteOptions) -> int:
    """The rows of a full file. ``kept``: the table's own options. Raises `DamagedIndex` if it is not recorded."""
    if kept.rows_per_file is not None:
        return kept.rows_per_file
    totals = snapshot.totals
    if kept.files is None and totals.rows and totals.bytes:
        return max(1, round(totals.rows / kept.file_count(totals.rows, totals.bytes / totals.rows)))
    with _as_damaged_index(snapshot):
        recorded = (snapshot.layout.options if snapshot.layout else {}).get("fitted_rows_per_file", 1)
        require_number("fitted_rows_per_file", recorded, least=1)
        return int(recorded)


def sized_by_rows(snapshot: Snapshot, kept: WriteOptions) -> WriteOptions:
    """The options to write some rows of a table, in files as large as its own."""
    if kept.files is None:
        return kept
    return replace(kept, files=None, rows_per_file=rows_per_file(snapshot, kept))


def look_ups_of(index: Index, kept: WriteOptions, *, exact: bool = False) -> LookUps | None:
    """The look-ups by a table's clustering columns; None if it has none. ``kept``: the table's own options.

    ``exact``: by the ranges of files even in a table of very many. Those of shards are wider, but suffice to fit rows;
    and to fit rows by a single column, whose weight changes nothing, none are needed.
    """
    schema, layout = index.snapshot.indexed, index.snapshot.layout
    with _as_damaged_index(index.snapshot):
        given = kept.by or (() if layout is None else layout.columns)
        by = [column.path for column in schema.orderable(given)]
        weights = weights_of(kept.weights, kept.by) if kept.by else None
    if not by or (len(by) == 1 and not exact):
        return None
    statistics = index.files(None, by).statistics if exact or len(index) <= _MOST_FILES else index.shards(by)
    return LookUps.of(statistics, by, weights)


@contextmanager
def _as_damaged_index(snapshot: Snapshot) -> Iterator[None]:
    """Raise `DamagedIndex`, which names the version, in place of errors from an invalid layout."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, pa.ArrowException) as error:
        raise DamagedIndex(
            f"Version {snapshot.version} can be read, but not changed: the layout in its entry is invalid ({error}). "
            "Restore an older version, or write its rows as a new table."
        ) from error


def kept_options(snapshot: Snapshot, options: WriteOptions) -> WriteOptions:
    """The options of an append: those with which the table was written, but memory, threads and progress as given.

    Raises `DamagedIndex` if a recorded option is invalid.
    """
    layout = snapshot.layout
    recorded_options = {} if layout is None else layout.options
    names = (*_SIZES, "row_group_rows", "compression", "weights", "workload", "layout", "hidden", "folder_names")
    recorded = {name: recorded_options[name] for name in names if recorded_options.get(name) is not None}
    if any(name in recorded for name in _SIZES):
        recorded = dict.fromkeys(_SIZES) | recorded
    with _as_damaged_index(snapshot):
        return replace(
            options,
            by=recorded_options.get("by", () if layout is None else layout.columns),
            partition_by=snapshot.partition_by,
            sketches=_sketches(snapshot),
            star=partial(as_recorded, snapshot) if snapshot.dimensions else None,
            **recorded,
        )


def _sketches(snapshot: Snapshot) -> dict[str, list[str]]:
    """A table's sketches as the option of a write, without kinds that only a newer zskip knows."""
    kinds: dict[str, list[str]] = {}
    for sketch in snapshot.sketches:
        if sketch.name.kind in SKETCHES:
            kinds.setdefault(sketch.name.column, []).append(sketch.name.kind)
    return kinds


def changed_options(snapshot: Snapshot, by: str | Sequence[str] | None, given: Mapping[str, Any]) -> WriteOptions:
    """The options of an overwrite: the given ones, and those with which the table was written for the others.

    A new ``by`` resets the layout, its weights and its workload. Raises `InvalidOption` for an unknown option.
    """
    known = [each.name for each in fields(WriteOptions)]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise InvalidOption(f'There is no option "{unknown[0]}".{nearest(unknown[0], known)}')
    kept = kept_options(snapshot, WriteOptions())
    reset: dict[str, Any] = {}
    if by is not None:
        reset |= {"by": by, "layout": "auto", "weights": None, "workload": None}
    if any(given.get(name) is not None for name in _SIZES):
        reset |= dict.fromkeys(_SIZES)
    options = replace(kept, **{**reset, **given})
    require_attributes(options.by, snapshot.dimensions)
    return options


def require_managed(storage: Storage, base: Snapshot) -> None:
    """Raise `InvalidOption` if zskip only indexes the files and did not write them."""
    if not base.managed:
        raise InvalidOption(
            f"zskip only indexes the files at {storage.uri}; it did not write them and will not change them. "
            "zskip.cluster(path, by=…) lays them out in place and makes them a table that can change; "
            "zskip.write(path, new_path, by=…) writes a table of their rows."
        )
