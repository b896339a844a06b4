"""Statements as text, one a line: `fixtures/statements/NAME.txt` holds sections, each under a line ``== section ==``.

In some of them a statement stands behind how many files it reads of each of its tables, as ``[2,1]``, or ``any``.
"""

from __future__ import annotations

import json

from tests import FIXTURES


def statements(name: str, section: str) -> list[str]:
    """The statements of a section; a line that begins with ``#`` is a comment."""
    text = (FIXTURES / "statements" / f"{name}.txt").read_text(encoding="utf-8")
    inside = text.split(f"== {section} ==\n")[1].split("\n== ")[0]
    return [line for line in inside.splitlines() if line and not line.startswith("#")]


def counted(name: str, section: str) -> list[tuple[str, list[int] | int | None]]:
    """Each statement, and how many files it reads: of each table, or of the only one."""
    found = [line.partition(" ") for line in statements(name, section)]
    return [(text.strip(), None if files == "any" else json.loads(files)) for files, _, text in found]
