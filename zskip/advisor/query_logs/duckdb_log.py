"""DuckDB's query log as a workload.

``CALL enable_logging('QueryLog', storage = 'file', storage_path = 'log')`` makes DuckDB write one: a folder with a CSV
file of entries, or a single file where the path ends in .csv.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import pyarrow as pa

from zskip.advisor.query_logs.logged import Collector, LoggedQueries, TableNames
from zskip.core.schema import Schema
from zskip.errors import UnreadableFile

_ENTRIES = "duckdb_log_entries.csv"
_HOW = "CALL enable_logging('QueryLog', storage = 'file', storage_path = 'duckdb_log') makes DuckDB write one."


def from_duckdb_log(path: str | os.PathLike[str], schema: Schema, table: TableNames) -> LoggedQueries:
    """The queries on a table in DuckDB's query log. Raises `UnreadableFile`, and `InvalidOption` if it has none."""
    collector = Collector(schema, table)
    statements, unreadable = _statements(Path(path))
    for statement in statements:
        collector.add_statement(statement)
    for _ in range(unreadable):
        collector.leave_out("is cut off or unreadable in the log")
    return collector.queries()


def _statements(path: Path) -> tuple[list[str], int]:
    """The logged statements in the order of time, and the number of entries that cannot be read."""
    import duckdb

    file = path / _ENTRIES if path.is_dir() else path
    if not file.is_file():
        raise UnreadableFile(f'There is no query log of DuckDB at "{path}". {_HOW}')
    try:
        with pa.input_stream(str(file), compression="detect") as stream:
            header = io.TextIOWrapper(io.BufferedReader(stream), "utf-8", "replace").readline().strip().split(",")
    except OSError as error:
        raise UnreadableFile(f'"{file}" cannot be read: {error}') from error
    if not {"timestamp", "type", "message"} <= set(header):
        raise UnreadableFile(
            f'"{file}" is not a query log of DuckDB: it lacks the columns timestamp, type and message. {_HOW}'
        )
    with duckdb.connect() as con:
        try:
            # Without detection, which a line that is cut off misleads.
            rows = con.execute(
                "SELECT message FROM read_csv($path, header = true, auto_detect = false, columns = $columns, "
                "delim = ',', quote = '\"', escape = '\"', store_rejects = true) "
                "WHERE type = 'QueryLog' ORDER BY timestamp",
                {"path": str(file), "columns": dict.fromkeys(header, "VARCHAR")},
            ).fetchall()
            ((rejected,),) = con.execute("SELECT count(DISTINCT line) FROM reject_errors").fetchall()
        except duckdb.Error as error:
            raise UnreadableFile(f'"{file}" is not a query log of DuckDB: {error}\n{_HOW}') from error
    return [text for (text,) in rows if text], rejected
