"""zskip: needle-in-the-haystack queries over Parquet, made cheap by reading only what can match."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zskip.core.late_loading import ENGINES, lazy_names
from zskip.errors import (
    CommitConflict,
    CorruptFile,
    DamagedIndex,
    FilesRemoved,
    ForeignTable,
    InvalidOption,
    SchemaError,
    SchemaMismatch,
    SqlError,
    TableError,
    TableExists,
    TableNotFound,
    UncertainCommit,
    UnknownColumn,
    UnsafePath,
    UnsupportedStore,
    ZskipError,
)

if TYPE_CHECKING:
    from zskip import bench as bench
    from zskip import curves as curves
    from zskip import layouts as layouts
    from zskip import plot as plot
    from zskip import polars as polars
    from zskip import spark as spark
    from zskip.api import advise, attach, cluster, index, read, repair, write
    from zskip.api import open as open  # noqa: A004  # the name that a user says
    from zskip.cli.demo import demo_data
    from zskip.language import Predicate
    from zskip.plan import Plan
    from zskip.statements.duckdb import explain, sql
    from zskip.table import Table

__version__ = "0.1.0"

__all__ = [
    "CommitConflict",
    "CorruptFile",
    "DamagedIndex",
    "FilesRemoved",
    "ForeignTable",
    "InvalidOption",
    "Plan",
    "Predicate",
    "SchemaError",
    "SchemaMismatch",
    "SqlError",
    "Table",
    "TableError",
    "TableExists",
    "TableNotFound",
    "UncertainCommit",
    "UnknownColumn",
    "UnsafePath",
    "UnsupportedStore",
    "ZskipError",
    "__version__",
    "advise",
    "attach",
    "cluster",
    "demo_data",
    "explain",
    "index",
    "open",
    "read",
    "repair",
    "sql",
    "write",
]

# Loaded on first use: Arrow, numpy and sqlglot together would double the time of `import zskip`.
_HOMES = {
    "api": ("advise", "attach", "cluster", "index", "open", "read", "repair", "write"),
    "cli.demo": ("demo_data",),
    "language": ("Predicate",),
    "plan": ("Plan",),
    "statements.duckdb": ("explain", "sql"),
    "table": ("Table",),
    **{name: (name,) for name in ("bench", "curves", "layouts", "plot", "polars", "spark")},
}

ENGINES.update(
    {
        "arrow": "zskip.engines.arrow",
        "duckdb": "zskip.engines.duckdb",
        "picture": "zskip.inspect.explore",
        "spark": "zskip.spark.handoff",
        "spark session": "zskip.spark.spark_backend",
    }
)

__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for names in _HOMES.values() for name in names), "errors"})
