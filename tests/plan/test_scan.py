"""A scan is a closed value: it goes to other processes, is cut into tasks, and is read as it was planned."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests import ROOT
from zskip.plan import find_survivors
from zskip.plan.scan import Scan

READ = """
import pickle, sys
scan = pickle.loads(open(sys.argv[1], "rb").read())
print(scan.to_arrow(["a"]).column("a").to_pylist())
"""


@pytest.fixture
def table(tmp_path: Path) -> zskip.Table:
    rows = pa.table({"a": range(1000), "s": [f"x{number % 7}" for number in range(1000)]})
    return zskip.write(rows, tmp_path / "t", by="a", files=10, row_group_rows=20)


def test_another_process_reads_a_scan_and_plans_nothing(table: zskip.Table, tmp_path: Path) -> None:
    scan = table.plan("a BETWEEN 205 AND 207 AND s LIKE 'x%' AND a <> 206").scan
    pickled = tmp_path / "scan"
    pickled.write_bytes(pickle.dumps(scan))
    # What is planned anew would read the log: a scan must not.
    log = Path(table.uri, "_zskip")
    log.rename(tmp_path / "log")
    done = subprocess.run([sys.executable, "-c", READ, str(pickled)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[205, 207]"
    assert pickled.stat().st_size < 20_000


def test_a_pickled_scan_is_the_same_value(table: zskip.Table) -> None:
    scan = table.plan("a < 150 AND s <> 'x3'").scan
    again: Scan = pickle.loads(pickle.dumps(scan))
    assert again.files.equals(scan.files)
    assert (again.version, again.table_id, again.commit_id) == (1, scan.table_id, scan.commit_id)
    assert again.paths == scan.paths
    assert [again.row_groups_of(file) for file in range(len(again))] == [
        one.row_groups for one in table.plan("a < 150 AND s <> 'x3'").files
    ]
    assert again.to_arrow().equals(scan.to_arrow())
    assert repr(again) == f"<Scan of {table.uri}, version 1: a < 150 AND s <> 'x3': 2 files>"


def test_a_plan_says_what_to_send_instead(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="Send its `scan`"):
        pickle.dumps(zskip.write(pa.table({"a": [1]}), tmp_path / "t", by="a").plan())


def test_a_store_goes_along_by_its_address_and_options() -> None:
    rows = pa.table({"a": range(100)})
    scan = zskip.write(rows, "memory://scan-test/t", by="a", files=4).plan("a = 42").scan
    assert pickle.loads(pickle.dumps(scan)).to_arrow().to_pylist() == [{"a": 42}]


def test_a_scan_is_cut_into_tasks_by_bytes(table: zskip.Table) -> None:
    scan = table.plan("a % 2 = 0 AND a < 555").scan
    tasks = scan.split(2 * max(scan.sizes))
    assert 2 < len(tasks) < len(scan) == 6
    assert [path for task in tasks for path in task.paths] == scan.paths
    assert pa.concat_tables([task.to_arrow() for task in tasks]).equals(scan.to_arrow())
    assert table.plan("a < 0").scan.split(1000) == []


def test_parts_of_a_scan_keep_their_row_groups(table: zskip.Table) -> None:
    scan = table.plan("a IN (30, 130, 431)").scan
    groups = [scan.row_groups_of(file) for file in range(3)]
    assert all(groups)
    kept = np.array([False, True, True])
    part = scan.narrowed(kept)
    assert [part.row_groups_of(file) for file in range(2)] == groups[1:]
    assert part.to_arrow().column("a").to_pylist() == [130, 431]
    assert part.unfiltered().to_arrow().num_rows > 2


def test_survivors_narrow_by_number(table: zskip.Table) -> None:
    every = find_survivors(table.index, None)
    assert every.narrowed(np.array([3])).scan.to_arrow().num_rows == 100
    matching = find_survivors(table.index, table.plan("a < 250").predicate)
    assert matching.narrowed(np.array([2, 5])).numbers.tolist() == [2]


# --- folders that others write ---


def replaced(folder: Path) -> zskip.Table:
    for number in range(10):
        ids = range(100 * number, 100 * number + 100)
        pq.write_table(
            pa.table({"id": ids, "w": [pa.scalar(one).as_py() for one in ids]}),
            folder / f"{number}.parquet",
            row_group_size=10,
        )
    return zskip.index(folder)


def test_a_file_that_is_replaced_after_the_plan_gives_only_rows_that_match(tmp_path: Path) -> None:
    plan = replaced(tmp_path).plan("id BETWEEN 300 AND 399")
    assert [file.residual for file in plan.files] == [None]
    assert plan.scan.all_match
    lazy = plan.to_duckdb(duckdb.connect())
    ids = [*range(5000, 5050), *range(350, 400)]
    pq.write_table(pa.table({"id": ids, "w": ids}), tmp_path / "3.parquet")
    expected = list(range(350, 400))
    assert plan.to_arrow().column("id").to_pylist() == expected
    assert sorted(row[0] for row in lazy.fetchall()) == expected
    assert plan.scan.to_arrow(["w"]).column("w").to_pylist() == expected


def test_the_row_groups_of_a_file_that_is_replaced_are_not_those_of_the_plan(tmp_path: Path) -> None:
    plan = replaced(tmp_path).plan("id = 355")
    assert plan.files[0].row_groups == (5,)
    pq.write_table(pa.table({"id": [355, 1, 2], "w": [7, 8, 9]}), tmp_path / "3.parquet")
    assert plan.to_arrow().to_pylist() == [{"id": 355, "w": 7}]
    assert plan.count() == 1
    assert plan.to_duckdb(duckdb.connect()).fetchall() == [(355, 7)]


# --- the Arrow stream ---


def test_a_plan_and_a_table_are_arrow_streams(table: zskip.Table) -> None:
    polars, pandas = pytest.importorskip("polars"), pytest.importorskip("pandas")
    plan = table.plan("a > 997")
    assert pa.table(plan).equals(plan.to_arrow())
    assert pl_rows(polars.DataFrame(plan)) == [(998, "x4"), (999, "x5")]
    assert pandas.DataFrame.from_arrow(plan)["a"].tolist() == [998, 999]
    assert pa.table(plan.select(["s"])).to_pylist() == [{"s": "x4"}, {"s": "x5"}]
    assert duckdb.connect().sql("SELECT max(a) FROM plan").fetchall() == [(999,)]
    assert pa.table(table).num_rows == 1000


def pl_rows(frame: object) -> list[tuple[object, ...]]:
    return frame.rows()  # type: ignore[attr-defined, no-any-return]


def test_a_selection_holds_for_every_engine(table: zskip.Table) -> None:
    plan = table.plan("a = 5").select(["s"])
    assert plan.to_arrow().column_names == ["s"]
    assert plan.to_duckdb(duckdb.connect()).columns == ["s"]
    assert [batch.schema.names for batch in plan.to_batches()] == [["s"]]
    with pytest.raises(zskip.UnknownColumn, match='no column "t"'):
        plan.select(["t"])


def test_the_docs_name_every_public_member_of_a_plan() -> None:
    page = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
    members = [name for name in dir(zskip.Plan) if not name.startswith("_")]
    assert len(members) < 17
    assert [name for name in members if f"plan.{name}" not in page] == []
