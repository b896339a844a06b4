"""A plan's files as a Spark DataFrame: a native scan with an explicit schema, without listing folders.

The files are handed over as a **manifest**: a folder whose ``_spark_metadata/0`` names them with their sizes, as
Spark's own file sink leaves one. Ten thousand files take half a second that way, and half a minute as a list of paths.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from zskip import types as t
from zskip.binder import bind
from zskip.errors import CorruptFile, InvalidOption, MissingDependency, SchemaError, UnsupportedSql
from zskip.expr import Predicate, conjunction
from zskip.plan import Survivors, find_survivors
from zskip.scan import Scan
from zskip.schema import Schema, names_given

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from zskip.storage import Storage

from zskip.spark.meaning_settings import require_proved_meaning

__all__ = [
    "Semantics",
    "alike",
    "arrow_schema",
    "column",
    "is_connect",
    "manifest",
    "named_files",
    "parquet_options",
    "read_files",
    "require_pyspark",
    "require_session",
    "setting",
    "spark_schema",
    "spark_uri",
    "to_spark",
]

_LIST_IN_THE_DRIVER = {"spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000"}


def to_spark(survivors: Survivors, spark: SparkSession, columns: Sequence[str] | None = None) -> DataFrame:
    """The rows that the predicate of the survivors selects, read from the surviving files alone.

    The session's settings are afterwards as they were. Raises `SchemaError` for a column that Spark cannot read (name
    the others in ``columns``), and `UnsupportedSql` where the predicate cannot be said in Spark's SQL.
    """
    require_session(spark)
    where, scan = _in_session(survivors, spark)
    schema = scan.schema
    given = schema.arrow.names if columns is None else names_given(columns, "columns")
    wanted = [name if columns is None else schema.column(name).parts[0] for name in given]
    filtered = sorted(survivors.predicate.columns) if survivors.predicate is not None else []
    read = list(dict.fromkeys([*wanted, *(schema.columns[path].parts[0] for path in filtered)]))
    arrow = pa.schema([schema.arrow.field(name) for name in read])
    rows = read_files(spark, scan, arrow)
    if where is not None:
        rows = rows.where(where)
    return rows if read == wanted else rows.select([column(name) for name in wanted])


def _in_session(survivors: Survivors, spark: SparkSession) -> tuple[str | None, Scan]:
    """The filter as Spark's SQL, and the files that it leaves under the session's own zone and mode.

    The proof has to stand on the meaning that Spark will give the text, whatever it was planned under before.
    """
    if survivors.predicate is None:
        return None, survivors.scan
    where = survivors.predicate.sql("spark")
    if where is None:
        raise UnsupportedSql(
            'Spark\'s SQL cannot say this predicate with the same meaning. Plan it with dialect="spark".',
            survivors.predicate.text,
        )
    require_proved_meaning(spark, where)
    semantics = Semantics.of(spark)
    schema = survivors.index.snapshot.schema
    predicate = None
    if semantics.zone is not None:
        bound = bind(where, schema, dialect="spark", timezone=semantics.zone.key, ansi=semantics.ansi)
        predicate = alike(bound, schema)
    return where, find_survivors(survivors.index, predicate, changes=survivors.changes).scan


def alike(predicate: Predicate, schema: Schema) -> Predicate | None:
    """The conjuncts over columns that Spark reads as the same values as Arrow does; None where there is none.

    INT96 is an instant to Spark and a local time to Arrow; a duration is a number to Spark.
    """
    differs = {
        path
        for path, column in schema.columns.items()
        if t.is_duration(column.type) or (t.is_timestamp(column.type) and column.type.unit == "ns")
    }
    parts = [part for part in predicate.conjuncts if not part.columns & differs]
    return conjunction(parts) if parts else None


@dataclass(frozen=True, slots=True)
class Semantics:
    """What a session says of SQL's meaning: its time zone, as Java names it; whether errors raise, and case counts."""

    timezone: str
    ansi: bool
    case_sensitive: bool = False

    @staticmethod
    def of(spark: SparkSession) -> Semantics:
        """The settings of a session."""
        ansi, case = (str(spark.conf.get(f"spark.sql.{key}")).lower() for key in ("ansi.enabled", "caseSensitive"))
        return Semantics(str(spark.conf.get("spark.sql.session.timeZone")), ansi == "true", case == "true")

    @property
    def zone(self) -> ZoneInfo | None:
        """The zone with all its clock changes; None where Python does not know the name.

        >>> Semantics("+02:00", True).zone, Semantics("GMT-03:30", True).zone
        (zoneinfo.ZoneInfo(key='Etc/GMT-2'), None)
        """
        offset = re.fullmatch(r"(?:UTC|GMT|UT)?([+-])0?(\d\d?)(?::?00)?", self.timezone)
        # POSIX counts hours west of Greenwich.
        name = f"Etc/GMT{'-' if offset[1] == '+' else '+'}{int(offset[2])}" if offset else self.timezone
        try:
            return ZoneInfo("UTC" if name in ("Z", "Etc/UTC", "Etc/GMT+0", "Etc/GMT-0") else name)
        except (KeyError, ValueError, OSError):
            return None


