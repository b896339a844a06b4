"""Evaluate expressions in units of few values: by DuckDB, or by the session that they come from.

A unit in which every column of the expression holds one value, or few days or integers, and perhaps NULL, has the
outcomes of these: ``upper(s) = 'DE'`` where each file holds one country, ``strftime(d, '%A') = 'Sunday'`` where it
holds a week, ``length(a || b) = 3`` where it holds one ``a`` and one ``b``.

The SQL comes from a user and is not trusted. DuckDB's parser first parses it as data (`json_serialize_sql`). It is
evaluated only if it is a single expression of allowed deterministic functions over its columns, in a private in-memory
database that cannot open files, load extensions or change settings.
"""

from __future__ import annotations

import json
import math
import os
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.core.schema import split_path
from zskip.language.functions import COMPUTED_TYPES, evaluated_by_duckdb
from zskip.language.intervals.spans import Span, values_of
from zskip.language.tree import Computable, Reference
from zskip.pruning.outcomes import Outcomes
from zskip.stats import Statistics

if TYPE_CHECKING:
    import duckdb


_MOST_WORK, _OF_QUESTION, _OF_UNIT = 1 << 26, 1 << 19, 1 << 8
"""The work of one plan, about a nanosecond each: a tenth of a second in all; that of preparing an expression; and that
of finding the values of a unit, and of a row of values for each character of the expression."""


