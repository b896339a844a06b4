"""A table as a `pyarrow.dataset.Dataset` that prunes itself: a scan with a filter reads only the survivors.

DuckDB, polars, DataFusion, ibis ── scanner(columns=…, filter=…) ──▶ plan ──▶ a dataset of the survivors ──▶ scanner
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from zskip.binder.bind_condition import provable_part
from zskip.binder.typed_conditions import printed
from zskip.core.schema import identifier
from zskip.engines.arrow import to_arrow, to_batches
from zskip.engines.duckdb.native_scan import holds_floats
from zskip.engines.missing_files import naming_bad_files
from zskip.language import Predicate
from zskip.plan.scan import Scan
from zskip.storage import hive

if TYPE_CHECKING:
    import datafusion

Planner: TypeAlias = Callable[[Predicate | None], Scan]


def dataset(plan: Planner) -> PrunedDataset:
    """A dataset over all files of a table. ``plan``: returns the scan of a predicate, or of all rows for None."""
    return PrunedDataset(plan(None), plan)


def register_with_datafusion(
    context: datafusion.SessionContext, name: str, dataset: PrunedDataset, hidden: Collection[str]
) -> None:
    """Register a dataset under a name. ``hidden``: columns whose filters DataFusion has to apply itself.

    DataFusion leaves the filters that it can convert to pyarrow's. There ``x IN (…)`` is FALSE for NULL, NaN is not
    greater than numbers, and -0.0 is equal to 0.0, unlike in DataFusion. It converts no filter on a function of a
    column, such as greatest(x, x), which is x for a value of any type.
    """
    if not hidden:
        context.register_dataset(name, dataset)
        return
    # A name such as "Flights" or "public.flights" means something to DataFusion: the statement has one of its own.
    whole = f"_zskip_{secrets.token_hex(8)}"
    columns = [
        f"greatest({column}, {column}) AS {column}" if each in hidden else column
        for each in dataset.schema.names
        for column in [identifier(each)]
    ]
    context.register_dataset(whole, dataset)
    try:
        view = context.sql(f"SELECT {', '.join(columns)} FROM {whole}")
    finally:
        context.deregister_table(whole)
    context.register_view(name, view)


class PrunedDataset(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow has no types
    """The dataset that `Table.dataset` returns. Each scan is planned with its filter, and rows are filtered too."""

    def __init__(self, every: Scan, plan: Planner, filter: pc.Expression | None = None) -> None:
        super().__init__(*_parts(every))
        self._every, self._plan, self._filter = every, plan, filter

    def scanner(self, columns: Any = None, filter: pc.Expression | None = None, **options: Any) -> ds.Scanner:
        """A scanner over the files that may hold a row for which the filter is TRUE. Options are pyarrow's."""
        with self._scanned(columns, filter, options) as scanner:
            return scanner

    def to_table(self, columns: Any = None, filter: pc.Expression | None = None, **options: Any) -> pa.Table:
        """The rows. Like all methods that read, it raises `TableNotFound` and `CorruptFile`."""
        with self._scanned(columns, filter, options) as scanner:
            return scanner.to_table()

    def to_batches(
        self, columns: Any = None, filter: pc.Expression | None = None, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch."""
        with self._scanned(columns, filter, options) as scanner:
            yield from scanner.to_batches()

    def head(self, num_rows: int, columns: Any = None, filter: pc.Expression | None = None, **options: Any) -> pa.Table:
        """The first rows."""
        with self._scanned(columns, filter, options) as scanner:
            return scanner.head(num_rows)

    def take(self, indices: Any, columns: Any = None, filter: pc.Expression | None = None, **options: Any) -> pa.Table:
        """The rows at some positions, counted from 0."""
        with self._scanned(columns, filter, options) as scanner:
            return scanner.take(indices)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        """The number of rows."""
        with self._scanned(None, filter, options) as scanner:
            return scanner.count_rows()  # type: ignore[no-any-return]

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[ds.Fragment]:
        """The files that may hold a row for which the filter is TRUE. If there is none, one file: DataFusion, which
        filters the rows, cannot sort what has no part."""
        scan = self._survivors(self._both(filter))
        if not len(scan) and not isinstance(filter, pa.Scalar):  # by which pyarrow filters no file
            scan = self._every.narrowed(np.arange(len(self._every)) == 0)
        if scan.source is not None:
            return ds.dataset(to_arrow(scan.unfiltered())).get_fragments()  # type: ignore[no-any-return]
        return iter(_parts(scan)[0])

    def filter(self, expression: pc.Expression) -> PrunedDataset:
        """The dataset restricted to the rows for which the expression is TRUE."""
        return PrunedDataset(self._every, self._plan, self._both(expression))

    @contextmanager
    def _scanned(self, columns: Any, filter: pc.Expression | None, options: Mapping[str, Any]) -> Iterator[ds.Scanner]:
        """A scanner over the survivors. Errors raised while reading it name the files."""
        wanted = self._both(filter)
        scan = self._survivors(wanted)
        with naming_bad_files([scan]):
            if _native(scan) and not _is_misread(wanted, scan.schema.arrow):
                yield ds.FileSystemDataset(*_parts(scan)).scanner(columns=columns, filter=wanted, **options)
            else:
                yield ds.Scanner.from_batches(_batches(scan), columns=columns, filter=wanted, **options)

    def _both(self, filter: pc.Expression | pa.Scalar | None) -> pc.Expression | None:
        if isinstance(filter, pa.Scalar):  # DataFusion's, of a condition that is constant
            filter = pc.scalar(filter)
        if filter is None or self._filter is None:
            return self._filter if filter is None else filter
        return self._filter & filter

    def _survivors(self, filter: pc.Expression | None) -> Scan:
        return self._plan(None if filter is None else provable_part(filter, self._every.schema))


def _native(scan: Scan) -> bool:
    """Whether Arrow's own scanner returns the table's rows: zskip wrote every file, with the current columns."""
    return scan.managed and not scan.added


def _is_misread(filter: pc.Expression | None, schema: pa.Schema) -> bool:
    """Whether Arrow's scanner may take and drop whole row groups wrongly.

    It does where a filter has a constant NaN, and where it looks for 0.0 in a list: a row group of zeros has the bounds
    -0.0 and 0.0, which are equal, and are not the same member of a list.
    """
    if filter is None:
        return False
    text = printed(filter)
    if text is None:
        return True
    floats = [field.name for field in schema if holds_floats(field)]
    return "nan" in text or ("is_in(" in text and any(name in text for name in floats))


def _batches(scan: Scan) -> pa.RecordBatchReader:
    """All rows of the files. The scanner filters them."""
    return pa.RecordBatchReader.from_batches(scan.schema.arrow, to_batches(scan.unfiltered()))


def _parts(scan: Scan) -> tuple[list[ds.Fragment], pa.Schema, ds.FileFormat, pafs.FileSystem]:
    """The arguments of `pyarrow.dataset.FileSystemDataset`: fragments, schema, format and file system."""
    format, storage = ds.ParquetFileFormat(), scan.storage
    if storage.local is not None:
        filesystem: pafs.FileSystem = pafs.LocalFileSystem()
        paths = scan.paths
    else:
        filesystem = pafs.PyFileSystem(pafs.FSSpecHandler(storage.filesystem()))
        paths = [path.partition("://")[2] for path in scan.paths]
    arrow = scan.schema.arrow
    if scan.source is not None:
        # The files of another table format may hold deleted rows: reads that bypass the scanner must fail.
        paths = [f"a {scan.source} table is read through its scanner, not file by file" for _ in paths]
    types = {name: arrow.field(name).type for name in scan.partition_by}
    fragments = [format.make_fragment(path, filesystem, _values(path, types)) for path in paths]
    return fragments, arrow, format, filesystem


def _values(path: str, types: dict[str, pa.DataType]) -> pc.Expression | None:
    """The partition columns of a file as an expression."""
    found = None
    for name, value in hive.partition_values(path, types).items() if types else ():
        one = pc.field(name) == value if value.is_valid else pc.field(name).is_null()
        found = one if found is None else found & one
    return found
