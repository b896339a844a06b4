"""Paths of tables in Spark statements: ``SELECT … FROM 'lake/conn' JOIN 'lake/dns' USING (uid)``."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["TablePath", "table_paths"]

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)
      | (?P<string>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")
      | (?P<quoted>`(?:[^`]|``)*`)
      | (?P<word>[A-Za-z_]\w*)
      | (?P<other>\S)""",
    re.DOTALL | re.VERBOSE,
)
_AFTER_FROM = {"where", "group", "order", "having", "limit", "union", "except", "intersect", "select", "window", "on"}


@dataclass(frozen=True, slots=True)
class TablePath:
    """A path in the place of a table's name, and its half-open range of characters in the statement."""

    start: int
    end: int
    path: str


def table_paths(sql: str) -> list[TablePath]:
    """The strings of a statement that name tables: after FROM, JOIN, or a comma between tables.

    >>> [found.path for found in table_paths("SELECT trim(BOTH 'x' FROM 'y') FROM 'a', 'b/c' t JOIN 'd' ON s = 'e'")]
    ['a', 'b/c', 'd']
    """
    found = []
    # One entry for each open parenthesis: whether it holds a query, and whether tables may follow.
    query, tables = [True], [False]
    before: list[str] = ["", ""]
    for token in _TOKEN.finditer(sql):
        if token["comment"] is not None:
            continue
        text = token[0].lower()
        if before[-1] == "(":
            query[-1] = query[-1] or text in ("select", "with", "from")
        if text == "(":
            # A parenthesis among tables holds a join or a query.
            among_tables = tables[-1] and before[-1] in ("from", "join", ",", "(")
            query.append(among_tables)
            tables.append(among_tables)
        elif text == ")" and len(query) > 1:
            query.pop()
            tables.pop()
        elif token["word"] and text == "from":
            tables[-1] = query[-1] and before[-1] != "distinct"
        elif token["word"] and text == "join":
            tables[-1] = True
        elif token["word"] and text in _AFTER_FROM:
            # After ON, a comma or a JOIN may introduce the next table.
            tables[-1] = tables[-1] and text == "on"
        elif token["string"] is not None and tables[-1] and before[-1] in ("from", "join", ",", "("):
            found.append(TablePath(token.start(), token.end(), re.sub(r"\\(.)", r"\1", token[0][1:-1])))
        before.append(text)
    return found
