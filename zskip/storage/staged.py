"""`Staged`: the files that a change has made, until it is known whether a commit names them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum
from types import TracebackType

from zskip.errors import UncertainCommit, first_line


class _State(Enum):
    MADE = "made"
    MAYBE_COMMITTED = "maybe committed"
    COMMITTED = "committed"


class Staged:
    """Files of a change, in one of three states. Only files that are *made* are ever removed.

        made ──maybe_committed()──▶ maybe committed ──committed()──▶ committed
          ▲                                │
          └───────────refused()────────────┘

    As a context manager it ends with the change: an exception, an interrupt too, removes files that are *made*. Once
    the request that may commit them has begun, an entry may name them whatever happens, so they stay; what no version
    names is left to a vacuum, since names of files are unique. An error then becomes `UncertainCommit`, with
    ``unknown``: a sentence that says how to find out; an interrupt gets it as a note.

    >>> gone = []
    >>> with suppress(OSError), Staged(gone.extend) as staged:
    ...     staged.add(["a.parquet"])
    ...     raise OSError("the disk is full")
    >>> gone
    ['a.parquet']
    >>> with suppress(UncertainCommit), Staged(gone.extend) as staged:
    ...     staged.add(["b.parquet"])
    ...     staged.maybe_committed("Open the table again to see.")
    ...     raise OSError("the connection was lost")
    >>> gone
    ['a.parquet']
    """

    def __init__(self, remove: Callable[[Sequence[str]], object]) -> None:
        """``remove``: removes files by path; its errors are not raised, since the vacuum takes what is left."""
        self._remove, self._paths = remove, list[str]()
        self._state, self._unknown = _State.MADE, ""

    def add(self, paths: Iterable[str]) -> None:
        """Files that were made, or whose making has begun."""
        self._paths.extend(paths)

    def maybe_committed(self, unknown: str) -> None:
        """Call this right before the request that may commit the files. ``unknown``: as in the class."""
        self._state, self._unknown = _State.MAYBE_COMMITTED, unknown

    def refused(self) -> None:
        """The commit was certainly not made, nor will it be: the files may be used again, or removed."""
        self._state = _State.MADE

    def committed(self) -> None:
        """The commit is made."""
        self._state = _State.COMMITTED

    def __enter__(self) -> Staged:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            return
        if self._state is _State.MADE:
            with suppress(Exception):
                self._remove(self._paths)
        elif self._state is _State.MAYBE_COMMITTED and not isinstance(error, UncertainCommit):
            if not isinstance(error, Exception):  # an interrupt stays one
                error.add_note(f"It is not known whether the commit was made. No file was removed. {self._unknown}")
                return
            raise UncertainCommit(
                f"It is not known whether the commit was made ({first_line(error)}). No file was removed. "
                f"{self._unknown}"
            ) from error
        elif self._state is _State.COMMITTED and not isinstance(error, Exception):
            error.add_note("The commit was made.")
