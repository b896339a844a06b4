"""Statements as text, one a line: `fixtures/statements/NAME.txt` holds sections, each under a line ``== section ==``.

In some of them a statement stands behind how many files it reads of each of its tables, as ``[2,1]``, or ``any``. A
name in braces, as ``{T}``, stands for a table of the test's folder.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb

from tests import FIXTURES
from zskip.statements.duckdb.statement import rewrite


def statements(name: str, section: str, folder: str = "statements") -> list[str]:
    """The statements, or the predicates, of a section of a fixture; a line that begins with ``#`` is a comment."""
    text = (FIXTURES / folder / f"{name}.txt").read_text(encoding="utf-8")
    inside = text.split(f"== {section} ==\n")[1].split("\n== ")[0]
    return [line for line in inside.splitlines() if line and not line.startswith("#")]


def counted(name: str, section: str) -> list[tuple[str, list[int] | int | None]]:
    """Each statement, and how many files it reads: of each table, or of the only one."""
    found = [line.partition(" ") for line in statements(name, section)]
    return [(text.strip(), None if files == "any" else json.loads(files)) for files, _, text in found]


def over(folder: Path, statement: str, files: str = "") -> str:
    """The statement over the tables of a folder; with ``files``, such as ``/*.parquet``, over the files themselves."""
    return re.sub(r"\{(\w+)\}", lambda name: f"'{folder}/{name[1].lower()}{files}'", statement)


def files_read(folder: Path, con: duckdb.DuckDBPyConnection, statement: str, params: Any = None) -> list[int]:
    """How many files a statement reads of each of its tables."""
    return [len(plan) for _, plan in rewrite(over(folder, statement), con, params=params).plans]
