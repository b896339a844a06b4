"""Commands that check data: verify (do plans skip only files without a match?) and doctor (are the footers useful?)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from zskip.cli.arguments import (
    Commands,
    add_command,
    add_json,
    add_predicate_options,
    add_storage,
    add_version,
    opened,
    pairs,
    predicate_options,
    statements,
)
from zskip.cli.terminal import grid, out, print_facts, print_json, working
from zskip.errors import InvalidOption

if TYPE_CHECKING:
    from zskip.inspect.audit import Diagnosis


def add_commands(commands: Commands) -> None:
    command = add_command(
        commands,
        "verify",
        verify,
        "read the files that plans skip, and report every row that matches",
        "zskip verify lake/conn --predicates 200\nzskip verify lake/conn \"src_ip = '10.47.1.100'\" --all",
    )
    command.add_argument("path", help="the folder or URL of the table")
    command.add_argument("predicate", nargs="*", help="predicates to check; random ones from the data if none is given")
    command.add_argument("--queries", type=Path, metavar="FILE", help="a file of predicates to check")
    command.add_argument("--predicates", type=int, default=20, metavar="N", help="how many random predicates (20)")
    command.add_argument("--sample", type=int, default=20, metavar="N", help="skipped files read per predicate (20)")
    command.add_argument("--all", action="store_true", help="read every skipped file")
    command.add_argument(
        "--engine", action="append", choices=("duckdb", "arrow", "spark"), help="may be repeated (all)"
    )
    command.add_argument("--seed", type=int, default=0, help="the same seed checks the same predicates (0)")
    add_predicate_options(command)
    add_version(command)
    add_storage(command)
    add_json(command)

    command = add_command(
        commands,
        "doctor",
        doctor,
        "show which bounds the files of a folder have, which are missing, and what to do",
        "zskip doctor lake/raw",
    )
    command.add_argument("path", help="a folder or URL that holds Parquet")
    add_storage(command)
    add_json(command)


def verify(given: argparse.Namespace) -> int:
    if given.predicates < 0:
        raise InvalidOption(f"--predicates is a whole number of at least 0, not {given.predicates}.")
    table = opened(given)
    predicates = list(given.predicate) + (statements(given.queries) if given.queries else [])
    with working(f"reading what plans of {given.path} skip") as progress:
        report = table.verify(
            predicates or None,
            random=given.predicates,
            sample=None if given.all else given.sample,
            engines=given.engine,
            seed=given.seed,
            progress=progress,
            **predicate_options(given),
        )
    if given.json:
        print_json(report)
    else:
        out().print(str(report))
    return 0 if report.clean else 1


def doctor(given: argparse.Namespace) -> None:
    from zskip.inspect import audit

    with working(f"reading the footers of {given.path}"):
        report = audit.doctor(given.path, storage_options=pairs(given.storage_option))
    if given.json:
        print_json(report)
    else:
        print_diagnosis(report)


def print_diagnosis(report: Diagnosis) -> None:
    """Print the contents of the folder, a line for each column of each writer, and what to do."""
    print_facts(
        {
            name: getattr(report, name)
            for name in ("uri", "files", "row_groups", "rows", "bytes", "writers", "unreadable")
        }
    )
    lines = [
        (
            column.column,
            column.type,
            *(f"{share:.0%}" for share in (column.bounded, column.exact, column.null_counts)),
            "–" if column.unread is None else f"{column.unread:.0%}",
        )
        for column in report.columns
    ]
    grid(("column", "type", "bounded", "exact", "null counts", "not read"), lines, left=2)
    for column in report.columns:
        if column.finding:
            of = f" (files by {column.writer})" if len(report.writers) > 1 else ""
            out().print(f"{column.column}{of}: {column.finding}. {column.advice}.")
    for advice in report.advice:
        out().print(advice)
