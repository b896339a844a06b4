"""Stubs: empty tables that replace zskip's tables while DuckDB plans a statement.

A stub is an Arrow dataset without rows and without statistics, so DuckDB cannot fold a condition on it to a constant.
Each occurrence of a table in the text has its own stub with columns ``zskip_<place>_<column>``. No other name looks
like these, so a column in the plan identifies its scan. Conditions that DuckDB does not push into the scan are printed
with the column names of the query instead. The stub therefore changes the case of some letters in these names, to a
spelling that the statement does not use: ``tS`` in the plan can only be the table's column ``ts``.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from zskip.core.late_loading import own_duckdb
from zskip.core.schema import identifier
from zskip.engines.duckdb.duckdb_types import duckdb_type
from zskip.statements.duckdb.session import in_transaction
from zskip.statements.duckdb.table_places import Place, Word, default_alias, shape
from zskip.statements.plan_tree import Node, StubColumns, places_scanned_once, read_tree

if TYPE_CHECKING:
    import duckdb
    import pyarrow.dataset as ds

_LOG = logging.getLogger("zskip")
# The columns of the result have the names of the left input.
_SET_OPERATION = re.compile(r"\b(union|except|intersect)\b", re.I)
_MOST_SPELLINGS = 30
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# The columns that DuckDB adds when it reads Parquet files, as expressions whose values its planner cannot predict.
_FILE_COLUMNS = {
    "filename": "nullif(CAST(uuid() AS VARCHAR), '')",
    "file_row_number": "nullif(CAST(hash(uuid()) // 2 AS BIGINT), 0)",
}
# The words by which a statement asks for the places of files and rows, which change when files are skipped.
_WORDS_OF_PLACES = frozenset({"file_index", "positional"})


@dataclass(frozen=True, slots=True)
class Stub:
    """``sql``: the subquery that replaces the table · ``name`` and ``rows``: the dataset that the subquery reads ·
    ``labels``: the spellings of its columns · ``columns``: the table's columns by the names that DuckDB's plan prints.
    """

    sql: str
    name: str
    rows: ds.Dataset
    labels: tuple[str, ...]
    columns: StubColumns


def make_stubs(
    schemas: Sequence[pa.Schema],
    statement: str,
    *,
    only_named: bool = False,
    respelled: bool = True,
    unlike: Sequence[Stub] = (),
) -> list[Stub]:
    """The stubs of a statement's tables, one per schema.

    ``only_named``: only the `named_columns` of each table · ``respelled``: the names may have other spellings ·
    ``unlike``: stubs whose spellings are not used.
    """
    reduced = (named_columns(schema, statement) if only_named else schema for schema in schemas)
    # The cache key has the names of types: a schema cannot be hashed if one of its extension types cannot.
    tables = (_Columns(tuple(schema.names), tuple(map(duckdb_type, schema.types))) for schema in reduced)
    avoided = frozenset(name for stub in unlike for name in stub.columns.printed)
    return _stubs(tuple(tables), shape(statement), respelled, avoided)


def named_columns(schema: pa.Schema, statement: str) -> pa.Schema:
    """The columns that the text may name, or the first column if it names none.

    DuckDB's binder takes time for each column of a table. Names are not resolved here: a column whose name occurs
    anywhere in the text is kept, and so are all columns whose names need quotes, which the text can write in several
    ways. Only where a statement reaches columns by their names alone, as `Places.only_named` tells, are these enough.
    """
    words = _words_of(shape(statement))
    named = [field for field in schema if not _PLAIN_NAME.fullmatch(field.name) or field.name.lower() in words]
    return pa.schema(named or list(schema)[:1])


@lru_cache(maxsize=64)
def _words_of(statement: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W\d]\w*", statement.casefold()))


class _Columns(NamedTuple):
    """The columns of a table, and DuckDB's names of their types."""

    names: tuple[str, ...]
    types: tuple[str, ...]


@lru_cache(maxsize=64)
def _stubs(tables: tuple[_Columns, ...], statement: str, respelled: bool, avoided: frozenset[str]) -> list[Stub]:
    import pyarrow.dataset as ds  # brings pandas along where that is installed

    prefix = _unused_prefix(statement)
    spellings = _Spellings(tables, statement, avoided)
    stubs = []
    for place, table in enumerate(tables):
        name = f"{prefix}_{place}"
        scanned = [f"{name}_{number}" for number in range(len(table.names))]
        labels = [spellings.unused(column) if respelled else column for column in table.names]
        selected = ", ".join(f"{column} AS {identifier(label)}" for column, label in zip(scanned, labels, strict=True))
        printed = dict(zip(scanned, table.names, strict=True))
        printed |= {label: column for label, column in zip(labels, table.names, strict=True) if label != column}
        rows = ds.dataset(_empty(table.types).rename_columns(scanned))
        sql = f"(SELECT {selected} FROM {name})"
        stubs.append(Stub(sql, name, rows, tuple(labels), StubColumns(name, printed)))
    return stubs