def named_files(scan: Scan) -> list[tuple[str, int]]:
    """The files of a scan, each by its URI and its size in bytes: a wrong size would cut it short."""
    uris = (spark_uri(scan.storage, path) for path in scan.relative_paths)
    return list(zip(uris, scan.sizes, strict=True))


def read_files(spark: SparkSession, scan: Scan, schema: pa.Schema) -> DataFrame:
    """A DataFrame over exactly the files of a scan, unfiltered. Rows that another format has deleted are left out.

    Raises `CorruptFile` if Spark does not take all of them.
    """
    types = spark_schema(schema)
    if not len(scan):
        return spark.createDataFrame([], types)
    if not scan.plain:
        # Spark's Parquet reader knows neither deleted rows nor what only the log says: they come through this machine.
        touched = np.array([path in scan.deletes for path in scan.relative_paths])
        rest = scan.narrowed(~touched)
        if len(rest) and rest.plain:
            return read_files(spark, rest, schema).union(read_files(spark, scan.narrowed(touched), schema))
        return spark.createDataFrame(scan.unfiltered().to_arrow(schema.names), types)
    named = named_files(scan)
    options = parquet_options(schema, scan.managed)
    if scan.partition_by:
        return _read_paths(spark, scan.storage, [uri for uri, _ in named], types, options)
    if not is_connect(spark):
        with manifest(named) as folder:
            return _all_taken(_read_manifest(spark, folder, types, options), len(scan))
    # A Connect server resolves the plan anew for each run: the manifest has to outlive the DataFrame. A server that
    # does not see this machine's disk is given paths.
    from pyspark.errors import AnalysisException

    folder = tempfile.mkdtemp(dir=_lasting_folder())
    _write_manifest(Path(folder), named)
    try:
        return _all_taken(_read_manifest(spark, Path(folder).as_uri(), types, options), len(scan))
    except AnalysisException:
        return _read_paths(spark, scan.storage, [uri for uri, _ in named], types, options)


def parquet_options(schema: pa.Schema, managed: bool) -> dict[str, str]:
    """What Spark's Parquet reader must leave alone inside a file, for it loses rows of columns of floats there.

    It looks constants up in a dictionary by their bits, where -0.0 is not 0.0; and it trusts a footer's maximum, which
    other writers set without regard to NaN. Where zskip wrote the files, no footer has bounds beside a NaN.
    """
    if not any(t.is_floating(column.type) for column in Schema(schema).columns.values()):
        return {}
    unsafe = ["dictionary", "bloom"] if managed else ["dictionary", "bloom", "stats", "columnindex"]
    return {f"parquet.filter.{kind}.enabled": "false" for kind in unsafe}


def _read_manifest(spark: SparkSession, folder: str, schema: StructType, options: dict[str, str]) -> DataFrame:
    # Without recursiveFileLookup, files of different folders would be taken for partitions, or for nothing at all.
    return spark.read.schema(schema).options(**options, recursiveFileLookup="true").parquet(folder)


def _read_paths(
    spark: SparkSession, storage: Storage, uris: Sequence[str], schema: StructType, options: dict[str, str]
) -> DataFrame:
    """By a list of paths, below a base path so that hive folders become columns."""
    paths = [_glob_escaped(uri) for uri in uris]
    base = unquote(spark_uri(storage, ""))
    with setting(spark, _LIST_IN_THE_DRIVER):
        rows = spark.read.schema(schema).options(**options, basePath=base).parquet(*paths)
        rows = rows.select([column(name) for name in schema.fieldNames()])
        return _all_taken(rows, len(uris))


def _all_taken(rows: DataFrame, expected: int) -> DataFrame:
    taken = len(set(rows.inputFiles()))
    if taken != expected:
        raise CorruptFile(f"Spark takes {taken:,} of the {expected:,} files that it was given: nothing is read.")
    return rows


@contextmanager
def manifest(files: Sequence[tuple[str, int]]) -> Iterator[str]:
    """The URI of a folder that names these files, each a URI and its size in bytes, in the form of Spark's file sink.

    Spark reads it when the file index is made, so it need not live longer than that.
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
def _lasting_folder() -> str:
    folder = tempfile.TemporaryDirectory(prefix="zskip-")
    _LASTING.append(folder)  # it removes itself when the interpreter ends
    return folder.name


_LASTING: list[tempfile.TemporaryDirectory[str]] = []


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
    """A URI as Spark's reader takes a path: decoded, its glob characters kept from matching."""
    return "".join(f"\\{letter}" if letter in "\\*?[]{}" else letter for letter in unquote(uri))


