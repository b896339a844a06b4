"""Charts: the files' boxes on two columns, with those that a query reads highlighted, and how much files overlap.

Needs Altair (``pip install "zskip[plot]"``). A notebook displays a chart; `save` writes PNG, SVG, PDF, or interactive
HTML that needs no network.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from zskip.core import types as t
from zskip.core.option_checks import require_output
from zskip.errors import InvalidOption, MissingDependency
from zskip.layouts import ColumnDepth
from zskip.stats import Ranges, Statistics
from zskip.stats.keys import dense_codes

if TYPE_CHECKING:
    import altair

__all__ = ["boxes", "depth_histogram", "save"]

_READ, _SKIPPED = "#d1495b", "#8fa8bf"
_FORMATS = (".png", ".svg", ".pdf", ".html")
_LABELS = 5
_MOST_CHARACTERS = 60
# The renderer aborts the process, or takes a name for code that ends, at control characters and ends of lines.
_NOT_DRAWN = r"[\x00-\x1f\x7f-\x9f\x{2028}\x{2029}\x{fffe}\x{ffff}]"
_LARGE = 1e9
"""The labels of numbers as large have an exponent."""


def boxes(
    statistics: Statistics,
    x: str,
    y: str,
    *,
    survivors: NDArray[np.bool_] | None = None,
    title: str = "",
    details: Mapping[str, pa.Array] | None = None,
    size: tuple[int, int] = (420, 380),
) -> altair.Chart:
    """Draw each unit as a rectangle over two columns; units without bounds are left out.

    ``survivors``: one flag per unit; these are highlighted · ``details``: further facts for the tooltip, one array per
    name with one slot per unit · ``size``: width and height in pixels. Numbers and times are drawn to scale, other
    values by rank. Raises `InvalidOption` for a column without statistics, and `MissingDependency`.
    """
    charts = _altair()
    for name in (x, y):
        if name not in statistics.columns:
            raise InvalidOption(f'There are no statistics of "{name}" to draw.')
    across, up = _Axis.of(x, statistics.columns[x]), _Axis.of(y, statistics.columns[y])
    read = np.zeros(len(statistics), bool) if survivors is None else np.asarray(survivors, bool)
    shown = {**(details or {}), "rows": statistics.row_count, x: across.text, y: up.text}
    # Dots and brackets in field names have a meaning in Vega, so columns get other names.
    hover = {f"t{number}": _drawn(values) for number, values in enumerate(shown.values())}
    units = pa.table(
        {"left": across.lower, "right": across.upper, "bottom": up.lower, "top": up.upper}
        | {"state": np.where(read, "read", "skipped"), **hover}
    )
    drawn = np.isfinite(across.lower) & np.isfinite(across.upper) & np.isfinite(up.lower) & np.isfinite(up.upper)
    # Units that are read are drawn last, on top.
    order = np.argsort(read, kind="stable")
    values = units.take(pa.array(order[drawn[order]])).to_pylist()
    legend = None if survivors is None else charts.Legend(title=None, orient="bottom")
    colors = charts.Scale(domain=["skipped", "read"], range=[_SKIPPED, _READ])
    picture: altair.Chart = (
        charts.Chart(_inline(charts, values))
        .mark_rect(fillOpacity=0.35, strokeWidth=0.7, strokeOpacity=0.9)
        .encode(
            x=across.encoded(charts, charts.X, "left"),
            x2="right",
            y=up.encoded(charts, charts.Y, "bottom"),
            y2="top",
            color=charts.Color("state:N", scale=colors, legend=legend),
            stroke=charts.Stroke("state:N", scale=colors, legend=None),
            tooltip=[
                charts.Tooltip(f"{field}:N", title=name) for field, name in zip(hover, _names(shown), strict=True)
            ],
        )
        .properties(width=size[0], height=size[1], title=_title(charts, title, statistics, survivors))
        .interactive()
    )
    return picture


def depth_histogram(depths: Mapping[str, ColumnDepth]) -> altair.HConcatChart:
    """Draw for each column how many units its look-ups read, as a histogram. Raises `MissingDependency`."""
    charts = _altair()
    parts = []
    for name, depth in zip(_names(depths), depths.values(), strict=True):
        values = [
            {"units": str(low) if low == high else f"{low}–{high}", "share": share}
            for low, high, share in depth.histogram
        ]
        subtitle = [
            f"{depth.average:.1f} of {depth.units} units on average, {depth.worst} at worst",
            f"{depth.skipped:.1%} of the rows skipped, limit {depth.limit:.1%}",
        ]
        parts.append(
            charts.Chart(charts.InlineData(values=values))
            .mark_bar(color=_SKIPPED)
            .encode(
                x=charts.X("units:O", sort=None, title="units that a look-up reads", axis=charts.Axis(labelAngle=0)),
                y=charts.Y("share:Q", title="share of look-ups", axis=charts.Axis(format="%")),
                tooltip=[charts.Tooltip("units:O"), charts.Tooltip("share:Q", format=".1%")],
            )
            .properties(width=220, height=180, title=charts.TitleParams(name, subtitle=subtitle))
        )
    histogram: altair.HConcatChart = charts.hconcat(*parts)
    return histogram


def save(chart: altair.TopLevelMixin, path: str | os.PathLike[str]) -> Path:
    """Write a chart in the format of the file's extension.

    Raises `InvalidOption` for an unknown format, and for a path at which no file can be written.
    """
    target = require_output(path)
    if target.suffix.lower() not in _FORMATS:
        raise InvalidOption(f'The picture format of "{target.name}" is unknown. Use {", ".join(_FORMATS)}.')
    if target.suffix.lower() == ".html":
        chart.save(target, inline=True)
    else:
        chart.save(target, scale_factor=2 if target.suffix.lower() == ".png" else 1)
    return target


class _Axis(NamedTuple):
    """An axis: the positions of the bounds, NaN where unknown; the bounds as text; its kind, and labels by rank."""

    name: str
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    text: pa.Array
    kind: str
    labels: Mapping[int, str]

    @staticmethod
    def of(name: str, ranges: Ranges) -> _Axis:
        kind = ranges.lower.type
        text = pc.binary_join_element_wise(_text(ranges.lower), _text(ranges.upper), " to ")
        if t.is_date(kind) or t.is_timestamp(kind):
            ends = [_floats(pc.cast(end, pa.timestamp("us"), safe=False)) / 1e3 for end in (ranges.lower, ranges.upper)]
            return _Axis(name, ends[0], ends[1], text, "temporal", {})
        if t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind):
            ends = [_floats(pc.cast(end, pa.float64(), safe=False)) for end in (ranges.lower, ranges.upper)]
            return _Axis(name, ends[0], ends[1], text, "quantitative", {})
        codes, distinct = dense_codes(pa.chunked_array([ranges.lower, ranges.upper]))
        ranks = np.where(codes > 0, codes, np.nan)
        chosen = (
            np.unique(np.linspace(0, len(distinct) - 1, _LABELS).astype(int)) if len(distinct) else np.array([], int)
        )
        texts = _text(distinct.take(pa.array(chosen))).to_pylist()
        if len(texts) > 1:
            # They are sorted. What all begin with would leave no room for the rest.
            pairs = zip(texts[0], texts[-1], strict=False)
            same = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
            texts = [f"…{text[same:]}" for text in texts] if same > 6 else texts
        labels = dict(zip((chosen + 1).tolist(), texts, strict=True))
        return _Axis(name, ranks[: len(ranges)], ranks[len(ranges) :], text, "quantitative", labels)

    def encoded(self, charts: Any, channel: Any, field: str) -> Any:
        scale = charts.Scale(type="utc") if self.kind == "temporal" else charts.Scale(zero=False)
        options: dict[str, Any] = {}
        if self.kind == "temporal":
            options = {"labelExpr": _time_label(self.lower, self.upper)}
        elif self.labels:
            options = {"values": list(self.labels), "labelExpr": f"{json.dumps(self.labels)}[datum.value]"}
        elif np.any(np.abs([self.lower, self.upper]) >= _LARGE):
            options = {"format": "~e"}
        axis = charts.Axis(
            grid=False, tickCount=_LABELS, labelLimit=90, labelOverlap=True, labelSeparation=8, **options
        )
        return channel(f"{field}:{self.kind[0].upper()}", title=_names([self.name])[0], scale=scale, axis=axis)


_DAY = 86_400_000  # milliseconds


def _time_label(lower: NDArray[np.float64], upper: NDArray[np.float64]) -> str:
    """Vega's expression for the labels of a time axis: the date or month, below the hour of 24 if ticks are hours."""
    ends = np.concatenate([lower[np.isfinite(lower)], upper[np.isfinite(upper)]])
    span = np.ptp(ends) if len(ends) else 0.0
    date = f"utcFormat(datum.value, '{'%Y-%m' if span > 200 * _DAY else '%Y-%m-%d'}')"
    if span > 14 * _DAY or not np.any(ends % _DAY):
        return date
    hour = "%H:%M" if span > _DAY / 144 else "%H:%M:%S" if span > 10_000 else "%H:%M:%S.%L"
    return f"[utcFormat(datum.value, '{hour}'), {date}]"


