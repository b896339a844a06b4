"""What the command line refuses: the exit code, the words on stderr, and nothing on stdout or left in the folder."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests import FIXTURES
from zskip.cli.main import main


def cases() -> Iterator[tuple[int, str, str]]:
    """The exit code, the command, and what stderr says: those of `fixtures/cli/refusals.txt`."""
    text = re.sub(r"^#.*\n", "", (FIXTURES / "cli" / "refusals.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for command, code, said, below in re.findall(r"^\$ zskip (.*)\n(\d) ?(.*)\n((?:.+\n)*)", text, re.MULTILINE):
        yield int(code), command, f"{said}\n{below}" if below else said
    yield 2, "plan t 'a = 1' --xyzzy", 'there is no option "--xyzzy".\n'


CASES = list(cases())


@pytest.fixture(scope="module")
def lake(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    rows = pq.read_table(fixtures / "flights.parquet", columns=["date", "carrier", "origin", "distance"]).slice(0, 500)
    pq.write_table(rows, folder / "flights.parquet")
    pq.write_table(pa.table({"list": [[1], [2]]}), folder / "nested.parquet")
    for name in ("raw", "corrupt", "plain"):
        (folder / name).mkdir()
    pq.write_table(rows, folder / "raw" / "x.parquet")
    pq.write_table(rows, folder / "plain" / "x.parquet")
    (folder / "corrupt" / "a.parquet").write_bytes(b"PAR1 this is not what it says PAR1")
    (folder / "queries.sql").write_text("a = 1")
    zskip.index(folder / "raw")
    zskip.write(rows, folder / "flights", by=["date", "distance"], files=4)
    zskip.write(pa.table({"a": range(400), "b": [n % 7 for n in range(400)]}), folder / "t", by="a", files=4)
    zskip.write(pa.table({"n": [1, 2], "order date": [3, 4]}), folder / "lake2", by="n")
    zskip.write(pa.table({"id.orig_h": ["a", "b"]}), folder / "dots", by='"id.orig_h"')
    return folder


@pytest.mark.parametrize(("code", "command", "message"), CASES, ids=[case[1][:60] for case in CASES])
def test_it_is_refused_in_words(
    code: int,
    command: str,
    message: str,
    lake: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(lake)
    before = sorted(lake.rglob("*"))
    try:
        found: object = main(shlex.split(command))
    except SystemExit as stopped:  # by argparse
        found = stopped.code
    printed = capsys.readouterr()
    assert found == code
    assert message in printed.err
    assert printed.out == ""
    assert "Traceback" not in printed.err
    assert "LINE" not in printed.err  # of DuckDB's own errors, about a statement that was rewritten
    assert printed.err.count("^\n") <= 1
    assert sorted(lake.rglob("*")) == before


def test_a_traceback_on_request(lake: Path) -> None:
    with pytest.raises(zskip.ZskipError):
        main(["plan", str(lake / "flights"), "carier = 'UA'", "--traceback"])
