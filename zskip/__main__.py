"""The command `zskip`, also `python -m zskip`: Ctrl-C gives exit code 130, during imports and at the end too."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def leave(number: int, frame: FrameType | None) -> None:
    """Exit at once: before and after a command runs, there is nothing to clean up."""
    os._exit(130)


def run() -> int:
    """Run the command in `sys.argv` and return its exit code."""
    interrupts: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        raise KeyboardInterrupt

    # Under `nohup` and `&` another handler is installed, which ignores interrupts.
    default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if default:
        signal.signal(signal.SIGINT, leave)
    from zskip.cli.main import main

    try:
        if default:
            signal.signal(signal.SIGINT, interrupt)
        code = main()
    except BaseException:
        # A library may raise an error of its own for the interrupt: DuckDB's is a RuntimeError.
        if not interrupts:
            raise
        print("zskip: interrupted", file=sys.stderr)
        code = 130
    finally:
        if default:
            signal.signal(signal.SIGINT, leave)
    return 130 if interrupts and code else code


if __name__ == "__main__":
    sys.exit(run())