def _title(charts: Any, title: str, statistics: Statistics, survivors: NDArray[np.bool_] | None) -> Any:
    caption = f"{len(statistics)} boxes"
    if survivors is not None:
        rows = _floats(statistics.row_count)
        share = np.nansum(rows[survivors]) / max(1.0, np.nansum(rows))
        caption = f"{int(np.sum(survivors))} of {len(statistics)} read, {share:.1%} of the rows"
    return charts.TitleParams(_names([title])[0], subtitle=caption) if title else charts.TitleParams(caption)


def _text(values: pa.Array) -> pa.Array:
    if t.is_binary(values.type) or t.is_fixed_size_binary(values.type):
        return pa.array([None if value is None else value.hex() for value in values.to_pylist()], pa.string())
    return _drawn(pc.utf8_slice_codeunits(values.cast(pa.string()), 0, _MOST_CHARACTERS))


def _drawn(values: pa.Array) -> pa.Array:
    """Texts with a � for each character that cannot be drawn; other values as they are."""
    return pc.replace_substring_regex(values, _NOT_DRAWN, "�") if t.is_string(values.type) else values


def _names(names: Iterable[str]) -> list[str]:
    """Names that can be drawn. Vega takes a backslash in them for the escape of what follows."""
    return [name.replace("\\", "⧵") for name in _drawn(pa.array(names, pa.string())).to_pylist()]


def _floats(values: pa.Array) -> NDArray[np.float64]:
    numbers = values.cast(pa.int64()) if t.is_timestamp(values.type) else values
    filled = numbers.to_numpy(zero_copy_only=False).astype(np.float64)
    return np.where(np.asarray(values.is_valid()), filled, np.nan)


def _inline(charts: Any, values: list[dict[str, Any]]) -> Any:
    """The values as inline data. They are set after construction, which would validate each of them."""
    data = charts.InlineData(values=[])
    data["values"] = values
    return data


def _altair() -> Any:
    try:
        import altair
    except ImportError as error:
        raise MissingDependency('Pictures need Altair: pip install "zskip[plot]"') from error
    return altair
