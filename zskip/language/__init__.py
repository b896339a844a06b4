"""Bound predicates: trees of typed nodes over a table's columns.

``tree``: the nodes and their constructors · ``bound``: `Predicate`, a tree with its schema and text · ``literals``:
constants converted exactly to a column's type · ``patterns``: LIKE and regular expressions as ranges ·
``required_text``: substrings that a pattern requires · ``render``: a tree as SQL of another dialect ·
``arrow_constants``: Python values as Arrow constants · ``sql_literals``: the same as SQL · ``recursion``: the limit of
nesting · ``why``: why a part cannot be proved
"""

from __future__ import annotations

from zskip.language.bound import Dialect, Predicate, conjunction

__all__ = ["Dialect", "Predicate", "conjunction"]
