"""The law of sketches: no unit that they skip holds a match, and none that they match wholly holds anything else."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from random import Random

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import zskip
from tests.tablelog.sketches.laws import SKETCHED_KINDS, LookUps, random_table, run
from zskip.errors import SqlError
from zskip.plan import planner
from zskip.tablelog.sketches import SKETCHES

CASES, PARTS = int(os.environ.get("ZSKIP_FUZZ_CASES", "100000")), 200


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_sketches_exclude_no_outcome_that_duckdb_shows(part: int) -> None:
    tally, failures = run(CASES // PARTS, seed=part)
    assert not failures, "\n\n".join(failures)
    assert tally["skipped by sketches"] > tally["units of a tenth of them"] / 20
    assert tally["matched wholly by sketches"] > 0
    assert tally["asked of the sketches first"] > tally["cases"] / 5


def read_in_all(folder: Path, seed: int, asked: int = 40) -> int:
    """Write a random table, and ask it: the rows are those of a full scan. How many files were read."""
    random, con = Random(seed), duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    table = random_table(random, SKETCHED_KINDS, odd=False)
    rows = table.rows.drop_columns("__unit").append_column("n", pa.array(np.arange(len(table.unit))))
    con.register("units", rows)
    sketches = {field.path: ["values"] + ["substrings"] * (field.kind.family == "string") for field in table.fields}
    most = len(rows) * 2 // 3
    made = zskip.write(rows.slice(0, most), folder, by="n", rows_per_file=4, sketches=sketches)
    made.append(rows.slice(most, 9))
    made.append(rows.slice(most + 9))
    read, look_ups = 0, LookUps(random, table)
    for where in (look_ups.asked() for _ in range(asked)):
        try:
            wanted = con.sql(f"SELECT n FROM units WHERE {where} ORDER BY n").fetchall()
            plan = made.plan(where)
        except (duckdb.Error, SqlError):
            continue
        assert sorted(plan.to_arrow(["n"])["n"].to_pylist()) == [n for (n,) in wanted], where
        read += len(plan)
    return read


def test_plans_give_the_rows_of_a_full_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = [read_in_all(tmp_path / f"{seed}", seed) for seed in range(2)]
    # Sketches may be asked before the ranges.
    monkeypatch.setattr(planner, "_MANY_FILES", 0)
    monkeypatch.setattr(planner, "_LEAST_SAVING", 1)
    assert [read_in_all(tmp_path / f"{seed} first", seed) for seed in range(2)] == later
    # Collisions read more, and lose nothing.
    monkeypatch.setitem(SKETCHES, "values", replace(SKETCHES["values"], key_bits=lambda entries: 3))
    assert sum(read_in_all(tmp_path / f"{seed} collisions", seed) for seed in range(2)) > sum(later)
