"""Spark's own Parquet scan over the files that a query leaves, which joins narrow at run time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from zskip.expr import Predicate, conjunction
from zskip.plan import Survivors
from zskip.spark.jvm import CONNECTOR, Jvm, Proxy
from zskip.spark.runtime_keys import key_predicates
from zskip.spark.snapshot_files import SnapshotFiles

__all__ = ["PrunedScan", "ScanDefaults", "spark_builder"]

# Seconds on a common machine: what Spark takes for a file and for a byte of the columns that it reads of it, and what
# it takes at least to plan and run a query for the keys of a join.
_A_FILE, _A_BYTE, _A_KEY_QUERY = 1e-3, 2e-8, 0.15
_BUILDER = "org.apache.spark.sql.execution.datasources.v2.parquet.ParquetScanBuilder"


def spark_builder(files: SnapshotFiles, types: Any, reader: Any) -> Any:
    """Spark's own builder of a scan of the files of one of its indexes. ``types``: all columns."""
    return files.jvm.class_(_BUILDER)(files.jvm.session, reader, types, files.java_types, files.java_options)


class ScanDefaults(Proxy):
    """The default methods of Spark's interface ``Scan``, which a proxy has to have."""

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm

    def columnarSupportMode(self) -> Any:  # noqa: N802
        return self._jvm.static(f"{CONNECTOR}.read.Scan$ColumnarSupportMode", "UNSUPPORTED")

    def supportedCustomMetrics(self) -> Any:  # noqa: N802
        return self._jvm.array(f"{CONNECTOR}.metric.CustomMetric")

    def reportDriverMetrics(self) -> Any:  # noqa: N802
        return self._jvm.array(f"{CONNECTOR}.metric.CustomTaskMetric")


class PrunedScan(ScanDefaults):
    """Spark's interface ``Scan`` over the files that a query's filters leave."""

    class Java:
        implements = (f"{CONNECTOR}.read.SupportsRuntimeV2Filtering", f"{CONNECTOR}.read.SupportsReportStatistics")

    def __init__(
        self, files: SnapshotFiles, types: Any, filters: Any, required: Any, survivors: Survivors, is_cut: bool
    ) -> None:
        """``types``: all columns · ``filters``: Catalyst's · ``required``: the columns to read, nested ones included ·
        ``is_cut``: only the first rows are needed."""
        super().__init__(files.jvm)
        self._files, self._types, self._filters, self._required = files, types, filters, required
        self._survivors, self._is_cut = survivors, is_cut
        self._native = self._native_scan(survivors)
        # Between `filter` and `toBatch`, which Spark calls in turn in one thread. A scan may stand in several places of
        # a query, each with keys of its own.
        self._keys = threading.local()

    # Spark's planner asks for these hundreds of times in a query with joins.

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
        """Whether the reader gives batches of columns. Spark would plan all partitions and make a reader to know it."""
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
        seconds = len(self._survivors) * _A_FILE + self._statistics.sizeInBytes().getAsLong() * _A_BYTE
        if seconds < _A_KEY_QUERY:
            return []
        names = self._jvm.joined(self._schema.fieldNames(), "\0").split("\0")
        return [name for name in names if seconds * self._files.share_without(name) >= _A_KEY_QUERY]

    # --- what Spark calls; the names are its own ---

    def readSchema(self) -> Any:  # noqa: N802
        return self._schema

    def description(self) -> str:
        return self._description

    def columnarSupportMode(self) -> Any:  # noqa: N802
        return self._columnar

    def toBatch(self) -> Any:  # noqa: N802
        keys, self._keys.pending = getattr(self._keys, "pending", []), []
        return self._native_scan(self._left_by(keys)) if keys else self._native

    def filterAttributes(self) -> Any:  # noqa: N802
        """Columns of which keys of a join may leave out files."""
        return self._key_columns

    def filter(self, predicates: Any) -> None:
        """Only rows are needed for which these are TRUE: keys that the other side of a join has."""
        files = self._files
        self._keys.pending = []
        try:
            self._keys.pending = key_predicates(predicates, files.index.snapshot.schema, files.jvm)
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

    # --- how it answers ---

    def _native_scan(self, survivors: Survivors) -> Any:
        builder = spark_builder(self._files, self._types, self._files.reader(survivors.scan))
        if self._filters is not self._jvm.empty_seq:
            builder.pushFilters(self._filters)
        builder.pruneColumns(self._required)
        return builder.build()

    def _left_by(self, keys: Sequence[Predicate]) -> Survivors:
        """The files that may hold a row which the filters and the keys leave."""
        predicate = self._survivors.predicate
        return self._files.survivors(conjunction([*([] if predicate is None else [predicate]), *keys]))
