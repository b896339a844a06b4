"""Stubs: empty tables that replace zskip's while DuckDB plans a statement.

A stub is an Arrow dataset without rows and without statistics, so that nothing is folded away. Each place in the text
has a stub of its own, whose columns ``zskip_<place>_<column>`` occur nowhere else: a name in the plan says which scan
it is of. DuckDB prints a condition that it could not hand to the scan with the names of the query instead; so the stub
spells its columns in upper and lower case as the statement does not: ``tS`` in the plan can only be the table's ``ts``.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from zskip.engines.duckdb.duckdb_types import duckdb_type
from zskip.engines.duckdb.named_columns import named_columns
from zskip.engines.duckdb.table_places import Word
from zskip.expr.sql_literals import identifier
from zskip.statement.plan_tree import Node, StubColumns, places_scanned_once, read_tree

if TYPE_CHECKING:
    import duckdb
    import pyarrow.dataset as ds

__all__ = ["Stub", "empty_rows", "engine_plan", "file_columns", "make_stubs", "names_file_columns", "printed_columns"]

_LOG = logging.getLogger("zskip")
# Where a statement looks at the names of columns, other spellings might change what it means.
_READS_NAMES = re.compile(
    r"\b(columns|typeof|alias|struct_keys|to_json|json_\w+|row_to_json|query|query_table)\b", re.I
)
# Where a name of one column can come to stand for another, what is printed by it says nothing.
_MOVES_NAMES = re.compile(r"\b(replace|rename|pivot|unpivot|recursive)\b", re.I)
# The rows of both sides go by the names of the left one.
_SET_OPERATION = re.compile(r"\b(union|except|intersect)\b", re.I)
_MOST_SPELLINGS = 30
# What a read of Parquet files has besides their columns, as values of which DuckDB's planner knows nothing.
_OF_FILES = {
    "filename": "nullif(CAST(uuid() AS VARCHAR), '')",
    "file_row_number": "nullif(CAST(hash(uuid()) // 2 AS BIGINT), 0)",
}


@dataclass(frozen=True, slots=True)
class Stub:
    """``sql``: what stands in the table's place · ``name`` and ``rows``: the dataset that it reads · ``columns``: the
    table's columns by the names that DuckDB's plan prints."""

    sql: str
    name: str
    rows: ds.Dataset
    columns: StubColumns


def make_stubs(schemas: Sequence[pa.Schema], statement: str, *, named: bool = False) -> list[Stub]:
    """The stubs of the tables of a statement, one for each of their schemas. ``named``: with the columns alone that
    the text may name, or the first column if it names none."""
    found = (named_columns(one, statement) if named else one for one in schemas)
    # Not by schemas, which have no hash where an extension type in them has none.
    return _stubs(tuple(_Columns(tuple(one.names), tuple(map(duckdb_type, one.types))) for one in found), statement)


class _Columns(NamedTuple):
    """The columns of a table, with DuckDB's names of their types."""

    names: tuple[str, ...]
    types: tuple[str, ...]


@lru_cache(maxsize=64)
def _stubs(tables: tuple[_Columns, ...], statement: str) -> list[Stub]:
    import pyarrow.dataset as ds  # brings pandas along where that is installed

    prefix = _unused_prefix(statement)
    spell = _Spelling(tables, statement)
    stubs = []
    for place, table in enumerate(tables):
        name = f"{prefix}_{place}"
        own = [f"{name}_{number}" for number in range(len(table.names))]
        spelled = [spell.otherwise(column) for column in table.names]
        shown = ", ".join(f"{one} AS {identifier(label)}" for one, label in zip(own, spelled, strict=True))
        printed = dict(zip(own, table.names, strict=True))
        printed |= {label: column for label, column in zip(spelled, table.names, strict=True) if label != column}
        rows = ds.dataset(_empty(table.types).rename_columns(own))
        stubs.append(Stub(f"(SELECT {shown} FROM {name})", name, rows, StubColumns(name, printed)))
    return stubs


def names_file_columns(words: Sequence[Word]) -> bool:
    """Whether a statement may read DuckDB's own columns of files."""
    return any(word.text.lower() in _OF_FILES for word in words)


def file_columns(words: Sequence[Word], schemas: Sequence[pa.Schema]) -> list[tuple[int, int, str]]:
    """Replacements for the names of columns that a stub lacks, and that ``*`` does not give: DuckDB's own of files.

    Where a replacement is no valid SQL, the statement cannot be explained, and nothing is pruned.
    """
    columns = {name.lower() for schema in schemas for name in schema.names}
    edits = []
    for number, word in enumerate(words):
        name = word.text.lower()
        before = words[number - 1].text.upper() if number else ""
        if name in _OF_FILES and name not in columns and before != "AS":
            qualified = number > 1 and before == "."
            edits.append((words[number - 2].start if qualified else word.start, word.end, _OF_FILES[name]))
    return edits


def _unused_prefix(statement: str) -> str:
    """A prefix for the names of stubs that the statement does not have.

    >>> _unused_prefix("SELECT 1"), _unused_prefix("SELECT zskip_0_1")
    ('zskip', 'zskipx')
    """
    prefix = "zskip"
    while prefix in statement.lower():
        prefix += "x"
    return prefix


