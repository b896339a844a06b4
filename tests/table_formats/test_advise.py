"""Advice on Delta and Iceberg tables counts live rows alone, and its command can be run as it is printed."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

import zskip
from zskip.cli.main import main

RANDOM = np.random.default_rng(8)
ROWS = pa.table({"a": RANDOM.integers(0, 1000, 4000), "b": RANDOM.integers(0, 1000, 4000)})
WORKLOAD = [f"a = {number}" for number in range(500, 1000, 50)]


def require_useful(advice: zskip.advisor.Advice) -> None:
    assert advice.candidates[0].by == ("a",)
    assert advice.today is not None
    assert advice.candidates[0].read < advice.today / 2
    assert [group.verdict for group in advice.groups] == ["better"]


def test_a_delta_table_is_laid_out_by_the_command_of_its_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, queries = str(tmp_path / "t"), tmp_path / "queries.sql"
    for start in range(0, 4000, 500):
        write_deltalake(path, ROWS.slice(start, 500), mode="append")
    DeltaTable(path).delete("a < 500")
    queries.write_text(";\n".join(WORKLOAD), encoding="utf-8")
    table = zskip.open(path)
    live = ROWS.filter(pa.compute.greater_equal(ROWS["a"], 500))
    assert table.count() == live.num_rows
    advice = zskip.advise(path, queries, files=8)
    require_useful(advice)
    for command in (advice.command, advice.bench_command):
        assert main(shlex.split(command)[1:]) == 0, capsys.readouterr().err
    assert "READS MORE" not in capsys.readouterr().out
    after = zskip.open(path)
    plan = after.plan("a = 700")
    assert len(plan.paths) == 1
    assert plan.skipped.files.part == 7
    assert sorted(after.to_arrow()["a"].to_pylist()) == sorted(live["a"].to_pylist())


def test_an_iceberg_table_is_advised_on(tmp_path: Path) -> None:
    catalog = load_catalog("c", type="in-memory", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=ROWS.schema)
    for start in range(0, 4000, 500):
        table.append(ROWS.slice(start, 500))
    advice = zskip.open(table).advise(WORKLOAD)
    require_useful(advice)
    assert advice.command.startswith("zskip write ")
