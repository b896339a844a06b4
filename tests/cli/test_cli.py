"""The command line: facts on stdout, errors in words on stderr, exit codes 0, 1, 2, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests import ROOT
from zskip.cli import demo
from zskip.cli.main import main
from zskip.cli.terminal import as_typed


@pytest.fixture(scope="module")
def source(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Every fifth of the flights, by date."""
    path = tmp_path_factory.mktemp("source") / "flights.parquet"
    rows = pq.read_table(fixtures / "flights.parquet").sort_by("date")
    pq.write_table(rows.take(pa.array(range(0, len(rows), 5))), path)
    return str(path)


@pytest.fixture(scope="module")
def flights(source: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 20 files by date and distance; no test here changes it."""
    path = tmp_path_factory.mktemp("lake") / "flights"
    assert main(["write", source, str(path), "--by", "date,distance", "--files", "20"]) == 0
    return path


def facts(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """What a command prints with --json; its exit code is 0, and stderr stays empty when it is no terminal."""
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    found = json.loads(printed.out)
    assert isinstance(found, dict)
    return found


def test_plan_prints_facts_or_paths_or_reasons(flights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    predicate = "date = DATE '2013-07-04'"
    answer = facts(capsys, "plan", str(flights), predicate)
    paths = answer["paths"]
    assert isinstance(paths, list)
    assert 0 < len(paths) < 20
    assert main(["plan", str(flights), predicate, "--paths"]) == 0
    printed = capsys.readouterr().out.split()
    assert printed == paths
    assert all(Path(path).exists() for path in printed)
    assert main(["plan", str(flights), predicate, "--explain"]) == 0
    assert "date" in capsys.readouterr().out
    assert main(["plan", str(flights), predicate, "--file", Path(paths[0]).name]) == 0
    assert "date" in capsys.readouterr().out


def test_query_prints_rows(flights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    predicate = "date = DATE '2013-07-04' AND carrier = 'UA'"
    rows = pq.read_table(flights).to_pandas()
    expected = int(((rows["date"].astype(str) == "2013-07-04") & (rows["carrier"] == "UA")).sum())
    capsys.readouterr()
    assert main(["query", str(flights), predicate, "--csv", "--columns", "flight,dest"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "flight,dest"
    assert len(lines) - 1 == expected > 1
    assert main(["query", str(flights), predicate, "--json", "--limit", "1"]) == 0
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["carrier"] for one in objects] == ["UA"]
    statement = f"SELECT count(*) AS n FROM '{flights}' WHERE {predicate}"
    assert main(["query", statement, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"n": expected}
    assert main(["query", str(flights), predicate]) == 0
    assert "20 columns" in capsys.readouterr().out
    for statement in (f"SUMMARIZE '{flights}'", f"DESCRIBE '{flights}'"):
        assert main(["query", statement]) == 0
        assert "carrier" in capsys.readouterr().out
    capsys.readouterr()
    statement = f"SELECT count(*) AS n FROM '{flights}' WHERE distance = $d AND origin = $o"
    assert main(["query", statement, "--param", "d=733", "--param", "o=LGA", "--json"]) == 0
    by_path = "distance = 733 AND origin = 'LGA'"
    assert json.loads(capsys.readouterr().out)["n"] == zskip.open(flights).plan(by_path).count() > 0


def test_info_and_history(flights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = facts(capsys, "info", str(flights), "--clustering")
    assert answer["rows"] == 10_000
    assert answer["clustering"]
    capsys.readouterr()
    assert main(["history", str(flights), "--json"]) == 0
    assert [entry["version"] for entry in json.loads(capsys.readouterr().out)] == [1]
    assert main(["info", str(flights)]) == 0
    assert "10,000" in capsys.readouterr().out
    assert main(["history", str(flights)]) == 0
    titles, line = capsys.readouterr().out.splitlines()[:2]
    assert titles.split()[:2] == ["version", "time"]
    assert line.split()[0] == "1"
    assert " write " in line
    assert main(["history", str(flights), "--json", "--limit", "0"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_doctor_speaks_to_people(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = pq.read_table(source, columns=["date", "distance"])
    pq.write_table(rows, tmp_path / "x.parquet", write_statistics=["distance"])
    capsys.readouterr()
    assert main(["doctor", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "Diagnosis(" not in printed
    assert "10,000" in printed
    (date,) = (line for line in printed.splitlines() if line.startswith("date "))
    assert date.split()[2] == "0%"
    assert "date: no usable bounds. `zskip index --deep`" in printed


def test_the_life_of_a_table(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "t")
    answer = facts(capsys, "write", source, path, "--by", "date,carrier", "--files", "8")
    assert answer["rows"] == 10_000
    assert answer["by"] == ["date", "carrier"]
    assert answer["files"] == len(list((tmp_path / "t").glob("*.parquet")))
    assert main(["append", source, path]) == 0
    assert zskip.open(path).plan("TRUE").to_arrow().num_rows == 20_000
    assert main(["delete", path, "date >= $day", "--param", "day=2013-07-01"]) == 0
    left = zskip.open(path).plan("TRUE").to_arrow().num_rows
    assert 0 < left < 20_000
    assert main(["optimize", path, "--dry-run"]) == 0
    assert main(["optimize", path]) == 0
    assert zskip.open(path).plan("TRUE").to_arrow().num_rows == left
    engines = ["--engine", "duckdb", "--engine", "arrow"]  # Spark, where a session is there, cannot say all of them
    assert main(["verify", path, "--predicates", "2", *engines]) == 0
    assert main(["restore", path, "1"]) == 0
    assert zskip.open(path).plan("TRUE").to_arrow().num_rows == 10_000
    before = set(tmp_path.rglob("*.parquet"))
    assert main(["vacuum", path, "--dry-run"]) == 0
    assert set(tmp_path.rglob("*.parquet")) == before
    assert main(["vacuum", path]) == 0


def test_index_reads_what_is_there(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    rows = pq.read_table(source)
    for number in range(4):
        pq.write_table(rows.slice(number * 2500, 2500), folder / f"{number}.parquet")
    before = {path: path.read_bytes() for path in folder.glob("*.parquet")}
    answer = facts(capsys, "index", str(folder))
    assert (answer["files"], answer["rows"]) == (4, 10_000)
    assert {path: path.read_bytes() for path in folder.glob("*.parquet")} == before
    answer = facts(capsys, "plan", str(folder), "date = DATE '2013-01-01'")
    assert answer["paths"] == [str(folder / "0.parquet")]
    pq.write_table(rows.slice(0, 1), folder / "4.parquet")
    assert facts(capsys, "index", str(folder), "--refresh")["files"] == 5


def test_demo(
    fixtures: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pq.read_table(fixtures / "zeek.parquet")
    pq.write_table(rows.take(pa.array(range(0, len(rows), 10))), tmp_path / "zeek.parquet")
    monkeypatch.setattr(demo, "demo_data", lambda: str(tmp_path / "zeek.parquet"))
    answer = facts(capsys, "demo", "--files", "20")
    assert answer["wrong"] == []
    lookups = answer["lookups"]
    assert isinstance(lookups, list)
    assert sum(lookup["rows"] for lookup in lookups) > 500
    # One row in ten of the samples is here: the one of AXFR need not be.
    empty = {lookup["name"] for lookup in lookups if not lookup["rows"]}
    assert {"a host never seen"} <= empty <= {"a host never seen", "not clustered: qtype_name"}
    by_sort, ours = ([column["skipped"] for column in columns.values()] for columns in answer["clustering"].values())
    assert sum(ours) > sum(by_sort) + 0.5
    assert main(["demo", "--files", "10", "--keep", str(tmp_path / "to keep")]) == 0
    printed = capsys.readouterr().out
    program, *arguments = shlex.split(printed.partition("Try: ")[2])
    assert (program, main(arguments)) == ("zskip", 0)
    assert "one host" in printed
    assert re.search(r"rows found +files read +bytes read", printed)
    assert max(len(line) for line in printed.partition("\nThe table is")[0].splitlines()) <= 80


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "Start with: zskip demo" in capsys.readouterr().out


def test_what_a_delete_would_remove(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "t")
    table = zskip.write(pa.table({"a": range(100)}), path, by="a", files=10)
    for predicate in ("a < 25", "a < 0", "a >= 0"):
        would = facts(capsys, "delete", path, predicate, "--dry-run")
        assert table.refresh().version == 1
        copied = shutil.copytree(path, tmp_path / "copy", dirs_exist_ok=True)
        done = facts(capsys, "delete", str(copied), predicate)
        shutil.rmtree(copied)
        assert would == {**done, "version": 1, "dry_run": True}


@pytest.mark.parametrize("files", [1, 5, 30])
def test_a_long_list_has_a_line_for_each_of_its_first_members(
    files: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "t")
    zskip.write(pa.table({"a": [0, 1] * 30, "b": range(60)}), path, by="b", files=files)
    for arguments, listed in (
        (["plan", path, "a = 1"], "paths"),
        (["delete", path, "a = 1", "--dry-run"], "rewritten"),
    ):
        assert main(arguments) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if ".parquet" in line or "more" in line]
        assert [line.count(".parquet") for line in lines] == ([1] * files if files <= 10 else [1] * 10 + [0])
        assert lines[-1].endswith("… 20 more (--json prints all)" if files == 30 else ".parquet")
        assert len(facts(capsys, *arguments)[listed]) == files


def test_batches_overwrites_and_sketches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", "y"]}), tmp_path / "new.parquet")
    source, path = str(tmp_path / "new.parquet"), str(tmp_path / "t")
    zskip.write(pa.table({"a": range(100), "b": ["z"] * 100}), path, by="a", files=10)
    assert facts(capsys, "append", source, path, "--batch", "loader:7")["rows"] == 2
    assert facts(capsys, "append", source, path, "--batch", "loader:7")["rows"] == 0
    assert facts(capsys, "sketch", path, "b=values")["sketches"] == ["values of b"]
    assert facts(capsys, "sketch", path, "--drop", "b")["sketches"] == []
    assert facts(capsys, "overwrite", source, path, "--by", "b")["rows"] == 2
    assert zskip.open(path).columns == ["a", "b"]


def test_attach_keeps_the_index_of_a_delta_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(str(tmp_path / "t"), pa.table({"a": [1]}))
    assert facts(capsys, "attach", str(tmp_path / "t"))["rows"] == 1
    assert (tmp_path / "t" / "_zskip").is_dir()


def test_explore_opens_its_page(flights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr("webbrowser.open", shown.append)
    page = tmp_path / "a page.html"
    assert main(["explore", str(flights), "--output", str(page), "--open"]) == 0
    assert shown == [page.as_uri()]


def test_a_hive_folder_in_an_error_is_no_option() -> None:
    """What the user calls by= is a folder of theirs."""
    assert as_typed('"/lake/by=5/x" and by= differ', {"by": "--by"}) == '"/lake/by=5/x" and --by differ'


def test_no_permission(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o500)
    if os.access(tmp_path, os.W_OK):
        pytest.skip("this user may write everywhere")
    assert main(["write", source, str(tmp_path / "t"), "--by", "date"]) == 1
    assert "denied" in capsys.readouterr().err


def test_interrupt_leaves_no_table(tmp_path: Path) -> None:
    """Ctrl-C between the first file and the last of many: exit code 130, no table, no spilled rows."""
    spill = tmp_path / "spill"
    spill.mkdir()
    big = tmp_path / "big.csv"
    big.write_text("x,y\n" + "\n".join(f"{n % 977},{n}" for n in range(50_000)))
    command = [sys.executable, "-m", "zskip", "write", str(big), str(tmp_path / "t"), "--by", "x,y", "--files", "700"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(spill)}
    with subprocess.Popen(
        [*command, "--memory-limit", "64MB"], env=environment, stderr=subprocess.PIPE, text=True
    ) as child:
        deadline = time.monotonic() + 60
        while child.poll() is None and time.monotonic() < deadline and not list((tmp_path / "t").rglob("*")):
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        _, message = child.communicate(timeout=60)
    assert child.returncode == 130, message
    assert "Traceback" not in message
    assert list(spill.rglob("*")) == []
    assert main(["plan", str(tmp_path / "t"), "x = 1"]) == 1


def test_a_closed_pipe_is_no_error(flights: Path) -> None:
    command = f"{sys.executable} -m zskip plan {flights} TRUE --paths | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_plot_draws_boxes_and_depths(flights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    boxes, depth = tmp_path / "boxes.svg", tmp_path / "depth.svg"
    assert main(["plot", str(flights), "date", "distance", "--where", "distance = 1089", "--output", str(boxes)]) == 0
    assert capsys.readouterr().out.split() == ["wrote", str(boxes)]
    assert "of 20 read" in boxes.read_text(encoding="utf-8")
    assert main(["plot", str(flights), "--depth", "--output", str(depth)]) == 0
    assert "units that a look-up reads" in depth.read_text(encoding="utf-8")


def test_csv_holds_what_arrow_has_no_text_for(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Infinite times were other times, and lists an error."""
    values = (
        "'infinity'::TIMESTAMP AS a, '-infinity'::TIMESTAMPTZ AS b, [1, NULL] AS a, NULL AS c, '' AS d, 'x,\"é' AS e"
    )
    assert main(["query", f"SELECT {values}", "--csv"]) == 0
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert lines[1] == 'infinity,-infinity,"[1, NULL]",,"","x,""é"'


def test_info_prints_columns_by_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`dep_time` stood there as `dep time`, which no query finds."""
    rows = pa.table({"dep_time": range(100), "tail_num": [str(n) for n in range(100)]})
    zskip.write(rows, tmp_path / "t", by=["dep_time", "tail_num"], files=4)
    assert main(["info", str(tmp_path / "t"), "--clustering"]) == 0
    printed = capsys.readouterr().out
    assert "dep_time" in printed
    assert "tail_num" in printed
    assert "dep time" not in printed
    assert "units   average     worst  skipped    limit  column" in printed
    assert "(" not in printed.partition("units")[2]
    assert "tail num" not in printed
