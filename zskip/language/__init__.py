"""Bound predicates: trees of typed nodes over a table's columns.

``tree``: the nodes and their constructors, and why a part cannot be proved · ``bound``: `Predicate`, a tree with its
schema and text · ``literals``: Python values as Arrow constants, and constants converted exactly to a column's type ·
``patterns``: LIKE and regular expressions as ranges, and the substrings that they require · ``render``: trees, values
and names as SQL
"""

from typing import TYPE_CHECKING

from zskip.core.late_loading import lazy_names

if TYPE_CHECKING:
    from zskip.language.bound import Dialect, Predicate, conjunction

__all__ = ["Dialect", "Predicate", "conjunction"]

# Loaded on first use: a statement that is not pruned needs no trees.
__getattr__ = lazy_names(__name__, {"bound": ("Dialect", "Predicate", "conjunction")})
