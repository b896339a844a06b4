"""Derives the shards of a version from those of the version before: removes files, and merges small shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.stats import DataFiles
from zskip.tablelog.index import Index
from zskip.tablelog.parts import Drafts
from zskip.tablelog.shards import FILES_PER_SHARD, write_shards
from zskip.tablelog.snapshot import Shard, Snapshot

__all__ = ["merged", "without"]

_FANOUT, _SMALL = 8, FILES_PER_SHARD // 2


def without(drafts: Drafts, snapshot: Snapshot, paths: Sequence[str]) -> tuple[tuple[Shard, ...], int]:
    """A snapshot's shards without some files, and how many of these it had. Shards without any are not rewritten."""
    gone = pa.array(sorted(set(paths)), pa.string())
    if not len(gone):
        return snapshot.shards, 0
    index = Index(drafts.storage, snapshot)
    kept: list[Shard] = []
    found = 0
    for number, shard in enumerate(snapshot.shards):
        hit = pc.is_in(index.shard_paths(number), gone).to_numpy(zero_copy_only=False)
        found += int(hit.sum())
        if not hit.any():
            kept.append(shard)
        elif not hit.all():
            kept.extend(_written(drafts, index.data_files([number]).take(np.flatnonzero(~hit)), snapshot))
    return tuple(kept), found


def merged(drafts: Drafts, snapshot: Snapshot) -> Snapshot:
    """The same files in fewer shards: eight shards of similar size are merged into one.

    So any number of small commits leaves few shards, and rewrites each file's statistics only a few times
    (O'Neil 1996, the log-structured merge-tree).
    """
    while (crowd := _crowd(snapshot.shards)) is not None:
        one = _written(drafts, Index(drafts.storage, snapshot).data_files(crowd), snapshot)
        rest = [shard for number, shard in enumerate(snapshot.shards) if number not in crowd]
        position = crowd[-1] + 1 - len(crowd)
        snapshot = replace(snapshot, shards=(*rest[:position], *one, *rest[position:]))
    return snapshot


def _written(drafts: Drafts, files: DataFiles, snapshot: Snapshot) -> tuple[Shard, ...]:
    first = () if snapshot.layout is None else snapshot.layout.columns
    return write_shards(drafts, files, snapshot.schema, snapshot.version, first, snapshot.partition_by)


def _crowd(shards: Sequence[Shard]) -> list[int] | None:
    """The numbers of the first `_FANOUT` small shards of one size class; None if no class has as many."""
    levels: dict[int, list[int]] = {}
    for number, shard in enumerate(shards):
        if shard.totals.files < _SMALL:
            level = levels.setdefault((max(shard.totals.files, 1).bit_length() - 1) // 3, [])
            level.append(number)
            if len(level) == _FANOUT:
                return level
    return None
