"""The command line on streams that are closed, or whose encoding lacks letters."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import zskip
from zskip.cli.main import main


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
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


def test_letters_that_stdout_lacks_are_escaped(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    box, _ = in_ascii(monkeypatch, "query", table, "é = 'ü'")
    assert box.startswith("+---")
    assert r"| \xfc" in box
    rows, _ = in_ascii(monkeypatch, "query", table, "é = 'ü'", "--json")
    assert json.loads(rows) == {"é": "ü"}
    facts, _ = in_ascii(monkeypatch, "info", table, "--json")
    assert json.loads(facts)["by"] == ["é"]
    _, error = in_ascii(monkeypatch, "plan", table, "ö = 1")
    assert error.startswith(r'zskip: There is no column "\xf6".')


@pytest.mark.parametrize("arguments", [["query", "TRUE"], ["info"], ["info", "--json"], ["plan", "TRUE", "--paths"]])
def test_a_closed_stdout_discards_what_is_printed(
    arguments: list[str], table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, *others = arguments
    monkeypatch.setattr(sys, "stdout", None)
    assert main([command, table, *others]) == 0


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
def test_a_reader_that_is_gone_is_no_error(arguments: str, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `zskip info t | head -1`, for every way in which commands print."""
    reader, writer = os.pipe()
    os.close(reader)
    with monkeypatch.context() as patch, open(writer, "w", encoding="utf-8") as stream:
        patch.setattr(sys, "stdout", stream)
        assert main(arguments.format(table).split()) == 0


def test_an_error_whose_reader_is_gone_keeps_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with monkeypatch.context() as patch, open(writer, "w", encoding="utf-8") as stream:
        patch.setattr(sys, "stderr", stream)
        assert main(["query", str(tmp_path / "nowhere"), "--limit", "-1"]) == 2


@pytest.mark.parametrize("columns", ["0", "1", "10", "39", "abc", "-5", ""])
def test_any_width_prints(
    columns: str, table: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["history", table]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "operation" in "\n".join(lines)
    assert 40 < max(map(len, lines)) <= (60 if columns in ("1", "10", "39") else 80)
    assert main(["plan", table, "nope = 1"]) == 1
    assert '"nope"' in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["write", "--help"])
    assert "--layout" in capsys.readouterr().out
