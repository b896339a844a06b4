"""SQL functions: one entry defines how a call is bound, the bounds of its result, and its names in DuckDB and the docs.

``function``: the class of an entry, parsed arguments and types · ``arithmetic``: the operators ·
``widths``: the types in which engines compute ·
``numbers``: abs, round, least · ``casts`` · ``date_parts``: year, hour · ``datetimes``: date_trunc, last_day ·
``datetime_arithmetic``: intervals and differences · ``zones``: time zones of datetimes · ``strings``: left, concat ·
``duckdb_evaluated``: functions without a rule,
which DuckDB evaluates · ``documentation``: docs/predicates.md, generated from these tables.

The bounds of a result follow from those of the argument where the function is monotone over the argument's range.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from zskip.language.functions import (
    arithmetic,
    casts,
    date_parts,
    datetime_arithmetic,
    datetimes,
    duckdb_evaluated,
    numbers,
    strings,
)
from zskip.language.functions.function import ArgumentBinder, Builder, Function
from zskip.language.tree import Call, Scalar

__all__ = ["FUNCTIONS", "NAMED", "PARSED", "call", "evaluated_by_duckdb", "in_image"]

_MODULES = (arithmetic, numbers, date_parts, datetimes, datetime_arithmetic, casts, strings)

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
    return [*own, *(name for names in duckdb_evaluated.COMPUTED.values() for name in names)]


def in_image(term: Scalar, value: pa.Scalar) -> bool:
    """Whether a term may have a value. True for columns, and for functions whose image is not restricted.

    date_trunc('day', x) = TIMESTAMP '2020-01-01 05:00'      never
    left(x, 2) <> 'abc'                                      always, unless x is NULL
    last_day(x) <= DATE '2020-01-15'                         last_day(x) < DATE '2020-01-15'
    """
    if not isinstance(term, Call) or not value.is_valid:
        return True
    image = FUNCTIONS[term.function].in_image
    return image is None or image(term, value)
