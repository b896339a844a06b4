"""Evaluate expressions that have no rule for single values: by DuckDB, or by the session that an expression is from.

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
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from cachetools import LRUCache

from zskip.core import types as t
from zskip.core.schema import split_path
from zskip.language.functions import evaluated_by_duckdb
from zskip.language.functions.duckdb_evaluated import COMPUTED_TYPES
from zskip.language.tree import Computable
from zskip.pruning.budget import SECONDS, Budget
from zskip.pruning.outcomes import Outcomes

if TYPE_CHECKING:
    import duckdb

_TRUE, _FALSE, _NULL, _RAISED = 1, 0, 2, -1

_MAX_STRING = 4096
"""The longest string, in bytes, for which an expression is evaluated."""

_MAX_CACHED = 64
"""Cached evaluations. A plan repeats them for shards, files and row groups, and for its reasons."""

_MAX_IDLE = 4
"""Idle connections of a time zone, and time zones with idle connections."""

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "memory_limit": "64MB",
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}

_lock = threading.Lock()
_answers: LRUCache[tuple[str, str, bytes], np.ndarray] = LRUCache(_MAX_CACHED)
_idle: dict[tuple[str, int], list[Evaluator]] = {}


def computed(found: Outcomes, computable: Computable, values: Mapping[str, pa.Array], budget: Budget) -> Outcomes:
    """``found``, whose units are single values of the expression's columns, narrowed by the engine's result for each.

    The outcomes of a value stay as they are if the engine raises an error for it, or the budget runs out before it.
    """
    unsure = found.can_be_true.astype(np.int8) + found.can_be_false + found.can_be_null > 1
    for column in computable.columns:
        each = values[column.path]
        if t.is_string(each.type):
            unsure &= _lengths(each) <= _MAX_STRING
    units = np.flatnonzero(unsure)
    codes = None
    if len(units) and not budget.is_spent:
        columns = [values[column.path].take(pa.array(units)) for column in computable.columns]
        codes = computable.evaluate(columns) if computable.evaluate else _outcome_codes(computable, columns, budget)
    if codes is None:
        return found
    narrowed = []
    for mask, outcome in (
        (found.can_be_true, _TRUE),
        (found.can_be_false, _FALSE),
        (found.can_be_null, _NULL),
        (found.can_fail, _RAISED),
    ):
        mask = mask.copy()
        mask[units] &= (codes == outcome) | (codes == _RAISED)
        narrowed.append(mask)
    return Outcomes(*narrowed)


def _lengths(texts: pa.StringArray) -> np.ndarray:
    return np.asarray(pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False))


def _outcome_codes(computable: Computable, values: Sequence[pa.Array], budget: Budget) -> np.ndarray | None:
    """The outcome of each value: TRUE, FALSE, NULL, or an error, also for values that the budget does not reach.

    None if DuckDB may not evaluate the expression.
    """
    named = {split_path(column.path): each for column, each in zip(computable.columns, values, strict=True)}
    rows = pa.table(_nested(named))
    key = (computable.sql, computable.timezone, _digest(rows))
    with _lock:
        known = _answers.get(key)
    if known is not None:
        return known
    try:
        with budget.paused():
            evaluator = _take_evaluator(computable.timezone)
        answer = evaluator.answer(computable.sql, named, rows, budget)
    except RuntimeError as error:
        if "interrupted" in str(error):  # DuckDB's client takes Ctrl-C for itself
            raise KeyboardInterrupt from error
        raise
    _return_evaluator(evaluator)
    if answer is not None and len(answer) == len(rows):
        with _lock:
            _answers[key] = answer
    if answer is not None and len(answer) < len(rows):
        answer = np.append(answer, np.full(len(rows) - len(answer), _RAISED, answer.dtype))
    return answer


def _take_evaluator(timezone: str) -> Evaluator:
    """Takes an idle evaluator or makes a new one, so that threads do not wait for one another."""
    try:
        return _idle[timezone, os.getpid()].pop()
    except (KeyError, IndexError):
        return Evaluator(timezone)


def _return_evaluator(evaluator: Evaluator) -> None:
    idle = _idle.setdefault((evaluator.timezone, os.getpid()), [])
    idle.append(evaluator)
    del idle[_MAX_IDLE:]
    if len(_idle) > _MAX_IDLE:
        _idle.pop(next(iter(list(_idle))), None)


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
        """The outcomes for as many of the first rows as the budget allows; None if the expression is refused."""
        import duckdb

        longest = max(
            (int(_lengths(each).max(initial=0)) for each in columns.values() if t.is_string(each.type)), default=0
        )
        try:
            expression = self._allowed_expression(sql, columns)
            batch = 0 if expression is None else _rows_at_once(list(_expressions(expression)), len(sql), longest)
            if not batch:
                return None
            answers = [np.empty(0, np.int8)]
            for start in range(0, len(rows), batch):
                if budget.is_spent:
                    break
                answers.append(self._answer_batch(sql, rows.slice(start, batch)))
        except (duckdb.Error, RecursionError):
            # It is not a predicate over these types; the engine that runs an invalid one will raise.
            return None
        return np.concatenate(answers)

    def _answer_batch(self, sql: str, rows: pa.Table) -> np.ndarray:
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


def _digest(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return xxhash.xxh3_128_digest(sink.getvalue())


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

_MOST_BYTES, _MOST_SECONDS = 4 << 20, 0.01
"""Of the texts, and of the time, for one batch of values: DuckDB cannot be interrupted inside one, and its memory limit
does not cover its texts."""


def _rows_at_once(expressions: Sequence[dict[str, Any]], characters: int, longest: int) -> int:
    """The number of values that one batch may hold; 0 if a single one may cost too much.

    ``characters``: of the SQL · ``longest``: the most bytes of a string among the values.

    No allowed function multiplies the lengths of its arguments, so each result is at most some times as long as all
    constants and columns together. The time of a search, or of a pattern, is that length times the pattern's.
    """
    names = {str(each.get("function_name")) for each in expressions}
    weights = [_pattern_weight(each) for each in expressions]
    columns = sum(each["class"] == "COLUMN_REF" for each in expressions)
    length = 64 + characters * (16 if "strftime" in names else 1) + 4 * max(longest, 16) * columns
    a_byte = 1e-9 if _PATTERNS.isdisjoint(names) else 1e-7 * math.prod(weights)
    seconds = 2e-6 * len(expressions) + length * characters * a_byte
    memory = length * len(expressions) * (40 if "split_part" in names else 1)
    if seconds > SECONDS or memory > _MOST_BYTES:
        return 0
    return int(min(_MOST_BYTES // memory, max(1, _MOST_SECONDS / seconds), 1 << 14))


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
