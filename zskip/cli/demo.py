"""`zskip demo`: lay out real network logs and run look-ups, each compared with the same query over all files.

It compares what is read and not the time, which opening files decides in a table of a few megabytes.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from zskip.cli.command_options import Commands, add_command
from zskip.cli.terminal import grid, out, print_json, working
from zskip.core.option_checks import size_text
from zskip.errors import InvalidOption, nearest

if TYPE_CHECKING:
    import duckdb

    from zskip.layouts.depth import ColumnDepth
    from zskip.plan.survivors import Share


BY = ["ts", "id.orig_h", "id.resp_h", "id.resp_p"]

# Typical look-ups in network logs: by host, by server, by time, and by a column that is not clustered.
LOOKUPS = (
    ("one host", "\"id.orig_h\" = '10.47.1.100'"),
    ("a host and its server", "\"id.orig_h\" = '10.47.1.100' AND \"id.resp_h\" = '134.71.3.16'"),
    ("a server's service", "\"id.resp_h\" = '10.47.1.208' AND \"id.resp_p\" = 995"),
    ("ten seconds", "ts >= TIMESTAMPTZ '2018-03-24 17:25:00+00' AND ts < TIMESTAMPTZ '2018-03-24 17:25:10+00'"),
    ("three hosts, one minute", "\"id.orig_h\" IN ('10.47.1.153', '10.47.2.155', '10.47.5.155') "
     "AND date_trunc('minute', ts) = TIMESTAMPTZ '2018-03-24 17:30:00+00'"),
    ("rare ports", "\"id.resp_p\" BETWEEN 8000 AND 9000"),
    ("not clustered: qtype_name", "qtype_name = 'AXFR'"),
    ("a host never seen", "\"id.orig_h\" = '10.99.0.1'"),
)  # fmt: skip


def add_commands(commands: Commands) -> None:
    add_command(
        commands,
        "demo",
        run,
        "lay out real network logs and look things up in them",
        "--files --layout --keep --samples",
        "zskip demo\nzskip demo --files 50 --keep lake/demo",
        common="--json --traceback",
        files={"default": 100, "help": "how many files to make (100)"},
    )


def look_up(
    table: Any, folder: Path, connection: duckdb.DuckDBPyConnection, name: str, predicate: str
) -> dict[str, Any]:
    """One look-up through zskip and over the glob: the skipped shares, and whether the rows are equal."""
    columns = [str(name) for name in table.schema.names]
    plan = table.plan(predicate)
    ours = plan.to_duckdb(connection).to_arrow_table()
    full = connection.sql(f"FROM read_parquet('{folder}/**/*.parquet') WHERE {predicate}").to_arrow_table()
    equal = sorted_rows(connection, ours, columns).equals(sorted_rows(connection, full, columns))
    return {
        "name": name,
        "predicate": predicate,
        "rows": ours.num_rows,
        "equal": equal,
        "skipped": plan.skipped,
    }


def sorted_rows(connection: duckdb.DuckDBPyConnection, rows: Any, columns: list[str]) -> Any:
    """Rows in sorted order and one chunk, so that two results can be compared."""
    ordered = connection.from_arrow(rows.select(columns)).order("ALL")
    return ordered.to_arrow_table().combine_chunks()


def copy_samples(folder: Path) -> list[Path]:
    """Create a folder and copy the sample data into it."""
    folder.mkdir(parents=True, exist_ok=True)
    return [Path(shutil.copy(demo_data(name), folder)) for name in get_args(Sample)]


def run(given: argparse.Namespace) -> int:
    """Write the table and run the look-ups. Returns 1 if a result differs from the full scan's."""
    if given.samples is not None:
        copied = copy_samples(given.samples)
        print_json(copied) if given.json else out().print("\n".join(map(str, copied)))
        return 0
    import duckdb

    from zskip import api

    source = demo_data()
    with contextlib.ExitStack() as stack:
        folder = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zskip-demo-")))
        start = time.perf_counter()
        with working(f"laying out {Path(source).name} as {given.files} files by {', '.join(BY)}"):
            table = api.write(str(source), str(folder / "zeek"), by=BY, layout=given.layout, files=given.files)
        seconds_write = time.perf_counter() - start
        with working("laying out the same rows by a plain sort, for comparison"):
            ordered = api.write(str(source), str(folder / "sorted"), by=BY, layout="linear", files=given.files)
        with duckdb.connect() as connection, working("looking things up"):
            connection.execute("SET TimeZone = 'UTC'")
            answers = [look_up(table, folder / "zeek", connection, name, predicate) for name, predicate in LOOKUPS]
        clustering = {
            f"sorted by {BY[0]}, {BY[1]}, …": ordered.clustering(),
            f"zskip, {given.layout}": table.clustering(),
        }
    wrong = [answer["name"] for answer in answers if not answer["equal"]]
    if given.json:
        lookups = [{**answer, "skipped": shares(answer["skipped"])} for answer in answers]
        print_json(
            {"by": BY, "seconds_write": seconds_write, "lookups": lookups, "clustering": clustering, "wrong": wrong}
        )
    else:
        report(table, seconds_write, answers)
        compare(clustering)
        if given.keep:
            kept = str(given.keep / "zeek")
            out().print(f"\nThe table is {kept}. Try: {shlex.join(['zskip', 'plan', kept, LOOKUPS[0][1]])}")
    return 1 if wrong else 0


