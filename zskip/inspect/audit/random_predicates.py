"""Random predicates over a table's own values: common conditions and edge cases."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from zskip.core import types as t
from zskip.core.schema import Schema
from zskip.language import sql_literals
from zskip.language.render import constant_sql
from zskip.language.sql_literals import identifier

__all__ = ["literal", "random_predicates"]


def literal(value: Any, type: pa.DataType) -> str:
    """A value as a DuckDB literal of the column's type. Raises `TypeError` for a type without literals.

    >>> literal("it's", pa.string()), literal(None, pa.int64()), literal(float("nan"), pa.float64())
    ("'it''s'", 'NULL', "CAST('nan' AS DOUBLE)")
    """
    if value is None:
        return "NULL"
    if t.is_integer(type) or (t.is_floating(type) and math.isfinite(value)):
        return repr(value)  # bare, as people write numbers
    if t.is_time(type):
        return sql_literals.literal(value, "duckdb")
    text = constant_sql(pa.scalar(value, type), "duckdb")
    if text is None:
        raise TypeError(f"{type} has no literal")
    return text


def has_literals(type: pa.DataType) -> bool:
    """Whether `literal` can write every value of a type without loss."""
    entry = t.of(type)
    if t.is_time(type):
        return bool(type.unit != "ns")  # Python's own times end at microseconds
    if t.is_decimal(type):
        return bool(type.precision <= 38)
    # A literal of bytes is a function call, from which nothing can be proved.
    return not t.is_binary(type) and (entry.spelled is not None or (entry.plain is not None and entry.plain(type)))


Shape = Callable[[str, list[str], random.Random], str]

# Each takes the column, three of its values as literals, and the dice.
SHAPES: tuple[Shape, ...] = (
    lambda column, values, dice: f"{column} = {values[0]}",
    lambda column, values, dice: f"{column} {dice.choice(['<', '<=', '>', '>=', '<>'])} {values[0]}",
    lambda column, values, dice: (
        f"{column} BETWEEN least({values[0]}, {values[1]}) AND greatest({values[0]}, {values[1]})"
    ),
    lambda column, values, dice: f"{column} IN ({', '.join(values)})",
    lambda column, values, dice: f"{column} NOT IN ({', '.join(values)})",
    lambda column, values, dice: f"{column} IS {dice.choice(['', 'NOT '])}NULL",
    lambda column, values, dice: f"{column} IS {dice.choice(['', 'NOT '])}DISTINCT FROM {values[0]}",
    lambda column, values, dice: f"NOT ({column} {dice.choice(['=', '<', '>='])} {values[0]})",
)


def prefix(column: str, value: Any, dice: random.Random) -> str:
    """A LIKE on the first characters of a string, its wildcards escaped."""
    start = value[: dice.randint(1, max(1, min(8, len(value))))]
    for special in ("!", "%", "_", "'"):
        start = start.replace(special, ("'" if special == "'" else "!") + special)
    return f"{column} LIKE '{start}%' ESCAPE '!'"


def random_predicates(rows: pa.Table, schema: Schema, count: int, *, seed: int = 0) -> list[str]:
    """Predicates over the columns that have literals, with values of ``rows``. Equal seeds give equal predicates."""
    dice = random.Random(seed)
    columns = [column for column in schema if column.orderable and has_literals(column.type)]
    if not columns or not len(rows):
        return ["TRUE"][:count]
    values = {column.path: column.of(rows) for column in columns}

    def leaf() -> str:
        column = dice.choice(columns)
        drawn = [values[column.path][dice.randrange(len(rows))].as_py() for _ in range(3)]
        name = identifier(*column.parts)
        if t.is_string(column.type) and drawn[0] and dice.random() < 0.2:
            return prefix(name, drawn[0], dice)
        return dice.choice(SHAPES)(name, [literal(value, column.type) for value in drawn], dice)

    def tree(depth: int) -> str:
        if depth == 0 or dice.random() < 0.5:
            return leaf()
        joined = f"({tree(depth - 1)}) {dice.choice(['AND', 'AND', 'OR'])} ({tree(depth - 1)})"
        return f"NOT ({joined})" if dice.random() < 0.2 else joined

    return [tree(2) for _ in range(count)]
