"""Spark: self-pruning tables and clustered writes, without a plug-in in the JVM.

``table``, ``register``, ``read``, ``sql``: reading · ``write``, ``cluster``, ``delete``, ``optimize``: writing, also
possible by the methods of `zskip.Table` with ``session=`` · ``index``: indexing a folder · ``append_batch``: a sink of
structured streaming · ``register_source``: ``spark.read.format("zskip")``.
"""

from zskip.spark.data_source import append_batch, register_source
from zskip.spark.tables import read, register, sql, table
from zskip.spark.writing import cluster, delete, index, optimize, write

__all__ = [
    "append_batch",
    "cluster",
    "delete",
    "index",
    "optimize",
    "read",
    "register",
    "register_source",
    "sql",
    "table",
    "write",
]
