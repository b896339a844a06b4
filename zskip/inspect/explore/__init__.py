"""`explore`: an HTML page that shows a plan, and plans again when the reader changes its constants.

``export``: the data of the page, in its compact form · ``figures``: the empty figures, made by Bokeh
(``pip install "zskip[plot]"``); ``drawing.js``: draws into them · ``proof.js``: the planner's proof over ranges, in
JavaScript · ``page.js``, ``page.html``: the page, which needs no network · ``alternatives``: how much the same queries
would read with other layouts · ``picture``: a plan in a notebook, and the columns that both draw.
"""

from __future__ import annotations

import html
import json
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
from zskip.errors import InvalidOption
from zskip.inspect.explore.alternatives import Alternative, alternatives
from zskip.inspect.explore.export import Arrays, ExportedColumn, Level, columns_of, fitting, packed, tree_of
from zskip.inspect.explore.figures import ALPHA, FILE, READ, figures
from zskip.inspect.explore.picture import drawn_columns
from zskip.language import Predicate
from zskip.language.tree import Opaque, Reference, walk
from zskip.tablelog import Index

__all__ = ["Alternative", "alternatives", "page", "save"]

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
    left_out = _too_large(exported, levels, predicate) if columns is None else []
    exported = [column for column in exported if column.path not in left_out]
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
        note = "; ".join(dict.fromkeys(opaque)) or ("proved when this was made" if own["is"] == "fixed" else "")
        found.append({"text": part.text, "part": number if len(parts) > 1 else None, "note": note})
    return found


def _shares_read(index: Index, workload: Sequence[str]) -> list[dict[str, Any]]:
    """The files, rows and bytes that each predicate or statement reads. Without a condition it reads all."""
    schema, found = index.snapshot.schema, []
    for text in workload:
        query = table_query(text, schema)
        scan = planning.plan(index, None if query is None else bind(query.condition, schema)).scan
        rows, size = (pc.sum(scan.files[name], min_count=0).as_py() for name in ("rows", "size"))
        found.append({"text": " ".join(text.split()), "files": len(scan.paths), "rows": rows, "bytes": size})
    return found


def _filled(facts: dict[str, Any], arrays: Arrays, *, title: str, subtitle: str, predicate: str) -> str:
    folder = files("zskip.inspect.explore")
    picture, strips, scripts, libraries = figures(
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
