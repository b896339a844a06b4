"""Without pyspark, or without Java, everything of Spark raises one clear error, and nothing else of zskip minds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests import ROOT

_CALLS = """
import json, sys
if sys.argv[1] == "no pyspark":
    sys.modules["pyspark"] = None  # an import of it fails
import pyarrow as pa
import zskip
import zskip.spark as zs
from zskip.bench import bench
from zskip.spark.spark_backend import backend

path = sys.argv[2]
table = zskip.write(pa.table({"x": [1, 2, 3]}), path, by=["x"], files=2)
assert table.plan("x = 2").to_arrow()["x"].to_pylist() == [2]
calls = {
    "table": lambda: zs.table(None, path),
    "register": lambda: zs.register(None, "t", path),
    "read": lambda: zs.read(None, path),
    "sql": lambda: zs.sql(None, f"SELECT * FROM '{path}'"),
    "write": lambda: zs.write(None, path + "2", by="x"),
    "delete": lambda: zs.delete(None, path, "x = 1"),
    "optimize": lambda: zs.optimize(None, path),
    "index": lambda: zs.index(None, path),
    "register_source": lambda: zs.register_source(None),
    "to_spark": lambda: table.plan("x = 2").to_spark(None),
    "session": lambda: table.append(None, session=0),
    "verify": lambda: table.verify(engines=["spark"]),
    "bench": lambda: bench(table, ["x = 2"], spark=True),
}
refusals = {}
for name, call in calls.items():
    try:
        call()
    except zskip.ZskipError as error:
        refusals[name] = [type(error).__name__, str(error)]
assert zskip.open(path).version == 1
assert len(refusals) == len(calls), set(calls) - set(refusals)
print(json.dumps(refusals))
"""


def refusals(case: str, folder: Path, **environment: str) -> set[tuple[str, str]]:
    done = subprocess.run(
        [sys.executable, "-c", _CALLS, case, str(folder / "t")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )
    assert done.returncode == 0, done.stderr
    return {(kind, message) for kind, message in json.loads(done.stdout).values()}


def test_without_pyspark(tmp_path: Path) -> None:
    wanted = ("MissingDependency", "Spark needs the package pyspark: pip install 'zskip[spark]'.")
    assert refusals("no pyspark", tmp_path) == {wanted}


def test_without_java(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    ((kind, message),) = refusals("no java", tmp_path, PATH=str(tmp_path), JAVA_HOME=str(tmp_path / "nowhere"))
    assert kind == "MissingDependency"
    assert message.startswith("Spark needs Java 17 or later, and there is none at JAVA_HOME")


def test_what_a_user_installs_for_spark_has_pandas() -> None:
    """`zskip.spark.index` reads statistics through pandas, and pyspark itself does not ask for it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[<>=\[]", each)[0] for each in project["optional-dependencies"]["spark"]}
    assert names >= {"pyspark", "pandas"}
