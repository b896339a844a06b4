"""Files of other writers: what changed in a folder since it was indexed, and what lies in a table's folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import xxhash

from zskip.core.late_loading import pc
from zskip.errors import CommitConflict, CorruptFile, DamagedIndex, FilesRemoved
from zskip.storage.storage import Listing, Storage
from zskip.tablelog import log
from zskip.tablelog.index import Index
from zskip.tablelog.runs import DATA_FILE
from zskip.tablelog.snapshot import Snapshot
from zskip.tablelog.table_folders import folders_with_logs, refuse_tables_within

_BYTES_A_FILE = 128


@dataclass(frozen=True, slots=True)
class Changes:
    """The differences between a folder and its index. A plan keeps added and changed files, and reports all.

    ``added``: files that are not in the index · ``changed``: files whose size, modification time or ETag differs from
    the index, with their current ones · ``removed``: the paths of files that are gone · ``listing``: all files.
    """

    added: Listing
    changed: Listing
    removed: pa.StringArray
    listing: Listing

    def __bool__(self) -> bool:
        return bool(len(self.added) or len(self.changed) or len(self.removed))


def data_files(storage: Storage) -> Listing:
    """The Parquet files of a folder, by their suffixes, without hidden ones (``_…``, ``.…``)."""
    return storage.list("", hidden=False).parquet()


def changes(index: Index, listing: Listing | None = None) -> Changes:
    """Compare the folder's listing with the index. A file without modification time and ETag counts as changed."""
    listing = data_files(index.storage) if listing is None else listing
    # Comparing columns is much quicker than matching files, and folders seldom change between two statements.
    same_as: list[Listing] = index.once(("unchanged listing",), list, lambda _: _BYTES_A_FILE * len(index))
    if same_as and listing == same_as[0]:
        nothing = Listing.of([])
        return Changes(nothing, nothing, nothing.path, listing)
    found = _compared(index, listing)
    if not found:
        same_as[:] = [listing]
    return found


def _compared(index: Index, listing: Listing) -> Changes:
    then = _recorded(index)
    there = is_in(then.path, listing.path)
    changed = there & ~unchanged(index.storage, then, listing, by="status")
    added = listing.take(~is_in(listing.path, then.path))
    return Changes(added, listing.at(then.path.filter(changed)), then.path.filter(~there), listing)


def _recorded(index: Index) -> Listing:
    """The files of an index, as they were recorded. Raises `UnsafePath`."""
    every = np.arange(len(index))
    shards = [index.shard_paths(shard) for shard in range(len(index.snapshot.shards))]
    paths = pa.concat_arrays(shards) if shards else index.recorded_paths(every)
    return Listing(paths, index.sizes(every), index.modified(every), index.etags(every))


def unchanged(
    storage: Storage, then: Listing, listing: Listing, *, by: Literal["size", "time", "status"]
) -> np.ndarray:
    """Whether each file of ``then`` is in a listing with the same size, and with the same times as far as both have
    them; it is not if neither its modification time nor its ETag is known.

    ``by``: "status" compares all times · "time": not when a local file's status was last changed, which another owner
    or mode does, and a copy that keeps the times of modification · "size": none, since most copies keep no times
    """
    now = listing.at(then.path)
    same = _equal(then.size, now.size)
    if by == "size":
        return same
    pairs = [(then.modified, now.modified)]
    if by == "status" or storage.local is None:
        pairs.append((then.etag, now.etag))
    known = np.zeros(len(then), bool)  # an equal size alone is no proof: the file may hold other rows
    for before, after in pairs:
        same &= _equal(before, after, unknown=True)
        known |= _equal(before, after)
    return same & known


def listed(index: Index) -> Changes | None:
    """The changes of a folder, by listing it; None, without listing it, if its files cannot differ from the index.

    Files that zskip wrote never change, statistics given by the user are trusted, and the files of a Delta or Iceberg
    table are those in its log. Raises `FilesRemoved` if a vacuum removed files that `cluster` replaced, and
    `ForeignTable` if a table of zskip, Delta, Iceberg or Hudi was written into the folder, or Spark streamed into it.
    """
    if index.snapshot.managed or index.source or index.snapshot.details.get("source") == "statistics":
        return None
    # One listing of an object store also finds the logs of other tables. On a disk, only folders of new files are read.
    everything = None if index.storage.local is not None else index.storage.list("")
    found = changes(index, None if everything is None else everything.visible().parquet())
    if len(found.removed) and log.load(index.storage).managed:
        raise FilesRemoved(
            f"{index.storage.uri} was laid out anew after version {index.version}, and a vacuum removed "
            f"{len(found.removed):,} of this version's files. Open the table again."
        )
    # Indexing refuses such files, so these tables were written after the folder was indexed.
    if len(found.added):
        paths = None if everything is None else everything.path
        refuse_tables_within(index.storage, found.added.path, paths, itself=False)
    if index.snapshot.partition_by and found:
        from zskip.parquet.footers import require_folders  # Here, since a plan reads no other footers.

        for fresh in (found.added, found.changed):
            require_folders(index.storage, fresh, index.snapshot.partition_by)
    return found


def _equal(then: pa.Array, now: pa.Array, *, unknown: bool = False) -> np.ndarray:
    equal: np.ndarray = np.asarray(pc.fill_null(pc.equal(then, now), unknown))
    return equal


