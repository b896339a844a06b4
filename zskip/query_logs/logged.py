"""What of a log is about one table: the queries that read it, and how many were left out, by reason."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from zskip.binder import bind
from zskip.binder.workload_sql import TableQuery, in_duckdb, is_query, relations_read, table_queries
from zskip.errors import InvalidOption, SqlError, UnknownParameter
from zskip.expr.sql_literals import identifier
from zskip.schema import Schema

__all__ = ["Collector", "LoggedQueries", "TableNames"]

_NAMED = 8


@dataclass(frozen=True, slots=True)
class LoggedQueries:
    """SELECTs on one table, in the order of the log. ``left_out``: how many statements were not, by the reason."""

    queries: tuple[str, ...]
    left_out: Mapping[str, int]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the queries to a file, as `write`, `advise` and `bench` take it for a workload."""
        Path(path).write_text("".join(f"{query.rstrip().rstrip(';')}\n;\n" for query in self.queries), encoding="utf-8")

    def __str__(self) -> str:
        others = "".join(f"\n{count:,} left out: {reason}" for reason, count in self.left_out.items())
        return f"{len(self.queries):,} queries of the log are on this table{others}"


@dataclass(frozen=True, slots=True)
class TableNames:
    """How a log may name a table: by its address, a path that ends like it, its folder's name, or a given name.

    ``name``: of its folder · ``names``: those that the user gives, of a view or of a folder.
    """

    address: str
    name: str
    names: frozenset[str]

    @staticmethod
    def of(address: str, *others: str) -> TableNames:
        """The names of the table at this path or URL: that of its folder, and the ``others`` that a user gives."""
        plain = _plain(address)
        name = plain.rsplit("/", 1)[-1]
        return TableNames(plain, name, frozenset(each.lower() for each in others))

    def __contains__(self, place: str) -> bool:
        """Whether a name, a path or a glob is the table or lies in it.

        >>> names = TableNames.of("file:///srv/lake/conn", "connections")
        >>> [place in names for place in ("Connections", "lake/conn/*.parquet", "/srv/lake/conn/a.parquet", "lake/dns")]
        [True, True, True, False]
        """
        path = _plain(place)
        folder = path.rpartition("/")[0] if path.endswith(".parquet") else path
        if place.lower() == self.name.lower() or folder.rsplit("/", 1)[-1].lower() in self.names:
            return True
        inside = (path + "/").startswith(self.address + "/")
        return "/" in place and (inside or (self.address + "/").endswith("/" + folder.removeprefix("./") + "/"))


def _plain(address: str) -> str:
    """An address up to a glob, without a slash at its end; a local one as a path, whatever follows ``file:``.

    >>> _plain("file:///a/b/"), _plain("file:/a/b/*.parquet"), _plain("s3://bucket/b")
    ('/a/b', '/a/b', 's3://bucket/b')
    """
    address = address.split("*")[0]
    if address.startswith("file:"):
        address = "/" + address.removeprefix("file:").lstrip("/")
    return address.rstrip("/")


class Collector:
    """Collects the queries on one table, and counts the others by the reason why they are left out."""

    def __init__(self, schema: Schema, table: TableNames, dialect: str = "duckdb") -> None:
        self._schema, self._table, self._dialect = schema, table, dialect
        self._found: list[str] = []
        self._left_out: Counter[str] = Counter()
        self._others: set[str] = set()

    def add_statement(self, statement: str) -> None:
        """Take the parts of a statement that are about the table: one for each SELECT with conditions on it."""
        if not is_query(statement):
            self.leave_out("no SELECT")
            return
        try:
            places = relations_read(statement, dialect=self._dialect)
            if not self.is_table(places):
                return
            queries = table_queries(statement, self._schema, dialect=self._dialect)
            texts = [self._text(query) for query in queries]
        except UnknownParameter:
            self.leave_out("has parameters, whose values the log does not hold")
        except SqlError:
            self.leave_out("is not understood")
        else:
            self._found += texts
            if not texts:
                self.leave_out("has no condition on its columns")

    def add_query(self, query: TableQuery) -> None:
        """Take a query on the table."""
        try:
            self._found.append(self._text(query))
        except SqlError:
            self.leave_out("is not understood")

    def is_table(self, places: Collection[str]) -> bool:
        """Whether one of the places is the table; else the query is left out."""
        if any(place in self._table for place in places):
            return True
        self._others |= set(places)
        self.leave_out("reads other tables")
        return False

    def leave_out(self, reason: str) -> None:
        self._left_out[reason] += 1

    def found(self) -> LoggedQueries:
        """What was collected. Raises `InvalidOption` where no query is on the table."""
        if self._found:
            return LoggedQueries(tuple(self._found), dict(self._left_out))
        counts = "; ".join(f"{count:,}: {reason}" for reason, count in self._left_out.items()) or "it is empty"
        named = sorted(self._others)
        reads = f" It reads {', '.join(named[:_NAMED])}{', …' if len(named) > _NAMED else ''}." if named else ""
        raise InvalidOption(
            f"No query of the log filters {self._table.address} ({counts}).{reads} If the log has another name for it, "
            "give that with log_name=."
        )

    def _text(self, query: TableQuery) -> str:
        """A SELECT of DuckDB's that reads the same columns by the same condition, and nothing else."""
        bind(query.condition, self._schema, dialect=self._dialect)
        condition = in_duckdb(query.condition, self._dialect)
        columns = "*"
        if query.columns:
            parts = (self._schema.columns[path].parts for path in sorted(query.columns))
            columns = ", ".join(identifier(*each) for each in parts)
        return f"SELECT {columns} FROM {identifier(self._table.name)} WHERE {condition}"
