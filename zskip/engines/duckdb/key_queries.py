"""The queries for the keys of a join: the distinct values of a column in the rows of a table that are left.

They run on a cursor of the connection, in a transaction of its own, so that one which fails or takes too long leaves
the user's as it is. Their tables are immutable: what was asked of one state is known from then on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock, Timer
from typing import TYPE_CHECKING

import pyarrow as pa

from zskip.engines.duckdb.duckdb_types import quoted
from zskip.engines.duckdb.native_scan import literal
from zskip.engines.duckdb.survivor_reads import Values, read_survivors
from zskip.errors import ZskipError

if TYPE_CHECKING:
    import duckdb

    from zskip.statement.key_pruning import JoinedTable

__all__ = ["KeyQueries"]

_MOST_KEYS = 100_000
_KNOWN: dict[Hashable, pa.Array | None] = {}
_KNOWN_KEYS = 2_000_000
_LOCK = Lock()
_CALLED = re.compile(r'(\w+)"?\s*\(')


class KeyQueries:
    """Asks for keys through a connection; see `zskip.statement.key_pruning`."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con

    def ask(self, table: JoinedTable, key: str, seconds: float) -> tuple[pa.Array, Hashable] | None:
        """The distinct values, NULL too, of a column in the rows that are left of a table; see `Ask`."""
        conditions = _conditions(table)
        snapshot, storage = table.survivors.index.snapshot, table.survivors.index.storage
        # Bounds of other tables may have left fewer files than the conditions and keys do.
        files = hashlib.sha256(table.survivors.numbers.tobytes()).digest()
        reduced = files, conditions, tuple(each.origin for each in table.keys)
        origin = storage.place, snapshot.commit_id, key, reduced
        with _LOCK:
            known = origin in _KNOWN
            values = _KNOWN.get(origin)
        if not known:
            values = self._values(table, key, conditions, seconds)
            _keep(origin, values)
        return None if values is None else (values, origin)

    def _values(self, table: JoinedTable, key: str, conditions: tuple[str, ...], seconds: float) -> pa.Array | None:
        import duckdb

        scan = table.survivors.scan
        parameters = Values(None, takes=True)
        with self._con.cursor() as cursor, _at_most(seconds, cursor):
            try:
                read = read_survivors(scan, table.survivors.index.snapshot.uniform, self._con, parameters)
                wanted = [f"({one})" for one in conditions]
                for number, each in enumerate(table.keys):
                    cursor.register(f"zskip_keys_{number}", pa.table({"key": each.values}))
                    name = quoted(each.column)
                    missing = f" OR {name} IS NULL" if each.or_null else ""
                    wanted.append(f"({name} IN (SELECT key FROM zskip_keys_{number}){missing})")
                where = " AND ".join(wanted) or "TRUE"
                if table.survivors.predicate is not None:
                    cursor.execute(f"SET TimeZone = {literal(table.survivors.predicate.dialect.timezone)}")
                query = f"SELECT DISTINCT {quoted(key)} AS key FROM {read} WHERE {where} LIMIT {_MOST_KEYS + 1}"
                rows: pa.Table = cursor.sql(query, params=parameters.all).to_arrow_table()
            except (duckdb.Error, ZskipError):
                # What is wrong is the statement's to say when it runs.
                return None
        return rows.column("key").combine_chunks() if len(rows) <= _MOST_KEYS else None


def _conditions(table: JoinedTable) -> tuple[str, ...]:
    """Those conditions that any connection answers with the same rows at any time."""
    predicate = table.survivors.predicate
    texts = [part.sql("duckdb") for part in predicate.conjuncts] if predicate is not None else []
    return tuple(
        text
        for text in texts
        if text is not None and {name.lower() for name in _CALLED.findall(text)} <= _repeatable_functions()
    )


@lru_cache(maxsize=1)
def _repeatable_functions() -> frozenset[str]:
    """DuckDB's functions that give the same for the same arguments, and the keywords before a parenthesis."""
    import duckdb

    with duckdb.connect() as con:
        rows = con.execute(
            "SELECT function_name FROM duckdb_functions() GROUP BY ALL HAVING bool_and(stability = 'CONSISTENT') "
            "UNION SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category IN ('reserved', 'column_name')"
        ).fetchall()
    return frozenset(name for (name,) in rows)


def _keep(origin: Hashable, values: pa.Array | None) -> None:
    with _LOCK:
        if sum(len(each) for each in _KNOWN.values() if each is not None) > _KNOWN_KEYS or len(_KNOWN) > 1000:
            _KNOWN.clear()
        _KNOWN[origin] = values


@contextmanager
def _at_most(seconds: float, cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
    timer = Timer(seconds, cursor.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
