"""Imports what a child would import first, so that one that is forked begins at once. It starts no thread."""

from __future__ import annotations

import importlib
import pkgutil

import duckdb  # noqa: F401
import psutil  # noqa: F401
import pyarrow.dataset  # noqa: F401
import sqlglot

import zskip

for module in pkgutil.walk_packages(zskip.__path__, "zskip."):
    if not module.name.startswith(("zskip.spark", "zskip.polars", "zskip.__main__")):
        importlib.import_module(module.name)
# The dialect's parser and generator are imported when they are first asked for.
sqlglot.parse_one("a = 1", dialect="duckdb").sql(dialect="duckdb")
