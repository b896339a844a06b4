"""`cluster_folder`: lay out a folder of plain Parquet in place, and make it a zskip table.

    day-1.parquet  day-2.parquet  _zskip/                          version n: the index of these files
    day-1.parquet  day-2.parquet  _zskip/  _data/part-….pq    one commit: version n + 1 names only the new files
                                  _zskip/  _data/part-….pq    a vacuum that expires version n removes the old ones

The new files, and those of later writes, are in a folder whose name begins with an underscore. Spark and Arrow ignore
it when they list the folder above, and the names of its files do not match ``**/*.parquet``. So such programs read the
old files, each row once, until the vacuum removes them; they never read old and new files together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc

from zskip.core.receipts import Clustered
from zskip.core.schema import Schema
from zskip.errors import CommitConflict, InvalidOption
from zskip.parquet.footers import with_instants_of_files
from zskip.plan import find_survivors
from zskip.storage import Storage, undone_on_error
from zskip.tablelog import Index, Snapshot, changes, commit, index_files, newest, refresh
from zskip.tablelog.freshness import data_files
from zskip.writer import WriteOptions, storable_schema
from zskip.writer.append import kept_options, layout_record, removal
from zskip.writer.backend import LOCAL, Backend
from zskip.writer.compaction.compact import require_same_rows

__all__ = ["cluster_folder"]


def cluster_folder(
    storage: Storage,
    options: WriteOptions,
    *,
    dry_run: bool = False,
    indexed: Callable[[Storage], Snapshot] = index_files,
    backend: Backend = LOCAL,
) -> Clustered:
    """Rewrite all rows of a folder by a layout, and commit the new files as a table. ``indexed``: indexes the folder.

    After an error the folder is unchanged, except that it is indexed. Raises `InvalidOption` for a table that zskip
    wrote, `CommitConflict` if files were added, changed or removed in the meantime, and the errors of `index_files`.
    """
    if not options.by and options.workload is None:
        raise InvalidOption("Give by=, the columns to lay out by: this folder has no layout yet.")
    base = newest(storage)
    if base is not None:
        _require_foreign(storage, base)
    if dry_run:
        listing = data_files(storage)
        size = int(pc.sum(listing.size, min_count=0).as_py())
        return Clustered(0 if base is None else base.version, len(listing), size, None, dry_run)
    base = indexed(storage) if base is None else refresh(Index(storage, base))
    index = Index(storage, base)
    numbers = np.arange(len(index), dtype=np.int64)
    arrow = with_instants_of_files(storage, data_files(storage), base.schema.arrow)
    schema = Schema(storable_schema(arrow))
    schema.orderable(options.by)
    options = replace(
        options, partition_by=base.partition_by, sketches=kept_options(base, options).sketches, hidden=True
    )
    rows = backend.rows_of_scan(find_survivors(index, None).scan, arrow)
    written = backend.write(rows, storage, schema, options, None)
    undo = removal(storage, written)
    with undone_on_error(undo):
        require_same_rows(index, numbers, written)
        _require_unchanged(index)
    made = commit(
        storage,
        base,
        "cluster",
        add=written.files,
        replace_all=True,
        schema=schema,
        layout=layout_record(written, options),
        partition_by=base.partition_by,
        details={"rows": written.rows, "files": len(written.files)},
        still=lambda newest: _refuse(storage, f"version {newest.version} was committed"),
        undo=undo,
        sketches=lambda _: written.sketches,
    )
    try:
        _require_unchanged(index)
    except CommitConflict:
        commit(storage, made, "restore", restore=base, details={"restored": base.version})
        raise
    return Clustered(made.version, len(index), int(pc.sum(index.sizes(numbers)).as_py()), len(written.files))


def _require_foreign(storage: Storage, base: Snapshot) -> None:
    if base.managed:
        raise InvalidOption(
            f"{storage.uri} is a table of zskip's already. Lay it out by optimize(), anew by optimize(full=True)."
        )
    if base.details.get("source") == "statistics":
        raise InvalidOption(
            f"The index at {storage.uri} was made from given statistics, which do not tell whether a file has changed "
            "since. Remove its folder _zskip, then the files' own footers are read."
        )


def _require_unchanged(index: Index) -> None:
    found = changes(index)
    if found:
        paths = [*found.added.path.to_pylist(), *found.changed.path.to_pylist(), *found.removed.to_pylist()]
        _refuse(index.storage, f'"{paths[0]}" was added, changed or removed')


def _refuse(storage: Storage, what: str) -> None:
    raise CommitConflict(
        f"{storage.uri}: {what} while the folder was laid out. The files are as they were. Stop other writers, and run "
        "it again."
    )
