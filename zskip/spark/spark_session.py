"""A Spark session: the settings that determine the meaning of its SQL, and checks of what it supports."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from zskip.binder import bind
from zskip.core import types as t
from zskip.core.schema import Schema
from zskip.errors import InvalidOption, MissingDependency
from zskip.language import Dialect, Predicate, conjunction
from zskip.language.clocks import Clocks, OffsetPeriod, seconds_of, using

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Semantics:
    """The settings of a session that predicates are bound under. ``timezone``: as Java names it."""

    timezone: str
    ansi: bool
    case_sensitive: bool = False

    @staticmethod
    def of(spark: SparkSession) -> Semantics:
        ansi, case = (str(spark.conf.get(f"spark.sql.{key}")).lower() for key in ("ansi.enabled", "caseSensitive"))
        return Semantics(str(spark.conf.get("spark.sql.session.timeZone")), ansi == "true", case == "true")

    @property
    def zone(self) -> ZoneInfo | None:
        """The time zone in Python; None if Python does not know the name.

        >>> Semantics("+02:00", True).zone, Semantics("GMT-03:30", True).zone
        (zoneinfo.ZoneInfo(key='Etc/GMT-2'), None)
        """
        offset = re.fullmatch(r"(?:UTC|GMT|UT)?([+-])0?(\d\d?)(?::?00)?", self.timezone)
        # POSIX counts hours west of Greenwich.
        name = f"Etc/GMT{'-' if offset[1] == '+' else '+'}{int(offset[2])}" if offset else self.timezone
        try:
            return ZoneInfo("UTC" if name in ("Z", "Etc/UTC", "Etc/GMT+0", "Etc/GMT-0") else name)
        except (KeyError, ValueError, OSError):
            return None

    def require_zone(self) -> str:
        """The IANA name of the time zone. Raises `InvalidOption` if Python does not know it."""
        zone = self.zone
        if zone is None:
            raise InvalidOption(f'The session\'s time zone "{self.timezone}" has no IANA name. Set another to delete.')
        return zone.key

    @property
    def dialect(self) -> Dialect:
        """The dialect of predicates; in UTC if Python does not know the time zone: ask `zone` before."""
        return Dialect("spark", self.zone.key if self.zone else "UTC", self.ansi)

    def bind(self, sql: str, schema: Schema, clocks: Clocks | None) -> Predicate:
        """A condition in Spark's SQL, bound in the session's `dialect`. ``clocks``: those of its JVM, None if it cannot
        be asked. Raises `SqlError`.
        """
        with using(clocks):
            return bind(
                sql,
                schema,
                dialect="spark",
                timezone=self.dialect.timezone,
                ansi=self.ansi,
                case_sensitive=self.case_sensitive,
            )


def calendar_options(spark: SparkSession, *, is_table: bool) -> dict[str, str]:
    """The options of a read of Parquet that say how it converts old dates and timestamps of files that do not say in
    which calendar they are.

    In a table, of zskip or of another format, they are in that of today, whatever the session says.
    """
    options = {
        "datetimeRebaseMode": "spark.sql.parquet.datetimeRebaseModeInRead",
        "int96RebaseMode": "spark.sql.parquet.int96RebaseModeInRead",
    }
    return {
        option: "CORRECTED" if is_table else str(spark.conf.get(setting, "CORRECTED")).upper()
        for option, setting in options.items()
    }


def clocks_of(spark: SparkSession) -> Clocks | None:
    """The clocks of a session's JVM; None for a session of Spark Connect, whose JVM is elsewhere."""
    java = getattr(spark, "_jvm", None)
    return None if java is None else _java_clocks(java)


@lru_cache(maxsize=4)
def _java_clocks(java: Any) -> Clocks:
    """The clocks of a JVM, by its view in py4j."""

    @lru_cache(maxsize=256)
    def clocks(zone: str, year: int) -> tuple[OffsetPeriod, ...]:
        rules = java.java.time.ZoneId.of(zone).getRules()
        begin, end = seconds_of(year)
        moment, periods = java.java.time.Instant.ofEpochSecond(begin), []
        offset = rules.getOffset(moment).getTotalSeconds()
        while (change := rules.nextTransition(moment)) is not None and change.toEpochSecond() < end:
            periods.append((begin, change.toEpochSecond(), offset))
            moment = change.getInstant()
            begin, offset = change.toEpochSecond(), change.getOffsetAfter().getTotalSeconds()
        return *periods, (begin, end, offset)

    return clocks


