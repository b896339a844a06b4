"""Decimals that have more digits than their type says, as DuckDB hands out its widest integers through Arrow."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow.parquet as pq

import zskip


def test_a_folder_of_them_is_indexed_and_read(tmp_path: Path) -> None:
    rows = duckdb.sql("SELECT n, (170141183460469231731687303715884105727::HUGEINT - n) AS h FROM range(3) t(n)")
    for number in range(2):
        pq.write_table(rows.to_arrow_table(), tmp_path / f"{number}.parquet")
    table = zskip.index(tmp_path)
    assert table.plan("h > 5 AND n = 1").count() == 2
