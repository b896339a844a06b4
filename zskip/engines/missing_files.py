"""Errors that name the missing and damaged files of a plan, in place of an engine's error."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from zskip.core import types as t
from zskip.core.late_loading import pc
from zskip.errors import (
    CorruptFile,
    SchemaMismatch,
    TableNotFound,
    UnsupportedSql,
    ZskipError,
    amount,
    first_line,
    underline,
)
from zskip.parquet.arrow_differences import ParquetSchema, variants
from zskip.tablelog.freshness import listed
from zskip.tablelog.index import Index
from zskip.tablelog.log import latest_version, load

if TYPE_CHECKING:
    from zskip.plan.scan import Scan


_TOO_FAR = {
    "Could not convert Timestamp to higher precision": (
        pa.timestamp("ns"),
        'A timestamp lies outside 1677 to 2262, and "{}" has nanoseconds, as another file has. Index these files '
        "apart, or write them anew with microseconds.",
    ),
    "Could not convert Timestamp(MS) to Timestamp(US)": (
        pa.timestamp("ms"),
        'A timestamp of "{}" lies outside 290308 BC to 294247, where DuckDB\'s end, and DuckDB reads no such file. '
        "Write its rows anew with other values.",
    ),
}
"""Parts of DuckDB's errors about timestamps that it cannot hold: the type of such a column, and the message for it."""

_MISSING_TYPE = re.compile(r"Type with name (\S+) does not exist!")
_INTERRUPTED = "Query interrupted"  # how DuckDB reports Ctrl-C, in a RuntimeError
_NAMED = 10
"""The maximum number of files that a note on an error names."""


@contextmanager
def reading(scan: Scan) -> Iterator[None]:
    """As `naming_bad_files`; and errors about the SQL in which zskip reads a plan point into the plan's predicate.

    Raises `UnsupportedSql` for a type that the connection lacks, as zskip's own lacks the user's.
    """
    import duckdb

    text = "" if scan.predicate is None else scan.predicate.text
    try:
        with pointing_at(text, ""), naming_bad_files([scan]), _raising_streamed_errors():
            yield
    except duckdb.CatalogException as error:
        missing = _MISSING_TYPE.search(str(error))
        if missing is None:
            raise
        at = text.find(missing[1])
        raise UnsupportedSql(
            f'The connection that reads this plan has no type "{missing[1]}": to_duckdb(con) of the plan, and '
            "zskip.sql(statement, con), read on one that has it.",
            text,
            None if at < 0 else (at, at + len(missing[1])),
        ) from None


@contextmanager
def _raising_streamed_errors() -> Iterator[None]:
    """Raise DuckDB's errors as DuckDB does. From the second batch of a stream on, Arrow gives them as `OSError`."""
    import duckdb

    try:
        yield
    except OSError as error:
        kinds = [kind for kind in vars(duckdb).values() if isinstance(kind, type) and issubclass(kind, duckdb.Error)]
        # "Out of Range Error: …" is an OutOfRangeException.
        name = str(error).partition(" Error: ")[0].replace(" ", "") + "Exception"
        kind = next((kind for kind in kinds if kind.__name__.lower() == name.lower()), None)
        if kind is None:
            raise
        raise kind(str(error)) from None


@contextmanager
def naming_bad_files(scans: Iterable[Scan]) -> Iterator[None]:
    """Raise `TableNotFound` for missing files, `CorruptFile` for a damaged one, `SchemaMismatch` for other types.

    If every file can be read on its own, the engine's error is raised with a note that names the files. An interrupt is
    raised as `KeyboardInterrupt`, and what a store raised while DuckDB read from it as `OSError`.
    """
    import duckdb

    try:
        yield
    except ZskipError:
        raise
    except RuntimeError as error:
        if str(error) == _INTERRUPTED:
            raise KeyboardInterrupt from error
        raise
    except (duckdb.Error, OSError, pa.ArrowInvalid) as error:  # Arrow's if DuckDB fails during a stream
        if (named := _named(error, list(scans))) is not None:
            raise named from error
        raise


