"""Whole statements: an engine's plan as a tree, and the rules that use it to skip files.

``plan_tree``: the tree, its scans and their conditions · ``conditions``: those conditions as one predicate per table ·
``joins``: which table's join keys can prune which other table, and pruning by them, where it pays ·
``first_rows``: ORDER BY with LIMIT, and LIMIT alone · ``aggregates``: count, min and max from the index.
"""
