"""Where a connection reads SQL otherwise than a proof does: by its settings, or by macros named like functions.

| what a connection has                                     | what that changes                             |
| --------------------------------------------------------- | --------------------------------------------- |
| ``default_collation``                                     | comparisons of texts                          |
| another value of `_OF_FUNCTIONS`                          | what functions and operators give             |
| a macro under the name of a function of DuckDB's own      | the same: LIKE is the function ``~~``         |
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from pyarrow import types as t
from sqlglot import exp

from zskip.errors import InvalidOption

if TYPE_CHECKING:
    import duckdb

    from zskip.expr import Predicate

__all__ = ["Meaning", "same_meaning"]

# Settings, each with the value under which proofs hold.
_OF_TEXTS = {"default_collation": ""}
_OF_FUNCTIONS = {
    "integer_division": "false",
    "ieee_floating_point_ops": "true",
    "error_on_division_by_zero": "true",
    "regex_match_operator_semantics": "partial",
    "old_implicit_casting": "false",
    "Calendar": "gregorian",
}
# What no macro can stand for.
_NO_FUNCTIONS = (
    *(exp.And, exp.Or, exp.Not, exp.Paren, exp.Tuple, exp.In, exp.Between, exp.Is, exp.Neg),
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ),
    *(exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Placeholder, exp.Cast, exp.DataType),
)
_MAY_CALL = re.compile(
    r"[/%~^&|]|\b(like|ilike|similar|glob|collate|extract)\b|(?<!\bin)(?<!\band)(?<!\bor)(?<!\bnot)[\w\"]\s*\(", re.I
)


@dataclass
class Meaning:
    """What a connection makes of conditions. It is asked for its settings once, and only where they may matter."""

    con: duckdb.DuckDBPyConnection

    @cached_property
    def now(self) -> datetime.datetime:
        """The connection's clock."""
        ((micros,),) = self.con.sql("SELECT epoch_us(now())").fetchall()
        return datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(microseconds=micros)

    @property
    def timezone(self) -> str | None:
        """The session's time zone; None where Python does not know it: not so "AET", and some more old names."""
        return self._settings[0]

    def timezone_of(self, conditions: Iterable[exp.Expr], types: Mapping[str, str]) -> str | None:
        """The zone in which conditions are to be read: any, where they compare numbers alone.

        ``types``: those of the table's columns, by lower-case name.
        """
        return "UTC" if all(_is_about_numbers(each, types) for each in conditions) else self.timezone

    def is_proved(self, condition: exp.Expr, predicate: Predicate) -> bool:
        """Whether the condition means to the connection what the predicate that was read from it proves."""
        calls = not all(isinstance(node, _NO_FUNCTIONS) for node in condition.walk())
        if (calls or _reads_texts(predicate)) and self._settings[1]:
            return False
        return not calls or self._functions_are_known

    @cached_property
    def _settings(self) -> tuple[str | None, str]:
        """The time zone, and the collation: "" for bytes."""
        ((timezone, collation),) = self.con.sql(
            "SELECT current_setting('TimeZone'), current_setting('default_collation')"
        ).fetchall()
        try:
            ZoneInfo(timezone)
        except (KeyError, ValueError, OSError):
            return None, collation
        return timezone, collation

    @cached_property
    def _functions_are_known(self) -> bool:
        """Asked only where a condition calls a function: DuckDB takes ten milliseconds to list its functions."""
        ((shadowed,),) = self.con.sql(
            "SELECT count(*) FROM (SELECT function_name FROM duckdb_functions() GROUP BY function_name "
            "HAVING bool_or(internal) AND NOT bool_and(internal))"
        ).fetchall()
        return not shadowed and not _unusual(self.con, _OF_FUNCTIONS)


def _is_about_numbers(condition: exp.Expr, types: Mapping[str, str]) -> bool:
    """Whether every column is a number or BOOLEAN, and nothing is cast: no time comes into being on the way."""
    for node in condition.walk():
        if not isinstance(node, _NO_FUNCTIONS) or isinstance(node, exp.Cast):
            return False
        if isinstance(node, exp.Column):
            type = types.get(node.name.lower(), "") if len(node.parts) == 1 else ""
            if type not in _NUMBERS and not (type.startswith("DECIMAL(") and type.endswith(")")):
                return False
    return True


_NUMBERS = {
    *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"),
    *("FLOAT", "DOUBLE"),
}


def same_meaning(predicate: Predicate, con: duckdb.DuckDBPyConnection) -> None:
    """Raise `InvalidOption` where a setting of the connection gives the predicate another meaning than was planned."""
    calls = bool(_MAY_CALL.search(predicate.sql("duckdb") or ""))
    if not calls and not _reads_texts(predicate):
        return
    for name, value in _unusual(con, _OF_TEXTS | _OF_FUNCTIONS if calls else _OF_TEXTS).items():
        raise InvalidOption(
            f"The connection has {name} = '{value}', with which the predicate may mean something else than it was "
            f"planned for. RESET {name}, read the plan on another connection, or read it with to_arrow()."
        )


def _reads_texts(predicate: Predicate) -> bool:
    types = [predicate.schema.columns[path].type for path in predicate.columns]
    plain = [type.value_type if t.is_dictionary(type) or t.is_run_end_encoded(type) else type for type in types]
    return any(t.is_string(type) or t.is_large_string(type) or t.is_string_view(type) for type in plain)


def _unusual(con: duckdb.DuckDBPyConnection, usual: Mapping[str, str]) -> dict[str, str]:
    """The settings that differ from these."""
    said = ", ".join(f"CAST(current_setting('{name}') AS VARCHAR)" for name in usual)
    (values,) = con.sql(f"SELECT {said}").fetchall()
    return {name: value for name, value in zip(usual, values, strict=True) if value.lower() != usual[name]}
