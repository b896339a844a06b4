"""Makes the golden table of this version of the format: run once, commit the result, and never again."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

import zskip

ROWS = pa.table(
    {
        "id": list(range(400)),
        "host": [f"10.0.{n % 7}.{n % 11}" for n in range(400)],
        "share": [None if n % 13 == 0 else float("nan") if n % 17 == 0 else n / 8 for n in range(400)],
        "at": pa.array([n * 1_000_000 for n in range(400)], pa.timestamp("us", "UTC")),
    }
)


def make(folder: Path) -> None:
    """A table of two versions: 300 rows, then 100 appended."""
    zskip.write(ROWS.slice(0, 300), str(folder), by=["host", "id"], files=4, row_group_rows=40)
    zskip.write(ROWS.slice(300), str(folder), mode="append")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
