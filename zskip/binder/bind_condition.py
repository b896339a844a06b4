"""Conditions as the methods of a table take them: SQL, a bound predicate, or another library's expression."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypeAlias

from zskip.binder import Parameters
from zskip.binder.bind import bind
from zskip.binder.library_expressions import bind_expression
from zskip.core.schema import Schema
from zskip.errors import UnsupportedSql
from zskip.language import Predicate
from zskip.language.bound import Constant, complement

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
    return bind_expression(given, schema, now)


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
    return matching, complement(matching)


def bind_again(predicate: Predicate, schema: Schema) -> Predicate:
    """A predicate bound to other columns, to whose types its constants are fitted anew. Raises `UnsupportedSql`."""
    own, template = predicate.dialect, predicate.as_template()
    if template is None:
        raise UnsupportedSql(f'"{predicate}" cannot be bound to other columns: {own.name} has no SQL for it.')
    values = {f"p{n}": each.value for n, each in enumerate(template.pieces) if isinstance(each, Constant)}
    pieces = (f" $p{n} " if isinstance(each, Constant) else each for n, each in enumerate(template.pieces))
    return bind(
        "".join(pieces),
        schema,
        dialect=own.name,
        timezone=own.timezone,
        params=values or None,
        ansi=own.ansi,
    )