def same_in_spark(predicate: Predicate, schema: Schema) -> Predicate | None:
    """The conjuncts over columns whose values are the same in Spark and in Arrow; None if there are none.

    Spark reads INT96 as instants, Arrow as local times; Spark reads durations as integers.
    """
    differs = {
        path
        for path, column in schema.columns.items()
        if t.is_duration(column.type) or (t.is_timestamp(column.type) and column.type.unit == "ns")
    }
    parts = [part for part in predicate.conjuncts if not part.columns & differs]
    return conjunction(parts) if parts else None


@contextmanager
def setting(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Change settings of a session within a block, for all threads that use the session."""
    before = {key: spark.conf.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def is_connect(spark: Any) -> bool:
    """Whether a session or DataFrame is of Spark Connect, which has no JVM in this process."""
    return any(kind.__module__.startswith("pyspark.sql.connect") for kind in type(spark).__mro__)


def require_pyspark() -> None:
    """Raise `MissingDependency` if pyspark is not installed."""
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise MissingDependency("Spark needs the package pyspark: pip install 'zskip[spark]'.") from error


def require_session(spark: Any) -> None:
    """Raise `MissingDependency` if pyspark or Java is missing, and `InvalidOption` unless it is a Spark session."""
    require_pyspark()
    if hasattr(spark, "sparkSession") or hasattr(spark, "createDataFrame"):
        return
    require_java()
    raise InvalidOption(
        f"A Spark session is needed, not {type(spark).__name__}: SparkSession.builder.getOrCreate() makes one."
    )


def require_java() -> None:
    """Raise `MissingDependency` if there is no Java, which a new session needs."""
    home = os.environ.get("JAVA_HOME")
    if not (shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")):
        where = f"at JAVA_HOME, {home}" if home else "on the PATH, and JAVA_HOME is not set"
        raise MissingDependency(
            f"Spark needs Java 17 or later, and there is none {where}. Without it there is no session."
        )


# Settings of a session that change the meaning of a condition's text.

_ARITHMETIC = r"[-+*/%]"

MEANING_SETTINGS: dict[str, tuple[str, str]] = {
    "spark.sql.ansi.doubleQuotedIdentifiers": ("false", '"'),
    "spark.sql.parser.escapedStringLiterals": ("false", r"\\"),
    "spark.sql.variable.substitute": ("false", r"\$\{"),
    "spark.sql.timestampType": ("TIMESTAMP_LTZ", "timestamp"),
    "spark.sql.decimalOperations.allowPrecisionLoss": ("true", _ARITHMETIC),
    "spark.sql.legacy.decimal.retainFractionDigitsOnTruncate": ("false", _ARITHMETIC),
    "spark.sql.legacy.literal.pickMinimumPrecision": ("true", _ARITHMETIC),
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled": ("false", r"[\d.]e[-+\d]"),
    "spark.sql.legacy.consecutiveStringLiterals.enabled": ("false", r"'\s*'"),
    "spark.sql.legacy.interval.enabled": ("false", "interval"),
    "spark.sql.legacy.fromDayTimeString.enabled": ("false", "interval"),
    "spark.sql.legacy.timeParserPolicy": ("CORRECTED", "date|time"),
    "spark.sql.legacy.typeCoercion.datetimeToString.enabled": ("false", "'"),
}
"""For each setting, the value that proofs assume, and a regular expression for the texts that other values affect.

The time zone, ANSI mode and case sensitivity are not listed: predicates are bound under the session's.
"""


def require_proved_meaning(spark: SparkSession, text: str) -> None:
    """Raise `InvalidOption` if a setting may give a condition another meaning than proofs assume."""
    for name, (proved, texts) in MEANING_SETTINGS.items():
        if not re.search(texts, text, re.IGNORECASE):
            continue
        value = str(spark.conf.get(name, proved))
        if value.lower() != proved.lower():
            raise InvalidOption(
                f"The session has {name} = {value}, with which Spark may read the condition otherwise than it was "
                f"planned: {text[:200]!r}. Set it to {proved}, or filter the DataFrame of zskip.spark.table()."
            )
