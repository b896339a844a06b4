"""Draws docs/pictures/: the files of one table as boxes, laid out three ways, one look-up's files lit; and their depth.

`python docs/make_pictures.py`; needs zskip[plot]. The boxes are the true ranges that the index keeps, and the lit
files are what the planner leaves.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import altair
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import zskip
from zskip import curves, plot
from zskip.plan import find_survivors

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
FLIGHTS = ["date", "distance"]
LOOK_UP = "distance = 1089"
POINTS = 20_000


def equal_cuts(rows: pa.Table, folder: Path, files: int) -> zskip.Table:
    """Z-order as it is usually done: interleave the ranks, sort, cut into files of equal row counts."""
    ranks = [
        np.asarray(pc.rank(rows[name].cast(pa.int32()), tiebreaker="min")).astype(np.uint64) - 1 for name in FLIGHTS
    ]
    key = curves.interleave(ranks, len(rows).bit_length())
    ordered = rows.take(np.argsort(key, kind="stable"))
    folder.mkdir()
    for number, (start, end) in enumerate(itertools.pairwise(np.linspace(0, len(rows), files + 1).astype(int))):
        pq.write_table(ordered.slice(start, end - start), folder / f"{number:03}.parquet")
    return zskip.index(folder)


def boxes(tables: dict[str, zskip.Table], x: str, y: str, where: str) -> list[altair.Chart]:
    """The same columns of several tables, a picture each: they lie side by side, or on a phone one below the other."""
    charts = []
    for title, table in tables.items():
        lit = np.zeros(len(table._index), bool)
        lit[find_survivors(table._index, table.plan(where).predicate).numbers] = True
        known = table._index.files(None, [x, y]).statistics
        charts.append(plot.boxes(known, x, y, survivors=lit, title=title, size=(270, 230)))
    return charts


def main() -> None:
    rows = pq.read_table(ROOT / "fixtures" / "flights.parquet")
    rng = np.random.default_rng(1)
    points = pa.table({"x": rng.random(POINTS), "y": rng.normal(size=POINTS)})
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        lake = Path(temporary)
        flown = {
            "linear: sorted by date": zskip.write(rows, lake / "sorted", by=FLIGHTS, layout="linear", files=64),
            "Z-order, equal cuts": equal_cuts(rows, lake / "equal", 64),
            "zskip: planned cuts": zskip.write(rows, lake / "planned", by=FLIGHTS, files=64),
        }
        laid_out = {
            name: zskip.write(points, lake / name, by=["y", "x"], layout=name, files=64)
            for name in ("linear", "hilbert", "auto")
        }
        pictures = {
            "boxes": boxes(flown, *FLIGHTS, LOOK_UP),
            "layouts": boxes(laid_out, "x", "y", "x BETWEEN 0.40 AND 0.42"),
            "depth": flown["zskip: planned cuts"].plot(depth=True).hconcat,
        }
        for name, charts in pictures.items():
            for number, chart in enumerate(charts, 1):
                print(f"wrote {plot.save(chart, PICTURES / f'{name}-{number}.svg').relative_to(ROOT)}")


if __name__ == "__main__":
    main()
