"""A plan's files as a Spark DataFrame: a native scan with an explicit schema, without listing folders.

The files are passed as a **manifest**: a folder whose ``_spark_metadata/0`` lists them with their sizes, in the format
of Spark's file sink. Ten thousand files take half a second as a manifest, and half a minute as a list of paths.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa

from zskip.core import types as t
from zskip.core.schema import Schema, identifier
from zskip.errors import CorruptFile, FilesRemoved, UnsupportedSql
from zskip.language import Predicate
from zskip.plan import Survivors, find_survivors
from zskip.plan.scan import Scan
from zskip.spark.inferred_types import Inference, in_spark_types, texts_by_folder
from zskip.spark.spark_session import (
    Semantics,
    calendar_options,
    clocks_of,
    is_connect,
    require_proved_meaning,
    require_session,
    same_in_spark,
    setting,
)
from zskip.spark.spark_types import spark_schema
from zskip.tablelog.index import Index
from zskip.tablelog.log import is_expired

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from zskip.storage import Storage


_LIST_IN_THE_DRIVER = {"spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000"}


def to_spark(survivors: Survivors, spark: SparkSession, columns: Sequence[str] | None = None) -> DataFrame:
    """The rows that the survivors' predicate selects, read from the surviving files only, in Spark's types.

    Settings of the session that change during the call are restored. Raises `SchemaError` for a column that Spark
    cannot read (name the others in ``columns``), and `UnsupportedSql` if Spark's SQL cannot express the predicate.
    """
    require_session(spark)
    index = in_spark_types(survivors.index, Inference.of(spark))
    where, scan = _planned_for(survivors, index, spark)
    require_kept(index, scan)
    wanted = index.snapshot.schema.selected(columns)
    named = () if where is None else _named_in(where, scan.schema, survivors.predicate)
    read = list(dict.fromkeys([*wanted.names, *named]))
    rows = read_files(spark, scan, scan.schema.selected(read))
    if where is not None:
        rows = rows.where(where)
    types = spark_schema(wanted)
    if read == wanted.names and rows.schema == types:
        return rows
    return rows.select([column(field.name).cast(field.dataType).alias(field.name) for field in types])


def _named_in(where: str, schema: Schema, predicate: Predicate | None) -> list[str]:
    """The top-level columns that a condition reads or mentions: ``x = NULL`` depends on no column."""
    bound = set() if predicate is None else {predicate.schema.columns[path].parts[0] for path in predicate.columns}
    return [
        name
        for name in schema.arrow.names
        if name in bound or re.search(rf"(?<!\w){re.escape(name)}(?!\w)", where, re.IGNORECASE)
    ]


def _planned_for(survivors: Survivors, index: Index, spark: SparkSession) -> tuple[str | None, Scan]:
    """The predicate as Spark's SQL, and its surviving files under the session's time zone and ANSI mode.

    It is planned again, because the text may have another meaning under the session's settings. ``index``: the
    survivors' in Spark's types, in which a predicate in Spark's SQL is bound. A predicate of another dialect has the
    meaning of the types that it was planned with: hive columns that it reads are read so, and cast afterwards.
    """
    given = survivors.predicate
    if given is None:
        return None, find_survivors(index, None, changes=survivors.changes).scan
    where = given.sql("spark")
    if where is None:
        raise UnsupportedSql(
            'Spark\'s SQL cannot say this predicate with the same meaning. Plan it with dialect="spark".', given.text
        )
    require_proved_meaning(spark, where)
    schema = index.snapshot.schema
    if given.dialect.name != "spark":
        schema = _as_planned(survivors, schema, _named_in(where, survivors.index.snapshot.schema, given))
    semantics = Semantics.of(spark)
    predicate = None
    if semantics.zone is not None:
        predicate = same_in_spark(semantics.bind(where, schema, clocks_of(spark)), schema)
    if schema is not index.snapshot.schema:
        index = Index(index.storage, replace(index.snapshot, schema=schema))
    return where, find_survivors(index, predicate, changes=survivors.changes).scan


def _as_planned(survivors: Survivors, schema: Schema, names: Sequence[str]) -> Schema:
    """Spark's types, with these columns as they were planned. Raises `UnsupportedSql` for those in files."""
    snapshot, arrow = survivors.index.snapshot, schema.arrow
    for place, name in enumerate(arrow.names):
        planned = snapshot.schema.arrow.field(name)
        if name not in names or arrow.field(place).type == planned.type:
            continue
        if name not in snapshot.partition_by:
            raise UnsupportedSql(
                f'The column "{name}" is {planned.type} in this plan and has another type on Spark, so the predicate '
                'would select other rows there. Plan it with dialect="spark", or call zskip.spark.read.',
                survivors.predicate.text,  # type: ignore[union-attr]  # only for a predicate
            )
        arrow = arrow.set(place, planned)
    return schema if arrow is schema.arrow else Schema(arrow)


