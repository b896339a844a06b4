"""Repair: rebuild lost parts of the index from the data files' footers, as far as possible.

| lost | repair |
| --- | --- |
| statistics | read from the footers of the shard's files |
| names of files | the files in no other shard, if their number, bytes, rows and bounds match the shard's |
| the newest entry | with ``go_back`` only: the newest readable version becomes the table again |

Statistics that footers lack become unknown, so every plan keeps the file. NaN counts often survive, because the
snapshot records which columns of a shard have no NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.core.receipts import Repaired
from zskip.errors import CommitConflict, DamagedIndex
from zskip.parquet import footers
from zskip.stats import DataFiles, FileStatistics
from zskip.storage.staged import Staged
from zskip.storage.storage import Storage
from zskip.tablelog import log
from zskip.tablelog.freshness import data_files
from zskip.tablelog.index import Index
from zskip.tablelog.indexing import refresh
from zskip.tablelog.parts import Drafts, Part, is_intact
from zskip.tablelog.runs import DATA_FILE
from zskip.tablelog.shards import write_shards
from zskip.tablelog.snapshot import Shard, Snapshot, Totals

DAMAGED = "_zskip/damaged"
_ATTEMPTS = 10
_ASKED_VERSIONS = 32


def repair(storage: Storage, *, go_back: bool = False, threads: int | None = None) -> tuple[Snapshot, Repaired]:
    """Make the newest version readable again, by committing a new version if anything was lost.

    ``go_back``: if the newest log entry is lost, return to the newest readable one. Raises `TableNotFound`,
    `CommitConflict`, and `DamagedIndex` if the lost parts cannot be restored; then nothing is changed.
    """
    snapshot, went_back_to = _readable(storage, go_back)
    for _ in range(_ATTEMPTS):
        lost = [part for part in snapshot.parts if not is_intact(storage, part)]
        log.write_hint(storage, snapshot.version)
        repaired = Repaired(snapshot.version, tuple(part.path for part in lost), went_back_to)
        if not lost:
            return snapshot, repaired
        made = _rebuilt(storage, snapshot, lost, threads)
        if made is not None:
            return made, replace(repaired, version=made.version)
        snapshot = log.load(storage)
    raise CommitConflict(f"{storage.uri}: other writers came first {_ATTEMPTS} times. Try again.")


# --- the log ---


def _readable(storage: Storage, go_back: bool) -> tuple[Snapshot, int | None]:
    """The newest snapshot; if it is lost and ``go_back`` allows it, the newest readable one, made the newest again."""
    try:
        return log.load(storage), None
    except DamagedIndex as error:
        versions = log.versions(storage)
        newest = max([*versions, log.hinted(storage) or 0])
        older = next(_snapshots(storage, reversed(versions)), None)
        if older is None:
            raise DamagedIndex(
                f"No entry of the log of {storage.uri} can be read. The data files are whole: move the folder _zskip "
                "away, and zskip.index takes them in anew, those that no version names as well."
            ) from error
        if not go_back:
            raise DamagedIndex(
                f"{error}\nVersion {older.version}, a table of {older.totals.files:,} files and {older.totals.rows:,} "
                f"rows, can be read. To make it the table again, without what came after it: {log.GO_BACK}"
            ) from error
    lost = range(older.version + 1, newest + 1)
    listed = [f"{log.LOG}/{name}" for name in storage.names(log.LOG) if log.ENTRY.fullmatch(name)]
    paths = [path for path in listed if log.version_of(path) in lost]
    for path in paths:
        storage.put(f"{DAMAGED}/{path.rpartition('/')[2]}", storage.read(path))
    made = older.followed_by(
        version=newest + 1,
        operation="repair",
        details={"restored": older.version},
        last_vacuum=newest,  # one of the lost versions may have been a vacuum's
    )
    if not log.create(storage, made, older):
        raise CommitConflict(f"{storage.uri}: another writer came first. Try again.")
    # The lost numbers are not used again: a writer that was suspended before one of them finds it taken.
    missing = set(lost) - set(map(log.version_of, paths))
    log.expire(storage, [*paths, *map(log.entry_path, sorted(missing))])
    return made, older.version


def _snapshots(storage: Storage, versions: Iterator[int]) -> Iterator[Snapshot]:
    """The snapshots of the readable versions."""
    for version in versions:
        try:
            found = log.read_entry(storage, version)
        except DamagedIndex:
            continue
        if found is not None:
            yield found


# --- the parts ---


def _rebuilt(storage: Storage, snapshot: Snapshot, lost: Sequence[Part], threads: int | None) -> Snapshot | None:
    """Commit the next version, with new parts in place of the lost ones; None if another writer came first."""
    nameless = [shard for shard in snapshot.shards if shard.file_part in lost]
    without_groups = [shard for shard in snapshot.shards if shard not in nameless and shard.row_group_part in lost]
    if not snapshot.managed:
        # The folder is the table: its files in the lost shards are indexed again as they are now.
        intact = tuple(shard for shard in snapshot.shards if shard not in (*nameless, *without_groups))
        return refresh(Index(storage, replace(snapshot, shards=intact)), threads=threads)
    with Staged(storage.delete) as staged:
        drafts = Drafts(storage, staged)
        shards: list[Shard] = []
        for shard in snapshot.shards:
            if shard in without_groups:
                shards += _with_row_groups(drafts, snapshot, shard, threads)
            elif shard not in nameless:
                shards.append(shard)
        if nameless:
            shards += _named_again(drafts, snapshot, nameless, threads)
        return _committed(storage, snapshot, shards, lost, staged)


def _committed(
    storage: Storage, snapshot: Snapshot, shards: Sequence[Shard], lost: Sequence[Part], staged: Staged
) -> Snapshot | None:
    """Commit the next version, with these shards; None if another writer came first."""
    details = {"parts": [part.path for part in lost]}
    made = snapshot.followed_by(shards=tuple(shards), operation="repair", details=details)
    if not log.create(storage, made, snapshot, staged):
        return None
    log.write_hint(storage, made.version)
    return made


def _with_row_groups(drafts: Drafts, snapshot: Snapshot, shard: Shard, threads: int | None) -> tuple[Shard, ...]:
    """A shard whose file part is intact, with its row groups read again from footers."""
    storage = drafts.storage
    index = Index(storage, replace(snapshot, shards=(replace(shard, row_group_part=None),)))
    numbers = np.arange(len(index))
    paths = index.shard_paths(0)
    known = index.file_statistics(numbers, list(snapshot.schema.columns))
    _, read = footers.read(storage, paths.to_pylist(), snapshot.schema, threads=threads)
    read = read.take(np.asarray(pc.index_in(paths, value_set=read.path)).astype(np.int64))
    if read.files.row_count != known.row_count:
        raise DamagedIndex(
            f"The part {shard.parts[-1].path} of the index of {storage.uri} is lost, and its data files do not "
            "hold the rows that the index says: they were changed or replaced. Restore them, or an older version."
        )
    clean = {
        path: np.asarray(pc.fill_null(pc.equal(column.nan_count, 0), False)) for path, column in known.columns.items()
    }
    owner = np.repeat(numbers, np.diff(read.first_row_group))
    groups = _without_nan(read.row_groups, {path: mask[owner] for path, mask in clean.items()})
    return _written(drafts, snapshot, replace(read, files=known, row_groups=groups, id=index.ids(numbers)))


def _named_again(drafts: Drafts, snapshot: Snapshot, lost: Sequence[Shard], threads: int | None) -> tuple[Shard, ...]:
    """Rebuild shards whose file names are lost, from the data files that are in no other shard."""
    storage = drafts.storage
    totals = Totals.of([shard.totals for shard in lost])
    others = tuple(shard for shard in snapshot.shards if shard not in lost)
    listing = data_files(storage)
    ours = np.asarray(pc.match_substring_regex(listing.path, DATA_FILE))
    free = listing.take(ours & ~np.asarray(pc.is_in(listing.path, value_set=_names(storage, snapshot, others))))
    found: list[tuple[Shard, ...]] = []
    if len(free) >= totals.files:
        _, read = footers.read(storage, free.path.to_pylist(), snapshot.schema, threads=threads, listing=free)
        read = _free_of_nan(read, lost)
        found = [
            shards
            for mask in _guesses(storage, snapshot, read, totals)
            if _agree(shards := _written(drafts, snapshot, read.take(np.flatnonzero(mask))), lost)
        ]
    if len(found) == 1:
        return found[0]
    raise DamagedIndex(
        f"The part {lost[0].parts[0].path} of the index of {storage.uri} is lost, which named {totals.files:,} files "
        f"with {totals.rows:,} rows. {len(free):,} files lie there that no other part names, and it cannot be told "
        "which of them it named. Put back a copy of the part, or open an older version (version=N)."
    )


def _guesses(storage: Storage, snapshot: Snapshot, free: DataFiles, totals: Totals) -> list[np.ndarray]:
    """The candidate sets of files for the lost shards, as distinct masks over the files in no other shard.

    Candidates: all files; for each older version, the files that it or a later one names and that were not removed
    since; the files that it names; all files except those removed since. The number, bytes, rows and row groups of a
    candidate must match ``totals``.
    """
    everything = np.ones(len(free), bool)
    tried, alive, removed = [everything], ~everything, _is_in(free, snapshot.removed)
    versions = [version for version in log.versions(storage) if version < snapshot.version][-_ASKED_VERSIONS:]
    for older in _snapshots(storage, reversed(versions)):
        intact = [shard for shard in older.shards if is_intact(storage, shard.file_part)]
        still_named = _is_in(free, _names(storage, older, intact))
        alive = alive | (still_named & ~removed)
        tried += [alive, still_named, ~removed]
        removed = removed | _is_in(free, older.removed)
    counts = np.stack(
        [np.ones(len(free)), free.size.to_numpy(), free.files.row_count.to_numpy(), np.diff(free.first_row_group)]
    )
    wanted = [totals.files, totals.bytes, totals.rows, totals.row_groups]
    return list({mask.tobytes(): mask for mask in tried if (counts @ mask).tolist() == wanted}.values())


def _is_in(files: DataFiles, paths: pa.StringArray | Sequence[str]) -> np.ndarray:
    known = paths if isinstance(paths, pa.Array) else pa.array(paths, pa.string())
    return np.asarray(pc.is_in(files.path, value_set=known))


def _names(storage: Storage, snapshot: Snapshot, shards: Sequence[Shard]) -> pa.StringArray:
    """The files of some of a snapshot's shards."""
    index = Index(storage, replace(snapshot, shards=tuple(shards)))
    names = [index.shard_paths(number) for number in range(len(shards))]
    return pa.concat_arrays(names) if names else pa.array([], pa.string())