def is_in(paths: pa.StringArray, others: pa.StringArray) -> np.ndarray:
    """Whether each path is one of others."""
    found: np.ndarray = np.asarray(pc.is_in(paths, value_set=others))
    return found


@contextmanager
def naming_replaced(storage: Storage, listing: Listing) -> Iterator[None]:
    """Raise `CommitConflict` in place of an error about a file that other programs replaced since it was listed.

    Any other `CorruptFile` gets the advice to move such files away.
    """
    try:
        yield
    except (CorruptFile, FileNotFoundError) as error:
        if only(data_files(storage), listing.path.to_pylist()) == listing:
            if isinstance(error, CorruptFile):
                raise CorruptFile(f"{error} zskip doctor names every such file: move them away.") from error
            raise
        raise CommitConflict(f"{storage.uri}: other programs changed files while they were read. ({error})") from error


def only(listing: Listing, paths: Sequence[str]) -> Listing:
    """The entries of a listing with these paths."""
    return listing.take(np.flatnonzero(is_in(listing.path, pa.array(paths, pa.string()))))


# Files that other programs put into the folder of a table that zskip wrote: no version holds their rows.


def outside_other_tables(listing: Listing, everything: pa.StringArray) -> Listing:
    """The files that are not in a folder of another table. ``everything``: all paths in the storage."""
    for folder in {folder for folder, _ in folders_with_logs(everything)} - {""}:
        listing = listing.take(~np.asarray(pc.starts_with(listing.path, folder)))
    return listing


def dropped_files(storage: Storage, snapshot: Snapshot) -> Listing:
    """The Parquet files of a folder that are neither zskip's own nor files that `cluster` replaced.

    A file that `cluster` replaced and that has changed since is among them. Empty, without a listing, for a folder that
    zskip only indexes: its plans read new files.
    """
    if not snapshot.managed:
        return Listing.of([])
    everything = storage.list("")
    found = everything.visible().parquet()
    found = found.take(~np.asarray(pc.match_substring_regex(found.path, DATA_FILE)))
    found = outside_other_tables(found, everything.path)
    return found.take(~_replaced_by_cluster(storage, found, by="time"))


def copies_of_replaced(storage: Storage, dropped: Listing) -> Listing:
    """The dropped files with the names and sizes of files that `cluster` replaced, as in a copy of the folder that does
    not keep its times. Raises `DamagedIndex` for an old version that cannot be read, and may name them."""
    return dropped.take(_replaced_by_cluster(storage, dropped, by="size"))


def _replaced_by_cluster(storage: Storage, listing: Listing, *, by: Literal["size", "time"]) -> np.ndarray:
    """Whether each file is one that `cluster` replaced, and unchanged."""
    found = np.zeros(len(listing), bool)
    for then in _replaced(storage, [DamagedIndex] if by == "time" else []) if len(listing) else ():
        found |= is_in(listing.path, then.path.filter(unchanged(storage, then, listing, by=by)))
    return found


# Files that cluster replaced, and that a vacuum left since they had changed, when it expired the version of them.
_LEFT = "_zskip/replaced"


def _replaced(storage: Storage, ignored: Sequence[type[Exception]]) -> Iterator[Listing]:
    for version in reversed(log.versions(storage)):
        with suppress(*ignored):  # reports go on without what an old version named that cannot be read
            yield replaced_after(storage, version)
    for name in storage.names(_LEFT):
        yield _remembered(storage, f"{_LEFT}/{name}")


def replaced_after(storage: Storage, version: int) -> Listing:
    """The files that `cluster` replaced when it made the next version, as this one recorded them. Raises
    `DamagedIndex`.

    Other versions that only indexed the folder may name files that came after that.
    """
    snapshot = log.read_entry(storage, version)
    if snapshot is None or snapshot.managed:
        return Listing.of([])
    after = log.read_entry(storage, version + 1)
    by_cluster = after is not None and after.operation == "cluster"
    return files_of_others(Index(storage, snapshot)) if by_cluster else Listing.of([])


def files_of_others(index: Index) -> Listing:
    """The files of a folder that is only indexed, as they were recorded; none where statistics were given, which are
    trusted."""
    trusted = index.snapshot.managed or index.snapshot.details.get("source") == "statistics"
    return Listing.of([]) if trusted else _recorded(index)


def remember_replaced(storage: Storage, commit_id: str, left: Listing) -> None:
    """Record files that `cluster` replaced and that stay, before the commit of a vacuum, which forgets them.

    If that commit is not made, what its file says is still true.
    """
    if len(left):
        rows = json.dumps([*left.rows()]).encode()
        storage.put(f"{_LEFT}/{commit_id}.json", xxhash.xxh3_128_hexdigest(rows).encode() + b"\n" + rows)


def _remembered(storage: Storage, path: str) -> Listing:
    digest, _, rows = storage.read(path).partition(b"\n")
    if xxhash.xxh3_128_hexdigest(rows).encode() != digest:
        raise DamagedIndex(f"The list of replaced files {storage.uri_of(path)} fails its checksum. Put back a copy.")
    return Listing.of(map(tuple, json.loads(rows)))


def dropped_text(count: int) -> str:
    """What the reports say of dropped files.

    >>> dropped_text(2)
    '2 files that other programs put into the folder are not part of the table: adopt() appends and removes them'
    """
    files = (
        "1 file that other programs put into the folder is"
        if count == 1
        else (f"{count:,} files that other programs put into the folder are")
    )
    return f"{files} not part of the table: adopt() appends and removes {'it' if count == 1 else 'them'}"
