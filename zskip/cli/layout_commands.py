"""Commands for choosing a layout: advise, bench, plot, explore."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path

from zskip.cli.command_options import Commands, add_command, given_options, names, opened, statements
from zskip.cli.terminal import out, print_json, working
from zskip.errors import InvalidOption


def add_commands(commands: Commands) -> None:
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
        "log what a table is asked on this machine, as a workload for advise and tend, or show it",
        "path --start|--stop",
        "zskip log lake/conn --start",
    )
    add_command(
        commands,
        "bench",
        bench,
        "compare queries through zskip with the same queries through a plain scan",
        "path --queries! --runs --layouts --spark --before --before-version",
        "zskip bench lake/conn --queries queries.sql",
    )
    add_command(
        commands,
        "plot",
        plot,
        "draw the boxes of the files on two columns, or how many of them overlap",
        "path columns... --depth --where --output",
        "zskip plot lake/conn src_ip dst_ip --where \"src_ip = '10.47.1.100'\" --output boxes.html",
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
        report = bench.bench(
            table, statements(given.queries), runs=given.runs, layouts=given.layouts, spark=given.spark, before=before
        )
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
