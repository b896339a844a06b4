"""The instant of a local time, by the clocks of the engine that evaluates the condition.

Time zone data differ. An operating system's may have Stockholm's own hours before 1970 where DuckDB and Java have those
of Berlin, and each engine brings the rules of the year in which it was built. A constant by other clocks than the
engine's would skip files with matching rows, so the engine is asked: DuckDB, or the JVM of a Spark session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias
from zoneinfo import ZoneInfo

from zskip.core.late_loading import ask_duckdb
from zskip.errors import InvalidOption

OffsetPeriod: TypeAlias = tuple[int, int, int]
"""A time in which a zone's clocks keep their offset: its first second, the first one after it, both since 1970 in UTC,
and the offset from UTC in seconds."""

Clocks: TypeAlias = Callable[[str, int], tuple[OffsetPeriod, ...]]
"""The offsets of a zone in a year, and two days around it."""

_EPOCH = datetime(1970, 1, 1)
_STEPS = 86_400, 3_600, 60, 1
_OFFSETS = "SELECT s, epoch(timezone($1, to_timestamp(s)))::BIGINT - s FROM range($2, $3, $4) t(s)"
_clocks: ContextVar[Clocks | None] = ContextVar("clocks", default=None)


@contextmanager
def using(clocks: Clocks | None) -> Iterator[None]:
    """Bind what is bound within this block by the clocks of the engine that will evaluate it. None: DuckDB's."""
    before = _clocks.set(clocks)
    try:
        yield
    finally:
        _clocks.reset(before)


def in_use() -> Clocks | None:
    """The clocks of this block; None for DuckDB's."""
    return _clocks.get()


def in_utc(moment: datetime, zone: str) -> datetime | None:
    """A local time in UTC; None for one that occurs twice or never.

    >>> in_utc(datetime(2024, 7, 1, 12), "Europe/Berlin")
    datetime.datetime(2024, 7, 1, 10, 0)
    """
    local = (moment - _EPOCH) // timedelta(seconds=1)
    offsets = {offset for begin, end, offset in _offset_periods(zone, moment.year) if begin <= local - offset < end}
    return moment - timedelta(seconds=offsets.pop()) if len(offsets) == 1 else None


def local_time(moment: datetime, zone: str) -> datetime:
    """The local time of an instant, which has a zone. Raises `InvalidOption` for a zone that the engine does not know.

    >>> local_time(datetime(2024, 7, 1, 10, tzinfo=UTC), "Europe/Berlin")
    datetime.datetime(2024, 7, 1, 12, 0)
    """
    utc = moment.astimezone(UTC).replace(tzinfo=None)
    second = (utc - _EPOCH) // timedelta(seconds=1)
    for begin, end, offset in _offset_periods(zone, utc.year):
        if begin <= second < end:
            return utc + timedelta(seconds=offset)
    raise InvalidOption(f'The engine knows no time zone "{zone}".')


def _offset_periods(zone: str, year: int) -> tuple[OffsetPeriod, ...]:
    if has_fixed_offset(zone):
        return ((*seconds_of(year), offset_nanoseconds(zone) // 10**9),)
    return (_clocks.get() or duckdb_clocks)(zone, year)


def has_fixed_offset(zone: str) -> bool:
    """Whether a zone's offset from UTC never changes. False for unknown ones.

    >>> has_fixed_offset("UTC"), has_fixed_offset("Europe/Berlin")
    (True, False)
    """
    return zone.startswith("Etc/") or zone in ("UTC", "GMT", "Z")


def offset_nanoseconds(zone: str) -> int:
    """The offset from UTC of a zone for which `has_fixed_offset` holds, in nanoseconds."""
    offset = datetime(2000, 1, 1, tzinfo=UTC).astimezone(ZoneInfo(zone)).utcoffset()
    return 0 if offset is None else round(offset / timedelta(microseconds=1)) * 1000


def seconds_of(year: int) -> tuple[int, int]:
    """The first second of a year, two days before, and the first one after it, two days later, since 1970."""
    begin, end = (
        (datetime(each, 1, 1) + timedelta(days=days) - _EPOCH) // timedelta(seconds=1)
        for each, days in ((year, -2), (year + 1, 2))
    )
    return begin, end


@lru_cache(maxsize=256)
def duckdb_clocks(zone: str, year: int) -> tuple[OffsetPeriod, ...]:
    """DuckDB's clocks; none for a zone that it does not know. A zone changes them at most once a day."""
    import duckdb

    begin, end = seconds_of(year)
    spans, offsets = [(begin, end)], dict[int, int]()
    for step in _STEPS:
        for first, last in spans:
            try:
                offsets |= dict(ask_duckdb(_OFFSETS, [zone, first, last, step]))
            except duckdb.Error:
                return ()
        spans = [(one, other) for one, other in pairwise(sorted(offsets)) if offsets[one] != offsets[other]]
    changes = [begin, *(other for _, other in spans), end]
    return tuple((one, other, offsets[one]) for one, other in pairwise(changes))
