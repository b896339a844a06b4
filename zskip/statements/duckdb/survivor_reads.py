"""The native read of the surviving files that replaces a table when a statement runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from zskip.core import types as t
from zskip.core.late_loading import pc
from zskip.core.schema import Schema, identifier
from zskip.engines.duckdb.duckdb_types import duckdb_type
from zskip.engines.duckdb.native_scan import (
    UNGUARDED,
    Select,
    StoredColumn,
    StoredForm,
    binds_schemas,
    cast_texts,
    literal,
    read_of_files,
    stored_columns,
    stored_form,
    without_patterns,
)
from zskip.engines.duckdb.relation import readable_paths
from zskip.errors import UnknownParameter, ZskipError
from zskip.plan import Survivors
from zskip.statements.duckdb.session import schema_of

if TYPE_CHECKING:
    import duckdb

    from zskip.plan.scan import Scan
    from zskip.statements.aggregates import IndexRows
    from zskip.tablelog.index import Index


_NAMES = count(1)


class Values:
    """The parameters of a statement and of the reads in it, all by name or all by position, as the statement has them.

    ``takes``: whether DuckDB accepts parameters for this kind of statement.
    """

    def __init__(self, params: Sequence[Any] | Mapping[str, Any] | None, takes: bool) -> None:
        self.takes = takes
        given = {} if params is None else params
        if isinstance(given, Mapping):
            self._values: dict[str, Any] = {str(name): value for name, value in given.items()}
        else:
            self._values = {str(number): value for number, value in enumerate(given, start=1)}
        # Names "1", "2" are positions: DuckDB takes none beside names.
        positions = {str(number) for number in range(1, len(self._values) + 1)}
        self._named = isinstance(given, Mapping) and self._values.keys() != positions
        if not self._named:
            self._values = dict(sorted(self._values.items(), key=lambda item: int(item[0])))

    @property
    def all(self) -> Mapping[str, Any] | Sequence[Any] | None:
        """All parameters, in the form that DuckDB takes."""
        return (self._values if self._named else list(self._values.values())) or None

    def require(self, names: Collection[str], statement: str) -> None:
        """Raise `UnknownParameter` for a parameter without a value, and for a value without a parameter."""
        if not self.takes:
            return
        wanted, given = ({name.lower(): name for name in some} for some in (names, self._values))
        for name in sorted(wanted.keys() - given.keys()):
            message = (
                f"There is no value for the parameter ${wanted[name]}. Give it by params=, or in a shell by --param."
            )
            raise UnknownParameter(message, statement)
        for name in sorted(given.keys() - wanted.keys()):
            value = f"${given[name]}" if self._named else f"number {name}"
            raise UnknownParameter(f"The statement has no parameter for the value {value}.", statement)

    def add(self, value: Any) -> str:
        """Add a parameter, and return its name in the statement, as ``$3``."""
        name = str(len(self._values) + 1)
        if self._named:
            # DuckDB combines no relations of which two have a parameter of one name.
            name = next(one for number in _NAMES if (one := f"zskip_{number}") not in self._values)
        self._values[name] = value
        return f"${name}"

    def add_list(self, values: Sequence[str | None]) -> str:
        """Add a list of strings as a parameter, and return its name, or a literal if there can be no parameters."""
        return self.add(list(values)) if self.takes else _literals(values)


@dataclass(frozen=True, slots=True)
class ReadBy:
    """How a statement reads a table.

    ``columns``: those that it may read · ``joined``: it joins the table, so that DuckDB's estimates matter ·
    ``by_place``: it reads the order of rows, or DuckDB's own columns about files.
    """

    columns: tuple[str, ...]
    joined: bool = False
    by_place: bool = False


def read_survivors(
    survivors: Survivors, con: duckdb.DuckDBPyConnection, values: Values, by: ReadBy, guard: str = UNGUARDED
) -> str:
    """A read of the survivors, for FROM. ``guard``: as in `read_of_files`."""
    index = survivors.index
    if index.storage.local is None or index.snapshot.schema.holds_bytes:
        # Remote files are made readable on each connection, and settings decide what bytes are.
        reads = _reads(survivors, con, by, guard)
    else:
        reads = survivors.once(("reads", by, guard), lambda: _reads(survivors, con, by, guard))
    texts = []
    for read in reads:
        names = {name: values.add_list(value) for name, value in read.parameters.items()}
        texts.append(read.renamed(names))
    if len(texts) == 1:
        return texts[0]
    columns = ", ".join(map(identifier, by.columns))
    return "(" + " UNION ALL ".join(f"SELECT {columns} FROM {text}" for text in texts) + ")"


def _reads(survivors: Survivors, con: duckdb.DuckDBPyConnection, by: ReadBy, guard: str) -> list[Select]:
    """The reads whose UNION ALL are the survivors."""
    index, snapshot = survivors.index, survivors.index.snapshot
    schema = schema_of(index, con).arrow
    uniform = snapshot.uniform and (index.source is None or survivors.scan.plain)
    classes = [_FileClass(np.ones(len(survivors), bool), None)]
    if len(survivors) and not uniform and not by.by_place and binds_schemas():
        classes = survivors.once(("classes", by.columns), lambda: _file_classes(survivors, by.columns))
    if index.source is not None and not by.by_place:
        classes = _deletes_apart(classes, survivors.scan)
    # With a schema, DuckDB 2.0 invalidates the database if it pushes an IN list with NULL down to a field of a struct.
    # It pushes nothing down to fields of structs that are read completely.
    structs = [field.name for field in schema if t.is_struct(field.type)]
    reads = []
    for each in classes:
        files, form = _stored_files(survivors, each, con)
        if by.joined and not by.by_place:
            order = _typical_first(survivors.rows.to_numpy(zero_copy_only=False)[each.files]).tolist()
            files, form = [files[number] for number in order], None if form is None else form.take(order)
        read = read_of_files(
            files,
            schema,
            columns=by.columns,
            partition_by=tuple(snapshot.partition_by),
            whole=structs,
            form=form,
            held=each.held,
            uniform=uniform or _are_read_alike(survivors, each, files, by.columns, schema, con),
            by_place=by.by_place,
            guard=guard,
        )
        reads.append(read)
    return reads


def _are_read_alike(
    survivors: Survivors,
    files: _FileClass,
    paths: Sequence[str],
    columns: Sequence[str],
    schema: pa.Schema,
    con: duckdb.DuckDBPyConnection,
) -> bool:
    """Whether DuckDB by itself reads these columns of local files as the table has them: it takes those of the first.

    To tell it each type takes longer than many a look-up.
    """
    index, held = survivors.index, files.held
    in_files = [name for name in schema.names if name not in index.snapshot.partition_by]
    columns = [name for name in columns if name in in_files]
    if held is None or any(held[name] != name for name in columns):
        return False
    if len(survivors) > len(survivors.numbers):
        return False  # a file that has changed, or come, since the folder was indexed may have other types
    if len(survivors) < survivors.total_files:
        return False  # the first file would be another one in each statement, and DuckDB be asked each time
    if index.storage.local is None or (index.source and (survivors.scan.deletes or survivors.scan.values)):
        return False  # positions of rows would be hidden by columns of the same names
    if index.snapshot.schema.holds_bytes or any(map(t.is_nested, schema.types)):
        return False  # settings decide what bytes are, and another file may have other fields
    read = index.once(
        ("read as", paths[0]), lambda: _read_as(paths[0], schema, con), lambda names: _CACHED_BYTES * len(names)
    )
    return read == in_files or (len(columns) < len(in_files) and {*columns} <= {*read} <= {*in_files})


def _read_as(path: str, schema: pa.Schema, con: duckdb.DuckDBPyConnection) -> list[str]:
    """The columns that DuckDB reads from a file; none if one has another type than the table's."""
    import duckdb

    try:
        with con.cursor() as own:  # an error ends the transaction of its connection
            read = own.from_parquet(without_patterns([path]), hive_partitioning=False)
            types = {
                field.name: duckdb.sqltype(duckdb_type(field.type), connection=own)
                for field in schema
                if field.name in read.columns
            }
            found = zip(read.columns, read.types, strict=True)
            return read.columns if all(types.get(name, type) == type for name, type in found) else []
    except duckdb.Error:
        return []


