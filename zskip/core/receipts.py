"""Receipts: the results of verbs that change a table, each with the version after it; `Version`: of its history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from html import escape
from typing import Any

_SHOWN_ELEMENTS = 3


@dataclass(frozen=True, slots=True)
class Receipt:
    """The base of all receipts. ``version``: of the table after the change; the previous one if nothing was changed."""

    version: int

    def __repr__(self) -> str:
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return f"{type(self).__name__}({', '.join(f'{name}={_shown(value)}' for name, value in values)})"

    def _repr_html_(self) -> str:
        values = ((field.name, _shown(getattr(self, field.name))) for field in fields(self))
        return f"<table>{''.join(f'<tr><th>{name}</th><td>{escape(text)}</td></tr>' for name, text in values)}</table>"


def _shown(value: object) -> str:
    """A value as receipts show it: a few elements of a long tuple.

    >>> _shown((1, 2, 3)), _shown(tuple(range(100)))
    ('(1, 2, 3)', '(0, 1, 2, … 97 more)')
    """
    if not isinstance(value, tuple) or len(value) <= _SHOWN_ELEMENTS:
        return repr(value)
    return f"({', '.join(map(repr, value[:_SHOWN_ELEMENTS]))}, … {len(value) - _SHOWN_ELEMENTS:,} more)"


@dataclass(frozen=True, slots=True)
class Appended(Receipt):
    """The rows, files and bytes that an append added.

    ``new_columns``: columns, and fields of structs, that the table did not have before · ``widened``: changes of types,
    such as "a: int32 → int64"
    """

    rows: int
    files: int
    bytes: int
    new_columns: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Adopted(Receipt):
    """The rows that an adopt appended, and the files and bytes of other programs that it removed.

    ``new_columns``, ``widened``: as of `Appended`
    """

    rows: int
    files: int
    bytes: int
    new_columns: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Overwritten(Receipt):
    """The rows, files and bytes of the table after an overwrite."""

    rows: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, repr=False)
class Deleted(Receipt):
    """The result of a delete, or of its dry run.

    Files whose rows all matched were dropped unread; others with a match were rewritten. ``bytes``: of all these files.
    """

    rows: int
    files_dropped: int
    files_rewritten: int
    rewritten: tuple[str, ...]
    bytes: int | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class JoinsRefreshed(Receipt):
    """The number of files whose attributes of dimensions were computed anew.

    ``unjoined``: the dimensions whose attributes stay as they are, each with the reason.
    """

    files: int
    unjoined: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Upserted(Receipt):
    """The result of an upsert: the inserted rows, the keys whose rows were replaced, and the rewritten files.

    ``new_columns``, ``widened``: as of `Appended`
    """

    inserted: int
    updated: int
    files: int
    new_columns: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Optimized(Receipt):
    """The result of an optimize, or with ``dry_run`` its expected result.

    ``files_rewritten``, ``bytes_rewritten``: the files that were read and replaced · ``files_before``, ``files_after``:
    the files of the table · ``depth_…``: the files that a look-up reads, averaged over the clustering columns ·
    ``skipped_…``: the share of rows that a look-up skips. Values after the change are None in a dry run, and if they
    cannot be read. ``files_left``: files that were due but not rewritten, because other writers changed them or the
    time was over · ``full_saves``: the share of what a query reads that ``full=True`` is expected to save after this ·
    ``sketches_merged``: the sketches whose parts of several appends became one.
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
    full_saves: float = 0.0
    sketches_merged: int = 0


@dataclass(frozen=True, slots=True)
class Clustered(Receipt):
    """The result of `cluster`, or of its dry run. ``version``: for a table of another format, that format's version.

    ``files_rewritten``, ``bytes_rewritten``: the files that were read and replaced · ``files_written``: the files that
    replace them, None in a dry run
    """

    files_rewritten: int
    bytes_rewritten: int
    files_written: int | None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Restored(Receipt):
    """The result of a restore. ``restored``: the version whose content the table has again."""

    restored: int


@dataclass(frozen=True, slots=True)
class Refreshed(Receipt):
    """The result of a refresh. ``before``: the previous version, the same as ``version`` if nothing had changed ·
    ``dropped``: files that other programs put into a table's folder, which are not part of the table · ``added``,
    ``changed``, ``removed``: files of an indexed folder in which this refresh found the index behind"""

    before: int
    dropped: int = 0
    added: int = 0
    changed: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Sketched(Receipt):
    """The result of a change of sketches. ``sketches``: those that the table has now, such as "values of uid"."""

    sketches: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Vacuumed(Receipt):
    """The result of a vacuum, or of its dry run: the removed files, their size in bytes, and the removed versions.

    ``left``: how many files stay that the table does not need, and why: too young for this vacuum, or for a person to
    remove; None if there are none
    """

    paths: tuple[str, ...]
    bytes: int
    versions: tuple[int, ...]
    left: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a tend. ``done``: a description of what it did · ``left``: what is still due, and why; None if
    nothing is · ``receipt``: of the verb; None if it did not run"""

    name: str
    done: str
    left: str | None = None
    receipt: Receipt | None = None


@dataclass(frozen=True, slots=True)
class Tended(Receipt):
    """The result of a tend, or of its dry run. ``steps``: in order · ``seconds``: their duration"""

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

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


@dataclass(frozen=True, slots=True, repr=False)
class Repaired(Receipt):
    """The result of a repair. ``parts``: the paths of parts of the index that were lost.

    ``went_back_to``: the version to which the table was reset because newer log entries were lost; else None
    """

    parts: tuple[str, ...]
    went_back_to: int | None


@dataclass(frozen=True, slots=True)
class Version:
    """One entry of a table's history. ``time``: in UTC · ``files``, ``rows``, ``bytes``: of the table at this version;
    None if they are not known · ``details``: what the operation did"""

    version: int
    time: datetime
    operation: str
    files: int | None
    rows: int | None
    bytes: int | None
    details: Mapping[str, Any]


class History(list[Version]):
    """The versions of a table, the newest first."""

    def _repr_html_(self) -> str:
        names = [field.name for field in fields(Version)]
        rows = "".join(
            f"<tr>{''.join(f'<td>{escape(str(getattr(one, name)))}</td>' for name in names)}</tr>" for one in self
        )
        return f"<table><tr>{''.join(f'<th>{name}</th>' for name in names)}</tr>{rows}</table>"
