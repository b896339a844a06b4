"""How deep a text of SQL may nest: what Python's stack holds, however a predicate is walked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zskip.errors import SqlSyntaxError

__all__ = ["DEEPEST", "TOO_DEEP", "refused_if_too_deep"]

DEEPEST = 200
"""Levels that are read: the parser and each walk over a predicate need up to four frames a level, of Python's 1,000."""

TOO_DEEP = f"This nests too deep to be read: more than {DEEPEST:,} levels, or as many operators in one chain."


@contextmanager
def refused_if_too_deep(sql: str) -> Iterator[None]:
    """Raises `SqlSyntaxError` where the parser or a walk over what it found does not fit what is left of the stack."""
    try:
        yield
    except RecursionError as error:
        raise SqlSyntaxError(TOO_DEEP, sql) from error