def require_kept(index: Index, scan: Scan) -> None:
    """Raise `FilesRemoved` if a vacuum has removed files of a scan: Spark's executors would not find them.

    Whether the version has expired is one small read, and only then the files are looked up: later versions may
    still need them all.
    """
    if not index.snapshot.managed or index.source or not is_expired(index.storage, index.version):
        return
    files = index.storage.size_and_modified(scan.relative_paths)
    if gone := files.size.null_count:
        raise FilesRemoved(
            f"{gone:,} of the {len(files):,} files that the query needs are gone: version {index.version} of "
            f"{index.storage.uri} has expired. Open the table again, and plan anew."
        )


def named_files(scan: Scan) -> list[tuple[str, int]]:
    """The URI and the size in bytes of each file of a scan. Spark reads no further than this size."""
    uris = (spark_uri(scan.storage, path) for path in scan.relative_paths)
    return list(zip(uris, scan.sizes, strict=True))


def read_files(spark: SparkSession, scan: Scan, schema: pa.Schema) -> DataFrame:
    """A DataFrame over exactly the files of a scan, unfiltered, without rows deleted by another table format.

    Raises `CorruptFile` if Spark does not take all files, and `SchemaError` for a hive column of another name there.
    """
    types = spark_schema(schema)
    if not len(scan):
        return spark.createDataFrame([], types)
    if not scan.plain:
        # Spark's Parquet reader cannot apply deletes or column mappings: zskip reads these files on this machine.
        touched = np.array([path in scan.deletes for path in scan.relative_paths])
        rest = scan.narrowed(~touched)
        if len(rest) and rest.plain:
            return read_files(spark, rest, schema).union(read_files(spark, scan.narrowed(touched), schema))
        return spark.createDataFrame(scan.unfiltered().to_arrow(schema.names), types)
    named = named_files(scan)
    options = parquet_options(schema, scan.managed)
    options |= calendar_options(spark, is_table=scan.managed or scan.source is not None)
    if scan.partition_by:
        texts_by_folder(pa.array(scan.relative_paths, pa.string()))  # or Spark has NULL in a column of another name
        return _read_paths(spark, scan.storage, [uri for uri, _ in named], types, options)
    if not is_connect(spark):
        with manifest(named) as folder:
            return _require_all_files(_read_manifest(spark, folder, types, options), len(scan))
    # A Connect server resolves the plan again for each run, so the manifest must outlive the DataFrame. A server that
    # cannot read this machine's disk gets a list of paths.
    from pyspark.errors import AnalysisException

    folder = tempfile.mkdtemp(dir=_lasting_folder().name)
    _write_manifest(Path(folder), named)
    try:
        return _require_all_files(_read_manifest(spark, Path(folder).as_uri(), types, options), len(scan))
    except AnalysisException:
        shutil.rmtree(folder)
        return _read_paths(spark, scan.storage, [uri for uri, _ in named], types, options)


