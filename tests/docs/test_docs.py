"""Every code block of README.md and docs/*.md runs.

The blocks of a page run in order, in one temporary folder that is empty at first. A `python` block shares its names
with the page's other python blocks; one with `>>>` prompts is a doctest, its answers compared. In a `console` block
the lines that begin with `$ ` are commands, and each must succeed; the rest shows what they print. A command that is
nothing but `zskip` and its arguments, with or without `> FILE`, runs in this process, which spares a second of imports;
any other, and a `bash` block, is a script in a process of its own. A block that mentions pyspark or `spark` runs only
in the page's Spark run, which leaves out the other commands.
Where a block cannot run, the line before it says why: `<!-- not run: installs packages -->`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import doctest
import inspect
import io
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import nbformat
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nbclient import NotebookClient

import zskip
from tests import ROOT
from tests.docs.predicates_page import predicates_page
from zskip.advisor import search
from zskip.cli import demo
from zskip.cli.main import main
from zskip.core import receipts
from zskip.tablelog.query_log import Asked

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(
    r"^(?:<!-- not run: (?P<excuse>.+?) -->\n)?```(?P<language>python|console|bash|sh)\b[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
OUTPUT = re.compile(r" > ([\w.-]+)(?=\s*(?:#.*)?$)")


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    excuse: str | None

    @property
    def needs_spark(self) -> bool:
        return re.search(r"\bspark\b|\bpyspark\b", self.text) is not None


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start("text")) + 1
        yield Block(page, line, found["language"], found["text"], found["excuse"])


def run_python(block: Block, names: dict[str, Any]) -> None:
    where = f"{block.page.name}:{block.line}"
    if ">>> " in block.text:
        example = doctest.DocTestParser().get_doctest(block.text, names, where, str(block.page), block.line)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        report: list[str] = []
        runner.run(example, out=report.append, clear_globs=False)
        names.update(example.globs)
        assert runner.summarize(verbose=False).failed == 0, "".join(report)
    else:
        exec(compile("\n" * (block.line - 1) + block.text, str(block.page), "exec"), names)


def run_shell(block: Block, folder: Path) -> None:
    where = f"{block.page.name}:{block.line}"
    if block.language != "console":
        run_script(block.text, folder, where)
        return
    commands = re.findall(r"^\$ ((?:.*\\\n)*.*)$", block.text, re.MULTILINE)
    assert commands, f"{where}: a console block without a command"
    for command in commands:
        arguments = None if block.needs_spark else zskip_arguments(command)
        if arguments is None:
            run_script(command, folder, where)
        else:
            printed = run_command(arguments, where)
            if target := OUTPUT.search(command):
                (folder / target[1]).write_text(printed, encoding="utf-8")


def zskip_arguments(command: str) -> list[str] | None:
    """The arguments of a command that is zskip alone; None where a shell has more to do with it.

    >>> zskip_arguments("zskip query \\"SELECT count(*) FROM 't'\\"  # all of them")
    ['query', "SELECT count(*) FROM 't'"]
    >>> zskip_arguments("zskip plan t 'a = 1' --paths | head -n 3")
    """
    command = OUTPUT.sub("", command)
    shell = re.sub(r"'[^']*'|\"(?:[^\"$`\\]|\\.)*\"|(?<=\s)#.*", "", command.replace("\\\n", " "))
    if not shell.startswith("zskip ") or re.search(r"[^\w\s./,:=@%+-]", shell):
        return None
    return shlex.split(command.replace("\\\n", " "), comments=True)[1:]


def run_command(arguments: list[str], where: str) -> str:
    """Run zskip; what it prints on stdout."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: object = main(arguments)
        except SystemExit as stop:
            code = stop.code
    assert code in (0, None), f"{where}: zskip {shlex.join(arguments)}\n{out.getvalue()}\n{err.getvalue()}"
    return out.getvalue()


def run_script(script: str, folder: Path, where: str) -> None:
    command = f'set -euo pipefail\nzskip() {{ "{sys.executable}" -m zskip "$@"; }}\n{script}'
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{where}\n{done.stdout}\n{done.stderr}"


