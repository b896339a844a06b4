"""Settings of a session that give a condition's text another meaning than the proof assumes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from zskip.errors import InvalidOption

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SETTINGS", "require_proved_meaning"]

_ARITHMETIC = r"[-+*/%]"

SETTINGS: dict[str, tuple[str, str]] = {
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
"""By name: the value with which proofs hold, and the texts that another one may change (a regular expression).

The time zone, ANSI mode and case sensitivity are not among them: proofs follow those.
"""


def require_proved_meaning(spark: SparkSession, text: str) -> None:
    """Raises `InvalidOption` where a setting of the session may give a condition another meaning than was proved."""
    for name, (proved, texts) in SETTINGS.items():
        if not re.search(texts, text, re.IGNORECASE):
            continue
        value = str(spark.conf.get(name, proved))
        if value.lower() != proved.lower():
            raise InvalidOption(
                f"The session has {name} = {value}, with which Spark may read the condition otherwise than it was "
                f"planned: {text[:200]!r}. Set it to {proved}, or filter the DataFrame of zskip.spark.table()."
            )