def _deletes_apart(classes: list[_FileClass], scan: Scan) -> list[_FileClass]:
    """The classes, with the files that have deleted rows apart: looking for each row's number takes as long as reading
    a column."""
    if not scan.deletes:
        return classes
    deleted = np.array([path in scan.deletes for path in scan.relative_paths], bool)
    parts = [replace(each, files=each.files & some) for each in classes for some in (~deleted, deleted)]
    return [part for part in parts if part.files.any()]


def _stored_files(
    survivors: Survivors, files: _FileClass, con: duckdb.DuckDBPyConnection
) -> tuple[list[str], StoredForm | None]:
    """The paths of the files of a class, and how they store the table's rows."""
    if survivors.index.source is None and survivors.index.storage.local is not None and files.files.all():
        return survivors.paths, None
    scan = survivors.scan if files.files.all() else survivors.scan.narrowed(files.files)
    return readable_paths(scan, con), stored_form(scan)


def _typical_first(rows: np.ndarray) -> np.ndarray:
    """An order of files that begins with one of about the mean number of rows, if the first one has far more or fewer.

    DuckDB expects the rows of the first file times the number of files.
    """
    order = np.arange(len(rows))
    if not len(rows) or np.isnan(rows.astype(float)).any():
        return order
    times = np.abs(np.log(np.maximum(rows, 1) / max(rows.mean(), 1)))
    if times[0] <= np.log(_FAR):
        return order
    typical = int(times.argmin())
    return np.concatenate([[typical], np.delete(order, typical)])


