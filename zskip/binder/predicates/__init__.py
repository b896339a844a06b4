"""The rules that bind SQL predicates to nodes of the tree; `zskip.binder.leaf_binder` has them by class of expression.

``comparisons``: of values and of rows, BETWEEN and IN · ``logic``: AND, OR, NOT, XOR, IS, CASE, COALESCE, NULLIF ·
``like``: LIKE and other patterns.
A predicate whose rule raises `Refused` becomes opaque.
"""
