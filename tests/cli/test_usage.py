"""What a newcomer meets first: hints for mistyped names, completion in shells, exit codes, JSON, progress."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

import zskip
from tests import ROOT
from zskip.cli import terminal
from zskip.cli.main import EXIT_CODES, main, parser
from zskip.errors import UnreadableFile


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four files of 100 rows by a."""
    path = tmp_path_factory.mktemp("lake") / "t"
    zskip.write(pa.table({"a": np.arange(400), "b": np.arange(400) % 7}), path, by=["a"], files=4)
    return path


def test_queries_begin_as_sql_allows(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spaced = table.parent / "a folder"
    shutil.copytree(table, spaced)
    texts = (f"-- a note\nSELECT count(*) FROM '{table}'", f"(SELECT count(*) FROM '{table}')", "VALUES (400)")
    for arguments in [[text] for text in texts] + [[str(spaced), "a = 3", "--columns", "a"]]:
        assert main(["query", *arguments, "--csv"]) == 0, arguments
        assert capsys.readouterr().out.splitlines()[1] == ("3" if len(arguments) > 1 else "400")


@pytest.mark.parametrize("form", ["--limit=40", "--csv", "--json"])
def test_a_query_names_a_file_that_is_gone(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t"
    gone = Path(zskip.write(pa.table({"a": range(400)}), path, by=["a"], files=4).plan("a = 250").paths[0])
    gone.unlink()
    for arguments in ([str(path), "a >= 0"], [f"SELECT sum(a) FROM '{path}'"]):
        assert main(["query", *arguments, form]) == 1
        printed = capsys.readouterr()
        assert f"1 of the 4 files that were planned of {path} are gone, such as {gone.name}." in printed.err
        assert printed.out == ""


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        ("query t --limit 2 a=3", {"path": "t", "limit": 2, "predicate": "a=3"}),
        ("query --limit -1 t", {"path": "t", "limit": -1, "predicate": None}),
        ("query t -5", {"path": "t", "predicate": "-5"}),
        ("query t --limit 2 -- --a=3", {"path": "t", "limit": 2, "predicate": "--a=3"}),
        ("query -- -t -a", {"path": "-t", "predicate": "-a"}),
        ("write --by a -- x -t", {"source": ["x"], "path": "-t", "by": ["a"]}),
        ("append x --json y t", {"source": ["x", "y"], "path": "t"}),
        ("verify t a=1 --all b=2", {"path": "t", "predicate": ["a=1", "b=2"], "all": True}),
        ("plot t a --output x.svg b", {"columns": ["a", "b"], "output": Path("x.svg")}),
    ],
)
def test_options_may_stand_between_arguments(arguments: str, parsed: dict[str, object]) -> None:
    given, unknown = parser().parse_known_args(arguments.split())
    assert not unknown
    assert {name: getattr(given, name) for name in parsed} == parsed


def test_a_workload_is_read_before_the_table(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zskip.Table, "_sample", lambda *_: pytest.fail("read the table"))
    for advise in (zskip.open(table).advise, lambda queries: zskip.advise(table, queries)):
        with pytest.raises(UnreadableFile, match=r'"none\.sql" cannot be read'):
            advise("none.sql")


# How each shell is asked what it would complete.
ASKED = {
    "bash": "source {script}; COMP_WORDS=({line}); COMP_CWORD={last}; _shtab_zskip; printf '%s\\n' ${{COMPREPLY[*]}}",
    "fish": "source {script}; complete -C '{line}'",
}


@pytest.mark.parametrize("shell", ASKED)
@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("zskip pl", {"plan", "plot"}),
        ("zskip plan --exp", {"--explain"}),
        ("zskip ver", {"verify"}),
        ("zskip write --layout t", {"tiles", "tree"}),
        ("zskip advise --weigh b", {"bytes"}),
    ],
)
def test_a_shell_completes(
    shell: str, line: str, completed: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"There is no {shell} here")
    assert main(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out, encoding="utf-8")
    asked = ASKED[shell].format(script=script, last=line.count(" "), line=line)
    done = subprocess.run([shell, "-c", asked], capture_output=True, text=True, timeout=60)
    assert {answer.split("\t")[0].strip() for answer in done.stdout.split("\n") if answer.strip()} == completed, (
        done.stderr
    )


