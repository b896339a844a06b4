"""Rewrite DuckDB's errors so that they point at the user's statement, not at the one that ran."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from zskip.errors import underline

__all__ = ["pointing_at", "repointed"]

_EXCERPT = re.compile(r"\n+(?P<line>LINE \d+: .*)\n(?P<caret> *\^)[^\n]*\s*$")
_NAMED = re.compile(r'"([^"]+)"|with name (\S+) does not exist')
_WORD = re.compile(r'"[^"]*"|\'[^\']*\'|\w+|\S')


@contextmanager
def pointing_at(statement: str, ran: str) -> Iterator[None]:
    """Raise DuckDB's errors about the statement that ``ran`` as errors about the one that stands for it."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        rewritten = repointed(str(error), statement)
        if ran == statement or rewritten is None:
            raise
        raise type(error)(rewritten) from None


def repointed(message: str, statement: str) -> str | None:
    """A message with the place in the written statement, and without an excerpt of the one that ran.

    The place is known where what DuckDB points at, or names, stands once in what was written. None where there is
    neither an excerpt to replace nor a place to show, and where the message already shows the statement.

    >>> print(repointed('Referenced column "x" not found!', "SELECT x FROM 'lake'"))
    Referenced column "x" not found!
    <BLANKLINE>
      SELECT x FROM 'lake'
             ^
    """
    excerpt = _EXCERPT.search(message)
    if excerpt is None:
        named = _NAMED.search(message)
        word = named and (named[1] or named[2])
    else:
        pointed = _WORD.match(excerpt["line"], len(excerpt["caret"]) - 1)
        word = pointed and pointed[0]
    places = [one.span() for one in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", statement)] if word else []
    if excerpt is None and (len(places) != 1 or statement in message):
        return None
    rewritten = message if excerpt is None else message[: excerpt.start()]
    return f"{rewritten}\n\n{underline(statement, places[0] if len(places) == 1 else None)}"
