"""The sample data that comes with zskip."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

__all__ = ["demo_data"]


def demo_data() -> str:
    """The path of a Parquet file of real network logs: 103,089 rows, written by Zeek on one morning of 2018.

    The file is part of the installed package; in a checkout it is in `fixtures/`.
    """
    package = Path(str(files("zskip")))
    installed = package / "data" / "zeek.parquet"
    return str(installed if installed.exists() else package.parent / "fixtures" / "zeek.parquet")
