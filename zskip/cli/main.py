"""The command `zskip`: facts on stdout, progress and errors on stderr; `EXIT_CODES` lists what it returns."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from zskip.cli import audit_commands, demo, layout_commands, read_commands, write_commands
from zskip.cli.command_options import add_command
from zskip.cli.parser import SHELLS, Parser, completion
from zskip.cli.terminal import as_typed, complain, discard, is_unicode
from zskip.errors import InvalidOption, SqlError, ZskipError

# The groups of commands, in the order of the help.
FAMILIES = (demo, write_commands, read_commands, audit_commands, layout_commands)


EXIT_CODES = """exit codes:
  0    done
  1    a table, column or file is not there, the SQL is wrong, or the work failed; or verify found a defect or bad file
  2    wrong usage: a command, an option, or a value that its option does not take
  130  interrupted"""


def parser() -> Parser:
    """The whole command line."""
    top = Parser(
        prog="zskip",
        description="Data skipping for Parquet: lay files out, index them, and read only what can match.",
        epilog=f"{EXIT_CODES}\n\nzskip COMMAND --help lists the options of a command. Start with: zskip demo",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action=ShowVersion, nargs=0, help="show the installed version and exit")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for family in FAMILIES:
        family.add_commands(commands)
    add_command(
        commands,
        "completion",
        print_completion,
        "print the script that completes zskip's commands and options in a shell",
        "shell",
        'eval "$(zskip completion bash)"    # in ~/.bashrc; zsh: in ~/.zshrc, after compinit\n'
        "zskip completion fish > ~/.config/fish/completions/zskip.fish",
        common="--traceback",
        shell={"choices": SHELLS},
    )
    return top


def print_completion(given: argparse.Namespace) -> None:
    print(completion(parser(), given.shell))


class ShowVersion(argparse.Action):
    """Prints the version, which takes an import that no other command needs."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"zskip {version('zskip')}")
        except PackageNotFoundError:
            print("zskip (not installed)")
        parser.exit()


def prepare_streams() -> None:
    """Make stdout and stderr accept any text.

    Text for a stream that the caller has closed (``>&-``) is discarded, as Python's own print does. Characters that the
    stream's encoding lacks are escaped.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # for the process
        elif isinstance(stream, io.TextIOWrapper) and not is_unicode(stream):
            stream.reconfigure(errors="backslashreplace")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    prepare_streams()
    if not (sys.argv[1:] if arguments is None else arguments):
        parser().print_help()
        return 0
    given, unknown = parser().parse_known_args(arguments)
    given.own_parser.require_all_known(unknown)
    try:
        code: int | None = given.run(given)
        sys.stdout.flush()
        return code or 0
    except BrokenPipeError:
        discard(sys.stdout)
        return 0
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
    except InvalidOption as error:
        if given.traceback:
            raise
        complain(as_typed(str(error), given.own_parser.flags()))
        return 2
    except SqlError as error:
        if given.traceback:
            raise
        complain(str(error))  # contains the user's SQL, which `as_typed` must not change
        return 1
    except ZskipError as error:
        if given.traceback:
            raise
        complain(as_typed(str(error), given.own_parser.flags()))
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
