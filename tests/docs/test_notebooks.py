"""The notebooks run from top to bottom in their own folder, and hold the outputs of such a run."""

from __future__ import annotations

import os
import re
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
