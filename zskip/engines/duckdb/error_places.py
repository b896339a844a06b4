"""Rewrite DuckDB's errors to point at the user's statement instead of the rewritten one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from zskip.errors import underline

_EXCERPT = re.compile(r"\n+(?P<line>LINE \d+: .*)\n(?P<caret> *\^)[^\n]*\s*$")
_QUOTED = re.compile(r'"([^"]+)"|with name (\S+) does not exist')
_WORD = re.compile(r'"[^"]*"|\'[^\']*\'|\w+|\S')


@contextmanager
def pointing_at(statement: str, ran: str) -> Iterator[None]:
    """Rewrite DuckDB's errors about ``ran`` into errors about ``statement``, from which it was rewritten."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        rewritten = repointed(str(error), statement)
        if ran == statement or rewritten is None:
            raise
        raise type(error)(rewritten) from None


def repointed(message: str, statement: str) -> str | None:
    """The message without its excerpt of the rewritten statement, and with the user's statement, underlined.

    The word that DuckDB points at, or quotes, is underlined if it occurs exactly once. None if the message has no
    excerpt and either no such word or the statement itself.

    >>> print(repointed('Referenced column "x" not found!', "SELECT x FROM 'lake'"))
    Referenced column "x" not found!
    <BLANKLINE>
      SELECT x FROM 'lake'
             ^
    """
    excerpt = _EXCERPT.search(message)
    if excerpt is None:
        quoted = _QUOTED.search(message)
        word = quoted and (quoted[1] or quoted[2])
    else:
        pointed = _WORD.match(excerpt["line"], len(excerpt["caret"]) - 1)
        word = pointed and pointed[0]
    spans = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", statement)] if word else []
    if excerpt is None and (len(spans) != 1 or statement in message):
        return None
    rewritten = message if excerpt is None else message[: excerpt.start()]
    return f"{rewritten}\n\n{underline(statement, spans[0] if len(spans) == 1 else None)}"
