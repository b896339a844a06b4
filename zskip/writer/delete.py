"""Delete: files whose rows all match are dropped unread; files with some matching rows are rewritten without them.

A file is rewritten in place: it keeps its layout group. (A cluster writes what is left as a new group.)

A delete is serializable: it removes the rows from the version right before its own. If other writers removed one of its
files meanwhile, or added rows that match, it raises, and is to be repeated from the newest version.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core.receipts import Deleted
from zskip.engines.arrow import counts, to_batches
from zskip.errors import CommitConflict, CorruptFile
from zskip.language import Predicate
from zskip.language.tree import In, Reference
from zskip.plan import Survivors, find_survivors
from zskip.plan.scan import Scan
from zskip.storage import Staged, Storage
from zskip.tablelog.commit import TableUpdate, commit
from zskip.tablelog.index import Index
from zskip.tablelog.runs import may_meet_vacuums
from zskip.tablelog.snapshot import Snapshot
from zskip.writer.append import kept_options, look_ups_of, require_managed, sized_by_rows
from zskip.writer.backend import LOCAL, Backend
from zskip.writer.key_match import FileRows, Keys
from zskip.writer.options import WriteOptions
from zskip.writer.write import Written, rewrite_files


@may_meet_vacuums
def delete(
    storage: Storage,
    base: Snapshot,
    matching: Predicate,
    rest: Predicate,
    options: WriteOptions,
    backend: Backend = LOCAL,
) -> tuple[Snapshot, Deleted]:
    """Remove the rows for which ``matching`` is TRUE; ``rest`` is TRUE for all others.

    Raises `CommitConflict` if another writer removed one of the affected files, added rows to remove, or changed the
    columns, and `CorruptFile` if a file does not hold the rows that the index records. Then the table is unchanged.
    """
    require_managed(storage, base)
    affected = find_survivors(Index(storage, base), matching)
    with Staged(storage.delete) as staged:
        rewritten, written = _rewritten(affected, matching, rest, kept_options(base, options), backend, staged)
        done = _receipt(affected, rewritten, _rows(affected, rewritten) - written.rows)
        if not done.rows:
            return base, Deleted(base.version, 0, 0, 0, (), 0)
        dropped = affected.index.paths(affected.numbers[affected.all_match]).to_pylist()
        snapshot = commit(
            storage,
            base,
            TableUpdate(
                "delete",
                add=written.files,
                remove=[*dropped, *done.rewritten],
                details={"rows": done.rows, "files_dropped": len(dropped), "files_rewritten": len(rewritten)},
                still=lambda newest: _require_no_added_matches(affected.index, newest, matching, backend),
                sketches=written.sketches,
            ),
            staged=staged,
        )
    return snapshot, replace(done, version=snapshot.version)


@may_meet_vacuums
def would_delete(storage: Storage, base: Snapshot, matching: Predicate, backend: Backend = LOCAL) -> Deleted:
    """What a delete would do, by counting the matching rows in the files in which some match. Nothing is changed."""
    require_managed(storage, base)
    affected = find_survivors(Index(storage, base), matching)
    partly = affected.numbers[~affected.all_match]
    scan = _exact(affected.narrowed(partly))
    if backend is not LOCAL:  # a cluster rewrites all of these files
        return replace(_receipt(affected, partly, backend.count(scan)), dry_run=True)
    found = counts(scan)
    return replace(_receipt(affected, partly[found > 0], int(found.sum())), dry_run=True)


def _receipt(affected: Survivors, partly: np.ndarray, rows: int) -> Deleted:
    """The receipt for dropping the files of which all rows match, and removing ``rows`` from those in ``partly``."""
    dropped = affected.numbers[affected.all_match]
    return Deleted(
        affected.index.version,
        _rows(affected, dropped) + rows,
        len(dropped),
        len(partly),
        tuple(affected.index.paths(partly).to_pylist()),
        _bytes(affected, dropped) + _bytes(affected, partly),
    )


def _rewritten(
    affected: Survivors, matching: Predicate, rest: Predicate, kept: WriteOptions, backend: Backend, staged: Staged
) -> tuple[np.ndarray, Written]:
    """The numbers of the files in which some rows match, and the files that replace them.

    If the plan cannot tell whether rows of a file match, they are counted first, which reads only the predicate's
    columns. Files without matches stay unchanged. A cluster skips the count, since it would run on this machine.
    """
    index, partly = affected.index, affected.numbers[~affected.all_match]
    base = index.snapshot
    if backend is not LOCAL:
        left = find_survivors(index, rest).narrowed(partly)
        rows = backend.rows_of_scan(left.scan, base.schema.arrow)
        sized = sized_by_rows(base, kept)
        return partly, backend.write(rows, index.storage, base.schema, sized, partial(look_ups_of, index, kept), staged)
    if (listed := _listed_keys(matching)) is not None:
        rows_of = FileRows(index, base.schema.arrow)
        keys = listed.in_files(rows_of, partly, kept.cores)
        partly = np.array(list(keys), np.int64)
        matched = np.array([len(each.rows) for each in keys.values()], np.int64)

        def rows_left(number: int) -> pa.Table:
            return rows_of(number).filter(keys[number].others)
    else:
        matched = counts(_exact(affected.narrowed(partly)))
        partly, matched = partly[matched > 0], matched[matched > 0]
        left = find_survivors(index, rest).narrowed(partly)

        def rows_left(number: int) -> pa.Table:
            scan = _exact(left.narrowed(np.array([number])))
            return pa.Table.from_batches(to_batches(scan), scan.schema.arrow)

    written = rewrite_files(index, partly, rows_left, kept, staged)
    if _rows(affected, partly) - written.rows != matched.sum():
        _require_complete(affected.narrowed(partly), matched, written)
    return partly, written


def _require_complete(affected: Survivors, matched: np.ndarray, written: Written) -> None:
    """Raise `CorruptFile` unless the matching and the remaining rows add up to the rows that the index records.

    A volatile predicate, such as ``random() < 0.5``, gives another count each time and proves nothing.
    """
    if not np.array_equal(counts(_exact(affected)), matched):
        return
    raise CorruptFile(
        f"By the index, {len(matched)} files of {affected.index.storage.uri} hold "
        f"{_rows(affected, affected.numbers):,} rows; {matched.sum():,} match and {written.rows:,} do not. Nothing was "
        "changed. zskip verify finds the files that differ."
    )


def _require_no_added_matches(index: Index, newest: Snapshot, matching: Predicate, backend: Backend) -> None:
    """Raise `CommitConflict` if a version has other columns than that of the index, or further files with matches."""
    storage, base = index.storage, index.snapshot
    if newest.schema != base.schema:
        raise CommitConflict(f"{storage.uri}: version {newest.version} has changed the table's schema.")
    shards = tuple(shard for shard in newest.shards if shard not in base.shards)
    found = find_survivors(Index(storage, replace(newest, shards=shards)), matching)
    known = index.paths(np.arange(len(index), dtype=np.int64))
    added = found.narrowed(found.numbers[~np.asarray(pc.is_in(found.relative_paths, value_set=known))])
    if len(added) and backend.count(_exact(added)):
        raise CommitConflict(f"{storage.uri}: version {newest.version} has added rows that are to be deleted.")


def _listed_keys(matching: Predicate) -> Keys | None:
    """The values of ``column IN (…)``, which a semi-join finds in linear time; None for any other predicate."""
    tree = matching.tree
    if not isinstance(tree, In) or not isinstance(tree.term, Reference):
        return None
    column = matching.schema.columns.get(tree.term.path)
    if column is None or len(column.parts) > 1 or column.type != tree.values.type:
        return None
    return Keys.of(pa.table({column.parts[0]: tree.values}), column.parts)


def _exact(survivors: Survivors) -> Scan:
    """The scan by which a delete tells the rows that match from the others."""
    return replace(survivors.scan, exact=True)


def _rows(survivors: Survivors, numbers: np.ndarray) -> int:
    """The number of rows in some files."""
    return int(pc.sum(survivors.index.row_counts(numbers), min_count=0).as_py())


def _bytes(survivors: Survivors, numbers: np.ndarray) -> int:
    """The size of some files in bytes."""
    return int(pc.sum(survivors.index.sizes(numbers), min_count=0).as_py())
