"""`explore`: an HTML page that shows a plan, and plans again when the reader changes its constants.

``export``: the data of the page, in its compact form · ``drawing.js``: draws into the figures, which Bokeh makes
(``pip install "zskip[plot]"``) · ``proof.js``: the planner's proof over ranges, in JavaScript · ``page.js``,
``page.html``: the page, which needs no network.
"""

from __future__ import annotations

import html
import importlib.util
import io
import json
import os
import re
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from zskip import layouts
from zskip.binder import bind
from zskip.binder.workload_sql import table_query
from zskip.core.option_checks import require_output
from zskip.errors import InvalidOption, MissingDependency, amount
from zskip.inspect.explore.export import Arrays, ExportedColumn, Level, columns_of, fitting, packed, tree_of
from zskip.language import Predicate
from zskip.language.tree import Opaque, Reference, walk
from zskip.plan import Survivors
from zskip.plan.planner import plan
from zskip.plot import boxes
from zskip.tablelog.index import Index
from zskip.tablelog.snapshot import Snapshot

__all__ = ["Alternative", "alternatives", "page", "require_replaceable", "save"]

_MOST_COLUMNS = 6
_MOST_ROW_GROUPS = 100_000
_MOST_PATHS = 20_000
"""With more files, their names would take most of the page's size."""
_MOST_CHARACTERS = 4_200_000
"""The size of the columns' ranges. With Bokeh and the rest, the page stays below 5 MB."""


def page(
    index: Index,
    predicate: Predicate | None = None,
    *,
    columns: Sequence[str] | None = None,
    workload: Sequence[str] = (),
    others: Sequence[Alternative] = (),
) -> str:
    """The HTML of the page.

    ``columns``: paths of the columns to draw; by default at most six of the predicate and the layout, except columns of
    the layout whose ranges would make the page larger than 5 MB · ``workload``: predicates or statements; the page
    lists the files, rows and bytes that each reads · ``others``: the same for other layouts, from `alternatives`.

    Raises `UnknownColumn`, `NotOrderable` and `SqlError`, `InvalidOption` for a table without files or ranges to draw,
    and `MissingDependency` without Bokeh.
    """
    if not len(index):
        raise InvalidOption(f"{index.storage.uri} has no files to show.")
    references, undrawn = _columns(index, predicate, columns)
    paths = sorted({reference.path for reference in references} | (predicate.columns if predicate else set()))
    units = index.files(None, paths).statistics
    statistics, group_file = [units], None
    groups = int(index.row_group_counts(np.arange(len(index))).sum())
    if index.has_row_groups and len(index) < groups <= _MOST_ROW_GROUPS:
        row_groups = index.row_groups(np.arange(len(index), dtype=np.int64), paths)
        statistics, group_file = [units, row_groups.statistics], row_groups.file
    exported, levels = columns_of(references, statistics)
    left_out = _too_large(exported, levels, predicate) if columns is None else []
    exported = [column for column in exported if column.path not in left_out]
    drawn = [column.path for column in exported if np.isfinite(levels[0].bounds[column.path][:2]).any()]
    without = [column.path for column in exported if column.path not in drawn]
    if not drawn:
        raise InvalidOption(
            f"No file of {index.storage.uri} has a range of {', '.join(without) or 'any column'} to show. Name other "
            "columns, or let zskip doctor list the missing bounds."
        )
    if columns is None:
        without += [column.path for column in index.schema if not column.orderable]
    arrays = Arrays()
    facts: dict[str, Any] = {
        "columns": [asdict(column) for column in exported],
        "tree": None if predicate is None else _tree(predicate, exported, levels, arrays),
        "conjuncts": [],
        "levels": [_exported_level(level, left_out, arrays) for level in levels],
        "row_counts": arrays.add(np.asarray(pc.fill_null(units.row_count, 0), np.float64)),
        "sizes": arrays.add(np.asarray(pc.fill_null(index.sizes(np.arange(len(index))), 0), np.float64)),
        "paths": index.paths(np.arange(len(index))).to_pylist() if len(index) <= _MOST_PATHS else None,
        "left_out": left_out,
        "undrawn": undrawn,
        "drawn": drawn,
        "without_ranges": without,
        "colors": {"read": READ, "file": FILE, "alpha": ALPHA},
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
        subtitle=f"version {index.version}, {amount(len(index), 'file')}, {layout}",
        predicate="every row" if predicate is None else predicate.text,
    )


