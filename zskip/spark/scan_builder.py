"""Spark's interface ``ScanBuilder``: the filters, columns, limits and aggregates that a query pushes down."""

from __future__ import annotations

from typing import Any

from zskip.plan import Survivors
from zskip.spark.index_aggregates import IndexScan, scan_of_aggregates
from zskip.spark.jvm import CONNECTOR, Proxy, elements
from zskip.spark.pruned_scan import PrunedScan, spark_builder
from zskip.spark.snapshot_files import SnapshotFiles
from zskip.statements.first_rows import FirstRows, holding_first_rows

__all__ = ["ScanBuilder"]


class ScanBuilder(Proxy):
    """Collects what one query pushes down, and builds its scan."""

    class Java:
        implements = (
            "org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters",
            f"{CONNECTOR}.read.SupportsPushDownRequiredColumns",
            f"{CONNECTOR}.read.SupportsPushDownAggregates",
            f"{CONNECTOR}.read.SupportsPushDownTopN",
            f"{CONNECTOR}.read.SupportsPushDownLimit",
        )

    def __init__(self, files: SnapshotFiles, types: Any) -> None:
        self._files, self._types = files, types
        self._filters: Any = files.jvm.empty_seq
        self._required: Any = types
        self._survivors: Survivors | None = None
        # Whether the survivors' predicate is equivalent to the filters, not only implied by them.
        self._is_equivalent = True
        self._is_cut = False
        self._index_scan: IndexScan | None = None
        # The last aggregation and its scan: Spark offers each aggregation twice.
        self._offered: tuple[Any, IndexScan | None] | None = None

    # --- called by Spark ---

    def pushFilters(self, filters: Any) -> Any:  # noqa: N802
        """The filters that Spark must apply to the rows: all but those on partition columns.

        None are needed if every row of all surviving files matches and the files cannot change. Then the Parquet reader
        gets no filters either: it would treat a column that only filters use as NULL, because it does not read it.
        """
        predicate, self._is_equivalent = self._files.predicate(elements(filters))
        survivors = self._survivors = self._files.survivors(predicate)
        left = filters
        if len(self._files.partitions):
            left = spark_builder(self._files, self._types, self._files.empty_reader).pushFilters(filters)
        known = self._is_equivalent and survivors.predicate is not None and survivors.index.snapshot.managed
        if known and survivors.all_match.all():
            return self._files.jvm.empty_seq
        self._filters = filters
        return left

    def pushedFilters(self) -> Any:  # noqa: N802
        return self._files.jvm.array(f"{CONNECTOR}.expressions.filter.Predicate")

    def pruneColumns(self, required: Any) -> None:  # noqa: N802
        self._required = required

    def supportCompletePushDown(self, aggregation: Any) -> bool:  # noqa: N802
        """Whether the index determines the aggregates."""
        return self._scan_of_aggregates(aggregation) is not None

    def pushAggregation(self, aggregation: Any) -> bool:  # noqa: N802
        self._index_scan = self._scan_of_aggregates(aggregation)
        return self._index_scan is not None

    def pushLimit(self, rows: int) -> bool:  # noqa: N802
        return self._keep_first(FirstRows(0, rows))

    def pushTopN(self, orders: Any, rows: int) -> bool:  # noqa: N802
        order = orders[0]
        name = self._files.jvm.column_name(order.expression())
        descending = order.direction().toString() == "DESC"
        return name is not None and self._keep_first(FirstRows(0, rows, name, descending))

    def isPartiallyPushed(self) -> bool:  # noqa: N802
        """True: Spark itself sorts the rows and applies the limit."""
        return True

    def build(self) -> IndexScan | PrunedScan:
        if self._index_scan is not None:
            return self._index_scan
        survivors = self._remaining()
        return PrunedScan(self._files, self._types, self._filters, self._required, survivors, self._is_cut)

    # --- implementation ---

    def _remaining(self) -> Survivors:
        if self._survivors is None:
            self._survivors = self._files.survivors(None)
        return self._survivors

    def _scan_of_aggregates(self, aggregation: Any) -> IndexScan | None:
        if self._offered is None or not self._offered[0].equals(aggregation):
            scan = None
            try:
                if self._is_equivalent:
                    scan = scan_of_aggregates(aggregation, self._remaining(), self._files.jvm)
            except Exception as error:
                self._files.warn(error)
            self._offered = aggregation, scan
        return self._offered[1]

    def _keep_first(self, wanted: FirstRows) -> bool:
        """Drop the files that hold none of the first rows. Returns whether there are any."""
        before = self._remaining()
        try:
            left = holding_first_rows(before, wanted, lambda *_: None) if self._is_equivalent else before
        except Exception as error:
            self._files.warn(error)
            return False
        self._survivors, self._is_cut = left, len(left) < len(before)
        return self._is_cut
