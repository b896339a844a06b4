"""The zskip tables that a statement may refer to: by identifier path, or by a given name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zskip import table_formats
from zskip.engines.duckdb.table_places import Place
from zskip.errors import TableNotFound
from zskip.expr.sql_literals import identifier
from zskip.storage import open_storage
from zskip.storage.foreign_folders import refuse_folder
from zskip.storage.secrets import refuse_secrets
from zskip.tablelog import Index

if TYPE_CHECKING:
    import duckdb

__all__ = ["Catalog", "open_index"]

_INDEXES: dict[str, Index] = {}
_KEPT_INDEXES = 16
# What DuckDB reads by itself, unless there is a folder of that name: a pattern, or a file by its name's end.
_ICEBERG = re.compile(r"(^|/)metadata/[^/*?]+\.metadata\.json(\.gz)?$")
_NO_FOLDER = re.compile(
    r"[*?]|\.(parquet|parq|pq|csv|tsv|txt|json|jsonl|ndjson|gz|zst|arrow|db|duckdb)$", re.IGNORECASE
)


class Catalog:
    """Tables by place. ``tables``: names that a statement may use for tables or paths."""

    def __init__(
        self, con: duckdb.DuckDBPyConnection, tables: Mapping[str, Any], storage_options: Mapping[str, Any] | None
    ) -> None:
        self._con = con
        self._named = {name.lower(): table for name, table in tables.items()}
        self.options = storage_options
        self._found: dict[tuple[str, str], Index | None] = {}

    def index_of(self, place: Place) -> Index | None:
        """The index of the table that stands at a place; None where it is not one of zskip's."""
        key = place.name, place.quote
        if key not in self._found:
            self._found[key] = self._index_of(place)
        return self._found[key]

    def names(self, name: str) -> bool:
        """Whether a name was given to a table."""
        return name.lower() in self._named

    def path_of(self, name: str) -> str | None:
        """The path that a name stands for; None where it was given to an open table."""
        given = self._named.get(name.lower(), name)
        return given if isinstance(given, str) else None

    def _index_of(self, place: Place) -> Index | None:
        given = self._named.get(place.name.lower())
        if given is not None and not isinstance(given, str):
            index = given if isinstance(given, Index) else getattr(given, "index", None)
            return index if isinstance(index, Index) else table_formats.open_index(given, storage_options=self.options)
        if given is None and (not place.quote or (place.quote == '"' and self._is_duckdbs(place.name))):
            return None
        return open_index(given or place.name, self.options)

    def _is_duckdbs(self, name: str) -> bool:
        """Whether the connection has a table or view of this name, which double quotes mean before any folder."""
        import duckdb

        if "/" in name:
            return False
        try:
            self._con.table(identifier(name))
        except duckdb.CatalogException:
            return False
        return True


def _refuse_foreign(path: str) -> None:
    """Raise `ForeignTable` for files by name of a Delta, Iceberg or Hudi table on a local disk."""
    folder = os.path.dirname(re.split(r"[*?\[]", path)[0])
    if "://" not in path and (not folder or os.path.isdir(folder)):
        refuse_folder(open_storage(folder or "."))


def open_index(path: str, options: Mapping[str, Any] | None) -> Index | None:
    """The newest state of the table at a path; what was loaded of that very state before is used again.

    Raises `InvalidOption` for an address with a key or a query, also where DuckDB would read it by itself.
    """
    refuse_secrets(path)
    if _NO_FOLDER.search(path) and not _ICEBERG.search(path) and not os.path.isdir(path):
        _refuse_foreign(path)
        return None
    try:
        index = table_formats.open_index(path, storage_options=options)
    except TableNotFound:
        return None
    # Not by the address alone: what was opened with credentials must not serve a caller who gives none.
    place = index.storage.identity
    kept = _INDEXES.get(place)
    if kept is None or kept.snapshot.commit_id != index.snapshot.commit_id:
        kept = index
        if len(_INDEXES) >= _KEPT_INDEXES:
            _INDEXES.clear()
        _INDEXES[place] = kept
    return kept
