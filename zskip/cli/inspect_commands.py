"""Commands that look at data: verify and doctor check it; advise, bench, plot and explore help to choose a layout."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

from zskip.cli.command_options import (
    PREDICATE,
    VERSION,
    Commands,
    add_command,
    given_options,
    names,
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
        "zskip verify lake/conn --predicates 200\nzskip verify lake/conn \"src_ip = '10.47.1.100'\" --all\n\n"
        "It names files that are missing, have another size or cannot be read. It cannot\n"
        "tell that values changed in a file that can be read, and lie within its ranges.",
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
    add_command(
        commands,
        "advise",
        advise,
        "replay a workload against candidate layouts, and rank them",
        "path --workload|--from-duckdb-log|--from-spark-eventlog --log-name --save-workload --files --join --weigh",
        "zskip advise lake/conn --workload queries.sql\n"
        "zskip advise lake/conn --from-duckdb-log duckdb_log --save-workload queries.sql",
        path="a table, or a path or glob of Parquet, CSV or JSON",
        workload="a file of SQL; by default, the table's own log",
        files="the number of files of the layout",
    )
    add_command(
        commands,
        "log",
        log,
        "log what a table is asked, as a workload for advise and tend, or show it",
        "path --start|--stop",
        "zskip log lake/conn --start",
    )
    add_command(
        commands,
        "bench",
        bench,
        "compare queries through zskip with the same queries through a plain scan",
        "path --queries! --runs --spark --before --before-version",
        "zskip bench lake/conn --queries queries.sql",
    )
    add_command(
        commands,
        "plot",
        plot,
        "draw the boxes of the files on two columns, or how many of them overlap",
        "path columns... --depth --where --output",
        "zskip plot lake/conn src_ip dst_ip --where 'src_port = 53' --output boxes.html",
        where="highlight the files that this predicate needs",
        output=".png, .svg, .pdf, .html (boxes.png or depth.png)",
    )
    add_command(
        commands,
        "explore",
        explore,
        "write a page that shows which files a predicate needs, and why",
        "path --where --columns --workload --alternatives --output --open",
        "zskip explore lake/conn --where \"src_ip = '10.47.1.100'\" --output conn.html",
        columns={"type": names, "help": "the columns to draw, six at most by default"},
        workload="a file of SQL: show how much each query reads",
        output={"help": "explore.html", "default": Path("explore.html")},
    )


def advise(given: argparse.Namespace) -> None:
    from zskip import api

    store = given_options(given, "storage_options")
    workload = given.workload
    if workload is None:
        named = given_options(given, "duckdb_log", "spark_event_log", "log_name")
        logged = api.logged_queries(given.path, **named, **store)
        workload = logged.queries
        if given.save_workload is not None:
            logged.save(given.save_workload)
            workload = given.save_workload
        if not given.json:
            out().print(f"{logged}\n")
    elif given.log_name is not None or given.save_workload is not None:
        raise InvalidOption("--log-name and --save-workload are for the queries of a log.")
    with working("replaying the workload against candidate layouts") as report:
        advice = api.advise(
            given.path, workload, progress=report, **given_options(given, "files", "weigh", "joins"), **store
        )
    if given.json:
        print_json(advice)
    else:
        out().print(str(advice))


def log(given: argparse.Namespace) -> None:
    found = opened(given).query_log
    if given.start:
        found.start()
    if given.stop:
        found.stop()
    if given.json:
        print_json({"on": found.is_on, "plans": found.read()})
    else:
        out().print(str(found))


def bench(given: argparse.Namespace) -> None:
    from zskip import api, bench

    table, before = opened(given), None
    if given.before is not None or given.before_version is not None:
        store = given_options(given, "storage_options")
        before = api.open(given.before or given.path, version=given.before_version, **store)
    with working(f"running each query {given.runs} times each way"):
        report = bench.bench(table, statements(given.queries), runs=given.runs, spark=given.spark, before=before)
    if given.json:
        print_json(report)
    else:
        out().print(str(report))


def plot(given: argparse.Namespace) -> None:
    from zskip.plot import save

    chart = opened(given).plot(*given.columns, depth=given.depth, where=given.where)
    target = save(chart, given.output or Path("depth.png" if given.depth else "boxes.png"))
    wrote(target, given)


def explore(given: argparse.Namespace) -> None:
    table = opened(given)
    queries = statements(given.workload) if given.workload else ()
    target = table.explore(
        given.output, where=given.where, columns=given.columns, workload=queries, alternatives=given.alternatives
    )
    wrote(target, given)
    if given.open:
        webbrowser.open(target.resolve().as_uri())


def wrote(target: Path, given: argparse.Namespace) -> None:
    if given.json:
        print_json({"output": target, "bytes": target.stat().st_size})
    else:
        out().print(f"wrote {target}")


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
