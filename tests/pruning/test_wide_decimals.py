"""Decimals that have more digits than their type says, as DuckDB hands out its widest integers through Arrow."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

import zskip

WIDEST = 2**127 - 1
ROWS = f"SELECT n, ({WIDEST}::HUGEINT - n) AS h FROM range(3) t(n)"


def test_a_folder_of_them_is_indexed_and_read(tmp_path: Path) -> None:
    rows = duckdb.sql(ROWS)
    for number in range(2):
        pq.write_table(rows.to_arrow_table(), tmp_path / f"{number}.parquet")
    table = zskip.index(tmp_path)
    assert table.plan("h > 5 AND n = 1").count() == 2
    assert table.plan("h < 5").paths == []
    assert zskip.sql(f"SELECT max(h), min(h), count(*) FROM '{tmp_path}'").fetchall() == [
        (Decimal(WIDEST), Decimal(WIDEST - 2), 6)
    ]
    assert table.verify().clean


def test_a_table_is_laid_out_by_them(tmp_path: Path) -> None:
    table = zskip.write(duckdb.sql(ROWS).to_arrow_table(), tmp_path / "t", by=["h", "n"], files=3)
    assert len(table.plan("n = 1").paths) == 1
    table.append(duckdb.sql(ROWS).to_arrow_table())
    assert zskip.open(tmp_path / "t").plan("h > 5 AND n = 1").count() == 2
    assert table.verify().clean
