"""Spark's ``FileIndex``, in Python: Spark's planner asks it for the files of a scan, and hands it the filters.

    Spark's planner ── listFiles(partition filters, data filters) ──▶ FileIndex ──▶ plan ──▶ survivors ──▶ native scan

The interface is Spark's own and not public. It is tried once in each session; where it does not fit, `self_pruning`
says so with `Unsupported`. Inside Spark's planner nothing is ever raised: what cannot be planned is read whole.
"""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from zskip.errors import CorruptFile
from zskip.expr import Predicate
from zskip.scan import Scan
from zskip.spark import catalyst
from zskip.spark.handoff import Semantics, manifest, named_files, parquet_options, spark_schema, spark_uri
from zskip.tablelog import Index

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FileIndex", "Unsupported", "self_pruning"]

# The same class, since Spark 4.2 and before.
_MANIFEST_READERS = (
    "org.apache.spark.sql.execution.streaming.runtime.MetadataLogFileIndex",
    "org.apache.spark.sql.execution.streaming.MetadataLogFileIndex",
)
_PARQUET = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"


Replan: TypeAlias = "Callable[[Predicate | None], Scan]"


class Unsupported(Exception):
    """Spark's internals are not as they must be for a `FileIndex`; the message says what is different."""


def self_pruning(spark: SparkSession, index: Index, schema: pa.Schema, replan: Replan) -> DataFrame:
    """A DataFrame over all files of a snapshot, of which Spark reads those that its filters leave.

    ``schema``: the columns that it has. ``replan``: gives the scan of a predicate on the snapshot, of None for all.

    Raises `Unsupported`.
    """
    from py4j.protocol import Py4JError
    from pyspark.sql import DataFrame

    try:
        jvm = _Jvm(spark)
        partition_by = index.snapshot.partition_by
        data = pa.schema([field for field in schema if field.name not in partition_by])
        partitions = pa.schema([schema.field(name) for name in partition_by if name in schema.names])
        file_index = FileIndex(jvm, index, partitions, replan)
        relation = jvm.class_("org.apache.spark.sql.execution.datasources.HadoopFsRelation")(
            file_index,
            jvm.types(partitions),
            jvm.types(data),
            jvm.class_("scala.Option").empty(),
            jvm.class_(_PARQUET)(),
            jvm.options(parquet_options(data, index.snapshot.managed)),
            jvm.session,
        )
        rows = DataFrame(jvm.session.baseRelationToDataFrame(relation), spark)
        file_index.try_out(relation)
    except (Py4JError, TypeError, AttributeError) as error:
        raise Unsupported(f"{type(error).__name__}: {str(error).strip().splitlines()[0]}") from error
    return rows


