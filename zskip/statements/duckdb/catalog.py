"""The zskip tables that a statement refers to, by path or by a name given in ``tables=``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zskip import table_formats
from zskip.errors import TableNotFound
from zskip.language.sql_literals import identifier
from zskip.statements.duckdb.table_places import Place, own_connection
from zskip.storage import open_storage
from zskip.storage.foreign_folders import refuse_folder
from zskip.storage.secrets import refuse_secrets
from zskip.tablelog import Index
from zskip.tablelog.own_files import refuse_replaced_files

if TYPE_CHECKING:
    import duckdb

_INDEXES: dict[str, Index] = {}
_KEPT_INDEXES = 16
_ICEBERG = re.compile(r"(^|/)metadata/[^/*?]+\.metadata\.json(\.gz)?$")
# Paths that DuckDB reads itself unless a folder has that name: patterns, and files with these extensions.
_NO_FOLDER = re.compile(
    r"[*?]|\.(parquet|parq|pq|csv|tsv|txt|json|jsonl|ndjson|gz|zst|arrow|db|duckdb)$", re.IGNORECASE
)


class Catalog:
    """The indexes of the tables in one statement. ``tables``: the tables or paths of given names."""

    def __init__(
        self, con: duckdb.DuckDBPyConnection, tables: Mapping[str, Any], storage_options: Mapping[str, Any] | None
    ) -> None:
        self._con = con
        self._named = {name.lower(): table for name, table in tables.items()}
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
        return name.lower() in self._named

    def path_of(self, name: str) -> str | None:
        """The path that a name refers to; None if it is the given name of an open table."""
        given = self._named.get(name.lower(), name)
        return given if isinstance(given, str) else None

    def refuse_read_files(self, readers: Sequence[str], params: Iterable[Any]) -> None:
        """Raise `ForeignTable` if an argument of ``read_parquet`` names files of a table with a log.

        ``readers``: the arguments, as SQL · ``params``: the values of the statement's parameters.
        """
        import duckdb

        for argument in readers:
            values = list(params)
            if not re.search(r"[?$]\w*$", argument):
                try:
                    values = list(self._con.sql(f"SELECT {argument}").fetchall()[0])
                except duckdb.Error:
                    continue  # an argument that depends on rows: DuckDB refuses it
            for value in values:
                for path in value if isinstance(value, list | tuple) else [value]:
                    if isinstance(path, str):
                        refuse_files(path)

    def _index_of(self, place: Place) -> Index | None:
        given = self._named.get(place.name.lower())
        if given is not None and not isinstance(given, str):
            index = given if isinstance(given, Index) else getattr(given, "index", None)
            return index if isinstance(index, Index) else table_formats.open_index(given, storage_options=self.options)
        if given is None and (not place.quote or (place.quote == '"' and self._is_duckdbs(place.name))):
            return None
        return open_index(given or place.name, self.options)

    def _is_duckdbs(self, name: str) -> bool:
        """Whether the connection has a table or view of this name. In double quotes, it precedes a folder."""
        import duckdb

        if "/" in name:
            return False
        try:
            self._con.table(identifier(name))
        except duckdb.CatalogException:
            return False
        return True


def refuse_files(pattern: str) -> None:
    """Raise `ForeignTable` if a path or pattern names files of a local table with a log, of zskip or another format."""
    folder = os.path.dirname(re.split(r"[*?\[]", pattern)[0])
    if "://" in pattern or (folder and not os.path.isdir(folder)):
        return
    storage = open_storage(folder or ".")
    refuse_folder(storage)
    found = own_connection().cursor().execute("SELECT file FROM glob(?)", [pattern]).fetchall()
    names = [os.path.relpath(file, folder or ".").replace(os.sep, "/") for (file,) in found]
    refuse_replaced_files(storage, pa.array(names, pa.string()))


def open_index(path: str, options: Mapping[str, Any] | None) -> Index | None:
    """The index of the latest version of the table at a path; None without a zskip table. Loaded indexes are cached.

    Raises `InvalidOption` for a URL with a secret or a query string, even if DuckDB itself could read it.
    """
    refuse_secrets(path)
    if _NO_FOLDER.search(path) and not _ICEBERG.search(path) and not os.path.isdir(path):
        refuse_files(path)
        return None
    try:
        index = table_formats.open_index(path, storage_options=options)
    except TableNotFound:
        return None
    # The identity includes the options: an index opened with credentials must not serve a caller without them.
    place = index.storage.identity
    kept = _INDEXES.get(place)
    if kept is None or kept.snapshot.commit_id != index.snapshot.commit_id:
        kept = index
        if len(_INDEXES) >= _KEPT_INDEXES:
            _INDEXES.clear()
        _INDEXES[place] = kept
    return kept
