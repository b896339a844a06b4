"""Reading tables with Spark: self-pruning DataFrames, views, filtered reads and whole statements."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zskip.errors import UnsupportedFormat
from zskip.spark import connector, snapshot_files
from zskip.spark.hadoop import open_storage
from zskip.spark.handoff import column, read_files
from zskip.spark.inferred_types import Inference, with_spark_types
from zskip.spark.jvm import Jvm, Unsupported, warn_once
from zskip.spark.snapshot_files import SnapshotFiles
from zskip.spark.spark_session import Semantics, clocks_of, is_connect, require_session
from zskip.storage.opening import is_supported
from zskip.table import Table
from zskip.table_formats.locate import source_of
from zskip.tablelog import log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table(
    spark: SparkSession,
    path: str | os.PathLike[str] | Table,
    version: int | None = None,
    *,
    columns: Sequence[str] | None = None,
    connector: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """A DataFrame over a table that prunes itself: Spark's planner asks zskip which files may match its filters.

    Filters prune regardless of their origin: ``.where()``, SQL over a view, joins, constant subqueries. ``connector``:
    use a connector in place of Spark's file source. Then join keys prune too, at run time, and LIMIT, top-k, count, min
    and max read only files for which the index does not suffice; ``_metadata`` and ``inputFiles()`` are missing.

    The DataFrame stays at its version. If Spark does not permit it to prune, as on Spark Connect, it warns once and
    reads all files; `read` prunes there too.

    Raises `TableNotFound`, and `SchemaError` for a column that Spark cannot read: name the others in ``columns``.
    """
    require_session(spark)
    found = _opened(spark, path, version, storage_options)
    schema = found._index.snapshot.schema.selected(columns)
    if found._index.source is not None and not found.plan().scan.plain:
        raise UnsupportedFormat(
            f"Spark's Parquet reader cannot leave out the rows that {found.uri} has deleted, or find what only its log "
            "knows, in a DataFrame that prunes itself. Read what matches: zskip.spark.read(spark, path, where=…)."
        )
    if is_connect(spark):
        return _all_files(spark, found, schema, "Spark Connect has no JVM at hand")
    try:
        files = SnapshotFiles(Jvm(spark), found._index, schema)
        rows = _self_pruning(files) if connector else snapshot_files.self_pruning(files)
    except Unsupported as error:
        return _all_files(spark, found, schema, str(error))
    return rows if rows.columns == schema.names else rows.select([column(name) for name in schema.names])


def register(
    spark: SparkSession, name: str, path: str | os.PathLike[str] | Table, version: int | None = None, **options: Any
) -> DataFrame:
    """Register a self-pruning table as a temporary view. Options are those of `table`."""
    rows = table(spark, path, version, **options)
    rows.createOrReplaceTempView(name)
    return rows


def read(
    spark: SparkSession,
    path: str | os.PathLike[str] | Table,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    version: int | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """The rows for which ``where``, in Spark's SQL, is TRUE, read only from the files that may hold one.

    It uses no internals of Spark, so it works on Spark Connect too. The files are chosen when it is called, under the
    session's current time zone, ANSI mode and case sensitivity. Raises `TableNotFound`, `SqlError` and `SchemaError`.
    """
    require_session(spark)
    found = _opened(spark, path, version, storage_options)
    if where is None:
        return found.plan().to_spark(spark, columns)
    predicate = Semantics.of(spark).bind(where, found._index.snapshot.schema, clocks_of(spark))
    return found.plan(predicate).to_spark(spark, columns)


def sql(spark: SparkSession, statement: str, *, storage_options: Mapping[str, Any] | None = None) -> DataFrame:
    """Run a statement of Spark's SQL with paths of zskip tables as table names: ``SELECT … FROM 'lake/conn'``.

    Each is read through a self-pruning `table`. Raises `TableNotFound`, and what ``spark.sql`` raises.
    """
    require_session(spark)
    pieces: list[str] = []
    views: dict[str, Any] = {}
    names: dict[str, str] = {}
    done = 0
    for found in _table_paths(statement):
        name = names.setdefault(found.path, f"zskip_{len(names)}")
        if name not in views:
            views[name] = table(spark, found.path, storage_options=storage_options)
        pieces += [_format_escaped(statement[done : found.start]), f"{{{name}}}"]
        done = found.end
    pieces.append(_format_escaped(statement[done:]))
    return spark.sql("".join(pieces), **views) if views else spark.sql(statement)


def _format_escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _opened(
    spark: SparkSession,
    path: str | os.PathLike[str] | Table,
    version: int | None,
    storage_options: Mapping[str, Any] | None,
) -> Table:
    if isinstance(path, Table):
        return with_spark_types(path, Inference.of(spark))
    if is_supported(path) and (source := source_of(path, version, storage_options=storage_options)) is not None:
        return Table._of_source(source)
    storage = open_storage(spark, path, storage_options)
    return with_spark_types(Table(storage, log.load(storage, version)), Inference.of(spark))


def _self_pruning(files: SnapshotFiles) -> DataFrame:
    """A self-pruning DataFrame by the connector, else by the file index. Raises `Unsupported`."""
    try:
        return connector.self_pruning(files)
    except Unsupported as error:
        warn_once(f"zskip does not prune by the keys of joins in this Spark ({error}), only by filters.")
        return snapshot_files.self_pruning(files)


def _all_files(spark: SparkSession, found: Table, schema: pa.Schema, reason: str) -> DataFrame:
    message = f"zskip cannot prune this DataFrame from inside of Spark ({reason}): it reads all files of the table."
    warn_once(f"{message} Use zskip.spark.read(spark, path, where=…).")
    return read_files(spark, found.plan().scan, schema)


# Paths of tables in Spark statements: ``SELECT … FROM 'lake/conn' JOIN 'lake/dns' USING (uid)``.

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)
      | (?P<string>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")
      | (?P<quoted>`(?:[^`]|``)*`)
      | (?P<word>[A-Za-z_]\w*)
      | (?P<other>\S)""",
    re.DOTALL | re.VERBOSE,
)
_AFTER_FROM = {"where", "group", "order", "having", "limit", "union", "except", "intersect", "select", "window", "on"}


