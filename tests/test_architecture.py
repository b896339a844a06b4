"""The architecture as docs/architecture.md draws it: the page is read, and the code is held against it."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

from tests import ROOT

PACKAGE = ROOT / "zskip"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MODULES = sorted(PACKAGE.rglob("*.py"))


def layers() -> dict[str, int]:
    """The row of every room in the page's drawing: `8  __init__   cli`."""
    drawing = PAGE.split("## Layers")[1].split("```text\n")[1].split("```")[0]
    rows: dict[str, int] = {}
    for line in drawing.splitlines():
        number, rooms = line.split(maxsplit=1)
        rows |= {room.rstrip("/"): int(number) for room in re.sub(r"\(.*?\)", "", rooms).split()}
    return rows


def named_in(sentence_start: str) -> list[str]:
    """The modules in backticks in the page's sentence that begins so."""
    start = PAGE.index(sentence_start)
    end = re.compile(r"[.;]\s|\(").search(PAGE, start)
    assert end is not None
    return re.findall(r"`([\w/]+)`", PAGE[start : end.start()])


LAYERS = layers()


def dotted(module: Path) -> str:
    """`zskip/stats/files.py` → `stats.ranges`; a package's own `__init__` is the package."""
    parts = module.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def room(module: str) -> str:
    return module.split(".")[0]


@cache
def nodes(module: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(module.read_text(encoding="utf-8"))))


def imports(module: Path) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything that a module imports, wherever in it."""
    for node in nodes(module):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: a relative import"
            yield from ((node.lineno, f"{node.module}.{name.name}") for name in node.names)


def own_room(name: str) -> str | None:
    """The room that an imported name belongs to; None for another package's."""
    parts = name.split(".")
    if parts[0] != "zskip":
        return None
    known = len(parts) > 1 and ((PACKAGE / parts[1]).is_dir() or (PACKAGE / f"{parts[1]}.py").exists())
    return parts[1] if known else "__init__"


def lies_in(module: Path, places: list[str]) -> bool:
    path = dotted(module).replace(".", "/")
    return any(path == place or path.startswith(f"{place}/") for place in places)


def upward_imports(module: Path) -> Iterator[str]:
    here = room(dotted(module))
    for line, name in imports(module):
        there = own_room(name)
        if there is not None and there != here and LAYERS[there] >= LAYERS[here]:
            yield f"{dotted(module)}:{line} imports {name}"


def test_modules_import_only_from_lower_rows() -> None:
    assert {room(dotted(module)) for module in MODULES} - LAYERS.keys() == set(), "no row in docs/architecture.md"
    assert [found for module in MODULES for found in upward_imports(module)] == []


NAMES = {dotted(module) for module in MODULES}


def imported_modules(module: Path) -> set[str]:
    """The modules of the package that a module imports: at once, later, for type checkers alone, and packages."""
    found = set()
    for _, name in imports(module):
        parts = name.split(".")
        if parts[0] != "zskip":
            continue
        # `from zskip.language import tree` names a module, `… import Predicate` the package's `__init__`.
        within = [".".join(parts[1:end]) for end in range(len(parts), 1, -1)]
        found.add(next((each for each in within if each in NAMES), "__init__"))
    return found - {dotted(module)}


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The modules of a circle of imports; none where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {dotted(module): imported_modules(module) for module in MODULES}
    assert graph["plan.plan"] >= {"plan.explain", "plan.survivors", "language"}
    assert circle(graph) == []


def test_a_circle_is_found(tmp_path: Path) -> None:
    source = tmp_path / "a.py"
    source.write_text(
        "from typing import TYPE_CHECKING\nfrom zskip.language import Predicate\n"
        "if TYPE_CHECKING:\n    from zskip.plan.plan import Plan\n"
        "def f():\n    from zskip.plan import explain\n",
        encoding="utf-8",
    )
    assert {name for _, name in imports(source)} > {"zskip.plan.plan.Plan", "zskip.plan.explain"}
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) != []
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []


def test_no_file_name_stands_twice() -> None:
    names = [module.name for module in MODULES if module.stem not in ("__init__", "__main__")]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_every_room_of_the_page_exists() -> None:
    missing = [room for room in LAYERS if not (PACKAGE / room).is_dir() and not (PACKAGE / f"{room}.py").exists()]
    assert not missing


SQL_ROOMS = named_in("Sqlglot only in")
FILE_ROOMS = named_in("File I/O lives")
FILE_MODULES = {"shutil", "tempfile", "fsspec", "obstore", "glob", "pyarrow.parquet", "pyarrow.dataset", "pyarrow.fs"}
FILE_METHODS = {"read_text", "write_text", "read_bytes", "write_bytes", "unlink", "mkdir", "rmdir", "iterdir", "rglob"}
# What of `os` says something about the machine, and touches no file.
HARMLESS_OS = {"cpu_count", "environ", "fspath", "getpid", "sched_getaffinity", "PathLike", "path", "sep", "name"}


