"""Compaction: merge the layout groups of a growing table where that pays, and lay out tables of others.

``layout_groups``: the rule, which groups to merge · ``compact``: optimize · ``cluster``: lay out a Delta or Iceberg
table · ``cluster_folder``: lay out a folder of plain Parquet · ``tend``: all maintenance that is due.
"""
