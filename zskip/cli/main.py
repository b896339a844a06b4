"""The command `zskip`: facts on stdout, progress and errors on stderr; `EXIT_CODES` lists what it returns."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from zskip.cli import demo, inspect_commands, read_commands, write_commands
from zskip.cli.command_options import add_command
from zskip.cli.terminal import as_typed, complain, discard, is_unicode
from zskip.errors import InvalidOption, SqlError, ZskipError, nearest

# The groups of commands, in the order of the help.
FAMILIES = (demo, write_commands, read_commands, inspect_commands)


EXIT_CODES = """exit codes:
  0    done
  1    a table, column or file is not there, the SQL is wrong, or the work
       failed; or verify found a defect or bad file
  2    wrong usage: a command, an option, or a value that the option refuses
  130  interrupted"""


def parser() -> Parser:
    """The whole command line."""
    top = Parser(
        prog="zskip",
        description="Data skipping for Parquet: lay files out, index them, read only what may match.",
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
        'eval "$(zskip completion bash)"  # in ~/.bashrc; zsh: ~/.zshrc, after compinit\n'
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


# The parser: argparse, with hints for mistyped names and completion for shells.

SHELLS = ("bash", "zsh", "fish")

# Marks the arguments after `--`: Python 3.11's argparse loses `--` between its passes. No typed argument contains it.
_VERBATIM = "\0"


# The library's functions that are no commands of their own, with the commands that do their work.
_ELSEWHERE = {
    "sql": ' "zskip query" answers whole statements.',
    "repair": ' "zskip index --repair" rebuilds the lost parts of an index.',
    "refresh": ' "zskip index --refresh" takes up what changed in a folder.',
}


class Parser(argparse.ArgumentParser):
    """A parser whose errors name the nearest command, option or choice; options may stand between arguments."""

    _interleaving = False  # argparse calls `parse_known_args` again: for the options, then for the arguments

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Argparse's own check, which lists all choices."""
        if action.choices is not None and value not in action.choices:
            if action.metavar == "COMMAND" and value in _ELSEWHERE:
                hint = _ELSEWHERE[value]
            else:
                hint = nearest(str(value), action.choices)
            raise argparse.ArgumentError(action, f'there is no "{value}".{hint}')

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, but report an unknown option before a missing argument.

        The options of a command may precede its arguments: ``query t --limit 2 "a = 3"``.
        """
        if self._subparsers is not None or self._interleaving:
            return super().parse_known_args(args, namespace)
        typed = list(args or ())
        end = typed.index("--") if "--" in typed else len(typed)
        for token in typed[:end]:
            name = token.partition("=")[0]
            # As in argparse, text with a space is an argument, and options may be shortened.
            if token.startswith("--") and " " not in name and not self._options_from(name):
                self.require_all_known([name])
        self._interleaving = True
        try:
            return self.parse_known_intermixed_args(
                [*typed[:end], *(_VERBATIM + one for one in typed[end + 1 :])], namespace
            )
        finally:
            self._interleaving = False

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Convert an argument as argparse does, also after `--`. The error does not name a Python type."""
        text = arg_string.removeprefix(_VERBATIM)
        if action.type not in (int, float):
            return super()._get_value(action, text)
        try:
            return action.type(text)
        except ValueError:
            what = "a whole number" if action.type is int else "a number"
            raise argparse.ArgumentError(action, f'"{text}" is not {what}.') from None

    def flags(self) -> dict[str, str]:
        """The options, by the names that the library gives them: ``{"sketches": "--sketch", …}``."""
        return {action.dest: action.option_strings[-1] for action in self._actions if action.option_strings}

    def _options_from(self, start: str) -> list[str]:
        return [option for option in self._option_string_actions if option.startswith(start)]

    def require_all_known(self, unknown: Sequence[str]) -> None:
        """Exit with code 2 if there are arguments that the command does not accept."""
        if not unknown:
            return
        name = unknown[0].removeprefix(_VERBATIM)
        if not unknown[0].startswith("-"):
            self.error(f'"{name}" is one argument too many. Quote a predicate that has spaces.')
        first = unknown[0].partition("=")[0]
        if first == "--where" and any(action.dest == "predicate" for action in self._actions):
            self.error('there is no option "--where": the predicate stands behind the path, in quotes.')
        if first == "--by":
            self.error('there is no option "--by" here: zskip cluster lays a table out by other columns.')
        longer = " or ".join(self._options_from(f"-{first}"))  # of -o, which none has
        hint = f" Did you mean {longer}?" if longer else nearest(first, self._option_string_actions, listed=True)
        self.error(f'there is no option "{first}".{hint}')


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script that completes commands, options and paths in a shell.

    Raises `InvalidOption` for a shell other than `SHELLS`.
    """
    import shtab

    from zskip.layouts import LAYOUTS
    from zskip.writer.options import CODECS

    # The library checks these, so that its errors and those of the command line are the same.
    known = {"layout": LAYOUTS, "compression": CODECS}
    for command, action in _arguments(parser):
        action.choices = action.choices or known.get(action.dest)
        if action.dest == "path" and command != "query":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]  # read by shtab
        elif action.type is Path or action.dest in ("path", "source", "temp_directory"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    script: str = shtab.complete(parser, shell)
    return script


def _arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """Each argument of each command."""
    for commands in parser._actions:
        if isinstance(commands, argparse._SubParsersAction):
            for name, command in commands.choices.items():
                yield from ((name, action) for action in command._actions)
