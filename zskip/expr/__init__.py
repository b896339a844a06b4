"""The bound tree of a predicate: typed nodes over a table's columns, and what is known about them without data.

``tree``: the nodes and their constructors · ``bound``: a tree with its schema and text, `Predicate` · ``literals``:
constants that fit a column's type, or refuse · ``patterns``: LIKE and regular expressions · ``render``: the tree as SQL
of another dialect.
"""

from __future__ import annotations

from zskip.expr.bound import Dialect, Predicate, conjunction

__all__ = ["Dialect", "Predicate", "conjunction"]
