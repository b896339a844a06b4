"""Functions of strings: prefixes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from zskip.core import types as t
from zskip.language.functions.function import ArgumentBinder, Function, require_only, whole_number
from zskip.language.intervals.spans import Span
from zskip.language.literals import Refused
from zskip.language.tree import Call, Cause, Scalar


def prefix(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    """Binds ``left(x, n)`` and ``substr(x, 1, n)``."""
    require_only(node, "this", "expression", "start", "length")
    inner = binding.scalar(node.this)
    if isinstance(node, exp.Substring):
        start, count = (whole_number(node.args[name]) if node.args.get(name) else None for name in ("start", "length"))
        if start != 1:
            raise Refused("a part of a string that does not start at its beginning", Cause.MIDDLE_OF_TEXT)
    else:
        count = whole_number(node.expression)
    if not t.is_string(inner.type) or count is None or count < 0 or binding.dialect.name not in ("duckdb", "spark"):
        raise Refused(f"a prefix of {inner.type}")
    return Call("prefix", (inner,), pa.string(), (count,))


def _bounds(spans: list[Span], call: Call) -> Span:
    """The bounds of the first characters of a string. ``call.options``: their number."""
    (span,) = spans
    (count,) = call.options
    lower, upper = (_prefix_of(bound, int(str(count))) for bound in (span.lower, span.upper))
    return Span(call.type, lower, upper, span.value, span.null, span.nan, span.fail)


def _prefix_of(bounds: pa.Array, count: int) -> pa.Array:
    try:
        text = bounds.cast(pa.string())
    except pa.ArrowInvalid:
        # A bound was truncated inside a character. The bytes before that character still preserve the order.
        return pa.array(
            [None if bound is None else _first_characters(bound, count) for bound in bounds.to_pylist()], pa.binary()
        )
    return pc.utf8_slice_codeunits(text, 0, count).cast(pa.binary())


def _first_characters(value: bytes, count: int) -> bytes:
    kept = 0
    for index, byte in enumerate(value):
        if byte & 0xC0 != 0x80:
            if kept == count:
                return value[:index]
            kept += 1
    return value


FUNCTIONS = (
    Function(
        "prefix",
        "left(x, n), substr(x, 1, n)",
        "string",
        "rises",
        _bounds,
        {exp.Left: prefix, exp.Substring: prefix},
        duckdb=("left", "substr", "substring"),
    ),
)