def _named(error: Exception, scans: Sequence[Scan]) -> Exception | None:
    """An error that names the files or the column that an engine's error is about; None if nothing is known of them.

    An error about files that can all be read gets a note that names them. Raises `SchemaMismatch`, and what reading a
    footer raises.
    """
    import duckdb

    for scan in scans:
        if message := _gone(scan):
            return TableNotFound(message)
    if cause := _cause_of_a_failed_read(error):
        where = ", ".join(sorted({scan.storage.uri for scan in scans}))
        return OSError(f"A file could not be read from {where}: {cause}")
    for part, (column_type, message) in _TOO_FAR.items():
        fields = [field for scan in scans for field in scan.schema.arrow] if part in str(error) else []
        for field in fields:
            if t.is_timestamp(field.type) and field.type.unit == column_type.unit:
                return SchemaMismatch(message.format(field.name))
    if isinstance(error, duckdb.ConversionException):
        for scan in scans:
            _require_types(scan)
    if not isinstance(error, _of_files()) and type(error) is not duckdb.Error:
        return None
    paths = [path for scan in scans if scan.storage.local is not None for path in scan.paths]
    for path in paths:
        if message := _damage(path, by_arrow=not isinstance(error, duckdb.Error)):
            return CorruptFile(message)
    from zskip.parquet import footers

    for scan in scans:
        if scan.storage.local is None:  # from a store, footers alone
            footers.read(scan.storage, scan.relative_paths)
    error.add_note("It came of reading " + ", ".join(paths[:_NAMED]) + " …" * (len(paths) > _NAMED))
    return None


def _cause_of_a_failed_read(error: Exception) -> str | None:
    """What a file system in Python raised, of which DuckDB gives the whole traceback as its message; else None.

    A message that only quotes such a text, as of a cast that fails on a line of a log, begins otherwise.
    """
    first, *lines = str(error).splitlines() or [""]
    if first != "Traceback (most recent call last):":
        return None
    return next((line for line in lines if line[:1].strip()), None)  # the lines of the calls are indented


def _of_files() -> tuple[type[Exception], ...]:
    """The errors that a damaged file may cause."""
    import duckdb

    engines = (duckdb.IOException, duckdb.InvalidInputException, duckdb.SerializationException)
    return *engines, duckdb.InternalException, OSError, pa.ArrowInvalid


def _damage(path: str, *, by_arrow: bool) -> str | None:
    """The message of an error if DuckDB, or Arrow, cannot read a Parquet file, else None. Raises `PermissionError`."""
    import duckdb
    import pyarrow.parquet as pq

    with open(path, "rb"):  # a file that may not be read is not damaged
        pass
    try:
        with duckdb.connect() as con:
            for _ in con.sql("SELECT * FROM read_parquet(?)", params=[path]).to_arrow_reader():
                pass
        for _ in pq.ParquetFile(path).iter_batches() if by_arrow else ():
            pass
    except (duckdb.Error, OSError, pa.ArrowInvalid) as error:
        return f"{path} cannot be read: {first_line(error).rstrip(' .:')}. Restore it, or write its rows anew."
    return None


def _require_types(scan: Scan) -> None:
    """Raise `SchemaMismatch` if a file came into an indexed folder with other types than the index, or if one has
    unsigned integers beside signed ones, or a VARIANT, which Arrow's schema does not tell."""
    if scan.managed or scan.source is not None:
        return
    from zskip.parquet import footers

    found = listed(Index(scan.storage, load(scan.storage, scan.version)))
    if found is not None:
        indexed = {field.name: field.type for field in scan.schema.arrow}
        for path in [*found.added.path.to_pylist(), *found.changed.path.to_pylist()]:
            footers.read(scan.storage, [path], scan.schema, grow=True)
            for field in footers.read(scan.storage, [path])[0].arrow:
                known = indexed.get(field.name, field.type)
                if field.type != known:
                    raise SchemaMismatch(
                        f'The column "{field.name}" is {field.type} in {scan.storage.uri_of(path)}, and {known} in the '
                        "index, which does not hold all its values: refresh() takes the file into the index."
                    )
    narrow = {field.name for field in scan.schema.arrow if field.type == pa.int64()}
    for path in scan.relative_paths if narrow else ():
        for field in footers.read(scan.storage, [path])[0].arrow:
            if field.name in narrow and field.type == pa.uint64():
                raise SchemaMismatch(
                    f'The column "{field.name}" is uint64 in {scan.storage.uri_of(path)} and int64 in another file, '
                    "which does not hold all its values. Write these files with one type."
                )
    for _, arrow, file in footers.both_schemas(scan.storage, scan.storage.size_and_modified(scan.relative_paths)):
        refuse_variants(arrow, file)