_FAR = 1.5


def _literals(texts: Sequence[str | None]) -> str:
    return "[" + ", ".join("NULL" if text is None else literal(text) for text in texts) + "]"


# --- the columns that each file holds: without them, DuckDB would expect one row in all ---
#
# | what is known of a column in a file                 | from                                              |
# | --------------------------------------------------- | ------------------------------------------------- |
# | zskip wrote the file after the column was added     | the snapshot                                      |
# | it has a value there                                | the index                                         |
# | it is NULL in every row, or the index does not know | the file's footer; in an object store, the index  |

_MOST_CLASSES = 4
# Of so many files, a column is looked at once for all statements, in all of them.
_MOST_AT_ONCE = 1000
_HELD, _NULL, _UNKNOWN = 1, 2, 3
_CACHED_BYTES = 64
_Names = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class _FileClass:
    """Files that hold the same columns.

    ``files``: a flag for each survivor · ``held``: the name of each column in the files, None for one that none of them
    holds; None if that is unknown.
    """

    files: np.ndarray
    held: Mapping[str, str | None] | None


def _file_classes(survivors: Survivors, columns: Sequence[str]) -> list[_FileClass]:
    """The survivors by the columns that they hold.

    ``columns``: those that a statement may read, by the table's names. The others count as held: DuckDB raises an error
    if it reads a column that a file lacks, so a column that is left out here by mistake is never taken for NULL.
    """
    snapshot = survivors.index.snapshot
    stored = {one.name: one for one in stored_columns(snapshot.schema.arrow) if one.name not in snapshot.partition_by}
    if any(isinstance(one.key, int) for one in stored.values()):
        wanted = list(stored.values())
        states = np.full((len(survivors), len(wanted)), _UNKNOWN, np.int8)
    else:
        wanted = [stored[name] for name in columns if name in stored]
        states = _states(survivors, wanted)
    doubtful = (states != _HELD).any(axis=1)
    kinds: dict[_Names | None, list[np.ndarray]] = {tuple(str(one.key) for one in wanted): [np.flatnonzero(~doubtful)]}
    for files, names in _names_of_doubtful(survivors, np.flatnonzero(doubtful), states, wanted):
        kinds.setdefault(names, []).append(files)
    found = [(names, np.concatenate(files)) for names, files in kinds.items()]
    found = [(names, files) for names, files in found if len(files)]
    if len(found) > _MOST_CLASSES:
        return [_FileClass(np.ones(len(survivors), bool), None)]
    others = {name: one.key for name, one in stored.items() if isinstance(one.key, str)}
    classes = []
    for names, files in found:
        flags = np.zeros(len(survivors), bool)
        flags[files] = True
        held: dict[str, str | None] | None = None
        if names is not None:
            held = {**others, **dict(zip((one.name for one in wanted), names, strict=True))}
        classes.append(_FileClass(flags, held))
    return classes


