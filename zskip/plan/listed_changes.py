"""What a listing of someone else's folder finds, as a plan takes it."""

from __future__ import annotations

import pyarrow.compute as pc

from zskip import tablelog
from zskip.plan.survivors import Changes
from zskip.tablelog import Index

__all__ = ["listed"]


def listed(index: Index) -> Changes | None:
    """List the folder of a table whose files may change, and compare it with the index; None where nothing can differ.

    Files that zskip wrote never change, statistics that were handed over are trusted, and the files of a Delta or
    Iceberg table are those of its log: none of these is listed.
    """
    if index.snapshot.managed or index.source or index.snapshot.details.get("source") == "statistics":
        return None
    found = tablelog.changes(index)
    again = index.recorded_paths(found.changed)
    place = pc.index_in(again, value_set=found.listing.path)
    return Changes(
        new=found.added.path,
        new_size=found.added.size,
        changed=again,
        changed_size=found.listing.size.take(place),
        gone=index.recorded_paths(found.removed),
    )
