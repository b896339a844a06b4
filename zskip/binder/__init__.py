"""Bind SQL text to trees. Only this package and ``functions`` use sqlglot, apart from ``spark``.

A text passes through the modules in this order:

1. ``bind``: the entry point, and the cache of predicates that were bound before
2. ``source_text``: the text, the values in it that are not parsed, and positions in it · ``tokens``: long written lists
   as arrays, and the skeleton of AND, OR, NOT and parentheses, so that each condition has its own exact text, which
   DuckDB may evaluate and engines run · ``parameters``: parameters and reads of the clock as values
3. ``leaf_binder``: one leaf of the skeleton becomes a node of the tree, by the rules of ``predicates/`` and
   ``functions/``, and is marked if DuckDB may evaluate it
4. used by these: ``context``: the interface of the binding that rules see, values under a CASE, and opaque parts ·
   ``constants``: literals as Arrow scalars · ``names``: columns

``bind_condition`` takes SQL and expressions of pyarrow, polars, ibis and DuckDB. ``workload_sql`` extracts the
conditions from whole statements.
"""

from zskip.binder.bind import bind
from zskip.binder.source_text import Parameters

__all__ = ["Parameters", "bind"]
