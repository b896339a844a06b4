"""A workload as users give it: a list of queries, a string of several, or a file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias, TypeGuard

from zskip.errors import InvalidOption, UnreadableFile, shown

Workload: TypeAlias = Sequence[str] | os.PathLike[str]
"""A list of predicates or SELECT statements, a string of several separated by `;` or line breaks, or a file's path.

A string that ends in ".sql" is the path of a file.
"""

_LEXICAL = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|.", re.DOTALL)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


def queries_of(workload: Workload) -> tuple[str, ...]:
    """The queries of a workload. Raises `UnreadableFile`, and `InvalidOption` for anything but text.

    >>> queries_of("a = 1; b < 2")
    ('a = 1', 'b < 2')
    """
    if isinstance(workload, os.PathLike) or _names_file(workload):
        try:
            return split_statements(Path(workload).read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise UnreadableFile(
                f'The file of queries "{os.fspath(workload)}" cannot be read: {error.strerror}.'
            ) from error
        except UnicodeDecodeError as error:
            raise UnreadableFile(f'The file of queries "{os.fspath(workload)}" is not UTF-8 text.') from error
    if isinstance(workload, str):
        return split_statements(workload)
    queries = tuple(workload) if isinstance(workload, Iterable) else (workload,)
    for query in queries:
        if not isinstance(query, str):
            raise InvalidOption(f"A workload is a list of SQL queries, or a file of them; {shown(query)} is neither.")
    return queries


def file_of(workload: Workload) -> str:
    """The path of a workload's file, to show in a command; "QUERIES.SQL" for a workload that is not a file."""
    if isinstance(workload, os.PathLike) or _names_file(workload):
        return os.fspath(workload)
    return "QUERIES.SQL"


def _names_file(workload: Sequence[str]) -> TypeGuard[str]:
    return isinstance(workload, str) and workload.lower().endswith(".sql")


def split_statements(text: str) -> tuple[str, ...]:
    """The statements or predicates of a text, separated by `;`, or by line breaks if it contains no `;`.

    >>> split_statements("a = 1 -- one; still one\\nb = ';'")
    ('a = 1 -- one; still one', "b = ';'")
    >>> split_statements("SELECT ';';\\nSELECT 2;")
    ("SELECT ';'", 'SELECT 2')
    """
    pieces = _LEXICAL.findall(text)
    separator = ";" if ";" in pieces else "\n"
    statements, current = [], ""
    for piece in pieces:
        if piece == separator:
            statements.append(current)
            current = ""
        else:
            current += piece
    return tuple(statement.strip() for statement in [*statements, current] if _COMMENT.sub("", statement).strip())
