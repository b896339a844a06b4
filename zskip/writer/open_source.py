"""`open_source`: read rows from any source.

| given                                                   | read                                           |
| ------------------------------------------------------- | ---------------------------------------------- |
| pyarrow Table, RecordBatch; pandas or polars DataFrame  | in slices, without a copy                      |
| pyarrow Dataset                                         | by its scanner, twice if that saves memory     |
| RecordBatchReader, Scanner, DuckDB relation, any stream | once, batch by batch                           |
| a dict of columns, a list of dicts                      | as pyarrow's Table.from_pydict and from_pylist |
| polars LazyFrame                                        | collected by polars' streaming engine          |
| paths, globs, folders, URLs of Parquet                  | by row group, in parallel                      |
| paths, globs, folders, URLs of CSV or JSON              | by DuckDB, lazily                              |
| the path of a zskip table                               | the files of its newest snapshot; of a folder  |
|                                                         | that is only indexed, those that lie there now |
| the path or object of a Delta or Iceberg table          | its live rows, once                            |
| Spark DataFrame                                         | collected by its session                       |
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from zskip.core import late_loading
from zskip.core import types as t
from zskip.core.schema import identifier
from zskip.errors import InvalidOption, SchemaError, shown
from zskip.plan import find_survivors
from zskip.tablelog.table_folders import format_of_object
from zskip.writer.paths import is_folder, open_paths
from zskip.writer.row_source import RowSource, of_dataset, of_reader, of_table

if TYPE_CHECKING:
    from duckdb.sqltypes import DuckDBPyType


def open_source(source: Any, storage_options: Mapping[str, Any] | None = None) -> RowSource:
    """The rows of any source in the table above.

    Raises `InvalidOption` for any other source, `NoParquet` or `CorruptFile` for paths, and `SchemaError`.
    """
    if isinstance(source, RowSource):
        return source
    if isinstance(source, (str, os.PathLike)) or _are_paths(source):
        paths = [source] if isinstance(source, (str, os.PathLike)) else list(source)
        rows = _live_rows(paths[0], storage_options) if len(paths) == 1 and is_folder(os.fspath(paths[0])) else None
        return open_paths([os.fspath(path) for path in paths], storage_options) if rows is None else rows
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if _is_polars_lazy_frame(source):
        source = source.collect(engine="streaming")
    if session_of(source) is not None:
        source = late_loading.engine("spark session").collected(source)
    if isinstance(source, Mapping) or _are_rows(source) or _is_data_frame(source):
        source = _of_values(source)
    if isinstance(source, pa.Table):
        return of_table(source)
    if format_of_object(source) is not None and (rows := _live_rows(source, storage_options)) is not None:
        return rows
    # A caller that has a dataset has imported pyarrow.dataset; importing it here would load pandas.
    datasets = sys.modules.get("pyarrow.dataset")
    if datasets is not None and isinstance(source, datasets.Dataset):
        return of_dataset(source)
    if datasets is not None and isinstance(source, datasets.Scanner):
        source = source.to_reader()
    if type(source).__name__ == "DuckDBPyRelation":
        reader = pa.RecordBatchReader.from_stream(_as_copied(source))
        return of_reader(reader, _without_bytes_of_duckdb(reader.schema))
    if hasattr(source, "__arrow_c_stream__"):
        return of_reader(
            source if isinstance(source, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(source)
        )
    if isinstance(source, (list, tuple)) and not source:
        raise InvalidOption(
            "An empty list has no columns. Give an Arrow table without rows, or a dict of columns such as "
            '{"a": pyarrow.array([], "int64")}.'
        )
    raise InvalidOption(
        f"Rows cannot be read from a {type(source).__module__}.{type(source).__qualname__}. Give an Arrow table, "
        "reader or dataset, a frame of pandas or polars, a DuckDB relation, a dict of columns, a list of dicts, "
        "or paths of Parquet, CSV or JSON files."
    )


_ZONED_TIME = "TIME WITH TIME ZONE"
# Types that DuckDB's COPY writes to Parquet in another form than Arrow gets them in.
_AS_COPIED = {
    _ZONED_TIME: "timezone('UTC', {})::TIME",
    "BIT": "{}::VARCHAR",
    "BIGNUM": "{}::VARCHAR",
    "UHUGEINT": "{}::HUGEINT",  # Arrow takes the greater half of its values for negative ones
}


def _as_copied(relation: Any) -> Any:
    """A DuckDB relation with its times with a zone in UTC, as those of foreign Parquet are read, since Arrow has no
    zone for them; and BIT and BIGNUM as texts, since Arrow gets the bytes in which DuckDB stores them.

    Raises `SchemaError` for such values inside of another type.
    """
    types = {name: str(type) for name, type in zip(relation.columns, relation.types, strict=True)}
    for name, type in zip(relation.columns, relation.types, strict=True):
        inside = {str(each) for each in _inner_types(type)} & _AS_COPIED.keys()
        if inside:
            raise SchemaError(
                f'The column "{name}" of type {type} would lose what its values of type {inside.pop()} are: cast them, '
                f"{'to TIME' if _ZONED_TIME in types[name] else 'to VARCHAR or HUGEINT'}."
            )
    if not _AS_COPIED.keys() & set(types.values()):
        return relation
    forms = {identifier(name): _AS_COPIED.get(type, "{}") for name, type in types.items()}
    return relation.project(", ".join(f"{form.format(column)} AS {column}" for column, form in forms.items()))


def _without_bytes_of_duckdb(schema: pa.Schema) -> pa.Schema:
    """The types of a relation without those of DuckDB's ``arrow_lossless_conversion``, under which a BOOLEAN is a byte.

    Raises `SchemaError` for a HUGEINT, which is 16 opaque bytes then.
    """
    fields = [field.with_type(t.with_leaves(field.type, partial(_known, field.name))) for field in schema]
    return pa.schema(fields, schema.metadata)


def _known(column: str, leaf: pa.DataType) -> pa.DataType:
    if isinstance(leaf, pa.OpaqueType):
        raise SchemaError(
            f'The column "{column}" holds a {leaf.type_name.upper()} in bytes that only DuckDB reads, by its setting '
            "arrow_lossless_conversion: cast it to DECIMAL(38, 0), or SET arrow_lossless_conversion = false."
        )
    return pa.bool_() if isinstance(leaf, pa.Bool8Type) else leaf


def _inner_types(type: DuckDBPyType) -> Iterator[DuckDBPyType]:
    """The types inside of a struct, list, map or union of DuckDB."""
    from duckdb.sqltypes import DuckDBPyType

    if type.id in ("struct", "list", "array", "map", "union"):
        for _, child in type.children:
            if isinstance(child, DuckDBPyType):  # not the length of an array
                yield child
                yield from _inner_types(child)


def session_of(source: Any) -> Any:
    """The session of a Spark DataFrame; None for anything else."""
    return getattr(source, "sparkSession", None) if type(source).__module__.startswith("pyspark.sql.") else None


def _live_rows(table: Any, storage_options: Mapping[str, Any] | None) -> RowSource | None:
    """The rows of a Delta or Iceberg table that are not deleted; None for anything else."""
    from zskip.table_formats.locate import index_of, source_of

    source = source_of(table, storage_options=storage_options)
    if source is None:
        return None
    scan = find_survivors(index_of(source), None).scan
    return of_reader(pa.RecordBatchReader.from_batches(scan.schema.arrow, scan.to_batches()))


def _are_paths(source: object) -> bool:
    return (
        isinstance(source, (list, tuple))
        and bool(source)
        and all(isinstance(path, (str, os.PathLike)) for path in source)
    )


def _are_rows(source: object) -> bool:
    return isinstance(source, (list, tuple)) and bool(source) and all(isinstance(row, Mapping) for row in source)


def _of_values(source: Any) -> pa.Table:
    """A table of columns by name, of rows or of a frame. Raises `SchemaError` if their values make no table."""
    for name, values in source.items() if isinstance(source, Mapping) else ():
        if _is_single(values):
            raise SchemaError(f'A column is a list of values, and "{name}" is {shown(values)}: write a list.')
    try:
        if _is_data_frame(source, "pandas"):
            return _of_pandas(source)
        if isinstance(source, Mapping) or _is_data_frame(source):
            return pa.table(dict(source) if isinstance(source, Mapping) else source)
        names = dict.fromkeys(name for row in source for name in row)
        return pa.table({name: [row.get(name) for row in source] for name in names})
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SchemaError(f"These values make no table: {error}") from error


def _of_pandas(frame: Any) -> pa.Table:
    """A frame with each named index as a column. An index without a name numbers the rows, or has the numbers that a
    filter left."""
    named = [name for name in frame.index.names if name is not None and name not in frame.columns]
    return pa.Table.from_pandas(frame.reset_index(level=named) if named else frame, preserve_index=False)


_OF_ARRAYS = ("__iter__", "__arrow_array__", "__arrow_c_array__", "__arrow_c_stream__")


def _is_single(value: object) -> bool:
    """Whether a value is none of several; a text is one value, not its letters."""
    return isinstance(value, str | bytes) or not any(hasattr(value, name) for name in _OF_ARRAYS)


def _is_polars_lazy_frame(source: object) -> bool:
    kind = type(source)
    return kind.__name__ == "LazyFrame" and kind.__module__.split(".")[0] == "polars"


def _is_data_frame(source: object, *libraries: str) -> bool:
    kind = type(source)
    return kind.__name__ == "DataFrame" and kind.__module__.split(".")[0] in (libraries or ("pandas", "polars"))
