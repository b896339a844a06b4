"""Compaction: choose the files of a table that are worth rewriting, re-cut their rows, and rewrite them.

``choose``: which files to rewrite · ``rewrite_cost``: the cost of queries before and after it · ``recut``: how to cut
their rows · ``splice``: insert the new cuts into the table's tree · ``compact``: optimize · ``cluster``: lay out a
Delta or Iceberg table · ``cluster_folder``: lay out a folder of plain Parquet · ``tend``: all maintenance that is due.
"""