def _states(survivors: Survivors, wanted: Sequence[StoredColumn]) -> np.ndarray:
    """What the snapshot and the index say of each column (the second axis) in each survivor."""
    index = survivors.index
    snapshot, indexed = index.snapshot, len(survivors.numbers)
    states = np.full((len(survivors), len(wanted)), _UNKNOWN, np.int8)
    leaves: dict[str, list[str]] = {}
    for path, column in snapshot.schema.columns.items():
        leaves.setdefault(column.parts[0], []).append(path)
    asked = list(range(len(wanted)))
    if snapshot.managed and index.source is None:
        states[:indexed] = _HELD
        asked = [number for number in asked if set(leaves.get(wanted[number].name, ())) & snapshot.added.keys()]
        states[:indexed, asked] = _UNKNOWN
    columns = tuple((tuple(leaves.get(wanted[number].name, ())), wanted[number].default is None) for number in asked)
    if not indexed or not any(paths for paths, _ in columns):
        return states
    if len(index) > _MOST_AT_ONCE:
        states[:indexed, asked] = _states_in_index(index, survivors.numbers, columns)
        return states
    known = index.once(("states", columns), lambda: _states_in_index(index, np.arange(len(index)), columns))
    states[:indexed, asked] = known[survivors.numbers]
    return states


def _states_in_index(index: Index, files: np.ndarray, columns: Sequence[tuple[Sequence[str], bool]]) -> np.ndarray:
    """What the index says of some columns (the second axis) in some of its files.

    ``columns``: the paths of the leaves of each, and whether it is NULL where a file lacks it.
    """
    statistics = index.files_at(files, [path for paths, _ in columns for path in paths]).statistics.columns
    states = np.full((len(files), len(columns)), _UNKNOWN, np.int8)
    for number, (paths, lacks_as_null) in enumerate(columns):
        for path in paths:
            something = pc.or_kleene(statistics[path].has_value, statistics[path].has_nan)
            states[np.asarray(pc.fill_null(something, False)), number] = _HELD
            # A struct of NULLs is not NULL.
            if len(index.snapshot.schema.columns[path].parts) == 1 and lacks_as_null:
                states[~np.asarray(pc.fill_null(something, True)), number] = _NULL
    return states


