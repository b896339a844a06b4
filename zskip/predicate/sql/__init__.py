"""SQL text to bound trees: the only place that knows the parser.

``source``: a text with parts replaced, and the way back · ``lists``: long lists, read apart · ``split``: tokens, and
the skeleton of AND, OR, NOT and parentheses · ``freeze``: parameters and now() become constants · ``constants``:
literals of SQL as Arrow scalars · ``binder``: one leaf of the skeleton and a schema → tree.
"""

from zskip.predicate.sql.bind import bind

__all__ = ["bind"]