def printed_columns(root: Node, stubs: Sequence[Stub], statement: str) -> list[StubColumns]:
    """The columns of stubs by the names that may be read in a plan.

    A set operation may be of a table with itself, where one place is scanned twice or by a CTE: a condition that is
    printed by the name of a left column stands above a right one as well then, so that only names at scans are read.
    """
    columns = [stub.columns for stub in stubs]
    if not _SET_OPERATION.search(statement):
        return columns
    shared = any("CTE" in node.name for node in root.walk())
    once = set() if shared else places_scanned_once(root)
    return [
        stub.columns if place in once else stub.columns._replace(printed=dict(_at_scan(stub)))
        for place, stub in enumerate(stubs)
    ]


def _at_scan(stub: Stub) -> Iterator[tuple[str, str]]:
    return ((name, column) for name, column in stub.columns.printed.items() if name in stub.rows.schema.names)


class _Spelling:
    """Names in letters that neither the statement nor another table uses for them."""

    def __init__(self, tables: Sequence[_Columns], statement: str) -> None:
        # Types hold the names of the fields in structs.
        self._text = " ".join([statement, *(type for table in tables for type in table.types)])
        self._words = {*re.findall(r"\w+", self._text), *(name for table in tables for name in table.names)}
        self._taken: set[str] = set()
        self._as_it_is = bool(_READS_NAMES.search(statement) or _MOVES_NAMES.search(statement))

    def otherwise(self, name: str) -> str:
        """The name as no other column is spelled; as it is where there is no such spelling."""
        letters = [at for at, letter in enumerate(name) if letter.isascii() and letter.isalpha()]
        ends = ((one, two) for one in letters for two in letters if two >= one and not self._as_it_is)
        spelled = (
            "".join(letter.swapcase() if at in chosen else letter for at, letter in enumerate(name))
            for chosen in islice(ends, _MOST_SPELLINGS)
        )
        # Never all of many letters at once: DATE is also what a type is printed as.
        new = (label for label in spelled if self._is_new(label) and (len(letters) <= 2 or not label.isupper()))
        found = next((label for label in new if label not in self._taken), name)
        self._taken.add(found)
        return found

    def _is_new(self, label: str) -> bool:
        return label not in self._words and (label.isidentifier() or label not in self._text)


def empty_rows(schema: pa.Schema) -> pa.Table:
    """A table without rows that DuckDB reads under the names and types of a schema's Parquet columns."""
    return _empty(tuple(map(duckdb_type, schema.types))).rename_columns(schema.names)


@lru_cache(maxsize=64)
def _empty(types: tuple[str, ...]) -> pa.Table:
    """No row, in Arrow types which DuckDB reads as these, which it gives the table's Parquet columns."""
    import duckdb

    typed = ", ".join(f"CAST(NULL AS {type}) AS c{number}" for number, type in enumerate(types))
    with duckdb.connect() as con:
        con.execute("SET arrow_lossless_conversion = true")
        return con.sql(f"SELECT {typed} WHERE false").to_arrow_table()


def engine_plan(
    con: duckdb.DuckDBPyConnection, statement: str, stubs: Sequence[Stub], params: Any = None
) -> Node | None:
    """DuckDB's plan of one statement over stubs; None where it cannot be had, and then nothing is to be pruned.

    What is wrong with the statement is DuckDB's to say when it runs.
    """
    import duckdb

    if not _is_readable():
        return None
    try:
        return _explained(con, statement, {stub.name: stub.rows for stub in stubs}, params)
    except duckdb.Error:
        return None


def _explained(
    con: duckdb.DuckDBPyConnection, statement: str, names: Mapping[str, ds.Dataset], params: Any
) -> Node | None:
    # DuckDB finds a table that its catalog does not have among the names of the calling function.
    scope = {**names, "con": con, "text": f"EXPLAIN (FORMAT JSON) {statement}", "params": params}
    rows = eval("con.execute(text, params).fetchall()", scope)
    plans = [json.loads(text) for kind, text in rows if kind == "physical_plan"]
    return read_tree(plans[0], tuple(names)) if plans else None


_PROBE_LOCK = threading.Lock()


def _is_readable() -> bool:
    with _PROBE_LOCK:
        return _probe()


@lru_cache(maxsize=1)
def _probe() -> bool:
    """Whether DuckDB prints plans in the form that is known; where it does not, that is logged once."""
    import duckdb

    schema = pa.schema([("ts", pa.int64()), ("host", pa.string())])
    statement = "SELECT host FROM probed WHERE ts > 5 AND abs(ts) = 7"
    (stub,) = make_stubs((schema,), statement)
    with duckdb.connect() as con:
        root = _explained(con, statement.replace("probed", stub.sql), {stub.name: stub.rows}, None)
    for scan in (root and root.scans([stub.columns])) or ():
        if scan.conditions[:1] == ('("ts" > 5)',) and '(abs("ts") = 7)' in "".join(scan.conditions[1:]):
            return True
    _LOG.warning("DuckDB %s prints plans in a form unknown to zskip: statements read every file.", duckdb.__version__)
    return False
