"""A self-pruning table on Spark's public connector interfaces: Spark pushes down filters and, at run time, join keys.

    Table ── newScanBuilder ──▶ ScanBuilder ◀── filters, columns, first rows, aggregates
                                    │ build
                                    ▼
                                  Scan ◀── join keys, at run time
                                    │ toBatch
                                    ▼
                       Spark's own ParquetScan over the remaining files

Java holds a proxy for each object for as long as a query needs it. A proxy must also define the default methods of its
interfaces. No method raises inside Spark's planner: where planning fails, all files are read.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import pyarrow as pa

from zskip.core import types as t
from zskip.errors import amount
from zskip.language import Dialect, Predicate, conjunction
from zskip.plan import Survivors
from zskip.spark.join_keys import key_predicates
from zskip.spark.jvm import CONNECTOR, Jvm, Proxy, Unsupported, elements, one_line
from zskip.spark.snapshot_files import SnapshotFiles
from zskip.statements.aggregates import Aggregates, rows_of_index
from zskip.statements.first_rows import FirstRows, holding_first_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_SOURCES = "org.apache.spark.sql.execution.datasources.v2"


def self_pruning(files: SnapshotFiles) -> DataFrame:
    """A DataFrame over all files of a snapshot. Spark reads only those that its filters and join keys do not rule out.

    Raises `Unsupported`.
    """
    from py4j.protocol import Py4JError
    from pyspark.sql import DataFrame

    jvm = files.jvm
    try:
        jvm.manifest_reader()
        nothing = jvm.class_("scala.Option").empty()
        options = jvm.class_("org.apache.spark.sql.util.CaseInsensitiveStringMap").empty()
        create = jvm.class_(f"{_SOURCES}.DataSourceV2Relation").create
        relation = create(Table(files), nothing, nothing, options, nothing)
        rows = jvm.class_("org.apache.spark.sql.classic.Dataset").ofRows(jvm.session, relation)
        if jvm.spark not in _CHECKED:
            # Planning a query calls every method, so an incompatible interface raises here, once per session.
            rows.queryExecution().executedPlan().toString()
            _CHECKED.add(jvm.spark)
    except (Py4JError, TypeError, AttributeError) as error:
        raise Unsupported(one_line(error)) from error
    return DataFrame(rows, jvm.spark)


_CHECKED: WeakSet[Any] = WeakSet()


class Table(Proxy):
    """Spark's interface ``Table`` over one snapshot.

    Two objects are equal if they read the same version of the same table, so Spark shares caches between them.
    """

    class Java:
        implements = (f"{CONNECTOR}.catalog.SupportsRead",)

    def __init__(self, files: SnapshotFiles) -> None:
        jvm = self._jvm = files.jvm
        self._files = files
        # In the table's order: partition columns keep their positions.
        self._types = jvm.types(files.schema)
        column = f"{CONNECTOR}.catalog.Column"
        fields = self._types.fields()
        made = [
            jvm.class_(column).create(field.name(), field.dataType(), True, None, field.metadata().json())
            for field in fields
        ]
        self._columns = jvm.array(column, made)
        self._capabilities = jvm.class_("java.util.Set").of(
            jvm.class_(f"{CONNECTOR}.catalog.TableCapability").BATCH_READ
        )

    @property
    def identity(self) -> str:
        return self._files.name

    # --- called by Spark ---

    def name(self) -> str:
        return self._files.name

    def id(self) -> None:
        return None

    def version(self) -> None:
        return None

    def schema(self) -> Any:
        return self._types

    def columns(self) -> Any:
        return self._columns

    def partitioning(self) -> Any:
        return self._jvm.array(f"{CONNECTOR}.expressions.Transform")

    def constraints(self) -> Any:
        return self._jvm.array(f"{CONNECTOR}.catalog.constraints.Constraint")

    def properties(self) -> Any:
        return self._jvm.class_("java.util.Collections").emptyMap()

    def capabilities(self) -> Any:
        return self._capabilities

    def newScanBuilder(self, options: Any) -> _ScanBuilder:  # noqa: N802
        return _ScanBuilder(self._files, self._types)


# Spark's interface ``ScanBuilder``: the filters, columns, limits and aggregates that a query pushes down.


class _ScanBuilder(Proxy):
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
        self._index_scan: _IndexScan | None = None
        # The last aggregation and its scan: Spark offers each aggregation twice.
        self._offered: tuple[Any, _IndexScan | None] | None = None

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

    def build(self) -> _IndexScan | PrunedScan:
        if self._index_scan is not None:
            return self._index_scan
        survivors = self._remaining()
        return PrunedScan(self._files, self._types, self._filters, self._required, survivors, self._is_cut)

    # --- implementation ---

    def _remaining(self) -> Survivors:
        if self._survivors is None:
            self._survivors = self._files.survivors(None)
        return self._survivors

    def _scan_of_aggregates(self, aggregation: Any) -> _IndexScan | None:
        if self._offered is None or not self._offered[0].equals(aggregation):
            scan = None
            try:
                if self._is_equivalent:
                    scan = _scan_of_aggregates(aggregation, self._remaining(), self._files.jvm)
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


# Spark's Parquet scan over the files that survive a query's filters, and at run time its join keys.

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
        return f"{left:,} of {amount(total, 'file')}, {self._native.description()}"

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


# count, min and max from the index, as Spark's interface ``LocalScan``: no file is read.


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of an aggregate. ``function``: count, min or max · ``column``: None for count(*)."""

    function: str
    column: str | None


