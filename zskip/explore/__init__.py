"""`explore`: an HTML page that shows a plan, and plans again when the reader changes its constants.

``export``: the data of the page; ``arrays``: how the page holds it · ``proof.js``: the planner's proof over ranges, in
JavaScript · ``drawing.js``: the figures · ``page.js``, ``page.html``: the page. It is drawn by Bokeh
(``pip install "zskip[plot]"``) and needs no network. ``alternatives``: what other layouts would read · ``picture``: a
plan in a notebook · ``drawn_columns``: what both draw.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import pyarrow.compute as pc

from zskip import plan as planning
from zskip.binder import bind
from zskip.binder.workload_sql import table_query
from zskip.errors import InvalidOption, MissingDependency
from zskip.explore.alternatives import Alternative, alternatives
from zskip.explore.arrays import Arrays, fitting, packed
from zskip.explore.drawn_columns import drawn_columns
from zskip.explore.export import ExportedColumn, Level, columns_of, tree_of
from zskip.expr import Predicate
from zskip.expr.tree import Opaque, Reference, walk
from zskip.tablelog import Index

__all__ = ["Alternative", "alternatives", "page", "save"]

_READ, _FILE, _ALPHA, _MARK = "#d1495b", "#8fa8bf", 0.3, "#1d2b36"
_MOST_COLUMNS = 6
_MOST_ROW_GROUPS = 100_000
_MOST_PATHS = 20_000
"""The names of more files would make up most of the page."""
_MOST_CHARACTERS = 4_200_000
"""Of the columns' ranges: with Bokeh and the rest the page stays below 5 MB."""


def page(
    index: Index,
    predicate: Predicate | None = None,
    *,
    columns: Sequence[str] | None = None,
    workload: Sequence[str] = (),
    others: Sequence[Alternative] = (),
) -> str:
    """The HTML of the page.

    ``columns``: paths of the columns to draw, by default those of the predicate and of the layout, at most six, without
    those of the layout whose ranges would make the page larger than 5 MB ·
    ``workload``: predicates or statements, for which the page lists what they read · ``others``: what they would read
    in other layouts, as `alternatives` finds it.

    Raises `UnknownColumn`, `NotOrderable` and `SqlError`, `InvalidOption` for a table without files, and
    `MissingDependency` without Bokeh.
    """
    if not len(index):
        raise InvalidOption(f"{index.storage.uri} has no files to show.")
    references = _columns(index, predicate, columns)
    paths = sorted({reference.path for reference in references} | (predicate.columns if predicate else set()))
    units = index.files(None, paths).statistics
    statistics, group_file = [units], None
    groups = int(index.row_group_counts(np.arange(len(index))).sum())
    if index.has_row_groups and len(index) < groups <= _MOST_ROW_GROUPS:
        row_groups = index.row_groups(np.arange(len(index), dtype=np.int64), paths)
        statistics, group_file = [units, row_groups.statistics], row_groups.file
    exported, levels = columns_of(references, statistics)
    left_out: list[str] = []
    if columns is None:
        needed = set() if predicate is None else set(predicate.columns)
        sizes = {
            column.path: (column.texts, [each for level in levels for each in level.bounds[column.path]])
            for column in exported
        }
        fits = fitting(sizes, needed, _MOST_CHARACTERS)
        left_out = [column.path for column in exported if column.path not in fits]
        exported = [column for column in exported if column.path in fits]
    arrays = Arrays()
    facts: dict[str, Any] = {
        "columns": [asdict(column) for column in exported],
        "tree": None if predicate is None else _tree(predicate, exported, levels, arrays),
        "conjuncts": [],
        "levels": [
            {
                "units": len(level.statistics),
                "places": {
                    path: {"lower": arrays.add(lower), "upper": arrays.add(upper), "flags": arrays.add(flags)}
                    for path, (lower, upper, flags) in level.bounds.items()
                    if path not in left_out
                },
            }
            for level in levels
        ],
        "row_counts": arrays.add(np.asarray(pc.fill_null(units.row_count, 0), np.float64)),
        "sizes": arrays.add(np.asarray(pc.fill_null(index.sizes(np.arange(len(index))), 0), np.float64)),
        "paths": index.paths(np.arange(len(index))).to_pylist() if len(index) <= _MOST_PATHS else None,
        "left_out": left_out,
        "colors": {"read": _READ, "file": _FILE, "alpha": _ALPHA},
        "workload": _shares_read(index, workload),
        "alternatives": [asdict(each) for each in others],
    }
    if group_file is not None:
        facts["group_files"] = arrays.add(group_file.astype(np.uint32))
    if predicate is not None:
        facts["conjuncts"] = _conjuncts(predicate, facts["tree"])
    snapshot = index.snapshot
    layout = "no layout" if snapshot.layout is None else f"layout {snapshot.layout.name}"
    return _filled(
        facts,
        arrays,
        title=index.storage.uri.rstrip("/").rpartition("/")[2],
        subtitle=f"version {snapshot.version}, {len(index):,} files, {layout}",
        predicate="every row" if predicate is None else predicate.text,
    )