def parquet_options(schema: pa.Schema, managed: bool) -> dict[str, str]:
    """Options that turn off filters of Spark's Parquet reader that lose rows of floating-point columns.

    Dictionary and Bloom filters compare bits, so -0.0 differs from 0.0. Filters on statistics trust a footer's maximum,
    which writers other than zskip compute without NaN.
    """
    if not any(t.is_floating(column.type) for column in Schema(schema).columns.values()):
        return {}
    unsafe = ["dictionary", "bloom"] if managed else ["dictionary", "bloom", "stats", "columnindex"]
    return {f"parquet.filter.{kind}.enabled": "false" for kind in unsafe}


def _read_manifest(spark: SparkSession, folder: str, schema: StructType, options: dict[str, str]) -> DataFrame:
    # Without recursiveFileLookup, Spark would infer partitions from folders, or ignore files.
    return spark.read.schema(schema).options(**options, recursiveFileLookup="true").parquet(folder)


def _read_paths(
    spark: SparkSession, storage: Storage, uris: Sequence[str], schema: StructType, options: dict[str, str]
) -> DataFrame:
    """Read a list of paths. The base path makes Spark turn hive folders into columns."""
    paths = [_glob_escaped(uri) for uri in uris]
    base = unquote(spark_uri(storage, ""))
    with setting(spark, _LIST_IN_THE_DRIVER):
        rows = spark.read.schema(schema).options(**options, basePath=base).parquet(*paths)
        rows = rows.select([column(name) for name in schema.fieldNames()])
        return _require_all_files(rows, len(uris))


def _require_all_files(rows: DataFrame, expected: int) -> DataFrame:
    """The same rows. Raises `CorruptFile` unless they come from as many files."""
    taken = len(set(rows.inputFiles()))
    if taken != expected:
        raise CorruptFile(f"Spark takes {taken:,} of the {expected:,} files that it was given: nothing is read.")
    return rows


@contextmanager
def manifest(files: Sequence[tuple[str, int]]) -> Iterator[str]:
    """The URI of a folder that lists files (URI and size in bytes) in the format of Spark's file sink.

    It is deleted after the block: Spark reads it only to make its file index.
    """
    with tempfile.TemporaryDirectory(prefix="zskip-") as folder:
        _write_manifest(Path(folder), files)
        yield Path(folder).as_uri()


def _write_manifest(folder: Path, files: Sequence[tuple[str, int]]) -> None:
    same = '"isDir":false,"modificationTime":0,"blockReplication":1,"blockSize":134217728,"action":"add"'
    lines = (f'{{"path":{json.dumps(uri)},"size":{size},{same}}}' for uri, size in files)
    (folder / "_spark_metadata").mkdir()
    (folder / "_spark_metadata" / "0").write_text("\n".join(["v1", *lines]), encoding="utf-8")


@cache
def _lasting_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that lasts until the interpreter exits, since the cache holds it."""
    return tempfile.TemporaryDirectory(prefix="zskip-")


def spark_uri(storage: Storage, path: str) -> str:
    """The URI by which Hadoop knows a file of a table, percent-encoded; the table itself for the empty path.

    Object stores that Python calls ``s3://`` are ``s3a://`` to Hadoop.
    """
    if storage.local is not None:
        return (storage.local / path).as_uri()
    whole = f"{storage.uri}/{path}" if path else storage.uri
    scheme, _, rest = whole.partition("://")
    return f"{'s3a' if scheme == 's3' else scheme}://{quote(rest, safe='/@:')}"


def _glob_escaped(uri: str) -> str:
    """A URI as a path for Spark's reader: percent-decoded, with glob characters escaped."""
    return "".join(f"\\{letter}" if letter in "\\*?[]{}" else letter for letter in unquote(uri))


def column(name: str) -> Column:
    """A top-level column by its exact name, whatever characters it contains."""
    from pyspark.sql import functions

    return functions.col(identifier(name, dialect="spark"))
