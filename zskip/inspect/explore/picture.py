"""A plan as a picture: the files as boxes on two columns, those that are read highlighted. Notebooks show it."""

from __future__ import annotations

import importlib.util
import io

import numpy as np

from zskip.inspect.explore.drawn_columns import drawn_columns
from zskip.plan import Survivors
from zskip.plot import boxes

_MOST_FILES = 2_000
"""A picture of more files would slow a notebook down; `Table.explore` draws more."""


def svg(survivors: Survivors) -> str | None:
    """The picture as SVG.

    None for a table without files, with too many files or with fewer than two columns to draw, and if Altair or
    vl-convert is not installed.
    """
    index = survivors.index
    paths = drawn_columns(index.snapshot, survivors.predicate, 2)
    installed = all(importlib.util.find_spec(name) for name in ("altair", "vl_convert"))
    if not installed or len(paths) < 2 or not 0 < len(index) <= _MOST_FILES:
        return None
    lit = np.zeros(len(index), bool)
    lit[survivors.numbers] = True
    target = io.StringIO()
    boxes(index.files(None, paths).statistics, *paths, survivors=lit).save(target, format="svg")
    return target.getvalue()
