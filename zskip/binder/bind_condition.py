"""Conditions as the methods of a table take them: SQL, a bound predicate, or another library's expression.

`from_arrow` and `from_polars` build the tree from the library's own. ibis compiles its expressions to SQL, and DuckDB's
`Expression` has no other form than SQL, so these two are bound as text.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp

from zskip.binder import Parameters
from zskip.binder.bind import bind
from zskip.binder.typed_conditions import Unread, predicate, printed
from zskip.core.schema import Schema
from zskip.errors import InvalidOption, SqlError, UnsupportedSql, in_quotes, shown
from zskip.language import Predicate, conjunction, tree
from zskip.language.bound import Constant, complement
from zskip.language.tree import Node

Conjuncts: TypeAlias = Callable[[Any, Schema], Sequence[Node | str | Unread]]
"""The conjuncts of an expression as nodes of the tree or as SQL, with `Unread` for each that cannot be bound."""


def _duckdb(expression: Any, schema: Schema) -> list[str | Unread]:
    return [str(expression)]


def _ibis(expression: Any, schema: Schema) -> list[str | Unread]:
    """The conjuncts of an expression over one table as SQL; a single `Unread` if it cannot be converted."""
    import ibis
    from ibis.expr.operations import Analytic, ScalarParameter, WindowFunction

    if not isinstance(expression, ibis.Expr):  # a Deferred, such as `_.a > 5`
        (expression,) = ibis.table(ibis.Schema.from_pyarrow(schema.arrow), name="t").bind(expression)
    if expression.op().find((Analytic, ScalarParameter, WindowFunction)):
        return [Unread()]
    statement = sqlglot.parse_one(str(ibis.to_sql(expression, dialect="duckdb")), dialect="duckdb")
    # Any other clause, such as the WHERE of a filtered table, selects rows that the condition alone does not.
    clauses = {name for name, clause in statement.args.items() if clause}
    if not isinstance(statement, exp.Select) or len(statement.selects) != 1 or not clauses <= {"expressions", "from_"}:
        return [Unread()]
    table = statement.find(exp.Table)  # none for an expression without columns
    condition = statement.selects[0].unalias()
    if statement.find(exp.Subquery):
        return [Unread()]
    for column in [*condition.find_all(exp.Column)]:
        name, *path = column.parts
        if table is None or name.name != table.alias_or_name or not path:
            return [Unread()]
        field: exp.Expr = exp.Column(this=path[0])
        for part in path[1:]:
            field = exp.Dot(this=field, expression=part)
        condition = field if column is condition else condition
        column.replace(field)
    parts = condition.unnest().flatten() if isinstance(condition.unnest(), exp.And) else [condition]
    return [part.sql(dialect="duckdb") for part in parts]


def _converter(expression: object) -> Conjuncts | None:
    """The converter of the library that an expression belongs to; None for other objects."""
    kinds = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(expression).__mro__}
    if ("pyarrow", "Expression") in kinds:
        from zskip.binder import from_arrow  # most look-ups are SQL

        return from_arrow.conjuncts
    if ("polars", "Expr") in kinds:
        from zskip.binder import from_polars

        return from_polars.conjuncts
    if kinds & {("ibis", "BooleanValue"), ("ibis", "Deferred")}:
        return _ibis
    if kinds & {("duckdb", "Expression"), ("_duckdb", "Expression")}:
        return _duckdb
    return None


def bind_expression(expression: object, schema: Schema, now: datetime | None = None) -> Predicate:
    """The predicate of an expression.

    Raises `InvalidOption` for an object that is not an expression of a supported library, and `UnsupportedSql` for an
    expression with a part that cannot be bound exactly.
    """
    conjuncts = _converter(expression)
    if conjuncts is None:
        raise InvalidOption(
            "A predicate is SQL text, or an expression of pyarrow, polars, ibis or DuckDB, "
            f"not {type(expression).__name__}."
        )
    parts = conjuncts(expression, schema)
    for part in parts:
        if isinstance(part, Unread):
            library = type(expression).__module__.partition(".")[0].strip("_")
            text = str(part) or printed(expression)
            shown_text = "" if text is None else f": {text}"
            raise UnsupportedSql(
                f"A part of this {library} expression cannot be read{shown_text}. Write it in SQL"
                f"{_OTHERWISE.get(library, '')}."
            )
    return conjunction([_bound(part, schema, now) for part in parts if not isinstance(part, Unread)])


_OTHERWISE = {
    "pyarrow": ", or an OR of many values as is_in",
    "polars": ", or filter zskip.polars.scan(table) by it, which takes any expression",
}


def provable_part(expression: object, schema: Schema) -> Predicate | None:
    """The AND of the conjuncts of an expression that can be bound, for pruning; the engine filters by all of them.

    None if there are none: any file may hold a match then.
    """
    conjuncts = _converter(expression)
    bound = []
    for part in conjuncts(expression, schema) if conjuncts is not None else ():
        if not isinstance(part, Unread):
            with suppress(SqlError):  # a conjunct that cannot be bound prunes nothing
                bound.append(_bound(part, schema, None))
    return conjunction(bound) if bound else None


def _bound(part: Node | str, schema: Schema, now: datetime | None) -> Predicate:
    return bind(part, schema, now=now) if isinstance(part, str) else predicate(part, schema)


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
        given = given.rstrip("; \t\r\n")  # engines get the text in a WHERE, which a semicolon would end
        return bind(given, schema, dialect=dialect, timezone=timezone, params=params, now=now)
    return _bound_filters(given, schema) if isinstance(given, list) else bind_expression(given, schema, now)


_COMPARISONS: dict[str, Callable[[pc.Expression, Any], pc.Expression]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda column, values: column.isin(values if isinstance(values, pa.Array) else list(values)),
    "not in": lambda column, values: ~_COMPARISONS["in"](column, values),
}


_AS_IN_SQL = {"==": "=", "!=": "<>"}


def _bound_filters(given: list[Any], schema: Schema) -> Predicate:
    """The condition for a list of filters, with pyarrow's meaning. Raises `InvalidOption`, and `UnsupportedSql`."""
    alternatives = given if given and all(isinstance(each, list) for each in given) else [given]
    try:
        filters = [
            [(name, _filter(schema, name, op, value), op, value) for name, op, value in each] for each in alternatives
        ]
        if not all(filters):
            raise ValueError("a list without a filter")
    except OverflowError as error:
        raise InvalidOption(f"{shown(given)} has a number of more than 64 bits, which Arrow cannot compare.") from error
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidOption(
            f'{shown(given)} is no list of filters such as [("a", "=", 1), ("b", "in", [1, 2])]. The operators are '
            f"{', '.join(_COMPARISONS)}."
        ) from error
    from zskip.binder.from_arrow import number_filter

    def condition(name: str, expression: pc.Expression, op: str, value: Any) -> Node:
        found = number_filter(schema, name, _AS_IN_SQL.get(op, op), value)
        try:
            return bind_expression(expression, schema).tree if found is None else found
        except UnsupportedSql as error:
            raise UnsupportedSql(
                f"The filter {shown((name, op, value))} cannot be applied to {in_quotes(name)}, which is "
                f"{schema.arrow.field(name).type}. Write it in SQL, as where=."
            ) from error

    return predicate(tree.or_([tree.and_([condition(*one) for one in each]) for each in filters]), schema)


def _filter(schema: Schema, name: str, op: str, value: Any) -> pc.Expression:
    if not isinstance(name, str):
        raise TypeError("a column is named by text")
    if op in ("in", "not in"):
        if isinstance(value, str):
            raise TypeError("a text is no list")
        column = schema.find([name], case_sensitive=True)
        if column is not None and all(one is None for one in value):
            value = pa.nulls(len(value), column.type)  # for strings, Arrow takes values of type null for others
    return _COMPARISONS[op](pc.field(name), value)


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
