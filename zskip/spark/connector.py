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

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from zskip.spark.jvm import CONNECTOR, Proxy, Unsupported, one_line
from zskip.spark.scan_builder import ScanBuilder
from zskip.spark.snapshot_files import SnapshotFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["self_pruning"]

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
        made = [jvm.class_(column).create(field.name(), field.dataType(), True) for field in fields]
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

    def newScanBuilder(self, options: Any) -> ScanBuilder:  # noqa: N802
        return ScanBuilder(self._files, self._types)
