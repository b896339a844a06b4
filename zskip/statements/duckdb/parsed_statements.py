"""The statements of a text, as DuckDB parses them, and the zskip tables in each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from cachetools import LRUCache, cached

from zskip.errors import SqlSyntaxError
from zskip.statements.duckdb.catalog import Catalog, own_functions, refuse_files, refuse_written_files
from zskip.statements.duckdb.session import schema_of
from zskip.statements.duckdb.table_places import Place, Places, Word, table_places, tokens, unquoted, written_path

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from zskip.tablelog import Index

_CLOCKS = frozenset(
    {
        *("now", "today", "age", "current_date", "current_time", "current_timestamp", "current_localtime"),
        *("current_localtimestamp", "get_current_time", "get_current_timestamp", "localtime", "localtimestamp"),
        *("transaction_timestamp", "statement_timestamp", "clock_timestamp"),
    }
)
# Text that may name Parquet files in a statement that DuckDB's parser does not show.
_NAMES_FILES = re.compile(r"[*?\[]|\.(parquet|parq|pq)'$", re.IGNORECASE)


class Statement(NamedTuple):
    """One statement of a text, as DuckDB parses it. ``kind``: DuckDB's name of its type, such as ``SELECT``."""

    query: str
    kind: str
    named_parameters: frozenset[str]


@dataclass(frozen=True, slots=True)
class Parsed:
    """One statement, its words, what it reads, and the zskip tables in it.

    ``settled``: it has the same meaning whenever it runs · ``foreign``: it has relations or functions of the connection
    · ``hidden``: one of these may read a CTE by its name, and do with it what the text does not show.
    """

    statement: Statement
    words: Sequence[Word]
    places: Places
    found: Sequence[tuple[Place, Index]]
    settled: bool
    foreign: bool
    hidden: bool

    def schemas(self, con: duckdb.DuckDBPyConnection) -> dict[str, pa.Schema]:
        """The tables' schemas by their names in the text."""
        return {place.name: schema_of(index, con).arrow for place, index in self.found}


@cached(LRUCache(64), key=lambda con, text: text, lock=Lock())
def statements(con: duckdb.DuckDBPyConnection, text: str) -> tuple[Statement, ...]:
    """The statements of a text. Raises `SqlSyntaxError`."""
    import duckdb

    try:
        found = con.extract_statements(text)
    except duckdb.ParserException as error:
        message, _, excerpt = str(error).partition("\n\nLINE ")
        raise SqlSyntaxError(f"The statement does not parse: {message}.", text, _span(text, excerpt)) from error
    if not found:
        raise SqlSyntaxError("There is no statement.", text)
    return tuple(Statement(one.query, one.type.name, frozenset(one.named_parameters)) for one in found)


def _span(text: str, excerpt: str) -> tuple[int, int] | None:
    """The word that DuckDB's excerpt, ``2: … word …`` and a caret below it, points at."""
    line, _, caret = excerpt.partition("\n")
    number, _, shown = line.partition(": ")
    if not number.isdigit() or "^" not in caret:
        return None
    at = caret.index("^") - len("LINE ") - len(number) - 2
    lines = text.splitlines(keepends=True)
    written = lines[int(number) - 1] if int(number) <= len(lines) else ""
    # DuckDB shortens a long line, so the excerpt is only a part of it.
    start = written.find(shown.removeprefix("...").removesuffix("..."))
    if start < 0 or at < 0:
        return None
    begin = sum(map(len, lines[: int(number) - 1])) + start + at - 3 * shown.startswith("...")
    word = re.match(r"\w+|\S?", text[begin:])
    return begin, begin + max(1, len(word[0]) if word else 1)


def parse_tables(
    statement: Statement, catalog: Catalog, params: Sequence[Any] | Mapping[str, Any] | None = None
) -> Parsed:
    """Find the zskip tables of a statement. Raises `ForeignTable` for files of a table with a log."""
    words = tokens(statement.query)
    places = table_places(statement.query)
    catalog.refuse_named_files(places, tuple(params.values() if isinstance(params, Mapping) else params or ()))
    if (written := written_path(words)) is not None and written.kind == "string_const":
        refuse_written_files(unquoted(written.text))
    if not places.parsed:
        for word in words:
            if word.kind == "string_const" and _NAMES_FILES.search(word.text):
                refuse_files(unquoted(word.text))
    found = [(place, index) for place in places.tables if (index := catalog.index_of(place)) is not None]
    if not found:
        return Parsed(statement, words, places, found, settled=True, foreign=False, hidden=False)
    own = own_functions() - _CLOCKS
    foreign = len(places.tables) > len(found) or places.others or not places.functions <= own | _CLOCKS
    clock = any(word.text.lower() in _CLOCKS for word in words if word.kind != "string_const")
    settled = statement.kind == "SELECT" and not foreign and not clock
    return Parsed(statement, words, places, found, settled, foreign, hidden=not places.table_functions <= own)
