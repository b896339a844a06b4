"""SQL functions: one entry defines how a call is bound, the bounds of its result, and its names in DuckDB and the docs.

``function``: the class of an entry, parsed arguments and types · ``numbers``: the operators, abs, round, CAST ·
``widths``: the types in which engines compute · ``dates``: year, hour, date_trunc, intervals · ``strings``: left ·
below: functions without a rule, which DuckDB evaluates. docs/predicates.md is made of these tables.

The bounds of a result follow from those of the argument where the function is monotone over the argument's range.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from zskip.core import types as t
from zskip.language.functions import dates, numbers, strings
from zskip.language.functions.function import ArgumentBinder, Builder, Function
from zskip.language.tree import Scalar

__all__ = ["FUNCTIONS", "NAMED", "PARSED", "call", "evaluated_by_duckdb"]

_MODULES = (numbers, dates, strings)

FUNCTIONS: dict[str, Function] = {each.name: each for module in _MODULES for each in module.FUNCTIONS}
"""By the name in a `zskip.language.tree.Call`."""

PARSED: dict[type[exp.Expr], Builder] = {
    kind: builder for function in FUNCTIONS.values() for kind, builder in function.parsed.items()
}
NAMED: dict[str, Builder] = {
    name: builder for function in FUNCTIONS.values() for name, builder in function.named.items()
}
"""How calls are bound: by the parser's class of expression, or by name if the parser has no class for them."""


def call(binding: ArgumentBinder, node: exp.Expr) -> Scalar | None:
    """Binds a function call; None if zskip has no entry for the function. Raises `Refused`."""
    builder = NAMED.get(node.name.lower()) if isinstance(node, exp.Anonymous) else PARSED.get(type(node))
    return None if builder is None else builder(binding, node)


def evaluated_by_duckdb() -> list[str]:
    """The functions that DuckDB may evaluate for single values, by their names in DuckDB's parser."""
    own = [name for function in FUNCTIONS.values() for name in function.duckdb]
    return [*own, *(name for names in COMPUTED.values() for name in names)]


# The functions and types that DuckDB may use to evaluate expressions for single values.

COMPUTED: dict[str, tuple[str, ...]] = {
    "operators": (
        "+", "-", "*", "/", "//", "%", "**", "^", "&", "|", "~", "<<", ">>", "||", "@", "^@",
        "~~", "!~~", "~~*", "!~~*", "~~~", "like_escape", "not_like_escape", "ilike_escape", "not_ilike_escape",
    ),
    "numbers": (
        "sign", "sqrt", "ln", "exp", "pow", "power", "least", "greatest",
        "round_even", "even", "fmod", "fdiv",
        "cbrt", "log", "log2", "log10", "gcd", "lcm", "bit_count", "xor",
        "degrees", "radians", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh",
        "isnan", "isinf", "isfinite", "signbit",
    ),
    "strings": (
        "upper", "ucase", "lower", "lcase", "length", "len", "char_length", "character_length", "strlen", "bit_length",
        "length_grapheme", "trim", "ltrim", "rtrim", "reverse", "right", "split_part",
        "concat", "instr", "strpos", "position", "contains", "prefix", "suffix", "starts_with", "ends_with",
        "ascii", "ord", "unicode", "chr", "md5", "sha1", "sha256", "regexp_matches",
        "regexp_full_match", "regexp_extract",
    ),
    "dates and times": (
        "yearweek", "isoyear",
        "millisecond", "microsecond", "decade",
        "century", "millennium", "era", "epoch_us", "epoch_ns", "julian", "monthname", "dayname",
        "days_in_month",
        "date_sub", "datesub", "time_bucket", "strftime", "strptime", "try_strptime", "make_date",
        "make_timestamp", "timezone", "to_years", "to_quarters", "to_months", "to_weeks", "to_days",
        "to_hours", "to_minutes", "to_seconds", "to_milliseconds", "to_microseconds",
    ),
    "choices": ("nullif", "if", "row"),
}  # fmt: skip
"""By subject, in addition to `FUNCTIONS`. Each is deterministic, reads nothing but its arguments, and has a result of
about their length: not so `replace`, `hex` and `translate`, which nest to texts of any length.
The names are those of DuckDB's parser, which does not represent casts, comparisons and CASE as functions."""

COMPUTED_TYPES: frozenset[str] = frozenset({
    "BOOLEAN", "BOOL", "TINYINT", "SMALLINT", "INTEGER", "INT", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT",
    "UINTEGER", "UBIGINT", "UHUGEINT", "FLOAT", "REAL", "DOUBLE", "DECIMAL", "NUMERIC", "VARCHAR", "TEXT", "STRING",
    "CHAR", "DATE", "TIME", "TIMESTAMP", "DATETIME", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ",
    "TIMESTAMP WITH TIME ZONE", "INTERVAL",
    "INT1", "INT2", "INT4", "INT8", "INT16", "INT32", "INT64", "FLOAT4", "FLOAT8", "LONG", "SHORT",
})  # fmt: skip
"""The types to which these expressions may cast."""


def is_computable(type: pa.DataType) -> bool:
    """Whether DuckDB reads a column of this type from Parquet as the type that it gives an Arrow array.

    False for binary, which may be a UUID in Parquet; for timestamps in units other than microseconds; for times, which
    may have an offset; and for decimals of more than 38 digits.
    """
    if t.is_decimal(type):
        return bool(type.precision <= 38)
    if t.is_timestamp(type):
        return bool(type.unit == "us")
    return bool(t.is_integer(type) or t.is_boolean(type) or t.is_string(type)) or type in (
        pa.date32(),
        pa.float32(),
        pa.float64(),
    )
