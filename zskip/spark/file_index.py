"""Spark's ``FileIndex`` in Python: Spark's planner passes it the filters of a scan and gets the files to read.

    Spark's planner ── listFiles(partition filters, data filters) ──▶ FileIndex ──▶ plan ──▶ survivors ──▶ native scan

The interface is internal to Spark. `self_pruning` calls its methods once and raises `Unsupported` if it has changed. No
method raises inside Spark's planner: where planning fails, all files are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zskip.spark.handoff import spark_uri
from zskip.spark.jvm import Proxy, Unsupported, elements, one_line
from zskip.spark.snapshot_files import SnapshotFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
