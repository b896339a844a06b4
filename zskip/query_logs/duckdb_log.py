"""DuckDB's query log as a workload.

``CALL enable_logging('QueryLog', storage = 'file', storage_path = 'log')`` makes DuckDB write one: a folder with a CSV
file of entries, or a single file where the path ends in .csv.
"""

from __future__ import annotations

import os
from pathlib import Path

from zskip.errors import UnreadableFile
from zskip.query_logs.duckdb_refusals import Refusals
from zskip.query_logs.logged import Collector, LoggedQueries, TableNames
from zskip.schema import Schema

__all__ = ["from_duckdb_log"]

_ENTRIES = "duckdb_log_entries.csv"
_HOW = "CALL enable_logging('QueryLog', storage = 'file', storage_path = 'duckdb_log') makes DuckDB write one."


def from_duckdb_log(path: str | os.PathLike[str], schema: Schema, table: TableNames) -> LoggedQueries:
    """The queries on a table in DuckDB's query log. Raises `UnreadableFile`, and `InvalidOption` if it has none."""
    collector = Collector(schema, table)
    statements = _statements(Path(path))
    with Refusals(schema, table) as refusals:
        for statement in statements:
            collector.add_statement(statement, refusals.refused)
    return collector.queries()


def _statements(path: Path) -> list[str]:
    import duckdb

    file = path / _ENTRIES if path.is_dir() else path
    if not file.is_file():
        raise UnreadableFile(f'There is no query log of DuckDB at "{path}". {_HOW}')
    with duckdb.connect() as con:
        try:
            rows = con.execute(
                "SELECT message FROM read_csv($path, header = true, all_varchar = true, quote = '\"', escape = '\"') "
                "WHERE type = 'QueryLog' ORDER BY timestamp",
                {"path": str(file)},
            ).fetchall()
        except duckdb.BinderException:
            raise UnreadableFile(
                f'"{file}" is not a query log of DuckDB: it lacks the columns timestamp, type and message. {_HOW}'
            ) from None
        except duckdb.Error as error:
            raise UnreadableFile(f'"{file}" is not a query log of DuckDB: {error}\n{_HOW}') from error
    return [text for (text,) in rows if text]
