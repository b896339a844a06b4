"""Conditions as the methods of a table take them: SQL, a bound predicate, or another library's expression."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypeAlias

from zskip.binder import Parameters
from zskip.binder.bind import bind
from zskip.binder.library_expressions import expression_sql
from zskip.core.schema import Schema
from zskip.language import Predicate

__all__ = ["Condition", "bind_condition", "bind_with_complement"]

Condition: TypeAlias = "str | Predicate | Any"
"""A condition: SQL, a bound predicate, or an expression of pyarrow, polars, ibis or DuckDB."""


def bind_condition(
    given: Condition,
    schema: Schema,
    dialect: str,
    timezone: str,
    params: Parameters | None,
    now: datetime | None = None,
) -> Predicate:
    """A predicate for the columns of a schema, from SQL or from an expression with its library's meaning."""
    if isinstance(given, Predicate):
        return given
    if isinstance(given, str):
        return bind(given, schema, dialect=dialect, timezone=timezone, params=params, now=now)
    return bind(expression_sql(given, schema), schema, now=now)


def bind_with_complement(
    where: Condition,
    schema: Schema,
    dialect: str,
    timezone: str,
    params: Parameters | None,
) -> tuple[Predicate, Predicate]:
    """A predicate and its complement, bound at the same time ``now()``."""
    now = datetime.now(UTC)
    matching = bind_condition(where, schema, dialect, timezone, params, now)
    own = matching.dialect
    rest = f"({matching.bound_text}) IS NOT TRUE"
    return matching, bind(rest, schema, dialect=own.name, timezone=own.timezone, now=now, ansi=own.ansi)
