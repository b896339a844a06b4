"""DuckDB's query log as a workload.

``CALL enable_logging('QueryLog', storage = 'file', storage_path = 'log')`` makes DuckDB write one: a folder with a CSV
file of entries, or a single file where the path ends in .csv.
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from zskip.advisor.query_logs.logged import Collector, LoggedQueries, TableNames
from zskip.binder.workload_sql import shape
from zskip.core.schema import Schema
from zskip.errors import UnreadableFile
from zskip.language.render import quoted

_ENTRIES = "duckdb_log_entries.csv"
_HOW = "CALL enable_logging('QueryLog', storage = 'file', storage_path = 'duckdb_log') makes DuckDB write one."


def from_duckdb_log(path: str | os.PathLike[str], schema: Schema, table: TableNames) -> LoggedQueries:
    """The queries on a table in DuckDB's query log. Raises `UnreadableFile`, and `InvalidOption` if it has none."""
    collector = Collector(schema, table)
    statements, unreadable = _statements(Path(path))
    with _Refusals(schema, table) as refusals:
        for statement in statements:
            collector.add_statement(statement, refusals.refused)
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


# Which statements of a query log DuckDB refuses: it logs them before it binds their names.


class _Refusals:
    """DuckDB's answer for statements on a table, each bound to an empty file with the table's columns in its place."""

    def __init__(self, schema: Schema, table: TableNames) -> None:
        import duckdb

        self._table, self._known = table, dict[str, bool]()
        self._folder = TemporaryDirectory(prefix="zskip-")
        self._path = str(Path(self._folder.name) / "rows.parquet")
        pq.write_table(schema.arrow.empty_table(), self._path)
        # A statement may name other files and addresses: none is opened.
        self._con = duckdb.connect()
        folder = quoted(self._folder.name, "duckdb")
        self._con.execute(f"SET allowed_directories = [{folder}]; SET enable_external_access = false")

    def __enter__(self) -> _Refusals:
        return self

    def __exit__(self, type: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._con.close()
        self._folder.cleanup()

    def refused(self, statement: str) -> bool:
        """Whether it names a column that does not exist, or the like; not where that depends on other tables.

        Asked once for statements that differ in their constants alone.
        """
        kind = shape(statement)
        if kind not in self._known:
            self._known[kind] = self._is_refused(statement)
        return self._known[kind]

    def _is_refused(self, statement: str) -> bool:
        import duckdb

        (text,) = self._con.execute("SELECT json_serialize_sql($1)", [statement]).fetchall()[0]
        parsed = json.loads(text)
        if parsed["error"] or not self._put_file(parsed):
            return False
        try:
            # Not json_execute_serialized_sql(), which refuses results with equal column names.
            ((bound,),) = self._con.execute("SELECT json_deserialize_sql($1)", [json.dumps(parsed)]).fetchall()
            self._con.execute(f"EXPLAIN {bound}").fetchall()
        except duckdb.BinderException:
            return True
        except duckdb.Error:
            # Another table, a macro or an extension that the log's connection had.
            return False
        return False

    def _put_file(self, node: Any) -> bool:
        """Put the empty file in the table's places; False where parameters or a view leave it open."""
        if isinstance(node, list):
            return all(self._put_file(each) for each in node)
        if not isinstance(node, dict):
            return True
        if node.get("class") == "PARAMETER":
            return False
        if node.get("type") == "BASE_TABLE" and node["table_name"] in self._table:
            if node["table_name"].lower() in self._table.aliases:
                return False
            node["alias"] = node["alias"] or node["table_name"].rpartition("/")[2]
            node |= {"catalog_name": "", "schema_name": "", "table_name": self._path}
            node["qualified_name"] = {"path": [self._path]}
        if node.get("type") == "TABLE_FUNCTION":
            if node["alias"] in self._table:  # zskip.sql() hands the paths over as parameters
                node["function"]["arguments"] = [{"name": "", "expression": _text(self._path)}]
            self._put_paths(node["function"]["arguments"])
        return all(self._put_file(each) for each in node.values())

    def _put_paths(self, arguments: list[dict[str, Any]]) -> None:
        """Put the file's path in the place of the table's paths among the arguments of read_parquet()."""
        for argument in arguments:
            expression = argument["expression"]
            if expression["class"] == "FUNCTION":
                self._put_paths(expression["arguments"])
            elif expression["class"] == "CONSTANT" and expression["literal"].get("text", "") in self._table:
                expression["literal"]["text"] = self._path


def _text(text: str) -> dict[str, Any]:
    return {"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "literal": {"kind": "STRING", "text": text}}