def shares(skipped: Any) -> dict[str, dict[str, int | None]]:
    """Shares as JSON: the part and the whole, by name."""
    return {name: share._asdict() for name, share in skipped._asdict().items()}


def report(table: Any, seconds_write: float, answers: list[dict[str, Any]]) -> None:
    """Print the table's size, and what each look-up reads of it."""
    from zskip.plan.survivors import percent

    totals = table._index.snapshot.totals
    console = out()
    console.print(
        f"{totals.rows:,} rows of Zeek logs, laid out in {seconds_write:.1f} s as {totals.files} files\nof together "
        f"{size_text(totals.bytes)}, by {', '.join(BY)}.\n"
    )
    files, size = (whole([getattr(each["skipped"], name) for each in answers]) for name in ("files", "bytes"))
    console.print(f"All {len(answers)} look-ups: files skipped {files}, bytes skipped {percent(size.fraction)}.\n")
    grid(("look-up", "rows found", "files read", "bytes read", "of"), [line(answer) for answer in answers])
    wrong = [answer["name"] for answer in answers if not answer["equal"]]
    console.print(
        f"\nThe rows DIFFER from a full scan's: {', '.join(wrong)}. This is a defect: please report it."
        if wrong
        else "\nEach answer holds exactly the rows of a full scan. Only a sketch would find\n"
        "values of a column that is not clustered. Times would not tell: in so small a\n"
        "table, opening files takes most of them. zskip bench measures your own."
    )


def whole(shares: Sequence[Share]) -> Share:
    """The sum of shares whose counts are known."""
    from zskip.plan.survivors import Share

    return Share(sum(share.part or 0 for share in shares), sum(share.whole or 0 for share in shares))


def compare(clustering: Mapping[str, Mapping[str, ColumnDepth]]) -> None:
    """Print the share that a look-up on each column skips with each layout, computed from the files' ranges."""
    out().print(
        "\nRows that a look-up on one of these columns skips, the same rows in as many\n"
        "files; a sort wins on its first column, and loses on the others:\n"
    )
    lines = [
        (layout, *(f"{depth.skipped:.0%}" for depth in columns.values()), f"{mean(columns):.0%}")
        for layout, columns in clustering.items()
    ]
    grid(("layout", *BY, "mean"), lines)


def mean(columns: Mapping[str, ColumnDepth]) -> float:
    """The share of rows that a look-up skips, averaged over the columns."""
    return statistics.mean(depth.skipped for depth in columns.values())


def line(answer: dict[str, Any]) -> tuple[str, ...]:
    skipped = answer["skipped"]
    return (
        answer["name"],
        f"{answer['rows']:,}",
        f"{skipped.files.whole - skipped.files.part} of {skipped.files.whole}",
        size_text(skipped.bytes.whole - skipped.bytes.part),
        size_text(skipped.bytes.whole),
    )


# The sample data that comes with zskip.

Sample: TypeAlias = Literal["zeek", "flights"]


def demo_data(name: Sample = "zeek") -> str:
    """The path of a Parquet file of real data.

    "zeek": 103,089 rows of network logs, written by Zeek on one morning of 2018 · "flights": 50,000 flights that left
    New York City in 2013. The files are part of the installed package; in a checkout they are in `fixtures/`.
    Raises `InvalidOption`.
    """
    if name not in get_args(Sample):
        raise InvalidOption(f'There is no sample "{name}".{nearest(str(name), get_args(Sample))}')
    package = Path(str(files("zskip")))
    installed = package / "data" / f"{name}.parquet"
    return str(installed if installed.exists() else package.parent / "fixtures" / f"{name}.parquet")