@dataclass(frozen=True, slots=True)
class _TablePath:
    """A path in the place of a table's name, and its half-open range of characters in the statement."""

    start: int
    end: int
    path: str


def _table_paths(sql: str) -> list[_TablePath]:
    """The strings of a statement that name tables: after FROM, JOIN, or a comma between tables.

    >>> [found.path for found in _table_paths("SELECT trim(BOTH 'x' FROM 'y') FROM 'a', 'b/c' t JOIN 'd' ON s = 'e'")]
    ['a', 'b/c', 'd']
    """
    found = []
    # One entry for each open parenthesis: whether it holds a query, and whether tables may follow.
    query, tables = [True], [False]
    before: list[str] = ["", ""]
    for token in _TOKEN.finditer(sql):
        if token["comment"] is not None:
            continue
        text = token[0].lower()
        if before[-1] == "(":
            query[-1] = query[-1] or text in ("select", "with", "from")
        if text == "(":
            # A parenthesis among tables holds a join or a query.
            among_tables = tables[-1] and before[-1] in ("from", "join", ",", "(")
            query.append(among_tables)
            tables.append(among_tables)
        elif text == ")" and len(query) > 1:
            query.pop()
            tables.pop()
        elif token["word"] and text == "from":
            tables[-1] = query[-1] and before[-1] != "distinct"
        elif token["word"] and text == "join":
            tables[-1] = True
        elif token["word"] and text in _AFTER_FROM:
            # After ON, a comma or a JOIN may introduce the next table.
            tables[-1] = tables[-1] and text == "on"
        elif token["string"] is not None and tables[-1] and before[-1] in ("from", "join", ",", "("):
            found.append(_TablePath(token.start(), token.end(), re.sub(r"\\(.)", r"\1", token[0][1:-1])))
        before.append(text)
    return found
