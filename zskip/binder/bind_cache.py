"""A cache of bound predicates, by text, settings, parameters and schema.

What reads the clock is never kept. A schema is known by being the very same object, which the kept predicate holds.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TypeAlias

from cachetools import LRUCache

from zskip.binder.sql_text import Parameters
from zskip.errors import UnknownParameter
from zskip.expr.bound import Dialect, Predicate
from zskip.expr.sql_literals import literal
from zskip.schema import Schema

__all__ = ["find", "keep", "key"]

LONGEST = 200_000
"""Characters of a text, with its parameters, that is kept."""

MOST_CHARACTERS = 2_000_000
"""Characters of all texts that are kept."""

LEAST = 8_000
"""Characters that even a short text counts as, so that at most 250 are kept."""

Key: TypeAlias = tuple[object, ...]

_lock = threading.Lock()
_kept: LRUCache[Key, Predicate] = LRUCache(MOST_CHARACTERS, lambda predicate: max(LEAST, len(predicate.frozen)))


def key(
    sql: str,
    settings: Dialect,
    schema: Schema,
    params: Parameters | None,
    case_sensitive: bool,
) -> Key | None:
    """What a predicate is known by; None for what is not kept."""
    if len(sql) > LONGEST:
        return None
    given: tuple[object, ...] = ()
    if params is not None:
        names = tuple(params) if isinstance(params, Mapping) else None
        values = params.values() if isinstance(params, Mapping) else params
        try:
            # As constants of SQL: 1, 1.0 and TRUE are equal in Python, and not here.
            given = (names, *(literal(value, settings.name) for value in values))
        except UnknownParameter:
            return None
        if sum(len(str(text)) for text in given) > LONGEST:
            return None
    return (sql, settings, id(schema), case_sensitive, given)


def find(key: Key | None, schema: Schema) -> Predicate | None:
    """The predicate of a key; None where it was not bound before, or too long ago."""
    if key is None:
        return None
    with _lock:
        found = _kept.get(key)
    return found if found is not None and found.schema is schema else None


def keep(key: Key | None, predicate: Predicate) -> None:
    """Keeps a predicate, and forgets the one that was not asked for longest."""
    if key is None:
        return
    with _lock:
        _kept[key] = predicate
