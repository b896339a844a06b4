"""Whole statements: an engine's plan as a tree, and the rules that derive from it what need not be read.

``plan_tree``: the tree, its scans and their conditions · ``conditions``: those conditions as one predicate a table ·
``joins``: whose keys prune whom · ``key_pruning``: pruning by them, where it pays ·
``first_rows``: ORDER BY with LIMIT, and LIMIT alone · ``aggregates``: count, min and max from the index.
"""
