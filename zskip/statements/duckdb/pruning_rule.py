"""Whether a statement is pruned at all: one rule, which weighs what pruning costs against what it can save.

Pruning costs an EXPLAIN over stubs and the rules, some 10 to 20 ms. A statement is not explained

| if it                                                      | because                                             |
| ---------------------------------------------------------- | --------------------------------------------------- |
| names the position of files in their list                  | it depends on files that are skipped                |
| stores the result of a PIVOT by values                     | DuckDB runs a part of it to plan it, without rows   |
| skipped little before, over the same versions              | reading all files is correct, whatever else changed |
| reads no column outside its results whose ranges differ    | hardly a file can be skipped                        |
| much from file to file, in up to a thousand local files    |                                                     |
| reads few files, of which it only compares columns with    | DuckDB skips them by their footers in less time     |
| constants, or with each other in a join                    |                                                     |
| reads little of few files of one table, all that its       | DuckDB reads the whole of it in less time           |
| conditions select                                          |                                                     |
| reads little, and is one of a process's first              | the rules themselves take longer to load            |

The last four do not hold where a user wants to know what is skipped, and the three before the last also not where the
index may answer count, min or max: of few files, only those without a condition.
None of them can be wrong: a statement that is not explained reads all files.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zskip.core.late_loading import pc
from zskip.core.types import is_duration, is_floating
from zskip.plan.survivors import FEW_FILES, Survivors
from zskip.statements.duckdb.parsed_statements import Parsed
from zskip.statements.duckdb.session import schema_of
from zskip.statements.duckdb.stubs import asks_for_places, named_columns
from zskip.statements.duckdb.table_places import has_pivot
from zskip.tablelog.freshness import listed

if TYPE_CHECKING:
    import duckdb

    from zskip.statements.aggregates import IndexRows
    from zskip.tablelog.freshness import Changes
    from zskip.tablelog.index import Index

LEAST_READ = 0.1
"""The least time, in processor seconds, to read a table as a whole in which its rows are looked for otherwise."""
# Functions that the index may answer.
_ANSWERED = frozenset({"count", "count_star", "min", "max"})
# The least time that pruning must save to be done again: that of a few small files.
LEAST_SAVED = 1e-3
# Processor seconds to load the rules, and to open a file; the bytes that DuckDB reads in a second.
_LOAD_SECONDS, _FILE_SECONDS, _BYTES_A_SECOND = 0.4, 2e-4, 4e8
_RULES = "zskip.statements.duckdb.pruned_tables"
MOST_RANGES = 1000
"""The most files whose ranges are looked at for each column that a statement names."""
# The least share of a column's span that the ranges of all files have in common if conditions on it hardly skip a file.
_IN_COMMON = 0.9
# DuckDB reads the description of so many columns of row groups in the time in which it opens a file.
_CHUNKS_A_FILE = 64


@dataclass(frozen=True, slots=True)
class PrunedTable:
    """The files of one table that a statement must read.

    ``index_rows``: rows from the index that replace files · ``reasons``: what each rule skipped · ``types_read``: the
    types of the columns that the rules read · ``ordered``: whether a rule depends on an order of rows · ``only_named``:
    the statement needs only the columns that its text names.
    """

    survivors: Survivors
    index_rows: IndexRows | None
    reasons: tuple[str, ...]
    types_read: tuple[pa.DataType, ...] = ()
    ordered: bool = False
    only_named: bool = False

    @property
    def gains(self) -> bool:
        """Whether any file is skipped."""
        return self.index_rows is not None or len(self.survivors) < self.survivors.total_files


def changes_of(parsed: Parsed, freshness: str) -> dict[Index, Changes | None]:
    """What has changed in each table's folder since it was indexed. A table that is named twice is listed once."""
    return {index: listed(index) if freshness == "list" else None for index in {index for _, index in parsed.found}}


def whole_tables(parsed: Parsed, freshness: str) -> list[PrunedTable]:
    """The tables of a statement that is not pruned, in textual order."""
    changes = changes_of(parsed, freshness)
    return [
        PrunedTable(Survivors.of_all(index, changes[index] or None), None, (), only_named=parsed.only_named)
        for _, index in parsed.found
    ]


_GAINLESS: set[int] = set()
_MOST_GAINLESS = 4096


def is_explained(
    parsed: Parsed,
    con: duckdb.DuckDBPyConnection,
    params: Sequence[Any] | Mapping[str, Any] | None,
    *,
    for_user: bool,
) -> bool:
    """The rule. ``for_user``: a user wants to know what is skipped. A query log has all plans of its table."""
    if parsed.statement.kind != "SELECT" and has_pivot(parsed.words):
        return False
    if asks_for_places(parsed.words):
        return False
    if for_user or any(index.query_log.is_on for _, index in parsed.found):
        return True
    if params is None and _version_of(parsed) in _GAINLESS:
        return False
    if not _is_worth_loading(parsed):
        return False
    return not all(_is_known_by_ranges(index) for _, index in parsed.found) or _may_gain(parsed, con)


_READ_WHOLE = [0.0]
"""The seconds at most that statements have taken since they were not pruned, while the rules were not loaded."""


def _is_worth_loading(parsed: Parsed) -> bool:
    """Whether the rules are loaded, or statements over all files have taken as long as loading them by now.

    So a process takes at most twice the time of the better choice, whatever statements follow.
    """
    if _RULES in sys.modules:
        return True
    _READ_WHOLE[0] += sum(_seconds_of_all(index) for _, index in parsed.found)
    return _READ_WHOLE[0] >= _LOAD_SECONDS


