"""count, min and max over one scan, with or without GROUP BY: the index answers for files whose rows all match.

The aggregates are not computed here. Instead, synthetic rows that aggregate to the same results replace those files:
they repeat the files' minima and maxima, contain as many NULLs as the files do, and number as many as the files' rows
if the statement counts. The rest of the statement stays unchanged. With GROUP BY, only a file whose rows all belong to
one group is replaced, such as a file of a partition.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.core.schema import join_path
from zskip.plan import Survivors
from zskip.statements.plan_tree import GROUPS, Node, StubColumns, places_scanned_once, scan_below
from zskip.stats import FileStatistics

_AGGREGATE = re.compile(r"(?P<function>min|max|count)\((?P<term>#\d+)\)|count_star\(\)")

# Seconds to open a file, and to generate and group one synthetic row.
_FILE_SECONDS, _GROUPED_ROW_SECONDS = 1.3e-4, 2.6e-8


@dataclass(frozen=True, slots=True)
class Aggregates:
    """The aggregates over one scan, with columns by name. ``counts``: whether the number of rows matters ·
    ``ordered``: the columns under min or max · ``counted``: the columns under count · ``groups``: the columns of
    GROUP BY; None without GROUP BY."""

    place: int
    counts: bool
    ordered: frozenset[str]
    counted: frozenset[str]
    groups: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Values:
    """A column of `IndexRows`, one slot per group. In a group, the first row has the value ``upper``, the next rows up
    to ``count`` have ``lower``, and the remaining rows are NULL. Strings outside GROUP BY are empty: only their number
    matters."""

    lower: pa.Array
    upper: pa.Array
    count: pa.Int64Array


@dataclass(frozen=True, slots=True)
class IndexRows:
    """Synthetic rows that replace files. ``rest``: the files still to be read · ``files``: the number of files
    replaced · ``rows``: the number of rows in each group · ``columns``: columns by name; all others are NULL."""

    rest: Survivors
    files: int
    rows: pa.Int64Array
    columns: Mapping[str, Values]


def aggregates(root: Node, stubs: Sequence[StubColumns]) -> list[Aggregates]:
    """The aggregates of a plan directly over a scan, for each table that the plan scans once."""
    once = places_scanned_once(root)
    found = [one for node in root.walk() if (one := _aggregates(node, stubs)) is not None]
    return [one for one in found if one.place in once]


def _aggregates(node: Node, stubs: Sequence[StubColumns]) -> Aggregates | None:
    grouped = node.name in GROUPS
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
    """Synthetic rows for the files that the index answers; None if it answers none, or if reading them is faster.

    The engine applies the statement's conditions to the synthetic rows too. Such a row combines values from different
    rows, so each condition may read only one column.
    """
    return survivors.once(wanted, lambda: _rows_of_index(survivors, wanted))


def _rows_of_index(survivors: Survivors, wanted: Aggregates) -> IndexRows | None:
    index, predicate = survivors.index, survivors.predicate
    conditions = [part.columns for part in predicate.conjuncts] if predicate else []
    filtered = {column for columns in conditions for column in columns}
    ordered, counted, groups = map(_paths, (wanted.ordered, wanted.counted, wanted.groups or frozenset()))
    columns = sorted(filtered | ordered | counted | groups)
    known = index.snapshot.schema.columns
    if index.source is not None or any(len(one) != 1 for one in conditions) or not survivors.all_match.any():
        return None
    if any(path not in known or len(known[path].parts) != 1 for path in columns):
        return None
    if any(not _is_exact(known[path].type) for path in filtered | ordered):
        return None
    if any(not _is_countable(known[path].type) for path in counted):
        return None
    if any(not _is_groupable(known[path].type) for path in groups):
        return None
    files = index.file_statistics(survivors.numbers, columns)
    if any(path not in files.columns for path in columns):
        return None
    rows = np.asarray(pc.fill_null(files.row_count, -1))
    answered = survivors.all_match & (rows > 0)
    for path in columns:
        column = files.columns[path]
        nulls = np.asarray(pc.fill_null(column.null_count, -1))
        answered &= nulls == 0 if path in filtered else nulls >= 0
        bounded = pc.and_(_is_writable(column.lower), _is_writable(column.upper))
        if not t.is_string(known[path].type) or path in groups:
            answered &= (nulls == rows) | np.asarray(bounded)
        if path in filtered | ordered | groups:
            exact = pc.and_(pc.fill_null(column.lower_exact, False), pc.fill_null(column.upper_exact, False))
            answered &= (nulls == rows) | np.asarray(exact)
        if path in groups:
            single = np.asarray(pc.fill_null(pc.equal(column.lower, column.upper), False))
            answered &= (nulls == rows) | (nulls == 0) & single
    if not answered.any():
        return None
    if groups and wanted.counts and rows[answered].mean() * _GROUPED_ROW_SECONDS > _FILE_SECONDS:
        return None
    group_rows, values = _grouped(files.take(np.flatnonzero(answered)), columns, sorted(groups), ordered)
    if not wanted.counts:
        group_rows = pc.min_element_wise(group_rows, 2)
    named = {known[path].parts[0]: each for path, each in values.items()}
    return IndexRows(survivors.kept(~answered), int(answered.sum()), group_rows, named)


def _paths(names: Collection[str]) -> frozenset[str]:
    return frozenset(join_path([name]) for name in names)


def _grouped(
    files: FileStatistics, columns: Sequence[str], groups: Sequence[str], ordered: Collection[str]
) -> tuple[pa.Array, dict[str, Values]]:
    """The number of rows in each group of files, and the values of its columns. Only the columns in ``ordered`` get
    their maximum as ``upper``."""
    arrays, aggregations = {"rows": files.row_count}, [("rows", "sum")]
    for number, path in enumerate(columns):
        column = files.columns[path]
        arrays[f"count{number}"] = pc.subtract(files.row_count, column.null_count)
        aggregations.append((f"count{number}", "sum"))
        if path in groups:
            arrays[f"group{number}"] = column.lower
        elif not t.is_string(column.lower.type):
            arrays |= {f"lower{number}": column.lower, f"upper{number}": column.upper}
            aggregations += [(f"lower{number}", "min"), (f"upper{number}", "max")]
    keys = [f"group{number}" for number, path in enumerate(columns) if path in groups]
    grouped = pa.table(arrays).group_by(keys).aggregate(aggregations).combine_chunks()
    empty_strings = pa.array([""] * len(grouped))

    def column_of(name: str) -> pa.Array:
        return grouped.column(name).combine_chunks() if name in grouped.column_names else empty_strings

    values = {}
    for number, path in enumerate(columns):
        ends = ("group{}", "group{}") if path in groups else ("lower{}_min", "upper{}_max")
        lower, upper = (column_of(end.format(number)) for end in ends)
        values[path] = Values(lower, upper if path in ordered else lower, column_of(f"count{number}_sum"))
    return column_of("rows_sum"), values


def _is_writable(bounds: pa.Array) -> pa.BooleanArray:
    """Whether each bound is known, and its text is read back as the same value.

    An engine refuses a decimal of more digits than its type has. Arrow writes years of more than five digits, and
    infinite dates, as other years or not at all.
    """
    if t.is_decimal(bounds.type):
        return pc.fill_null(t.within_digits(bounds), False)
    if t.is_date(bounds.type) or t.is_timestamp(bounds.type):
        return pc.fill_null(t.within_years(bounds), False)
    return bounds.is_valid()


def _is_exact(type: pa.DataType) -> bool:
    """Whether equal values are identical and have one order. Floats differ because of −0.0, strings by collation."""
    return bool(t.is_integer(type) or t.is_decimal(type) or t.is_date(type) or t.is_timestamp(type))


def _is_countable(type: pa.DataType) -> bool:
    return bool(_is_exact(type) or t.is_floating(type) or t.is_boolean(type) or t.is_string(type))


def _is_groupable(type: pa.DataType) -> bool:
    """Whether all values in one group are identical."""
    return bool(_is_exact(type) or t.is_boolean(type) or t.is_string(type))
