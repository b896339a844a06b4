"""The sample data that comes with zskip."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from zskip.errors import InvalidOption, nearest

Sample: TypeAlias = Literal["zeek", "flights"]


def demo_data(name: Sample = "zeek") -> str:
    """The path of a Parquet file of real data.

    "zeek": 103,089 rows of network logs, written by Zeek on one morning of 2018 · "flights": 50,000 flights that left
    New York City in 2013. The files are part of the installed package; in a checkout they are in `fixtures/`.
    Raises `InvalidOption`.
    """
    if name not in get_args(Sample):
        raise InvalidOption(f'There is no sample "{name}".{nearest(str(name), get_args(Sample))}')
    package = Path(str(files("zskip")))
    installed = package / "data" / f"{name}.parquet"
    return str(installed if installed.exists() else package.parent / "fixtures" / f"{name}.parquet")
