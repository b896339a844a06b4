"""The queries of a log that read one table, and how many statements were left out, by reason; and DuckDB's query log.

``CALL enable_logging('QueryLog', storage = 'file', storage_path = 'log')`` makes DuckDB write one: a folder with a CSV
file of entries, or a single file where the path ends in .csv.
"""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from zskip.binder import bind
from zskip.binder.workload_sql import TableQuery, query_run_by, relations_of, relations_read, table_query
from zskip.core.option_checks import require_output
from zskip.core.schema import Schema, identifier
from zskip.errors import InvalidOption, SqlError, UnknownParameter, UnreadableFile
from zskip.tablelog.query_log import QueryLog

_LISTED_TABLES = 8
_ENTRIES = "duckdb_log_entries.csv"
_HOW = "CALL enable_logging('QueryLog', storage = 'file', storage_path = 'duckdb_log') makes DuckDB write one."


@dataclass(frozen=True, slots=True)
class LoggedQueries(Sequence[str]):
    """A workload: SELECTs on one table, in the order of the log.

    ``left_out``: the number of other statements by reason.
    """

    queries: tuple[str, ...]
    left_out: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.queries)

    def __getitem__(self, number: Any) -> Any:
        return self.queries[number]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the queries to a file that `write`, `advise` and `bench` accept as a workload.

        Raises `InvalidOption` for a path at which no file can be written.
        """
        require_output(path).write_text(
            "".join(f"{query.rstrip().rstrip(';')}\n;\n" for query in self.queries), encoding="utf-8"
        )

    def __str__(self) -> str:
        others = "".join(f"\n{count:,} left out: {reason}" for reason, count in self.left_out.items())
        return f"{len(self.queries):,} queries of the log are on this table{others}"


@dataclass(frozen=True, slots=True)
class TableNames:
    """The names that a log may use for a table: its address, the end of its path, its folder's name, or an alias.

    ``name``: the folder's · ``aliases``: other names given by the user, of a view or a folder, in lower case.
    """

    address: str
    name: str
    aliases: frozenset[str]

    @staticmethod
    def of(address: str, *aliases: str) -> TableNames:
        """The names of the table at this path or URL."""
        normalized = _normalized(address)
        name = normalized.rsplit("/", 1)[-1]
        return TableNames(normalized, name, frozenset(alias.lower() for alias in aliases))

    def __contains__(self, relation: str) -> bool:
        """Whether a name, a path or a glob is the table or lies in it.

        >>> names = TableNames.of("file:///srv/lake/conn", "connections")
        >>> [each in names for each in ("Connections", "lake/conn/*.parquet", "/srv/lake/conn/a.parquet", "lake/dns")]
        [True, True, True, False]
        """
        path = _normalized(relation)
        folder = path.rpartition("/")[0] if path.endswith(".parquet") else path
        if relation.lower() == self.name.lower() or folder.rsplit("/", 1)[-1].lower() in self.aliases:
            return True
        inside = (path + "/").startswith(self.address + "/")
        return "/" in relation and (inside or (self.address + "/").endswith("/" + folder.removeprefix("./") + "/"))


def _normalized(address: str) -> str:
    """An address up to its first glob, without a trailing slash; a ``file:`` URL as a path.

    >>> _normalized("file:///a/b/"), _normalized("file:/a/b/*.parquet"), _normalized("s3://bucket/b")
    ('/a/b', '/a/b', 's3://bucket/b')
    """
    address = address.split("*")[0]
    if address.startswith("file:"):
        address = "/" + address.removeprefix("file:").lstrip("/")
    return address.rstrip("/")


class Collector:
    """Collects the queries on one table, and counts the others by the reason for leaving them out."""

    def __init__(self, schema: Schema, table: TableNames) -> None:
        self._schema, self._table = schema, table
        self._queries: list[str] = []
        self._left_out: Counter[str] = Counter()
        self._other_tables: set[str] = set()

    def add_statement(self, statement: str) -> None:
        """Add what a statement reads of the table, if it has conditions on it."""
        read = query_run_by(statement)
        if read is None:
            self.leave_out("no SELECT")
            return
        try:
            if not self.reads_table(relations_read(read)):
                return
            query = table_query(read, self._schema, is_table=lambda table: self._is_read(relations_of(table)))
            text = None if query is None else self._text(query)
        except UnknownParameter:
            self.leave_out("has parameters, whose values the log does not hold")
        except SqlError:
            self.leave_out("is not understood")
        else:
            if text is None:
                self.leave_out("has no condition on its columns")
            else:
                self._queries.append(text)

    def add_query(self, query: TableQuery) -> None:
        try:
            self._queries.append(self._text(query))
        except SqlError:
            self.leave_out("is not understood")

    def reads_table(self, relations: Collection[str]) -> bool:
        """Whether one of the relations that a query reads is the table; counts the query as left out if none is."""
        if self._is_read(relations):
            return True
        self._other_tables |= set(relations)
        self.leave_out("reads other tables")
        return False

    def _is_read(self, relations: Collection[str]) -> bool:
        return any(relation in self._table for relation in relations)

    def leave_out(self, reason: str) -> None:
        self._left_out[reason] += 1

    def queries(self) -> LoggedQueries:
        """The collected queries. Raises `InvalidOption` if there are none."""
        if self._queries:
            return LoggedQueries(tuple(self._queries), dict(self._left_out))
        counts = "; ".join(f"{count:,}: {reason}" for reason, count in self._left_out.items()) or "it is empty"
        others = sorted(self._other_tables)
        listed = ", ".join(others[:_LISTED_TABLES]) + (", …" if len(others) > _LISTED_TABLES else "")
        reads = f" It reads {listed}." if others else ""
        raise InvalidOption(
            f"No query of the log filters {self._table.address} ({counts}).{reads} If the log has another name for it, "
            "give that with log_name=."
        )

    def _text(self, query: TableQuery) -> str:
        """The query as a DuckDB SELECT of its columns with its condition."""
        bind(query.condition, self._schema)
        columns = "*"
        if query.columns:
            parts = (self._schema.columns[path].parts for path in sorted(query.columns))
            columns = ", ".join(identifier(*each) for each in parts)
        return f"SELECT {columns} FROM {identifier(self._table.name)} WHERE {query.condition}"


def queries_asked(log: QueryLog, schema: Schema) -> LoggedQueries:
    """The conditions on a table's columns in its own log."""
    queries, left_out = [], 0
    for asked in log.read():
        try:
            bind(asked.condition, schema)
        except SqlError:
            left_out += 1
        else:
            queries.append(asked.condition)
    return LoggedQueries(tuple(queries), {"is not of this table's columns": left_out} if left_out else {})


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
