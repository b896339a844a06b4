"""The advisor on TPC-H lineitem: 200 queries of four kinds, its advice beside columns picked by hand.

    python benchmarks/advise.py FOLDER [--files 100] [--advise-only]

Lineitem at scale 1 (6 million rows) is written by columns that a person would pick, and by the advice. Bytes are those
of the column chunks that the queries name, in the files that plans leave: of the workload, and of other queries of the
same kinds.
"""

from __future__ import annotations

import argparse
import datetime as dt
import shlex
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from layout_cases import Case, lineitem
from targets import at_most

import zskip
from zskip.binder import bind
from zskip.binder.workload_sql import table_query
from zskip.cli.main import main as zskip_command

HAND_PICKED = {
    "by date": ["l_shipdate"],
    "by date and order": ["l_shipdate", "l_orderkey"],
    "by all that is asked": ["l_orderkey", "l_partkey", "l_shipdate", "l_receiptdate", "l_shipmode"],
}
TODAY = "by date"
MODES = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"]


def queries(seed: int, each: int = 50) -> dict[str, list[str]]:
    """So many queries of each kind."""
    rng = np.random.default_rng(seed)
    found: dict[str, list[str]] = {"an order": [], "some parts": [], "a month": [], "modes of a year": []}
    for _ in range(each):
        year, month = int(rng.integers(1993, 1998)), int(rng.integers(1, 13))
        after = dt.date(year + month // 12, month % 12 + 1, 1)
        parts = ", ".join(map(str, rng.integers(1, 200_001, 2)))
        first, second = rng.choice(MODES, 2, replace=False)
        found["an order"].append(f"SELECT * FROM lineitem WHERE l_orderkey = {rng.integers(1, 6_000_001)}")
        found["some parts"].append(f"SELECT l_partkey, sum(l_quantity) FROM lineitem WHERE l_partkey IN ({parts})")
        found["a month"].append(
            "SELECT sum(l_extendedprice * l_discount) FROM lineitem "
            f"WHERE l_shipdate >= DATE '{dt.date(year, month, 1)}' AND l_shipdate < DATE '{after}'"
        )
        found["modes of a year"].append(
            f"SELECT l_shipmode, count(*) FROM lineitem WHERE l_shipmode IN ('{first}', '{second}') "
            f"AND l_receiptdate >= DATE '{year}-01-01' AND l_receiptdate < DATE '{year + 1}-01-01'"
        )
    return found


def bytes_read(table: zskip.Table, statements: list[str]) -> float:
    """The share of the bytes of their columns that some queries read."""
    paths = {path: number for number, path in enumerate(table.plan().paths)}
    footers = [pq.read_metadata(path) for path in paths]
    names = table.columns
    sizes = np.zeros((len(paths), len(names)))
    for number, footer in enumerate(footers):
        for group in range(footer.num_row_groups):
            sizes[number] += [footer.row_group(group).column(c).total_compressed_size for c in range(len(names))]
    read = every = 0.0
    for statement in statements:
        query = table_query(statement, table._index.snapshot.schema)
        if query is None:
            raise ValueError(f"no condition on the table: {statement}")
        named = [c for c, name in enumerate(names) if query.columns is None or name in query.columns]
        kept = [paths[path] for path in table.plan(bind(query.condition, table._index.snapshot.schema)).paths]
        read += sizes[np.ix_(kept, named)].sum()
        every += sizes[:, named].sum()
    return read / every


def apply(command: str, target: Path) -> None:
    """Run the command of an advice, as a user would, for that target."""
    words = [str(target) if word == "TARGET" else word for word in shlex.split(command)]
    if zskip_command(words[1:]):
        raise SystemExit(f"failed: {command}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--advise-only", action="store_true", help="write one table, and time the advice alone")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    raw = given.folder / "lineitem.parquet"
    if not raw.exists():
        lineitem(given.folder, Case(lineitem, ("l_orderkey",), given.files, {}), 0)
    paths = {name: given.folder / name.replace(" ", "-") for name in (*HAND_PICKED, "advice")}
    for name, by in HAND_PICKED.items():
        if not paths[name].exists() and (name == TODAY or not given.advise_only):
            zskip.write(raw, paths[name], by=by, files=given.files)
    workload, others = queries(1), queries(2)
    file = given.folder / "workload.sql"
    file.write_text(";\n".join(query for kind in workload.values() for query in kind), encoding="utf-8")
    started, used = time.perf_counter(), time.process_time()
    advice = zskip.open(paths[TODAY]).advise(file)
    seconds, used = time.perf_counter() - started, time.process_time() - used
    print(advice, "\n")
    at_most(20, seconds, f"200 queries over 6 million rows ({used:.1f} s of the processors)", " s")
    if given.advise_only:
        return 0
    if not paths["advice"].exists():
        apply(advice.command, paths["advice"])
    if advice.sketched_command is not None:
        paths["advice with sketches"] = given.folder / "advice-with-sketches"
        if not paths["advice with sketches"].exists():
            apply(advice.sketched_command, paths["advice with sketches"])
    tables = {name: zskip.open(path) for name, path in paths.items()}
    print(f"\n| bytes read of {'; '.join(tables)} | the workload | others like it | " + " | ".join(workload) + " |")
    print("| --- " * (3 + len(workload)) + "|")
    read: dict[str, dict[str, float]] = {}
    for name, table in tables.items():
        every = [query for kind in workload.values() for query in kind]
        like = [query for kind in others.values() for query in kind]
        read[name] = {"all": bytes_read(table, every), "others": bytes_read(table, like)}
        read[name] |= {kind: bytes_read(table, of_kind) for kind, of_kind in workload.items()}
        print(f"| {name} | " + " | ".join(f"{share:.2%}" for share in read[name].values()) + " |", flush=True)
    for name in HAND_PICKED:
        for which in ("all", "others"):
            at_most(1, read["advice"][which] / read[name][which], f"{which}: bytes by the advice, relative to {name}")
    silent = 0
    for number, (kind, of_kind) in enumerate(workload.items()):
        members = [group for group in advice.groups if group.numbers[0] // len(of_kind) == number]
        announced = any(group.verdict == "worse" for group in members)
        silent += read["advice"][kind] > 1.05 * read[TODAY][kind] and not announced
    at_most(0, silent, "kinds of queries that read more than before, unannounced")
    return 0


if __name__ == "__main__":
    sys.exit(main())
