"""Receipts: what a verb that changed a table has done, each with the table's version after it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "Appended",
    "Clustered",
    "Deleted",
    "Optimized",
    "Overwritten",
    "Receipt",
    "Refreshed",
    "Repaired",
    "Restored",
    "Sketched",
    "Step",
    "Tended",
    "Vacuumed",
]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What every receipt has. ``version``: the table's after the change; where nothing was to be done, as before."""

    version: int


@dataclass(frozen=True, slots=True)
class Appended(Receipt):
    """How many rows, files and bytes an append added."""

    rows: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Overwritten(Receipt):
    """How many rows, files and bytes the table has after an overwrite."""

    rows: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Deleted(Receipt):
    """The result of a delete. Files whose rows all matched were dropped unread, those with some were rewritten."""

    rows: int
    files_dropped: int
    files_rewritten: int
    rewritten: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Optimized(Receipt):
    """What an optimize did, or with ``dry_run`` would do.

    ``files_rewritten`` and ``bytes_rewritten``: what was read and replaced · ``files_before`` and ``files_after``: of
    the whole table · ``depth_…``: files that a look-up reads, averaged over the clustering columns · ``skipped_…``:
    the share of rows that a look-up skips. What comes after is None in a dry run, and where it cannot be read ·
    ``files_left``: that were to be rewritten, and were left: others changed their groups meanwhile, or time was up.
    """

    files_rewritten: int
    bytes_rewritten: int
    files_before: int
    files_after: int | None
    depth_before: float
    depth_after: float | None
    skipped_before: float
    skipped_after: float | None
    dry_run: bool
    files_left: int = 0


@dataclass(frozen=True, slots=True)
class Clustered(Receipt):
    """What `cluster` did, or in a dry run would do. ``version``: of a table of another format, the format's own.

    ``files_rewritten``, ``bytes_rewritten``: of the table's files, how many were read and replaced · ``files_written``:
    by how many, None in a dry run.
    """

    files_rewritten: int
    bytes_rewritten: int
    files_written: int | None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Restored(Receipt):
    """``restored``: the version that the table is as again."""

    restored: int


@dataclass(frozen=True, slots=True)
class Refreshed(Receipt):
    """``before``: the version that the table had until now, the same where nothing had changed."""

    before: int


@dataclass(frozen=True, slots=True)
class Sketched(Receipt):
    """``sketches``: those that the table has now, each a kind and a column, as "values of uid"."""

    sketches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Vacuumed(Receipt):
    """The result of a vacuum, or of its dry run: removed files, their bytes, and removed versions."""

    paths: tuple[str, ...]
    bytes: int
    versions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a tend. ``done``: what it did, in words · ``left``: what is still due, and why; None where nothing is
    · ``receipt``: of the verb, None where it did not run."""

    name: str
    done: str
    left: str | None = None
    receipt: Receipt | None = None


@dataclass(frozen=True, slots=True)
class Tended(Receipt):
    """What a tend did, or with ``dry_run`` would do. ``steps``: in their order · ``seconds``: what they took."""

    steps: tuple[Step, ...]
    seconds: float
    dry_run: bool

    def __str__(self) -> str:
        lines = []
        for step in self.steps:
            lines.append(f"{step.name:<9} {step.done}")
            if step.left is not None:
                lines.append(f"{'':<9} left: {step.left}")
        return "\n".join([*lines, f"version {self.version}, after {self.seconds:.1f} seconds"])


@dataclass(frozen=True, slots=True)
class Repaired(Receipt):
    """What a repair did. ``parts``: those that were lost, by path.

    ``went_back_to``: the version that the table is again, where the newest entry was lost; else None. ``layout_lost``:
    whether appends no longer know how the rows are laid out.
    """

    parts: tuple[str, ...]
    went_back_to: int | None
    layout_lost: bool
