"""The figures of the page, created empty by Bokeh: `drawing.js` fills their data sources in the browser."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

import numpy as np

from zskip.errors import MissingDependency

READ, FILE, ALPHA = "#d1495b", "#8fa8bf", 0.3
"""The colors of files that are read and of other files, and the opacity of both."""
_MARK = "#1d2b36"


def figures(paths: Sequence[str], count: int) -> tuple[str, str, str, str]:
    """The HTML of the figure with the boxes, the HTML of the strips, the script that creates both, and Bokeh itself.

    ``paths``: the columns, each of which gets a strip · ``count``: the number of files. Raises `MissingDependency`.
    """
    try:
        from bokeh.embed import components
        from bokeh.models import ColumnDataSource, CustomJS, NoOverlap
        from bokeh.plotting import figure
        from bokeh.resources import Resources
    except ImportError as error:
        raise MissingDependency('The page needs Bokeh: pip install "zskip[plot]"') from error

    def plot(name: str, width: int, height: int, top: int) -> figure:
        """A figure with data sources for all files, for the files that are read, and for an image of both."""
        tools = "pan,wheel_zoom,box_zoom,reset,save"
        made = figure(
            sizing_mode="stretch_width",
            max_width=width,
            height=height,
            name=name,
            x_range=(0, 1),
            y_range=(0, top),
            tools=tools,
        )
        made.axis.major_label_policy = NoOverlap()
        pixels = {"image": [np.zeros((1, 1), np.uint32)], **{key: [0.0] for key in ("x", "y", "dw", "dh")}}
        made.image_rgba(**{key: key for key in pixels}, source=ColumnDataSource(pixels, name=f"{name}:image"))
        for own, color in (("files", FILE), ("read", READ)):
            boxes = ColumnDataSource({side: [] for side in sides}, name=f"{name}:{own}")
            made.quad(**sides, source=boxes, color=color, fill_alpha=ALPHA, line_alpha=0.9)
        return made

    sides = {side: side for side in ("left", "right", "bottom", "top")}
    picture = plot("picture", 640, 520, 1)
    chosen = ColumnDataSource({side: [] for side in sides}, name="picture:chosen")
    picture.quad(**sides, source=chosen, fill_color=None, line_color=_MARK, line_width=2)
    picture.js_on_event("tap", CustomJS(code="window.zskipTap(cb_obj.x, cb_obj.y);"))
    for axis, line in (("across", picture.vspan), ("up", picture.hspan)):
        marks = ColumnDataSource({"at": []}, name=f"{axis}-constants")
        line(**{"x" if axis == "across" else "y": "at"}, source=marks, line_color=_MARK, line_dash="dashed")
    strips = [plot(f"strip:{path}", 560, 220, count) for path in paths]
    for strip in strips:
        strip.yaxis.axis_label = "file"
    scripts, parts = components([picture, *strips])
    libraries = "\n;\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)
    # The page draws a strip once it is visible. Bokeh's own element has no size from which to tell that.
    first, *rest = (
        f'<div id="view:{html.escape(made.name)}">{part}</div>'
        for made, part in zip((picture, *strips), parts, strict=True)
    )
    return first, "".join(rest), re.sub(r"</?script[^>]*>", "", scripts), libraries
