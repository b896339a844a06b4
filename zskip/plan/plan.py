"""`Plan`: the survivors as an object for users: the paths, what was skipped and why, and the hand-off to engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

import numpy as np
import pyarrow as pa

from zskip.core import types as t
from zskip.core.late_loading import engine
from zskip.core.schema import names_given
from zskip.errors import MissingDependency, SchemaError, amount, first_line
from zskip.plan.scan import Scan
from zskip.plan.survivors import Skipped, Survivors

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    from pyspark.sql import DataFrame, SparkSession

    from zskip.language import Predicate


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file that a plan reads.

    ``path``: absolute, or a URL · ``row_groups``: the numbers of those that may hold a match, None for all · ``rows``,
    ``bytes``: of the whole file, None if unknown · ``residual``: the predicate by which the file's rows must be
    filtered, None if every row of the file matches
    """

    path: str
    row_groups: tuple[int, ...] | None
    rows: int | None
    bytes: int | None
    residual: Predicate | None


class PlannedFiles(Sequence[PlannedFile]):
    """The files of a plan, created on access."""

    def __init__(self, survivors: Survivors) -> None:
        self._survivors = survivors

    def __len__(self) -> int:
        return len(self._survivors)

    @overload
    def __getitem__(self, index: int) -> PlannedFile: ...

    @overload
    def __getitem__(self, index: slice) -> list[PlannedFile]: ...

    def __getitem__(self, index: int | slice) -> PlannedFile | list[PlannedFile]:
        if isinstance(index, slice):
            return [self._file(position) for position in range(*index.indices(len(self)))]
        return self._file(range(len(self))[index])

    def __iter__(self) -> Iterator[PlannedFile]:
        return map(self._file, range(len(self)))

    def __repr__(self) -> str:
        return f"<{len(self):,} planned files>"

    def _file(self, position: int) -> PlannedFile:
        survivors = self._survivors
        return PlannedFile(
            survivors.index.storage.uri_of(survivors.relative_paths[position].as_py()),
            survivors.row_groups_of(position),
            survivors.rows[position].as_py(),
            survivors.sizes[position].as_py(),
            survivors.residual_of(position),
        )


class Plan:
    """The files that may hold a row for which a predicate is TRUE, and their hand-off to engines.

    Its length is the number of these files, and iterating gives them as `PlannedFile`. A plan is an Arrow stream of the
    matching rows: `pyarrow.table`, `polars.DataFrame`, `pandas.DataFrame.from_arrow`
    and DuckDB accept it directly. Its `scan` can be pickled, for tasks on other machines.
    """

    def __init__(self, survivors: Survivors, columns: Sequence[str] | None = None) -> None:
        self._survivors = survivors
        self._columns = columns

    def __len__(self) -> int:
        return len(self._survivors)

    def __iter__(self) -> Iterator[PlannedFile]:
        return iter(self.files)

    def __reduce__(self) -> NoReturn:
        raise TypeError("A Plan cannot be pickled. Send its `scan` instead: it reads the same rows on any machine.")

    def __repr__(self) -> str:
        which = "every row" if self.predicate is None else str(self.predicate)
        total, rows = self._survivors.total_files, self.skipped.rows
        read = ""
        if rows.part is not None and rows.whole is not None:
            read = f", {rows.whole - rows.part:,} of {amount(rows.whole, 'row')}"
        read += " in the index" if read and self._survivors.changes else ""
        files = f"{len(self):,} of {amount(total, 'file')}"
        return f"<Plan of {self._survivors.index.storage.uri}: {which}: reads {files}{read}>"

    def _repr_html_(self) -> str:
        from html import escape

        picture = engine("picture").svg(self._survivors)
        return f"{picture or ''}<pre>{escape(self.explain())}</pre>"

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        schema = self.scan.schema.selected(self._columns)
        reader = pa.RecordBatchReader.from_batches(schema, self.to_batches())
        return reader.__arrow_c_stream__(requested_schema)

    # --- what is read, and what is not ---

    @property
    def predicate(self) -> Predicate | None:
        """The predicate of the plan; None for all rows."""
        return self._survivors.predicate

    @property
    def paths(self) -> list[str]:
        """The paths or URLs of the files to read, in the table's order."""
        return self._survivors.paths

    @property
    def files(self) -> Sequence[PlannedFile]:
        """The files to read, each with its row groups and residual predicate."""
        return PlannedFiles(self._survivors)

    @property
    def scan(self) -> Scan:
        """The plan as a self-contained value, which engines read and which can be sent to other processes."""
        return self._survivors.scan

    @property
    def skipped(self) -> Skipped:
        """The files, row groups, rows and bytes that need not be read, each with its total.

        Bytes are those of skipped files. Rows and row groups include those skipped in files that are read in part. If a
        folder has changed since it was indexed, only its files can be counted, and the rows and bytes of those that did
        not change; if all did, these counts are None.
        """
        return self._survivors.skipped

    def explain(self, file: str | None = None) -> str:
        """Why files were skipped or kept, as text: by conjunct, or for one file with its ranges."""
        from zskip.plan.explain import explain

        return explain(self._survivors, file)

    def as_dict(self, file: str | None = None) -> Mapping[str, Any]:
        """The content of `explain` as plain values that can be written as JSON."""
        from zskip.plan.explain import facts

        return facts(self._survivors, file)

    # --- to the engines ---

    def select(self, columns: str | Sequence[str], *more: str) -> Plan:
        """The same plan with only these columns: ``select("a", "b")`` or ``select(["a", "b"])``.

        Raises `UnknownColumn`.
        """
        chosen = [*names_given(columns, "columns"), *more]
        return Plan(self._survivors, self.scan.schema.selected(chosen).names)

    def count(self) -> int:
        """The number of matching rows. Files and row groups in which all rows match are not read."""
        return engine("arrow").count(self.scan)  # type: ignore[no-any-return]

    def to_batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The matching rows as record batches, in the table's order and types, in bounded memory."""
        return engine("arrow").to_batches(self.scan, self._chosen(columns))  # type: ignore[no-any-return]

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The matching rows as a table, in the table's order and types."""
        return engine("arrow").to_arrow(self.scan, self._chosen(columns))

    def to_duckdb(
        self, con: duckdb.DuckDBPyConnection | None = None, columns: Sequence[str] | None = None
    ) -> duckdb.DuckDBPyRelation:
        """The matching rows as a relation of a connection, by default DuckDB's default connection."""
        return engine("duckdb").to_duckdb(self.scan, con, self._chosen(columns))  # type: ignore[no-any-return]

    def to_pandas(self, columns: Sequence[str] | None = None) -> pandas.DataFrame:
        """The matching rows as a DataFrame of pandas.

        A column of integers with NULL is float64, as for Arrow; if float64 would round one of its values, it is pandas'
        nullable Int64 or UInt64.

        Raises `MissingDependency` without pandas, and `SchemaError` for a column that pandas cannot hold, such as dates
        after the year 9999.
        """
        try:
            import pandas  # noqa: F401  # pyarrow's own error does not say what to install
        except ImportError as error:
            raise MissingDependency("This needs pandas: pip install pandas") from error
        errors = (ValueError, TypeError, LookupError, NotImplementedError, OverflowError)
        return _converted(self.to_arrow(columns), _in_pandas, "pandas", errors)

    def to_polars(self, columns: Sequence[str] | None = None) -> polars.DataFrame:
        """The matching rows as a DataFrame of polars.

        Raises `MissingDependency` without polars, and `SchemaError` for a column that polars cannot hold.
        """
        try:
            import polars  # noqa: F401  # before the rows are read
        except ImportError as error:
            raise MissingDependency('This needs polars: pip install "zskip[polars]"') from error
        return in_polars(self.to_arrow(columns))

    def to_spark(self, spark: SparkSession, columns: Sequence[str] | None = None) -> DataFrame:
        """The matching rows as a DataFrame of this Spark session.

        The predicate is bound again under the session's time zone and ANSI mode, for pruning as well.
        """
        return engine("spark").to_spark(self._survivors, spark, self._chosen(columns))  # type: ignore[no-any-return]

    def _chosen(self, columns: Sequence[str] | None) -> Sequence[str] | None:
        return self._columns if columns is None else columns


