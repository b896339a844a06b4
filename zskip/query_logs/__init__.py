"""Logs of engines as a workload: which of the queries that ran read a table, and by which conditions.

``duckdb_log``: DuckDB's query log · ``spark_event_log``, ``pushed_filters``: the scans in Spark's event logs and their
conditions · ``logged``: what of a log is about one table.
"""

from zskip.query_logs.duckdb_log import from_duckdb_log
from zskip.query_logs.logged import LoggedQueries, TableNames
from zskip.query_logs.spark_event_log import from_spark_event_log

__all__ = ["LoggedQueries", "TableNames", "from_duckdb_log", "from_spark_event_log"]
