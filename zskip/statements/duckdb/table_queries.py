"""Small queries over a table's files that let a statement skip files: keys of joins, and bounds of first rows.

They run on a cursor of the connection, in a transaction of its own, so that a query that fails or takes too long does
not affect the user's transaction. Results are cached by the table's version, which is immutable.
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

from zskip.core import types as t
from zskip.engines.duckdb.native_scan import literal
from zskip.errors import ZskipError
from zskip.language.sql_literals import identifier
from zskip.statements.duckdb.survivor_reads import ReadBy, Values, read_survivors

if TYPE_CHECKING:
    import duckdb

    from zskip.plan import Survivors
    from zskip.statements.first_rows import FirstRows
    from zskip.statements.key_pruning import JoinedTable, KeySet

_MOST_KEYS = 1_000_000
_KNOWN_BYTES = 64 << 20
_KNOWN: LRUCache[Hashable, pa.Array | None] = LRUCache(_KNOWN_BYTES, lambda keys: 4096 + (keys.nbytes if keys else 0))
_LOCK = Lock()
_CALLED = re.compile(r'(\w+)"?\s*\(')


class TableQueries:
    """Queries for `zskip.statements.key_pruning` and `zskip.statements.first_rows`, run on a connection."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con

    def keys(self, table: JoinedTable, key: str, seconds: float) -> tuple[pa.Array, Hashable] | None:
        """The distinct values, with NULL, of a column in the rows of a table's survivors, and the query's cache key.

        None if there are too many, or the query fails or takes longer than ``seconds``.
        """
        query = f"SELECT DISTINCT {identifier(key)} AS key FROM {{}} LIMIT {_MOST_KEYS + 1}"
        values, origin = self._answer(query, key, table.survivors, table.keys, _conditions(table.survivors), seconds)
        return None if values is None or len(values) > _MOST_KEYS else (values, origin)

    def worst_of_first(self, survivors: Survivors, wanted: FirstRows, seconds: float) -> pa.Scalar | None:
        """The last value of the wanted first rows in these files.

        None if the files hold fewer rows, or if other conditions may exclude some of them.
        """
        conditions, predicate = _conditions(survivors), survivors.predicate
        if wanted.column is None or len(conditions) < len(predicate.conjuncts if predicate else ()):
            return None
        name = identifier(wanted.column)
        worst, order = ("min", "DESC") if wanted.descending else ("max", "ASC")
        column = survivors.index.snapshot.schema.columns[wanted.column]
        # NULL and NaN sort before or after all values; their files are always read.
        present = f"{name} IS NOT NULL{f' AND NOT isnan({name})' if t.is_floating(column.type) else ''}"
        first = f"SELECT {name} AS key FROM {{}} AND {present} ORDER BY key {order} LIMIT {wanted.rows}"
        query = f"SELECT {worst}(key) AS key FROM ({first}) HAVING count(*) = {wanted.rows}"
        values, _ = self._answer(query, column.parts[0], survivors, (), conditions, seconds)
        return values[0] if values is not None and len(values) else None

    def _answer(
        self,
        query: str,
        column: str,
        survivors: Survivors,
        keys: Sequence[KeySet],
        conditions: Sequence[str],
        seconds: float,
    ) -> tuple[pa.Array | None, Hashable]:
        """The column "key" of a query in which ``{}`` stands for the rows of some files, and its cache key.

        ``column``: the table's column in the query. The result's column is None if the query fails or takes longer than
        ``seconds``.
        """
        snapshot, storage = survivors.index.snapshot, survivors.index.storage
        # Rules may have skipped more files than the conditions and keys, so the files are part of the cache key.
        files = hashlib.sha256(survivors.numbers.tobytes()).digest()
        origins = tuple(each.origin for each in keys)
        origin = storage.identity, snapshot.commit_id, files, query, tuple(conditions), origins
        with _LOCK:
            if origin in _KNOWN:
                return _KNOWN[origin], origin
        values = self._run(query, column, survivors, keys, conditions, seconds)
        with _LOCK:
            _KNOWN[origin] = values
        return values, origin

    def _run(
        self,
        query: str,
        column: str,
        survivors: Survivors,
        keys: Sequence[KeySet],
        conditions: Sequence[str],
        seconds: float,
    ) -> pa.Array | None:
        import duckdb

        parameters = Values(None, takes=True)
        with self._con.cursor() as cursor, _at_most(seconds, cursor):
            try:
                read = read_survivors(survivors, self._con, parameters, ReadBy(_columns_read(survivors, column, keys)))
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
                # The statement itself will raise the error when it runs.
                return None
        return rows.column("key").combine_chunks()


def _columns_read(survivors: Survivors, column: str, keys: Sequence[KeySet]) -> list[str]:
    predicate, columns = survivors.predicate, survivors.index.snapshot.schema.columns
    names = [] if predicate is None else [columns[path].parts[0] for path in predicate.columns]
    return [*dict.fromkeys([*names, *(each.column for each in keys), column])]


def _conditions(survivors: Survivors) -> tuple[str, ...]:
    """The conditions that select the same rows on every connection at any time."""
    predicate = survivors.predicate
    texts = [part.sql("duckdb") for part in predicate.conjuncts] if predicate is not None else []
    return tuple(text for text in texts if text is not None and _is_repeatable(text))


def _is_repeatable(condition: str) -> bool:
    called = {name.lower() for name in _CALLED.findall(condition)} - {"and", "in", "not", "or"}
    return not called or called <= _repeatable_functions()


@lru_cache(maxsize=1)
def _repeatable_functions() -> frozenset[str]:
    """DuckDB's deterministic functions, and the keywords that may precede a parenthesis."""
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
