"""The limit on the nesting depth of SQL text, which keeps recursive functions within Python's stack."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zskip.errors import SqlSyntaxError

MAX_DEPTH = 200
"""Levels of nesting. The parser and each recursive function need up to four frames a level, of Python's 1,000."""

TOO_DEEP = f"This nests too deep to be read: more than {MAX_DEPTH:,} levels, or as many operators in one chain."


@contextmanager
def syntax_error_if_too_deep(sql: str) -> Iterator[None]:
    """Turns a RecursionError of the block into a `SqlSyntaxError`: the caller may have used up most of the stack."""
    try:
        yield
    except RecursionError as error:
        raise SqlSyntaxError(TOO_DEEP, sql) from error
