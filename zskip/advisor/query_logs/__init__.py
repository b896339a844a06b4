"""Workloads from the logs of engines: the queries that read a table, and their conditions.

``logged``: selects the queries on one table, and reads DuckDB's log and the table's own · ``spark_event_log``: the
scans in Spark's event logs and their filters.
"""

from __future__ import annotations

import os

from zskip.advisor.query_logs.logged import LoggedQueries, TableNames, from_duckdb_log, queries_asked
from zskip.advisor.query_logs.spark_event_log import from_spark_event_log
from zskip.core.option_checks import check_options
from zskip.core.schema import Schema
from zskip.errors import InvalidOption

__all__ = ["LoggedQueries", "TableNames", "from_duckdb_log", "from_spark_event_log", "queries_asked", "queries_of_log"]


def queries_of_log(
    address: str,
    schema: Schema,
    duckdb_log: str | os.PathLike[str] | None,
    spark_event_log: str | os.PathLike[str] | None,
    log_name: str | None,
) -> LoggedQueries:
    """The queries of one log that read a table, at ``address`` or by ``log_name``. Raises `InvalidOption`."""
    check_options(duckdb_log=duckdb_log, spark_event_log=spark_event_log, log_name=log_name)
    names = TableNames.of(address, *([] if log_name is None else [log_name]))
    if duckdb_log is not None and spark_event_log is None:
        return from_duckdb_log(duckdb_log, schema, names)
    if spark_event_log is not None and duckdb_log is None:
        return from_spark_event_log(spark_event_log, schema, names)
    raise InvalidOption(
        "Give a workload, or one log: duckdb_log= or spark_event_log=. The table's own log is not on: "
        "table.query_log.start(), on the command line `zskip log PATH --start`."
    )
