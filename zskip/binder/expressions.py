"""Expressions of other libraries as DuckDB's SQL, so that they can be given in place of SQL.

A front-end a library, each from its own tree and never from its printed form: `from_arrow`, `from_polars`, `from_ibis`.
DuckDB's own `Expression` prints as SQL that DuckDB reads again.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from zskip.binder.bind import bind
from zskip.errors import InvalidOption, SqlError, UnsupportedSql
from zskip.expr import Predicate, conjunction
from zskip.schema import Schema

__all__ = ["is_expression", "provable", "text_of"]


def _duckdb(expression: Any, schema: Schema) -> list[str | None]:
    return [str(expression)]


def _front_end(name: str) -> Callable[[Any, Schema], list[str | None]]:
    # A front-end is loaded with the library whose expressions it reads.
    found: Callable[[Any, Schema], list[str | None]] = import_module(f"zskip.binder.{name}").conjuncts
    return found


def _reader(expression: object) -> Callable[[Any, Schema], list[str | None]] | None:
    """What reads an expression into its conjuncts as SQL, None for each that it cannot say; None for other objects."""
    kinds = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(expression).__mro__}
    if ("pyarrow", "Expression") in kinds:
        return _front_end("from_arrow")
    if ("polars", "Expr") in kinds:
        return _front_end("from_polars")
    if kinds & {("ibis", "BooleanValue"), ("ibis", "Deferred")}:
        return _front_end("from_ibis")
    if kinds & {("duckdb", "Expression"), ("_duckdb", "Expression")}:
        return _duckdb
    return None


def is_expression(given: object) -> bool:
    """Whether this is an expression of a library that is known here."""
    return _reader(given) is not None


def text_of(expression: object, schema: Schema) -> str:
    """An expression as SQL of DuckDB's. Raises `UnsupportedSql` where a part of it has no certain meaning there."""
    reader = _reader(expression)
    if reader is None:
        raise InvalidOption(
            "A predicate is a text in SQL, or an expression of pyarrow, polars, ibis or DuckDB, "
            f"not {type(expression).__name__}."
        )
    parts = reader(expression, schema)
    if None in parts:
        library = type(expression).__module__.partition(".")[0].strip("_")
        try:
            printed = f": {expression}"
        except UnicodeDecodeError:  # pyarrow cuts long lists in the middle of a character
            printed = ""
        raise UnsupportedSql(f"A part of this {library} expression cannot be read{printed}. Say it in SQL.")
    return " AND ".join(f"({part})" for part in parts)


def provable(expression: object, schema: Schema) -> Predicate | None:
    """The conjuncts of an expression that can be read, for an engine that asks all of it of the rows again.

    None where nothing can be read: every file may hold a match then.
    """
    reader = _reader(expression)
    found = []
    for part in reader(expression, schema) if reader is not None else ():
        if part is None:
            continue
        try:
            found.append(bind(part, schema))
        except SqlError:
            continue  # Kept, because what cannot be bound proves nothing.
    return conjunction(found) if found else None
