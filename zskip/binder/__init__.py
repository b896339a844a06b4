"""Bind SQL text to trees. Only this package and ``functions`` use sqlglot, apart from ``spark``.

A text passes through the modules in this order:

1. ``bind``: the entry point · ``bind_cache``: predicates that were bound before
2. ``sql_text``: a text with parts replaced, and the mapping back · ``lists``, ``chains``: long lists and long
   chains of one comparison, read without the parser · ``bind_constants``: parameters and now() become constants ·
   ``split``: the skeleton of AND, OR, NOT and parentheses
3. ``leaf_binder``: one leaf of the skeleton becomes a node of the tree, by the rules of ``predicates/`` and
   ``functions/`` · ``fast_path``: the most common leaves, without the parser · ``computable``: leaves that DuckDB may
   evaluate
4. used by these: ``context``: the interface of the binding that rules see · ``constants``: literals as Arrow scalars ·
   ``names``: columns · ``case_values``: values under a CASE · ``nodes``, ``text_spans``: positions in the text ·
   ``parser_quirks``: differences between the parser and engines · ``refusals``: opaque parts, and errors

``library_expressions`` takes expressions of pyarrow, polars, ibis and DuckDB in place of SQL; ``bind_condition`` takes
both. ``workload_sql`` extracts the conditions from whole statements.
"""

from zskip.binder.bind import bind
from zskip.binder.sql_text import Parameters

__all__ = ["Parameters", "bind"]
