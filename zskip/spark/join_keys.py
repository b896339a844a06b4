"""Join keys, which Spark passes to a scan at run time, as predicates on the table's columns.

There may be hundreds of thousands of them, so they are read from Java as one string.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.core.schema import Column, Schema
from zskip.language import Dialect, Predicate
from zskip.language.tree import Reference, in_, never
from zskip.spark.jvm import Jvm

_TEXT = re.compile(r"NULL|'(?:[^']|'')*'")
# This many take a tenth of a second to read from Java, parse and sort.
_MOST_KEYS = 200_000


def is_key_type(type: pa.DataType) -> bool:
    """Whether values of a type are equal in Spark if and only if they are in the index. Floats are not (NaN, -0.0)."""
    exact = t.is_signed_integer(type) or t.is_date(type) or t.is_string(type) or t.is_decimal128(type)
    return bool(exact or _is_microseconds(type))


def key_predicates(predicates: Any, schema: Schema, jvm: Jvm, dialect: Dialect) -> list[Predicate]:
    """The predicates among a conjunction of Spark's that can be translated.

    ``predicates``: Java objects, connector.expressions.filter.Predicate[] · ``dialect``: of the filters that they join;
    keys are values, which mean the same in all settings of a session.
    """
    found = (_key_predicate(predicate, schema, jvm, dialect) for predicate in predicates)
    return [one for one in found if one is not None]


def _key_predicate(predicate: Any, schema: Schema, jvm: Jvm, dialect: Dialect) -> Predicate | None:
    kind = predicate.name()
    if kind == "ALWAYS_FALSE":
        any_column = next(iter(schema.columns.values()))
        text = "no key of a join"
        return Predicate(text, None, never(Reference(any_column.path, any_column.type)), schema, dialect)
    if kind != "IN":
        return None
    children = predicate.children()
    term = children[0]
    column = _column(term, schema, jvm)
    if column is None or not 1 < len(children) <= _MOST_KEYS:
        return None
    printed = jvm.joined(children, ", ")
    prefix = f"{term.toString()}, "
    if not printed.startswith(prefix):
        return None
    keys = parse_keys(printed[len(prefix) :], children[1].dataType().simpleString(), column.type)
    if keys is None:
        return None
    text = f"{column.path} IN ({len(keys):,} keys of a join)"
    return Predicate(text, None, in_(Reference(column.path, column.type), keys), schema, dialect)


def _column(term: Any, schema: Schema, jvm: Jvm) -> Column | None:
    """The column that a term refers to, also through a cast: `parse_keys` checks the type of the keys."""
    if term.getClass().getSimpleName() == "Cast":
        term = term.expression()
    name = jvm.column_name(term)
    return None if name is None else schema.find([name], case_sensitive=True)


def parse_keys(text: str, kind: str, type: pa.DataType) -> pa.Array | None:
    """Parse keys of Spark's type ``kind``, printed with commas between them, as values of a column of ``type``.

    NULL, which joins with nothing, and values that the column cannot hold are dropped. None if the types differ, other
    than in the width of integers: a cast may make different values equal.

    >>> parse_keys("7, NULL, 300", "int", pa.int8()).to_pylist()
    [7]
    >>> parse_keys("'a, b', NULL, 'it''s'", "string", pa.string()).to_pylist()
    ['a, b', "it's"]
    >>> parse_keys("7", "date", pa.int64())
    """
    if kind == "string":
        tokens = _TEXT.findall(text)
        # U+FFFD stands for bytes that are not UTF-8, whose value is lost.
        if not t.is_string(type) or ", ".join(tokens) != text or "\ufffd" in text:
            return None
        return pa.array([token[1:-1].replace("''", "'") for token in tokens if token != "NULL"], type)
    printed = pa.array(text.split(", "))
    printed = printed.filter(pc.not_equal(printed, "NULL"))
    try:
        if t.is_signed_integer(type) and _BITS.get(kind, 0) >= type.bit_width:
            wide = printed.cast(pa.int64())
            most = (1 << (type.bit_width - 1)) - 1
            return wide.filter(pc.and_(pc.less_equal(wide, most), pc.greater_equal(wide, -most - 1))).cast(type)
        if kind == "date" and t.is_date(type):
            return printed.cast(pa.int32()).cast(pa.date32()).cast(type)
        if kind in _CLOCKS and _is_microseconds(type) and (type.tz is not None) is _CLOCKS[kind]:
            return printed.cast(pa.int64()).cast(type)
        if t.is_decimal128(type) and kind == f"decimal({type.precision},{type.scale})":
            return printed.cast(type)
    except pa.ArrowInvalid:
        return None  # A key that cannot be parsed may match any row.
    return None


_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_CLOCKS = {"timestamp": True, "timestamp_ntz": False}


def _is_microseconds(type: pa.DataType) -> bool:
    return bool(t.is_timestamp(type) and type.unit == "us")
