"""Settings of a connection that change the meaning of a condition, and the values that proofs assume."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from zskip.core import types as t
from zskip.errors import InvalidOption

if TYPE_CHECKING:
    import duckdb

    from zskip.language import Predicate

READ_BY_FUNCTIONS = {
    "ieee_floating_point_ops": "true",
    "error_on_division_by_zero": "true",
    "regex_match_operator_semantics": "partial",
    "Calendar": "gregorian",
    "dialect_compatibility_mode": "none",
}
"""The settings that functions read when they run, with the values that proofs assume."""

_OF_BINDING = {"integer_division": "false", "old_implicit_casting": "false"}
_OF_STRINGS = {"default_collation": ""}
_OF_ZONED_TIMES = {"Calendar": "gregorian"}
_MAY_CALL = re.compile(
    r"[/%~^&|]|\b(like|ilike|similar|glob|collate|extract)\b|(?<!\bin)(?<!\band)(?<!\bor)(?<!\bnot)[\w\"]\s*\(", re.I
)


def require_planned_meaning(predicate: Predicate, con: duckdb.DuckDBPyConnection) -> None:
    """Raise `InvalidOption` if a setting of the connection gives the predicate another meaning than was planned."""
    assumed: dict[str, str] = {}
    if _MAY_CALL.search(predicate.sql("duckdb") or ""):
        assumed |= _OF_STRINGS | _OF_BINDING | READ_BY_FUNCTIONS
    types = [t.logical_type(predicate.schema.columns[path].type) for path in predicate.columns]
    if any(map(t.is_string, types)):
        assumed |= _OF_STRINGS
    if any(t.is_timestamp(type) and type.tz is not None for type in types):
        assumed |= _OF_ZONED_TIMES  # strings and local times are cast to the column's type
    if not assumed:
        return
    for name, value in _different(con, assumed).items():
        raise InvalidOption(
            f"The connection has {name} = '{value}', with which the predicate may mean something else than it was "
            f"planned for. RESET {name}, read the plan on another connection, or read it with to_arrow()."
        )


def _different(con: duckdb.DuckDBPyConnection, assumed: Mapping[str, str]) -> dict[str, str]:
    """The connection's settings with other values than the assumed ones."""
    selected = ", ".join(f"CAST(current_setting('{name}') AS VARCHAR)" for name in assumed)
    (values,) = con.sql(f"SELECT {selected}").fetchall()
    return {name: value for name, value in zip(assumed, values, strict=True) if value.lower() != assumed[name]}
