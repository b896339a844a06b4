"""Bind SQL text to trees. Only this package and ``functions`` use sqlglot, apart from ``spark``.

A text passes through the modules in this order:

1. ``bind``: the entry point, and the cache of predicates that were bound before
2. ``source_text``: the text, the values in it that are not parsed, and positions in it ·
   ``lists``: long written lists as arrays · ``parameters``: parameters and reads of the clock as values · ``split``:
   the skeleton of AND, OR, NOT and parentheses, so that each condition has its own exact text, which DuckDB may
   evaluate and engines run
3. ``leaf_binder``: one leaf of the skeleton becomes a node of the tree, by the rules of ``predicates/`` and
   ``functions/``, and is marked if DuckDB may evaluate it
4. used by these: ``context``: the interface of the binding that rules see · ``constants``: literals as Arrow scalars ·
   ``names``: columns · ``case_values``: values under a CASE ·
   ``parser_quirks``: differences between the parser and engines · ``refusals``: opaque parts, and errors

``library_expressions`` takes expressions of pyarrow, polars, ibis and DuckDB in place of SQL; ``bind_condition`` takes
both. ``workload_sql`` extracts the conditions from whole statements.
"""

from zskip.binder.bind import bind
from zskip.binder.source_text import Parameters

__all__ = ["Parameters", "bind"]
