"""The native read of the surviving files that replaces a table when a statement runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.engines.duckdb.native_scan import FILES, UNGUARDED, binds_schemas, literal, read_of_files
from zskip.engines.duckdb.relation import readable_paths
from zskip.engines.duckdb.stored_form import stored_form
from zskip.errors import UnknownParameter
from zskip.plan import Survivors
from zskip.statements.duckdb.file_classes import FileClass, column_statistics, file_classes, is_current
from zskip.statements.duckdb.session import schema_of

if TYPE_CHECKING:
    import duckdb


class Values:
    """The parameters of a statement and of the reads in it, all by name or all by position, as the statement has them.

    ``takes``: whether DuckDB accepts parameters for this kind of statement.
    """

    def __init__(self, params: Sequence[Any] | Mapping[str, Any] | None, takes: bool) -> None:
        self.takes = takes
        self._named = params is None or isinstance(params, Mapping)
        given = {} if params is None else params
        self._values: dict[str, Any] = (
            dict(given) if isinstance(given, Mapping) else {str(i): value for i, value in enumerate(given, start=1)}
        )
        self._marks = count(1)

    @property
    def all(self) -> Mapping[str, Any] | Sequence[Any] | None:
        """All parameters, in the form that DuckDB takes."""
        return (self._values or None) if self._named else list(self._values.values())

    def require(self, names: Collection[str], statement: str) -> None:
        """Raise `UnknownParameter` for a parameter without a value, and for a value without a parameter."""
        if not self.takes:
            return
        wanted, given = ({name.lower(): name for name in some} for some in (names, self._values))
        for name in sorted(wanted.keys() - given.keys()):
            raise UnknownParameter(f"There is no value for the parameter ${wanted[name]}.", statement)
        for name in sorted(given.keys() - wanted.keys()):
            value = f"${given[name]}" if self._named else f"number {name}"
            raise UnknownParameter(f"The statement has no parameter for the value {value}.", statement)

    def numbered(self) -> str:
        """The next ``?`` as a numbered parameter, since DuckDB does not accept ``?`` together with other parameters."""
        return f"${next(self._marks)}"

    def add(self, value: Any) -> str:
        """Add a parameter, and return its name in the statement, as ``$3``."""
        number = len(self._values) + 1
        name = str(number)
        if self._named:
            name = next(one for i in count(number) if (one := f"zskip_{i}") not in self._values)
        self._values[name] = value
        return f"${name}"

    def add_list(self, values: Sequence[str | None]) -> str:
        """Add a list of strings as a parameter, and return its name, or a literal if there can be no parameters."""
        return self.add(list(values)) if self.takes else _literals(values)


@dataclass(frozen=True, slots=True)
class ReadBy:
    """How a statement reads a table.

    ``columns``: those that it may read · ``named``: those that its text names · ``joined``: it joins the table, so that
    DuckDB's estimates matter, and the order of rows does not · ``listed``: the table's folder was listed, if others may
    change its files · ``of_files``: it reads DuckDB's own columns about files.
    """

    columns: Sequence[str]
    named: Sequence[str] = ()
    joined: bool = False
    listed: bool = True
    of_files: bool = False


def read_survivors(
    survivors: Survivors, con: duckdb.DuckDBPyConnection, values: Values, by: ReadBy, guard: str = UNGUARDED
) -> str:
    """A read of a scan's files, for FROM. ``guard``: as in `read_of_files`."""
    scan, snapshot = survivors.scan, survivors.index.snapshot
    schema = schema_of(survivors.index, con).arrow
    statistics: dict[str, dict[str, str]] = {}
    if len(scan) and is_current(survivors, by.listed):
        if by.joined:
            statistics = survivors.once(("bounds", tuple(by.named)), lambda: column_statistics(survivors, by.named))
        survivors = _without_empty(survivors)
        scan = survivors.scan
    uniform = snapshot.uniform and scan.plain
    everything = [FileClass(np.ones(len(scan), bool), None)]
    classes = everything
    if len(scan) and not uniform and binds_schemas():
        classes = survivors.once(("classes", tuple(by.columns)), lambda: file_classes(survivors, by.columns))
        if len(classes) > 1 and by.of_files:
            classes = everything
    # With a schema, DuckDB 2.0 invalidates the database if it pushes an IN list with NULL down to a field of a struct.
    # It pushes nothing down to fields of structs that are read completely.
    structs = [field.name for field in schema if t.is_struct(field.type)]
    reads = []
    for each in classes:
        part = scan if each.files.all() else scan.narrowed(each.files)
        files, form = readable_paths(part, con), stored_form(part)
        if by.joined and not by.of_files:
            order = _typical_first(part.files.column("rows").to_numpy()).tolist()
            files, form = [files[number] for number in order], None if form is None else form.take(order)
        read = read_of_files(
            files,
            schema,
            partition_by=scan.partition_by,
            whole=structs,
            form=form,
            held=each.held,
            uniform=uniform,
            of_files=by.of_files,
            statistics=_of_stored(statistics, each.held),
            guard=guard,
        )
        names = {name: values.add_list(value) for name, value in read.parameters.items()}
        reads.append(re.sub(_PARAMETER, partial(_renamed, names), read.sql))
    if len(reads) == 1:
        return reads[0]
    return "(" + " UNION ALL ".join(f"SELECT * FROM {read}" for read in reads) + ")"


def _renamed(names: Mapping[str, str], match: re.Match[str]) -> str:
    return names[match[1]]


def _of_stored(
    statistics: Mapping[str, dict[str, str]], held: Mapping[str, str | None] | None
) -> dict[str, dict[str, str]]:
    """The same statistics by the names of the columns in the files."""
    if held is None:
        return dict(statistics)
    return {inside: known for name, known in statistics.items() if (inside := held.get(name)) is not None}


def _without_empty(survivors: Survivors) -> Survivors:
    """The survivors that have rows, or the first one: DuckDB takes each file to be like the first."""
    empty = np.asarray(pc.fill_null(pc.equal(survivors.rows, 0), False))
    if not empty.any():
        return survivors
    if empty.all():
        empty[0] = False
    return survivors.kept(~empty)


def _typical_first(rows: np.ndarray) -> np.ndarray:
    """An order of files that begins with one of the mean number of rows, if the first one has far more or fewer."""
    order = np.arange(len(rows))
    if not len(rows) or np.isnan(rows.astype(float)).any():
        return order
    mean = rows.mean()
    if mean / _FAR <= rows[0] <= mean * _FAR:
        return order
    typical = int(np.abs(rows - mean).argmin())
    return np.concatenate([[typical], np.delete(order, typical)])


_FAR = 1.5
_PARAMETER = re.compile(rf"\$({FILES}\w*)")


def _literals(texts: Sequence[str | None]) -> str:
    return "[" + ", ".join("NULL" if text is None else literal(text) for text in texts) + "]"
