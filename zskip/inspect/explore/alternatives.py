"""How much the same queries would read if the table had another layout or more files."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip import layouts

_LAYOUTS = ("auto", "hilbert", "linear")
_MORE = (1, 4)
_LEAST_ROWS = 20
"""The least sampled rows per file: with fewer, the sample's boxes differ too much from the table's."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """A layout, and the shares of rows, bytes and files that the queries read on average, from 0 to 1.

    ``today``: whether it is the current layout.
    """

    layout: str
    by: tuple[str, ...]
    files: int
    rows: float
    bytes: float
    share_of_files: float
    today: bool = False


def alternatives(
    rows: pa.Table, today: NDArray[np.int64], by: Sequence[str], queries: Sequence[str], *, files: int, total_rows: int
) -> list[Alternative]:
    """The current layout, then other layouts of the same columns with as many files and with four times as many.

    ``rows``: a sample of the table · ``today``: the current file of each sampled row · ``queries``: predicates or
    statements; by default look-ups on each column of ``by``. Layouts are fitted to one half of the sample, and all are
    scored on the other half. Raises the errors of `layouts.fit`.
    """
    order = np.random.default_rng(0).permutation(rows.num_rows)
    fitting, scoring = (rows.take(pa.array(part)) for part in np.array_split(order, 2))
    workload = list(queries) or None

    def scored(layout: str, count: int, place: layouts.Assignment | NDArray[np.int64], *, now: bool) -> Alternative:
        score = layouts.score(scoring, place, by, workload=workload)
        shares = score.queries or (layouts.Share(score.read, score.bytes, score.files),)
        means = {name: statistics.fmean(getattr(share, name) for share in shares) for name in ("rows", "bytes")}
        opened = statistics.fmean(share.files for share in shares)
        return Alternative(layout, tuple(by), count, share_of_files=opened, today=now, **means)

    found = [scored("today", files, today[np.array_split(order, 2)[1]], now=True)]
    for more in _MORE:
        count = files * more
        if scoring.num_rows >= count * _LEAST_ROWS:
            for name in _LAYOUTS:
                fitted = layouts.fit(
                    fitting, by, layout=name, files=count, workload=workload, total_rows=max(total_rows, len(rows))
                )
                found.append(scored(fitted.layout, count, fitted, now=False))
    return found
