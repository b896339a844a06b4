"""Every option of every public verb with values that it cannot have: refused by name, before anything is done."""

from __future__ import annotations

import inspect
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from zskip.errors import ZskipError, shown

ROWS = pa.table({"a": range(40), "s": [f"k{number % 4}" for number in range(40)]})
HOSTILE: tuple[Any, ...] = (-5, 1 << 70, 2.5, math.nan, "", "\0", [1], {}, {"a": object()}, b"x", object())
# Options whose value may be anything of the kind: they are checked by what they are handed to.
NAMED_OTHERWISE = {"where", "columns", "params", "by", "workload", "partition_by", "sketches", "engines", "log_name"}
_OTHERS = {"session", "spark", "storage_options", "options"}
_RESOURCES = ("memory_limit", "temp_directory", "threads", "progress")
_LAYOUT = ("layout", "files", "rows_per_file", "file_size", "row_group_rows", "compression", "weights", "workload")

# Of each verb: how it is called with one option, and the options that its signature leaves to `**options`.
VERBS: dict[str, tuple[Callable[..., Any], Callable[[Path], Any], tuple[str, ...]]] = {
    "write": (zskip.write, lambda path: lambda **o: zskip.write(ROWS, path / "new", **{"by": "a", **o}), ()),
    "index": (zskip.index, lambda path: lambda **o: zskip.index(path / "raw", **o), ()),
    "open": (zskip.open, lambda path: lambda **o: zskip.open(path / "t", **o), ()),
    "read": (zskip.read, lambda path: lambda **o: zskip.read(path / "t", **o), ()),
    "repair": (zskip.repair, lambda path: lambda **o: zskip.repair(path / "t", **o), ()),
    "cluster": (zskip.cluster, lambda path: lambda **o: zskip.cluster(path / "raw", **{"by": "a", **o}), _RESOURCES),
    "advise": (zskip.advise, lambda path: lambda **o: zskip.advise(ROWS, **{"workload": ["a = 1"], **o}), ()),
    "sql": (zskip.sql, lambda path: lambda **o: zskip.sql("SELECT 1", **o), ()),
    "Table.advise": (
        zskip.Table.advise,
        lambda path: lambda **o: zskip.open(path / "t").advise(**{"workload": ["a = 1"], **o}),
        (),
    ),
}
for _name, _given, _more in (
    ("plan", ("a = 1",), ()),
    ("head", (), ()),
    ("to_arrow", (), ()),
    ("append", (ROWS,), _RESOURCES),
    ("overwrite", (ROWS,), (*_RESOURCES, *_LAYOUT, "partition_by", "sketches", "seed")),
    ("delete", ("a = 1",), _RESOURCES),
    ("add_sketches", ({"s": "values"},), _RESOURCES),
    ("drop_sketches", (), ()),
    ("optimize", (), _RESOURCES),
    ("history", (), ()),
    ("restore", (), ()),
    ("refresh", (), ()),
    ("vacuum", (), ()),
    ("tend", (), _RESOURCES),
    ("verify", ("a = 1",), ()),
    ("clustering", (), ()),
    ("logged_queries", (), ()),
    ("plot", ("a", "s"), ()),
    ("explore", (), ()),
):

    def _called(path: Path, name: str = _name, given: tuple[Any, ...] = _given) -> Callable[..., Any]:
        def call(**option: Any) -> Any:
            arguments = {"path": path / "page.html", **option} if name == "explore" else option
            return getattr(zskip.open(path / "t"), name)(*given, **arguments)

        return call

    VERBS[f"Table.{_name}"] = (getattr(zskip.Table, _name), _called, _more)


def options_of(verb: str) -> list[str]:
    """Every option by keyword, and those that are left to `**options`."""
    function, _, more = VERBS[verb]
    parameters = inspect.signature(function).parameters.values()
    alone = {"Table.head", "Table.to_arrow", "Table.drop_sketches", "Table.history", "Table.restore", "Table.vacuum"}
    keywords = [
        each.name for each in parameters if each.kind is each.KEYWORD_ONLY or (verb in alone and each.name != "self")
    ]
    # DuckDB itself refuses the parameters of a statement.
    others = _OTHERS | ({"params"} if verb == "sql" else set())
    return [name for name in dict.fromkeys([*keywords, *more]) if name not in others]


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    zskip.write(ROWS, folder / "t", by="a", files=2)
    (folder / "raw").mkdir()
    pq.write_table(ROWS, folder / "raw" / "x.parquet")
    return folder


def refuse_all(verb: str, tables: Path, folder: Path, every: int) -> None:
    """Call a verb with each option and every n-th of the values."""
    copy = folder / "copy"
    for place, option in enumerate(options_of(verb)):
        for value in HOSTILE[place % every :: every]:
            case = f"{verb}({option}={shown(value)})"
            if not copy.exists():
                shutil.copytree(tables, copy)
            before = files_in(copy)
            try:
                VERBS[verb][1](copy)(**{option: value})
            except ZskipError as error:
                message = str(error)
            except Exception as error:
                raise AssertionError(case) from error
            else:
                shutil.rmtree(copy)  # a value that the option may have after all
                continue
            assert len(message) < 700, f"{case}: {message}"
            assert option in message or option in NAMED_OTHERWISE, f"{case}: {message}"
            if verb == "cluster":
                shutil.rmtree(copy)  # the folder may have got an index
            else:
                assert files_in(copy) == before, f"{case} left files"


@pytest.mark.parametrize("verb", VERBS)
def test_a_hostile_option_is_refused_by_name(verb: str, tables: Path, tmp_path: Path) -> None:
    refuse_all(verb, tables, tmp_path, 11)


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_every_hostile_option_is_refused_by_name(verb: str, tables: Path, tmp_path: Path) -> None:
    refuse_all(verb, tables, tmp_path, 1)


def test_options_that_were_taken_or_raised_errors_of_pythons(tables: Path, tmp_path: Path) -> None:
    for call, message in (
        (lambda: zskip.write(ROWS, tmp_path / "t", by="a", layout=-5), "layout= is one of auto, tiles"),  # type: ignore[arg-type]
        (lambda: zskip.write(ROWS, tmp_path / "t", by="a", progress=5), "progress= is a function"),  # type: ignore[arg-type]
        (lambda: zskip.write(ROWS, tmp_path / "t", by="a", temp_directory=5), "temp_directory= is a path"),  # type: ignore[arg-type]
        (lambda: zskip.index(tables / "raw", threads="x"), "threads= is a whole number of at least 1"),  # type: ignore[arg-type]
        (lambda: zskip.index(tables / "raw", sketches={"nowhere": "values"}), '"nowhere"'),
        (lambda: zskip.open(tables / "t").plan("a = 1", dialect=[1]), "dialect= is a text"),  # type: ignore[arg-type]
        (lambda: zskip.open(tables / "t").optimize(dry_run="no"), "dry_run= is True or False, not 'no'"),  # type: ignore[arg-type]
        (lambda: zskip.open(tables / "t").vacuum(5), "older_than= is a time span"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ZskipError, match=message):
            call()
    assert not (tmp_path / "t").exists()
    assert not (tables / "raw" / "_zskip").exists()
