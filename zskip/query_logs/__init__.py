"""Workloads from the logs of engines: the queries that read a table, and their conditions.

``duckdb_log``: DuckDB's query log · ``spark_event_log``, ``pushed_filters``: the scans in Spark's event logs and their
filters · ``logged``: selects the queries on one table.
"""

from zskip.query_logs.duckdb_log import from_duckdb_log
from zskip.query_logs.logged import LoggedQueries, TableNames
from zskip.query_logs.spark_event_log import from_spark_event_log

__all__ = ["LoggedQueries", "TableNames", "from_duckdb_log", "from_spark_event_log"]
