"""The process that the failing disk is preloaded into: for each line on stdin it forks a child that does as it says.

It has imported everything and started no thread, so that a child is ready within milliseconds.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import tests.torture.preloaded  # noqa: F401  # what steps import lazily is at hand
from tests.torture.disk import FAULTS, arm, disarm
from tests.torture.lives import STEPS

PATIENCE_SECONDS = 60


def take(step: str, folder: str, fault: str, at: int) -> dict[str, Any]:
    """Fork a child that takes one step. How many calls counted, and the error that it ended with, or the signal."""

    def child(answer: int) -> None:
        place = Path(folder)
        arm(place.parent, FAULTS[fault], at)
        try:
            STEPS[step].act(place)
            reply: dict[str, Any] = {"calls": disarm()}
        except Exception as error:
            reply = {"calls": disarm(), "error": f"{type(error).__name__}: {error}"}
        os.write(answer, json.dumps(reply).encode())

    reply, killed = _forked(child)
    return json.loads(reply) if reply else {"killed": killed}


def _forked(run: Callable[[int], None]) -> tuple[bytes, int]:
    """What a child wrote before it ended, and the signal that ended it."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _run(run, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        reply = answers.read()
    _, status = os.waitpid(child, 0)
    return reply, os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def _run(run: Callable[[int], None], answer: int) -> NoReturn:
    signal.alarm(PATIENCE_SECONDS)
    try:
        run(answer)
    finally:
        os._exit(0)


def serve() -> None:
    """Answer each line, which holds the arguments of `take`, with one of JSON."""
    for line in sys.stdin:
        print(json.dumps(take(*json.loads(line))), flush=True)


if __name__ == "__main__":
    serve()
