"""Output: facts as text or JSON on stdout, progress and errors on stderr."""

from __future__ import annotations

import codecs
import dataclasses
import datetime
import decimal
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table as Grid

from zskip.core.option_checks import Progress, size_text, unreported
from zskip.errors import amount

LISTED = 10
NARROWEST, USUAL = 60, 80  # columns


def is_unicode(stream: Any) -> bool:
    """Whether a stream can encode all characters."""
    return codecs.lookup(getattr(stream, "encoding", None) or "utf-8").name.startswith("utf")


class Terminal(Console):
    """A stream to print on, without rich's highlighting and markup; it has at least `NARROWEST` columns."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, **options)
        if self.width < NARROWEST:
            self.width = NARROWEST if self.width else USUAL  # COLUMNS=0 means that the width is unknown

    def on_broken_pipe(self) -> None:
        """Raise `BrokenPipeError`, for which `main` chooses the exit code. Rich itself would exit with 1."""
        raise BrokenPipeError


def out() -> Console:
    """The console on stdout, which does not wrap lines."""
    return Terminal(markup=False, soft_wrap=True)


def complain(message: str) -> None:
    """Print an error on stderr. Line breaks are kept, so carets point at the SQL above them."""
    try:
        Terminal(stderr=True, soft_wrap=True).print(f"zskip: {message}", style="red", markup=False)
    except BrokenPipeError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Discard all further output on a stream without a reader: Python would raise again when it closes the stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def as_typed(message: str, flags: Mapping[str, str]) -> str:
    """A message of the library with its options, ``name=``, replaced by those of the command line.

    >>> as_typed('Say mode="append", or give sketches=.', {"mode": "--mode", "sketches": "--sketch"})
    'Say --mode append, or give --sketch.'
    >>> as_typed("Lay it out by zskip.cluster(path, by=…).", {"files": "--files"})
    'Lay it out by zskip cluster PATH --by ….'
    """

    def option(found: re.Match[str]) -> str:
        value = "" if found[2] in (None, "True") else found[2].strip('"')
        return f"{flags[found[1]]}{' ' if value else ''}{value}"

    def command(found: re.Match[str]) -> str:
        return f"zskip {found[1]} {found[2].upper().replace(', ', ' ')} --by …"

    # Text after a slash, a quote or a bracket comes from the user.
    keyword = rf"(?<![\w./\"'(\[])({'|'.join(flags)})=(?=[\s.,;:\"\dT\[]|$)(\"[^\"]*\"|True|\d+|\[[^\]]*\])?"
    message = re.sub(r"\bzskip\.(?=(?:write|index|cluster)\b(?!\())", "zskip ", re.sub(keyword, option, message))
    return re.sub(r"\bzskip\.(write|cluster)\((\w+(?:, \w+)*), by=…\)", command, message)


@contextmanager
def working(what: str) -> Iterator[Progress]:
    """Show progress and the elapsed time on stderr, if it is a terminal. Yields the callback for progress."""
    console = Terminal(stderr=True)
    if not console.is_terminal:
        yield unreported
        return
    from rich import progress as bars

    # Until a phase is reported, the bar shows no share.
    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), bars.TextColumn("{task.fields[count]}"))
    with bars.Progress(bars.SpinnerColumn(), *columns, bars.TimeElapsedColumn(), console=console) as shown:
        task = shown.add_task(what, total=None, count="")

        def report(phase: str, done: int, total: int | None) -> None:
            count = f"{phase} {done:,}" + ("" if total is None else f" of {total:,}")
            shown.update(task, completed=done, total=total, count=count)

        yield report


def plain(value: object) -> Any:
    """The JSON form of a value that `json` does not support."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "tolist"):  # scalars and arrays of numpy
        return value.tolist()
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, (decimal.Decimal, Path)):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"no JSON form for {type(value).__name__}")


def print_json(facts: object) -> None:
    """Facts as one JSON document on stdout."""
    ascii_only = not is_unicode(sys.stdout)
    json.dump(facts, sys.stdout, default=plain, indent=2, ensure_ascii=ascii_only, allow_nan=False)
    sys.stdout.write("\n")


def grid(titles: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
    """Print a table; the first ``left`` columns are left-aligned, the others right-aligned."""
    table = Grid(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(titles):
        whole = name == "version"  # the ids of Iceberg's snapshots are long, and to be copied
        table.add_column(name, justify="left" if number < left else "right", overflow="fold", no_wrap=whole)
    for row in rows:
        table.add_row(*row)
    Terminal(markup=False).print(table)


def print_facts(facts: Any, indent: str = "") -> None:
    """Print facts one per line, with aligned names. A long list has a line for each of its first members.

    The keys of nested mappings are the user's names, such as columns, and are printed unchanged.
    """
    named = plain(facts) if dataclasses.is_dataclass(facts) else facts
    given = bool(indent) and not dataclasses.is_dataclass(facts)
    width = max((len(name) for name in named), default=0)
    console = out()
    for name, value in named.items():
        label = f"{indent}{name if given else name.replace('_', ' '):<{width}}  "
        if (isinstance(value, Mapping) and value) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
            console.print(label.rstrip())
            print_facts(value, indent + "  ")
        else:
            text = fact_text(name, value)
            if len(label + text) > USUAL:
                text = fact_text(name, value, f"\n{' ' * len(label)}")
            console.print(label + text)


def fact_text(name: str, value: object, between: str = ", ") -> str:
    """The text of one fact. ``between``: the members of a list.

    >>> fact_text("bytes_rewritten", 2048), fact_text("rows", 103089), fact_text("share_skipped", 0.77123)
    ('2.0 KiB', '103,089', '0.771')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value in ([], (), {}, ""):
        return "–"
    if name == "version":
        return str(value)  # the ids of Iceberg's snapshots are long, and to be copied
    if isinstance(value, int):
        return size_text(value) if "bytes" in name or name == "size" else f"{value:,}"
    if isinstance(value, float):
        return f"{value:.3f}"
    if name == "sketches" and isinstance(value, list):
        return between.join(f"{one['column']} ({one['kind']}, {size_text(one['bytes'])})" for one in value) or "–"
    if name == "dimensions" and isinstance(value, list):
        return "; ".join(map(_dimension_text, value))
    if isinstance(value, (list, tuple)):
        more = [f"… {len(value) - LISTED:,} more (--json prints all)"] if len(value) > LISTED else []
        return between.join([*map(str, value[:LISTED]), *more])
    return str(value)


def _dimension_text(dimension: Mapping[str, Any]) -> str:
    stale = dimension["stale_files"]
    if dimension["table"] is None:
        state = "rows without versions: they prune nothing"
    elif stale is None:
        state = f"{dimension['table']}, which cannot be read"
    else:
        state = f"{dimension['table']}, " + (f"stale in {amount(stale, 'file')}" if stale else "current in all files")
    return f"{dimension['name']}: {', '.join(dimension['attributes'])} ({state})"
