"""The native read of the surviving files that replaces a table when a statement runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from zskip.core import types as t
from zskip.engines.duckdb.native_scan import UNGUARDED, literal, native_scan, uniform_read, without_patterns
from zskip.engines.duckdb.relation import readable_paths
from zskip.engines.duckdb.stored_form import stored_form
from zskip.errors import UnknownParameter
from zskip.language.sql_literals import identifier
from zskip.plan.scan import Scan
from zskip.statements.duckdb.session import reads_bytes_as_text, texts_for_bytes
from zskip.statements.duckdb.table_places import Place

if TYPE_CHECKING:
    import duckdb

__all__ = ["Values", "default_alias", "read_survivors"]


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


def read_survivors(
    scan: Scan,
    uniform: bool,
    con: duckdb.DuckDBPyConnection,
    values: Values,
    *,
    of_files: bool = False,
    guard: str = UNGUARDED,
) -> str:
    """A read of a scan's files, for FROM. ``uniform``: as in the snapshot · ``of_files``: as in `uniform_read` ·
    ``guard``: as in `native_scan`."""
    files, schema, form = readable_paths(scan, con), scan.schema.arrow, stored_form(scan)
    stored = texts_for_bytes(schema) if reads_bytes_as_text(con, scan.schema) else schema
    uniform = uniform and form is None
    if files and uniform and not scan.partition_by:
        paths = values.add_list(without_patterns(files))
        return uniform_read(paths, stored, scan.rows, alone=len(files) == 1, of_files=of_files, guard=guard)
    # With schema=, DuckDB 2.0 invalidates the database if it pushes an IN list with NULL down to a field of a struct.
    # It pushes nothing down to fields of structs that are read completely.
    structs = [field.name for field in schema if t.is_struct(field.type)]
    select = native_scan(
        files,
        stored,
        partition_by=scan.partition_by,
        rows=scan.rows,
        schema_parameter=None,
        whole=structs,
        form=form,
        uniform=uniform,
        guard=guard,
    )
    names = {name: values.add_list(value) for name, value in select.parameters.items()}
    return f"({re.sub(_PARAMETER, lambda match: names[match[1]], select.sql)})"


_PARAMETER = re.compile(r"\$(zskip_files\w*)")


def _literals(texts: Sequence[str | None]) -> str:
    return "[" + ", ".join("NULL" if text is None else literal(text) for text in texts) + "]"


def default_alias(place: Place) -> str:
    """The alias that DuckDB gives to a path in FROM: its last part, up to a dot after the first character.

    >>> default_alias(Place("lake/conn.v2/", "'", 0, 0, False, False))
    '"conn"'
    """
    path = place.name
    last = path.rstrip("/").rsplit("/", 1)[-1]
    return identifier(last.split(".", 1)[0] or last or path if "/" in path or "." in path else path)
