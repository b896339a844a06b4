"""The options of all commands in one table, the conversion of what is typed to values, and `add_command`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Commands = Any  # argparse's own type is private


def names(text: str) -> list[str]:
    """Column names, separated by commas.

    >>> names('ts, id.orig_h,"a,b"')
    ['ts', 'id.orig_h', '"a,b"']
    """
    from zskip.core.schema import split_names

    found = split_names(text)
    if not all(found):
        raise argparse.ArgumentTypeError(f"a list of names, separated by commas, is needed, not {text!r}")
    return found


def top_level_names(text: str) -> list[str]:
    """Names of columns as the rows have them, separated by commas; double quotes around a name are not part of it.

    >>> top_level_names('ts,id.orig_h,"a,b"')
    ['ts', 'id.orig_h', 'a,b']
    """
    from zskip.core.schema import split_path

    found = names(text)
    return [".".join(split_path(name)) if re.fullmatch('".+"', name) else name for name in found]


def numbers(text: str) -> list[float]:
    return [float(number) for number in names(text)]


def pair(text: str) -> tuple[str, str]:
    """
    >>> pair("host=10.47.1.100")
    ('host', '10.47.1.100')
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"NAME=VALUE is needed, not {text!r}")
    return name, value


def sketches_named(text: str) -> dict[str, list[str]]:
    """Columns and their kinds of sketches, separated by commas.

    >>> sketches_named("uid=values,url=values,url=substrings")
    {'uid': ['values'], 'url': ['values', 'substrings']}
    """
    from zskip.core.schema import split_names

    found: dict[str, list[str]] = {}
    for column, equals, kind in (one.rpartition("=") for one in split_names(text)):
        if not column or not equals:
            raise argparse.ArgumentTypeError(f"columns and kinds of sketches are needed, as uid=values, not {text!r}")
        found.setdefault(column, []).append(kind)
    return found


def join_named(text: str) -> tuple[str, tuple[str, dict[str, str]]]:
    """A dimension and the keys by which the rows join it.

    >>> join_named("customer=lake/customer:o_custkey=c_custkey")
    ('customer', ('lake/customer', {'o_custkey': 'c_custkey'}))
    """
    name, _, rest = text.partition("=")
    source, _, keys = rest.rpartition(":")
    found = [key.partition("=")[::2] for key in keys.split(",")]
    if not name or not source or not all(one and other for one, other in found):
        raise argparse.ArgumentTypeError(
            f"a dimension and its keys are needed, as customer=lake/customer:o_custkey=c_custkey, not {text!r}"
        )
    return name, (source, dict(found))


def batch(text: str) -> tuple[str, int]:
    """
    >>> batch("loader:7")
    ('loader', 7)
    """
    name, _, number = text.rpartition(":")
    if not name or not number.isdecimal():
        raise argparse.ArgumentTypeError(f'a name and a number are needed, as in "loader:7", not {text!r}')
    return name, int(number)


def statements(path: Path) -> list[str]:
    """The statements or predicates of a file, separated by `;`, or by line breaks if it contains no `;`."""
    from zskip.writer.workload_input import queries_of

    return list(queries_of(path))


class Gather(argparse.Action):
    """Collects the pairs of an option that may be repeated in a dictionary."""

    def __call__(self, parser: Any, given: argparse.Namespace, values: Any, option: str | None = None) -> None:
        name, value = values
        found = getattr(given, self.dest) or {}
        if name in found:
            parser.error(f"{option} gives {name} twice")
        setattr(given, self.dest, {**found, name: value})


def _flag(help: str, **more: Any) -> dict[str, Any]:
    return {"action": "store_true", "help": help, **more}


def _value(
    help: str | None, metavar: str | None = None, type: Callable[[str], Any] = str, **more: Any
) -> dict[str, Any]:
    return {"help": help, "metavar": metavar, "type": type, **more}


def _names(help: str, metavar: str, type: Callable[[str], list[str]]) -> dict[str, Any]:
    """An option whose names are added up if it is repeated: one that replaced the first could change other rows."""
    return _value(help, metavar, type, action="extend")


def _pairs(help: str, metavar: str, dest: str, type: Callable[[str], Any] = pair) -> dict[str, Any]:
    return _value(help, metavar, type, dest=dest, action=Gather)


