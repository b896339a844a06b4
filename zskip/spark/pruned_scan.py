"""Spark's Parquet scan over the files that survive a query's filters, and at run time its join keys."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from zskip.language import Dialect, Predicate, conjunction
from zskip.plan import Survivors
from zskip.spark.join_keys import key_predicates
from zskip.spark.jvm import CONNECTOR, Jvm, Proxy
from zskip.spark.snapshot_files import SnapshotFiles

# Seconds that Spark takes on a typical machine for each file, for each byte of the columns that it reads, and at least
# for a query that collects the keys of a join.
_SECONDS_PER_FILE, _SECONDS_PER_BYTE, _SECONDS_PER_KEY_QUERY = 1e-3, 2e-8, 0.15
_BUILDER = "org.apache.spark.sql.execution.datasources.v2.parquet.ParquetScanBuilder"


def spark_builder(files: SnapshotFiles, types: Any, reader: Any) -> Any:
    """Spark's Parquet scan builder over the files of ``reader``, its ``FileIndex``. ``types``: all columns."""
    return files.jvm.class_(_BUILDER)(files.jvm.session, reader, types, files.java_types, files.java_options)


class ScanDefaults(Proxy):
    """The default methods of Spark's interface ``Scan``, which a proxy must define."""

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm

    def columnarSupportMode(self) -> Any:  # noqa: N802
        return self._jvm.static(f"{CONNECTOR}.read.Scan$ColumnarSupportMode", "UNSUPPORTED")

    def supportedCustomMetrics(self) -> Any:  # noqa: N802
        return self._jvm.array(f"{CONNECTOR}.metric.CustomMetric")

    def reportDriverMetrics(self) -> Any:  # noqa: N802
        return self._jvm.array(f"{CONNECTOR}.metric.CustomTaskMetric")


class PrunedScan(ScanDefaults):
    """Spark's interface ``Scan`` over the files that survive a query's filters."""

    class Java:
        implements = (f"{CONNECTOR}.read.SupportsRuntimeV2Filtering", f"{CONNECTOR}.read.SupportsReportStatistics")

    def __init__(
        self, files: SnapshotFiles, types: Any, filters: Any, required: Any, survivors: Survivors, is_cut: bool
    ) -> None:
        """``types``: all columns · ``filters``: Catalyst expressions · ``required``: the columns to read, some nested ·
        ``is_cut``: only the first rows are needed."""
        super().__init__(files.jvm)
        self._files, self._types, self._filters, self._required = files, types, filters, required
        self._survivors, self._is_cut = survivors, is_cut
        self._native = self._native_scan(survivors)
        # Set by `filter` for `toBatch`, which Spark calls next in the same thread. A query may use the scan several
        # times, with different keys each time.
        self._keys = threading.local()

    # Cached, because Spark's planner requests them hundreds of times in a query with joins.

    @cached_property
    def _schema(self) -> Any:
        return self._native.readSchema()

    @cached_property
    def _statistics(self) -> Any:
        return self._native.estimateStatistics()

    @cached_property
    def _description(self) -> str:
        left, total = len(self._survivors), len(self._files.index)
        return f"{left:,} of {total:,} files, {self._native.description()}"

    @cached_property
    def _columnar(self) -> Any:
        """Whether the reader returns columnar batches. Otherwise Spark plans all partitions to find out."""
        jvm, execution = self._jvm, "org.apache.spark.sql.execution"
        batches = (
            self._files.java_format.supportBatch(jvm.session, self._schema)
            and jvm.conf.wholeStageEnabled()
            and not jvm.static(f"{execution}.WholeStageCodegenExec", "isTooManyFields")(jvm.conf, self._schema)
        )
        mode = "SUPPORTED" if batches else "PARTITION_DEFINED"
        return jvm.static(f"{CONNECTOR}.read.Scan$ColumnarSupportMode", mode)

    @cached_property
    def _key_columns(self) -> Any:
        worth = [] if self._is_cut else self._columns_worth_a_key_query
        column = self._jvm.static(f"{CONNECTOR}.expressions.FieldReference", "column")
        return self._jvm.array(f"{CONNECTOR}.expressions.NamedReference", [*map(column, worth)])

    @property
    def _columns_worth_a_key_query(self) -> list[str]:
        seconds = (
            len(self._survivors) * _SECONDS_PER_FILE + self._statistics.sizeInBytes().getAsLong() * _SECONDS_PER_BYTE
        )
        if seconds < _SECONDS_PER_KEY_QUERY:
            return []
        names = self._jvm.joined(self._schema.fieldNames(), "\0").split("\0")
        return [name for name in names if seconds * self._files.share_without(name) >= _SECONDS_PER_KEY_QUERY]

    # --- called by Spark ---

    def readSchema(self) -> Any:  # noqa: N802
        return self._schema

    def description(self) -> str:
        return self._description

    def columnarSupportMode(self) -> Any:  # noqa: N802
        return self._columnar

    def toBatch(self) -> Any:  # noqa: N802
        keys, self._keys.pending = getattr(self._keys, "pending", []), []
        if keys:
            try:
                return self._native_scan(self._survivors_of(keys))
            except Exception as error:
                self._files.warn(error)
        return self._native

    def filterAttributes(self) -> Any:  # noqa: N802
        """The columns whose join keys may skip files."""
        return self._key_columns

    def filter(self, predicates: Any) -> None:
        """Store the join keys of the other side for the next `toBatch`. Only rows with these keys are needed."""
        files = self._files
        self._keys.pending = []
        try:
            filters = self._survivors.predicate
            dialect = Dialect("spark") if filters is None else filters.dialect
            self._keys.pending = key_predicates(predicates, files.index.snapshot.schema, files.jvm, dialect)
        except Exception as error:
            files.warn(error)

    def supportsIterativePushdown(self) -> bool:  # noqa: N802
        return False

    def pushedPredicates(self) -> Any:  # noqa: N802
        return self._jvm.array(f"{CONNECTOR}.expressions.filter.Predicate")

    def estimateStatistics(self) -> Any:  # noqa: N802
        return self._statistics

    def estimateSizeInBytes(self) -> Any:  # noqa: N802
        return self._jvm.static("java.util.OptionalLong", "empty")()

    def reflectsFullyPushedDownFilters(self) -> bool:  # noqa: N802
        return False

    # --- implementation ---

    def _native_scan(self, survivors: Survivors) -> Any:
        builder = spark_builder(self._files, self._types, self._files.reader(survivors.scan))
        if self._filters is not self._jvm.empty_seq:
            builder.pushFilters(self._filters)
        builder.pruneColumns(self._required)
        return builder.build()

    def _survivors_of(self, keys: Sequence[Predicate]) -> Survivors:
        """The files that may hold a row that satisfies the filters and the keys."""
        predicate = self._survivors.predicate
        return self._files.survivors(conjunction([*([] if predicate is None else [predicate]), *keys]))
