"""A cache of bound predicates, by text, settings, parameters and schema.

Predicates that read the clock are not cached. Schemas are compared by identity, and an entry keeps its schema alive.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TypeAlias

from cachetools import LRUCache

from zskip.binder.sql_text import Parameters
from zskip.core.schema import Schema
from zskip.errors import UnknownParameter
from zskip.language.bound import Dialect, Predicate
from zskip.language.sql_literals import literal

__all__ = ["find", "keep", "key"]

MAX_CHARACTERS = 200_000
"""The longest text, and the longest parameters, that are cached, in characters."""

CAPACITY = 2_000_000
"""The capacity of the cache, in characters of SQL text."""

MIN_SIZE = 8_000
"""The size that a short text counts as, in characters, so that at most 250 predicates are cached."""

Key: TypeAlias = tuple[object, ...]

_lock = threading.Lock()
_cache: LRUCache[Key, Predicate] = LRUCache(CAPACITY, lambda predicate: max(MIN_SIZE, len(predicate.bound_text)))


def key(
    sql: str,
    settings: Dialect,
    schema: Schema,
    params: Parameters | None,
    case_sensitive: bool,
) -> Key | None:
    """The cache key; None if the predicate is not to be cached."""
    if len(sql) > MAX_CHARACTERS:
        return None
    parameters: tuple[object, ...] = ()
    if params is not None:
        names = tuple(params) if isinstance(params, Mapping) else None
        values = params.values() if isinstance(params, Mapping) else params
        try:
            # As SQL constants, since 1, 1.0 and True are equal in Python.
            parameters = (names, *(literal(value, settings.name) for value in values))
        except UnknownParameter:
            return None
        if sum(len(str(text)) for text in parameters) > MAX_CHARACTERS:
            return None
    return (sql, settings, id(schema), case_sensitive, parameters)


def find(key: Key | None, schema: Schema) -> Predicate | None:
    """The cached predicate of a key; None if there is none."""
    if key is None:
        return None
    with _lock:
        found = _cache.get(key)
    return found if found is not None and found.schema is schema else None


def keep(key: Key | None, predicate: Predicate) -> None:
    """Caches a predicate, and evicts the least recently used ones."""
    if key is None:
        return
    with _lock:
        _cache[key] = predicate
