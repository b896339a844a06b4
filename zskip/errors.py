"""The errors that zskip raises.

ZskipError
├── SqlError (ValueError)        points at its place in the SQL
│   ├── SqlSyntaxError           the text does not parse
│   ├── UnknownColumn            no such column; the nearest name is offered
│   ├── IncomparableTypes        the dialect itself would refuse the comparison
│   ├── UnknownParameter         a parameter without a value, or a value without a parameter
│   └── UnsupportedSql           an aggregate, a window or a subquery where only a predicate can stand
├── SchemaError (ValueError)
│   ├── NotOrderable             a column whose type has no order cannot be a clustering column
│   └── SchemaMismatch           rows that do not fit the table
├── InvalidOption (ValueError)   an argument out of its range, or two that contradict each other
├── TableError (OSError)
│   ├── TableNotFound            no snapshot at this path, or not that version
│   ├── TableExists              a table is there already
│   ├── ForeignTable             files of Delta, Iceberg, Hudi or a Spark stream, whose own log says which are live
│   ├── NoParquet                the path holds no Parquet file
│   ├── CorruptFile              a data file that is not what its name says
│   ├── DamagedIndex             a side-car part is missing or fails its checksum
│   ├── UnsupportedFormat        written by a newer zskip, or a feature of another format
│   ├── UnsafePath               a path that leads out of the table
│   ├── CommitConflict           another writer changed what this change was based on
│   │   └── FilesRemoved         a vacuum removed, or is removing, files that this change needs
│   ├── UncertainCommit          the store failed just then: the change may have been made, or not
│   └── UnsupportedStore         the store cannot create a file only if it is absent
├── UnreadableFile (OSError)     a file that an argument names: it is not there, or is not what it should be
└── MissingDependency (ImportError)  an optional package, or Java, is not there
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "CommitConflict",
    "CorruptFile",
    "DamagedIndex",
    "FilesRemoved",
    "ForeignTable",
    "IncomparableTypes",
    "InvalidOption",
    "MissingDependency",
    "NoParquet",
    "NotOrderable",
    "SchemaError",
    "SchemaMismatch",
    "SqlError",
    "SqlSyntaxError",
    "TableError",
    "TableExists",
    "TableNotFound",
    "UncertainCommit",
    "UnknownColumn",
    "UnknownParameter",
    "UnreadableFile",
    "UnsafePath",
    "UnsupportedFormat",
    "UnsupportedSql",
    "UnsupportedStore",
    "ZskipError",
]


class ZskipError(Exception):
    """The root of all errors that zskip raises on purpose. Messages with very long input are cut in the middle."""

    def __init__(self, message: object = "", *others: object) -> None:
        super().__init__(_cut(str(message)), *others)


_LONGEST_MESSAGE = 2_000
_LONGEST_VALUE = 60


def shown(value: object) -> str:
    """A value as messages show it.

    >>> shown("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…"
    """
    try:
        text = repr(value)
    except ValueError:
        # Python does not write integers of more than 4,300 digits.
        text = f"a very long {type(value).__name__}"
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"


def amount(number: int, thing: str) -> str:
    """A number of things in words.

    >>> amount(1, "file"), amount(2_000, "file")
    ('1 file', '2,000 files')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def row_shown(row: pa.Table) -> str:
    """The one row of a table as messages show it. Dates and times that Python lacks are in Arrow's form.

    >>> import pyarrow as pa
    >>> row_shown(pa.table({"a": [1], "day": pa.array([-800_000], pa.int32()).cast(pa.date32())}))
    'a = 1, day = -0221-09-04'
    """
    return ", ".join(f"{name} = {_cell_shown(row.column(name)[0])}" for name in row.column_names)


def _cell_shown(value: pa.Scalar) -> str:
    try:
        return shown(value.as_py())
    except OverflowError:
        return str(value.cast("string"))


def first_line(error: BaseException) -> str:
    """The first line of an error's message; other libraries put stacks of their own below it.

    >>> first_line(ValueError("no such file\\n  at line 5"))
    'no such file'
    """
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _cut(message: str) -> str:
    """The beginning, which names the argument, and the end, which says what to do."""
    if len(message) <= _LONGEST_MESSAGE:
        return message
    return f"{message[: _LONGEST_MESSAGE // 2]} … {message[-_LONGEST_MESSAGE // 4 :]}"


class SqlError(ZskipError, ValueError):
    """An error with a place in a SQL text; ``str()`` underlines it.

    ``span`` is the half-open character range in ``sql``, or None if the place is not known.
    """

    def __init__(self, message: str, sql: str | None = None, span: tuple[int, int] | None = None) -> None:
        self.message = _cut(message)
        self.sql = sql
        self.span = span
        super().__init__(self.message if sql is None else f"{self.message}\n{underline(sql, span)}")


class SqlSyntaxError(SqlError):
    """The text does not parse as a predicate or statement of its dialect."""


class UnknownColumn(SqlError):
    """A name that the schema does not have."""


class IncomparableTypes(SqlError):
    """Two types that the dialect refuses to compare."""


class UnknownParameter(SqlError):
    """A parameter without a value, or a value without a parameter."""


class UnsupportedSql(SqlError):
    """An aggregate, a window or a subquery where only a predicate over one table's rows can stand."""


class SchemaError(ZskipError, ValueError):
    """A column or a type that does not support the operation."""


class NotOrderable(SchemaError):
    """A column whose type has no order cannot be a clustering column."""


class SchemaMismatch(SchemaError):
    """Rows that do not fit the table's schema."""


class InvalidOption(ZskipError, ValueError):
    """An argument that is out of its range, or two that contradict each other."""


class TableError(ZskipError, OSError):
    """A problem with the files of a table; the message names the path."""


class TableNotFound(TableError):
    """There is no snapshot at this path, or not the one asked for."""


class TableExists(TableError):
    """There is a table already, and no option allows replacing it."""


class ForeignTable(TableError):
    """A folder is a table of Delta, Iceberg or Hudi, or the output of a Spark stream: only its log names live rows."""


class NoParquet(TableError):
    """The path holds no Parquet file."""


class CorruptFile(TableError):
    """A data file that cannot be read as what its name says."""


class DamagedIndex(TableError):
    """A part of the side-car index is missing or fails its checksum."""


class UnsupportedFormat(TableError):
    """The table was written by a newer zskip, or uses a feature of another format that zskip does not support."""


class UnsafePath(TableError):
    """A path that leads out of the table."""


class CommitConflict(TableError):
    """Another writer changed what this change was based on."""


class FilesRemoved(CommitConflict):
    """A vacuum removed files that a change needs, or is about to: the change took longer than ``older_than``."""


class UncertainCommit(TableError):
    """The store failed during a commit, which may have been made or not. Its files are kept in case it was made."""


class UnsupportedStore(TableError):
    """The store cannot create a file only if it is absent, so one commit could overwrite another."""


class UnreadableFile(ZskipError, OSError):
    """A file that an argument names, such as one of queries or a log, is missing or has the wrong content."""


class MissingDependency(ZskipError, ImportError):
    """An optional package or Java is needed but not installed."""


@contextmanager
def naming(path: str | PathLike[str]) -> Iterator[None]:
    """Name the file in an error of the system about one that is open: whoever reads of a full disk must know which.

    >>> with naming("a.parquet"):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
    OSError: [Errno 28] No space left on device: 'a.parquet'
    """
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def in_quotes(name: str) -> str:
    """A name in double quotes; a path that is quoted already stays as it is.

    >>> in_quotes("a"), in_quotes('"id.orig_h"')
    ('"a"', '"id.orig_h"')
    """
    return name if len(name) > 1 and name[0] == name[-1] == '"' else f'"{name}"'


_LONGEST_NAME = 200


def nearest(name: str, candidates: Iterable[str], *, listed: bool = False) -> str:
    """A hint that names the closest candidate, or lists a few; empty if there is none.

    ``listed``: hint only at a close candidate, because the message lists all, or there are too many.

    >>> nearest("src_pi", ["ts", "src_ip"])
    ' Did you mean "src_ip"?'
    """
    import difflib

    pool = list(candidates)
    folded = {candidate.lower(): candidate for candidate in pool}
    # The comparison takes quadratic time, and the name may come from an untrusted user.
    close = difflib.get_close_matches(name[:_LONGEST_NAME].lower(), list(folded), n=1, cutoff=0.6 if listed else 0.5)
    if close:
        return f" Did you mean {in_quotes(folded[close[0]])}?"
    if listed or not pool:
        return ""
    shown = ", ".join(pool[:8]) + (", …" if len(pool) > 8 else "")
    return f" There are: {shown}."


_LINE = 100


def underline(sql: str, span: tuple[int, int] | None) -> str:
    """The line of ``sql`` that holds ``span``, cut to 100 characters, with carets under the span.

    >>> print(underline("a = 1 AND bb = 2", (10, 12)))
      a = 1 AND bb = 2
                ^^
    """
    if span is None:
        shown = " ".join(sql.split())
        return "  " + (shown if len(shown) <= _LINE else shown[: _LINE - 1] + "…")
    start, end = span
    first = sql.rfind("\n", 0, start) + 1
    last = sql.find("\n", start)
    line = sql[first : last if last >= 0 else len(sql)]
    start, end = start - first, max(min(end - first, len(line)), start - first + 1)
    if len(line) > _LINE:
        cut = max(0, min(start - _LINE // 2, len(line) - _LINE))
        line = line[cut : cut + _LINE]
        start, end = start - cut, min(end - cut, _LINE)
    return "  " + line.replace("\t", " ") + "\n  " + " " * start + "^" * max(1, end - start)
