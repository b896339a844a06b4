"""Commands that change a table, from write and append to vacuum and tend."""

from __future__ import annotations

import argparse
import time
from typing import Any

from zskip.cli.arguments import (
    Commands,
    add_command,
    add_json,
    add_layout_options,
    add_predicate_options,
    add_storage,
    add_write_options,
    names,
    opened,
    pairs,
    predicate_options,
    sketches_named,
    summary,
    write_options,
)
from zskip.cli.terminal import out, print_facts, print_json, working
from zskip.errors import InvalidOption, TableExists


def add_commands(commands: Commands) -> None:
    add_row_commands(commands)
    add_upkeep_commands(commands)


def add_row_commands(commands: Commands) -> None:
    command = add_command(
        commands,
        "write",
        write,
        "lay rows out as a table of Parquet files with an index",
        "zskip write 'logs/*.csv' lake/conn --by ts,src_ip,dst_ip --files 100",
    )
    command.add_argument("source", nargs="+", help="paths or globs of Parquet, CSV or JSON")
    command.add_argument("path", help="the folder or URL of the table")
    add_write_options(command)
    add_rest(command)

    command = add_command(commands, "append", append, "add rows to a table, without rewriting existing files")
    command.add_argument("source", nargs="+", help="paths or globs of Parquet, CSV or JSON")
    command.add_argument("path", help="the folder or URL of the table")
    add_batch(command)
    add_rest(command)

    command = add_command(commands, "overwrite", overwrite, "replace all rows of a table in one commit")
    command.add_argument("source", nargs="+", help="paths or globs of Parquet, CSV or JSON")
    command.add_argument("path", help="the folder or URL of the table")
    command.add_argument("--by", type=names, metavar="A,B", help="new clustering columns (default: as before)")
    add_rest(command)

    command = add_command(
        commands,
        "upsert",
        upsert,
        "replace the rows whose keys exist, and insert the others, in one commit",
        "zskip upsert changed.parquet lake/orders --on id",
    )
    command.add_argument("source", nargs="+", help="paths or globs of Parquet, CSV or JSON")
    command.add_argument("path", help="the folder or URL of the table")
    command.add_argument("--on", required=True, metavar="COLUMNS", help="the columns that identify a row, with commas")
    add_batch(command)
    add_rest(command)

    command = add_command(
        commands, "adopt", adopt, "append files that other programs put into a table's folder, and remove them"
    )
    command.add_argument("path", help="the folder or URL of the table")
    add_rest(command)

    command = add_command(
        commands,
        "index",
        index,
        "index existing Parquet files in place, without rewriting them",
        "zskip index lake/raw",
    )
    command.add_argument("path", help="the folder or URL that holds the Parquet files")
    command.add_argument("--deep", action="store_true", help="read the rows of columns without usable footers")
    command.add_argument("--refresh", action="store_true", help="update the index of a folder that has changed")
    command.add_argument("--repair", action="store_true", help="rebuild lost parts of an index from the footers")
    command.add_argument(
        "--go-back",
        action="store_true",
        help="with --repair: if the newest log entry is lost, return to the newest readable version",
    )
    add_rest(command)

    command = add_command(
        commands,
        "delete",
        delete,
        "delete the rows that a predicate matches",
        "zskip delete lake/conn \"ts < TIMESTAMPTZ '2018-03-24 17:20:00+00'\"",
    )
    command.add_argument("path", help="the folder or URL of the table")
    command.add_argument("predicate", help="what stands after WHERE")
    command.add_argument("--dry-run", action="store_true", help="only count the rows and files that would go")
    add_predicate_options(command)
    add_rest(command)


