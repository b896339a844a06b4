"""The statements of a text, as DuckDB parses them, and the zskip tables in each. Files of tables are refused."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from cachetools import LRUCache, cached

from zskip.core.late_loading import ask_duckdb
from zskip.core.schema import SESSION_VALUES, identifier
from zskip.errors import InvalidOption, SqlSyntaxError, TableNotFound
from zskip.statements.duckdb.session import schema_of
from zskip.statements.duckdb.table_places import (
    Place,
    Places,
    Word,
    shape,
    table_places,
    tokens,
    unquoted,
    written_path,
)
from zskip.storage import open_storage
from zskip.storage.opening import is_in_store
from zskip.storage.secrets import refuse_secrets
from zskip.tablelog.index import Index
from zskip.tablelog.table_folders import (
    ADDRESS_OF_ENTRY,
    format_of_object,
    own_snapshot,
    refuse_files_of_tables,
    refuse_folder,
    refuse_new_files,
)

if TYPE_CHECKING:
    import duckdb


# Words that have another value in another query, of which `_own_functions` cannot tell: DuckDB's parser takes those
# without parentheses for columns, and `age` counts from today if it is called with one value.
_FIXED_BY_A_QUERY = SESSION_VALUES | {"age"}
# Kinds of statements whose arguments DuckDB's parser does not show, and may be folders to read.
_FOLDER_READERS = frozenset({"CALL", "COPY", "EXECUTE", "PREPARE"})
_PATTERN = re.compile(r"[*?\[]")
_PARQUET = "parquet|parq|pq"
# Text that may name Parquet files in a statement that DuckDB's parser does not show.
_NAMES_PARQUET = re.compile(rf"{_PATTERN.pattern}|\.({_PARQUET})$", re.IGNORECASE)
_FILES = "SELECT file FROM glob(?)"
# What to write instead of a word that DuckDB's parser refuses.
_INSTEAD = {
    "/": " Quote the path of a table: FROM 'lake/trips'.",
    ":": " DuckDB writes a parameter as $name, or as ? by its place.",
    "optimize": " zskip.cluster(path, by=…) lays a table out, and Table.optimize keeps its layout up.",
}


class Statement(NamedTuple):
    """One statement of a text, as DuckDB parses it. ``kind``: DuckDB's name of its type, such as ``SELECT``."""

    query: str
    kind: str
    named_parameters: frozenset[str]


@dataclass(frozen=True, slots=True)
class Parsed:
    """One statement, the words of its shape, what it reads, and the zskip tables in it.

    ``settled``: it has the same meaning whenever it runs · ``foreign``: it has relations or functions of the connection
    · ``of_user``: some of these functions are the user's · ``hidden``: one of these may read a CTE by its name, and do
    with it what the text does not show.
    """

    statement: Statement
    words: Sequence[Word]
    places: Places
    found: Sequence[tuple[Place, Index]]
    settled: bool
    foreign: bool
    of_user: bool
    hidden: bool

    @property
    def only_named(self) -> bool:
        """Whether it needs only the columns that its text names. The text of a function of the user is not in it."""
        return self.statement.kind == "SELECT" and self.places.only_named and not (self.of_user or self.hidden)

    def schemas(self, con: duckdb.DuckDBPyConnection) -> dict[str, pa.Schema]:
        """The tables' schemas by their names in the text."""
        return {place.name: schema_of(index, con).arrow for place, index in self.found}


def statements(con: duckdb.DuckDBPyConnection, text: str) -> tuple[Statement, ...]:
    """The statements of a text. Raises `SqlSyntaxError`."""
    like = shape(text)
    try:
        found = _statements(con, like)
    except SqlSyntaxError:
        return _statements(con, text)  # whose error shows it as it was written
    return (found[0]._replace(query=text),) if len(found) == 1 and found[0].query == like else _statements(con, text)


@cached(LRUCache(64), key=lambda con, text: text, lock=Lock())
def _statements(con: duckdb.DuckDBPyConnection, text: str) -> tuple[Statement, ...]:
    import duckdb

    try:
        found = con.extract_statements(text)
    except duckdb.ParserException as error:
        message, _, excerpt = str(error).partition("\n\nLINE ")
        hint = next((hint for word, hint in _INSTEAD.items() if f'near "{word}"' in message.lower()), "")
        raise SqlSyntaxError(f"The statement does not parse: {message}.{hint}", text, _span(text, excerpt)) from error
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
    words = tokens(shape(statement.query))
    places = table_places(statement.query, catalog.con)
    given = tuple(params.values() if isinstance(params, Mapping) else params or ())
    catalog.refuse_named_files(statement.query, places, given)
    written = None if statement.kind == "SELECT" else written_path(words)
    if written is not None:
        is_text = written.kind == "string_const"
        for path in [unquoted(written.text)] if is_text else _texts(given):
            _refuse_written_files(path, catalog.con)
    if not places.parsed or statement.kind == "CALL":
        for text in (unquoted(word.text) for word in words if word.kind == "string_const"):
            if _NAMES_PARQUET.search(text) or (statement.kind in _FOLDER_READERS and os.path.isdir(text)):
                _refuse_files(text, catalog.con)
    found = [(place, index) for place in places.tables if (index := catalog.index_of(place)) is not None]
    if not found:
        return Parsed(statement, words, places, found, settled=True, foreign=False, of_user=False, hidden=False)
    of_user = not _are_own(places.functions)
    foreign = len(places.tables) > len(found) or places.others or of_user
    named = any(word.text.lower() in _FIXED_BY_A_QUERY for word in words if word.kind != "string_const")
    settled = statement.kind == "SELECT" and not (foreign or named or _are_fixed_by_a_query(places.functions))
    hidden = not _are_own(places.table_functions) or _are_fixed_by_a_query(places.table_functions)
    return Parsed(statement, words, places, found, settled, foreign, of_user, hidden)


