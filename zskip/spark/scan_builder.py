"""What a query asks of a table, collected by Spark's interface ``ScanBuilder``, and the scan that answers it."""

from __future__ import annotations

from typing import Any

from zskip.plan import Survivors
from zskip.spark.index_scan import IndexScan, answered
from zskip.spark.jvm import CONNECTOR, Proxy, elements
from zskip.spark.pruned_scan import PrunedScan, spark_builder
from zskip.spark.snapshot_files import SnapshotFiles
from zskip.statement.first_rows import FirstRows, holding_first_rows

__all__ = ["ScanBuilder"]


class ScanBuilder(Proxy):
    """Collects what a query asks of the table. Of no use to Spark twice."""

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
        # The files that are left so far, and whether that is by all that Spark asks of the rows.
        self._survivors: Survivors | None = None
        self._whole = True
        self._is_cut = False
        self._answer: IndexScan | None = None
        # What was asked last, and the answer: Spark asks of the same aggregates twice.
        self._asked: tuple[Any, IndexScan | None] | None = None

    # --- what Spark calls; the names are its own ---

    def pushFilters(self, filters: Any) -> Any:  # noqa: N802
        """Which of the filters Spark has to ask of the rows again: all, but those on partition columns.

        Of files that never change and of which every row matches, nothing has to be asked, by Parquet's reader neither:
        of a column that only the filters name it would read no values, and take them for NULL.
        """
        predicate, self._whole = self._files.predicate(elements(filters))
        survivors = self._survivors = self._files.survivors(predicate)
        left = filters
        if len(self._files.partitions):
            left = spark_builder(self._files, self._types, self._files.empty_reader).pushFilters(filters)
        known = self._whole and survivors.predicate is not None and survivors.index.snapshot.managed
        if known and survivors.all_match.all():
            return self._files.jvm.empty_seq
        self._filters = filters
        return left

    def pushedFilters(self) -> Any:  # noqa: N802
        return self._files.jvm.array(f"{CONNECTOR}.expressions.filter.Predicate")

    def pruneColumns(self, required: Any) -> None:  # noqa: N802
        self._required = required

    def supportCompletePushDown(self, aggregation: Any) -> bool:  # noqa: N802
        """Whether the index knows the aggregates."""
        return self._answered(aggregation) is not None

    def pushAggregation(self, aggregation: Any) -> bool:  # noqa: N802
        self._answer = self._answered(aggregation)
        return self._answer is not None

    def pushLimit(self, rows: int) -> bool:  # noqa: N802
        return self._keep_first(FirstRows(0, rows))

    def pushTopN(self, orders: Any, rows: int) -> bool:  # noqa: N802
        order = orders[0]
        name = self._files.jvm.column_name(order.expression())
        descending = order.direction().toString() == "DESC"
        return name is not None and self._keep_first(FirstRows(0, rows, name, descending))

    def isPartiallyPushed(self) -> bool:  # noqa: N802
        """Spark sorts and cuts the rows itself."""
        return True

    def build(self) -> IndexScan | PrunedScan:
        if self._answer is not None:
            return self._answer
        survivors = self._left()
        return PrunedScan(self._files, self._types, self._filters, self._required, survivors, self._is_cut)

    # --- how it answers ---

    def _left(self) -> Survivors:
        if self._survivors is None:
            self._survivors = self._files.survivors(None)
        return self._survivors

    def _answered(self, aggregation: Any) -> IndexScan | None:
        if self._asked is None or not self._asked[0].equals(aggregation):
            answer = None
            try:
                answer = answered(aggregation, self._left(), self._files.jvm) if self._whole else None
            except Exception as error:
                self._files.warn(error)
            self._asked = aggregation, answer
        return self._asked[1]

    def _keep_first(self, wanted: FirstRows) -> bool:
        """Leave out the files that hold none of the first rows; whether there are such."""
        before = self._left()
        try:
            left = holding_first_rows(before, wanted, lambda *_: None) if self._whole else before
        except Exception as error:
            self._files.warn(error)
            return False
        self._survivors, self._is_cut = left, len(left) < len(before)
        return self._is_cut
