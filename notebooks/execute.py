"""Runs the notebooks in their own folder, and stores their outputs: `python notebooks/execute.py [NAME …]`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent
TEMPORARY = re.compile(r"(?:file://)?/tmp/tmp\w+")


def main() -> None:
    names = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for path in (FOLDER / f"{name}.ipynb" for name in names):
        notebook = nbformat.read(path, as_version=4)
        client = NotebookClient(
            notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
        )
        client.execute()
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # when it ran
            if cell.cell_type == "code":  # warnings of Spark's start, and the names of temporary folders
                cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
        nbformat.write(notebook, path)
        path.write_text(TEMPORARY.sub("lake", path.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"ran {path.name}")


if __name__ == "__main__":
    main()