def add_upkeep_commands(commands: Commands) -> None:
    command = add_command(
        commands,
        "sketch",
        sketch,
        "add sketches of columns for their existing rows, or drop them",
        "zskip sketch lake/conn uid=values,query=substrings\nzskip sketch lake/conn --drop uid",
    )
    command.add_argument("path", help="the folder or URL of the table")
    command.add_argument("sketches", nargs="?", type=sketches_named, metavar="A=values,B=substrings")
    command.add_argument("--drop", type=names, metavar="A,B", help="remove all sketches of these columns")
    add_rest(command)

    command = add_command(
        commands, "attach", attach, "store the index of a Delta or Iceberg table in the table's own folder"
    )
    command.add_argument("path", help="the folder or URL of the table")
    command.add_argument("--deep", action="store_true", help="read its files' footers too")
    add_rest(command)

    command = add_command(commands, "optimize", optimize, "rewrite only the files whose rewrite pays")
    command.add_argument("path", help="the folder or URL of the table")
    command.add_argument("--dry-run", action="store_true", help="only report what would be done")
    command.add_argument("--full", action="store_true", help="fit a new layout and rewrite all files")
    command.add_argument("--max-bytes", metavar="SIZE", help="rewrite at most this much, such as 10GB")
    add_rest(command)

    command = add_command(
        commands,
        "cluster",
        cluster,
        "lay out a folder of Parquet, or a Delta or Iceberg table, in place",
        "zskip cluster lake/events --by ts,src_ip",
    )
    command.add_argument("path", help="the folder or URL of the table")
    add_layout_options(command)
    command.add_argument("--where", metavar="SQL", help="lay out only the files that may hold such rows")
    command.add_argument("--max-bytes", metavar="SIZE", help="rewrite at most this much, such as 10GB")
    command.add_argument("--full", action="store_true", help="fit a new layout and rewrite all files")
    command.add_argument("--dry-run", action="store_true", help="only report what would be done")
    add_rest(command)

    command = add_command(commands, "restore", restore, "make an older version the newest, without rewriting files")
    command.add_argument("path", help="the folder or URL of the table")
    command.add_argument("version", type=int, help="a version that `zskip history` lists")
    add_rest(command)

    command = add_command(commands, "vacuum", vacuum, "delete files that no retained version needs")
    command.add_argument("path", help="the folder or URL of the table")
    command.add_argument("--older-than", default="7 days", metavar="TIME", help="keep younger files (7 days)")
    command.add_argument("--dry-run", action="store_true", help="only list the files")
    add_rest(command)

    command = add_command(
        commands,
        "tend",
        tend,
        "run the maintenance that is due within a budget: refresh, sketches, optimize, joins, vacuum",
        "zskip tend lake/conn --max-seconds 600 --max-bytes 10GB",
    )
    command.add_argument("path", help="the folder or URL of the table")
    command.add_argument("--max-seconds", type=float, metavar="N", help="begin no step after this many seconds")
    command.add_argument("--max-bytes", metavar="SIZE", help="rewrite at most this much, such as 10GB")
    command.add_argument("--older-than", default="7 days", metavar="TIME", help="vacuum keeps younger files (7 days)")
    command.add_argument("--dry-run", action="store_true", help="only report what would be done")
    add_rest(command)


def add_batch(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--batch", type=batch, metavar="NAME:NUMBER", help="apply this batch of an application once, as in loader:7"
    )


def batch(text: str) -> tuple[str, int]:
    """
    >>> batch("loader:7")
    ('loader', 7)
    """
    name, _, number = text.rpartition(":")
    if not name or not number.isdecimal():
        raise argparse.ArgumentTypeError(f'a name and a number are needed, as in "loader:7", not {text!r}')
    return name, int(number)


def add_rest(command: argparse.ArgumentParser) -> None:
    add_storage(command)
    add_json(command)


def write(given: argparse.Namespace) -> None:
    from zskip import api

    start = time.perf_counter()
    with working(f"writing {given.path}") as progress:
        table = api.write(
            given.source,
            given.path,
            progress=progress,
            storage_options=pairs(given.storage_option),
            **write_options(given),
        )
    show({**summary(table), "seconds": round(time.perf_counter() - start, 3)}, given)
    if table.snapshot.totals.row_groups == 1 and not given.json:
        out().print(
            "The table is one file of one row group, which a query reads as a whole: nothing is gained by an index of "
            "so few rows. --files N or --row-group-rows N makes smaller parts."
        )


def append(given: argparse.Namespace) -> None:
    table = opened(given)
    with working(f"appending to {given.path}") as progress:
        receipt = table.append(given.source, batch=given.batch, progress=progress)
    show(receipt, given)