# What a command may take: names without dashes are arguments. Each is what argparse's `add_argument` needs.
OPTIONS: dict[str, dict[str, Any]] = {
    "path": {"help": "the folder or URL of the table"},
    "source": {"nargs": "+", "help": "paths or globs of Parquet, CSV or JSON"},
    "predicate": {"help": "what stands after WHERE"},
    "shell": {},
    "columns": {"metavar": "COLUMN", "help": "the two columns; any number with --depth"},
    "sketches": {"type": sketches_named, "metavar": "A=values,B=substrings"},
    "number": {"metavar": "version", "type": int, "help": "a version that `zskip history` lists"},
    # rows and columns
    "--by": _names("the columns that queries filter on, the most important first", "A,B", names),
    "--columns": _names("the columns to print", "A,B", top_level_names),
    "--drop": _names("remove all sketches of these columns", "A,B", names),
    "--limit": _value("print at most so many rows", "N", int),
    "--on": _names("the columns that identify a row, with commas", "COLUMNS", names),
    "--where": _value("the predicate, whose constants the page lets you change", "PREDICATE"),
    "--dialect": _value(
        "the SQL of the predicate: duckdb, spark, or another of sqlglot's, as snowflake (duckdb)", default="duckdb"
    ),
    "--timezone": _value("the session's time zone (UTC)", "ZONE", default="UTC"),
    "--param": _pairs("a value for $NAME; may be repeated", "NAME=VALUE", "params"),
    # layout and files
    "--layout": _value("auto, tiles, tree, hilbert, zorder or linear (auto)", default="auto"),
    "--weights": _value("how often queries filter on each column", "X,Y", numbers),
    "--workload": _value("a file of SQL that the layout should serve", "FILE", Path),
    "--join": _pairs(
        "a dimension whose attributes the layout may use, once for each", "NAME=TABLE:KEY=KEY", "joins", join_named
    ),
    "--files": _value("how many files", "N", int),
    "--rows-per-file": _value(None, "N", int),
    "--file-size": _value("such as 128MB", "SIZE"),
    "--partition-by": _names("hive folders, clustered inside each", "A,B", names),
    "--row-group-rows": _value("rows in a row group", "N", int),
    "--compression": _value("zstd, snappy, gzip, lz4, brotli or none (zstd)", "CODEC"),
    "--sketch": _value(
        "columns that are looked up by value or text, and not in the layout",
        "A=values,B=substrings",
        sketches_named,
        dest="sketches",
    ),
    "--memory-limit": _value("such as 2GB (half of the free memory)", "SIZE"),
    "--temp-directory": _value("the folder for rows that do not fit in memory", "FOLDER"),
    "--mode": _value("if the table exists (error)", choices=("error", "append", "overwrite"), default="error"),
    # changes and upkeep
    "--batch": _value(
        "apply this batch if it is after the application's last one, as in loader:7", "NAME:NUMBER", batch
    ),
    "--dry-run": _flag("only report what would be done"),
    "--full": _flag("fit a new layout and rewrite all files"),
    "--max-bytes": _value("rewrite at most this much, such as 10GB", "SIZE"),
    "--max-seconds": _value("begin no step after this many seconds", "N", float),
    "--older-than": _value("keep younger files (7 days)", "TIME", default="7 days"),
    "--recluster": _flag("lay all rows out anew if the queries of the table's log would read much less"),
    "--refresh": _flag("update the index of a folder that has changed"),
    "--repair": _flag("rebuild lost parts of an index from the footers"),
    "--go-back": _flag("with --repair: if the newest log entry is lost, return to the newest readable version"),
    # reading and checking
    "--version": _value("an older version of the table", "N", int),
    "--as-of": _value("the version at a time, such as 2026-03-24T17:15:00Z", "TIME"),
    "--deep": _flag("of a Delta or Iceberg table: read its files' footers too"),
    "--explain": _flag("show what each condition skips, and what it cannot"),
    "--file": _value("explain the verdict on one file", "FILE"),
    "--paths": _flag("print only the remaining files, one per line"),
    "--csv": _flag("print the rows as CSV"),
    "--clustering": _flag("how many files overlap, column by column"),
    "--queries": _value("a file of predicates or SELECTs", "FILE", Path),
    "--predicates": _value("how many random predicates (20)", "N", int, default=20),
    "--sample": _value("skipped files read per predicate (20)", "N", int, default=20),
    "--all": _flag("read every skipped file"),
    "--engine": _value("may be repeated (all)", action="append", choices=("duckdb", "arrow", "spark"), dest="engines"),
    "--seed": _value("the same seed checks the same predicates (0)", type=int, default=0),
    # choosing and drawing a layout
    "--from-duckdb-log": _value("DuckDB's query log: its folder or file", "LOG", Path, dest="duckdb_log"),
    "--from-spark-eventlog": _value("an event log of Spark, or a folder", "LOG", Path, dest="spark_event_log"),
    "--log-name": _value("what the log calls the table, if not by its path or folder", "NAME"),
    "--save-workload": _value("write the log's queries on the table there", "FILE", Path),
    "--start": _flag("log the plans of the table from now on"),
    "--stop": _flag("stop, and remove the log"),
    "--weigh": _value(
        "weigh a query by the bytes of a row that it reads, or all queries equally (bytes)",
        choices=("bytes", "queries"),
        default="bytes",
    ),
    "--runs": _value("how often each query runs (5)", "N", int, default=5),
    "--spark": _flag("run on Spark as well"),
    "--before": _value("an earlier copy of the table: show each query's gain or loss", "PATH"),
    "--before-version": _value("the same for an older version of the table", "N", int),
    "--depth": _flag("draw histograms of the files that a look-up reads"),
    "--output": _value("explore.html", "FILE", Path),
    "--alternatives": _flag("show how much other layouts would read, by a sample"),
    "--open": _flag("show the page in the browser"),
    "--keep": _value("write the table there and leave it", "FOLDER", Path),
    "--samples": _value("only copy the sample data there: zeek.parquet, flights.parquet", "FOLDER", Path),
    "--storage-option": _pairs(
        "an option of the object store, such as region=eu-central-1; may be repeated", "NAME=VALUE", "storage_options"
    ),
    "--json": _flag("print the result as JSON"),
    "--traceback": _flag("show where in the code an error came from"),
}

