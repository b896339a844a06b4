"""SQL text to bound trees: the only place that knows the parser.

A text goes through them in this order:

1. ``bind``: the door · ``remembered``: what was bound before
2. ``source``: a text with parts replaced, and the way back · ``lists``, ``chains``: long ones, read apart · ``freeze``:
   parameters and now() become constants · ``split``: the skeleton of AND, OR, NOT and parentheses
3. ``binder``: one leaf of the skeleton and a schema become a node of the tree, by the rules of ``predicates/`` and
   ``functions/`` · ``plain``: the commonest leaves, without the parser · ``computable``: what DuckDB may be asked of,
   ``shared``: and Spark's meaning in its words
4. for those: ``constants``: literals as Arrow scalars · ``names``: columns · ``choices``: values under a CASE ·
   ``nodes``, ``places``: where things stand · ``refusals``: what is opaque, and what is an error

``workload`` reads whole statements for the conditions in them.
"""

from zskip.predicate.sql.bind import bind

__all__ = ["bind"]
