"""SQL functions: one entry defines how a call is bound, the bounds of its result, and its names in DuckDB and the docs.

``function``: the class of an entry, parsed arguments and types · ``numbers``: the operators, abs, round, CAST ·
``widths``: the types in which engines compute · ``dates``: year, hour, date_trunc, intervals · ``strings``: left ·
``duckdb_evaluated``: functions without a rule,
which DuckDB evaluates · ``documentation``: docs/predicates.md, generated from these tables.

The bounds of a result follow from those of the argument where the function is monotone over the argument's range.
"""

from __future__ import annotations

from sqlglot import exp

from zskip.language.functions import dates, duckdb_evaluated, numbers, strings
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
    return [*own, *(name for names in duckdb_evaluated.COMPUTED.values() for name in names)]
