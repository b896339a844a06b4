"""`ShardIds`: finds the shards that may hold files with given ids, by the ranges of ids that a snapshot records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zskip.tablelog.sketches.pairs import Coverage
from zskip.tablelog.snapshot import Shard

__all__ = ["ShardIds"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ShardIds:
    """The ranges of ids of all shards, from ``first`` to below ``end``, each with the number of its ``shard``.

    ``unrecorded``: the shards for which the snapshot records no ids.
    """

    first: Ints
    end: Ints
    shard: Ints
    unrecorded: Ints

    @staticmethod
    def of(shards: Sequence[Shard]) -> ShardIds:
        """The ranges of a snapshot's shards."""
        runs = [(*run, number) for number, shard in enumerate(shards) for run in shard.ids]
        first, count, owner = np.array(runs, np.int64).reshape(-1, 3).T
        unrecorded = np.array([number for number, shard in enumerate(shards) if not shard.ids], np.int64)
        return ShardIds(first, first + count, owner, unrecorded)

    def holding(self, ids: Ints) -> Ints:
        """The shards that may hold a file of one of these ids, ascending."""
        ordered = np.sort(ids)
        hit = np.searchsorted(ordered, self.end) > np.searchsorted(ordered, self.first)
        return np.union1d(self.shard[hit], self.unrecorded)

    def beyond(self, covered: Coverage) -> Ints:
        """The shards that may hold a file whose id is not covered, ascending."""
        return np.union1d(self.shard[~covered.holds(self.first, self.end)], self.unrecorded)