_BEGINNING = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="zskip explore">"""


def require_replaceable(path: str | os.PathLike[str]) -> Path:
    """The file to write. Raises `InvalidOption` where it cannot lie, and for a file there that is no page."""
    target = require_output(path)
    if target.is_file() and target.stat().st_size:
        with target.open(encoding="utf-8", errors="replace") as file:
            if file.read(len(_BEGINNING)) != _BEGINNING:
                raise InvalidOption(f'"{target}" is there, and is no page of explore: name another file, or remove it.')
    return target


def save(text: str, target: Path) -> Path:
    """Write the page to a file, in place of an earlier one."""
    target.write_text(text, encoding="utf-8")
    return target


def _columns(
    index: Index, predicate: Predicate | None, given: Sequence[str] | None
) -> tuple[list[Reference], list[str]]:
    """The columns to draw, and those that the limit of six leaves out."""
    schema = index.schema
    every = drawn_columns(index.snapshot, predicate)
    chosen = every[:_MOST_COLUMNS] if given is None else [column.path for column in schema.orderable(given)]
    undrawn = every[_MOST_COLUMNS:] if given is None else []
    return [Reference(path, schema.columns[path].type) for path in chosen], undrawn


def _too_large(exported: Sequence[ExportedColumn], levels: Sequence[Level], predicate: Predicate | None) -> list[str]:
    """The columns for whose ranges the page has no room."""
    needed = set() if predicate is None else set(predicate.columns)
    sizes = {
        column.path: (column.texts, [each for level in levels for each in level.bounds[column.path]])
        for column in exported
    }
    fits = fitting(sizes, needed, _MOST_CHARACTERS)
    return [column.path for column in exported if column.path not in fits]


def _exported_level(level: Level, left_out: Sequence[str], arrays: Arrays) -> dict[str, Any]:
    places = {
        path: {"lower": arrays.add(lower), "upper": arrays.add(upper), "flags": arrays.add(flags)}
        for path, (lower, upper, flags) in level.bounds.items()
        if path not in left_out
    }
    return {"units": len(level.statistics), "places": places}


def _tree(
    predicate: Predicate, exported: Sequence[ExportedColumn], levels: Sequence[Level], arrays: Arrays
) -> dict[str, Any]:
    """The exported tree of the predicate. Several conjuncts form an AND, so the page can evaluate each one alone."""
    trees = [tree_of(part, exported, levels, arrays) for part in predicate.conjuncts]
    return trees[0] if len(trees) == 1 else {"is": "and", "parts": trees}


def _conjuncts(predicate: Predicate, tree: dict[str, Any]) -> list[dict[str, Any]]:
    """Each conjunct: its text, the number of its part in the exported tree (None: the whole tree), and a note why it
    prunes little."""
    parts = predicate.conjuncts
    found = []
    for number, part in enumerate(parts):
        opaque = [node.reason.text for node in walk(part.tree) if isinstance(node, Opaque)]
        own = tree["parts"][number] if len(parts) > 1 else tree
        note = "; ".join(dict.fromkeys(opaque)) or (
            "its constants cannot be changed here" if own["is"] == "fixed" else ""
        )
        found.append({"text": part.text, "part": number if len(parts) > 1 else None, "note": note})
    return found


def _shares_read(index: Index, workload: Sequence[str]) -> list[dict[str, Any]]:
    """The files, rows and bytes that each predicate or statement reads. Without a condition it reads all."""
    schema, found = index.snapshot.schema, []
    for text in workload:
        query = table_query(text, schema)
        scan = plan(index, None if query is None else bind(query.condition, schema)).scan
        rows, size = (pc.sum(scan.files[name], min_count=0).as_py() for name in ("rows", "size"))
        found.append({"text": " ".join(text.split()), "files": len(scan.paths), "rows": rows, "bytes": size})
    return found


def _filled(facts: dict[str, Any], arrays: Arrays, *, title: str, subtitle: str, predicate: str) -> str:
    folder = files("zskip.inspect.explore")
    picture, strips, scripts, libraries = figures(facts["drawn"], facts["levels"][0]["units"])
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


# How much the same queries would read if the table had another layout or more files.

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


# The figures of the page, created empty by Bokeh: `drawing.js` fills their data sources in the browser.

READ, FILE, ALPHA = "#d1495b", "#8fa8bf", 0.3
"""The colors of files that are read and of other files, and the opacity of both."""


def figures(paths: Sequence[str], count: int) -> tuple[str, str, str, str]:
    """The HTML of the figure with the boxes, the HTML of the strips, the script that creates both, and Bokeh itself.

    ``paths``: the columns, each of which gets a strip · ``count``: the number of files. Raises `MissingDependency`.
    """
    try:
        from bokeh.embed import components
        from bokeh.models import BasicTicker, BasicTickFormatter, ColumnDataSource, CustomJS, NoOverlap
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
        made.axis.major_label_policy = NoOverlap(min_distance=10)
        pixels = {"image": [np.zeros((1, 1), np.uint32)], **{key: [0.0] for key in ("x", "y", "dw", "dh")}}
        made.image_rgba(**{key: key for key in pixels}, source=ColumnDataSource(pixels, name=f"{name}:image"))
        for own, color in (("files", FILE), ("read", READ)):
            boxes = ColumnDataSource({side: [] for side in sides}, name=f"{name}:{own}")
            made.quad(**sides, source=boxes, color=color, fill_alpha=ALPHA, line_alpha=0.9)
        return made

    sides = {side: side for side in ("left", "right", "bottom", "top")}
    picture = plot("picture", 640, 520, 1)
    chosen = ColumnDataSource({side: [] for side in sides}, name="picture:chosen")
    picture.quad(**sides, source=chosen, fill_color=None, line_width=2, name="mark")
    picture.js_on_event("tap", CustomJS(code="window.zskipTap(cb_obj.x, cb_obj.y);"))
    for axis, line in (("across", picture.vspan), ("up", picture.hspan)):
        marks = ColumnDataSource({"at": []}, name=f"{axis}-constants")
        line(**{"x" if axis == "across" else "y": "at"}, source=marks, line_dash="dashed", name="mark")
    strips = [plot(f"strip:{path}", 560, 220, count) for path in paths]
    for strip in strips:
        strip.yaxis.axis_label = "file"
        strip.yaxis.ticker = BasicTicker(min_interval=1, num_minor_ticks=0)
        strip.yaxis.formatter = BasicTickFormatter(use_scientific=False)
    scripts, parts = components([picture, *strips])
    libraries = "\n;\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)
    # The page draws a strip once it is visible. Bokeh's own element has no size from which to tell that.
    first, *rest = (
        f'<div id="view:{html.escape(made.name)}">{part}</div>'
        for made, part in zip((picture, *strips), parts, strict=True)
    )
    return first, "".join(rest), re.sub(r"</?script[^>]*>", "", scripts), libraries


# A plan as a picture: the files as boxes on two columns, those that are read highlighted. Notebooks show it.

_MOST_FILES = 2_000
"""A picture of more files would slow a notebook down; `Table.explore` draws more."""


def svg(survivors: Survivors) -> str | None:
    """The picture as SVG.

    None for a table without files, with too many files or with fewer than two columns to draw, and if Altair or
    vl-convert is not installed.
    """
    index = survivors.index
    paths = drawn_columns(index.snapshot, survivors.predicate)[:2]
    installed = all(importlib.util.find_spec(name) for name in ("altair", "vl_convert"))
    if not installed or len(paths) < 2 or not 0 < len(index) <= _MOST_FILES:
        return None
    lit = np.zeros(len(index), bool)
    lit[survivors.numbers] = True
    target = io.StringIO()
    boxes(index.files(None, paths).statistics, *paths, survivors=lit).save(target, format="svg")
    return target.getvalue()


def drawn_columns(snapshot: Snapshot, predicate: Predicate | None) -> list[str]:
    """The paths of the orderable columns: first those of both the predicate and the layout, then those of
    the layout, of the predicate, and all others."""
    layout = () if snapshot.layout is None else snapshot.layout.columns
    read = sorted(predicate.columns) if predicate else []
    both = [path for path in read if path in layout]
    columns = snapshot.indexed.columns
    wanted = dict.fromkeys([*both, *layout, *read, *snapshot.schema.columns])
    return [path for path in wanted if path in columns and columns[path].orderable]
