"""The command `zskip`: facts on stdout, progress and errors on stderr.

Exit codes: 0 done · 1 the work failed, or found what it looked for (`verify`) · 2 wrong usage · 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from zskip.cli import audit_commands, demo, layout_commands, read_commands, write_commands
from zskip.cli.terminal import as_typed, complain
from zskip.errors import InvalidOption, SqlError, ZskipError

__all__ = ["main"]

# The groups of commands, in the order of the help.
FAMILIES = (demo, write_commands, read_commands, audit_commands, layout_commands)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="zskip",
        description="Data skipping for Parquet: lay files out, index them, and read only what can match.",
        epilog="zskip COMMAND --help says more. Start with: zskip demo",
    )
    top.add_argument("--version", action="version", version=f"zskip {installed_version()}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for family in FAMILIES:
        family.add_commands(commands)
    for command in commands.choices.values():
        command.add_argument("--traceback", action="store_true", help="show where in the code an error came from")
    return top


def installed_version() -> str:
    try:
        return version("zskip")
    except PackageNotFoundError:
        return "(not installed)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = parser().parse_args(arguments)
    try:
        code: int | None = given.run(given)
        sys.stdout.flush()
        return code or 0
    except BrokenPipeError:
        # The reader of stdout is gone; prevent Python from raising again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        complain("interrupted; nothing was committed after this point")
        return 130
    except InvalidOption as error:
        if given.traceback:
            raise
        complain(as_typed(str(error), vars(given)))
        return 2
    except SqlError as error:
        if given.traceback:
            raise
        complain(str(error))  # contains the user's SQL, which `as_typed` must not change
        return 1
    except ZskipError as error:
        if given.traceback:
            raise
        complain(as_typed(str(error), vars(given)))
        return 1
    except OSError as error:
        if given.traceback:
            raise
        complain(str(error) if error.filename is None else f'"{error.filename}": {error.strerror}.')
        return 1
    except Exception as error:
        # Errors of DuckDB have causes outside zskip (invalid SQL, a full disk); any other error is a defect.
        if given.traceback or not type(error).__module__.startswith(("duckdb", "_duckdb")):
            raise
        complain(str(error))
        return 1
