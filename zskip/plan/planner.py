"""Planning: prune shards, then the files of the shards that are left, then the row groups of the files that are left.

Each level is pruned by the same evaluation over arrays, so the cost of a selective plan depends on what is left and not
on the size of the table. Each level holds small materialized aggregates (Moerkotte 1998) of the one below.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow.compute as pc

from zskip.binder.bind_condition import bind_again
from zskip.core.schema import Schema
from zskip.language import Predicate
from zskip.plan.plan import Plan
from zskip.plan.scan import Groups
from zskip.plan.survivors import FEW_FILES, Survivors, surviving_groups
from zskip.pruning import Budget, candidates, outcomes
from zskip.tablelog.freshness import Changes
from zskip.tablelog.index import FileUnits, Index
from zskip.tablelog.query_log import Asked
from zskip.tablelog.sketch_evidence import sketches_of

_SHARDS_AT_ONCE = 16
"""260,000 files are evaluated at a time: enough to amortise the cost of a call, few enough for the caches of a CPU."""

_MANY_FILES, _LEAST_SAVING = 1 << 12, 8
"""Files from which it pays to ask sketches first, and the factor by which these must reduce the files."""


def plan(index: Index, predicate: Predicate | None, *, changes: Changes | None = None) -> Plan:
    """The `Plan` of a predicate over an index: the result of `find_survivors` for users."""
    return Plan(find_survivors(index, predicate, changes=changes))


def find_survivors(
    index: Index, predicate: Predicate | None, *, changes: Changes | None = None, few_as_whole: bool = False
) -> Survivors:
    """The files and row groups that may hold a row for which the predicate is TRUE; all of them if it is None.

    ``changes``: the differences between a listing and the index. New and changed files are kept, since nothing is known
    of them; files that are gone are left out · ``few_as_whole``: for an engine that skips row groups itself, leave the
    row groups of a few local files to it. Raises `SqlError` if the predicate was bound to another table and this table
    lacks its columns.
    """
    if predicate is None:
        return Survivors.of_all(index, changes)
    predicate = _bound_to(predicate, index.snapshot.schema)
    columns = sorted(predicate.columns)
    budget = Budget()
    shards = _surviving_shards(index, predicate, columns, budget)
    files, all_match = _surviving_files(index, predicate, columns, shards, budget)
    few = few_as_whole and len(files) <= FEW_FILES and index.storage.local is not None
    groups = None if few else _surviving_groups(index, predicate, columns, files[~all_match], budget)
    if groups is None:
        return Survivors(index, predicate, files, all_match, changes=changes).without_stale()
    alive = all_match | np.isin(files, groups.file)
    return Survivors(index, predicate, files[alive], all_match[alive], groups, changes).without_stale()


def kept_survivors(
    index: Index, predicate: Predicate | None, *, changes: Changes | None = None, few_as_whole: bool = False
) -> Survivors:
    """The result of `find_survivors` for a predicate bound to the table's columns, cached if there are no changes."""
    if predicate is None:
        return Survivors.of_all(index, changes or None)
    if changes:
        return logged(find_survivors(index, predicate, changes=changes, few_as_whole=few_as_whole))
    meaning = predicate.sql() or predicate, predicate.dialect, few_as_whole
    return logged(
        index.once(
            ("survivors", meaning),
            lambda: find_survivors(index, predicate, few_as_whole=few_as_whole),
        )
    )


def logged(survivors: Survivors) -> Survivors:
    """What a reader asked for, entered into the table's query log if that is on."""
    predicate, index = survivors.predicate, survivors.index
    if predicate is None or not index.query_log.is_on:
        return survivors
    text = predicate.sql("duckdb")
    if text is not None and len(index):
        rows = np.asarray(pc.fill_null(index.row_counts(survivors.numbers), 0)).sum()
        share = float(rows) / max(index.snapshot.totals.rows or 0, 1)
        columns, kept, matched = sorted(predicate.columns), len(survivors.numbers), int(survivors.all_match.sum())
        index.query_log.add(Asked(text, columns, len(index), kept, matched, min(share, 1.0)))
    return survivors


def _bound_to(predicate: Predicate, schema: Schema) -> Predicate:
    """The predicate, bound again if it was bound to columns of other types, to which its constants were fitted."""
    if predicate.schema is schema or predicate.schema.columns.items() <= schema.columns.items():
        return predicate
    return bind_again(predicate, schema)


def _surviving_shards(index: Index, predicate: Predicate, columns: list[str], budget: Budget) -> np.ndarray:
    """The numbers of the shards that may hold a match. A single shard is not tested: its files are tested anyway."""
    if len(index.snapshot.shards) < 2:
        return np.arange(len(index.snapshot.shards))
    return np.flatnonzero(outcomes(predicate, index.shards(columns), budget=budget).may_match)


def _surviving_files(
    index: Index, predicate: Predicate, columns: list[str], shards: np.ndarray, budget: Budget
) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the files of these shards that may hold a match, and whether all rows of each match."""
    kept, sketches = [(np.zeros(0, np.int64), np.zeros(0, bool))], sketches_of(index)
    for units in _files_to_judge(index, predicate, columns, shards):
        found = outcomes(predicate, units.statistics, sketches.evidence(units.numbers, columns), budget=budget)
        may_match = np.flatnonzero(found.may_match)
        kept.append((units.numbers[may_match], found.all_match[may_match]))
    numbers, all_match = zip(*kept, strict=True)
    return np.concatenate(numbers), np.concatenate(all_match)


def _files_to_judge(index: Index, predicate: Predicate, columns: list[str], shards: np.ndarray) -> Iterator[FileUnits]:
    """The files of some shards; of many files, only those that sketches leave, if these are few."""
    first, end = index.first_file[shards], index.first_file[shards + 1]
    count = int((end - first).sum())
    if count >= _MANY_FILES:
        named = candidates(predicate, sketches_of(index))
        if named is not None and len(named) <= count // _LEAST_SAVING:
            shard = np.searchsorted(index.first_file, named, "right") - 1
            yield index.files_at(named[np.isin(shard, shards)], columns)
            return
    for start in range(0, len(shards), _SHARDS_AT_ONCE):
        yield index.files(shards[start : start + _SHARDS_AT_ONCE], columns)


def _surviving_groups(
    index: Index, predicate: Predicate, columns: list[str], files: np.ndarray, budget: Budget
) -> Groups | None:
    """The row groups of some files that may hold a match; None if row groups have no statistics of their own."""
    if not len(files) or not index.has_row_groups:
        return None
    units = index.row_groups(files, columns)
    found = outcomes(predicate, units.statistics, sketches_of(index).evidence(units.file, columns), budget=budget)
    return surviving_groups(units, found.may_match, found.all_match)
