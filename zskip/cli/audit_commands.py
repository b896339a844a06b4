"""Commands that check data: verify (do plans skip only files without a match?) and doctor (are the footers useful?)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from zskip.cli.command_options import (
    PREDICATE,
    VERSION,
    Commands,
    add_command,
    given_options,
    opened,
    predicate_options,
    statements,
)
from zskip.cli.terminal import grid, out, print_facts, print_json, working
from zskip.errors import InvalidOption

if TYPE_CHECKING:
    from zskip.inspect.audit import Diagnosis


def add_commands(commands: Commands) -> None:
    add_command(
        commands,
        "verify",
        verify,
        "read the files that plans skip, and report every row that matches",
        f"path predicate... --queries --predicates --sample --all --engine --seed {PREDICATE} {VERSION}",
        "zskip verify lake/conn --predicates 200\nzskip verify lake/conn \"src_ip = '10.47.1.100'\" --all",
        predicate="predicates to check; random ones from the data if none is given",
        queries="a file of predicates to check",
    )
    add_command(
        commands,
        "doctor",
        doctor,
        "show which bounds the files of a folder have, which are missing, and what to do",
        "path",
        "zskip doctor lake/raw",
        path="a folder or URL that holds Parquet",
    )


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
            engines=given.engines,
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
        report = audit.doctor(given.path, **given_options(given, "storage_options"))
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