def upsert(given: argparse.Namespace) -> None:
    table = opened(given)
    with working(f"upserting into {given.path}") as progress:
        receipt = table.upsert(given.source, on=given.on.split(","), batch=given.batch, progress=progress)
    show(receipt, given)


def overwrite(given: argparse.Namespace) -> None:
    table = opened(given)
    with working(f"overwriting {given.path}") as progress:
        receipt = table.overwrite(given.source, by=given.by, progress=progress)
    show(receipt, given)


def sketch(given: argparse.Namespace) -> None:
    if (given.sketches is None) == (given.drop is None):
        raise InvalidOption("Give either columns with their kinds of sketches, as uid=values, or --drop.")
    table = opened(given)
    with working(f"sketching columns of {given.path}") as progress:
        if given.drop is not None:
            receipt = table.drop_sketches(given.drop)
        else:
            receipt = table.add_sketches(given.sketches, progress=progress)
    show(receipt, given)


def attach(given: argparse.Namespace) -> None:
    from zskip import api

    with working(f"reading the log of {given.path}"):
        table = api.attach(given.path, deep=given.deep, storage_options=pairs(given.storage_option))
    show(summary(table), given)


def adopt(given: argparse.Namespace) -> None:
    table = opened(given)
    with working(f"adopting files in {given.path}") as progress:
        receipt = table.adopt(progress=progress)
    show(receipt, given)


def index(given: argparse.Namespace) -> None:
    from zskip import api

    start = time.perf_counter()
    if given.repair:
        with working(f"repairing the index of {given.path}"):
            show(api.repair(given.path, go_back=given.go_back, storage_options=pairs(given.storage_option)), given)
        return
    if given.refresh and given.deep:
        raise InvalidOption("--deep is for a new index: leave it out with --refresh.")
    if given.go_back:
        raise InvalidOption("--go-back needs --repair.")
    with working(f"indexing {given.path}") as progress:
        options = pairs(given.storage_option)
        if given.refresh:
            table = api.open(given.path, storage_options=options)
            table.refresh(progress)
        else:
            try:
                table = api.index(given.path, deep=given.deep, progress=progress, storage_options=options)
            except TableExists as error:
                raise TableExists(
                    f"{given.path} has an index already. Add --refresh to bring it up to date."
                ) from error
    show({**summary(table), "seconds": round(time.perf_counter() - start, 3)}, given)


def delete(given: argparse.Namespace) -> None:
    table = opened(given)
    with working(f"deleting from {given.path}") as progress:
        receipt = table.delete(given.predicate, dry_run=given.dry_run, progress=progress, **predicate_options(given))
    show(receipt, given)


def optimize(given: argparse.Namespace) -> None:
    table = opened(given)
    with working(f"optimizing {given.path}") as progress:
        receipt = table.optimize(dry_run=given.dry_run, full=given.full, max_bytes=given.max_bytes, progress=progress)
    show(receipt, given)


def cluster(given: argparse.Namespace) -> None:
    from zskip import api

    with working(f"laying out {given.path}"):
        receipt = api.cluster(
            given.path,
            **write_options(given),
            where=given.where,
            max_bytes=given.max_bytes,
            full=given.full,
            dry_run=given.dry_run,
            storage_options=pairs(given.storage_option),
        )
    show(receipt, given)


def restore(given: argparse.Namespace) -> None:
    version = given.version
    given.version = None
    show(opened(given).restore(version), given)


def vacuum(given: argparse.Namespace) -> None:
    table = opened(given)
    with working(f"looking for orphans in {given.path}"):
        receipt = table.vacuum(older_than=given.older_than, dry_run=given.dry_run)
    show(receipt, given)


def tend(given: argparse.Namespace) -> None:
    table = opened(given)
    with working(f"tending {given.path}") as report:
        receipt = table.tend(
            progress=report,
            max_seconds=given.max_seconds,
            max_bytes=given.max_bytes,
            older_than=given.older_than,
            dry_run=given.dry_run,
        )
    if given.json:
        print_json(receipt)
    else:
        out().print(str(receipt))


def show(facts: Any, given: argparse.Namespace) -> None:
    if given.json:
        print_json(facts)
    else:
        print_facts(facts)
