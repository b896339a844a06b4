"""A snapshot's files for Spark: which of them filters leave, as an index of files that Spark's own scans read."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from cachetools import LRUCache

from zskip import tablelog
from zskip.errors import CorruptFile
from zskip.expr import Predicate
from zskip.plan import Survivors, find_survivors
from zskip.scan import Scan
from zskip.spark import catalyst
from zskip.spark.handoff import manifest, named_files, parquet_options
from zskip.spark.jvm import Jvm, warn_once
from zskip.spark.runtime_keys import is_key_type
from zskip.statement.key_pruning import file_slices
from zskip.tablelog import Index

__all__ = ["SnapshotFiles"]

_KEPT_READERS = 16


class SnapshotFiles:
    """The files of one snapshot, with the columns of ``schema`` and the options by which Spark must read them."""

    def __init__(self, jvm: Jvm, index: Index, schema: pa.Schema) -> None:
        partition_by = index.snapshot.partition_by
        self.jvm, self.index = jvm, index
        self.schema = schema
        self.data = pa.schema([field for field in schema if field.name not in partition_by])
        self.partitions = pa.schema([schema.field(name) for name in partition_by if name in schema.names])
        self.options = parquet_options(self.data, index.snapshot.managed)

    @cached_property
    def empty_reader(self) -> Any:
        """Spark's index over no file, with the partition columns."""
        return self._new_reader([])

    @cached_property
    def java_types(self) -> Any:
        """The columns that the files hold, as a ``StructType``."""
        return self.jvm.types(self.data)

    @cached_property
    def java_options(self) -> Any:
        """The options as a ``CaseInsensitiveStringMap``."""
        options = self.jvm.class_("java.util.HashMap")()
        for name, value in self.options.items():
            options.put(name, value)
        return self.jvm.class_("org.apache.spark.sql.util.CaseInsensitiveStringMap")(options)

    @cached_property
    def java_format(self) -> Any:
        """Spark's ``ParquetFileFormat``."""
        return self.jvm.class_("org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat")()

    @property
    def name(self) -> str:
        """Equal for the same version of the same table."""
        snapshot = self.index.snapshot
        return f"zskip:{self.index.storage.uri}@{snapshot.version}:{snapshot.table_id}"

    @property
    def size(self) -> int:
        """Of all files, in bytes."""
        size = self.index.snapshot.totals.bytes
        return size if size is not None else sum(self.survivors(None).scan.sizes)

    def share_without(self, name: str) -> float:
        """The share of the files that lack a key of the column of that name; 0 where keys cannot be looked up."""
        column = self.index.snapshot.schema.find([name], case_sensitive=True)
        if column is None or not is_key_type(column.type):
            return 0.0
        # A folder of which the index knows no file yet has no slices.
        return 1 - 1 / max(file_slices(self.index, column.path), 1.0)

    def predicate(self, expressions: Sequence[Any]) -> tuple[Predicate | None, bool]:
        """What Catalyst's expressions say of the rows, as far as it can be read, and whether all of it could be."""
        try:
            return catalyst.predicate(expressions, self.index.snapshot.schema, self.jvm.semantics())
        except Exception as error:
            self.warn(error)
            return None, False

    def survivors(self, predicate: Predicate | None) -> Survivors:
        """The files that may hold a row for which the predicate is TRUE; a folder that is only indexed is listed."""
        changes = tablelog.listed(self.index)
        try:
            return find_survivors(self.index, predicate, changes=changes)
        except Exception as error:
            self.warn(error)
            return find_survivors(self.index, None, changes=changes)

    def warn(self, error: Exception) -> None:
        """Inside Spark's planner nothing is raised: it must not fail a query that reading all files answers."""
        warn_once(f"zskip could not plan a Spark filter and reads every file: {type(error).__name__}: {error}")

    def reader(self, scan: Scan) -> Any:
        """Spark's own file index over exactly these files; the same object for the same files, which Spark compares.

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


_LOCK = threading.Lock()
_READERS: WeakKeyDictionary[Any, LRUCache[Any, Any]] = WeakKeyDictionary()
