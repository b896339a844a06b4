"""count, min and max over all rows of one scan: files of which every row matches are answered by the index.

The aggregates are not computed here. In place of those files stand a few rows of which the same aggregates come out:
as many rows as the files hold where something is counted, with their least and greatest values, and with NULLs where
they have them. So whatever the statement makes of its aggregates stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip import types as t
from zskip.plan import Survivors
from zskip.statement.plan_tree import Node, StubColumns, places_scanned_once, scan_below

__all__ = ["Aggregates", "IndexRows", "Values", "aggregates", "rows_of_index"]

_AGGREGATE = re.compile(r"(?P<function>min|max|count)\((?P<term>#\d+)\)|count_star\(\)")


@dataclass(frozen=True, slots=True)
class Aggregates:
    """What a statement makes of a scan's rows. ``counts``: whether their number matters · ``ordered``: columns whose
    extremes are asked for · ``counted``: columns whose values are counted."""

    place: int
    counts: bool
    ordered: frozenset[str]
    counted: frozenset[str]


@dataclass(frozen=True, slots=True)
class Values:
    """A column of `IndexRows`: ``upper`` in the first row, ``lower`` in the others up to ``count``, then NULLs."""

    lower: pa.Scalar
    upper: pa.Scalar
    count: int


@dataclass(frozen=True, slots=True)
class IndexRows:
    """Rows that stand for files: ``columns`` by name, all others NULL · ``files``: how many they stand for ·
    ``rest``: what is to be read still."""

    rest: Survivors
    files: int
    rows: int
    columns: Mapping[str, Values]


def aggregates(root: Node, stubs: Sequence[StubColumns]) -> list[Aggregates]:
    """The scans of which only such aggregates matter."""
    once = places_scanned_once(root, stubs)
    found = [one for node in root.walk() if (one := _aggregates(node, stubs)) is not None]
    return [one for one in found if one.place in once]


def _aggregates(node: Node, stubs: Sequence[StubColumns]) -> Aggregates | None:
    texts = node.info.get("Aggregates", "").split("\n")
    calls = [_AGGREGATE.fullmatch(text) for text in texts]
    if node.name != "UNGROUPED_AGGREGATE" or not all(calls):
        return None
    terms = [call["term"] for call in calls if call and call["term"]]
    below = scan_below(node, terms, stubs)
    if below is None:
        return None
    place, printed = below
    columns = [stubs[place].printed.get(term) for term in printed]
    if None in columns:
        return None
    functions = [call["function"] for call in calls if call and call["term"]]
    pairs = list(zip(functions, (column or "" for column in columns), strict=True))
    return Aggregates(
        place,
        len(terms) < len(texts) or "count" in functions,
        frozenset(column for function, column in pairs if function != "count"),
        frozenset(column for function, column in pairs if function == "count"),
    )


def rows_of_index(survivors: Survivors, wanted: Aggregates) -> IndexRows | None:
    """The rows that stand for the files which the index answers; None where it answers none.

    Every condition must be on one column, so that the extremes of a column meet what is asked of it.
    """
    index, predicate = survivors.index, survivors.predicate
    conditions = [part.columns for part in predicate.conjuncts] if predicate else []
    asked = {column for columns in conditions for column in columns}
    columns = sorted(asked | wanted.ordered | wanted.counted)
    known = index.snapshot.schema.columns
    if index.source is not None or any(len(one) != 1 for one in conditions) or not survivors.all_match.any():
        return None
    if any(path not in known or len(known[path].parts) != 1 for path in columns):
        return None
    if any(not _is_exact(known[path].type) for path in asked | wanted.ordered):
        return None
    if any(not _is_countable(known[path].type) for path in wanted.counted):
        return None
    files = index.file_statistics(survivors.numbers, columns)
    rows = np.asarray(pc.fill_null(files.row_count, -1))
    sure = survivors.all_match & (rows > 0)
    for path in columns:
        column = files.columns.get(path)
        if column is None:
            return None
        nulls = np.asarray(pc.fill_null(column.null_count, -1))
        sure &= nulls == 0 if path in asked else nulls >= 0
        bounded = pc.and_(pc.is_valid(column.lower), pc.is_valid(column.upper))
        if not t.is_string(known[path].type):
            sure &= (nulls == rows) | np.asarray(bounded)
        if path in asked | wanted.ordered:
            exact = pc.and_(pc.fill_null(column.lower_exact, False), pc.fill_null(column.upper_exact, False))
            sure &= (nulls == rows) | np.asarray(exact)
    if not sure.any():
        return None
    chosen = files.take(np.flatnonzero(sure))
    total = int(rows[sure].sum())
    values = {}
    for path in columns:
        column = chosen.columns[path]
        count = total - int(pc.sum(column.null_count).as_py())
        values[path] = Values(pc.min(column.lower), pc.max(column.upper), count)
    return IndexRows(survivors.kept(~sure), int(sure.sum()), total if wanted.counts else min(total, 2), values)


def _is_exact(type: pa.DataType) -> bool:
    """Types whose equal values are the same, in one order: not so floats, for −0.0, and texts, for collations."""
    return bool(t.is_integer(type) or t.is_decimal(type) or t.is_date(type) or t.is_timestamp(type))


def _is_countable(type: pa.DataType) -> bool:
    return bool(_is_exact(type) or t.is_floating(type) or t.is_boolean(type) or t.is_string(type))
