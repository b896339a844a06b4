"""The wheel and the sdist, installed as a user installs them: into an empty environment, without the repository."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests import ROOT

pytestmark = pytest.mark.slow

WRITE = 'import zskip; t = zskip.write(zskip.demo_data("flights"), "t", by=["date", "dest"], files=8); '
# One documented feature of each extra; "" is zskip alone.
FEATURES = {
    "": WRITE + "assert t.plan(\"dest = 'SFO'\").to_arrow().num_rows == 2031; "
    "assert zskip.sql('SELECT now()').fetchall()[0][0].tzinfo",
    "polars": WRITE + "import zskip.polars, polars as pl; "
    "assert zskip.polars.scan('t').filter(pl.col('dest') == 'SFO').collect().height == 2031",
    "plot": WRITE + "from zskip import plot; plot.save(t.plot('date', 'dest'), 't.svg'); t.explore('t.html')",
    "delta": WRITE + "from deltalake import write_deltalake; write_deltalake('d', t.to_arrow()); "
    "assert zskip.cluster('d', by=['dest'], files=4).files_written == 4",
    "iceberg": WRITE + "import os; from pyiceberg.catalog import load_catalog; "
    "c = load_catalog('l', type='in-memory', warehouse='file://' + os.path.abspath('w')); c.create_namespace('a'); "
    "i = c.create_table('a.f', schema=t.schema); i.append(t.to_arrow()); "
    "assert zskip.open(i).plan(\"dest = 'SFO'\").count() == 2031",
    "spark": WRITE + "import zskip.spark; from pyspark.sql import SparkSession; "
    "s = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate(); "
    "assert zskip.spark.table(s, 't').where(\"dest = 'SFO'\").count() == 2031",
}  # fmt: skip


def run(*command: object, folder: Path) -> str:
    """Run a command where nothing of the repository is found; its output."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    clean["PYTHONTZPATH"] = ""  # as where the system has no database of time zones
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, env=clean, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def environment(folder: Path, *packages: object) -> Path:
    """The Python of a new environment with these packages."""
    run(sys.executable, "-m", "venv", folder, folder=folder.parent)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages, folder=folder)
    return python


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist."""
    folder = tmp_path_factory.mktemp("build")
    python = environment(folder / "env", "hatchling>=1.27")
    run(python, "-m", "hatchling", "build", "-d", folder, folder=ROOT)
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


def test_wheel_and_sdist_hold_the_licences_and_the_samples(built: tuple[Path, Path]) -> None:
    wheel, sdist = built
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if name.endswith("licenses/LICENSE")]
    samples = {"zeek.parquet", "flights.parquet", "zeek-dns-excerpt.log", "README.md"}
    assert {f"zskip/data/{name}" for name in samples} <= set(names)
    assert {"zskip/py.typed", "zskip/inspect/explore/page.js"} <= set(names)
    assert [name for name in names if not name.startswith(("zskip/", "zskip-"))] == []
    with tarfile.open(sdist) as opened:
        parts = {name.partition("/")[2] for name in opened.getnames()}
    assert {"LICENSE", "README.md", "fixtures/README.md", "zskip/__init__.py", "pyproject.toml"} <= parts


def test_every_extra_is_tried() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(FEATURES) == {"", *extras} - {"all", "bench", "docs", "dev"}
    assert set(extras["all"][0].partition("[")[2].rstrip("]").split(",")) == set(FEATURES) - {""}


@pytest.mark.parametrize(
    "extra", [pytest.param(name, marks=[pytest.mark.spark] * (name == "spark")) for name in FEATURES]
)
def test_an_extra_brings_what_its_feature_needs(built: tuple[Path, Path], extra: str, tmp_path: Path) -> None:
    python = environment(tmp_path / "env", f"{built[0]}[{extra}]" if extra else built[0])
    run(python, "-c", FEATURES[extra], folder=tmp_path)


def named_packages() -> set[str]:
    """What the pages tell their readers to install beside zskip."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    lines = (
        re.findall(r"^(?:\$ )?pip install (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE) for page in pages
    )
    named = {package for found in lines for line in found for package in shlex.split(line, comments=True)}
    return {package for package in named if not package.startswith("zskip")}


@pytest.mark.spark
def test_the_docs_run_with_the_wheel_alone(built: tuple[Path, Path], tmp_path: Path) -> None:
    """Every block of README.md and docs/*.md, from a folder that has nothing of the repository but these pages."""
    python = environment(tmp_path / "env", f"{built[0]}[all]", "pytest<9.2", *named_packages())
    pages = tmp_path / "pages"
    (pages / "tests" / "docs").mkdir(parents=True)
    for name in ("tests/__init__.py", "tests/docs/test_docs.py", "README.md"):
        shutil.copy(ROOT / name, pages / name)
    shutil.copytree(ROOT / "docs", pages / "docs")
    printed = run(python, "-m", "pytest", "-q", "-k", "code_blocks", "tests/docs/test_docs.py", folder=pages)
    assert " passed" in printed
