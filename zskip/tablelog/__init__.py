"""The table log: the log of snapshots in a table's folder, and the shards of statistics.

``parts``, ``shards``, ``snapshot``: the stored form · ``log``: the versions of a table · ``commit``: makes a version
· ``index``: reads statistics for a plan · ``indexing``, ``freshness``, ``table_folders``:
files of other writers · ``segments``, ``sketch_evidence``: sketches · ``repair``: rebuilds lost parts · ``vacuum``:
removes files that no version needs · ``runs``: what a commit and a vacuum at the same time know of each other ·
``query_log``: what a table was asked.
"""
