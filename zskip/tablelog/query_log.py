"""`QueryLog`: what a table was asked on this machine: the conditions of plans, and how many files they kept.

On request, in the user's cache folder, since readers cannot write into every table. Each plan adds a line:

    {"condition": "user = 7", "columns": ["user"], "files": 64, "kept": 3, "matched": 1, "rows": 0.04}
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass

import numpy as np

from zskip.errors import TableError

_LOG = logging.getLogger("zskip")
_MOST_BYTES = 4 << 20
_LONGEST_LINE = 1 << 16
_LISTED = 20


@dataclass(frozen=True, slots=True)
class Asked:
    """A plan. ``columns``: those that the condition reads · ``files``: of the table · ``kept``: files that may hold a
    match, ``matched``: those of them of which all rows match · ``rows``: the share of the table's rows in kept files"""

    condition: str
    columns: list[str]
    files: int
    kept: int
    matched: int
    rows: float


class QueryLog:
    """The log of one table. It is written from `start` to `stop`, by all processes of this user.

    ``uri``: of the table's folder · ``table_id``: another table at the same place has a log of its own
    """

    def __init__(self, uri: str, table_id: str) -> None:
        from platformdirs import user_cache_path

        self.uri = uri
        name = hashlib.sha256(f"{uri} {table_id}".encode()).hexdigest()[:32]
        self._path = user_cache_path("zskip") / "queries" / f"{name}.jsonl"

    def start(self) -> None:
        """Log the plans of this table from now on. Raises `TableError` if the cache folder cannot be written."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600))
        except OSError as error:
            raise TableError(f"The log {self._path} cannot be written: {error}.") from error

    def stop(self) -> None:
        """Stop, and remove what was logged."""
        self._path.unlink(missing_ok=True)

    @property
    def is_on(self) -> bool:
        return self._path.exists()

    def add(self, asked: Asked) -> None:
        """Add a plan, if the log was not stopped. A log that cannot be written fails no query."""
        line = json.dumps(asdict(asked)).encode() + b"\n"
        if len(line) > _LONGEST_LINE:
            return
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(file, line)
                size = os.fstat(file).st_size
            finally:
                os.close(file)
            if size > _MOST_BYTES:
                self._keep_newest_half()
        except FileNotFoundError:
            return
        except OSError as error:
            _LOG.warning("A query on %s was not logged: %s", self.uri, error)

    def _keep_newest_half(self) -> None:
        """Lines that others add meanwhile are lost."""
        newest = self._path.read_bytes()[-_MOST_BYTES // 2 :].partition(b"\n")[2]
        shorter = self._path.with_suffix(f".{os.getpid()}")
        with open(os.open(shorter, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
            file.write(newest)
        shorter.replace(self._path)

    def read(self) -> list[Asked]:
        """The logged plans, the oldest first; none if the log is not on. A line that is cut off is left out."""
        found = []
        with suppress(FileNotFoundError):
            for line in self._path.read_bytes().splitlines():
                with suppress(ValueError, TypeError):
                    found.append(Asked(**json.loads(line)))
        return found

    def __str__(self) -> str:
        asked = self.read()
        if not asked:
            return "No plan was logged." if self.is_on else "The log is not on."
        by_columns = Counter(tuple(each.columns) for each in asked)
        lines = [f"{len(asked):,} plans", f"{'share':>7} {'files':>8} {'matched':>8} {'rows':>8}  columns"]
        for columns, count in by_columns.most_common(_LISTED):
            own = [each for each in asked if tuple(each.columns) == columns]
            shares = [(each.kept / each.files, each.matched / each.files, each.rows) for each in own]
            kept, matched, rows = np.mean(shares, axis=0)
            lines.append(f"{count / len(asked):>7.1%} {kept:>8.2%} {matched:>8.2%} {rows:>8.2%}  {', '.join(columns)}")
        return "\n".join(lines)
