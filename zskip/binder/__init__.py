"""Bind SQL text to trees: the only package that uses the parser.

A text goes through them in this order:

1. ``bind``: the door · ``bind_cache``: what was bound before
2. ``sql_text``: a text with parts replaced, and the way back · ``lists``: long ones, read apart ·
   ``bind_constants``: parameters and now() become constants · ``split``: the skeleton of AND, OR, NOT and parentheses
3. ``leaf_binder``: one leaf of the skeleton and a schema become a node of the tree, by the rules of ``predicates/`` and
   ``functions/`` · ``fast_path``: the commonest leaves, without the parser · ``computable``: what DuckDB may be asked
   to compute
4. for those: ``context``: what a rule may ask of the binding · ``constants``: literals as Arrow scalars ·
   ``names``: columns · ``choices``: values under a CASE · ``nodes``, ``text_spans``: where things stand ·
   ``refusals``: what is opaque, and what is an error

``workload_sql`` reads whole statements for the conditions in them.
"""

from zskip.binder.bind import bind
from zskip.binder.sql_text import Parameters

__all__ = ["Parameters", "bind"]
