"""Cut the rows of files that are rewritten together into new files.

    the table's tree ──▶ slot ─┬─ its large files join ──▶ a fit to the slot's own rows: several smaller boxes
                               └─ the rest of the group ──▶ a fit per slot or one fit to all, whichever reads less

The table's own tree stays, for later appends. A fit to the rows themselves is better if they lie outside the range to
which the tree was fitted, or if they are too few for a file in each slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip import layouts
from zskip.core.schema import Schema
from zskip.layouts import Assignment
from zskip.writer.compaction.choose import Group
from zskip.writer.compaction.rewrite_cost import cut_small, parts_of
from zskip.writer.compaction.splice import Trunk, spliced
from zskip.writer.file_groups import LEAST_FILL
from zskip.writer.options import WriteOptions
from zskip.writer.routing import Routing, partition_numbers, weights_of

__all__ = ["Recut", "recut"]

_LEAST_WEIGHT = 1 / 64  # of the column that weighs most


@dataclass(frozen=True, slots=True)
class Recut:
    """The routing of the rows, and for each new file the first and last slot of the table's layout, for its name."""

    routing: Routing
    slots: list[tuple[int, int]]


def recut(
    trunks: Sequence[Trunk],
    routing: Routing,
    groups: Sequence[Group],
    sample: pa.Table,
    total: int,
    schema: Schema,
    options: WriteOptions,
    rows_per_file: int,
) -> Recut:
    """Fit a routing for the rows of some groups to a sample that represents ``total`` rows.

    ``trunks``: for each partition, the tree of the table's ``routing``.
    """
    keys, numbers = partition_numbers(sample, options.partition_by)
    by = [column.path for column in schema.orderable(options.by)]
    each = total / max(1, sample.num_rows)
    homes = np.array([routing.partition_of(group.slot) for group in groups])
    assignments: list[Assignment] = []
    slots: list[tuple[int, int]] = []
    cut = np.unique(homes).tolist()
    for partition in cut:
        key = routing.keys[partition]
        rows = np.flatnonzero(numbers == keys.index(key)) if key in keys else np.zeros(0, np.int64)
        in_partition = [groups[number] for number in np.flatnonzero(homes == partition).tolist()]
        first = int(routing.first_file[partition])
        cutting = _Cutting(sample.take(pa.array(rows)), each, by, options, rows_per_file, [], [], [])
        assignment = cutting.run(trunks[partition], [_moved(group, first) for group in in_partition])
        assignments.append(assignment)
        slots += [(one + first, last + first) for one, last in cutting.slots]
    kept = replace(routing, keys=tuple(routing.keys[one] for one in cut), assignments=tuple(assignments))
    return Recut(kept, slots)


def _moved(group: Group, first: int) -> Group:
    """The group with its slots numbered within its partition."""
    joined = {slot - first: weights for slot, weights in group.joined.items()}
    return replace(group, slot=group.slot - first, last=group.last - first, joined=joined)


