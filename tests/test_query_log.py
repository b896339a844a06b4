"""The query log: what readers ask, on request; as a workload, and for a layout that no longer serves."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake

import zskip
from zskip.cli.main import main
from zskip.errors import InvalidOption
from zskip.tablelog import query_log
from zskip.writer.backend import LOCAL


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> str:
    dice = np.random.default_rng(1)
    rows = {name: dice.integers(0, 10_000, 40_000) for name in ("item", "user", "price")}
    return zskip.write(pa.table(rows), tmp_path_factory.mktemp("kept") / "t", by="item", files=40).uri


@pytest.fixture
def table(kept: str, tmp_path: Path) -> zskip.Table:
    return zskip.open(shutil.copytree(kept, tmp_path / "t"))


READERS: dict[str, Callable[[zskip.Table], object]] = {
    "plan": lambda table: table.plan("user < 50 AND item = 7").count(),
    "sql": lambda table: zskip.sql(f"SELECT * FROM '{table.uri}' WHERE user < 50 AND item = 7").fetchall(),
    "the same sql, twice": lambda table: [READERS["sql"](table) for _ in range(2)],
    "dataset": lambda table: table.dataset().count_rows(filter=(pc.field("user") < 50) & (pc.field("item") == 7)),
}


@pytest.mark.parametrize("name", READERS)
def test_what_readers_ask_is_logged_on_request(name: str, table: zskip.Table, cache: Path) -> None:
    READERS[name](table)
    assert not list(cache.rglob("*.jsonl"))
    table.query_log.start()
    READERS[name](table)
    (first, *more) = table.query_log.read()
    assert len(more) == name.endswith("twice")
    assert (first.columns, first.files, first.kept, first.matched) == (["item", "user"], 40, 1, 0)
    assert 0 < first.rows < 0.05
    (file,) = cache.rglob("*.jsonl")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert set(table.logged_queries()) == {first.condition}
    assert table.plan(first.condition).paths == table.plan("user < 50 AND item = 7").paths
    table.query_log.stop()
    READERS[name](table)
    assert not table.query_log.is_on
    with pytest.raises(InvalidOption, match=r"query_log\.start"):
        table.logged_queries()


@pytest.mark.parametrize("files", [1, 20, 60])
def test_statements_that_no_file_could_skip_are_logged(files: int, tmp_path: Path) -> None:
    """Those were not planned over few files, nor when they came again, so that `tend` praised the layout."""
    dice = np.random.default_rng(1)
    rows = {"id": range(2_000), "u": dice.integers(0, 10**6, 2_000), "s": ["v1", "v2"] * 1_000}
    table = zskip.write(pa.table(rows), tmp_path / "u", by="id", files=files)
    table.query_log.start()
    for condition in ("u = 77", "u BETWEEN 5 AND 9", "s = 'v1'", "id = 5"):
        for _ in range(3):
            zskip.sql(f"SELECT count(*) FROM '{table.uri}' WHERE {condition}").fetchall()
    assert len(table.query_log.read()) == 12


def test_a_log_keeps_its_newest_half(table: zskip.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_log, "_MOST_BYTES", 2_000)
    table.query_log.start()
    for user in range(100):
        table.plan(f"user = {user}")
    kept = [each.condition for each in table.query_log.read()]
    assert 5 < len(kept) < 30
    assert kept[-1] == '"user" = 99'
    assert kept == [f'"user" = {user}' for user in range(100 - len(kept), 100)]


def test_processes_write_one_log(table: zskip.Table) -> None:
    table.query_log.start()
    asking = """
