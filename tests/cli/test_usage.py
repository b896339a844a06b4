"""What a newcomer meets first: hints for mistyped names, completion in shells, exit codes, JSON, progress."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

import zskip
from tests import ROOT
from zskip import cli
from zskip.cli import EXIT_CODES, main, terminal


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four files of 100 rows by a."""
    path = tmp_path_factory.mktemp("lake") / "t"
    zskip.write(pa.table({"a": np.arange(400), "b": np.arange(400) % 7}), path, by=["a"], files=4)
    return path


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["advice"], 'Did you mean "advise"?'),
        (["inform", "t"], 'Did you mean "info"?'),
        (["plan", "t", "a = 1", "--explian"], 'zskip plan: error: there is no option "--explian". Did you mean "--ex'),
        (["write", "a", "b", "--layuot=tree"], 'there is no option "--layuot". Did you mean "--layout"?'),
        (["write", "a", "b", "--mode", "apend"], 'Did you mean "append"?'),
        (
            ["plan", "t", "a", "=", "1"],
            '"=" is one argument too many. Quote a predicate, and put it before the options.',
        ),
        (["plan", "t", "a = 1", "--xyzzy"], 'there is no option "--xyzzy".\n'),
        (["completion", "bsh"], 'Did you mean "bash"?'),
        (["plan", "t", "--explian"], 'there is no option "--explian". Did you mean "--explain"?'),
        (["advise", "--worklod=q.sql"], 'there is no option "--worklod". Did you mean "--workload"?'),
        (["plan", "t", "--exp"], "the following arguments are required: predicate"),
    ],
)
def test_a_mistyped_name_gets_the_nearest(arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert hint in capsys.readouterr().err


def test_a_value_of_an_option_gets_the_nearest(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write = ["write", str(table), str(table.parent / "new"), "--by", "a"]
    assert main([*write, "--layout", "tre"]) == 2
    assert 'Did you mean "tree"?' in capsys.readouterr().err


# How each shell is asked what it would complete.
ASKED = {
    "bash": "source {script}; COMP_WORDS=({line}); COMP_CWORD={last}; _shtab_zskip; printf '%s\\n' ${{COMPREPLY[*]}}",
    "fish": "source {script}; complete -C '{line}'",
}


@pytest.mark.parametrize("shell", ASKED)
@pytest.mark.parametrize(
    ("line", "completed"),
    [("zskip pl", {"plan", "plot"}), ("zskip plan --exp", {"--explain"}), ("zskip ver", {"verify"})],
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


def test_the_exit_codes_are_those_of_the_docs() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| (\d+) \| (.+?) \|$", page, re.MULTILINE))
    printed = dict(re.findall(r"^  (\d+)\s+(.+)$", EXIT_CODES, re.MULTILINE))
    assert {code: text.replace("`", "") for code, text in documented.items()} == printed
    assert sorted(printed) == ["0", "1", "130", "2"]


def test_verify_that_finds_a_defect_is_one(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "t"
    shutil.copytree(table, copy)
    assert main(["verify", str(copy), "--predicates", "1"]) == 0
    next(copy.glob("*.parquet")).unlink()
    assert main(["verify", str(copy), "--predicates", "0"]) == 1
    assert "MISSING" in capsys.readouterr().out


def test_an_interrupt_is_130(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.read_commands, "info", interrupted)
    assert main(["info", str(table)]) == 130


def test_every_command_prints_json(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command but `completion` takes --json; those that the other tests do not run print one JSON document."""
    commands = next(action for action in cli.parser()._actions if action.dest == "COMMAND" or action.choices).choices
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
    monkeypatch.setattr(terminal, "Console", lambda **_: Console(file=shown, force_terminal=True, width=120))
    with terminal.working("counting") as progress:
        progress("footers", 3, 1000)
    assert "footers 3 of 1,000" in shown.getvalue()


def test_floats_that_json_lacks_are_strings(capsys: pytest.CaptureFixture[str]) -> None:
    statement = "SELECT 'NaN'::DOUBLE AS y, '-inf'::DOUBLE AS z, {'a': ['inf'::FLOAT, 1.5]} AS s"
    assert main(["query", statement, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"y": "NaN", "z": "-Infinity", "s": {"a": ["Infinity", 1.5]}}


def test_a_column_with_a_dot_in_its_name_is_to_be_quoted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zskip.write(pa.table({"id.orig_h": ["a", "b"]}), tmp_path / "t", by=['"id.orig_h"'])
    assert main(["plan", str(tmp_path / "t"), "id.orig_h = 'a'"]) == 1
    assert "put it in quotes" in capsys.readouterr().err