def run_page(page: Path, folder: Path, *, with_spark: bool) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.excuse or (block.needs_spark and not with_spark):
            continue
        if with_spark and block.language != "python" and not block.needs_spark:
            continue  # the run without Spark has it
        if block.language == "python":
            run_python(block, names)
        else:
            run_shell(block, folder)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    run_page(page, tmp_path, with_spark=False)


@pytest.mark.spark
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(block.needs_spark and not block.excuse for block in blocks(page))],
    ids=lambda page: page.name,
)
def test_code_blocks_with_spark_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # executors need zskip as well
    run_page(page, tmp_path, with_spark=True)


def links(page: Path) -> Iterator[str]:
    """The files of this repository that a page links to."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://", "#", "mailto:")):
            yield target.split("#")[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert [target for target in links(page) if not (page.parent / target).exists()] == []


def test_a_broken_block_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nassert 1 == 2\n```\n\n```python\n>>> 1 + 1\n3\n```\n\n```console\n$ false\n```\n\n"
        "```console\n$ zskip info nowhere\n```\n\n```console\n$ zskip inform nowhere\n```\n"
    )
    first, second, third, fourth, fifth = blocks(page)
    with pytest.raises(AssertionError):
        run_python(first, {})
    with pytest.raises(AssertionError):
        run_python(second, {})
    for block in (third, fourth, fifth):
        with pytest.raises(AssertionError):
            run_shell(block, tmp_path)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("zskip query \"SELECT count(*) FROM 't'\"  # all", ["query", "SELECT count(*) FROM 't'"]),
        ('zskip plan t "\\"a.b\\" = \'x\'" \\\n  --paths', ["plan", "t", "\"a.b\" = 'x'", "--paths"]),
        ("zskip completion zsh > _zskip   # for zsh", ["completion", "zsh"]),
        ("zskip plan t 'a = 1' --paths | head -n 3", None),
        ('zskip plan t "a = $A"', None),
        ("zskip doctor raw/*.parquet", None),
        ("zskip info t && zskip history t", None),
        ("mkdir raw", None),
    ],
)
def test_what_needs_a_shell_gets_one(command: str, arguments: list[str] | None) -> None:
    assert zskip_arguments(command) == arguments


def test_the_site_leads_to_every_page() -> None:
    listed = re.findall(r": ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


def test_the_api_page_has_every_public_name() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    found: set[object] = set()
    block = r"^::: ([\w.]+)\n(?:    options:\n(?:      show.+\n)*      members: \[(.+)\]\n)?"
    for path, members in re.findall(block, page, re.MULTILINE):
        named = pkgutil.resolve_name(path)
        if members and isinstance(named, ModuleType):
            found |= {id(getattr(named, name)) for name in members.split(", ")}
        elif isinstance(named, ModuleType):
            own = {name for name, each in vars(named).items() if getattr(each, "__module__", "") == path}
            helpers = {name for name in own - {*getattr(named, "__all__", own)} if name[0] != "_"}
            assert not helpers or f"::: {path}\n    options:\n      filters: public\n" in page, helpers
            found |= {id(each) for each in vars(named).values()}
        else:
            found.add(id(named))
    assert [name for name in zskip.__all__ if id(getattr(zskip, name)) not in found] == ["__version__"]
    assert "`zskip.__version__`" in page


def test_errors_that_the_pages_name_are_at_the_top_level() -> None:
    inner = {"architecture.md", "changelog.md", "format.md"}
    text = " ".join(page.read_text(encoding="utf-8") for page in PAGES if page.name not in inner)
    named = {name for name in zskip.errors.__all__ if re.search(rf"\b{name}\b", text)}
    assert named >= {"CommitConflict", "ForeignTable"}
    assert sorted(named - set(zskip.__all__)) == []


def test_the_api_page_has_every_option_of_write() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    rows = page.split("### Options of `write`")[1].split(":::")[0].splitlines()
    named = {name for row in rows if row.startswith("| `") for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    parameters = set(inspect.signature(zskip.write).parameters)
    assert named == parameters - {"source", "path"}
    assert set(re.findall(r"^- ``(\w+)``: ", str(inspect.getdoc(zskip.write)), re.MULTILINE)) == parameters


def test_the_api_page_has_every_field_of_a_receipt() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8").split("| every receipt |")[1].split(":::")[0]
    named: dict[str, set[str]] = {}
    of = ""
    for first, fields in re.findall(r"^\| (.*?)\| (.*?) \|", text, re.MULTILINE):
        of = first.split("`")[1] if first.startswith("`") else of
        named.setdefault(of, set()).update(re.findall(r"`(\w+)`", fields))
    shown = [one for one in vars(receipts).values() if dataclasses.is_dataclass(one) and one is not receipts.Receipt]
    common = {one: {"version", "dry_run"} if issubclass(one, receipts.Receipt) else set() for one in (*shown, Asked)}
    assert {name: fields for name, fields in named.items() if name} == {
        one.__name__: {field.name for field in dataclasses.fields(one)} - common[one] for one in common
    }


def test_the_journeys_name_functions_that_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawing = page.split("## Five journeys")[1].split("```text")[1].split("```")[0]
    steps = re.findall(r"^ +([\w/]+)\.([\w.]+)(?=\s|$)", drawing, re.MULTILINE)
    assert len(steps) > 30
    for module, name in steps:
        assert (ROOT / "zskip" / f"{module}.py").exists(), module
        assert pkgutil.resolve_name(f"zskip.{module.replace('/', '.')}:{name}") is not None


# --- the pages' code finds the Spark session of all tests ---


@pytest.fixture(autouse=True)
def shared_session(request: pytest.FixtureRequest) -> None:
    """Start the session before a page calls ``getOrCreate()``, so that its settings are those of the other tests."""
    if request.node.get_closest_marker("spark"):
        request.getfixturevalue("spark")


# --- in the quick tier, the pages run on every tenth row of the demo's data ---


@pytest.fixture(scope="session")
def fewer_rows(tmp_path_factory: pytest.TempPathFactory) -> Callable[[demo.Sample], str]:
    """In place of ``zskip.demo_data``; what a shell runs has all rows."""
    folder = tmp_path_factory.mktemp("demo data")
    for path in map(Path, map(zskip.demo_data, get_args(demo.Sample))):
        rows = pq.read_table(path)
        pq.write_table(rows.take(pa.array(range(0, len(rows), 10))), folder / path.name)

    def path_of(name: demo.Sample = "zeek") -> str:
        return str(folder / f"{name}.parquet")

    return path_of


@pytest.fixture(autouse=True)
def one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a rewrite would take, the pages' advice estimates from one write, and not from ever larger ones."""
    monkeypatch.setattr(search, "_MOST_WRITTEN", 0)


