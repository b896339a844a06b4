"""The types and values that Spark infers from hive folders, ``day=2024-01-31/hour=07/``.

| names of folders | Spark | DuckDB, and zskip's index |
| --- | --- | --- |
| ``7``, ``-3`` | INT, or BIGINT if one needs it | BIGINT |
| ``7``, ``007`` | INT | VARCHAR |
| integers beyond 64 bits, ``1e5`` | DECIMAL | VARCHAR |
| ``9.5``, ``NaN`` | DOUBLE | VARCHAR |
| ``2024-01-31`` | DATE | DATE |
| ``2024-01-31 10:00:00`` | TIMESTAMP, in the session's zone | VARCHAR |
| ``10:00:00`` | TIME, which Spark 4.3 then refuses to read | VARCHAR |
| anything else, ``7`` beside ``x`` | STRING | VARCHAR |

Spark decodes %XX byte by byte: ``%C3%A9`` is ``Ã©`` on Spark, and ``é`` everywhere else.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from zskip.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

NULL = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEX = r"0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+"
_DOUBLE = re.compile(rf"[\x00-\x20]*[+-]?(?:NaN|Infinity|(?:{_DECIMAL.pattern[5:]}|{_HEX})[fFdD]?)[\x00-\x20]*")
_DATE = re.compile(r"-?[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_TIME, _TIME_OF_DATE = re.compile(rf"{_CLOCK}(?:\.[0-9]{{1,6}})?"), re.compile(rf"{_CLOCK}(?:\.[0-9])?")
_ESCAPED = re.compile("%([0-9a-fA-F]{2})")
_BLANKS = "".join(map(chr, range(33)))
_DIGITS = {"int": 10, "bigint": 20}
_MOST_DIGITS = 38


def values_of(path: str) -> dict[str, str]:
    """The partition columns in a path as Spark decodes them.

    >>> values_of("day=2024-01-31/host=a%2Fb/part-0.parquet")
    {'day': '2024-01-31', 'host': 'a/b'}
    """
    pairs = (segment.partition("=") for segment in path.split("/")[:-1] if "=" in segment)
    return {_decoded(name): _decoded(text) for name, _, text in pairs if name}


def _decoded(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


@dataclass(frozen=True, slots=True)
class HiveRule:
    """The settings of a session on which the types of hive columns depend.

    ``infers``: whether names are anything but strings · ``clock``: the type of timestamps, "timestamp" or
    "timestamp_ntz" · ``has_time``: whether times of day have a type.
    """

    infers: bool
    clock: str
    has_time: bool

    def type_of(self, texts: Iterable[str]) -> DataType:
        """The type that Spark infers for the values of a column."""
        from pyspark.sql import types as s

        kinds = {self._kind(text) for text in set(texts) if text != NULL}
        digits = {int(kind[8:]) for kind in kinds if kind.startswith("decimal")}
        if digits and kinds - _DIGITS.keys() == {f"decimal.{each}" for each in digits}:
            return s.DecimalType(max(digits | {_DIGITS[kind] for kind in kinds & _DIGITS.keys()}), 0)
        for wider, narrow in (("bigint", "int"), ("double", "int"), (self.clock, "date")):
            if kinds == {wider, narrow}:
                kinds = {wider}
        simple = {
            "int": s.IntegerType(),
            "bigint": s.LongType(),
            "double": s.DoubleType(),
            "date": s.DateType(),
            "timestamp": s.TimestampType(),
            "timestamp_ntz": s.TimestampNTZType(),
        }
        if kinds == {"time"}:
            return s.TimeType(6)
        return simple.get(kinds.pop(), s.StringType()) if len(kinds) == 1 else s.StringType()

    def _kind(self, text: str) -> str:
        """The type of one value: its name, or "decimal." and its digits."""
        if not self.infers:
            return "string"
        if _INTEGER.fullmatch(text) and -(1 << 63) <= int(text) < 1 << 63:
            return "int" if -(1 << 31) <= int(text) < 1 << 31 else "bigint"
        if _DECIMAL.fullmatch(text):
            _, figures, exponent = Decimal(text).as_tuple()
            if isinstance(exponent, int) and exponent >= 0 and len(figures) + exponent <= _MOST_DIGITS:
                return f"decimal.{len(figures) + exponent}"
        if _DOUBLE.fullmatch(text):
            return "double"
        if _is_date(text):
            return "date"
        date, _, time = text.partition(" ")
        if _is_date(date) and _TIME_OF_DATE.fullmatch(time):
            return self.clock
        return "time" if self.has_time and _TIME.fullmatch(text) else "string"


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    year, month, day = (int(part) for part in text.removeprefix("-").split("-"))
    try:
        # The calendar repeats after 400 years, and Python's begins in the year 1.
        dt.date((-year if text.startswith("-") else year) % 400 + 400, month, day)
    except ValueError:
        return False
    return True


def value(text: str, type: DataType, zone: ZoneInfo | None) -> Any:
    """The value that Spark reads from a name, for a column of the inferred type; None for NULL.

    ``zone``: of the session. Raises `SchemaError` for a value that Python cannot hold.
    """
    if text == NULL:
        return None
    kind = type.simpleString()
    try:
        if kind in ("int", "bigint"):
            return int(text)
        if kind.startswith("decimal"):
            return Decimal(text)
        if kind == "double":
            number = re.sub("[fFdD]?$", "", text.strip(_BLANKS), count=1)
            return float.fromhex(number) if "p" in number.lower() else float(number)
        if kind == "date":
            return dt.date.fromisoformat(text)
        if kind == "time(6)":
            return dt.time.fromisoformat(text)
        if kind == "timestamp_ntz":
            return dt.datetime.fromisoformat(text)
        if kind == "timestamp":
            if zone is None:
                raise ValueError("the session's time zone has no IANA name")
            return dt.datetime.fromisoformat(text).replace(tzinfo=zone).astimezone(dt.UTC)
    except ValueError as error:
        raise SchemaError(
            f'The folder name "{text}" is {kind} on Spark, and Python cannot read it so: {error}'
        ) from error
    return text
