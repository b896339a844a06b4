"""Check that the files of a version exist, and that no vacuum is about to remove them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc

from zskip.errors import CommitConflict, DamagedIndex, FilesRemoved, TableNotFound, UncertainCommit
from zskip.storage.storage import Listing, Storage
from zskip.tablelog import log
from zskip.tablelog.index import Index
from zskip.tablelog.snapshot import Snapshot
from zskip.tablelog.vacuum_intent import intents

__all__ = ["naming_vacuums", "require_files", "require_kept"]

_FEW = 64


def require_files(storage: Storage, snapshot: Snapshot, listed: pa.StringArray | None = None) -> None:
    """Raise `TableNotFound` if a file of a snapshot is gone, `DamagedIndex` if its statistics are.

    ``listed``: the paths of all files in the storage, listed after the snapshot was read; None: list them here.
    """
    index = Index(storage, snapshot)
    names = [index.shard_paths(shard) for shard in range(len(snapshot.shards))]
    known = pa.concat_arrays([*names, pa.array([part.path for part in snapshot.parts], pa.string())])
    present = storage.list("").path if listed is None else listed
    gone = known.filter(pc.invert(pc.is_in(known, value_set=present)))
    if len(gone):
        raise TableNotFound(
            f"Version {snapshot.version} of {storage.uri} needs {len(gone):,} of {len(known):,} files that are gone: "
            f"{_shown(gone)}. Put them back, or choose a later version."
        )


@contextmanager
def naming_vacuums(storage: Storage, snapshot: Snapshot) -> Iterator[None]:
    """Raise `FilesRemoved` in place of errors about files or parts that a vacuum removed.

    The version has expired since, or it is the newest version and its writer has not finished.
    """
    try:
        yield
    except (CommitConflict, UncertainCommit):
        raise
    except OSError as error:
        if log.read_entry(storage, snapshot.version) is None:
            raise FilesRemoved(
                f"{storage.uri}: a vacuum removed version {snapshot.version} while a change was based on it. Repeat "
                f"the change. The vacuum's older_than has to be longer than a change takes. ({error})"
            ) from error
        newest, hint = log.latest_version(storage), log.hinted(storage)
        # A writer writes the hint after it has checked that its files are there.
        if isinstance(error, DamagedIndex) and hint is not None and newest > hint:
            raise FilesRemoved(
                f"{storage.uri}: version {newest} cannot be read, and its writer has not finished. If a vacuum removed "
                f"its files while it was suspended, it takes the version back as soon as it goes on: repeat the change "
                f"then. If it was killed: restore(version={newest - 1}). ({error})"
            ) from error
        raise


def require_kept(storage: Storage, fresh: Sequence[str], candidate: Snapshot | None, restored: Snapshot | None) -> None:
    """Raise `FilesRemoved` if a new file of a commit is gone, or a vacuum is about to remove it.

    ``fresh``: the paths of files that no earlier version has · ``candidate``: the version being committed, if it
    restores the files of ``restored``, an older version that may have expired.
    """
    # Intents are read before the files: if a vacuum ends in between, its files are missing by then.
    pending = intents(storage)
    status = _status(storage, fresh)
    gone = status.path.filter(pc.is_null(status.size))
    if len(gone):
        raise FilesRemoved(
            f"{storage.uri}: a vacuum removed {len(gone):,} files before they were committed: {_shown(gone)}. "
            "The write took longer than the vacuum's time."
        )
    if restored is not None and candidate is not None:
        try:
            require_files(storage, candidate)
        except (TableNotFound, DamagedIndex) as error:
            raise FilesRemoved(
                f"{storage.uri}: a vacuum removed files of version {restored.version} while it was restored: {error}"
            ) from error
    for intent in pending:
        old = status.path.filter(pc.less_equal(status.modified, intent.horizon))
        if len(old) or (restored is not None and restored.version < intent.kept_from):
            what = _shown(old) if restored is None else f"version {restored.version}"
            raise FilesRemoved(
                f"{storage.uri}: a vacuum in progress removes {what}. If none is running, one was aborted: "
                f"remove {intent.path}."
            )


def _status(storage: Storage, paths: Sequence[str]) -> Listing:
    """The size and time of some files; null for those that are gone."""
    if len(paths) <= _FEW or storage.local is not None:
        return storage.size_and_modified(paths)
    # Listing a thousand files costs as much as asking for one by name.
    listing = storage.list("")
    wanted = pa.array(sorted(paths), pa.string())
    positions = pc.index_in(wanted, value_set=listing.path)
    return Listing(wanted, *(column.take(positions) for column in (listing.size, listing.modified, listing.etag)))


def _shown(paths: pa.StringArray) -> str:
    return ", ".join(paths.slice(0, 3).to_pylist()) + (", …" if len(paths) > 3 else "")