@dataclass(frozen=True, slots=True)
class _Cutting:
    """The sampled rows of one partition, and the parts into which they are cut so far.

    ``each``: the number of rows that a sampled row represents · ``first``, ``slots``: as in `spliced` and `Recut`.
    """

    rows: pa.Table
    each: float
    by: list[str]
    options: WriteOptions
    rows_per_file: int
    parts: list[Assignment | None]
    first: list[int]
    slots: list[tuple[int, int]]

    def run(self, trunk: Trunk, groups: Sequence[Group]) -> Assignment:
        home = np.full(trunk.assignment.files, -1)
        # If groups are nested, a slot belongs to the narrowest one.
        for number in sorted(range(len(groups)), key=lambda one: groups[one].slot - groups[one].last):
            home[groups[number].slot : groups[number].last + 1] = number
        pruned = trunk.pruned(home >= 0)
        slot = pruned.assign(self.rows)
        order = np.argsort(slot, kind="stable")
        starts = np.searchsorted(slot[order], np.arange(len(home) + 1))
        part_of = np.full(len(home), -1, np.int64)
        for number, group in enumerate(groups):
            slots = np.flatnonzero(home == number)
            joined = np.array([one for one in slots.tolist() if one in group.joined], np.int64)
            for one in joined.tolist():
                chosen = order[starts[one] : starts[one + 1]]
                files = int(cut_small(self._full(len(chosen))))
                part_of[one] = self._add(self._fitted(chosen, files, group.joined[one]), one, one)
            rest = np.setdiff1d(slots, joined)
            if len(rest):
                within = [order[starts[one] : starts[one + 1]] for one in rest.tolist()]
                fit = self._cut_rest(group, rest, within, part_of)
                if fit is not None and len(groups) == 1 and not len(joined):
                    return fit
        return spliced(pruned, part_of, self.parts, self.first, len(self.slots))

    def _cut_rest(
        self, group: Group, rest: NDArray[np.int64], within: list[NDArray[np.intp]], part_of: NDArray[np.int64]
    ) -> Assignment | None:
        """Cut the rows of these slots. Returns the fit to all of them, or None if each slot gets its own fit."""
        chosen = np.concatenate(within)
        size = self._full(len(chosen))
        files = 1 if group.files == 1 else int(parts_of(np.array([size]), np.array([len(rest)]))[0])
        fit = self._fitted(chosen, files, group.weights)
        if 1 < len(rest) <= size / LEAST_FILL and files > 1:
            alone = [
                self._fitted(rows, max(1, int(self._full(len(rows)) + 0.5)), group.weights) if len(rows) else None
                for rows in within
            ]
            if self._cost(within, alone, group.weights) < self._cost([chosen], [fit], group.weights):
                for one, part in zip(rest.tolist(), alone, strict=True):
                    part_of[one] = self._add(part, one, one)
                return None
        part_of[rest] = self._add(fit, group.slot, group.last)
        return fit

    def _full(self, sampled: int) -> float:
        """The number of full files for ``sampled`` rows of the sample."""
        return sampled * self.each / self.rows_per_file

    def _add(self, part: Assignment | None, slot: int, last: int) -> int:
        self.parts.append(part)
        self.first.append(len(self.slots))
        self.slots.extend([(slot, last)] * (1 if part is None else part.files))
        return len(self.parts) - 1

    def _fitted(self, chosen: NDArray[np.intp], files: int, weights: Mapping[str, float]) -> Assignment:
        return layouts.fit(
            self.rows.take(pa.array(chosen)),
            self.by,
            layout=self.options.layout,
            files=files,
            weights=self._weights(weights),
            workload=self.options.workload,
            total_rows=round(len(chosen) * self.each),
        )

    def _cost(
        self, within: Sequence[NDArray[np.intp]], parts: Sequence[Assignment | None], weights: Mapping[str, float]
    ) -> float:
        """The share of these rows that a query is expected to read if each set of rows is cut by its part."""
        rows = self.rows.take(pa.array(np.concatenate(within)))
        numbers = np.concatenate(list(self._numbered(within, parts)))
        weighed, workload = self._weights(weights), self.options.workload
        return layouts.score(rows, numbers, self.by, weights=weighed, workload=workload).cost

    def _numbered(
        self, within: Sequence[NDArray[np.intp]], parts: Sequence[Assignment | None]
    ) -> Iterator[NDArray[np.int64]]:
        first = 0
        for chosen, part in zip(within, parts, strict=True):
            if part is None:
                yield np.full(len(chosen), first, np.int64)
            else:
                yield part.assign(self.rows.take(pa.array(chosen))) + first
            first += 1 if part is None else part.files

    def _weights(self, weights: Mapping[str, float]) -> list[float] | None:
        """The weights for a fit to a group's rows: the savings that a cut on each column makes possible."""
        options = self.options
        most = max(weights.values(), default=0.0)
        if options.workload is not None or not most or not set(weights) <= set(options.by):
            return weights_of(options.weights, options.by)
        # No column gets the weight 0: the files' ranges are only the hull of their rows.
        heavier = {column: max(weight, _LEAST_WEIGHT * most) for column, weight in weights.items()}
        return weights_of(heavier, options.by)