def _written(drafts: Drafts, snapshot: Snapshot, files: DataFiles) -> tuple[Shard, ...]:
    first = () if snapshot.layout is None else snapshot.layout.columns
    return write_shards(drafts, files, snapshot.schema, snapshot.version + 1, first, snapshot.partition_by)


def _agree(made: Sequence[Shard], lost: Sequence[Shard]) -> bool:
    """Whether all bounds known of both shards are equal. Several lost shards are rebuilt as one and not compared."""
    if len(made) != 1 or len(lost) != 1:
        return True
    for path, bounds in made[0].ranges.items():
        other = lost[0].ranges.get(path, bounds)
        for now, then in ((bounds.lower, other.lower), (bounds.upper, other.upper), (bounds.nulls, other.nulls)):
            if now is not None and then is not None and now != then:
                return False
    return True


def _free_of_nan(files: DataFiles, lost: Sequence[Shard]) -> DataFiles:
    """The statistics, with a NaN count of 0 for the columns without NaN in all lost shards."""
    bounds = [shard.ranges for shard in lost]
    clean = [path for path in bounds[0] if all(path in each and each[path].nans == 0 for each in bounds)]
    units, groups = (
        _without_nan(part, {path: np.ones(len(part), bool) for path in clean})
        for part in (files.files, files.row_groups)
    )
    return replace(files, files=units, row_groups=groups)


def _without_nan(units: FileStatistics, where: dict[str, np.ndarray]) -> FileStatistics:
    """The statistics, with a NaN count of 0 in the units that ``where`` selects."""
    columns = dict(units.columns)
    for path, known in where.items():
        column = columns.get(path)
        if column is not None and t.is_floating(column.lower.type):
            columns[path] = replace(column, nan_count=pc.if_else(pa.array(known), 0, column.nan_count))
    return replace(units, columns=columns)