def test_what_is_imported_comes_with_zskip_or_an_extra() -> None:
    """No module that only the extra `dev` would bring, but those of objects that the user hands over."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    names = extras["all"][0].partition("[")[2].rstrip("]").split(",")
    wanted = [*project["dependencies"], *(one for name in names for one in extras[name])]
    brought = {re.split(r"[^\w.-]", one)[0].lower() for one in wanted}
    modules = {name.partition(".")[0] for file in MODULES for _, name in imports(file)} - {*sys.stdlib_module_names}
    homes = packages_distributions()
    others = {name for name in modules if not brought & {home.lower() for home in homes.get(name, [name])}}
    assert others - {"zskip", "_typeshed", "typing_extensions"} == {
        *("boto3", "botocore"),  # for profiles alone; the error says to install boto3
        *("datafusion", "ibis"),  # the user's own objects
        "py4j",  # comes with pyspark
    }


def test_sqlglot_is_imported_only_where_sql_is_read() -> None:
    importing = [module for module in MODULES if any(name.split(".")[0] == "sqlglot" for _, name in imports(module))]
    assert [dotted(module) for module in importing if not lies_in(module, SQL_ROOMS)] == []


def touches_files(module: Path) -> Iterator[str]:
    """Everything in a module that reads or writes files, by line."""
    for line, name in imports(module):
        if any(name == other or name.startswith(f"{other}.") for other in FILE_MODULES):
            yield f"{line}: imports {name}"
    for node in nodes(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            yield f"{node.lineno}: open(…)"
        elif isinstance(node, ast.Attribute) and node.attr in FILE_METHODS:
            yield f"{node.lineno}: .{node.attr}"
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os" and node.attr not in HARMLESS_OS:
            yield f"{node.lineno}: os.{node.attr}"


def test_file_access_lives_where_the_page_says() -> None:
    touching = {dotted(module): list(touches_files(module)) for module in MODULES if not lies_in(module, FILE_ROOMS)}
    assert {module: found for module, found in touching.items() if found} == {}


def test_these_tests_can_fail(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("import os, sqlglot\nfrom zskip.table import Table\nos.remove('x')\nopen('y')\n", encoding="utf-8")
    assert [name for _, name in imports(bad)] == ["os", "sqlglot", "zskip.table.Table"]
    assert sorted(touches_files(bad)) == ["3: os.remove", "4: open(…)"]
    assert LAYERS["core"] < LAYERS["language"] < LAYERS["plan"] < LAYERS["cli"]
    assert "binder" in SQL_ROOMS
    assert not lies_in(PACKAGE / "core" / "schema.py", FILE_ROOMS)


UNNEEDED = ("sqlglot", "pandas", "pyarrow.compute", "pyarrow.parquet", "zskip.pruning")
FIRST_CALLS = {
    "import zskip": ("duckdb", "pyspark", "altair", "pandas", "polars"),
    "zskip.open(path)": (*UNNEEDED, "duckdb", "zskip.writer.compaction"),
    "zskip.sql(f\"FROM '{path}' WHERE a = 7\").fetchall()": UNNEEDED,
    "[getattr(zskip, name) for name in zskip.__all__]": ("pyspark", "altair", "pandas", "polars"),
    "zskip.spark, zskip.plot, zskip.layouts, zskip.curves, zskip.bench": ("pyspark", "pandas"),
    "zskip.polars.scan(path)": ("pyspark",),
}
"""What the calls of one process, one after another, do not load; those over a table of few files."""

CALLS_ALONE = """
import json, sys
path, calls, loaded = sys.argv[1], json.loads(sys.argv[2]), {}
for call, names in calls.items():
    exec(call)
    loaded[call] = [name for name in names if name in sys.modules]
print(json.dumps(loaded))
"""


def test_the_first_calls_load_what_they_need(tmp_path: Path) -> None:
    import pyarrow as pa

    import zskip

    zskip.write(pa.table({"a": range(100)}), tmp_path / "t", by="a", files=10)
    command = [sys.executable, "-c", CALLS_ALONE, str(tmp_path / "t"), json.dumps(FIRST_CALLS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {call: [] for call in FIRST_CALLS}


def test_the_public_face_is_small() -> None:
    import zskip

    assert sorted(set(zskip.__all__)) == sorted(zskip.__all__)
    assert {"write", "index", "open", "sql", "Table", "ZskipError"} <= set(zskip.__all__)
    assert len(set(zskip.__all__) - set(zskip.errors.__all__)) <= 16


def test_only_the_types_ask_arrow_what_a_type_is() -> None:
    asking = [
        dotted(module)
        for module in MODULES
        if any(name.startswith("pyarrow.types") for _, name in imports(module)) or "pa.types." in module.read_text()
    ]
    assert sorted(asking) == ["core.types"]
