"""Settings of a connection that give a predicate another meaning than the planned one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from zskip import types as t
from zskip.errors import InvalidOption

if TYPE_CHECKING:
    import duckdb

    from zskip.expr import Predicate

__all__ = ["require_planned_meaning"]

# Settings, each with the value under which proofs hold.
_OF_TEXTS = {"default_collation": ""}
_OF_ZONED_TIMES = {"Calendar": "gregorian"}
_OF_FUNCTIONS = {
    "integer_division": "false",
    "ieee_floating_point_ops": "true",
    "error_on_division_by_zero": "true",
    "regex_match_operator_semantics": "partial",
    "old_implicit_casting": "false",
    "Calendar": "gregorian",
    "dialect_compatibility_mode": "none",
}
_MAY_CALL = re.compile(
    r"[/%~^&|]|\b(like|ilike|similar|glob|collate|extract)\b|(?<!\bin)(?<!\band)(?<!\bor)(?<!\bnot)[\w\"]\s*\(", re.I
)


def require_planned_meaning(predicate: Predicate, con: duckdb.DuckDBPyConnection) -> None:
    """Raise `InvalidOption` where a setting of the connection gives the predicate another meaning than was planned."""
    usual: dict[str, str] = {}
    if _MAY_CALL.search(predicate.sql("duckdb") or ""):
        usual |= _OF_TEXTS | _OF_FUNCTIONS
    types = [t.logical_type(predicate.schema.columns[path].type) for path in predicate.columns]
    if any(map(t.is_string, types)):
        usual |= _OF_TEXTS
    if any(t.is_timestamp(type) and type.tz is not None for type in types):
        usual |= _OF_ZONED_TIMES  # texts and local times are cast to such a column's type
    if not usual:
        return
    for name, value in _unusual(con, usual).items():
        raise InvalidOption(
            f"The connection has {name} = '{value}', with which the predicate may mean something else than it was "
            f"planned for. RESET {name}, read the plan on another connection, or read it with to_arrow()."
        )


def _unusual(con: duckdb.DuckDBPyConnection, usual: Mapping[str, str]) -> dict[str, str]:
    """The settings that differ from these."""
    selected = ", ".join(f"CAST(current_setting('{name}') AS VARCHAR)" for name in usual)
    (values,) = con.sql(f"SELECT {selected}").fetchall()
    return {name: value for name, value in zip(usual, values, strict=True) if value.lower() != usual[name]}
