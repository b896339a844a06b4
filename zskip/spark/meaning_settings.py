"""Settings of a session that change the meaning of a condition's text."""

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
"""For each setting, the value that proofs assume, and a regular expression for the texts that other values affect.

The time zone, ANSI mode and case sensitivity are not listed: predicates are bound under the session's.
"""


def require_proved_meaning(spark: SparkSession, text: str) -> None:
    """Raise `InvalidOption` if a setting may give a condition another meaning than proofs assume."""
    for name, (proved, texts) in SETTINGS.items():
        if not re.search(texts, text, re.IGNORECASE):
            continue
        value = str(spark.conf.get(name, proved))
        if value.lower() != proved.lower():
            raise InvalidOption(
                f"The session has {name} = {value}, with which Spark may read the condition otherwise than it was "
                f"planned: {text[:200]!r}. Set it to {proved}, or filter the DataFrame of zskip.spark.table()."
            )
