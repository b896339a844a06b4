"""Files that went away between a plan and its reading: an engine says only that it finds none of such a name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from zskip.errors import TableNotFound, ZskipError
from zskip.tablelog import latest_version

if TYPE_CHECKING:
    from zskip.plan import Plan

__all__ = ["naming_what_is_gone"]


@contextmanager
def naming_what_is_gone(*plans: Plan) -> Iterator[None]:
    """Raise `TableNotFound`, with what helps, in place of an engine's error about plans whose files are gone."""
    import duckdb

    try:
        yield
    except ZskipError:
        raise
    except (duckdb.Error, OSError) as error:
        for plan in plans:
            if said := _gone(plan):
                raise TableNotFound(said) from error
        raise


def _gone(plan: Plan) -> str | None:
    """What to say of the plan's files that are gone; None where all are there."""
    storage, version = plan.index.storage, plan.snapshot.version
    listed = storage.size_and_modified(plan.relative_paths.to_pylist())
    gone = listed.path.filter(pc.is_null(listed.size))
    if not len(gone):
        return None
    what = f"{len(gone):,} of the {len(plan):,} files that were planned of {storage.uri} are gone, such as {gone[0]}. "
    if not plan.snapshot.managed:
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
