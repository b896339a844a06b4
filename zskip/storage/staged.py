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

    As a context manager it ends with the change: files that are still *made* then are removed, whether after an error
    or an interrupt, or because the change did not need them. Once the request that may commit them has begun, an entry
    may name them whatever happens, so they stay; what no version names is left to a vacuum, since names of files are
    unique. An error then becomes `UncertainCommit`, with ``unknown``: a sentence that says how to find out; an
    interrupt gets it as a note.

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

    def __init__(self, remove: Callable[[Sequence[str]], object], within: Staged | None = None) -> None:
        """``remove``: removes files by path; its errors are not raised, since the vacuum takes what is left.
        ``within``: other files that are committed together with these, but outlive them if the commit is refused."""
        self._remove, self._paths, self._within = remove, list[str](), within
        self._state, self._unknown = _State.MADE, ""

    def add(self, paths: Iterable[str]) -> None:
        """Files that were made, or whose making has begun."""
        self._paths.extend(paths)

    def maybe_committed(self, unknown: str) -> None:
        """Call this right before the request that may commit the files. ``unknown``: as in the class."""
        self._unknown = unknown
        self._enter(_State.MAYBE_COMMITTED)

    def refused(self) -> None:
        """The commit was certainly not made, nor will it be: the files may be used again, or removed."""
        self._enter(_State.MADE)

    def committed(self) -> None:
        """The commit is made."""
        self._enter(_State.COMMITTED)

    def handed_over(self) -> None:
        """Another process has the paths: it commits the files, or removes them."""
        self._paths.clear()

    @property
    def is_committed(self) -> bool:
        """Whether the commit is made."""
        return self._state is _State.COMMITTED

    def _enter(self, state: _State) -> None:
        self._state = state
        if self._within is not None:
            self._within._unknown = self._unknown
            self._within._enter(state)

    def __enter__(self) -> Staged:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._state is _State.MADE:
            with suppress(Exception):
                self._remove(self._paths)
        elif error is None or self._within is not None:  # those whose files these are part of report the error
            return
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
