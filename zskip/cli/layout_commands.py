"""Commands for choosing a layout: advise, bench, plot, explore."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path

from zskip.cli.arguments import (
    Commands,
    add_command,
    add_joins,
    add_json,
    add_storage,
    names,
    opened,
    pairs,
    statements,
)
from zskip.cli.terminal import out, print_json, working
from zskip.errors import InvalidOption


def add_commands(commands: Commands) -> None:
    add_workload_commands(commands)
    add_drawing_commands(commands)


def add_workload_commands(commands: Commands) -> None:
    command = add_command(
        commands,
        "advise",
        advise,
        "replay a workload against candidate layouts, and rank them",
        "zskip advise lake/conn --workload queries.sql\n"
        "zskip advise lake/conn --from-duckdb-log duckdb_log --save-workload queries.sql",
    )
    command.add_argument("path", help="a table, or a path or glob of Parquet, CSV or JSON")
    workload = command.add_mutually_exclusive_group(required=True)
    workload.add_argument("--workload", type=Path, metavar="FILE", help="a file of SQL")
    workload.add_argument("--from-duckdb-log", type=Path, metavar="LOG", help="DuckDB's query log: its folder or file")
    workload.add_argument("--from-spark-eventlog", type=Path, metavar="LOG", help="an event log of Spark, or a folder")
    command.add_argument(
        "--log-name", metavar="NAME", help="what the log calls the table, if not by its path or folder"
    )
    command.add_argument(
        "--save-workload", type=Path, metavar="FILE", help="write the log's queries on the table there"
    )
    command.add_argument("--files", type=int, metavar="N", help="the number of files of the layout")
    add_joins(command)
    command.add_argument(
        "--weigh",
        choices=("bytes", "queries"),
        default="bytes",
        help="weigh a query by the bytes of a row that it reads, or all queries equally (bytes)",
    )
    add_storage(command)
    add_json(command)

    command = add_command(
        commands,
        "bench",
        bench,
        "compare queries through zskip with the same queries through a plain scan",
        "zskip bench lake/conn --queries queries.sql",
    )
    command.add_argument("path", help="the folder or URL of the table")
    command.add_argument("--queries", type=Path, required=True, metavar="FILE", help="a file of predicates or SELECTs")
    command.add_argument("--runs", type=int, default=5, metavar="N", help="how often each query runs (5)")
    command.add_argument(
        "--layouts",
        type=names,
        metavar="A,B",
        help="compare layouts, fitted to these queries and scored on a sample of the table",
    )
    command.add_argument("--spark", action="store_true", help="run on Spark as well")
    command.add_argument(
        "--before", metavar="PATH", help="an earlier copy of the table: show each query's gain or loss"
    )
    command.add_argument("--before-version", type=int, metavar="N", help="the same for an older version of the table")
    add_storage(command)
    add_json(command)


def add_drawing_commands(commands: Commands) -> None:
    command = add_command(
        commands,
        "plot",
        plot,
        "draw the boxes of the files on two columns, or how many of them overlap",
        "zskip plot lake/conn src_ip dst_ip --where \"src_ip = '10.47.1.100'\" --output boxes.html",
    )
    command.add_argument("path", help="the folder or URL of the table")
    command.add_argument("columns", nargs="*", metavar="COLUMN", help="the two columns; any number with --depth")
    command.add_argument("--depth", action="store_true", help="draw histograms of the files that a look-up reads")
    command.add_argument("--where", metavar="PREDICATE", help="highlight the files that this predicate needs")
    command.add_argument("--output", type=Path, metavar="FILE", help=".png, .svg, .pdf, .html (boxes.png or depth.png)")
    add_storage(command)
    add_json(command)

    command = add_command(
        commands,
        "explore",
        explore,
        "write a page that shows which files a predicate needs, and why",
        "zskip explore lake/conn --where \"src_ip = '10.47.1.100'\" --output conn.html",
    )
    command.add_argument("path", help="the folder or URL of the table")
    command.add_argument("--where", metavar="PREDICATE", help="the predicate, whose constants the page lets you change")
    command.add_argument("--columns", type=names, metavar="A,B", help="the columns to draw, six at most by default")
    command.add_argument("--workload", type=Path, metavar="FILE", help="a file of SQL: show how much each query reads")
    command.add_argument(
        "--alternatives", action="store_true", help="show how much other layouts would read, by a sample"
    )
    command.add_argument("--output", type=Path, default=Path("explore.html"), metavar="FILE", help="explore.html")
    command.add_argument("--open", action="store_true", help="show the page in the browser")
    add_storage(command)
    add_json(command)


def advise(given: argparse.Namespace) -> None:
    from zskip import api

    options = pairs(given.storage_option)
    workload = given.workload
    if workload is None:
        logged = api.logged_queries(
            given.path,
            duckdb_log=given.from_duckdb_log,
            spark_event_log=given.from_spark_eventlog,
            log_name=given.log_name,
            storage_options=options,
        )
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
            given.path,
            workload,
            files=given.files,
            weigh=given.weigh,
            joins=dict(given.joins or []),
            progress=report,
            storage_options=options,
        )
    if given.json:
        print_json(advice)
    else:
        out().print(str(advice))


def bench(given: argparse.Namespace) -> None:
    from zskip import api, bench

    table, before = opened(given), None
    if given.before is not None or given.before_version is not None:
        options = pairs(given.storage_option)
        before = api.open(given.before or given.path, version=given.before_version, storage_options=options)
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
