"""Tend: does what is due within its budget, says what is left and why, and loses no row beside other writers."""

from __future__ import annotations

import itertools
import json
import queue
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests.writer.compaction.test_optimize import ids, in_partitions, rows_of
from zskip.cli.main import main
from zskip.core.receipts import Optimized, Step, Vacuumed
from zskip.errors import CommitConflict, InvalidOption
from zskip.writer.compaction import compact


def grown(path: Path) -> zskip.Table:
    """A table with six appends."""
    table = zskip.write(rows_of(4_000, 1), path, by=["a", "b"], files=4)
    for seed in range(2, 8):
        table.append(rows_of(120, seed))
    return table


def steps(done: zskip.core.receipts.Tended) -> dict[str, Step]:
    return {step.name: step for step in done.steps}


def test_what_is_due_is_done_once(tmp_path: Path) -> None:
    table = grown(tmp_path / "t")
    before, version = ids(table), table.version
    would = table.tend(dry_run=True)
    assert (would.version, would.dry_run, len(table.history())) == (version, True, version)
    assert "would rewrite" in steps(would)["optimize"].done
    done = table.tend(older_than="0 seconds")
    assert done.version == table.version == version + 2, "one of the optimize, and one of the vacuum"
    optimized = steps(done)["optimize"]
    assert isinstance(optimized.receipt, Optimized)
    assert optimized.receipt.files_rewritten > 0
    assert optimized.left is None
    assert f"{version} versions" in steps(done)["vacuum"].done
    assert ids(table) == before
    assert [step.done for step in table.tend(older_than="0 seconds").steps] == ["nothing was due"] * 3


@pytest.mark.slow
def test_what_no_budget_is_left_for_is_left_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = in_partitions(tmp_path / "t")
    before, due = ids(table), table.optimize(dry_run=True)
    none = table.tend(max_seconds=0)
    assert {(step.done, step.left) for step in none.steps} == {("did not begin", "the 0 seconds were over")}
    calls = 0

    def late() -> float:
        """The time is over once the first group has begun."""
        nonlocal calls
        calls += 1
        return 0.0 if calls == 1 else 1e12

    monkeypatch.setattr(compact, "time", type("Clock", (), {"monotonic": staticmethod(late)}))
    some = steps(table.tend(max_seconds=3600))["optimize"]
    assert isinstance(some.receipt, Optimized)
    assert 0 < some.receipt.files_rewritten < due.files_rewritten
    assert some.receipt.files_left == due.files_rewritten - some.receipt.files_rewritten
    assert some.left is not None
    monkeypatch.undo()
    few = steps(table.tend(max_bytes=1000))["optimize"]
    assert few.left is not None
    assert "since max_bytes is" in few.left
    assert steps(table.tend())["optimize"].left is None
    assert ids(table) == before
    assert table.optimize(dry_run=True).files_rewritten == 0
    for wrong in (-1, "x", float("nan")):
        with pytest.raises(InvalidOption, match="max_seconds="):
            table.tend(max_seconds=wrong)  # type: ignore[arg-type]


def test_what_is_appended_meanwhile_is_not_lost(tmp_path: Path) -> None:
    table = zskip.write(rows_of(1000, 1), tmp_path / "t", by=["a"], files=5)
    stop, appended = threading.Event(), queue.SimpleQueue[int]()

    def append() -> None:
        for seed in itertools.count(100):
            if stop.wait(0.1):  # without a pause, tend may meet a newer version for ever
                break
            zskip.open(tmp_path / "t").append(rows_of(20, seed))
            appended.put(seed)

    appender = threading.Thread(target=append)
    appender.start()
    seeds, optimized = [], 0
    try:
        while optimized < 2:
            seeds.append(appended.get(timeout=60))  # at least one append between two rounds
            done = steps(table.tend(older_than="1 hour"))
            assert isinstance(done["vacuum"].receipt, Vacuumed)
            merged = done["optimize"].receipt
            optimized += isinstance(merged, Optimized) and merged.files_rewritten > 0
    finally:
        stop.set()
        appender.join()
    seeds += [appended.get() for _ in range(appended.qsize())]
    table.tend()
    expected = [id for seed in seeds for id in rows_of(20, seed)["id"].to_pylist()]
    assert ids(zskip.open(tmp_path / "t")) == sorted(rows_of(1000, 1)["id"].to_pylist() + expected)
    assert table.verify(["a < 100"], sample=None).clean


def test_a_step_that_others_always_beat_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = grown(tmp_path / "t")

    def beaten(*arguments: object, **options: object) -> object:
        if options.get("dry_run"):
            return original(*arguments, **options)  # type: ignore[arg-type]
        raise CommitConflict("another writer was first")

    original = compact.optimize
    monkeypatch.setattr(compact, "optimize", beaten)
    done = steps(table.tend())
    assert done["optimize"].done == "changed nothing"
    assert "other writers" in str(done["optimize"].left)
    assert done["vacuum"].receipt is not None


def test_a_folder_of_others_gets_its_index_and_sketches(tmp_path: Path) -> None:
    def put(name: str, first: int) -> None:
        pq.write_table(pa.table({"uid": [f"u{number}" for number in range(first, first + 50)]}), tmp_path / name)

    put("a.parquet", 0)
    table = zskip.index(tmp_path, sketches={"uid": "values"})
    put("b.parquet", 50)
    put("c.parquet", 100)
    assert "2 new" in table.tend(dry_run=True).steps[0].done
    done = steps(table.tend())
    assert done["refresh"].done == "indexed 2 new, 0 changed and 0 removed files"
    assert done["sketches"].done == "completed them for 2 files"
    assert len(table.plan("uid = 'u120'").paths) == 1
    assert {step.done for step in table.tend().steps} == {"nothing was due"}
    assert np.array_equal(
        sorted(path.name for path in tmp_path.glob("*.parquet")), ["a.parquet", "b.parquet", "c.parquet"]
    )


def test_the_command_says_what_it_did_and_what_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grown(tmp_path / "t")
    assert main(["tend", str(tmp_path / "t"), "--max-bytes", "1kB"]) == 0
    printed = capsys.readouterr().out
    assert "left: " in printed
    assert "since max_bytes is 1000 B" in printed
    assert main(["tend", str(tmp_path / "t"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [step["name"] for step in facts["steps"]] == ["sketches", "optimize", "vacuum"]
    assert facts["steps"][1]["receipt"]["files_rewritten"] > 0
