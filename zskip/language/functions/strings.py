"""Functions of strings: prefixes, and concatenation with constants."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from zskip.core import types as t
from zskip.language.functions.function import ArgumentBinder, Function, require_only, whole_number
from zskip.language.intervals import extremes
from zskip.language.literals import Refused
from zskip.language.tree import Call, Literal, Scalar
from zskip.language.why import Cause


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


def concat(binding: ArgumentBinder, node: exp.Expr) -> Scalar:
    """Binds ``'p' || x`` and ``concat('p', x)``."""
    require_only(node, "this", "expression", "expressions", "safe", "coalesce")
    parts = [binding.scalar(each) for each in (node.expressions or (node.this, node.expression))]
    if len(parts) != 2 or not isinstance(parts[0], Literal) or not parts[0].value.is_valid:
        raise Refused("a concatenation that does not begin with a constant")
    if not all(t.is_string(each.type) for each in parts):
        raise Refused("a concatenation of something other than strings")
    skips = isinstance(node, exp.Concat) and binding.dialect.name == "duckdb"
    return Call("concat", (parts[1],), pa.string(), (parts[0].value.as_py(), skips))


def _is_short_enough(call: Call, value: pa.Scalar) -> bool:
    """Whether a string has at most as many characters as the prefix."""
    (count,) = call.options
    return isinstance(count, int) and len(value.as_py()) <= count


FUNCTIONS = (
    Function(
        "prefix",
        "left(x, n), substr(x, 1, n)",
        "string",
        "rises",
        extremes.prefix,
        {exp.Left: prefix, exp.Substring: prefix},
        in_image=_is_short_enough,
        duckdb=("left", "substr", "substring"),
    ),
    Function(
        "concat",
        "'p' || x, concat('p', x)",
        "string",
        "rises",
        extremes.concat,
        {exp.DPipe: concat, exp.Concat: concat},
        duckdb=("concat",),
    ),
)
