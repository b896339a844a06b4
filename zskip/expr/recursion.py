"""Room for deep nesting: a predicate of a thousand parentheses is a deep tree, and Python's own stack is shallow."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from zskip.errors import SqlSyntaxError

__all__ = ["DEEPEST", "SHALLOW", "TOO_DEEP", "read_with_room", "with_room"]

Result = TypeVar("Result")

SHALLOW = 4
"""Nesting that always fits the caller's own stack: a level of parentheses costs the parser 60 frames and more."""

DEEPEST = 10_000
"""Nesting that is refused where it is seen: compiled code overflows the stack of the system without a word."""

TOO_DEEP = f"This nests too deep to be read: more than {DEEPEST:,} levels, or as many operators in one chain."

_FRAMES_A_LEVEL = 200
_CHARACTERS_A_LEVEL = 2_000  # of SQL that nests more than usual
_STACK_BYTES = 512 * 2**20
_lock = threading.Lock()
_here = threading.local()  # .deep: whether this thread is one with a large stack


def with_room(nesting: int, work: Callable[[], Result]) -> Result:
    """The result of ``work``, on a thread with a large stack where ``nesting`` levels ask for it.

    Work that turns out deeper than ``nesting`` said is done anew, so it must change nothing. Raises what ``work``
    raises; RecursionError above about `DEEPEST` levels.

    The recursion limit belongs to the process: while deep work runs, all threads have the higher one, so that an
    endless recursion in another thread ends later. Deep work of two threads runs one after the other; within deep work
    there is room already.
    """
    if getattr(_here, "deep", False):
        return work()
    if nesting <= SHALLOW:
        try:
            return work()
        except RecursionError:
            nesting = DEEPEST
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        _here.deep = True
        try:
            results.append(work())
        except BaseException as error:  # handed to the caller below, whatever it is
            errors.append(error)

    with _lock:
        # The limit and the stack size belong to the process: one deep predicate at a time.
        limit, stack = sys.getrecursionlimit(), threading.stack_size(_STACK_BYTES)
        try:
            sys.setrecursionlimit(max(limit, min(nesting, DEEPEST) * _FRAMES_A_LEVEL))
            thread = threading.Thread(target=run, name="zskip-deep")
            thread.start()
            thread.join()
        finally:
            sys.setrecursionlimit(limit)
            threading.stack_size(stack)
    if errors:
        raise errors[0]
    return results[0]


def read_with_room(sql: str, work: Callable[[], Result], nesting: int | None = None) -> Result:
    """`with_room` for what reads a text of SQL; ``nesting``: by its length where it is not known.

    Raises what ``work`` raises, and `SqlSyntaxError` where the text nests too deep.
    """
    try:
        return with_room(len(sql) // _CHARACTERS_A_LEVEL if nesting is None else nesting, work)
    except RecursionError as error:
        raise SqlSyntaxError(TOO_DEEP, sql) from error
