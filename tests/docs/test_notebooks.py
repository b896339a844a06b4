"""The notebooks run from top to bottom in a fresh folder."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def needs_spark(notebook: Path) -> bool:
    return "pyspark" in notebook.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    "notebook",
    [pytest.param(path, marks=[pytest.mark.spark] if needs_spark(path) else [], id=path.stem) for path in NOTEBOOKS],
)
def test_notebook_runs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / ".ipython"))
    loaded = nbformat.read(notebook, as_version=4)
    client = NotebookClient(loaded, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
