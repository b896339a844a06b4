"""Small queries over a table's files, by whose answers a statement then reads fewer: keys of joins, and first values.

They run on a cursor of the connection, in a transaction of its own, so that one which fails or takes too long leaves
the user's as it is. Their tables are immutable: what was asked of one state is known from then on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock, Timer
from typing import TYPE_CHECKING

import pyarrow as pa
from cachetools import LRUCache

from zskip import types as t
from zskip.engines.duckdb.native_scan import literal
from zskip.engines.duckdb.survivor_reads import Values, read_survivors
from zskip.errors import ZskipError
from zskip.expr.sql_literals import identifier

if TYPE_CHECKING:
    import duckdb

    from zskip.plan import Survivors
    from zskip.statement.first_rows import FirstRows
    from zskip.statement.key_pruning import JoinedTable, KeySet

__all__ = ["TableQueries"]

_MOST_KEYS = 1_000_000
_KNOWN_BYTES = 64 << 20
_KNOWN: LRUCache[Hashable, pa.Array | None] = LRUCache(_KNOWN_BYTES, lambda keys: 4096 + (keys.nbytes if keys else 0))
_LOCK = Lock()
_CALLED = re.compile(r'(\w+)"?\s*\(')


class TableQueries:
    """Asks through a connection; see `zskip.statement.key_pruning` and `zskip.statement.first_rows`."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con

    def keys(self, table: JoinedTable, key: str, seconds: float) -> tuple[pa.Array, Hashable] | None:
        """The distinct values, NULL too, of a column in the rows that are left of a table."""
        query = f"SELECT DISTINCT {identifier(key)} AS key FROM {{}} LIMIT {_MOST_KEYS + 1}"
        values, origin = self._answer(query, table.survivors, table.keys, _conditions(table.survivors), seconds)
        return None if values is None or len(values) > _MOST_KEYS else (values, origin)

    def worst_of_first(self, survivors: Survivors, wanted: FirstRows, seconds: float) -> pa.Scalar | None:
        """The last of the first values that these files have of a column; None where they have fewer, or it is not
        known that others are as good."""
        conditions, predicate = _conditions(survivors), survivors.predicate
        if wanted.column is None or len(conditions) < len(predicate.conjuncts if predicate else ()):
            return None
        name = identifier(wanted.column)
        worst, order = ("min", "DESC") if wanted.descending else ("max", "ASC")
        column = survivors.index.snapshot.schema.columns[wanted.column]
        # NULL and NaN stand before or behind all values, and their files are read in any case.
        present = f"{name} IS NOT NULL{f' AND NOT isnan({name})' if t.is_floating(column.type) else ''}"
        first = f"SELECT {name} AS key FROM {{}} AND {present} ORDER BY key {order} LIMIT {wanted.rows}"
        query = f"SELECT {worst}(key) AS key FROM ({first}) HAVING count(*) = {wanted.rows}"
        values, _ = self._answer(query, survivors, (), conditions, seconds)
        return values[0] if values is not None and len(values) else None

    def _answer(
        self, query: str, survivors: Survivors, keys: Sequence[KeySet], conditions: Sequence[str], seconds: float
    ) -> tuple[pa.Array | None, Hashable]:
        """The column "key" of a query over the rows of some files, whose place in it is ``{}``, and by what it is
        known. None where that fails or takes longer."""
        snapshot, storage = survivors.index.snapshot, survivors.index.storage
        # Rules may have left fewer files than the conditions and keys do.
        files = hashlib.sha256(survivors.numbers.tobytes()).digest()
        origins = tuple(each.origin for each in keys)
        origin = storage.identity, snapshot.commit_id, files, query, tuple(conditions), origins
        with _LOCK:
            if origin in _KNOWN:
                return _KNOWN[origin], origin
        values = self._run(query, survivors, keys, conditions, seconds)
        with _LOCK:
            _KNOWN[origin] = values
        return values, origin

    def _run(
        self, query: str, survivors: Survivors, keys: Sequence[KeySet], conditions: Sequence[str], seconds: float
    ) -> pa.Array | None:
        import duckdb

        parameters = Values(None, takes=True)
        with self._con.cursor() as cursor, _at_most(seconds, cursor):
            try:
                read = read_survivors(survivors.scan, survivors.index.snapshot.uniform, self._con, parameters)
                wanted = [f"({one})" for one in conditions]
                for number, each in enumerate(keys):
                    cursor.register(f"zskip_keys_{number}", pa.table({"key": each.values}))
                    name = identifier(each.column)
                    missing = f" OR {name} IS NULL" if each.or_null else ""
                    wanted.append(f"({name} IN (SELECT key FROM zskip_keys_{number}){missing})")
                if survivors.predicate is not None:
                    cursor.execute(f"SET TimeZone = {literal(survivors.predicate.dialect.timezone)}")
                text = query.replace("{}", f"{read} WHERE {' AND '.join(wanted) or 'TRUE'}")
                rows: pa.Table = cursor.sql(text, params=parameters.all).to_arrow_table()
            except (duckdb.Error, ZskipError):
                # What is wrong is the statement's to say when it runs.
                return None
        return rows.column("key").combine_chunks()


def _conditions(survivors: Survivors) -> tuple[str, ...]:
    """Those conditions that any connection answers with the same rows at any time."""
    predicate = survivors.predicate
    texts = [part.sql("duckdb") for part in predicate.conjuncts] if predicate is not None else []
    return tuple(text for text in texts if text is not None and _is_repeatable(text))


def _is_repeatable(condition: str) -> bool:
    called = {name.lower() for name in _CALLED.findall(condition)} - {"and", "in", "not", "or"}
    return not called or called <= _repeatable_functions()


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


@contextmanager
def _at_most(seconds: float, cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
    timer = Timer(seconds, cursor.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
