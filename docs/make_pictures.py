"""Draws docs/pictures/boxes.svg: the files of one table as boxes, laid out three ways, one look-up's files lit.

`python docs/make_pictures.py`; needs zskip[plot]. The boxes are the true ranges that the index keeps, and the lit
files are what the planner leaves.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle

import zskip
from zskip import curves

ROOT = Path(__file__).resolve().parent.parent
FILES = 64
BY = ["date", "distance"]
LOOK_UP = "distance = 1089"
QUIET, LIT, LINE = "#dfe6ee", "#f28e2b", "#5b6b7c"

plt.rcParams.update({"svg.hashsalt": "zskip", "svg.fonttype": "path", "font.size": 9})


def equal_cuts(rows: pa.Table, folder: Path) -> zskip.Table:
    """Z-order as it is usually done: interleave the ranks, sort, cut into files of equal row counts."""
    ranks = [np.asarray(pc.rank(rows[name].cast(pa.int32()), tiebreaker="min")).astype(np.uint64) - 1 for name in BY]
    bits = len(rows).bit_length()
    key = curves.interleave(ranks, bits)
    ordered = rows.take(np.argsort(key, kind="stable"))
    folder.mkdir()
    cuts = np.linspace(0, len(rows), FILES + 1).astype(int)
    for number, (start, end) in enumerate(itertools.pairwise(cuts)):
        pq.write_table(ordered.slice(start, end - start), folder / f"{number:03}.parquet")
    return zskip.index(folder)


def boxes(table: zskip.Table) -> list[np.ndarray]:
    """Lower and upper bound of both columns, per file: dates as days, distances as miles."""
    units = table.index.files(None, BY).statistics.columns
    return [
        np.asarray(bound.cast(pa.int32()), dtype=float)
        for name in BY
        for bound in (units[name].lower, units[name].upper)
    ]


def draw(ax: Any, table: zskip.Table, title: str) -> None:
    plan = table.plan(LOOK_UP)
    lit = np.zeros(len(table.index), bool)
    lit[plan.numbers] = True
    left, right, bottom, top = boxes(table)
    for mask, face, edge, order in ((~lit, QUIET, "white", 1), (lit, LIT, "white", 2)):
        patches = [
            Rectangle((left[i], bottom[i]), right[i] - left[i] + 1, top[i] - bottom[i] + 12)
            for i in np.flatnonzero(mask)
        ]
        collection = PatchCollection(patches, facecolor=face, edgecolor=edge, linewidth=0.6, alpha=0.85, zorder=order)
        ax.add_collection(collection)
    ax.axhline(1089, color=LINE, linewidth=0.8, linestyle=(0, (2, 2)), zorder=3)
    ax.set_xlim(left.min(), right.max() + 1)
    ax.set_ylim(0, 2700)
    ax.set_title(f"{title}\nreads {lit.sum()} of {len(lit)} files, {1 - plan.skipped.rows.fraction:.0%} of the rows")
    ax.xaxis.set_major_locator(mdates.MonthLocator(bymonth=(1, 4, 7, 10)))
    ax.xaxis.set_major_formatter(mdates.DateFormatter("%b"))
    ax.tick_params(length=2, color=LINE)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def main() -> None:
    rows = pq.read_table(ROOT / "fixtures" / "flights.parquet")
    with tempfile.TemporaryDirectory() as temporary:
        lake = Path(temporary)
        tables = {
            "linear: sorted by date": zskip.write(rows, lake / "linear", by=BY, layout="linear", files=FILES),
            "Z-order, equal cuts": equal_cuts(rows, lake / "zorder"),
            "zskip: planned cuts": zskip.write(rows, lake / "auto", by=BY, files=FILES),
        }
        figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), sharey=True, layout="constrained")
        for ax, (title, table) in zip(axes, tables.items(), strict=True):
            draw(ax, table, title)
        axes[0].set_ylabel("distance, miles")
        target = ROOT / "docs" / "pictures" / "boxes.svg"
        target.parent.mkdir(exist_ok=True)
        figure.savefig(target, metadata={"Date": None})
        print(f"wrote {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