def save(text: str, target: Path) -> Path:
    """Write the page to a file."""
    target.write_text(text, encoding="utf-8")
    return target


def _columns(index: Index, predicate: Predicate | None, given: Sequence[str] | None) -> list[Reference]:
    schema = index.snapshot.schema
    if given is None:
        chosen = drawn_columns(index.snapshot, predicate, _MOST_COLUMNS)
    else:
        chosen = [column.path for column in schema.orderable(given)]
    if not chosen:
        raise InvalidOption(f"{index.storage.uri} has no column with ranges to show.")
    return [Reference(path, schema.columns[path].type) for path in chosen]


def _tree(
    predicate: Predicate, exported: Sequence[ExportedColumn], levels: Sequence[Level], arrays: Arrays
) -> dict[str, Any]:
    """The predicate's tree; of several conjuncts an AND of theirs, so that the page can judge each alone."""
    trees = [tree_of(part, exported, levels, arrays) for part in predicate.conjuncts]
    return trees[0] if len(trees) == 1 else {"is": "and", "parts": trees}


def _conjuncts(predicate: Predicate, tree: dict[str, Any]) -> list[dict[str, Any]]:
    """Each conjunct: its text, its part of the exported tree (None: all of it), and why it prunes little."""
    parts = predicate.conjuncts
    found = []
    for number, part in enumerate(parts):
        opaque = [node.reason.text for node in walk(part.tree) if isinstance(node, Opaque)]
        own = tree["parts"][number] if len(parts) > 1 else tree
        note = "; ".join(dict.fromkeys(opaque)) or ("proved when this was made" if own["is"] == "fixed" else "")
        found.append({"text": part.text, "part": number if len(parts) > 1 else None, "note": note})
    return found


def _shares_read(index: Index, workload: Sequence[str]) -> list[dict[str, Any]]:
    """What each query reads: a predicate or a statement; one without a condition reads all."""
    schema, found = index.snapshot.schema, []
    for text in workload:
        query = table_query(text, schema)
        scan = planning.plan(index, None if query is None else bind(query.condition, schema)).scan
        rows, size = (pc.sum(scan.files[name], min_count=0).as_py() for name in ("rows", "size"))
        found.append({"text": " ".join(text.split()), "files": len(scan.paths), "rows": rows, "bytes": size})
    return found


def _filled(facts: dict[str, Any], arrays: Arrays, *, title: str, subtitle: str, predicate: str) -> str:
    folder = files("zskip.explore")
    picture, strips, scripts, libraries = _drawing(
        [column["path"] for column in facts["columns"]], facts["levels"][0]["units"]
    )
    escaped = json.dumps(facts, ensure_ascii=False).replace("<", "\\u003c")
    return Template(folder.joinpath("page.html").read_text("utf-8")).substitute(
        title=html.escape(title),
        subtitle=html.escape(subtitle),
        predicate=html.escape(predicate),
        libraries=packed(libraries.encode()),
        picture=picture,
        strips=strips,
        plots=scripts,
        facts=escaped,
        arrays=arrays.packed(),
        proof=folder.joinpath("proof.js").read_text("utf-8"),
        drawing=folder.joinpath("drawing.js").read_text("utf-8"),
        page=folder.joinpath("page.js").read_text("utf-8"),
    )


def _drawing(paths: Sequence[str], count: int) -> tuple[str, str, str, str]:
    """Bokeh's figures, which the page fills: the boxes, a strip for each column; the script that draws them; Bokeh."""
    try:
        from bokeh.embed import components
        from bokeh.models import ColumnDataSource, CustomJS
        from bokeh.plotting import figure
        from bokeh.resources import Resources
    except ImportError as error:
        raise MissingDependency('The page needs Bokeh: pip install "zskip[plot]"') from error

    def plot(name: str, width: int, height: int, top: int) -> figure:
        """A figure with sources for all files, those that are read, and an image of both where they are many."""
        tools = "pan,wheel_zoom,box_zoom,reset,save"
        made = figure(width=width, height=height, name=name, x_range=(0, 1), y_range=(0, top), tools=tools)
        pixels = {"image": [np.zeros((1, 1), np.uint32)], **{key: [0.0] for key in ("x", "y", "dw", "dh")}}
        made.image_rgba(**{key: key for key in pixels}, source=ColumnDataSource(pixels, name=f"{name}:image"))
        for own, color in (("files", _FILE), ("read", _READ)):
            boxes = ColumnDataSource({side: [] for side in sides}, name=f"{name}:{own}")
            made.quad(**sides, source=boxes, color=color, fill_alpha=_ALPHA, line_alpha=0.9)
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
    # Bokeh's own element has no box of its own, by which a strip could be seen to come into sight.
    first, *rest = (
        f'<div id="view:{html.escape(made.name)}">{part}</div>'
        for made, part in zip((picture, *strips), parts, strict=True)
    )
    return first, "".join(rest), re.sub(r"</?script[^>]*>", "", scripts), libraries