def _scan_of_aggregates(aggregation: Any, survivors: Survivors, jvm: Jvm) -> _IndexScan | None:
    """A scan that returns the aggregates as one row; None if the index does not determine them.

    ``aggregation``: a Java object, connector.expressions.aggregate.Aggregation.
    """
    if len(aggregation.groupByExpressions()) or survivors.changes or not survivors.index.snapshot.managed:
        return None
    calls = [_aggregate_call(one, jvm) for one in aggregation.aggregateExpressions()]
    known = [call for call in calls if call is not None]
    if len(known) < len(calls) or not known or not len(survivors):
        return None
    ordered = frozenset(call.column for call in known if call.column and call.function != "count")
    counted = frozenset(call.column for call in known if call.column and call.function == "count")
    schema = survivors.index.snapshot.schema
    columns = [schema.find([name], case_sensitive=True) for name in ordered]
    if not all(column is not None and _is_settable(column.type) for column in columns):
        return None
    found = rows_of_index(survivors, Aggregates(0, True, ordered, counted))
    if found is None or len(found.rest):
        return None
    values = []
    for call in known:
        if call.column is None:
            values.append(found.rows[0])
        elif call.function == "count":
            values.append(found.columns[call.column].count[0])
        else:
            column = found.columns[call.column]
            values.append((column.lower if call.function == "min" else column.upper)[0])
    return _IndexScan(jvm, values, len(survivors))


def _aggregate_call(aggregate: Any, jvm: Jvm) -> _Call | None:
    kind = aggregate.getClass().getSimpleName()
    if kind == "CountStar":
        return _Call("count", None)
    if kind not in ("Count", "Min", "Max") or (kind == "Count" and aggregate.isDistinct()):
        return None
    name = jvm.column_name(aggregate.column())
    return None if name is None else _Call(kind.lower(), name)


class _IndexScan(ScanDefaults):
    """Spark's interface ``LocalScan`` over one row."""

    class Java:
        implements = (f"{CONNECTOR}.read.LocalScan",)

    def __init__(self, jvm: Jvm, values: list[pa.Scalar], files: int) -> None:
        super().__init__(jvm)
        self._files = files
        named = pa.schema([(f"aggregate{number}", value.type) for number, value in enumerate(values)])
        self._types = jvm.types(named)
        self._row = jvm.class_("org.apache.spark.sql.catalyst.expressions.SpecificInternalRow")(self._types)
        for place, value in enumerate(values):
            _set(jvm, self._row, place, value)

    # --- called by Spark ---

    def readSchema(self) -> Any:  # noqa: N802
        return self._types

    def description(self) -> str:
        return f"aggregates of {amount(self._files, 'file')}, from the index"

    def rows(self) -> Any:
        return self._jvm.array("org.apache.spark.sql.catalyst.InternalRow", [self._row])


def _is_settable(type: pa.DataType) -> bool:
    known = t.is_signed_integer(type) or t.is_date32(type) or t.is_decimal128(type)
    return bool(known or (t.is_timestamp(type) and type.unit == "us"))


def _set(jvm: Jvm, row: Any, place: int, value: pa.Scalar) -> None:
    """Set a field of a row in Spark's internal form: dates as days, timestamps as microseconds."""
    type = value.type
    if not value.is_valid:
        row.setNullAt(place)
    elif t.is_signed_integer(type):
        {8: row.setByte, 16: row.setShort, 32: row.setInt, 64: row.setLong}[type.bit_width](place, value.as_py())
    elif t.is_date(type):
        row.setInt(place, value.cast(pa.int32()).as_py())
    elif t.is_timestamp(type):
        row.setLong(place, value.cast(pa.int64()).as_py())
    else:
        decimal = jvm.class_("org.apache.spark.sql.types.Decimal")
        row.update(place, decimal.apply(value.as_py(), type.precision, type.scale))
