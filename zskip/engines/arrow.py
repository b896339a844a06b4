"""The matching rows of a scan as Arrow batches: DuckDB scans and filters, then batches are cast to the table's types.

Columns that DuckDB cannot represent without loss (wide decimals, extension types, names that differ only in case) are
read by Arrow, row group by row group, and DuckDB only determines which rows match.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from zskip.core import types as t
from zskip.core.casts import cast
from zskip.core.schema import identifier
from zskip.engines.duckdb.duckdb_types import ambiguous, duckdb_type, lossless
from zskip.engines.duckdb.native_scan import file_column_name, literal
from zskip.engines.duckdb.relation import condition, may_call, planned_scan, readable_paths
from zskip.engines.missing_files import reading, refuse_variants
from zskip.errors import SchemaError, naming
from zskip.parquet.arrow_differences import open_parquet
from zskip.storage import hive

if TYPE_CHECKING:
    import duckdb

    from zskip.plan.scan import Scan

_BATCH_ROWS, _BATCH_BYTES = 122_880, 16 << 20  # the maximum rows of a batch, and its approximate bytes on disk
_VECTOR_ROWS = 2048  # DuckDB holds at least so many rows per thread; row groups of long rows may hold fewer


def to_arrow(scan: Scan, columns: Sequence[str] | None = None) -> pa.Table:
    """The matching rows in the table's order and types. Raises `UnknownColumn` and `UnsupportedSql`."""
    schema = scan.schema.selected(columns)
    return pa.Table.from_batches(to_batches(scan, schema.names), schema)


