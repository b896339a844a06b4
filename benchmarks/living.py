"""What twenty appends of 1 % cost a table, and what `optimize` wins back, beside a full rewrite of the same rows.

python benchmarks/living.py FOLDER [--case NAME …] [--seeds 3]

FOLDER keeps the data for the next run. Skipped is what look-ups by each of the columns skip, for values drawn as the
rows have them, as in benchmarks/layouts.py.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from layout_cases import CASES, FOUR, TWO, Case, connections
from layouts import Truth
from targets import at_least, at_most

import zskip

_CONNECTIONS = Case(connections, FOUR, 100, {}, rows=1_210_000)
LIVES: Mapping[str, tuple[Case, int]] = {
    "connections": (_CONNECTIONS, 100),
    "connections-1000": (_CONNECTIONS, 1000),
    "two-columns": (replace(_CONNECTIONS, by=TWO), 100),
    "lineitem": (CASES["lineitem"], 100),
    "lineitem-1000": (CASES["lineitem"], 1000),
    "zeek": (CASES["zeek"], 100),
    "flights": (CASES["flights"], 100),
}
_APPENDS = 20
_MOST_ROWS = 2_000_000


def live(name: str, cache: Path, seed: int) -> None:
    """Print a table's share skipped when it was new, after its appends, after `optimize`, and rewritten whole."""
    case, files = LIVES[name]
    rows = case.rows_of(cache, case, seed)
    begun = min(_MOST_ROWS, rows.num_rows * 100 // (100 + _APPENDS))
    one = begun // 100
    order = np.random.default_rng(seed).permutation(rows.num_rows)
    cuts = [0, *range(begun, begun + one * _APPENDS + 1, one)]
    source, *later = (rows.take(pa.array(np.sort(order[a:b]))) for a, b in pairwise(cuts))
    with tempfile.TemporaryDirectory() as place:
        table = zskip.write(source, place, by=list(case.by), rows_per_file=-(-begun // files))
        new, first = Truth(case, source, []).skipped(Path(place)), set(table.plan().scan.relative_paths)
        for some in later:
            table.append(some)
        kept = first <= set(table.plan().scan.relative_paths)
        truth = Truth(case, pa.concat_tables([source, *later]), [])
        grown, stored = truth.skipped(Path(place)), table._index.snapshot.totals.bytes
        began = time.perf_counter()
        receipt = table.optimize()
        took = time.perf_counter() - began
        again = table.optimize().files_rewritten
        table.vacuum("0 days")
        mended, held = truth.skipped(Path(place)), table._index.snapshot.totals.files
        began = time.perf_counter()
        table.optimize(full=True)
        full_took = time.perf_counter() - began
        table.vacuum("0 days")
        whole = truth.skipped(Path(place))
        print(
            f"{name}, seed {seed}: {begun:,} rows, skipped {new:.4f} new, {grown:.4f} after {_APPENDS} appends, "
            f"{mended:.4f} after optimize ({held} files, {took:.1f} s), "
            f"{whole:.4f} rewritten whole ({table._index.snapshot.totals.files} files, {full_took:.1f} s)",
            flush=True,
        )
    at_least(1, float(kept), f"{name}: appends leave every file of the table where it is")
    assert stored is not None
    at_most(0.2, receipt.bytes_rewritten / stored, f"{name}: bytes rewritten by optimize, of the table's")
    at_most(1.25, (1 - mended) / (1 - whole), f"{name}: rows read by look-ups, of those after a full rewrite")
    at_most(0, again, f"{name}: files rewritten by optimize once more")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the data are made, and kept for the next run")
    parser.add_argument("--case", choices=LIVES, action="append", help="only this one; may be repeated")
    parser.add_argument("--seeds", type=int, default=1)
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    for name in chosen.case or LIVES:
        for seed in range(chosen.seeds):
            live(name, chosen.folder, seed)


if __name__ == "__main__":
    main()
