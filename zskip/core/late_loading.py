"""What is loaded on first use: engines by name, which a plan calls without importing them, names of packages, `pc`, and
DuckDB where it is only asked a question.

`zskip/__init__` names the engines of the package.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb
    import pyarrow.compute as pc

__all__ = ["ENGINES", "ask_duckdb", "engine", "lazy_names", "own_duckdb", "pc"]

ENGINES: dict[str, str] = {}
"""The module that holds an engine's functions, by the engine's name."""


def engine(name: str) -> Any:
    """The module of an engine. Raises the errors of loading it.

    >>> engine("arrow").__name__
    'zskip.engines.arrow'
    """
    return import_module(ENGINES[name])


def ask_duckdb(sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """The rows of a statement, from a DuckDB without tables that no user has changed. Raises ``duckdb.Error``.

    >>> ask_duckdb("SELECT CAST(0.1 AS FLOAT) < 0.1::DOUBLE")
    [(False,)]
    """
    with own_duckdb() as con:
        return con.execute(sql, params).fetchall()


def own_duckdb() -> duckdb.DuckDBPyConnection:
    """A connection to a DuckDB without tables that no user has changed; each process has one."""
    return _database(os.getpid()).cursor()


@cache
def _database(process: int) -> duckdb.DuckDBPyConnection:
    """A forked process needs its own, because it lacks its parent's threads."""
    import duckdb

    return duckdb.connect(config={"threads": 1, "arrow_lossless_conversion": True})


# Names that a package imports on first use, so that a process loads only what it calls.


def lazy_names(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package: ``homes`` has the names that each module defines, by the module's path in it.

    A name that is also the path of its module is this module.

    >>> lazy_names("collections", {"abc": ["Sequence"]})("Sequence").__name__
    'Sequence'
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def found(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{home_of[name]}")
        return module if name == home_of[name] else getattr(module, name)

    return found


class _Compute:
    """The functions of `pyarrow.compute`, whose import takes longer than that of pyarrow itself."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module("pyarrow.compute"), name)
        setattr(self, name, found)
        return found


if not TYPE_CHECKING:
    pc = _Compute()