def _names_of_doubtful(
    survivors: Survivors, files: np.ndarray, states: np.ndarray, wanted: Sequence[StoredColumn]
) -> Iterator[tuple[np.ndarray, _Names | None]]:
    """The files in groups, each with the names of the columns in them; None where these are unknown."""
    if not len(files):
        return
    if survivors.index.storage.local is not None:
        for found, schema in _schemas(survivors, files):
            yield found, _names_in(schema, wanted) if schema is not None else None
        return
    patterns, numbers = np.unique(states[files], axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        known = [None if state == _NULL else str(one.key) for state, one in zip(pattern.tolist(), wanted, strict=True)]
        yield files[numbers.reshape(-1) == number], None if _UNKNOWN in pattern else tuple(known)


def _names_in(own: Schema, wanted: Sequence[StoredColumn]) -> _Names | None:
    """The names of the columns in files with the schema ``own``; None if they are unclear."""
    from zskip.parquet.footers import FIELD_ID

    spellings = [name.lower() for name in own.arrow.names]
    ids: dict[int, list[str]] = {}
    for field in own.arrow:
        if (number := (field.metadata or {}).get(FIELD_ID)) is not None:
            ids.setdefault(int(number), []).append(field.name)
    names: list[str | None] = []
    for one in wanted:
        if isinstance(one.key, str):
            names.append(one.key if one.key.lower() in spellings else None)
        elif ids:
            names += ids.get(one.key, [None])[:1]
        else:
            return None  # the columns of files without ids are found by a name mapping
    clear = len(set(spellings)) == len(spellings) and all(len(same) == 1 for same in ids.values())
    return tuple(names) if clear else None


def _schemas(survivors: Survivors, files: np.ndarray) -> Iterator[tuple[np.ndarray, Schema | None]]:
    """Local files by the schemas in their footers; None for files that cannot be read, on which DuckDB fails too."""
    from zskip.parquet import footers  # files that zskip wrote are known without their footers

    index = survivors.index
    known: dict[int, Schema] = index.once(("schemas of files",), dict, lambda _: _CACHED_BYTES * len(index))
    indexed = files[files < len(survivors.numbers)]
    new = {int(survivors.numbers[file]): int(file) for file in indexed}
    unread = [file for number, file in new.items() if number not in known]
    changed = files[files >= len(survivors.numbers)].tolist()
    paths = survivors.relative_paths
    read: dict[int, Schema] = {}
    if unread or changed:
        by_path = {paths[file].as_py(): file for file in (*unread, *changed)}
        try:
            listing = index.storage.size_and_modified(sorted(by_path, key=str.encode))
            for numbers, schema in footers.schemas(index.storage, listing):
                read |= dict.fromkeys((by_path[listing.path[number].as_py()] for number in numbers.tolist()), schema)
        except (ZskipError, OSError):
            yield files, None
            return
    known.update((int(survivors.numbers[file]), read[file]) for file in unread)
    groups: dict[int, tuple[list[int], Schema]] = {}
    for file in files.tolist():
        own = read[file] if file in read else known[int(survivors.numbers[file])]
        groups.setdefault(id(own), ([], own))[0].append(file)
    for found, own in groups.values():
        yield np.array(found, np.int64), own


# A SELECT of rows that represent files answered by the index, combined with the read of the other files.


def with_index_rows(read: str, rows: IndexRows, schema: pa.Schema, values: Values) -> str:
    """The read of the other files, which may be empty, UNION ALL the index rows, with the columns of a schema."""
    standing = _of_groups(rows, schema, values) if len(rows.rows) > 1 else _of_one_group(rows, schema)
    if not read:
        return f"({standing})"
    columns = ", ".join(identifier(field.name) for field in schema)
    return f"(SELECT {columns} FROM {read} UNION ALL {standing})"


def _of_one_group(rows: IndexRows, schema: pa.Schema) -> str:
    """Rows as constants over ``range``: DuckDB generates a billion of them in a third of a second."""
    columns, total = rows.columns.values(), rows.rows[0].as_py()
    ends = {total, *(column.count[0].as_py() for column in columns)}
    ends |= {1 for column in columns if column.lower != column.upper}
    parts, first = [], 0
    for end in sorted(end for end in ends if 0 < end <= total):
        made = ", ".join(f"{_constant_of(rows, field, first)} AS {identifier(field.name)}" for field in schema)
        parts.append(f"SELECT {made} FROM range({end - first})")
        first = end
    return " UNION ALL ".join(parts)


def _constant_of(rows: IndexRows, field: pa.Field, row: int) -> str:
    type, column = duckdb_type(field.type), rows.columns.get(field.name)
    if column is None or row >= column.count[0].as_py():
        return f"CAST(NULL AS {type})"
    (text,) = cast_texts(column.lower if row else column.upper)
    return f"CAST({literal(text or '')} AS {type})"


def _of_groups(rows: IndexRows, schema: pa.Schema, values: Values) -> str:
    lists = {"n": rows.rows}
    for number, column in enumerate(rows.columns.values()):
        lists |= {f"lower{number}": column.lower, f"upper{number}": column.upper, f"count{number}": column.count}
    types = {name: "BIGINT" if name.startswith(("n", "count")) else "VARCHAR" for name in lists}
    groups = ", ".join(
        f"CAST(unnest({values.add_list(cast_texts(each))}) AS {types[name]}) AS {name}" for name, each in lists.items()
    )
    numbers = {name: number for number, name in enumerate(rows.columns)}
    made = ", ".join(f"{_value(numbers.get(field.name), field)} AS {identifier(field.name)}" for field in schema)
    return f"SELECT {made} FROM (SELECT {groups}) AS zskip, range(zskip.n) AS rows(i)"


def _value(number: int | None, field: pa.Field) -> str:
    type = duckdb_type(field.type)
    if number is None:
        return f"CAST(NULL AS {type})"
    value = f"CASE WHEN i >= count{number} THEN NULL WHEN i = 0 THEN upper{number} ELSE lower{number} END"
    return f"CAST({value} AS {type})"