def refuse_variants(schema: pa.Schema, file: ParquetSchema) -> None:
    """Raise `SchemaMismatch` for a VARIANT of a file, which Arrow reads as a struct: conditions on that have another
    meaning. ``schema``: the file's columns that a condition reads."""
    if names := variants(schema, file):
        raise SchemaMismatch(f'Plans cannot compare the VARIANT "{names[0]}": read it by zskip.sql or to_duckdb.')


def _gone(scan: Scan) -> str | None:
    """The message of an error if files of the scan are missing, else None."""
    storage, version = scan.storage, scan.version
    listed = storage.size_and_modified(scan.relative_paths)
    gone = listed.path.filter(pc.is_null(listed.size))
    if not len(gone):
        return None
    share = f"{len(gone):,} of the {amount(len(scan), 'file')} that were planned of {storage.uri}"
    what = f"{share} are gone, such as {gone[0]}. "
    if not scan.managed:
        return what + "The folder has changed since: plan again, and refresh() takes the change into the index."
    newest = latest_version(storage)
    if newest > version:
        return (
            f"{what}They are of version {version}, and the table is at version {newest} by now: vacuum removes what "
            f'only replaced versions name. Open it again with zskip.open("{storage.uri}"), and plan anew; '
            "vacuum(older_than=…) says for how long replaced versions stay."
        )
    return (
        f"{what}Version {version} is the newest, and no verb of zskip removes what it names. Put them back; verify() "
        "names all that cannot be read, and restore(version) goes back to a version whose files are there."
    )


# --- errors that point at the user's statement instead of the rewritten one ---

_EXCERPT = re.compile(r"\n+(?P<line>LINE \d+: .*)\n(?P<caret> *\^)[^\n]*\s*$")
_QUOTED = re.compile(r'"([^"]+)"|with name (\S+) does not exist')
_WORD = re.compile(r'"[^"]*"|\'[^\']*\'|\w+|\S')


@contextmanager
def pointing_at(statement: str, ran: str) -> Iterator[None]:
    """Rewrite DuckDB's errors about ``ran`` into errors about ``statement``, from which it was rewritten."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        rewritten = _repointed(str(error), statement)
        if ran == statement or rewritten is None:
            raise
        raise type(error)(rewritten) from None


def _repointed(message: str, statement: str) -> str | None:
    """The message without its excerpt of the rewritten statement, and with the user's statement, underlined.

    The word that DuckDB points at, or quotes, is underlined if it occurs exactly once. None if the message has no
    excerpt and either no such word or the statement itself.

    >>> print(_repointed('Referenced column "x" not found!', "SELECT x FROM 'lake'"))
    Referenced column "x" not found!
    <BLANKLINE>
      SELECT x FROM 'lake'
             ^
    """
    excerpt = _EXCERPT.search(message)
    if excerpt is None:
        quoted = _QUOTED.search(message)
        word = quoted and (quoted[1] or quoted[2])
    else:
        pointed = _WORD.match(excerpt["line"], len(excerpt["caret"]) - 1)
        word = pointed and pointed[0]
    spans = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", statement)] if word else []
    if excerpt is None and (len(spans) != 1 or statement in message):
        return None
    rewritten = message if excerpt is None else message[: excerpt.start()]
    return f"{rewritten}\n\n{underline(statement, spans[0] if len(spans) == 1 else None)}"
