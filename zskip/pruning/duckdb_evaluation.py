"""What DuckDB itself says of single values, for expressions that zskip does not know.

The text comes from a user, so it is never trusted. DuckDB's own parser reads it as data (`json_serialize_sql`), and it
is computed only where it is one expression of known and deterministic functions over its columns; and then in a
private database in memory that can open no file, load no extension and change no setting.
"""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import xxhash

from zskip.expr.functions import COMPUTED, COMPUTED_TYPES, GROWING
from zskip.expr.tree import Computable
from zskip.pruning.outcomes import Outcomes
from zskip.schema import split_path

if TYPE_CHECKING:
    import duckdb

__all__ = ["computed"]

_TRUE, _FALSE, _NULL, _RAISED = 1, 0, 2, -1

_MOST_WORK = 1 << 28
"""Bytes of values times characters of text: a bound on the work, and on the memory, of one question."""

_KEPT = 64
"""Answers that are remembered: a plan asks the same of shards, files and row groups, and once more for its reasons."""

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "memory_limit": "256MB",
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}

_lock = threading.Lock()
_answers: OrderedDict[tuple[str, str, bytes], np.ndarray] = OrderedDict()


def computed(found: Outcomes, question: Computable, values: Mapping[str, pa.Array]) -> Outcomes:
    """``found``, whose units are these values of the question's columns, narrowed by what DuckDB says of each.

    A value for which it raises stays as it was found.
    """
    unsure = found.can_be_true.astype(np.int8) + found.can_be_false + found.can_be_null > 1
    asked = np.flatnonzero(unsure)
    named = [values[column.path] for column in question.columns]
    if not len(asked) or sum(each.nbytes for each in named) * len(question.sql) > _MOST_WORK:
        return found
    said = _said(question, [each.take(pa.array(asked)) for each in named])
    if said is None:
        return found
    narrowed = []
    for mask, outcome in (
        (found.can_be_true, _TRUE),
        (found.can_be_false, _FALSE),
        (found.can_be_null, _NULL),
        (found.can_fail, _RAISED),
    ):
        mask = mask.copy()
        mask[asked] &= (said == outcome) | (said == _RAISED)
        narrowed.append(mask)
    return Outcomes(*narrowed)


def _said(question: Computable, values: Sequence[pa.Array]) -> np.ndarray | None:
    """TRUE, FALSE, NULL or an error for each value; None where DuckDB is not asked, or refuses."""
    import duckdb

    named = {split_path(column.path): each for column, each in zip(question.columns, values, strict=True)}
    rows = pa.table(_nested(named))
    key = (question.sql, question.timezone, _digest(rows))
    with _lock:
        known = _answers.get(key)
        if known is not None:
            _answers.move_to_end(key)
            return known
        try:
            con, allowed = _database(question.timezone, os.getpid())
            if not _is_harmless(question.sql, named, con, allowed):
                return None
            con.register("zskip_values", rows)
            try:
                answer = con.execute(
                    f"SELECT coalesce(TRY(coalesce(((\n{question.sql}\n)::BOOLEAN)::TINYINT, {_NULL})), {_RAISED}) "
                    "AS said FROM zskip_values"
                ).fetchnumpy()["said"]
            finally:
                con.unregister("zskip_values")
        except duckdb.Error:
            # It is no predicate over this type, or too large a one: its engine will say so, if it comes to that.
            return None
        _answers[key] = np.asarray(answer)
        if len(_answers) > _KEPT:
            _answers.popitem(last=False)
        return _answers[key]


def _digest(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return xxhash.xxh3_128_digest(sink.getvalue())


def _nested(values: Mapping[tuple[str, ...], pa.Array]) -> dict[str, pa.Array]:
    """The values as columns, or as fields inside of them."""
    inside: dict[str, dict[tuple[str, ...], pa.Array]] = {}
    for parts, each in values.items():
        inside.setdefault(parts[0], {})[parts[1:]] = each
    found = {}
    for name, fields in inside.items():
        if () in fields:
            found[name] = fields[()]
        else:
            below = _nested(fields)
            found[name] = pa.StructArray.from_arrays(list(below.values()), list(below))
    return found


@lru_cache(maxsize=8)
def _database(timezone: str, process: int) -> tuple[duckdb.DuckDBPyConnection, frozenset[str]]:
    """A private database of this process, in one time zone; and the functions of `COMPUTED` that this DuckDB, too,
    holds for deterministic and without effects."""
    import duckdb

    con = duckdb.connect(":memory:", config=_SETTINGS)
    con.execute("SET TimeZone = ?", [timezone]).fetchall()
    # It would move constants across a comparison, and x + 10 < 0 would no longer raise where the sum overflows.
    con.execute("PRAGMA disable_optimizer").fetchall()
    con.execute("SET lock_configuration = true").fetchall()
    unsteady = con.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() "
        "WHERE function_type NOT IN ('scalar', 'macro') OR stability <> 'CONSISTENT' OR has_side_effects"
    ).fetchall()
    return con, frozenset(name for names in COMPUTED.values() for name in names) - {name for (name,) in unsteady}


# ── what may be asked ──

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


def _is_harmless(
    sql: str, named: Collection[tuple[str, ...]], con: duckdb.DuckDBPyConnection, allowed: frozenset[str]
) -> bool:
    """Whether DuckDB reads the text as one expression over the columns, of functions that it may be asked for."""
    if sql.count("(") > 200:
        return False
    read = json.loads(con.execute("SELECT json_serialize_sql(?)", [f"SELECT (\n{sql}\n)"]).fetchall()[0][0])
    if read["error"] or len(read["statements"]) != 1:
        return False
    select = read["statements"][0]["node"]
    if (
        select["type"] != "SELECT_NODE"
        or select["from_table"]["type"] != "EMPTY"
        or len(select["select_list"]) != 1
        or any(select.get(name) != nothing for name, nothing in _EMPTY.items())
        or select["cte_map"] != {"map": []}
        or select["group_expressions"]
    ):
        return False
    expressions = list(_expressions(select["select_list"][0]))
    grown = sum(each.get("function_name") in GROWING for each in expressions)
    return grown <= 1 and all(_is_known(each, named, allowed) for each in expressions)


def _expressions(node: Any) -> Iterator[dict[str, Any]]:
    """Every expression of DuckDB's syntax tree."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            if "class" in each:
                yield each
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)


def _is_known(expression: dict[str, Any], named: Collection[tuple[str, ...]], allowed: frozenset[str]) -> bool:
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
