"""SQL functions: one entry defines how a call is bound, the bounds of its result, and its names in DuckDB and the docs.

``function``: what an entry holds · ``arithmetic``: the operators, in the ``widths`` in which engines compute ·
``numbers``: abs, round, least · ``casts`` · ``date_parts``: year, hour · ``datetimes``: beginnings of periods ·
``moment_arithmetic``: intervals, and time between moments · ``strings``: left, concat · ``evaluated``: what only
DuckDB computes · ``documentation``: the page that is printed from all of this.

A function moves the bounds of its argument only where it keeps their order or turns it over the whole range; where it
does so in pieces, over the piece that holds the range.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from zskip.expr.tree import Call, Scalar
from zskip.functions import arithmetic, casts, date_parts, datetimes, evaluated, moment_arithmetic, numbers, strings
from zskip.functions.function import Arguments, Builder, Function

__all__ = ["FUNCTIONS", "NAMED", "PARSED", "call", "evaluated_by_duckdb", "may_give"]

_MODULES = (arithmetic, numbers, date_parts, datetimes, moment_arithmetic, casts, strings)

FUNCTIONS: dict[str, Function] = {each.name: each for module in _MODULES for each in module.FUNCTIONS}
"""By the name that a `zskip.expr.tree.Call` carries."""

PARSED: dict[type[exp.Expr], Builder] = {
    kind: builder for function in FUNCTIONS.values() for kind, builder in function.parsed.items()
}
NAMED: dict[str, Builder] = {
    name: builder for function in FUNCTIONS.values() for name, builder in function.named.items()
}
"""How calls are bound, by the parser's expression, and by name where the parser knows none."""


def call(binding: Arguments, node: exp.Expr) -> Scalar | None:
    """The term that a function call is; None where zskip has no such function. Raises `Refused`."""
    builder = NAMED.get(node.name.lower()) if isinstance(node, exp.Anonymous) else PARSED.get(type(node))
    return None if builder is None else builder(binding, node)


def evaluated_by_duckdb() -> list[str]:
    """The names of functions, in DuckDB's parser, that it may be asked to compute for single values."""
    own = [name for function in FUNCTIONS.values() for name in function.duckdb]
    return [*own, *(name for names in evaluated.COMPUTED.values() for name in names)]


def may_give(term: Scalar, value: pa.Scalar) -> bool:
    """Whether a term may have a value. True for a column, and for a function that may give all between its bounds.

    date_trunc('day', x) = TIMESTAMP '2020-01-01 05:00'      never
    left(x, 2) <> 'abc'                                      always, where x is not NULL
    last_day(x) <= DATE '2020-01-15'                         last_day(x) < DATE '2020-01-15'
    """
    if not isinstance(term, Call) or not value.is_valid:
        return True
    image = FUNCTIONS[term.function].may_give
    return image is None or image(term, value)