@pytest.fixture(autouse=True)
def little_data(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "not slow" in request.config.option.markexpr:
        for module in (zskip, demo):
            monkeypatch.setattr(module, "demo_data", request.getfixturevalue("fewer_rows"))


# --- docs/predicates.md says what the code's own tables say ---


PAGE = ROOT / "docs" / "predicates.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == predicates_page(), "write predicates_page() to docs/predicates.md"


# --- the notebooks run from top to bottom in their own folder, and hold the outputs of such a run ---


NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def needs_spark(notebook: Path) -> bool:
    return "pyspark" in notebook.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    "notebook",
    [pytest.param(path, marks=[pytest.mark.spark] if needs_spark(path) else [], id=path.stem) for path in NOTEBOOKS],
)
def test_notebook_runs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / ".ipython"))
    loaded = nbformat.read(notebook, as_version=4)
    client = NotebookClient(
        loaded, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(notebook.parent)}}
    )
    client.execute()


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_those_of_one_run(notebook: Path) -> None:
    cells = [cell for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"stream", "execute_result", "display_data"}
    assert "/tmp/" not in str(outputs)
    assert str(ROOT) not in str(outputs)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_notebook_shows_is_quicker(notebook: Path) -> None:
    """The times that it prints: zskip's is the shorter one."""
    text = notebook.read_text(encoding="utf-8")
    (gain,) = re.findall(r": ([\d.]+) times\\n", text)
    assert float(gain) > 1.2
