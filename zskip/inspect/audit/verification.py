"""`Verification`: the results of `verify`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zskip.tablelog import dropped_text

__all__ = ["Check", "Verification", "Wrong"]


@dataclass(frozen=True, slots=True)
class Wrong:
    """A wrong proof. ``claim``: "skipped", although ``rows`` match, or "all match", although ``rows`` do not."""

    claim: str
    path: str
    row_groups: tuple[int, ...] | None
    rows: int


@dataclass(frozen=True, slots=True)
class Check:
    """The result of checking one predicate's plan.

    ``skipped``: the number of skipped files among ``files`` · ``read``: the number of skipped files that were read ·
    ``row_groups_read``: the number of skipped row groups of kept files that were read · ``rows``: the number of rows
    that each engine returns for the plan · ``agree``: whether all engines return the same rows.
    """

    predicate: str
    files: int
    skipped: int
    read: int
    row_groups_read: int
    wrong: tuple[Wrong, ...]
    rows: Mapping[str, int]
    agree: bool


@dataclass(frozen=True, slots=True)
class Verification:
    """The results of `verify`.

    ``missing``: files in the index that do not exist or have another size · ``damaged``: files that cannot be read,
    with the reason · ``unchecked``: predicates left out, since their plans read such files · ``dropped``: files that
    other programs put into a table's folder, which are not part of the table.
    """

    uri: str
    version: int
    checks: tuple[Check, ...]
    missing: tuple[str, ...]
    damaged: Mapping[str, str]
    unchecked: tuple[str, ...]
    dropped: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether every proof holds, all engines agree, and no file is missing or damaged."""
        return not self.missing and not self.damaged and self.held

    @property
    def held(self) -> bool:
        """Whether every proof that was checked holds, and all engines agree."""
        return all(not check.wrong and check.agree for check in self.checks)

    def __str__(self) -> str:
        read, skipped = sum(check.read for check in self.checks), sum(check.skipped for check in self.checks)
        lines = [
            f"{self.uri}, version {self.version}: predicates checked: {len(self.checks):,}; "
            f"skipped files read: {read:,} of {skipped:,}; "
            f"skipped row groups read: {sum(check.row_groups_read for check in self.checks):,}."
        ]
        lines += [f"MISSING  {path}" for path in self.missing]
        lines += [f"DAMAGED  {path}: {reason}" for path, reason in self.damaged.items()]
        if self.dropped:
            lines.append(f"{dropped_text(len(self.dropped))}: {self.dropped[0]}.")
        if self.unchecked:
            lines.append(f"Predicates not checked, since their plans read these files: {len(self.unchecked):,}.")
        for check in self.checks:
            lines += [
                f"WRONG    {found.path}: {found.claim}, but {found.rows:,} rows say otherwise: {check.predicate}"
                for found in check.wrong
            ]
            if not check.agree:
                counts = ", ".join(f"{engine} {rows:,}" for engine, rows in check.rows.items())
                lines.append(f"DIFFERENT  {counts} rows, or other values: {check.predicate}")
        if not self.held:
            lines.append("This is a defect: please report it.")
        elif self.checks:
            lines.append("Every proof that was checked held." if self.unchecked else "Every proof held.")
        return "\n".join(lines)