def to_batches(scan: Scan, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The matching rows as record batches, in bounded memory.

    Raises `UnknownColumn` and `UnsupportedSql` at once, and `TableNotFound` if a planned file no longer exists.
    """
    schema = scan.schema.selected(columns)
    where = condition(scan)
    if len(scan) == 0:
        return iter(())
    native = not ambiguous(scan.schema.arrow.names) and all(lossless(field.type) for field in schema)
    native = native and (not scan.plain or _batch_rows(scan) >= _VECTOR_ROWS)
    return _read(scan, _native_batches(scan, schema) if native else row_group_batches(scan, schema, where))


def _read(scan: Scan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with reading(scan):
        yield from batches


def count(scan: Scan) -> int:
    """The number of matching rows. Files and row groups in which every row matches are counted without being read."""
    counted: int
    counted, rest = scan.without_counted()
    if len(rest) == 0:
        return counted
    if ambiguous(scan.schema.arrow.names):
        read = sum(int(batch.num_rows) for batch in to_batches(rest, []))
        return counted + read
    con = connection(rest)
    select = planned_scan(rest, con, [])
    with reading(rest):
        (row,) = con.execute(f"SELECT count(*) FROM ({select.sql})", dict(select.parameters)).fetchall()
    found: int = row[0]
    return counted + found


def counts(scan: Scan) -> NDArray[np.int64]:
    """The number of matching rows in each file, by one scan of the predicate's columns."""
    if ambiguous(scan.schema.arrow.names):
        alone = np.eye(len(scan), dtype=bool)
        return np.array([count(scan.narrowed(kept)) for kept in alone], np.int64)
    found = np.zeros(len(scan), np.int64)
    if len(scan):
        con = connection(scan)
        file = file_column_name(scan.schema.arrow.names)
        read = planned_scan(scan, con, [], file)
        tally = f"SELECT {file}, count(*) AS rows FROM ({read.sql}) GROUP BY {file}"
        with reading(scan):
            rows = con.sql(tally, params=dict(read.parameters)).to_arrow_table()
        place = pc.index_in(rows.column(file), value_set=pa.array(readable_paths(scan, con)))
        found[np.asarray(place)] = np.asarray(rows.column("rows"))
    return found


def connection(scan: Scan) -> duckdb.DuckDBPyConnection:
    """A private connection for one operation, with the predicate's time zone."""
    import duckdb

    # A shared database would retain the credentials of an object store, so remote scans get their own.
    local, exact = scan.storage.local is not None, scan.exact and may_call(scan)
    con = _cursor(exact) if local else _quiet(duckdb.connect(config=_EXACT if exact else {}))
    if scan.predicate is not None:
        con.execute("SET TimeZone = " + literal(scan.predicate.dialect.timezone))
    return con


# Without these optimizers, DuckDB 2.0 computes conditions that it else decides wrongly, without rows: date_trunc of a
# date to hours, parts and casts of nanoseconds, IS DISTINCT FROM NULL of a cast that fails.
_EXACT: dict[str, str | bool | int | float | list[str]] = {
    "disabled_optimizers": "expression_rewriter,statistics_propagation,filter_pushdown"
}


def _cursor(exact: bool) -> duckdb.DuckDBPyConnection:
    """A connection to the process's database, or to a new one if an internal error has invalidated that."""
    import duckdb

    try:
        return _quiet(_database(os.getpid(), exact).cursor())
    except duckdb.FatalException:
        _database.cache_clear()
        return _quiet(_database(os.getpid(), exact).cursor())


def _quiet(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    con.execute("SET enable_progress_bar = false")
    return con


@functools.cache
def _database(process: int, exact: bool) -> duckdb.DuckDBPyConnection:
    """The database with which this process reads local files, shared because starting one outlasts small scans.

    A forked process needs its own, because it lacks its parent's threads. The file cache is off: another program may
    replace a file within the resolution of its modification time.
    """
    import duckdb

    return duckdb.connect(config={"enable_external_file_cache": False, **(_EXACT if exact else {})})


def _native_batches(scan: Scan, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """DuckDB reads and filters; each batch is cast to the table's types."""
    with connection(scan) as con:
        con.execute("SET arrow_lossless_conversion = true")  # else UUIDs are returned as strings
        read = planned_scan(scan, con, schema.names)
        # Closed here, since what is freed while an exception is raised (a reader that stops early raises GeneratorExit)
        # may run Python's code for a store, which loses that exception.
        with con.sql(read.sql, params=dict(read.parameters)).to_arrow_reader(_batch_rows(scan)) as batches:
            for batch in batches:
                if batch.num_rows:
                    yield _cast(batch, schema)


def _batch_rows(scan: Scan) -> int:
    """The number of rows of a batch: fewer if rows are long, to bound memory."""
    rows, size = (pc.sum(scan.files.column(name), min_count=1).as_py() for name in ("rows", "size"))
    is_long = rows and size and size > _BATCH_BYTES
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // size)) if is_long else _BATCH_ROWS


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if not len(schema):
        return _empty_rows(batch.num_rows)
    columns = [_cast_column(column, field) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast_column(values: pa.Array, field: pa.Field) -> pa.Array:
    """The values in the type of a field. Raises `SchemaError`, as for an infinite time in milliseconds."""
    try:
        return cast(values, field.type).chunk(0)
    except pa.ArrowInvalid as error:
        raise SchemaError(
            f'DuckDB reads a value of the column "{field.name}" that {field.type} cannot hold, such as an infinite '
            f"time ({error}). Leave the column out by columns=, or such rows by a predicate, or read it by to_duckdb "
            "or zskip.sql."
        ) from error


def _empty_rows(rows: int) -> pa.RecordBatch:
    """Rows without a column."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def row_group_batches(scan: Scan, schema: pa.Schema, where: str | None) -> Iterator[pa.RecordBatch]:
    """Read the planned row groups with Arrow, and filter their rows with DuckDB."""
    if not scan.plain:
        raise SchemaError(
            f"DuckDB cannot carry the type of a column of this {scan.source} table, or two names differ only in case. "
            "Name the other columns in columns=."
        )
    con = connection(scan)
    filtered = [] if where is None or scan.predicate is None else scan.predicate.columns
    roots = list(dict.fromkeys(scan.schema.columns[path].parts[0] for path in filtered))
    roots += _also_named(where or "", [name for name in scan.schema.arrow.names if name not in roots], roots)
    if ambiguous(roots):
        raise SchemaError(
            "DuckDB cannot tell columns apart whose names differ only in case, and the predicate reads two of them: "
            + ", ".join(f'"{root}"' for root in sorted(roots, key=str.lower))
            + "."
        )
    table = scan.schema.arrow
    partitions = scan.partition_by
    filesystem = None if scan.storage.local is not None else scan.storage.filesystem()
    for position, path in enumerate(scan.paths):
        with naming(path), open_parquet(path, filesystem=filesystem) as file:
            groups = scan.row_groups_of(position)
            read = [field for field in file.schema_arrow if field.name in roots]
            refuse_variants(pa.schema(read), file.schema)
            values = hive.partition_values(path, {name: table.field(name).type for name in partitions})
            for group in range(file.num_row_groups) if groups is None else groups:
                rows = _rows(file, group, table, dict.fromkeys([*schema.names, *roots]), values)
                if where is not None:
                    rows = rows.take(_matching(con, rows.select(roots), where))
                yield from (
                    rows.select(schema.names).to_batches(_BATCH_ROWS) if len(schema) else [_empty_rows(len(rows))]
                )


def _also_named(where: str, names: Sequence[str], known: Sequence[str]) -> list[str]:
    """Columns that a condition may mention without depending on them, as in ``x = NULL``, which is never TRUE."""
    folded = {name.lower() for name in known}
    patterns = {name: re.escape(identifier(name)[1:-1]) for name in names if name.lower() not in folded}
    return [name for name, pattern in patterns.items() if re.search(rf"(?<!\w){pattern}(?!\w)", where)]


def _rows(
    file: pq.ParquetFile, group: int, table: pa.Schema, names: Iterable[str], values: Mapping[str, pa.Scalar]
) -> pa.Table:
    """The rows of a row group in the table's types. Columns that the file lacks are NULL."""
    stored_names = file.schema_arrow.names
    wanted = list(names)
    stored = file.read_row_group(
        group, columns=[name for name in wanted if name in stored_names and name not in values]
    )
    count = file.metadata.row_group(group).num_rows
    fields = [table.field(name) for name in wanted]
    columns = [
        pa.repeat(values[field.name], count)
        if field.name in values
        else cast(stored.column(field.name), field.type)
        if field.name in stored_names
        else pa.nulls(count, field.type)
        for field in fields
    ]
    if not fields:
        return pa.table({"": pa.nulls(count)}).select([])
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _matching(con: duckdb.DuckDBPyConnection, rows: pa.Table, where: str) -> np.ndarray:
    """The positions of the matching rows. Columns are cast to the types that DuckDB reads from Parquet."""
    schema = rows.schema
    imported = [_importable(rows.column(index), field.type) for index, field in enumerate(schema)]
    numbered = pa.table([*imported, pa.array(np.arange(len(rows)))], [*schema.names, _ROW_NUMBER])
    names = {name: duckdb_type(type) for name, type in zip(schema.names, schema.types, strict=True)}
    typed = ", ".join(f"CAST({identifier(name)} AS {type}) AS {identifier(name)}" for name, type in names.items())
    con.register(_ROWS, numbered)
    found = con.execute(
        f"SELECT {_ROW_NUMBER} FROM (SELECT {typed}{', ' if typed else ''}{_ROW_NUMBER} FROM {_ROWS}) WHERE {where} "
        f"ORDER BY {_ROW_NUMBER}"
    )
    numbers = found.fetchnumpy()[_ROW_NUMBER]
    con.unregister(_ROWS)
    return np.asarray(numbers)


_ROW_NUMBER = "_zskip_row_number"
_ROWS = "_zskip_rows"


def _importable(values: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    """Cast values to a type that DuckDB imports."""
    if isinstance(type, pa.BaseExtensionType):
        return _importable(values.cast(type.storage_type), type.storage_type)
    if t.is_dictionary(type):
        return _importable(values.cast(type.value_type), type.value_type)
    importable = t.with_leaves(type, importable_leaf)
    return values if importable == type else values.cast(importable)


def importable_leaf(type: pa.DataType) -> pa.DataType:
    """A type that DuckDB imports from Arrow: not half floats, wide decimals, and durations of more microseconds than it
    counts."""
    if t.is_float16(type):
        return pa.float32()
    if t.is_duration(type):
        return pa.int64()
    return pa.float64() if t.is_decimal256(type) and type.precision > 38 else type