import sys, zskip
table = zskip.open(sys.argv[1])
for user in range(80):
    table.plan(f"user = {user}")
    print(user, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", asking, table.uri], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        for user in range(80):
            table.plan(f"user = {user}")
        other.stdout.read()
    assert other.returncode == 0
    assert len(table.query_log.read()) == 160


def test_a_damaged_line_and_a_column_that_is_gone_are_left_out(table: zskip.Table, cache: Path) -> None:
    table.query_log.start()
    table.plan("user = 1")
    (file,) = cache.rglob("*.jsonl")
    line = file.read_text()
    file.write_text('{"condition": \n' + line.replace('\\"user\\"', "visitor") + line + line[:20])
    found = table.logged_queries()
    assert list(found) == ['"user" = 1']
    assert "1 left out" in str(found)


def test_a_log_that_cannot_be_written_fails_no_query(table: zskip.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.query_log.start()

    def full(*given: object) -> int:
        raise OSError("No space left on device")

    monkeypatch.setattr(query_log.os, "write", full)
    assert table.plan("user = 1").count() == len(table.to_arrow().filter(pc.field("user") == 1))


@pytest.mark.slow
def test_tend_says_by_how_much_the_layout_no_longer_serves(table: zskip.Table) -> None:
    table.query_log.start()
    assert table.tend().steps[0].done == "too few plans were logged to judge it: 0 of 20"
    for user in range(0, 10_000, 250):
        table.plan(f"user = {user}")
    version, rows = table.version, table.count()
    first = table.tend().steps[0]
    assert (first.name, table.version) == ("layout", version)
    assert first.done.startswith("the 40 logged plans read 97.6%, and would read ")
    assert first.done.endswith("by user")
    assert first.left is not None
    assert first.left.endswith("tend(recluster=True)")
    assert table.tend(recluster=True, max_bytes=1000).steps[0].left is not None
    assert "would lay" in table.tend(recluster=True, dry_run=True).steps[0].done
    assert table.version == version
    done = table.tend(recluster=True).steps[0]
    assert (done.left, table.version) == (None, version + 1)
    assert (table.clustering()["user"].skipped > 0.9, table.count()) == (True, rows)
    assert table.tend().steps[0].done.startswith("serves the 40 logged plans")
    table.query_log.stop()
    assert [step.name for step in table.tend().steps] == ["sketches", "optimize", "vacuum"]


@pytest.mark.slow
def test_a_new_layout_is_written_by_the_session_and_within_the_time(
    table: zskip.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.query_log.start()
    for user in range(0, 10_000, 250):
        table.plan(f"user = {user}")
    version, writes = table.version, []

    def write(*given: Any) -> Any:
        writes.append(given)
        return LOCAL.write(*given)

    session = object()
    of_session = {session: replace(LOCAL, write=write), None: LOCAL}
    monkeypatch.setattr("zskip.writer.backend.backend_of", lambda session, source=None: of_session[session])
    unjudged = table.tend(recluster=True, max_seconds=0, session=session).steps[0]
    assert (unjudged.done, unjudged.left) == ("was not judged", "the time was over")

    real = zskip.Table.advise
    monkeypatch.setattr(
        zskip.Table, "advise", lambda *given, **named: replace(real(*given, **named), rewrite_seconds=4000.0)
    )
    short = table.tend(recluster=True, max_seconds=3000, session=session).steps[0]
    assert short.left is not None
    assert short.left.endswith("since writing it takes about 4,000 seconds, more than are left")
    assert (table.version, writes) == (version, [])
    done = table.tend(recluster=True, max_seconds=5000, session=session).steps[0]
    assert (done.left, table.version, len(writes)) == (None, version + 1, 1)


def test_tend_does_its_work_beside_a_log_of_other_columns(table: zskip.Table) -> None:
    table.query_log.start()
    for user in range(30):
        table.plan(f"user = {user}")
    table.overwrite(pa.table({"visitor": range(100)}), by="visitor")
    assert table.tend().steps[0].done == "too few plans were logged to judge it: 0 of 20"
    for user in range(30):
        table.plan(f"visitor = {user}")
    table.delete("visitor >= 0")
    assert table.tend().steps[0].done == "the table has no rows"


@pytest.mark.slow
def test_the_command_line_logs_shows_and_advises(table: zskip.Table, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", table.uri]) == 0
    assert "The log is not on." in capsys.readouterr().out
    assert main(["log", table.uri, "--start"]) == 0
    assert "No plan was logged." in capsys.readouterr().out
    for user in range(30):
        table.plan(f"user IN ({user}, {user + 1}, 9999)")
    table.plan("item < 10")
    assert main(["log", table.uri]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "31 plans"
    share, kept, matched, read, columns = lines[2].split()
    assert (share, matched, columns) == ("96.8%", "0.00%", "user")
    assert kept > "70%" < read
    assert main(["advise", table.uri]) == 0
    assert "31 queries of the log are on this table" in capsys.readouterr().out
    assert main(["tend", table.uri, "--dry-run", "--recluster"]) == 0
    assert "would lay it out so" in capsys.readouterr().out
    assert main(["log", table.uri, "--stop", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"on": False, "plans": []}
    assert main(["advise", table.uri]) == 2
    assert "query_log.start" in capsys.readouterr().err


def test_another_table_at_the_same_place_has_a_log_of_its_own(table: zskip.Table) -> None:
    table.query_log.start()
    table.plan("user = 1")
    table.append(pa.table({"item": [1], "user": [2], "price": [3]}))
    assert len(zskip.open(table.uri).query_log.read()) == 1
    shutil.rmtree(table.uri)
    anew = zskip.write(pa.table({"other": range(100)}), table.uri, by="other")
    assert not anew.query_log.is_on
    anew.query_log.start()
    anew.plan("other = 1")
    assert [each.columns for each in anew.query_log.read()] == [["other"]]


def test_a_table_of_another_format_keeps_its_log_without_its_side_car(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "d", pa.table({"id": range(10)}))
    zskip.open(tmp_path / "d").query_log.start()
    write_deltalake(tmp_path / "d", pa.table({"id": range(10)}), mode="append")
    assert zskip.open(tmp_path / "d").query_log.is_on
