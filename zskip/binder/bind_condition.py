"""Conditions as the methods of a table take them: SQL, a bound predicate, or another library's expression."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime
from functools import reduce
from typing import Any, TypeAlias

import pyarrow.compute as pc

from zskip.binder import Parameters
from zskip.binder.bind import bind
from zskip.core.schema import Schema
from zskip.errors import InvalidOption, UnsupportedSql, shown
from zskip.language import Predicate
from zskip.language.bound import Constant, complement

Condition: TypeAlias = "str | Predicate | Any"
"""A condition: SQL, a bound predicate, an expression of pyarrow, polars, ibis or DuckDB, or a list of filters as
pyarrow takes it: ``[("a", "=", 1), ("b", "<", 2)]`` for AND, a list of such lists for OR."""


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
    from zskip.binder.library_expressions import bind_expression

    return bind_expression(_filters(given) if isinstance(given, list) else given, schema, now)


_COMPARISONS: dict[str, Callable[[pc.Expression, Any], pc.Expression]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda column, values: column.isin(list(values)),
    "not in": lambda column, values: ~column.isin(list(values)),
}


def _filters(given: list[Any]) -> pc.Expression:
    """The expression of pyarrow for a list of filters. Raises `InvalidOption`."""
    alternatives = given if given and all(isinstance(each, list) for each in given) else [given]
    try:
        ands = [
            reduce(operator.and_, [_COMPARISONS[op](pc.field(name), value) for name, op, value in each])
            for each in alternatives
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidOption(f'{shown(given)} is no list of filters such as [("a", "=", 1)].') from error
    return reduce(operator.or_, ands)


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
