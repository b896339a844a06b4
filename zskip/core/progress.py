"""`Progress`: the callback to which long operations report their progress."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int | None], None]
"""Called with a phase, such as "footers" or "write", how much of it is done, and the total or None.

Phases count files ("footers", "rows"), predicates ("verify"), or the rows of a write ("read", "sample", "scatter",
"write").
"""


def unreported(phase: str, done: int, total: int | None) -> None:
    """A `Progress` that does nothing."""
