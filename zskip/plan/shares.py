"""The shares of a table that a plan skips."""

from __future__ import annotations

from typing import NamedTuple


class Share(NamedTuple):
    """A part of a whole. A count that is not known is None.

    >>> str(Share(9_950, 10_000))
    '9,950 of 10,000 (99.5 %)'
    """

    part: int | None
    whole: int | None

    @property
    def fraction(self) -> float:
        """The part as a fraction from 0 to 1; 0 if the whole is 0, or a count is not known."""
        return self.part / self.whole if self.part and self.whole else 0.0

    def __str__(self) -> str:
        if self.part is None or self.whole is None:
            return "unknown"
        return f"{self.part:,} of {self.whole:,} ({percent(self.fraction)})"


class Skipped(NamedTuple):
    """The files, row groups, rows and bytes that a plan skips, each as a share of the table."""

    files: Share
    row_groups: Share
    rows: Share
    bytes: Share

    def __str__(self) -> str:
        return ", ".join(f"{name.replace('_', ' ')} {share}" for name, share in self._asdict().items())


def rest(total: int | None, read: int | None) -> Share:
    """The part of a total that is not read; unknown if either count is."""
    return Share(None if total is None or read is None else total - read, total)


def percent(fraction: float) -> str:
    """A percentage as text, in which a part never rounds to 0 % or 100 %."""
    if fraction in (0.0, 1.0):
        return f"{fraction:.0%}".replace("%", " %")
    digits = 1
    while digits < 6 and round(fraction * 100, digits) in (0.0, 100.0):
        digits += 1
    return f"{round(fraction * 100, digits):g} %"