@contextmanager
def setting(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Settings of a session for the length of a block; then they are as before."""
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def column(name: str) -> Column:
    """A top-level column by its name as it stands, whatever letters it holds."""
    from pyspark.sql import functions

    return functions.col("`" + name.replace("`", "``") + "`")


def is_connect(spark: Any) -> bool:
    """Whether a session (or DataFrame) speaks to a Spark Connect server, and so has no JVM at hand."""
    return any(kind.__module__.startswith("pyspark.sql.connect") for kind in type(spark).__mro__)


def require_pyspark() -> None:
    """Raises `MissingDependency` where pyspark is not installed."""
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise MissingDependency("Spark needs the package pyspark: pip install 'zskip[spark]'.") from error


def require_session(spark: Any) -> None:
    """Raises `MissingDependency` where pyspark or Java is missing, `InvalidOption` for what is no Spark session."""
    require_pyspark()
    if hasattr(spark, "sparkSession") or hasattr(spark, "createDataFrame"):
        return
    home = os.environ.get("JAVA_HOME")
    if not (shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")):
        where = f"at JAVA_HOME, {home}" if home else "on the PATH, and JAVA_HOME is not set"
        raise MissingDependency(
            f"Spark needs Java 17 or later, and there is none {where}. Without it there is no session."
        )
    raise InvalidOption(
        f"A Spark session is needed, not {type(spark).__name__}: SparkSession.builder.getOrCreate() makes one."
    )


def spark_schema(schema: pa.Schema) -> StructType:
    """The types by which Spark reads Parquet files of an Arrow schema. Raises `SchemaError` where it cannot."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(field.name, _spark_type(field.type, field.name), True) for field in schema])


def arrow_schema(types: StructType) -> pa.Schema:
    """The Arrow types of what Spark writes as Parquet. Raises `SchemaError` for values that would not come back."""
    return pa.schema([pa.field(field.name, _arrow_type(field.dataType, field.name), field.nullable) for field in types])


def _arrow_type(kind: DataType, path: str) -> pa.DataType:
    from pyspark.sql import types as s

    if isinstance(kind, s.StructType):
        fields = ((f.name, _arrow_type(f.dataType, f"{path}.{f.name}"), f.nullable) for f in kind)
        return pa.struct([pa.field(*field) for field in fields])
    if isinstance(kind, s.ArrayType):
        item = _arrow_type(kind.elementType, f"{path}.element")
        return pa.list_(pa.field("element", item, kind.containsNull))
    if isinstance(kind, s.MapType):
        item = pa.field("value", _arrow_type(kind.valueType, f"{path}.value"), kind.valueContainsNull)
        return pa.map_(_arrow_type(kind.keyType, f"{path}.key"), item)
    if isinstance(kind, s.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    simple: dict[type[DataType], pa.DataType] = {
        s.BooleanType: pa.bool_(),
        s.ByteType: pa.int8(),
        s.ShortType: pa.int16(),
        s.IntegerType: pa.int32(),
        s.LongType: pa.int64(),
        s.FloatType: pa.float32(),
        s.DoubleType: pa.float64(),
        s.BinaryType: pa.binary(),
        s.DateType: pa.date32(),
        s.TimestampType: pa.timestamp("us", "UTC"),
        s.TimestampNTZType: pa.timestamp("us"),
    }
    if type(kind) in simple:
        return simple[type(kind)]
    # A collation is not kept in Parquet: compared by bytes, the strings would mean something else.
    if isinstance(kind, s.StringType) and "collate" not in kind.simpleString().lower():
        return pa.string()
    raise SchemaError(f'A table cannot hold the column "{path}" of type {kind.simpleString()}: cast it first.')


def _spark_type(arrow: pa.DataType, path: str) -> DataType:
    from pyspark.sql import types as s

    arrow = t.value_type(arrow)
    if t.is_struct(arrow):
        fields = (arrow.field(index) for index in range(arrow.num_fields))
        return s.StructType([s.StructField(f.name, _spark_type(f.type, f"{path}.{f.name}"), True) for f in fields])
    if t.is_map(arrow):
        return s.MapType(_spark_type(arrow.key_type, f"{path}.key"), _spark_type(arrow.item_type, f"{path}.value"))
    if t.is_list(arrow) or t.is_large_list(arrow) or t.is_fixed_size_list(arrow):
        return s.ArrayType(_spark_type(arrow.value_type, f"{path}.element"))
    name = t.sql_name(arrow, "spark")
    if name is None:
        raise SchemaError(f'Spark cannot read the column "{path}": Parquet of the type {arrow} is not known to it.')
    if decimal := re.fullmatch(r"DECIMAL\((\d+), (-?\d+)\)", name):
        return s.DecimalType(int(decimal[1]), int(decimal[2]))
    simple: dict[str, DataType] = {
        "BOOLEAN": s.BooleanType(),
        "TINYINT": s.ByteType(),
        "SMALLINT": s.ShortType(),
        "INT": s.IntegerType(),
        "BIGINT": s.LongType(),
        "FLOAT": s.FloatType(),
        "DOUBLE": s.DoubleType(),
        "STRING": s.StringType(),
        "BINARY": s.BinaryType(),
        "DATE": s.DateType(),
        "TIMESTAMP": s.TimestampType(),
        "TIMESTAMP_NTZ": s.TimestampNTZType(),
    }
    return simple[name]