def _seconds_of_all(index: Index) -> float:
    """The time at most in which DuckDB reads all files; infinite where pruning saves more than reads."""
    snapshot = index.snapshot
    if index.storage.local is None or snapshot.sketches or snapshot.dimensions:
        return math.inf
    return len(index) * _FILE_SECONDS + (snapshot.totals.bytes or 0) / _BYTES_A_SECOND


def _may_gain(parsed: Parsed, con: duckdb.DuckDBPyConnection) -> bool:
    """Whether pruning may save more than it costs, if it knows each table by the ranges of its files alone."""
    places, text = parsed.places, parsed.statement.query
    # With a sum beside them, DuckDB reads the rows that the index could count.
    answered = bool(places.functions) and places.functions <= _ANSWERED
    if (
        (places.searched or not answered)
        and (places.only_compares or (places.only_filters and _reads_little(parsed, con)))
        and all(_has_short_footers(index) for _, index in parsed.found)
    ):
        return False
    if parsed.hidden or places.reads_names or parsed.of_user:
        return True
    if not places.renames:
        searched = places.searched | (places.joined if len(parsed.found) > 1 else set())
        if not any(_may_skip(index, searched) for _, index in parsed.found):
            return answered and not searched
    elif not parsed.only_named:
        return True
    elif not any(_may_skip(index, named_columns(schema_of(index, con).arrow, text).names) for _, index in parsed.found):
        return answered
    return True


def _is_known_by_ranges(index: Index) -> bool:
    """Whether ranges are all that is known of a table's files, and so few that a column's are looked at in no time."""
    snapshot = index.snapshot
    return (
        len(index) <= MOST_RANGES
        and index.storage.local is not None
        and not snapshot.sketches
        and not snapshot.dimensions
    )


def _reads_little(parsed: Parsed, con: duckdb.DuckDBPyConnection) -> bool:
    """Whether DuckDB reads the columns that a statement names in less time than pruning takes."""
    seconds = 0.0
    for _, index in parsed.found:
        schema = schema_of(index, con).arrow
        named = named_columns(schema, parsed.statement.query) if parsed.only_named else schema
        seconds += _seconds_of_all(index) * len(named) / len(schema)
    return seconds <= LEAST_READ


def _has_short_footers(index: Index) -> bool:
    """Whether DuckDB skips a table's files by their footers in less time than pruning takes."""
    chunks = index.snapshot.totals.row_groups * len(index.snapshot.schema.columns)
    return len(index) + chunks / _CHUNKS_A_FILE <= FEW_FILES


def _may_skip(index: Index, names: Collection[str]) -> bool:
    """Whether conditions on some of these columns may skip files. ``names``: without regard to case."""
    folded = {name.casefold() for name in names}
    leaves = index.snapshot.schema.columns.values()
    return any(
        index.once(("may skip", leaf.path), partial(_ranges_may_skip, index, leaf.path), _bytes)
        for leaf in leaves
        if leaf.orderable and leaf.parts[0].casefold() in folded
    )


def _ranges_may_skip(index: Index, path: str) -> bool:
    """Whether NULL is in some of the files alone, or many a value lies outside the range of some file.

    lowest                                      highest bound
      |-----[=============================]--------|
            values that the ranges of all files have in common

    Over few files only ranges without any such value count: DuckDB skips the others by their footers in no time.
    """
    ranges = index.files(None, [path]).statistics.columns.get(path)
    if ranges is None:
        return False  # the table has no files
    if pc.any(ranges.has_null).as_py() and not pc.all(ranges.has_null).as_py():
        return True
    lower, upper = ranges.lower, ranges.upper
    if is_duration(lower.type):  # Arrow has no least and no greatest one
        lower, upper = lower.cast(pa.int64()), upper.cast(pa.int64())
    ends = [pc.min(lower), pc.max(lower), pc.min(upper), pc.max(upper)]
    if not all(end.is_valid for end in ends):
        return False
    apart = bool(pc.less(ends[2], ends[1]).as_py())
    if apart or len(index) <= FEW_FILES:
        return apart
    from zskip.stats.keys import order_bits, sortable_numbers

    bounds = pa.array(ends, lower.type)
    places = sortable_numbers(bounds) if is_floating(bounds.type) else order_bits(bounds)
    lowest, low, high, highest = map(float, places)
    return not high - low >= _IN_COMMON * (highest - lowest)  # an infinite span has no share


def _bytes(_: bool) -> int:
    return 256


def remember_gain(parsed: Parsed, params: Sequence[Any] | Mapping[str, Any] | None, saved_seconds: float) -> None:
    """Remember a statement of which pruning saves little or nothing. The clock and the values of parameters change
    that."""
    if parsed.settled and params is None and saved_seconds <= LEAST_SAVED:
        if len(_GAINLESS) >= _MOST_GAINLESS:
            _GAINLESS.clear()
        _GAINLESS.add(_version_of(parsed))


def forget_gain(parsed: Parsed) -> None:
    """Explain a statement again, even if it skipped little before."""
    _GAINLESS.discard(_version_of(parsed))


def _version_of(parsed: Parsed) -> int:
    """The text of a statement, and the versions of its tables."""
    states = [(index.storage.identity, index.snapshot.commit_id) for _, index in parsed.found]
    return hash((parsed.statement.query, *states))
