"""How many files five engines read for conditions that are more than a column beside a constant.

    python benchmarks/conditions.py [FOLDER]

The same 20 files of the same rows for all: a table of zskip, a folder that DuckDB and polars scan, a Delta table for
deltalake's SQL (DataFusion) and an Iceberg table for pyiceberg. A file counts as read if the query fails once the
column chunks of this file are overwritten; its footer, and the logs with their statistics, stay as they are. A dash:
the library has no expression for the condition. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyiceberg.catalog import load_catalog

import zskip

FILES, ROWS = 20, 5_000
CONDITIONS = {
    "a range": "d >= DATE '2025-06-10' AND d < DATE '2025-06-15'",
    "a cast": "CAST(ts AS DATE) = DATE '2025-06-10'",
    "constants to fold": "d = DATE '2025-06-17' - 7",
    "a field of a struct": "device.id = 31000",
    "parts of a date": "year(ts) = 2025 AND month(ts) = 6",
    "a sum of columns": "begins + lasts < 2000",
    "a prefix": "code LIKE 'c031%'",
    "a negation": "NOT (begins < 95000)",
    "a unique string": "trace = '0000000000000000000000000000abcd'",
}


def rows() -> pa.Table:
    """Rows in the order of time. ``trace`` is unique and in no order."""
    count = FILES * ROWS
    numbers = np.arange(count)
    random = np.random.default_rng(3)
    times = np.datetime64("2025-01-01", "us") + (numbers * 315_000_000).astype("timedelta64[us]")  # one year
    return pa.table(
        {
            "ts": times,
            "d": pa.array(times.astype("datetime64[D]")),
            "begins": numbers,
            "lasts": random.integers(0, 500, count),
            "code": [f"c{number // 1000:03d}" for number in numbers],
            "device": [{"id": number} for number in numbers.tolist()],
            "trace": [f"{number:032x}" for number in random.permutation(count).tolist()],
        }
    )


def polars_expression(where: str) -> pl.Expr:
    """The condition by polars' own SQL."""
    text = where.replace("year(ts)", "EXTRACT(year FROM ts)").replace("month(ts)", "EXTRACT(month FROM ts)")
    return pl.sql_expr(text.replace("- 7", "- INTERVAL '7d'"))


def datafusion_sql(where: str) -> str:
    text = where.replace("year(", "date_part('year', ").replace("month(", "date_part('month', ")
    return text.replace("device.id", "device['id']").replace("- 7", "- INTERVAL '7' DAY")


def engines(folder: Path) -> dict[str, tuple[list[Path], Callable[[str], Any]]]:
    """By name: the data files of its table, and a function that reads the matching rows."""
    source, plain = rows(), folder / "plain"
    parts = [source.slice(number * ROWS, ROWS) for number in range(FILES)]
    plain.mkdir(parents=True)
    for number, part in enumerate(parts):
        pq.write_table(part, plain / f"{number:02d}.parquet")
        write_deltalake(folder / "delta", part, mode="append")
    shutil.copytree(plain, folder / "zskip")
    table = zskip.index(folder / "zskip", sketches={"trace": "values"})
    catalog = load_catalog("lake", type="in-memory", warehouse=f"file://{folder}/iceberg")
    catalog.create_namespace("a")
    iceberg = catalog.create_table("a.t", schema=source.schema)
    for part in parts:
        iceberg.append(part)
    con = duckdb.connect(config={"enable_external_file_cache": False})

    def delta(where: str) -> Any:
        query = QueryBuilder().register("t", DeltaTable(folder / "delta"))
        return query.execute(f"SELECT * FROM t WHERE {datafusion_sql(where)}").read_all()

    return {
        "zskip": (_files(folder / "zskip"), lambda where: table.plan(where, freshness="trust").to_arrow()),
        "DuckDB": (
            _files(plain),
            lambda where: con.sql(f"FROM read_parquet('{plain}/*.parquet') WHERE {where}").to_arrow_table(),
        ),
        "polars": (_files(plain), lambda where: pl.scan_parquet(plain).filter(polars_expression(where)).collect()),
        "deltalake": (_files(folder / "delta"), delta),
        "pyiceberg": (
            _files(folder / "iceberg"),
            lambda where: iceberg.scan(row_filter=where.replace("DATE '", "'")).to_arrow(),
        ),
    }


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.parquet") if "_zskip" not in path.parts)


def damage(path: Path) -> bytes:
    """Overwrite the column chunks of a file, and return what it held."""
    whole = path.read_bytes()
    meta, broken = pq.read_metadata(path), bytearray(whole)
    for group in range(meta.num_row_groups):
        for number in range(meta.num_columns):
            chunk = meta.row_group(group).column(number)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            broken[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(bytes(broken))
    return whole


def _fails(read: Callable[[str], Any], where: str) -> bool:
    try:
        read(where)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # polars and DataFusion raise panics of their own
        return True
    return False


def files_read(files: list[Path], read: Callable[[str], Any], wanted: dict[str, int]) -> dict[str, int | None]:
    """By condition: how many files are read, or None where the engine does not take the condition."""
    found: dict[str, int | None] = {}
    for name, count in wanted.items():
        found[name] = None if _fails(read, CONDITIONS[name]) else 0
        if found[name] is not None:
            assert len(read(CONDITIONS[name])) == count, name
    for path in files:
        whole = damage(path)
        for name, known in found.items():
            if known is not None:
                found[name] = known + _fails(read, CONDITIONS[name])
        path.write_bytes(whole)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp())
    whole = duckdb.connect()
    whole.register("source", rows())
    wanted = {
        name: whole.sql(f"SELECT * FROM source WHERE {where}").to_arrow_table().num_rows
        for name, where in CONDITIONS.items()
    }
    made = engines(folder)
    columns = {name: files_read(files, read, wanted) for name, (files, read) in made.items()}
    print(f"| condition, {FILES} files | {' | '.join(columns)} |")
    print("| --- " * (len(columns) + 1) + "|")
    for name, where in CONDITIONS.items():
        cells = ("–" if found[name] is None else str(found[name]) for found in columns.values())
        print(f"| {name}: `{where}` | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