PREDICATE = "--dialect --timezone --param"
VERSION = "--version --deep --as-of"
LAYOUT = "layout: --by --layout --weights --workload files: --files --rows-per-file --file-size"
WRITE = (
    f"{LAYOUT} form: --join --partition-by --row-group-rows --compression --sketch "
    "work: --memory-limit --temp-directory --mode"
)


class Help(argparse.RawDescriptionHelpFormatter):
    """Help whose usage also breaks within options that exclude each other, which argparse keeps on one line."""

    def _format_usage(self, *given: Any) -> str:
        return "\n".join(map(self._fitted, super()._format_usage(*given).split("\n")))

    def _fitted(self, line: str) -> str:
        if len(line) <= self._width or " | " not in line:
            return line
        start, _, end = line.rpartition(" | ")
        return f"{start} |\n{' ' * (len(line) - len(line.lstrip()) + 1)}{end}"


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int | None],
    summary: str,
    takes: str,
    examples: str = "",
    *,
    common: str = "--storage-option --json --traceback",
    **changed: Mapping[str, Any] | str,
) -> None:
    """Add a command with one line of help.

    ``takes``: names in `OPTIONS`. ``[a]`` may be absent, ``a...`` occur any number of times, ``--a!`` must be given,
    ``--a|--b`` exclude each other; ``word:`` begins a group of the help · ``examples``: printed below the options ·
    ``common``: the options that most commands have · ``changed``: another help text, or other settings, of the options
    by these names.
    """
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=examples or None,
        formatter_class=Help,
    )
    command.set_defaults(run=run, own_parser=command)
    group: Any = command
    for word in takes.split():
        if word.endswith(":"):
            group = command.add_argument_group(word[:-1])
        elif "|" in word:
            alone = group.add_mutually_exclusive_group(required=word.endswith("!"))
            for each in word.removesuffix("!").split("|"):
                _add(alone, each, changed)
        else:
            _add(group, word, changed)
    for word in common.split():
        _add(command, word, {})


def _add(group: Any, word: str, changed: Mapping[str, Mapping[str, Any] | str]) -> None:
    name = word.strip("[].!")
    more = changed.get(name.lstrip("-").replace("-", "_"), {})
    settings = OPTIONS[name] | ({"help": more} if isinstance(more, str) else dict(more))
    if word.startswith("["):
        settings["nargs"] = "?"
    elif word.endswith("..."):
        settings["nargs"] = "*"
    elif word.endswith("!"):
        settings["required"] = True
    group.add_argument(name, **settings)


def given_options(given: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The options of these names that the command has and the user gave, by name."""
    values = {name: getattr(given, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def options_of(given: argparse.Namespace, *without: str) -> dict[str, Any]:
    """All options that the user gave, by the names that the library has for them, but those of the output."""
    names = set(given.own_parser.flags()) - {"help", "json", "traceback", *without}
    return given_options(given, *names)


def predicate_options(given: argparse.Namespace) -> dict[str, Any]:
    return given_options(given, "dialect", "timezone", "params")


def opened(given: argparse.Namespace) -> Any:
    """The table that a command names, at the version that it names."""
    from zskip import api

    return api.open(given.path, **given_options(given, "version", "as_of", "deep", "storage_options"))
