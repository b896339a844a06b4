"""Compaction: which files of a table are worth a rewrite, how their rows are cut anew, and the rewrite itself.

``choose``: the files of which a rewrite pays · ``recut``: how their rows are cut · ``splice``: the new cuts within
the table's tree · ``compact``: optimize.
"""