def _in_pandas(rows: pa.Table) -> pandas.DataFrame:
    """The rows as pandas holds them, without integers that Arrow would round to floats for the NULLs beside them."""
    import pandas

    from zskip.core.casts import leaf_values  # no plan needs it

    frame = rows.to_pandas()
    nullable = {pa.int64(): pandas.Int64Dtype(), pa.uint64(): pandas.UInt64Dtype()}
    for position, column in enumerate(rows.columns):
        leaves = [leaf for chunk in column.chunks for leaf in leaf_values(chunk)]
        integers = [leaf for leaf in leaves if t.is_integer(leaf.type) and leaf.type.bit_width == 64]
        if any(leaf.null_count for leaf in integers) and not all(map(_exact_in_doubles, integers)):
            # Inside lists and structs, the integers become Python's.
            exact = column.to_pandas(types_mapper=nullable.get, integer_object_nulls=True)
            frame.isetitem(position, exact)
    return frame


def _exact_in_doubles(integers: pa.Array) -> bool:
    """Whether float64, which has 53 binary digits, holds each of these integers of 64 bits."""
    numbers = integers.drop_null().to_numpy()
    numbers = numbers[numbers != 0]
    digits = numbers // (numbers & -numbers)  # without the zeros at the end
    return bool((np.abs(digits) < 1 << 53).all())


def in_polars(rows: pa.Table) -> polars.DataFrame:
    """The rows as polars holds them. Raises `SchemaError` that names the first column that it cannot hold."""
    import polars

    errors = (polars.exceptions.PolarsError, polars.exceptions.PanicException)
    return _converted(rows, polars.DataFrame, "polars", errors)


_Frame = TypeVar("_Frame")


def _converted(
    rows: pa.Table, convert: Callable[[pa.Table], _Frame], library: str, errors: tuple[type[BaseException], ...]
) -> _Frame:
    """The rows as a library holds them. Raises `SchemaError` that names the first column that it cannot hold."""
    try:
        return convert(rows)
    except errors:
        for name, type in zip(rows.column_names, rows.schema.types, strict=True):
            try:
                convert(rows.select([name]))
            except errors as error:
                dates = "; to_arrow().to_pandas(date_as_object=False) gives it to pandas as numbers of milliseconds"
                raise SchemaError(
                    f'{library} cannot hold a value of the column "{name}" of type {type} ({first_line(error)}). Leave '
                    "the column out by columns=, or such rows by a predicate, or read it by to_arrow"
                    f"{dates if library == 'pandas' and t.is_date(type) else ''}."
                ) from error
        raise