def stub_sql(place: Place, stub: Stub) -> str:
    """The text that replaces a table by its stub."""
    sql = stub.sql if place.aliased else f"{stub.sql} AS {default_alias(place.name)}"
    return f"SELECT * FROM {sql}" if place.bare else sql


def names_file_columns(words: Sequence[Word]) -> bool:
    """Whether a statement may read a column that DuckDB adds to those of the files."""
    return any(word.text.lower() in _FILE_COLUMNS for word in words)


def asks_for_places(words: Sequence[Word]) -> bool:
    """Whether the order of files matters: to a POSITIONAL JOIN, and to the column that numbers them."""
    return any(word.text.lower() in _WORDS_OF_PLACES for word in words)


def file_columns(words: Sequence[Word], schemas: Sequence[pa.Schema]) -> list[tuple[int, int, str]]:
    """The replacements, each ``(start, end, text)``, for columns that DuckDB adds to those of the files.

    A stub cannot have these columns, since ``*`` must not return them. If a replacement is not valid SQL where it
    stands, DuckDB cannot explain the statement, and nothing is pruned.
    """
    columns = {name.lower() for schema in schemas for name in schema.names}
    edits = []
    for number, word in enumerate(words):
        name = word.text.lower()
        before = words[number - 1].text.upper() if number else ""
        if name in _FILE_COLUMNS and name not in columns and before != "AS":
            qualified = number > 1 and before == "."
            edits.append((words[number - 2].start if qualified else word.start, word.end, _FILE_COLUMNS[name]))
    return edits


def _unused_prefix(statement: str) -> str:
    """A prefix for the names of stubs that does not occur in the statement.

    >>> _unused_prefix("SELECT 1"), _unused_prefix("SELECT zskip_0_1")
    ('zskip', 'zskipx')
    """
    prefix = "zskip"
    while prefix in statement.lower():
        prefix += "x"
    return prefix


def printed_columns(root: Node, stubs: Sequence[Stub], statement: str, unique: bool = True) -> list[StubColumns]:
    """The columns of each stub by the printed names that identify them. ``unique``: no other column has a stub's
    spelling.

    A condition above a set operation is printed with the column names of the left input, but applies to both inputs.
    If both read the same scan, or the plan scans a stub twice, that name may mean a different column of the table.
    Then only the names that the scan itself prints identify a column.
    """
    columns = [stub.columns for stub in stubs]
    if not unique:
        return [stub.columns._replace(printed=_scanned_columns(stub)) for stub in stubs]
    if not _SET_OPERATION.search(statement):
        return columns
    shared = any("CTE" in node.name for node in root.walk())
    once = set() if shared else places_scanned_once(root)
    return [
        stub.columns if place in once else stub.columns._replace(printed=_scanned_columns(stub))
        for place, stub in enumerate(stubs)
    ]


def tells_apart(root: Node, stubs: Sequence[Stub], other: Node, others: Sequence[Stub]) -> bool:
    """Whether two plans of a statement, over stubs with different spellings, differ in these spellings alone.

    A view or macro of the user may have a column or alias in the same spelling as a stub, which the plan prints too.
    """
    return _with_scanned_names(root, stubs) == _with_scanned_names(other, others)


def _with_scanned_names(root: Node, stubs: Sequence[Stub]) -> list[tuple[str, dict[str, str]]]:
    """The operators of a plan, parents first, with the names in the scans in place of the stubs' spellings."""
    scanned = {
        label: name
        for stub in stubs
        for name, label in zip(stub.rows.schema.names, stub.labels, strict=True)
        if label in stub.columns.printed
    }
    if not scanned:
        return [(node.name, dict(node.info)) for node in root.walk()]
    labels = re.compile(
        "|".join(rf"(?<!\w){re.escape(label)}(?!\w)" for label in sorted(scanned, key=len, reverse=True))
    )
    return [
        (node.name, {key: labels.sub(lambda found: scanned[found[0]], text) for key, text in node.info.items()})
        for node in root.walk()
    ]


def _scanned_columns(stub: Stub) -> dict[str, str]:
    """The table's columns by the names in the stub's scan."""
    return {name: column for name, column in stub.columns.printed.items() if name in stub.rows.schema.names}


