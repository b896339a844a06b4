"""A snapshot's files for Spark: planning with Catalyst filters, and the survivors as a ``FileIndex`` of Spark's own."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from cachetools import LRUCache

from zskip.errors import CorruptFile, DamagedIndex, ZskipError
from zskip.language import Predicate
from zskip.plan import Survivors, find_survivors, logged
from zskip.plan.scan import Scan
from zskip.spark import catalyst
from zskip.spark.handoff import manifest, named_files, parquet_options, require_kept, spark_uri
from zskip.spark.join_keys import is_key_type
from zskip.spark.jvm import Jvm, Proxy, Unsupported, elements, one_line, warn_once
from zskip.spark.spark_session import calendar_options
from zskip.spark.spark_types import spark_schema
from zskip.statements.joins import file_slices
from zskip.tablelog import freshness
from zskip.tablelog.index import Index
from zskip.tablelog.log import is_expired

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_KEPT_READERS = 16


class SnapshotFiles:
    """The files of one snapshot, with the columns of ``schema`` and the options by which Spark must read them."""

    def __init__(self, jvm: Jvm, index: Index, schema: pa.Schema) -> None:
        partition_by = index.snapshot.partition_by
        self.jvm, self.index = jvm, index
        self.schema = schema
        self.data = pa.schema([field for field in schema if field.name not in partition_by])
        self.partitions = pa.schema([schema.field(name) for name in partition_by if name in schema.names])
        is_table = index.snapshot.managed or index.source is not None
        self.options = parquet_options(self.data, index.snapshot.managed)
        self.options |= calendar_options(jvm.spark, is_table=is_table)

    @cached_property
    def empty_reader(self) -> Any:
        """Spark's ``FileIndex`` over no files, with the partition columns."""
        return self._new_reader([])

    @cached_property
    def java_types(self) -> Any:
        """The columns stored in the files, as a ``StructType``."""
        return self.jvm.types(self.data)

    @cached_property
    def java_options(self) -> Any:
        options = self.jvm.class_("java.util.HashMap")()
        for name, value in self.options.items():
            options.put(name, value)
        return self.jvm.class_("org.apache.spark.sql.util.CaseInsensitiveStringMap")(options)

    @cached_property
    def java_format(self) -> Any:
        return self.jvm.class_("org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat")()

    @property
    def name(self) -> str:
        """A name that only the same version of the same table has, read in the same types by the same options."""
        snapshot = self.index.snapshot
        return f"zskip:{self.index.storage.uri}@{snapshot.version}:{snapshot.table_id}:{self._types}"

    @cached_property
    def _types(self) -> str:
        read_as = f"{spark_schema(self.schema).json()}{self.options}"
        return hashlib.sha256(read_as.encode()).hexdigest()[:16]

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        size = self.index.snapshot.totals.bytes
        return size if size is not None else sum(self.survivors(None).scan.sizes)

    def share_without(self, name: str) -> float:
        """The share of files that a single key of the column rules out; 0 if the column does not support keys."""
        column = self.index.snapshot.schema.find([name], case_sensitive=True)
        if column is None or not is_key_type(column.type):
            return 0.0
        # An index without files has no slices.
        return 1 - 1 / max(file_slices(self.index, column.path), 1.0)

    def predicate(self, expressions: Sequence[Any]) -> tuple[Predicate | None, bool]:
        """The conjunction of Catalyst expressions as a predicate, and whether it is equivalent; see `catalyst`."""
        try:
            return catalyst.predicate(expressions, self.index.snapshot.schema, self.jvm)
        except Exception as error:
            self.warn(error)
            return None, False

    def survivors(self, predicate: Predicate | None) -> Survivors:
        """The files that may hold a row for which the predicate is TRUE. An indexed folder is listed first.

        Where the plan fails, all files; where these are not known either, the query fails.
        """
        try:
            found = self._planned(predicate)
            require_kept(self.index, found.scan)
            return found
        except (OSError, ZskipError) as error:
            raise self._lost(error) from error

    def _planned(self, predicate: Predicate | None) -> Survivors:
        changes = freshness.listed(self.index)
        if predicate is not None:
            try:
                return _read(logged(find_survivors(self.index, predicate, changes=changes)))
            except Exception as error:
                everything = _read(find_survivors(self.index, None, changes=changes))
                self.warn(error)
                return everything
        return _read(find_survivors(self.index, None, changes=changes))

    def _lost(self, error: Exception) -> Exception:
        index, uri = self.index, self.index.storage.uri
        # A part of the index is gone together with its version: there is nothing to repair.
        is_vacuumed = isinstance(error, DamagedIndex) and not index.source and is_expired(index.storage, index.version)
        why = "a vacuum has removed statistics of this version." if is_vacuumed else error
        return self.jvm.error(
            f"The files of version {index.snapshot.version} of {uri} cannot be looked up any more: {why} If a vacuum "
            "has removed them, this DataFrame is older than what it kept. Make it anew: "
            f"zskip.spark.table(spark, {uri!r})."
        )

    def warn(self, error: Exception) -> None:
        """Log an error in planning instead of raising it: reading all files still returns the right rows."""
        warn_once(f"zskip could not plan a Spark filter and reads every file: {type(error).__name__}: {error}")

    def reader(self, scan: Scan) -> Any:
        """Spark's ``FileIndex`` over exactly these files, cached: Spark compares plans by its identity.

        Raises `CorruptFile` if Spark does not take all of them.
        """
        key = (self.name, tuple(self.partitions.names), tuple(named := named_files(scan)))
        with _LOCK:
            kept = _READERS.setdefault(self.jvm.spark, LRUCache(_KEPT_READERS))
            if key in kept:
                return kept[key]
        found = self._new_reader(named)
        with _LOCK:
            return kept.setdefault(key, found)

    def _new_reader(self, named: Sequence[tuple[str, int]]) -> Any:
        options = {} if len(self.partitions) else {"recursiveFileLookup": "true"}
        types = self.jvm.types(self.partitions) if len(self.partitions) else None
        with manifest(named) as folder:
            reader = self.jvm.manifest_reader()(
                self.jvm.session,
                self.jvm.path(folder),
                self.jvm.options(options),
                self.jvm.class_("scala.Option").apply(types),
            )
        taken = reader.allFiles().size()
        if taken != len(named):
            raise CorruptFile(f"Spark takes {taken:,} of the {len(named):,} files that it was given.")
        return reader


