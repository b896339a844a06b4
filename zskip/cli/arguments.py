"""Arguments that several commands share, and their conversion to values."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

Commands = Any  # argparse's own type is private

STORAGE_HELP = "an option of the object store, such as region=eu-central-1; may be repeated"


def add_command(
    commands: Commands, name: str, run: Callable[[argparse.Namespace], int | None], summary: str, examples: str = ""
) -> argparse.ArgumentParser:
    """Add a command with one line of help. ``examples``: printed below its options."""
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=examples or None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run)
    return command


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


def pairs(given: list[tuple[str, str]] | None) -> dict[str, str] | None:
    return dict(given) if given else None


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


def add_joins(command: argparse._ActionsContainer) -> None:
    command.add_argument(
        "--join",
        dest="joins",
        type=join_named,
        action="append",
        metavar="NAME=TABLE:KEY=KEY",
        help="a dimension whose attributes the layout may use, once for each",
    )


def statements(path: Path) -> list[str]:
    """The statements or predicates of a file, separated by `;`, or by line breaks if it contains no `;`."""
    from zskip.writer.workload_input import queries_of

    return list(queries_of(path))


def add_json(command: argparse._ActionsContainer) -> None:
    command.add_argument("--json", action="store_true", help="print the facts as JSON")


def add_storage(command: argparse.ArgumentParser) -> None:
    command.add_argument("--storage-option", action="append", type=pair, metavar="NAME=VALUE", help=STORAGE_HELP)


def add_version(command: argparse.ArgumentParser) -> None:
    command.add_argument("--version", type=int, metavar="N", help="an older version of the table")
    command.add_argument("--deep", action="store_true", help="of a Delta or Iceberg table: read its files' footers too")
    command.add_argument("--as-of", metavar="TIME", help="the version at a time, such as 2026-03-24T17:15:00Z")


def add_predicate_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--dialect", default="duckdb", help="the SQL dialect of the predicate (duckdb)")
    command.add_argument("--timezone", default="UTC", metavar="ZONE", help="the session's time zone (UTC)")
    command.add_argument(
        "--param", action="append", type=pair, metavar="NAME=VALUE", help="a value for $NAME; may be repeated"
    )


def add_layout_options(command: argparse.ArgumentParser) -> None:
    layout = command.add_argument_group("layout")
    layout.add_argument(
        "--by", type=names, metavar="A,B", help="the columns that queries filter on, the most important first"
    )
    layout.add_argument("--layout", default="auto", help="auto, tiles, tree, hilbert, zorder or linear (auto)")
    layout.add_argument("--weights", type=numbers, metavar="X,Y", help="how often queries filter on each column")
    layout.add_argument("--workload", type=Path, metavar="FILE", help="a file of SQL that the layout should serve")
    files = command.add_argument_group("files")
    files.add_argument("--files", type=int, metavar="N", help="how many files")
    files.add_argument("--rows-per-file", type=int, metavar="N")
    files.add_argument("--file-size", metavar="SIZE", help="such as 128MB")


def add_write_options(command: argparse.ArgumentParser) -> None:
    add_layout_options(command)
    add_joins(command)
    files = command.add_argument_group("form")
    files.add_argument("--partition-by", type=names, metavar="A,B", help="hive folders, clustered inside each")
    files.add_argument("--row-group-rows", type=int, metavar="N", help="rows in a row group")
    files.add_argument("--compression", metavar="CODEC", help="zstd, snappy, gzip, lz4, brotli or none (zstd)")
    files.add_argument(
        "--sketch",
        dest="sketches",
        type=sketches_named,
        metavar="A=values,B=substrings",
        help="columns that are looked up by value or text, and not in the layout",
    )
    work = command.add_argument_group("work")
    work.add_argument("--memory-limit", metavar="SIZE", help="such as 2GB (half of the free memory)")
    work.add_argument("--temp-directory", metavar="FOLDER", help="the folder for rows that do not fit in memory")
    work.add_argument(
        "--mode", choices=("error", "append", "overwrite"), default="error", help="if the table exists (error)"
    )


def write_options(given: argparse.Namespace) -> dict[str, Any]:
    """The options of the layout and the files that the user gave."""
    options = {
        name: getattr(given, name, None)
        for name in (
            "by",
            "layout",
            "weights",
            "partition_by",
            "sketches",
            "files",
            "rows_per_file",
            "file_size",
            "row_group_rows",
            "compression",
            "memory_limit",
            "temp_directory",
            "mode",
        )
    }
    if given.workload is not None:
        options["workload"] = statements(given.workload)
    if getattr(given, "joins", None):
        options["joins"] = dict(given.joins)
    return {name: value for name, value in options.items() if value is not None}


def predicate_options(given: argparse.Namespace) -> dict[str, Any]:
    options: dict[str, Any] = {"dialect": given.dialect, "timezone": given.timezone}
    if given.param:
        options["params"] = dict(given.param)
    return options


def opened(given: argparse.Namespace) -> Any:
    """The table that a command names, at the version that it names."""
    from zskip import api

    return api.open(
        given.path,
        version=getattr(given, "version", None),
        as_of=getattr(given, "as_of", None),
        deep=getattr(given, "deep", False),
        storage_options=pairs(given.storage_option),
    )


def summary(table: Any) -> dict[str, Any]:
    """Facts about a table."""
    snapshot = table.snapshot
    layout = snapshot.layout
    return {
        "uri": table.uri,
        "version": table.version,
        "files": snapshot.totals.files,
        "row_groups": snapshot.totals.row_groups,
        "rows": snapshot.totals.rows,
        "bytes": snapshot.totals.bytes,
        "layout": layout.name if layout else None,
        "by": list(layout.columns) if layout else [],
        "partition_by": list(snapshot.partition_by),
        "managed": snapshot.managed,
        **dropped(table),
        **dimensions(table),
        "sketches": [
            {
                "column": sketch.name.column,
                "kind": sketch.name.kind,
                "bytes": sketch.bytes,
                "segments": len(sketch.segments),
                "entries": sum(segment.entries for segment in sketch.segments),
            }
            for sketch in snapshot.sketches
        ],
        "columns": {field.name: str(field.type) for field in table.schema},
    }


def dimensions(table: Any) -> dict[str, list[dict[str, Any]]]:
    """The dimensions whose attributes the index has, if there are any."""
    if not table.snapshot.dimensions:
        return {}
    from zskip.tablelog import Index
    from zskip.writer.refresh_joins import stale_files
    from zskip.writer.star import newest_version

    index, found = Index(table.storage, table.snapshot), []
    for each in table.snapshot.dimensions:
        version = newest_version(each)
        found.append(
            {
                "name": each.name,
                "table": each.uri or None,
                "keys": dict(each.keys),
                "attributes": each.attributes.names,
                "stale_files": None if version is None else len(stale_files(index, {each: version})),
            }
        )
    return {"dimensions": found}


def dropped(table: Any) -> dict[str, str]:
    """A fact about files that other programs put into the table's folder, if there are any."""
    from zskip import tablelog

    if table.snapshot.details.get("source") in tablelog.SOURCE_FORMATS:
        return {}
    found = len(tablelog.dropped_files(table.storage, table.snapshot))
    return {"not_in_the_table": tablelog.dropped_text(found)} if found else {}
