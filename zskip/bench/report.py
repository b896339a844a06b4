"""The results of a bench, and their text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zskip.plan import Share

SMALL_BYTES = 100_000_000
TOO_SMALL = (
    "This table is too small to tell: below 100 MB most of the time goes into opening files and planning. Compare the "
    "files and bytes that are read; they are what a larger table saves."
)

_MOST_GAINS = 20


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of one query: medians in seconds; ``zskip_seconds`` includes ``plan_seconds``.

    ``files``, ``rows``, ``bytes``: what is scanned, of all; bytes of whole files. The Spark fields are None without
    Spark.
    """

    query: str
    result_rows: int
    files: Share
    rows: Share
    bytes: Share
    plan_seconds: float
    zskip_seconds: float
    plain_seconds: float
    spark_zskip_seconds: float | None = None
    spark_plain_seconds: float | None = None

    @property
    def times_faster(self) -> float:
        """The time of the plain scan divided by that of zskip."""
        return self.plain_seconds / self.zskip_seconds


@dataclass(frozen=True, slots=True)
class LayoutScore:
    """The shares of bytes, rows and files, from 0 to 1, that a layout skips, averaged over the queries.

    Bytes are those of the columns that a query reads, uncompressed.
    """

    layout: str
    bytes: float
    rows: float
    files: float
    fit_seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """The results of `bench`; its text is a table.

    ``layouts``: sorted by skipped bytes, the best first · ``held_out``: each query was scored on layouts that were not
    fitted to it; with a single query, layouts are fitted to and scored on the same one · ``before``: the same queries
    on the table as it was.
    """

    table: str
    version: int
    runs: int
    timings: tuple[Timing, ...]
    layouts: tuple[LayoutScore, ...] = ()
    held_out: bool = False
    before: Report | None = None

    @property
    def too_small(self) -> bool:
        """Whether a scan of the whole table is so quick that the times prove little."""
        known = [one.bytes.whole for one in self.timings if one.bytes.whole is not None]
        return bool(known) and max(known) < SMALL_BYTES

    def __str__(self) -> str:
        lines = [
            f"{self.table} (version {self.version}), medians of {self.runs} runs",
            f"{'files':>15} {'rows':>8} {'bytes':>8} {'plan':>9} {'zskip':>9} {'plain':>9} {'faster':>7}  query",
        ]
        for one in self.timings:
            lines.append(
                f"{one.files.part:>7}/{one.files.whole:<7} {_scanned(one.rows)} {_scanned(one.bytes)} "
                f"{_time(one.plan_seconds)} {_time(one.zskip_seconds)} {_time(one.plain_seconds)} "
                f"{one.times_faster:>6.1f}×  {short(one.query)}"
            )
            if one.spark_zskip_seconds is not None and one.spark_plain_seconds is not None:
                lines.append(
                    f"{'Spark':>43} {_time(one.spark_zskip_seconds)} {_time(one.spark_plain_seconds)} "
                    f"{one.spark_plain_seconds / one.spark_zskip_seconds:>6.1f}×"
                )
        if self.too_small:
            lines.append(TOO_SMALL)
        if self.layouts:
            judged = "queries that they were not fitted to" if self.held_out else "the query that they were fitted to"
            lines += ["", f"layouts fitted to a sample of the rows, by what they skip of other rows, for {judged}:"]
            lines.append(f"{'layout':<10} {'bytes':>8} {'rows':>8} {'files':>8} {'to fit':>9}")
            lines += [
                f"{one.layout:<10} {one.bytes:>8.2%} {one.rows:>8.2%} {one.files:>8.2%} {_time(one.fit_seconds)}"
                for one in self.layouts
            ]
        if self.before is not None:
            lines += ["", *self._gains(self.before)]
        return "\n".join(lines)

    def _gains(self, before: Report) -> list[str]:
        """What each query gained or lost, those that lost first, and the sums."""
        pairs = list(zip(before.timings, self.timings, strict=True))
        worse = [new.bytes.part is not None and new.bytes.part > (old.bytes.part or 0) for old, new in pairs]
        lines = [
            f"before: {before.table} (version {before.version})",
            f"{'bytes before':>13} {'after':>13} {'time before':>12} {'after':>12}  query",
        ]
        for number in sorted(range(len(pairs)), key=lambda number: not worse[number])[:_MOST_GAINS]:
            old, new = pairs[number]
            mark = "  READS MORE" if worse[number] else ""
            differs = (
                "" if old.result_rows == new.result_rows else f"  ({old.result_rows} rows, then {new.result_rows})"
            )
            lines.append(_gain([old], [new]) + f"  {short(new.query)}{mark}{differs}")
        if len(pairs) > _MOST_GAINS:
            lines.append(f"and {len(pairs) - _MOST_GAINS} more queries")
        lines.append(f"{_gain(before.timings, self.timings)}  all {len(pairs)}; {sum(worse)} of them read more")
        return lines


def _gain(before: Sequence[Timing], after: Sequence[Timing]) -> str:
    sizes = (sum(one.bytes.part or 0 for one in timings) for timings in (before, after))
    seconds = (sum(one.zskip_seconds for one in timings) for timings in (before, after))
    return " ".join([*(f"{size:>13,}" for size in sizes), *(f"{second * 1e3:>9.1f} ms" for second in seconds)])


def _scanned(share: Share) -> str:
    return f"{'unknown':>8}" if share.part is None else f"{share.fraction:>8.2%}"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:>6.1f} ms"


def short(text: str, width: int = 70) -> str:
    """A query in one line."""
    plain = " ".join(text.split())
    return plain if len(plain) <= width else plain[: width - 1] + "…"