def _read(found: Survivors) -> Survivors:
    """The survivors, with what their scan says of the files, so that a part that is lost is missed here."""
    _ = found.scan
    return found


_LOCK = threading.Lock()
_READERS: WeakKeyDictionary[Any, LRUCache[Any, Any]] = WeakKeyDictionary()


# Spark's ``FileIndex`` in Python: Spark's planner passes it the filters of a scan and gets the files to read.
#
#     Spark's planner ── listFiles(partition filters, data filters) ──▶ FileIndex ──▶ plan ──▶ survivors ──▶ native scan
#
# The interface is internal to Spark. `self_pruning` calls its methods once and raises `Unsupported` if it has changed.
# No method raises inside Spark's planner: where planning fails, all files are read.


def self_pruning(files: SnapshotFiles) -> DataFrame:
    """A DataFrame over all files of a snapshot. Spark reads only those that its filters do not rule out.

    Raises `Unsupported`.
    """
    from py4j.protocol import Py4JError
    from pyspark.sql import DataFrame

    jvm = files.jvm
    try:
        file_index = FileIndex(files)
        relation = jvm.class_("org.apache.spark.sql.execution.datasources.HadoopFsRelation")(
            file_index,
            jvm.types(files.partitions),
            jvm.types(files.data),
            jvm.class_("scala.Option").empty(),
            files.java_format,
            jvm.options(files.options),
            jvm.session,
        )
        rows = DataFrame(jvm.session.baseRelationToDataFrame(relation), jvm.spark)
        file_index.require_compatible(relation)
    except (Py4JError, TypeError, AttributeError) as error:
        raise Unsupported(one_line(error)) from error
    return rows


class FileIndex(Proxy):
    """Spark's trait ``FileIndex`` over one snapshot. Java holds a proxy for as long as a relation needs it.

    Two objects are equal if they read the same version of the same table, so Spark shares exchanges and caches between
    them.
    """

    class Java:
        implements = ("org.apache.spark.sql.execution.datasources.FileIndex",)

    def __init__(self, files: SnapshotFiles) -> None:
        self._files, self._jvm = files, files.jvm
        # Spark requests these repeatedly while it plans, and creating each one takes milliseconds.
        self._roots: Any = files.jvm.seq([files.jvm.path(spark_uri(files.index.storage, ""))])
        self._nothing: Any = files.jvm.class_("scala.Option").empty()

    def require_compatible(self, relation: Any) -> None:
        """Have Spark call every method that a scan needs. Raises `Unsupported`, and py4j's errors."""
        relation.hashCode()
        relation.toString()
        if relation.sizeInBytes() < self.sizeInBytes() or not self._jvm.seq([self]).contains(self):
            raise Unsupported("Spark does not hand back what a FileIndex says of itself.")
        self._jvm.manifest_reader()

    @property
    def identity(self) -> str:
        return self._files.name

    # --- called by Spark ---

    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:  # noqa: N802
        """The files that may hold a row for which all filters are TRUE, by partition."""
        wanted, _ = self._files.predicate([*elements(partition_filters), *elements(data_filters)])
        scan = self._files.survivors(wanted).scan
        if not len(scan):
            return self._jvm.seq([])
        return self._files.reader(scan).listFiles(partition_filters, self._jvm.seq([]))

    def rootPaths(self) -> Any:  # noqa: N802
        return self._roots

    def inputFiles(self) -> Any:  # noqa: N802
        return self._files.reader(self._files.survivors(None).scan).inputFiles()

    def sizeInBytes(self) -> int:  # noqa: N802
        """The size of the whole table, from which Spark decides whether to broadcast it."""
        return self._files.size

    def partitionSchema(self) -> Any:  # noqa: N802
        return self._jvm.types(self._files.partitions)

    def refresh(self) -> None:
        """Do nothing: a snapshot never changes, and a folder that is only indexed is listed by each plan."""

    def metadataOpsTimeNs(self) -> Any:  # noqa: N802
        return self._nothing

    def isTimeTravel(self) -> bool:  # noqa: N802
        return False
