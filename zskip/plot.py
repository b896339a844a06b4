"""Pictures: the files' boxes on two columns with a query's survivors lit, and how deep files overlap.

Needs matplotlib (``pip install "zskip[plot]"``). The format follows the file's name: PNG, SVG or PDF.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from zskip.errors import InvalidOption, MissingDependency
from zskip.keys import dense_codes
from zskip.layouts import ColumnDepth
from zskip.stats import Ranges, Statistics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["boxes", "depth_histogram", "save"]

_READ, _SKIPPED = "#d1495b", "#8fa8bf"


def boxes(
    statistics: Statistics,
    x: str,
    y: str,
    *,
    survivors: NDArray[np.bool_] | None = None,
    title: str = "",
    axes: Any = None,
) -> Figure:
    """Each unit as a rectangle over two columns, those of ``survivors`` lit; a unit without bounds is not drawn.

    Numbers and times are drawn to scale, other values by rank. ``axes``: a matplotlib axes to draw into. Raises
    `InvalidOption` for a column without statistics, and `MissingDependency`.
    """
    figures, rectangle, collection = _matplotlib()
    for name in (x, y):
        if name not in statistics.columns:
            raise InvalidOption(f'There are no statistics of "{name}" to draw.')
    (left, right), x_times = _places(statistics.columns[x])
    (bottom, top), y_times = _places(statistics.columns[y])
    lit = np.zeros(len(statistics), bool) if survivors is None else np.asarray(survivors, bool)
    if axes is None:
        axes = figures.Figure(figsize=(5.5, 5), layout="constrained").add_subplot()
    drawn = np.isfinite(left) & np.isfinite(right) & np.isfinite(bottom) & np.isfinite(top)
    for chosen, color, alpha in ((drawn & ~lit, _SKIPPED, 0.25), (drawn & lit, _READ, 0.55)):
        shapes = [
            rectangle((left[unit], bottom[unit]), right[unit] - left[unit], top[unit] - bottom[unit])
            for unit in np.flatnonzero(chosen).tolist()
        ]
        axes.add_collection(collection(shapes, facecolor=color, edgecolor=color, alpha=alpha, linewidth=0.6))
    axes.autoscale_view()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if x_times:
        axes.xaxis_date()
    if y_times:
        axes.yaxis_date()
    said = f"{int(lit.sum())} of {len(statistics)} read" if survivors is not None else f"{len(statistics)} boxes"
    axes.set_title(f"{title}: {said}" if title else said, fontsize=10)
    figure: Figure = axes.get_figure()
    return figure


def depth_histogram(depths: Mapping[str, ColumnDepth]) -> Figure:
    """For each column the shares of look-ups by how many units they read. Raises `MissingDependency`."""
    figures, _, _ = _matplotlib()
    figure: Figure = figures.Figure(figsize=(3.2 * max(1, len(depths)), 2.8), layout="constrained")
    for number, (name, depth) in enumerate(depths.items(), start=1):
        axes = figure.add_subplot(1, len(depths), number)
        labels = [str(low) if low == high else f"{low}–{high}" for low, high, _ in depth.histogram]
        axes.bar(labels, [share for *_, share in depth.histogram], color=_SKIPPED)
        axes.set_title(f"{name}: {depth.average:.1f} of {depth.units} on average", fontsize=9)
        axes.set_xlabel("units read")
        axes.tick_params(axis="x", labelrotation=45)
    return figure


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a picture; its format follows the name's ending. Raises `InvalidOption` for one that is not known."""
    target = Path(path)
    known = figure.canvas.get_supported_filetypes()
    if target.suffix.lstrip(".").lower() not in known:
        raise InvalidOption(f'"{target.name}" names no known picture format. Use .png or .svg.')
    figure.savefig(target, dpi=110)
    return target


def _places(ranges: Ranges) -> tuple[tuple[NDArray[np.float64], NDArray[np.float64]], bool]:
    """Where lower and upper stand on an axis, NaN where unknown; and whether the axis tells days."""
    kind = ranges.lower.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        days = [
            _floats(pc.cast(end, pa.timestamp("us"), safe=False)) / 86_400e6 for end in (ranges.lower, ranges.upper)
        ]
        return (days[0], days[1]), True
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        ends = [_floats(pc.cast(end, pa.float64(), safe=False)) for end in (ranges.lower, ranges.upper)]
        return (ends[0], ends[1]), False
    codes, _ = dense_codes(pa.chunked_array([ranges.lower, ranges.upper]))
    ranks = np.where(codes > 0, codes, np.nan)
    return (ranks[: len(ranges)], ranks[len(ranges) :]), False


def _floats(values: pa.Array) -> NDArray[np.float64]:
    numbers = values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values
    filled = numbers.to_numpy(zero_copy_only=False).astype(np.float64)
    return np.where(np.asarray(values.is_valid()), filled, np.nan)


def _matplotlib() -> tuple[Any, Any, Any]:
    try:
        from matplotlib import collections, figure, patches
    except ImportError as error:
        raise MissingDependency('Pictures need matplotlib: pip install "zskip[plot]"') from error
    return figure, patches.Rectangle, collections.PatchCollection