class FileIndex:
    """Spark's trait of that name over one snapshot. Java holds it by a proxy, for as long as a relation needs it.

    Equal where they read the same version of the same table, so that Spark shares exchanges and caches between them.
    """

    class Java:
        implements = ("org.apache.spark.sql.execution.datasources.FileIndex",)

    def __init__(self, jvm: _Jvm, index: Index, partitions: pa.Schema, replan: Replan) -> None:
        self._jvm, self._index, self._partitions, self._replan = jvm, index, partitions, replan
        self._lock = threading.Lock()
        self._all_files: Any = None
        # Spark asks for these over and over while it plans, and each answer that is made anew takes milliseconds.
        self._roots: Any = jvm.seq([jvm.path(spark_uri(index.storage, ""))])
        self._nothing: Any = jvm.class_("scala.Option").empty()

    def try_out(self, relation: Any) -> None:
        """Let Spark call every method that a scan needs, once. Raises as py4j does."""
        relation.hashCode()
        relation.toString()
        if relation.sizeInBytes() < self.sizeInBytes() or not self._jvm.seq([self]).contains(self):
            raise Unsupported("Spark does not hand back what a FileIndex says of itself.")
        self._jvm.manifest_reader()

    # --- what Spark calls; the names are its own ---

    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:  # noqa: N802
        """The files that may hold a row for which all filters are TRUE, by partition."""
        try:
            filters = [*_elements(partition_filters), *_elements(data_filters)]
            wanted = catalyst.predicate(filters, self._index.snapshot.schema, self._jvm.semantics())
            if wanted is not None:
                return self._survivors(wanted, partition_filters)
        except Exception as error:
            # Whatever it is, it must not fail a query that Spark can answer by reading everything.
            _warn_once(f"zskip could not plan a Spark filter and reads every file: {type(error).__name__}: {error}")
        return self._everything().listFiles(partition_filters, self._jvm.seq([]))

    def rootPaths(self) -> Any:  # noqa: N802
        return self._roots

    def inputFiles(self) -> Any:  # noqa: N802
        return self._everything().inputFiles()

    def sizeInBytes(self) -> int:  # noqa: N802
        """Of the whole table: from it Spark decides what to broadcast."""
        size = self._index.snapshot.totals.bytes
        return size if size is not None else sum(self._replan(None).sizes)

    def partitionSchema(self) -> Any:  # noqa: N802
        return self._jvm.types(self._partitions)

    def refresh(self) -> None:
        """Nothing: a snapshot does not change. A folder that is only indexed is listed anew by each plan."""
        with self._lock:
            self._all_files = None

    def metadataOpsTimeNs(self) -> Any:  # noqa: N802
        return self._nothing

    def isTimeTravel(self) -> bool:  # noqa: N802
        return False

    def hashCode(self) -> int:  # noqa: N802
        return hash(self._name()) & 0x7FFF_FFFF

    def equals(self, other: Any) -> bool:
        return other is self or (other is not None and str(other.toString()) == self._name())

    def toString(self) -> str:  # noqa: N802
        return self._name()

    # --- how it answers ---

    def _name(self) -> str:
        snapshot = self._index.snapshot
        return f"zskip:{self._index.storage.uri}@{snapshot.version}:{snapshot.table_id}"

    def _survivors(self, wanted: Predicate, partition_filters: Any) -> Any:
        scan = self._replan(wanted)
        if not len(scan):
            return self._jvm.seq([])
        return self._reader(scan).listFiles(partition_filters, self._jvm.seq([]))

    def _everything(self) -> Any:
        with self._lock:
            if self._all_files is None or not self._index.snapshot.managed:
                self._all_files = self._reader(self._replan(None))
            return self._all_files

    def _reader(self, scan: Scan) -> Any:
        """Spark's own file index over exactly these files."""
        options = {} if len(self._partitions) else {"recursiveFileLookup": "true"}
        types = self._jvm.types(self._partitions) if len(self._partitions) else None
        with manifest(named_files(scan)) as folder:
            reader = self._jvm.manifest_reader()(
                self._jvm.session,
                self._jvm.path(folder),
                self._jvm.options(options),
                self._jvm.class_("scala.Option").apply(types),
            )
        taken = reader.allFiles().size()
        if taken != len(scan):
            raise CorruptFile(f"Spark takes {taken:,} of the {len(scan):,} files that it was given.")
        return reader


class _Jvm:
    """The parts of a session's Java side that a `FileIndex` is made of. Raises `Unsupported` where one is missing."""

    def __init__(self, spark: SparkSession) -> None:
        from pyspark.java_gateway import ensure_callback_server_started

        context = spark.sparkContext
        self.session: Any = spark._jsparkSession
        self._root: Any = context._jvm
        self._classes: dict[str, Any] = {}
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]  # pyspark has no types there

    def class_(self, name: str) -> Any:
        """A Java class by its full name."""
        found = self._find(name)
        if found is None:
            raise Unsupported(f"this Spark has no {name}")
        return found

    def _find(self, name: str) -> Any:
        """A class, or None; Java is asked once for each, a word for every part of its name."""
        from py4j.java_gateway import JavaClass

        if name not in self._classes:
            found = self._root
            for part in name.split("."):
                found = getattr(found, part)
            self._classes[name] = found if isinstance(found, JavaClass) else None
        return self._classes[name]

    def manifest_reader(self) -> Any:
        """Spark's index over the files that its own file sink names in a manifest."""
        found = next(filter(None, map(self._find, _MANIFEST_READERS)), None)
        if found is None:
            raise Unsupported(f"this Spark has no {_MANIFEST_READERS[0]}")
        return found

    def seq(self, elements: Sequence[Any]) -> Any:
        return self.class_("org.apache.spark.api.python.PythonUtils").toSeq(list(elements))

    def options(self, options: dict[str, str]) -> Any:
        return self.class_("org.apache.spark.api.python.PythonUtils").toScalaMap(options)

    def path(self, uri: str) -> Any:
        return self.class_("org.apache.hadoop.fs.Path")(self.class_("java.net.URI")(uri))

    def types(self, schema: pa.Schema) -> Any:
        return self.class_("org.apache.spark.sql.types.DataType").fromJson(spark_schema(schema).json())

    def semantics(self) -> Semantics:
        """Of the session on whose behalf Spark is planning in this thread."""
        conf = self.class_("org.apache.spark.sql.internal.SQLConf").get()
        return Semantics(conf.sessionLocalTimeZone(), conf.ansiEnabled())


def _elements(seq: Any) -> list[Any]:
    return [seq.apply(number) for number in range(seq.size())]


def _warn_once(message: str) -> None:
    if message not in _WARNED:
        _WARNED.add(message)
        warnings.warn(message, RuntimeWarning, stacklevel=2)


_WARNED: set[str] = set()