# --- the zskip tables that a statement refers to, by path or by a name given in ``tables=`` ---

_INDEXES: LRUCache[str, Index] = LRUCache(16)
_INDEXES_LOCK = Lock()
_FILE_URL = re.compile(r"^file:(//(localhost)?)?/", re.IGNORECASE)
# Functions in FROM that read the rows of Parquet files; and those that read tables, which may be files, by their names.
_READERS = frozenset({"read_parquet", "parquet_scan", "read_single_parquet_file"})
_QUERIES = frozenset({"query", "query_table"})
# Paths that DuckDB reads itself unless a folder has that name: patterns, and files with these extensions. In a store
# only the latter: DuckDB reads no pattern without one, and a table may have that name.
_FILE = re.compile(rf"\.({_PARQUET}|csv|tsv|txt|json|jsonl|ndjson|gz|zst|arrow|db|duckdb)$", re.IGNORECASE)
_NO_FOLDER = re.compile(rf"{_PATTERN.pattern}|{_FILE.pattern}", re.IGNORECASE)
_NAMED = """
    SELECT 1 FROM (SELECT table_name AS name FROM duckdb_tables() UNION ALL SELECT view_name FROM duckdb_views())
    WHERE lower(name) = lower($name)"""


class Catalog:
    """The indexes of the tables in one statement. ``named``: the tables or paths of given names, in lower case."""

    def __init__(
        self, con: duckdb.DuckDBPyConnection, tables: Mapping[str, Any], storage_options: Mapping[str, Any] | None
    ) -> None:
        self.con = con
        self.named = {name.lower(): table for name, table in tables.items()}
        self.options = storage_options
        self._found: dict[tuple[str, str], Index | None] = {}

    def index_of(self, place: Place) -> Index | None:
        """The index of the table in FROM; None if it is not a zskip table."""
        key = place.name, place.quote
        if key not in self._found:
            self._found[key] = self._index_of(place)
        return self._found[key]

    def names(self, name: str) -> bool:
        """Whether a name was given to a table."""
        return name.lower() in self.named

    def path_of(self, name: str) -> str | None:
        """The path that a name refers to; None if it is the given name of an open table."""
        given = self.named.get(name.lower(), name)
        return given if isinstance(given, str) else None

    def refuse_named_files(self, query: str, places: Places, params: Sequence[Any]) -> None:
        """Raise `ForeignTable` if a function in FROM names files of a table with a log, or reads them by a query.

        ``params``: the values of the statement's parameters.
        """
        for function, place in places.arguments:
            argument = query[place].strip()
            if function not in _READERS | _QUERIES and _are_own({function}):
                continue
            values = self._values(argument) or params
            for text in _texts(values):
                if function == "query":
                    inner = table_places(text, self.con)
                    named = [place.name for place in inner.tables if _NO_FOLDER.search(place.name)]
                    self.refuse_named_files(text, inner, ())
                else:
                    files = function in _READERS or _NO_FOLDER.search(text) or os.path.isdir(text)
                    named = [text] if files else []
                for name in named:
                    _refuse_files(name, self.con)

    def _values(self, argument: str) -> Sequence[Any]:
        """The value of an argument; none if it depends on parameters, or on rows, which DuckDB refuses."""
        import duckdb

        try:
            return self.con.sql(f"SELECT {argument}").fetchall()[0]
        except duckdb.Error:
            return ()

    def _index_of(self, place: Place) -> Index | None:
        given = self.named.get(place.name.lower())
        if given is not None and not isinstance(given, str):
            index = given if isinstance(given, Index) else getattr(given, "_index", None)
            if isinstance(index, Index):
                return index
            if hasattr(given, "__arrow_c_stream__") and format_of_object(given) is None:
                raise InvalidOption(
                    f"tables= names tables of zskip, Delta and Iceberg. Rows in memory are DuckDB's: "
                    f'con.register("{place.name}", rows), and zskip.sql(statement, con).'
                )
            return _index_at(given, self.options)
        if given is None and (not place.quote or (place.quote == '"' and self._is_duckdbs(place.name))):
            return None
        return open_index(given or place.name, self.options, self.con)

    def _is_duckdbs(self, name: str) -> bool:
        """Whether the connection has a table or view of this name. In double quotes, it precedes a folder."""
        import duckdb

        if "/" in name:  # to ask for the table would read files of this name, or download an extension that does
            return bool(self.con.sql(_NAMED, params={"name": name}).fetchall())
        try:
            self.con.table(identifier(name))
        except duckdb.CatalogException:
            return False
        return True


