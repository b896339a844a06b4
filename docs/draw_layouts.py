"""Draw the pictures of docs/layouts.md: `python docs/draw_layouts.py` from the top of the checkout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure

from zskip import interpret, layouts, plot, predicate
from zskip.schema import Schema
from zskip.stats import collect

HERE = Path(__file__).resolve().parent
FILES = 36


def main() -> None:
    rng = np.random.default_rng(1)
    rows = pa.table({"x": rng.random(20_000), "y": rng.normal(size=20_000)})
    schema = Schema(rows.schema)
    query = predicate.bind("x BETWEEN 0.30 AND 0.32", schema)
    figure = Figure(figsize=(12, 4), layout="constrained")
    for number, name in enumerate(("linear", "hilbert", "auto"), start=1):
        order = rows.sort_by([("y", "ascending")]) if name == "linear" else rows
        if name == "linear":
            file = np.arange(len(rows)) * FILES // len(rows)
        else:
            file = layouts.fit(rows, ["x", "y"], layout=name, files=FILES, total_rows=len(rows)).assign(rows)
        place = np.argsort(file, kind="stable")
        cuts = np.concatenate([[0], np.cumsum(np.bincount(file))]).astype(np.int64)
        known = collect.row_groups(order.take(pa.array(place)), cuts, schema).statistics()
        plot.boxes(
            known, "x", "y", survivors=interpret.outcomes(query, known).may_match, title=name,
            axes=figure.add_subplot(1, 3, number),
        )  # fmt: skip
    plot.save(figure, HERE / "layouts.png")


if __name__ == "__main__":
    main()
