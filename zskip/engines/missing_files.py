"""Files that disappear between a plan and its reading: turn an engine's error into one that names them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from zskip.errors import TableNotFound, ZskipError
from zskip.tablelog import latest_version

if TYPE_CHECKING:
    from zskip.scan import Scan

__all__ = ["naming_what_is_gone"]


@contextmanager
def naming_what_is_gone(*scans: Scan) -> Iterator[None]:
    """Raise `TableNotFound`, with what helps, in place of an engine's error about scans whose files are gone."""
    import duckdb

    try:
        yield
    except ZskipError:
        raise
    except (duckdb.Error, OSError) as error:
        for scan in scans:
            if message := _gone(scan):
                raise TableNotFound(message) from error
        raise


def _gone(scan: Scan) -> str | None:
    """What to say of the scan's files that are gone; None where all are there."""
    storage, version = scan.storage, scan.version
    listed = storage.size_and_modified(scan.relative_paths)
    gone = listed.path.filter(pc.is_null(listed.size))
    if not len(gone):
        return None
    what = f"{len(gone):,} of the {len(scan):,} files that were planned of {storage.uri} are gone, such as {gone[0]}. "
    if not scan.managed:
        return what + "The folder has changed since: plan again, and refresh() takes the change into the index."
    newest = latest_version(storage)
    if newest > version:
        return (
            f"{what}They are of version {version}, and the table is at version {newest} by now: vacuum removes what "
            f'only replaced versions name. Open it again with zskip.open("{storage.uri}"), and plan anew; '
            "vacuum(older_than=…) says for how long replaced versions stay."
        )
    return (
        f"{what}Version {version} is the newest, and no verb of zskip removes what it names. Put them back; verify() "
        "names all that cannot be read, and restore(version) goes back to a version whose files are there."
    )