class _Spellings:
    """Spellings of column names, in upper and lower case, that neither the statement nor any table uses."""

    def __init__(self, tables: Sequence[_Columns], statement: str, avoided: frozenset[str]) -> None:
        # The names of types include the field names of structs.
        self._text = " ".join([statement, *(type for table in tables for type in table.types)])
        self._words = {*re.findall(r"\w+", self._text), *(name for table in tables for name in table.names)}
        self._taken = set(avoided)

    def unused(self, name: str) -> str:
        """An unused spelling of the name; the name itself if none was found."""
        letters = [at for at, letter in enumerate(name) if letter.isascii() and letter.isalpha()]
        for swapped in islice(combinations_with_replacement(letters, 2), _MOST_SPELLINGS):
            label = "".join(letter.swapcase() if at in swapped else letter for at, letter in enumerate(name))
            # Not in upper case throughout: the plan prints the type DATE in this way too.
            if (len(letters) <= 2 or not label.isupper()) and self._is_unused(label):
                self._taken.add(label)
                return label
        return name

    def _is_unused(self, label: str) -> bool:
        if label in self._words or label in self._taken:
            return False
        return label.isidentifier() or label not in self._text


def empty_rows(schema: pa.Schema) -> pa.Table:
    """A table without rows that DuckDB reads under the names and types of a schema's Parquet columns."""
    return _empty(tuple(map(duckdb_type, schema.types))).rename_columns(schema.names)


@lru_cache(maxsize=64)
def _empty(types: tuple[str, ...]) -> pa.Table:
    """A table without rows, in Arrow types that DuckDB reads as ``types``."""
    typed = ", ".join(f"CAST(NULL AS {type}) AS c{number}" for number, type in enumerate(types))
    with own_duckdb() as con:
        return con.sql(f"SELECT {typed} WHERE false").to_arrow_table()


def engine_plan(
    con: duckdb.DuckDBPyConnection,
    statement: str,
    stubs: Sequence[Stub],
    params: Any = None,
    begun: bool = False,
) -> Node | None:
    """DuckDB's plan of one statement over stubs. None if DuckDB cannot explain the statement: nothing is pruned then,
    and DuckDB raises the error when it runs the statement.

    An open transaction of the user goes on after such an error. ``begun``: the transaction is one in which nothing has
    run; then it begins anew.
    """
    import duckdb

    if not _is_readable():
        return None
    try:
        return _explained(con, statement, {stub.name: stub.rows for stub in stubs}, params, begun)
    except duckdb.ResourceInUseException:
        raise
    except duckdb.Error:
        if begun:
            con.rollback()
            con.begin()
        return None


def _explained(
    con: duckdb.DuckDBPyConnection,
    statement: str,
    names: Mapping[str, ds.Dataset],
    params: Any,
    begun: bool = False,
) -> Node | None:
    # DuckDB looks up a table that is not in its catalog among the variables of the calling function.
    scope = {**names, "con": con, "text": f"EXPLAIN (FORMAT JSON) {statement}", "params": params}
    of_user = not begun and in_transaction(con)
    described = _described(con, statement) if of_user else None
    if described is not None:
        # This only binds the query. An error of EXPLAIN would abort the transaction, an error of binding does not.
        eval("con.sql(described, params=params)", {**scope, "described": described})
    with _outliving_errors(con) if of_user and described is None else nullcontext():
        rows = eval("con.execute(text, params).fetchall()", scope)
    plans = [json.loads(text) for kind, text in rows if kind == "physical_plan"]
    return read_tree(plans[0], tuple(names)) if plans else None


def _described(con: duckdb.DuckDBPyConnection, statement: str) -> duckdb.Statement | None:
    """The DESCRIBE of a query; None for any other statement."""
    import duckdb

    try:
        (described,) = con.extract_statements(f"DESCRIBE {statement}")
    except duckdb.ParserException:
        return None
    return described if described.type == duckdb.StatementType.SELECT else None


@contextmanager
def _outliving_errors(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Let the open transaction go on after errors of the parser and the binder in the block."""
    import duckdb

    con.execute("SET current_transaction_invalidation_policy = 'SYNTACTIC_ERRORS_DO_NOT_INVALIDATE'")
    try:
        yield
    finally:
        with suppress(duckdb.TransactionException):  # another error has ended it
            con.execute("RESET current_transaction_invalidation_policy")


_PROBE_LOCK = threading.Lock()


def _is_readable() -> bool:
    with _PROBE_LOCK:
        return _probe()


@lru_cache(maxsize=1)
def _probe() -> bool:
    """Whether the installed DuckDB prints plans in the form that `read_tree` expects; if not, log that once."""
    import duckdb

    schema = pa.schema([("ts", pa.int64()), ("host", pa.string())])
    statement = "SELECT host FROM probed WHERE ts > 5 AND abs(ts) = 7"
    (stub,) = make_stubs((schema,), statement)
    with own_duckdb() as con:
        root = _explained(con, statement.replace("probed", stub.sql), {stub.name: stub.rows}, None)
    for scan in (root and root.scans([stub.columns])) or ():
        if scan.conditions[:1] == ('("ts" > 5)',) and '(abs("ts") = 7)' in "".join(scan.conditions[1:]):
            return True
    _LOG.warning("DuckDB %s prints plans in a form unknown to zskip: statements read every file.", duckdb.__version__)
    return False
