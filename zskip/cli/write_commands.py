"""Commands that change a table, from write and append to vacuum and tend."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zskip.cli.command_options import (
    LAYOUT,
    PREDICATE,
    WRITE,
    Commands,
    add_command,
    given_options,
    opened,
    options_of,
)
from zskip.cli.read_commands import summary
from zskip.cli.terminal import out, print_facts, print_json, working
from zskip.errors import InvalidOption, TableExists


def add_commands(commands: Commands) -> None:
    def add(name: str, run: Callable[[argparse.Namespace], None], summary: str, takes: str, **more: Any) -> None:
        add_command(commands, name, run, summary, takes, **more)

    add(
        "write",
        write,
        "lay rows out as a table of Parquet files with an index",
        f"source path {WRITE}",
        examples="zskip write 'logs/*.csv' lake/conn --by ts,src_ip,dst_ip --files 100",
    )
    add(
        "append",
        method("append", "appending to", "source"),
        "add rows to a table, without rewriting existing files",
        "source path --batch",
        examples="zskip append 'logs/2018-03-25*.csv' lake/conn",
    )
    add(
        "overwrite",
        method("overwrite", "overwriting", "source"),
        "replace all rows of a table in one commit",
        "source path --by",
        examples="zskip overwrite 'logs/*.csv' lake/conn --by ts,src_ip",
        by="new clustering columns (default: as before)",
    )
    add(
        "upsert",
        method("upsert", "upserting into", "source"),
        "replace the rows whose keys exist, and insert the others, in one commit",
        "source path --on! --batch",
        examples="zskip upsert changed.parquet lake/orders --on id",
    )
    add(
        "adopt",
        method("adopt", "adopting files in"),
        "append files that other programs put into a table's folder, and remove them",
        "path",
        examples="zskip adopt lake/conn",
    )
    add(
        "index",
        index,
        "index existing Parquet files in place, without rewriting them",
        "path --deep --refresh --repair --go-back",
        examples="zskip index lake/raw",
        path="the folder or URL that holds the Parquet files",
        deep="read the rows of columns without usable footers",
    )
    add(
        "delete",
        method("delete", "deleting from", "predicate"),
        "delete the rows that a predicate matches",
        f"path predicate --dry-run {PREDICATE}",
        examples="zskip delete lake/conn \"ts < TIMESTAMPTZ '2018-03-24 17:20:00+00'\"",
        dry_run="only count the rows and files that would go",
    )
    add(
        "sketch",
        sketch,
        "add sketches of columns for their existing rows, or drop them",
        "path [sketches] --drop",
        examples="zskip sketch lake/conn uid=values,query=substrings\nzskip sketch lake/conn --drop uid",
    )
    add(
        "attach",
        attach,
        "store the index of a Delta or Iceberg table in the table's own folder",
        "path --deep",
        examples="zskip attach lake/delta_table",
        deep="read its files' footers too",
    )
    add(
        "optimize",
        method("optimize", "optimizing"),
        "rewrite only the files whose rewrite pays",
        "path --dry-run --full --max-bytes",
        examples="zskip optimize lake/conn --max-bytes 10GB",
    )
    add(
        "cluster",
        cluster,
        "lay out a folder of Parquet, or a Delta or Iceberg table, in place",
        f"path --where --max-bytes --full --dry-run {LAYOUT}",
        examples="zskip cluster lake/events --by ts,src_ip",
        where={"metavar": "SQL", "help": "lay out only the files that may hold such rows, in DuckDB's SQL"},
    )
    add(
        "restore",
        method("restore", "restoring", "number", reports=False),
        "make an older version the newest, without rewriting files",
        "path number",
        examples="zskip restore lake/conn 3",
    )
    add(
        "vacuum",
        method("vacuum", "looking for orphans in", reports=False),
        "delete files that no retained version needs",
        "path --older-than --dry-run",
        examples="zskip vacuum lake/conn --older-than '14 days' --dry-run",
        dry_run="only list the files",
    )
    add(
        "tend",
        method("tend", "tending"),
        "refresh, sketch, optimize, join and vacuum: what is due, within a budget",
        "path --max-seconds --max-bytes --older-than --dry-run --recluster",
        examples="zskip tend lake/conn --max-seconds 600 --max-bytes 10GB",
        older_than="vacuum keeps younger files (7 days)",
    )


def method(verb: str, doing: str, *arguments: str, reports: bool = True) -> Callable[[argparse.Namespace], None]:
    """The command that calls a method of a table with the options that were given, and shows the receipt.

    ``doing``: the text of the progress bar · ``arguments``: the positional ones · ``reports``: whether it has
    ``progress=``.
    """

    def run(given: argparse.Namespace) -> None:
        options = options_of(given, "storage_options")
        if "source" in arguments:
            table, options["storage_options"] = opened_for(given)
        else:
            table = opened(given)
        with working(f"{doing} {given.path}") as progress:
            options |= {"progress": progress} if reports else {}
            receipt = getattr(table, verb)(*(getattr(given, name) for name in arguments), **options)
        show(receipt, given)

    return run


def opened_for(given: argparse.Namespace) -> tuple[Any, Any]:
    """The table that a source's rows go to, and the storage options of the source: a local end of both needs none."""
    from zskip import api

    if Path(given.path).is_file():
        raise InvalidOption(f"{given.path} is a file, and a table is a folder: it stands last, behind the source.")
    given_to_both = given.storage_options
    table = api.open(given.path, storage_options=api.options_of_end(given.path, given.source, given_to_both, None))
    return table, api.options_of_end(given.source, given.path, given_to_both, None)


def write(given: argparse.Namespace) -> None:
    from zskip import api

    start = time.perf_counter()
    with working(f"writing {given.path}") as progress:
        table = api.write(given.source, given.path, progress=progress, **options_of(given))
    show({**summary(table), "seconds": round(time.perf_counter() - start, 3)}, given)
    if table._index.snapshot.totals.row_groups == 1 and not given.json:
        out().print(
            "The table is one file of one row group, which a query reads as a whole: nothing is gained by an index of "
            "so few rows. --files N or --row-group-rows N makes smaller parts."
        )


def cluster(given: argparse.Namespace) -> None:
    from zskip import api

    with working(f"laying out {given.path}"):
        receipt = api.cluster(given.path, **options_of(given))
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
        table = api.attach(given.path, **options_of(given))
    show(summary(table), given)


def index(given: argparse.Namespace) -> None:
    from zskip import api

    start = time.perf_counter()
    store = given_options(given, "storage_options")
    if given.repair:
        with working(f"repairing the index of {given.path}"):
            show(api.repair(given.path, go_back=given.go_back, **store), given)
        return
    if given.refresh and given.deep:
        raise InvalidOption("--deep is for a new index: leave it out with --refresh.")
    if given.go_back:
        raise InvalidOption("--go-back needs --repair.")
    with working(f"indexing {given.path}") as progress:
        if given.refresh:
            table = api.open(given.path, **store)
            table.refresh(progress)
        else:
            try:
                table = api.index(given.path, deep=given.deep, progress=progress, **store)
            except TableExists as error:
                raise TableExists(
                    f"{given.path} has an index already. Add --refresh to bring it up to date."
                ) from error
    show({**summary(table), "seconds": round(time.perf_counter() - start, 3)}, given)


def show(facts: Any, given: argparse.Namespace) -> None:
    """Print a receipt or facts, as JSON on demand. A receipt of several steps has a text of its own."""
    from zskip.core.receipts import Tended

    if given.json:
        print_json(facts)
    elif isinstance(facts, Tended):
        out().print(str(facts))
    else:
        print_facts(facts)
