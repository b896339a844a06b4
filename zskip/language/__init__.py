"""Bound predicates: trees of typed nodes over a table's columns.

``tree``: the nodes and their constructors, and why a part cannot be proved · ``bound``: `Predicate`, a tree with its
schema and text · ``literals``: Python values as Arrow constants, and constants converted exactly to a column's type ·
``patterns``: LIKE and regular expressions as ranges, and the substrings that they require · ``render``: trees, values
and names as SQL
"""

from __future__ import annotations

from zskip.language.bound import Dialect, Predicate, conjunction

__all__ = ["Dialect", "Predicate", "conjunction"]
