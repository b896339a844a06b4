"""Tend: the maintenance that is due, in steps within a budget: index, sketches, small files, joins, vacuum."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np

from zskip.core.option_checks import size_text
from zskip.core.receipts import Optimized, Refreshed, Sketched, Step, Tended, Vacuumed
from zskip.errors import CommitConflict, InvalidOption, amount
from zskip.storage import Storage
from zskip.table_formats.locate import stale_by_dimension
from zskip.tablelog import freshness, indexing, log, vacuum
from zskip.tablelog.index import Index
from zskip.tablelog.sketch_evidence import sketches_of
from zskip.tablelog.snapshot import Snapshot
from zskip.writer.backend import LOCAL, Backend
from zskip.writer.compaction import compact
from zskip.writer.options import WriteOptions
from zskip.writer.refresh_joins import refresh_joins
from zskip.writer.sketching import complete_sketches

_ATTEMPTS = 3
_WORTH_SAYING = 0.1
_OTHERS = "other writers changed the same files meanwhile; the next run goes on"


@dataclass(frozen=True, slots=True)
class _Budget:
    """The limits of one tend. ``max_seconds``: no step and no group of files is begun later · ``max_bytes``: the most
    bytes that optimize rewrites."""

    max_seconds: float | None
    max_bytes: int | None
    start: float = field(default_factory=time.monotonic)

    @property
    def until(self) -> float | None:
        return None if self.max_seconds is None else self.start + self.max_seconds

    @property
    def over(self) -> bool:
        return self.until is not None and time.monotonic() >= self.until

    @property
    def spent(self) -> float:
        return time.monotonic() - self.start


def tend(
    storage: Storage,
    options: WriteOptions,
    *,
    max_seconds: float | None = None,
    max_bytes: int | None = None,
    older_than: timedelta,
    dry_run: bool = False,
    backend: Backend = LOCAL,
) -> Tended:
    """Refresh the index of a folder of others' files, complete the sketches, optimize, refresh the attributes of
    dimensions, and vacuum, in this order.

    A step that does not begin within ``max_seconds`` is left for the next run, and so are files beyond ``max_bytes``.
    If other writers change the same files in the meantime, the step is repeated, and after three attempts left for the
    next run. Any other error of a step is raised.
    """
    budget = _Budget(max_seconds, max_bytes)
    managed = log.load(storage).managed
    steps: list[Step] = []

    def add(name: str, work: Callable[[], Step]) -> None:
        steps.append(_over(name, budget) if budget.over else _repeated(name, work))

    if not managed:
        add("refresh", lambda: _refresh(storage, dry_run))
    add("sketches", lambda: _sketches(storage, options, dry_run, backend))
    if managed:
        steps += _dropped(storage)
        add("optimize", lambda: _optimize(storage, options, budget, dry_run, backend))
        if log.load(storage).dimensions:
            add("joins", lambda: _joins(storage, options, dry_run))
    add("vacuum", lambda: _vacuum(storage, older_than, dry_run))
    return Tended(log.latest_version(storage), tuple(steps), budget.spent, dry_run)


def _over(name: str, budget: _Budget) -> Step:
    return Step(name, "did not begin", f"the {budget.max_seconds:g} seconds were over")


def _repeated(name: str, work: Callable[[], Step]) -> Step:
    """Run a step, repeated while other writers commit first."""
    for _ in range(_ATTEMPTS):
        try:
            return work()
        except CommitConflict:
            continue
    return Step(name, "changed nothing", _OTHERS)


def _refresh(storage: Storage, dry_run: bool) -> Step:
    index = Index(storage, log.load(storage))
    found = freshness.changes(index)
    counts = f"{len(found.added)} new, {len(found.changed)} changed and {len(found.removed)} removed files"
    if not found:
        return Step("refresh", "nothing was due")
    if dry_run:
        return Step("refresh", f"would index {counts}")
    newest = indexing.refresh(index, found=found)
    receipt = Refreshed(newest.version, index.version, 0, len(found.added), len(found.changed), len(found.removed))
    return Step("refresh", f"indexed {counts}", receipt=receipt)


def _dropped(storage: Storage) -> list[Step]:
    """A step that names files of other programs in the folder, if there are any: whether to adopt them is not its."""
    found = len(freshness.dropped_files(storage, log.load(storage)))
    return [Step("adopt", "changed nothing", freshness.dropped_text(found))] if found else []


def _sketches(storage: Storage, options: WriteOptions, dry_run: bool, backend: Backend) -> Step:
    base = log.load(storage)
    lacking = _files_without_sketches(storage, base)
    if not lacking:
        return Step("sketches", "nothing was due")
    if dry_run:
        return Step("sketches", f"would complete them for {amount(lacking, 'file')}")
    snapshot = complete_sketches(storage, base, options, backend=backend)[0]
    names = tuple(f"{sketch.name.kind} of {sketch.name.column}" for sketch in snapshot.sketches)
    return Step("sketches", f"completed them for {amount(lacking, 'file')}", receipt=Sketched(snapshot.version, names))


def _files_without_sketches(storage: Storage, snapshot: Snapshot) -> int:
    """The number of files that some sketch of the table does not cover."""
    index = Index(storage, snapshot)
    known, unknown = sketches_of(index), np.zeros(len(index), bool)
    for record in snapshot.sketches:
        unknown |= ~known.knows(record)
    return int(unknown.sum())


def _optimize(storage: Storage, options: WriteOptions, budget: _Budget, dry_run: bool, backend: Backend) -> Step:
    base = log.load(storage)
    due = compact.optimize(storage, base, options, dry_run=True, backend=backend)[1]
    most = budget.max_bytes
    try:
        done = compact.optimize(
            storage, base, options, dry_run=dry_run, max_bytes=most, until=budget.until, backend=backend
        )[1]
    except InvalidOption as error:  # Not of the options, which the dry run has taken: of a dimension that is lost.
        return Step("optimize", "changed nothing", str(error))
    files, size = due.files_rewritten - done.files_rewritten, due.bytes_rewritten - done.bytes_rewritten
    left = None
    if files > 0:
        why = f"the {budget.max_seconds:g} seconds were over" if budget.over else f"max_bytes is {size_text(most or 0)}"
        if not budget.over and done.files_left:
            why = _OTHERS
        left = f"{amount(files, 'file')} ({size_text(size)}), since {why}"
    return Step("optimize", _rewritten(done), left, done)


def _joins(storage: Storage, options: WriteOptions, dry_run: bool) -> Step:
    base = log.load(storage)
    found = stale_by_dimension(Index(storage, base)).values()
    stale = max(each or 0 for each in found)
    if not stale and (dry_run or None not in found):
        return Step("joins", "nothing was due")
    if dry_run:
        return Step("joins", f"would refresh the attributes of at least {amount(stale, 'file')}")
    receipt = refresh_joins(storage, base, options)[1]
    what = "; ".join([f"refreshed the attributes of {amount(receipt.files, 'file')}", *receipt.unjoined])
    return Step("joins", what, receipt=receipt)


def _rewritten(done: Optimized) -> str:
    what = f"{amount(done.files_rewritten, 'file')} ({size_text(done.bytes_rewritten)})"
    if done.dry_run and done.files_rewritten:
        return f"would rewrite {what}"
    if not done.files_rewritten and done.sketches_merged:
        parts = f"the parts of {done.sketches_merged} sketch{'' if done.sketches_merged == 1 else 'es'}"
        return f"{'would merge' if done.dry_run else 'merged'} {parts}"
    if not done.files_rewritten:
        return "nothing was rewritten" if done.files_left else "nothing was due"
    if done.files_after is None or done.skipped_after is None:
        return f"rewrote {what}"
    made = done.files_after - done.files_before + done.files_rewritten
    skips = f"a look-up skips {done.skipped_after:.1%} of the rows, {done.skipped_before:.1%} before"
    further = f"; full=True would read {done.full_saves:.0%} less" if done.full_saves >= _WORTH_SAYING else ""
    return f"rewrote {what} as {made}; {skips}{further}"


def _vacuum(storage: Storage, older_than: timedelta, dry_run: bool) -> Step:
    done: Vacuumed = vacuum.vacuum(storage, older_than=older_than, dry_run=dry_run)
    if not done.paths and not done.versions:
        return Step("vacuum", "nothing was due", receipt=done)
    what = f"{amount(len(done.paths), 'file')} ({size_text(done.bytes)}) and {len(done.versions)} versions"
    return Step("vacuum", f"{'would remove' if dry_run else 'removed'} {what}", receipt=done)
