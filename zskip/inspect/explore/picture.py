"""A plan as a picture: the files as boxes on two columns, those that are read highlighted. Notebooks show it."""

from __future__ import annotations

import importlib.util
import io

import numpy as np

from zskip.language import Predicate
from zskip.plan import Survivors
from zskip.plot import boxes
from zskip.tablelog import Snapshot

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


def drawn_columns(snapshot: Snapshot, predicate: Predicate | None, most: int) -> list[str]:
    """The paths of at most ``most`` orderable columns: first those of both the predicate and the layout, then those of
    the layout, of the predicate, and all others."""
    layout = () if snapshot.layout is None else snapshot.layout.columns
    read = sorted(predicate.columns) if predicate else []
    both = [path for path in read if path in layout]
    columns = snapshot.schema.columns
    wanted = dict.fromkeys([*both, *layout, *read, *columns])
    return [path for path in wanted if path in columns and columns[path].orderable][:most]
