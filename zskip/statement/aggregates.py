"""count, min and max over one scan, all of it or by groups: files of which every row matches are answered by the index.

The aggregates are not computed here. In place of those files stand a few rows of which the same aggregates come out:
as many rows as the files hold where something is counted, with their least and greatest values, and with NULLs where
they have them. So whatever the statement makes of its aggregates stays as it is. Of groups, it is the files of which
all rows are of one group, as those of a partition are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip import types as t
from zskip.plan import Survivors
from zskip.statement.plan_tree import Node, StubColumns, places_scanned_once, scan_below
from zskip.stats import FileStatistics

__all__ = ["Aggregates", "IndexRows", "Values", "aggregates", "rows_of_index"]

_AGGREGATE = re.compile(r"(?P<function>min|max|count)\((?P<term>#\d+)\)|count_star\(\)")


# Seconds: what opening a file costs, and making and grouping a row that stands for one of its own.
_A_FILE, _A_GROUPED_ROW = 1.3e-4, 2.6e-8
_GROUPS = ("HASH_GROUP_BY", "PERFECT_HASH_GROUP_BY")


@dataclass(frozen=True, slots=True)
class Aggregates:
    """What a statement makes of a scan's rows. ``counts``: whether their number matters · ``ordered``: columns whose
    extremes are asked for · ``counted``: columns whose values are counted · ``groups``: columns that it groups by, None
    where all rows are one group."""

    place: int
    counts: bool
    ordered: frozenset[str]
    counted: frozenset[str]
    groups: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Values:
    """A column of `IndexRows`: in each group ``upper`` in the first row, ``lower`` in the others up to ``count``, then
    NULLs. A text that is not grouped by is any text."""

    lower: pa.Array
    upper: pa.Array
    count: pa.Int64Array


@dataclass(frozen=True, slots=True)
class IndexRows:
    """Rows that stand for files, group by group: ``columns`` by name, all others NULL · ``files``: how many files they
    stand for · ``rest``: what is to be read still · ``rows``: how many rows each group has."""

    rest: Survivors
    files: int
    rows: pa.Int64Array
    columns: Mapping[str, Values]


def aggregates(root: Node, stubs: Sequence[StubColumns]) -> list[Aggregates]:
    """The scans of which only such aggregates matter."""
    once = places_scanned_once(root)
    found = [one for node in root.walk() if (one := _aggregates(node, stubs)) is not None]
    return [one for one in found if one.place in once]


def _aggregates(node: Node, stubs: Sequence[StubColumns]) -> Aggregates | None:
    grouped = node.name in _GROUPS
    texts = [text for text in node.info.get("Aggregates", "").split("\n") if text]
    groups = node.info.get("Groups", "").split("\n") if grouped else []
    calls = [_AGGREGATE.fullmatch(text) for text in texts]
    if not (grouped or node.name == "UNGROUPED_AGGREGATE") or not all(calls):
        return None
    terms = [call["term"] for call in calls if call and call["term"]]
    below = scan_below(node, [*groups, *terms])
    if below is None:
        return None
    place, printed = below
    columns = [stubs[place].printed.get(term, "") for term in printed]
    if "" in columns:
        return None
    functions = [call["function"] for call in calls if call and call["term"]]
    pairs = list(zip(functions, columns[len(groups) :], strict=True))
    return Aggregates(
        place,
        len(terms) < len(texts) or "count" in functions,
        frozenset(column for function, column in pairs if function != "count"),
        frozenset(column for function, column in pairs if function == "count"),
        frozenset(columns[: len(groups)]) if grouped else None,
    )


def rows_of_index(survivors: Survivors, wanted: Aggregates) -> IndexRows | None:
    """The rows that stand for the files which the index answers; None where it answers none, or reading is faster.

    Every condition must be on one column, so that the extremes of a column meet what is asked of it.
    """
    return survivors.once(wanted, lambda: _rows_of_index(survivors, wanted))


def _rows_of_index(survivors: Survivors, wanted: Aggregates) -> IndexRows | None:
    index, predicate = survivors.index, survivors.predicate
    conditions = [part.columns for part in predicate.conjuncts] if predicate else []
    asked = {column for columns in conditions for column in columns}
    groups = wanted.groups or frozenset()
    columns = sorted(asked | wanted.ordered | wanted.counted | groups)
    known = index.snapshot.schema.columns
    if index.source is not None or any(len(one) != 1 for one in conditions) or not survivors.all_match.any():
        return None
    if any(path not in known or len(known[path].parts) != 1 for path in columns):
        return None
    if any(not _is_exact(known[path].type) for path in asked | wanted.ordered):
        return None
    if any(not _is_countable(known[path].type) for path in wanted.counted):
        return None
    if any(not _is_comparable(known[path].type) for path in groups):
        return None
    files = index.file_statistics(survivors.numbers, columns)
    if any(path not in files.columns for path in columns):
        return None
    rows = np.asarray(pc.fill_null(files.row_count, -1))
    sure = survivors.all_match & (rows > 0)
    for path in columns:
        column = files.columns[path]
        nulls = np.asarray(pc.fill_null(column.null_count, -1))
        sure &= nulls == 0 if path in asked else nulls >= 0
        bounded = pc.and_(pc.is_valid(column.lower), pc.is_valid(column.upper))
        if not t.is_string(known[path].type) or path in groups:
            sure &= (nulls == rows) | np.asarray(bounded)
        if path in asked | wanted.ordered | groups:
            exact = pc.and_(pc.fill_null(column.lower_exact, False), pc.fill_null(column.upper_exact, False))
            sure &= (nulls == rows) | np.asarray(exact)
        if path in groups:
            one = np.asarray(pc.fill_null(pc.equal(column.lower, column.upper), False))
            sure &= (nulls == rows) | (nulls == 0) & one
    if not sure.any() or (groups and wanted.counts and rows[sure].mean() * _A_GROUPED_ROW > _A_FILE):
        return None
    made, values = _grouped(files.take(np.flatnonzero(sure)), columns, sorted(groups), wanted.ordered)
    if not wanted.counts:
        made = pc.min_element_wise(made, 2)
    return IndexRows(survivors.kept(~sure), int(sure.sum()), made, values)


def _grouped(
    files: FileStatistics, columns: Sequence[str], groups: Sequence[str], ordered: Collection[str]
) -> tuple[pa.Array, dict[str, Values]]:
    """The rows of each group of files, and its columns; the greatest values of ``ordered`` alone."""
    made, wanted = {"rows": files.row_count}, [("rows", "sum")]
    for number, path in enumerate(columns):
        column = files.columns[path]
        made[f"count{number}"] = pc.subtract(files.row_count, column.null_count)
        wanted.append((f"count{number}", "sum"))
        if path in groups:
            made[f"group{number}"] = column.lower
        elif not t.is_string(column.lower.type):
            made |= {f"lower{number}": column.lower, f"upper{number}": column.upper}
            wanted += [(f"lower{number}", "min"), (f"upper{number}", "max")]
    keys = [f"group{number}" for number, path in enumerate(columns) if path in groups]
    found = pa.table(made).group_by(keys).aggregate(wanted).combine_chunks()
    texts = pa.array([""] * len(found))

    def column_of(name: str) -> pa.Array:
        return found.column(name).combine_chunks() if name in found.column_names else texts

    values = {}
    for number, path in enumerate(columns):
        ends = ("group{}", "group{}") if path in groups else ("lower{}_min", "upper{}_max")
        lower, upper = (column_of(end.format(number)) for end in ends)
        values[path] = Values(lower, upper if path in ordered else lower, column_of(f"count{number}_sum"))
    return column_of("rows_sum"), values


def _is_exact(type: pa.DataType) -> bool:
    """Types whose equal values are the same, in one order: not so floats, for −0.0, and texts, for collations."""
    return bool(t.is_integer(type) or t.is_decimal(type) or t.is_date(type) or t.is_timestamp(type))


def _is_countable(type: pa.DataType) -> bool:
    return bool(_is_exact(type) or t.is_floating(type) or t.is_boolean(type) or t.is_string(type))


def _is_comparable(type: pa.DataType) -> bool:
    """Types of which two values that are one group are the same value."""
    return bool(_is_exact(type) or t.is_boolean(type) or t.is_string(type))