class Budget:
    """The work that is left for the evaluation of expressions in one plan. Units that it does not cover are kept.

    It is counted before it is done, so pruning does not depend on the machine or on other load.

    >>> budget = Budget(100)
    >>> budget.take(8, 30), budget.take(8, 30), budget.take(8, 5)
    (3, 0, 2)
    """

    __slots__ = ("_left",)

    def __init__(self, work: float = _MOST_WORK) -> None:
        self._left = work

    def take(self, rows: int, work: float) -> int:
        """How many of some rows may be evaluated, if each takes so much work."""
        possible = int(max(0, min(rows, self._left // work)))
        self._left -= possible * work if possible else 0
        return possible


_TRUE, _FALSE, _NULL, _RAISED = 1, 0, 2, -1

_MAX_STRING = 4096
"""The longest string, in bytes, for which an expression is evaluated."""

_WIDEST, _MOST_ROWS = 1024, 1 << 17
"""The most values of a column in one unit, and the most rows of values in all units together."""

_MOST_THREADS = 8
"""Databases that are kept: each thread has its own for each time zone."""

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "memory_limit": "64MB",
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


def computed(
    found: Outcomes,
    computable: Computable,
    statistics: Statistics,
    span_of: Callable[[Reference], Span],
    budget: Budget,
) -> Outcomes:
    """``found``, narrowed by the engine's results in the units whose columns hold one value each, or NULL.

    ``span_of`` returns a column's span. The outcomes of a unit stay as they are if the engine raises an error for one
    of its values, or the budget runs out before it.
    """
    unsure = found.can_be_true.astype(np.int8) + found.can_be_false + found.can_be_null > 1
    if not unsure.any() or not budget.take(1, _OF_QUESTION + _OF_UNIT * len(found)):
        return found
    spans = [span_of(column) for column in computable.columns]
    points = _points(unsure, spans, computable.columns, statistics)
    codes = None if points is None else _codes(computable, points.values, budget)
    if points is None or codes is None:
        return found
    is_unknown = codes == _RAISED
    narrowed = []
    for mask, outcome in zip(found.masks, (_TRUE, _FALSE, _NULL, _RAISED), strict=True):
        occurs = np.zeros(len(mask), bool)
        occurs[points.unit[((codes == outcome) | is_unknown)[points.row]]] = True
        mask = mask.copy()
        mask[points.unit] &= occurs[points.unit]
        narrowed.append(mask)
    return Outcomes(*narrowed)


@dataclass(frozen=True, slots=True)
class _Points:
    """The rows of values that units may hold: ``unit[i]`` may hold row ``row[i]`` of ``values``, and no other row than
    those that are listed for it."""

    unit: np.ndarray
    row: np.ndarray
    values: list[pa.Array]


def _points(
    unsure: np.ndarray, spans: Sequence[Span], columns: Sequence[Reference], statistics: Statistics
) -> _Points | None:
    """The rows of values in the units in which each column holds a single value, or few integers or days, or NULL; None
    if there are none, or too many rows."""
    counts = [_counts(span, column, statistics) for span, column in zip(spans, columns, strict=True)]
    for span, count in zip(spans, counts, strict=True):
        unsure = unsure & ~span.nan & (count <= _WIDEST)
    unit = np.flatnonzero(unsure)
    rows_before = np.cumsum(np.prod([count[unit] + 1.0 for count in counts], axis=0))
    unit = unit[rows_before <= _MOST_ROWS]
    if not len(unit):
        return None
    chosen: list[np.ndarray] = []
    dictionaries: list[pa.Array] = []
    for span, count, column in zip(spans, counts, columns, strict=True):
        has_value = np.flatnonzero(span.value[unit])
        if _is_enumerable(column.type):
            widths = count[unit[has_value]].astype(np.int64)
            starts = np.cumsum(widths) - widths
            raw = np.repeat(span.lower[unit[has_value]] - starts, widths) + np.arange(widths.sum())
            has_value = np.repeat(has_value, widths)
            distinct, code = np.unique(raw, return_inverse=True)
            values = values_of(distinct, column.type)
        else:
            ranges = statistics.columns.get(column.path)
            lower = pa.array([], column.type) if ranges is None else ranges.lower.take(pa.array(unit[has_value]))
            encoded = lower.dictionary_encode()
            values, code = encoded.dictionary, np.asarray(encoded.indices)
        if not _is_utf8(values):
            return None
        is_null = np.flatnonzero(span.null[unit])
        kept = np.concatenate([has_value, is_null])
        chosen = [*(each[kept] for each in chosen), np.append(code, np.full(len(is_null), len(values)))]
        unit = unit[kept]
        dictionaries.append(pa.concat_arrays([values, pa.nulls(1, column.type)]))
    rows, row = np.unique(np.stack(chosen), axis=1, return_inverse=True)
    return _Points(unit, row.reshape(-1), [d.take(pa.array(code)) for d, code in zip(dictionaries, rows, strict=True)])


def _is_enumerable(type: pa.DataType) -> bool:
    """Whether the values between two bounds can be listed: those of dates and integers."""
    return bool(type == pa.date32() or (t.is_integer(type) and type != pa.uint64()))


def _counts(span: Span, column: Reference, statistics: Statistics) -> np.ndarray:
    """The number of values that each unit may hold, apart from NULL; infinite where it is unknown."""
    ranges = statistics.columns.get(column.path)
    if _is_enumerable(column.type):
        # Doubles are inexact far from zero, but not where the difference is small.
        near = np.abs(span.upper.astype(np.float64) - span.lower) < 8 * _WIDEST
        count = np.where(near & (span.upper >= span.lower), span.upper - span.lower + 1.0, np.inf)
    elif ranges is None or ranges.lower.type != column.type:
        count = np.full(len(span), np.inf)
    else:
        single = pc.equal(ranges.lower, ranges.upper)
        if t.is_floating(column.type):
            single = pc.and_(single, pc.not_equal(ranges.lower, 0.0))  # functions tell -0.0 from 0.0
        count = np.where(np.asarray(pc.fill_null(single, False)), 1.0, np.inf)
    return np.where(span.value, count, 0.0)


def _is_utf8(values: pa.Array) -> bool:
    """Whether strings are valid UTF-8: a bound may have been truncated inside a character."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _codes(computable: Computable, values: Sequence[pa.Array], budget: Budget) -> np.ndarray | None:
    """The outcome of each row of values; an error for those with a long string, and those that the budget leaves out.

    None if the engine may not evaluate the expression.
    """
    short = np.ones(len(values[0]), bool)
    for each in values:
        if t.is_string(each.type):
            short &= _lengths(each) <= _MAX_STRING
    chosen = np.flatnonzero(short)
    rows = [each.take(pa.array(chosen)) for each in values]
    if computable.evaluate:
        evaluated = computable.evaluate([each.slice(0, budget.take(len(chosen), 16 * _OF_UNIT)) for each in rows])
    else:
        evaluated = _evaluated_by_duckdb(computable, rows, budget)
    if evaluated is None:
        return None
    codes = np.full(len(short), _RAISED, np.int8)
    codes[chosen[: len(evaluated)]] = evaluated
    return codes


def _lengths(texts: pa.StringArray) -> np.ndarray:
    return np.asarray(pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False))


def _evaluated_by_duckdb(computable: Computable, values: Sequence[pa.Array], budget: Budget) -> np.ndarray | None:
    """The outcomes of as many of the first rows as the budget allows; None if DuckDB may evaluate none."""
    named = {split_path(column.path): each for column, each in zip(computable.columns, values, strict=True)}
    try:
        evaluator = _evaluator(computable.timezone, threading.get_ident(), os.getpid())
        return evaluator.answer(computable.sql, named, pa.table(_nested(named)), budget)
    except RuntimeError as error:
        if "interrupted" in str(error):  # DuckDB's client takes Ctrl-C for itself
            raise KeyboardInterrupt from error
        raise


@lru_cache(_MOST_THREADS)
def _evaluator(timezone: str, thread: int, process: int) -> Evaluator:
    """The evaluator of a thread, so that threads do not wait for one another."""
    return Evaluator(timezone)


class Evaluator:
    """A private in-memory database with a fixed time zone and no access to files or network."""

    def __init__(self, timezone: str) -> None:
        import duckdb

        self.timezone = timezone
        self.con = duckdb.connect(":memory:", config=_SETTINGS)
        self.con.execute("SET TimeZone = ?", [timezone]).fetchall()
        # The optimizer moves constants across comparisons: x + 10 < 0 would no longer raise where the sum overflows.
        self.con.execute("PRAGMA disable_optimizer").fetchall()
        self.con.execute("SET lock_configuration = true").fetchall()
        self.functions = _functions(self.con)

    def answer(
        self, sql: str, columns: Mapping[tuple[str, ...], pa.Array], rows: pa.Table, budget: Budget
    ) -> np.ndarray | None:
        """The outcomes of as many of the first rows as the budget allows; None for none, or a refused expression."""
        import duckdb

        lengths = [int(_lengths(each).max(initial=0)) for each in columns.values() if t.is_string(each.type)]
        try:
            expression = self._allowed_expression(sql, columns)
            if expression is None:
                return None
            work = _work_of_row(list(_expressions(expression)), len(sql), max(lengths, default=0))
            reached = budget.take(len(rows), work)
            return self._outcomes(sql, rows.slice(0, reached)) if reached else None
        except (duckdb.Error, RecursionError):
            # It is not a predicate over these types; the engine that runs an invalid one will raise.
            return None

    def _outcomes(self, sql: str, rows: pa.Table) -> np.ndarray:
        self.con.register("zskip_values", rows)
        try:
            found = self.con.execute(
                f"SELECT coalesce(TRY(coalesce(((\n{sql}\n)::BOOLEAN)::TINYINT, {_NULL})), {_RAISED}) "
                "AS answer FROM zskip_values"
            ).fetchnumpy()["answer"]
        finally:
            self.con.unregister("zskip_values")
        return np.asarray(found)

    def _allowed_expression(self, sql: str, columns: Collection[tuple[str, ...]]) -> dict[str, Any] | None:
        """DuckDB's syntax tree of the SQL, if it is a single expression of allowed functions over the columns."""
        if sql.count("(") > 200:
            return None
        read = json.loads(self.con.execute("SELECT json_serialize_sql(?)", [f"SELECT (\n{sql}\n)"]).fetchall()[0][0])
        if read["error"] or len(read["statements"]) != 1:
            return None
        select = read["statements"][0]["node"]
        if (
            select["type"] != "SELECT_NODE"
            or select["from_table"]["type"] != "EMPTY"
            or len(select["select_list"]) != 1
            or any(select.get(name) != nothing for name, nothing in _EMPTY.items())
            or select["cte_map"] != {"map": []}
            or select["group_expressions"]
        ):
            return None
        expression: dict[str, Any] = select["select_list"][0]
        allowed = all(_is_allowed(each, columns, self.functions) for each in _expressions(expression))
        return expression if allowed else None


def _nested(values: Mapping[tuple[str, ...], pa.Array]) -> dict[str, pa.Array]:
    """The values of leaves as columns, with structs for the paths of nested ones."""
    by_column: dict[str, dict[tuple[str, ...], pa.Array]] = {}
    for parts, each in values.items():
        by_column.setdefault(parts[0], {})[parts[1:]] = each
    columns = {}
    for name, fields in by_column.items():
        if () in fields:
            columns[name] = fields[()]
        else:
            below = _nested(fields)
            columns[name] = pa.StructArray.from_arrays(list(below.values()), list(below))
    return columns


def _functions(con: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """The functions of `evaluated_by_duckdb` that this DuckDB declares deterministic and free of side effects.

    Those of moments depend on the time zone too, which is fixed here; but for now(), some variant of them does not.
    """
    excluded = con.execute(
        "SELECT function_name FROM duckdb_functions() GROUP BY function_name HAVING bool_or(has_side_effects OR "
        "function_type NOT IN ('scalar', 'macro') OR stability = 'VOLATILE') OR bool_and(stability <> 'CONSISTENT')"
    ).fetchall()
    return frozenset(evaluated_by_duckdb()) - {name for (name,) in excluded}


# ── which expressions are allowed ──

_CLASSES = {
    "COMPARISON",
    "CONJUNCTION",
    "CONSTANT",
    "COLUMN_REF",
    "FUNCTION",
    "OPERATOR",
    "CAST",
    "TYPE",
    "CASE",
    "BETWEEN",
}

_OPERATORS = {
    "OPERATOR_NOT",
    "OPERATOR_IS_NULL",
    "OPERATOR_IS_NOT_NULL",
    "OPERATOR_COALESCE",
    "OPERATOR_TRY",
    "COMPARE_IN",
    "COMPARE_NOT_IN",
    "ARRAY_EXTRACT",
    "ARRAY_SLICE",
}

_EMPTY: dict[str, object] = {"where_clause": None, "having": None, "qualify": None, "sample": None, "modifiers": []}


_PATTERNS = {
    "regexp_matches", "regexp_full_match", "regexp_extract", "like_escape", "not_like_escape", "ilike_escape",
    "not_ilike_escape", "~~", "!~~", "~~*", "!~~*", "~~~",
}  # fmt: skip

_OF_PATTERN = 64
"""How much longer the search for a pattern takes than other functions of a text."""


def _work_of_row(expressions: Sequence[dict[str, Any]], characters: int, longest: int) -> float:
    """The work of evaluating an expression for one row. DuckDB cannot be interrupted, and does not limit its texts.

    ``characters``: of the SQL · ``longest``: the most bytes of a string among the values.

    No allowed function multiplies the lengths of its arguments, so each result is at most some times as long as all
    constants and columns together. The time of a search, or of a pattern, is that length times the pattern's.
    """
    names = {str(each.get("function_name")) for each in expressions}
    pattern = 1 if _PATTERNS.isdisjoint(names) else _OF_PATTERN * math.prod(map(_pattern_weight, expressions))
    return characters * (_OF_UNIT + pattern * (characters + longest))


def _pattern_weight(expression: dict[str, Any]) -> float:
    """How much larger a compiled regular expression may be than its text: counted repetitions are written out.

    Infinite for a pattern that is not a constant, or has Unicode classes; 1 for anything but a regular expression.
    """
    if not str(expression.get("function_name")).startswith("regexp"):
        return 1
    pattern = expression["arguments"][1]["expression"] if len(expression["arguments"]) > 1 else {}
    text = (pattern.get("literal") or {}).get("text")
    if text is None or "\\p" in text.lower():
        return math.inf
    counts = re.findall(r"\{(\d*),?(\d*)\}", text)
    return math.prod(max(1, *(int(each[:4] or 0) for each in count)) for count in counts)


def _expressions(root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every expression of DuckDB's syntax tree."""
    stack = [root]
    while stack:
        each = stack.pop()
        yield each
        stack.extend(_children(each))


def _children(expression: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The expressions directly below a node of DuckDB's syntax tree."""
    queue: list[Any] = list(expression.values())
    while queue:
        each = queue.pop()
        if isinstance(each, dict):
            if "class" in each:
                yield each
            else:
                queue.extend(each.values())
        elif isinstance(each, list):
            queue.extend(each)


def _is_allowed(expression: dict[str, Any], named: Collection[tuple[str, ...]], allowed: frozenset[str]) -> bool:
    kind = expression["class"]
    if kind not in _CLASSES or expression.get("alias"):
        return False
    match kind:
        case "COLUMN_REF":
            return tuple(expression["column_names"]) in named
        case "OPERATOR":
            return expression["type"] in _OPERATORS
        case "TYPE":
            return str(expression["type_name"]).upper() in COMPUTED_TYPES and not expression["schema"]
        case "FUNCTION":
            return (
                expression["function_name"] in allowed
                and not expression["schema"]
                and not expression["catalog"]
                and not expression["distinct"]
                and not expression["filter"]
                and not expression["order_bys"]["orders"]
                and not any(argument["name"] for argument in expression["arguments"])
            )
    return True