def test_zsh_takes_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    (tmp_path / "_zskip").write_text(capsys.readouterr().out, encoding="utf-8")
    assert "verify:" in (tmp_path / "_zskip").read_text(encoding="utf-8")
    if shutil.which("zsh") is None:
        pytest.skip("There is no zsh here")
    asked = f"fpath=({tmp_path} $fpath); autoload -U compinit; compinit -u -d {tmp_path}/dump; print $_comps[zskip]"
    done = subprocess.run(["zsh", "-f", "-c", asked], capture_output=True, text=True, timeout=60)
    assert done.stdout == "_zskip\n", done.stderr
    subprocess.run(["zsh", "-f", "-n", str(tmp_path / "_zskip")], check=True)


def test_help_fits_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    top = parser()
    (commands,) = (action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    assert len(commands.choices) > 20
    for each in (top, *commands.choices.values()):
        assert [line for line in each.format_help().splitlines() if len(line) > 80] == [], each.prog
    assert "duckdb, spark, or another of" in commands.choices["query"].format_help()


def test_each_command_has_examples_that_it_takes() -> None:
    top = parser()
    (commands,) = (action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    for name, command in commands.choices.items():
        examples = [line for line in (command.epilog or "").splitlines() if line.startswith("zskip ")]
        assert examples, name
        for example in examples:
            typed = shlex.split(re.split(r" [|>] ", example)[0])
            given, unknown = top.parse_known_args(typed[1:])
            assert (typed[1], given.own_parser.prog, unknown) == (name, f"zskip {name}", []), example


def test_the_exit_codes_are_those_of_the_docs() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| (\d+) \| (.+?) \|$", page, re.MULTILINE))
    printed = dict(re.findall(r"^  (\d+)\s+(.+)$", EXIT_CODES.replace("\n       ", " "), re.MULTILINE))
    assert {code: text.replace("`", "") for code, text in documented.items()} == printed
    assert sorted(printed) == ["0", "1", "130", "2"]


def test_verify_that_finds_a_defect_is_one(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "t"
    shutil.copytree(table, copy)
    assert main(["verify", str(copy), "--predicates", "1"]) == 0
    assert "Every proof held." in capsys.readouterr().out
    assert main(["verify", str(copy), "--predicates", "0"]) == 0
    assert "Every proof held." not in capsys.readouterr().out  # none was checked
    next(copy.glob("*.parquet")).unlink()
    assert main(["verify", str(copy), "--predicates", "0"]) == 1
    assert "MISSING" in capsys.readouterr().out


# When Ctrl-C comes: what the process does before it runs the command.
INTERRUPTS = {
    "during the imports": """
class Finder:
    def find_spec(self, name, path, target=None):
        if name == "zskip.cli.read_commands":
            interrupt()
sys.meta_path.insert(0, Finder())""",
    "while DuckDB works": """
from zskip.cli import read_commands
show = read_commands.show
def shown(relation):
    threading.Timer(0.2, interrupt).start()
    show(relation)
read_commands.show = shown""",
    "at the end": "import atexit; atexit.register(interrupt)",
}


@pytest.mark.parametrize("when", INTERRUPTS)
def test_an_interrupt_is_130_whenever_it_comes(when: str) -> None:
    prepared = "import os, runpy, signal, sys, threading\ndef interrupt(): os.kill(os.getpid(), signal.SIGINT)\n"
    seconds = "while" in when
    statement = f"SELECT count(*) FROM range({2 * 10**8 if seconds else 1}) t(i) WHERE hash(i) % 7 = 3"
    child = prepared + INTERRUPTS[when] + "\nrunpy.run_module('zskip', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", child, "query", statement],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr


def test_rows_with_two_columns_of_one_name_print_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", "SELECT 1 AS a, 2 AS a, 3 AS a_2, [4] AS a", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"a": 1, "a_3": 2, "a_2": 3, "a_4": [4]}


def test_columns_of_rows_may_be_quoted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zskip.write(pa.table({"a,b": [1], "id.h": [2], 'c"d': [3], "e": [4]}), tmp_path / "t", by="e")
    names = 'e,id.h,"a,b","c""d"'
    assert main(["query", str(tmp_path / "t"), "--columns", names, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"e": 4, "id.h": 2, "a,b": 1, 'c"d': 3}


def test_every_command_prints_json(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command but `completion` takes --json; those that the other tests do not run print one JSON document."""
    commands = next(action for action in parser()._actions if action.dest == "COMMAND" or action.choices).choices
    assert commands is not None
    assert [name for name, one in commands.items() if "--json" not in one._option_string_actions] == ["completion"]
    named, statement = str(table), f"SELECT count(*) FROM '{table}' WHERE a = 7"
    picture, page = str(tmp_path / "t.svg"), str(tmp_path / "t.html")
    found = {}
    for arguments in (
        ["plan", named, "a = 7", "--file", "file"],
        ["query", named, "a = 7", "--explain"],
        ["query", statement, "--explain"],
        ["plot", named, "a", "b", "--output", picture],
        ["explore", named, "--where", "a = 7", "--output", page],
    ):
        if "--file" in arguments:
            arguments[-1] = zskip.open(table).plan("a = 7").paths[0].rpartition("/")[2]
        assert main([*arguments, "--json"]) == 0
        found[arguments[0], "SELECT" in arguments[1]] = json.loads(capsys.readouterr().out)
    assert found["plan", False]["file"]
    assert found["query", False]["skipped"]["files"] == {"skipped": 3, "total": 4}
    assert found["query", True][0]["skipped"]["files"] == {"skipped": 3, "total": 4}
    assert found["plot", False] == {"output": picture, "bytes": Path(picture).stat().st_size}
    assert found["explore", False]["output"] == page


def test_progress_counts(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library reports files and predicates; on a terminal the command shows the count."""
    reports: list[tuple[str, int, int | None]] = []
    raw = tmp_path / "raw"
    raw.mkdir()
    for file in table.glob("*.parquet"):
        shutil.copy(file, raw)
    indexed = zskip.index(raw, deep=True, progress=lambda *report: reports.append(report))
    assert ("footers", 4, 4) in reports
    indexed.verify(random=2, progress=lambda *report: reports.append(report))
    assert [report for report in reports if report[0] == "verify"] == [("verify", 0, 2), ("verify", 1, 2)]
    shown = io.StringIO()
    monkeypatch.setattr(terminal, "Terminal", lambda **_: Console(file=shown, force_terminal=True, width=120))
    with terminal.working("counting") as progress:
        progress("footers", 3, 1000)
    assert "footers 3 of 1,000" in shown.getvalue()


def test_floats_that_json_lacks_are_strings(capsys: pytest.CaptureFixture[str]) -> None:
    statement = "SELECT 'NaN'::DOUBLE AS y, '-inf'::DOUBLE AS z, {'a': ['inf'::FLOAT, 1.5]} AS s"
    assert main(["query", statement, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"y": "NaN", "z": "-Infinity", "s": {"a": ["Infinity", 1.5]}}


def test_times_that_python_lacks_are_the_text_of_duckdb(capsys: pytest.CaptureFixture[str]) -> None:
    values = {
        "DATE '0044-01-01 (BC)'": "0044-01-01 (BC)",
        "TIMESTAMP '12000-01-02 03:04:05'": "12000-01-02 03:04:05",
        "TIMESTAMPTZ '0044-01-01 (BC) 00:00:00+00'": "0044-01-01 (BC) 01:00:00+01",
        "'-infinity'::TIMESTAMPTZ": "-infinity",
        "[DATE '2020-01-01', 'infinity', NULL]": ["2020-01-01", "infinity", None],
        "[DATE '2020-01-01', 'infinity']::DATE[2]": ["2020-01-01", "infinity"],
        "{'a': 1, 'b': [DATE '12000-01-01']}": {"a": 1, "b": ["12000-01-01"]},
        "MAP {DATE '12000-01-01': 'NaN'::DOUBLE}": [["12000-01-01", "NaN"]],
        "union_value(a := DATE '12000-01-01')": "12000-01-01",
        "NULL::DATE": None,
        "TIMESTAMP '2020-01-01'": "2020-01-01T00:00:00",
    }
    statement = "SELECT " + ", ".join(f"{sql} AS c{number}" for number, sql in enumerate(values))
    assert main(["query", statement, "--json", "--timezone", "Etc/GMT-1"]) == 0
    assert list(json.loads(capsys.readouterr().out).values()) == list(values.values())


def test_no_fact_is_left_empty(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(next(table.glob("*.parquet")), tmp_path)
    for command in (["doctor", str(tmp_path)], ["index", str(tmp_path)], ["info", str(table)]):
        assert main(command) == 0
        printed = capsys.readouterr().out
        named = re.findall(r"^(?:by|partition by|unreadable) +(.*)$", printed, re.MULTILINE)
        assert named
        assert all(named), printed


def test_a_glob_that_the_shell_expands_names_several_sources(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text(f"a\n{number}\n")
    files = sorted(map(str, tmp_path.glob("*.csv")))
    assert main(["write", *files[:2], str(tmp_path / "t"), "--by", "a"]) == 0
    assert main(["append", *files[1:], str(tmp_path / "t")]) == 0
    assert sorted(zskip.open(tmp_path / "t").to_arrow()["a"].to_pylist()) == [0, 1, 1, 2]


# --- the command line on streams that are closed, or whose encoding lacks letters ---


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("lake") / "t"
    zskip.write(pa.table({"é": ["ü", "x"]}), path, by=["é"])
    return str(path)


def in_ascii(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[str, str]:
    """What a command prints on an ASCII stdout and stderr."""
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding="ascii") for name in ("stdout", "stderr")}
    with monkeypatch.context() as patch:
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        main(arguments)
    for stream in streams.values():
        stream.flush()
    out, err = (stream.buffer.getvalue().decode("ascii") for stream in streams.values())  # type: ignore[attr-defined]
    return out, err


def test_letters_that_stdout_lacks_are_escaped(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    box, _ = in_ascii(monkeypatch, "query", written, "é = 'ü'")
    assert box.startswith("+---")
    assert r"| \xfc" in box
    rows, _ = in_ascii(monkeypatch, "query", written, "é = 'ü'", "--json")
    assert json.loads(rows) == {"é": "ü"}
    facts, _ = in_ascii(monkeypatch, "info", written, "--json")
    assert json.loads(facts)["by"] == ["é"]
    _, error = in_ascii(monkeypatch, "plan", written, "ö = 1")
    assert error.startswith(r'zskip: There is no column "\xf6".')


@pytest.mark.parametrize("arguments", [["query", "TRUE"], ["info"], ["info", "--json"], ["plan", "TRUE", "--paths"]])
def test_a_closed_stdout_discards_what_is_printed(
    arguments: list[str], written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, *others = arguments
    monkeypatch.setattr(sys, "stdout", None)
    assert main([command, written, *others]) == 0


def test_a_closed_stderr_keeps_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert main(["info", str(tmp_path / "nowhere")]) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        "query {} TRUE",
        "query {} TRUE --csv",
        "info {} --clustering",
        "info {} --json",
        "history {}",
        "plan {} TRUE --explain",
        "doctor {}",
        "verify {} --predicates 1",
        "completion fish",
    ],
)
def test_a_reader_that_is_gone_is_no_error(arguments: str, written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `zskip info t | head -1`, for every way in which commands print."""
    reader, writer = os.pipe()
    os.close(reader)
    with monkeypatch.context() as patch, open(writer, "w", encoding="utf-8") as stream:
        patch.setattr(sys, "stdout", stream)
        assert main(arguments.format(written).split()) == 0


def test_an_error_whose_reader_is_gone_keeps_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with monkeypatch.context() as patch, open(writer, "w", encoding="utf-8") as stream:
        patch.setattr(sys, "stderr", stream)
        assert main(["query", str(tmp_path / "nowhere"), "--limit", "-1"]) == 2


@pytest.mark.parametrize("columns", ["0", "1", "10", "39", "abc", "-5", ""])
def test_any_width_prints(
    columns: str, written: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["history", written]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "operation" in "\n".join(lines)
    assert 40 < max(map(len, lines)) <= (60 if columns in ("1", "10", "39") else 80)
    assert main(["plan", written, "nope = 1"]) == 1
    assert '"nope"' in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["write", "--help"])
    assert "--layout" in capsys.readouterr().out