def _texts(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _texts(value)
        elif isinstance(value, str):
            yield value


def _are_own(functions: Set[str]) -> bool:
    """Whether all of these functions are DuckDB's own. To ask DuckDB takes longer than many a statement."""
    return not functions or functions <= _own_functions().keys()


def _are_fixed_by_a_query(functions: Set[str]) -> bool:
    """Whether one of these own functions has another value in another query, as getvariable and current_setting do."""
    return bool(functions) and any(_own_functions().get(name) for name in functions)


@lru_cache(maxsize=1)
def _own_functions() -> Mapping[str, bool]:
    """DuckDB's own functions, and its keywords: coalesce and grouping are not among its functions.

    Each with whether DuckDB says that its value is fixed within a query alone, or it is a macro that names such a one,
    as ago. That of a function which some types of arguments make depend on the time zone is not so: `session.guard`
    knows the zone.
    """
    fixed = "bool_or(stability = 'CONSISTENT_WITHIN_QUERY') AND NOT bool_or(stability = 'CONSISTENT')"
    words = ask_duckdb("SELECT keyword_name FROM duckdb_keywords()")
    functions = ask_duckdb(f"""
        SELECT function_name, {fixed}, lower(string_agg(macro_definition, ' ')) FROM duckdb_functions()
        GROUP BY function_name""")
    own = {**{word: False for (word,) in words}, **{name: bool(found) for name, found, _ in functions}}
    names = _FIXED_BY_A_QUERY | {name for name, found in own.items() if found}
    return own | {name: True for name, _, text in functions if text and not names.isdisjoint(re.findall(r"\w+", text))}


def _refuse_written_files(path: str, con: duckdb.DuckDBPyConnection) -> None:
    """Raise `ForeignTable` if files that a statement writes to a local path would lie in a zskip table's folder."""
    path = _FILE_URL.sub("/", path)
    if path.startswith("~"):
        ((home,),) = con.sql("SELECT current_setting('home_directory')").fetchall()
        path = f"{home or os.path.expanduser('~')}{path[1:]}"
    if "://" not in path:
        refuse_new_files(open_storage(path))


def _refuse_files(pattern: str, con: duckdb.DuckDBPyConnection) -> None:
    """Raise `ForeignTable` if a path or pattern names files of a local table with a log, of zskip or another format.

    The connection tells which files it names: its settings say where it looks for them. In a folder, it reads those at
    any depth.
    """
    import duckdb

    pattern = _FILE_URL.sub("/", pattern)
    if not pattern or "://" in pattern:
        return
    patterns = [pattern] if _PATTERN.search(pattern) else [pattern, os.path.join(pattern, "**", "*")]
    found: list[str] = []
    for each in patterns:
        with suppress(duckdb.Error):  # then DuckDB reads none, and raises it again
            found += [os.path.abspath(file) for (file,) in con.sql(_FILES, params=[each]).fetchall()]
    if found:
        storage = open_storage(folder := os.path.commonpath([os.path.dirname(file) for file in found]))
        refuse_folder(storage)
        names = [os.path.relpath(file, folder).replace(os.sep, "/") for file in found]
        refuse_files_of_tables(storage, pa.array(names, pa.string()))


def _index_at(table: Any, options: Mapping[str, Any] | None) -> Index:
    """The index of the newest version of a table of any format. No other is loaded for a table of zskip's own."""
    own = own_snapshot(table, storage_options=options)
    if own is not None:
        return Index(*own)
    from zskip.table_formats import locate

    return locate.open_foreign_index(table, options)


def open_index(path: str, options: Mapping[str, Any] | None, con: duckdb.DuckDBPyConnection) -> Index | None:
    """The index of the latest version of the table at a path; None without a zskip table. Loaded indexes are cached.

    Raises `InvalidOption` for a URL with a secret or a query string, even if DuckDB itself could read it.
    """
    refuse_secrets(path)
    of_duckdb = _FILE if is_in_store(path) else _NO_FOLDER
    if of_duckdb.search(path) and not ADDRESS_OF_ENTRY.search(path) and not os.path.isdir(path):
        _refuse_files(path, con)
        return None
    try:
        index = _index_at(path, options if is_in_store(path) else None)
    except TableNotFound:
        if is_in_store(path):
            raise  # DuckDB reads only files there, by their extensions
        return None
    # The identity includes the options: an index opened with credentials must not serve a caller without them.
    place = index.storage.identity
    with _INDEXES_LOCK:
        kept = _INDEXES.get(place)
        if kept is None or kept.snapshot.commit_id != index.snapshot.commit_id:
            kept = _INDEXES[place] = index
    return kept
