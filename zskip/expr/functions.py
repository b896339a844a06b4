"""What zskip knows of functions: one table, which is also their documentation.

A function moves the bounds of its argument only where it is **monotone**: it keeps the order (``rises``) or turns it
(``falls``) over the whole range; where it does so in pieces, over the piece that holds the range. What is not in
``FUNCTIONS`` is decided by trying all values where a range holds few, and is opaque elsewhere: ``COMPUTED`` says what
DuckDB may be asked to compute for them.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types as t

__all__ = [
    "COMPUTED",
    "COMPUTED_TYPES",
    "FUNCTIONS",
    "Function",
    "is_computable",
]


@dataclass(frozen=True, slots=True)
class Function:
    """One line of the documentation. ``rule``: how the bounds of the result follow from those of the arguments."""

    spelled: str
    types: str
    rule: str
    dialects: tuple[str, ...] = ("duckdb", "spark")


_NUMBERS = "integers up to 64 bits, decimals up to 18 digits, floats"
_EXACT = "integers, decimals up to 38 digits, floats"
_MOMENTS = "date, timestamp"
_MOMENT_RULE = "rises; with a zone, the bounds are widened by the zone's offsets where its clocks change"

FUNCTIONS: dict[str, Function] = {
    "add": Function(
        "x + y", _EXACT, "interval arithmetic; past the result's type the engine raises, or wraps: then unknown"
    ),
    "subtract": Function("x - y", _EXACT, "interval arithmetic, as for +"),
    "multiply": Function("x * y", _EXACT, "interval arithmetic: the least and the greatest of the four corners"),
    "divide": Function(
        "x / y",
        "integers and floats (decimals: duckdb)",
        "interval arithmetic where the divisor's range leaves out zero",
    ),
    "divide_whole": Function("x // y, x DIV y", "integers", "as for /, cut towards zero"),
    "modulo": Function(
        "x % c, mod(x, c)", "integers, c a constant", "rises within one multiple of c; else every remainder"
    ),
    "negate": Function("-x", "signed integers, decimals up to 38 digits, floats", "falls"),
    "abs": Function("abs(x)", _NUMBERS, "falls below zero, rises above"),
    "sign": Function("sign(x)", _NUMBERS, "rises", ("duckdb",)),
    "floor": Function("floor(x)", "floats, decimals", "rises"),
    "ceil": Function("ceil(x), ceiling(x)", "floats, decimals", "rises"),
    "trunc": Function("trunc(x)", "floats, decimals", "rises", ("duckdb",)),
    "round": Function("round(x), round(x, n)", "floats, decimals", "rises; floats are widened by the rounding"),
    "sqrt": Function("sqrt(x)", _NUMBERS, "rises above zero; NaN below"),
    "ln": Function("ln(x)", _NUMBERS, "rises above zero; widened by the rounding; NaN or NULL below"),
    "exp": Function("exp(x)", _NUMBERS, "rises; widened by the rounding"),
    "power": Function("power(x, c)", "numbers, c a positive whole constant", "rises, or for even c falls below zero"),
    "least": Function("least(x, y, …)", "one type", "the least of the bounds; NULLs are left out"),
    "greatest": Function("greatest(x, y, …)", "one type", "the greatest of the bounds; NULLs are left out"),
    "part": Function(
        "year(x), quarter, month, week, day, dayofyear, dayofweek, isodow, hour, minute, second, extract, date_part",
        _MOMENTS,
        "the year rises; a part of something rises where that something is the same at both bounds, else every value",
    ),
    "truncate": Function("date_trunc('unit', x), trunc(x, 'unit')", _MOMENTS, _MOMENT_RULE),
    "date": Function("CAST(x AS DATE), date(x), to_date(x)", _MOMENTS, _MOMENT_RULE),
    "timestamp": Function("CAST(x AS TIMESTAMP)", _MOMENTS, "rises"),
    "last_day": Function("last_day(x)", _MOMENTS, "rises"),
    "shift": Function(
        "x + INTERVAL …, x - INTERVAL …, date_add, date_sub, add_months",
        _MOMENTS,
        "rises; the 31st becomes the month's last day",
    ),
    "add_days": Function("x + n, x - n", "date", "rises"),
    "difference": Function(
        "date_diff('unit', x, y), datediff(y, x), x - y",
        "date, timestamp without zone",
        "interval arithmetic on the numbers of the units",
    ),
    "epoch": Function("epoch(x), epoch_ms, epoch_us, unix_timestamp, unix_seconds, unix_date", _MOMENTS, "rises"),
    "from_epoch": Function("to_timestamp(x), timestamp_seconds(x)", "integers", "rises"),
    "cast": Function(
        "CAST(x AS a number), TRY_CAST",
        _NUMBERS,
        "rises; widened by one where fractions are rounded; what does not fit raises, or is NULL",
    ),
    "prefix": Function("left(x, n), substr(x, 1, n)", "string", "rises"),
    "concat": Function("'p' || x, concat('p', x)", "string", "rises"),
}
"""By the name that a `zskip.expr.tree.Call` carries."""


COMPUTED: dict[str, tuple[str, ...]] = {
    "operators": (
        "+", "-", "*", "/", "//", "%", "**", "^", "&", "|", "~", "<<", ">>", "||", "@", "^@",
        "~~", "!~~", "~~*", "!~~*", "~~~", "like_escape", "not_like_escape", "ilike_escape", "not_ilike_escape",
    ),
    "numbers": (
        "abs", "sign", "floor", "ceil", "ceiling", "round", "round_even", "trunc", "even", "mod", "fmod", "fdiv",
        "sqrt", "cbrt", "exp", "ln", "log", "log2", "log10", "pow", "power", "gcd", "lcm", "bit_count", "xor",
        "degrees", "radians", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh",
        "isnan", "isinf", "isfinite", "signbit", "least", "greatest",
    ),
    "strings": (
        "upper", "ucase", "lower", "lcase", "length", "len", "char_length", "character_length", "strlen", "bit_length",
        "length_grapheme", "trim", "ltrim", "rtrim", "reverse", "left", "right", "substr", "substring", "split_part",
        "instr", "strpos", "position", "contains", "prefix", "suffix", "starts_with", "ends_with", "ascii", "ord",
        "unicode", "chr", "concat", "concat_ws", "translate", "replace", "strip_accents", "nfc_normalize", "md5",
        "sha1", "sha256", "hex", "to_hex", "bin", "to_binary", "to_base", "regexp_matches", "regexp_full_match",
        "regexp_extract", "regexp_replace",
    ),
    "dates and times": (
        "year", "quarter", "month", "week", "weekofyear", "yearweek", "isoyear", "day", "dayofmonth", "dayofyear",
        "dayofweek", "weekday", "isodow", "hour", "minute", "second", "millisecond", "microsecond", "decade",
        "century", "millennium", "era", "epoch", "epoch_ms", "epoch_us", "epoch_ns", "julian", "monthname", "dayname",
        "last_day", "days_in_month", "date_part", "datepart", "date_trunc", "datetrunc", "date_diff", "datediff",
        "date_sub", "datesub", "date_add", "time_bucket", "strftime", "strptime", "try_strptime", "make_date",
        "make_timestamp", "to_timestamp", "timezone", "to_years", "to_quarters", "to_months", "to_weeks", "to_days",
        "to_hours", "to_minutes", "to_seconds", "to_milliseconds", "to_microseconds",
    ),
    "choices": ("nullif", "if", "row"),
}  # fmt: skip
"""What DuckDB may be asked to compute for single values, by subject: each gives one answer for one value, always, and
reads nothing else. The names are those of DuckDB's parser, to which casts, comparisons and CASE are no functions."""

COMPUTED_TYPES: frozenset[str] = frozenset({
    "BOOLEAN", "BOOL", "TINYINT", "SMALLINT", "INTEGER", "INT", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT",
    "UINTEGER", "UBIGINT", "UHUGEINT", "FLOAT", "REAL", "DOUBLE", "DECIMAL", "NUMERIC", "VARCHAR", "TEXT", "STRING",
    "CHAR", "DATE", "TIME", "TIMESTAMP", "DATETIME", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ",
    "TIMESTAMP WITH TIME ZONE", "INTERVAL", "BLOB",
    "INT1", "INT2", "INT4", "INT8", "INT16", "INT32", "INT64", "FLOAT4", "FLOAT8", "LONG", "SHORT",
})  # fmt: skip
"""The types to which such an expression may cast."""


def is_computable(type: pa.DataType) -> bool:
    """Whether DuckDB reads a column of this type from Parquet as it reads an Arrow array of it.

    Not so binary, which may be a UUID there; timestamps of other units than microseconds; times, which may have an
    offset; and decimals of more than 38 digits.
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
