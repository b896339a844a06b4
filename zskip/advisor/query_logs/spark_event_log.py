"""The scans in Spark's event logs as a workload: the columns that each reads, and its pushed filters.

Spark writes them with ``spark.eventLog.enabled``: by default a folder of rolled files per application, else one file,
compressed with zstd. The event at the start of a query holds its physical plan.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from zskip.advisor.query_logs.logged import Collector, LoggedQueries, TableNames
from zskip.binder.workload_sql import TableQuery, union
from zskip.core import types as t
from zskip.core.schema import Column, Schema, identifier
from zskip.errors import UnreadableFile

_QUERY_START = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
_ENVIRONMENT = "SparkListenerEnvironmentUpdate"
_CODECS = {".zstd": "zstd", ".zst": "zstd", ".gz": "gzip"}
_UNREADABLE = (".lz4", ".lzf", ".snappy")
_HOW = "spark.eventLog.enabled and spark.eventLog.dir make Spark write one."


def from_spark_event_log(path: str | os.PathLike[str], schema: Schema, table: TableNames) -> LoggedQueries:
    """The scans of a table in an event log: a file, a folder of rolled files, or a folder of several logs.

    Raises `UnreadableFile`, and `InvalidOption` if no scan of the table has a filter.
    """
    collector = Collector(schema, table)
    zone = "UTC"
    for event in _events(Path(path)):
        if event is None:
            collector.leave_out("is cut off in the log")
        elif event.get("Event") == _ENVIRONMENT:
            zone = (event.get("System Properties") or {}).get("user.timezone") or "UTC"
        elif event.get("Event") == _QUERY_START:
            own = [scan for scan in _scans(event.get("sparkPlanInfo")) if collector.reads_table(_paths(scan))]
            query = union([read for scan in own if (read := _read(scan, schema, zone)) is not None])
            if query is not None:
                collector.add_query(query)
            elif own:
                collector.leave_out("has no condition on its columns")
    return collector.queries()


def _paths(scan: Mapping[str, str]) -> list[str]:
    return re.sub(r"^[^\[]*\[|\]$", "", scan["Location"]).split(", ")


def _read(scan: Mapping[str, str], schema: Schema, zone: str) -> TableQuery | None:
    condition = condition_of(scan.get("PushedFilters", "[]"), schema, zone)
    if condition is None:
        return None
    names = _column_names(scan.get("ReadSchema", "struct<>"))
    return TableQuery(condition, frozenset(leaf.path for leaf in schema if leaf.parts[0].lower() in names))


def _scans(node: Any) -> Iterator[Mapping[str, str]]:
    """The metadata of each file scan in a plan. What has another form is no scan."""
    if not isinstance(node, dict):
        return
    metadata, children = node.get("metadata"), node.get("children")
    if isinstance(metadata, dict) and isinstance(metadata.get("Location"), str):
        yield metadata
    for child in children if isinstance(children, list) else ():
        yield from _scans(child)


def _column_names(read_schema: str) -> set[str]:
    """The names of the top-level columns of a ``ReadSchema``, in lower case.

    >>> sorted(_column_names("struct<a:bigint,s:struct<x:int,y:string>,m:decimal(12,2)>"))
    ['a', 'm', 's']
    """
    depth, field, names = 0, "", set()
    for letter in read_schema.removeprefix("struct<").removesuffix(">") + ",":
        if letter == "," and not depth:
            names.add(field.split(":")[0].lower())
            field = ""
            continue
        depth += (letter in "<(") - (letter in ">)")
        field += letter
    return names - {""}


def _events(path: Path) -> Iterator[dict[str, Any] | None]:
    """The events of a log. None where a file ends within an event, because the application runs or was killed."""
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if _is_log(each))
    if not files:
        raise UnreadableFile(f'There is no event log of Spark at "{path}". {_HOW}')
    for file in files:
        if file.suffix in _UNREADABLE:
            raise UnreadableFile(
                f'"{file}" is compressed by {file.suffix[1:]}, which only Spark reads. Write logs with '
                "spark.eventLog.compression.codec=zstd, or with spark.eventLog.compress=false."
            )
        lines, read = _lines(file), 0
        try:
            for line in lines:
                yield _event(line)
                read += 1
        except (ValueError, OSError) as error:
            if not read or not _is_at_end(lines):
                raise UnreadableFile(f'"{file}" is not an event log of Spark: line {read + 1}: {error}') from error
            yield None


def _lines(file: Path) -> Iterator[str]:
    with pa.input_stream(str(file), compression=_CODECS.get(file.suffix)) as stream:
        yield from io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8-sig", errors="replace")


def _event(line: str) -> dict[str, Any]:
    """Raises `ValueError` for a line that is no event."""
    event = json.loads(line)
    if not isinstance(event, dict):
        raise ValueError(f"{line.strip()[:40]} is no event")
    return event


def _is_at_end(lines: Iterator[str]) -> bool:
    try:
        return next(lines, None) is None
    except (ValueError, OSError):  # compressed, and cut off within a block
        return True


def _is_log(path: Path) -> bool:
    return path.is_file() and not path.name.startswith((".", "appstatus_"))


# Parses the filters that Spark pushes to a scan, as printed in an event log, into DuckDB SQL. [IsNotNull(a),
# EqualTo(a,5), Or(StringStartsWith(b,x),In(c, [1,2]))] a = 5 AND (starts_with(b, 'x') OR c IN (1, 2)) The log quotes
# nothing, so a comma or a parenthesis in a string is ambiguous: the condition guides layouts, and never prunes.

_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "IS NOT DISTINCT FROM",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_STRING_MATCHES = {"StringStartsWith": "starts_with", "StringEndsWith": "ends_with", "StringContains": "contains"}
_NAMES = (*_COMPARISONS, *_STRING_MATCHES, "In", "IsNull", "IsNotNull", "And", "Or", "Not")
_SEPARATOR = re.compile(rf",\s?(?=(?:{'|'.join(_NAMES)})\()")
_FILTER = re.compile(rf"({'|'.join(_NAMES)})\((.*)\)", re.DOTALL)


def condition_of(filters: str, schema: Schema, zone: str = "UTC") -> str | None:
    """The conjunction of a list of pushed filters; None where it only requires columns not to be NULL.

    ``zone``: the time zone of the log's timestamps. Filters that cannot be parsed, or are on columns that the schema
    lacks, are left out.
    """
    parsed = [(text, _sql(text, schema, zone)) for text in _split(filters.strip()[1:-1])]
    kept = [sql for text, sql in parsed if sql is not None and not text.startswith("IsNotNull(")]
    return " AND ".join(kept) if kept else None


def _split(text: str) -> list[str]:
    """Split a list into filters: each starts with a filter's name, and its parentheses balance if possible."""
    filters: list[str] = []
    for piece in _SEPARATOR.split(text):
        if filters and filters[-1].count("(") > filters[-1].count(")"):
            filters[-1] += f",{piece}"
        else:
            filters.append(piece)
    return [piece for piece in filters if piece]


def _sql(text: str, schema: Schema, zone: str) -> str | None:
    match = _FILTER.fullmatch(text)
    if match is None:
        return None
    name, inside = match.groups()
    if name == "Not":
        part = _sql(inside, schema, zone)
        return None if part is None else f"NOT ({part})"
    if name in ("And", "Or"):
        for left, right in _operands(inside):
            sides = [_sql(left, schema, zone), _sql(right, schema, zone)]
            if None not in sides:
                return f"(({sides[0]}) {name.upper()} ({sides[1]}))"
        return None
    path, _, value = inside.partition(",")
    column = schema.find([part.strip("`") for part in re.findall(r"`[^`]*`|[^.`]+", path)])
    if column is None:
        return None
    quoted = identifier(*column.parts)
    if name in ("IsNull", "IsNotNull"):
        return f"{quoted} IS {'NOT ' if name == 'IsNotNull' else ''}NULL"
    if name == "In":
        values = [_literal(each, column, zone) for each in value.strip()[1:-1].split(",")]
        known = [each for each in values if each is not None]
        return f"{quoted} IN ({', '.join(known)})" if len(known) == len(values) else None
    literal = _literal(value, column, zone)
    if literal is None:
        return None
    if name in _STRING_MATCHES:
        return f"{_STRING_MATCHES[name]}({quoted}, {literal})"
    return f"{quoted} {_COMPARISONS[name]} {literal}"


def _operands(inside: str) -> Iterator[tuple[str, str]]:
    """Each way to split the text into the two operands of AND or OR; those with balanced parentheses first."""
    splits = [(inside[: match.start()], inside[match.end() :]) for match in _SEPARATOR.finditer(inside)]
    yield from sorted(splits, key=lambda pair: abs(pair[0].count("(") - pair[0].count(")")))


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _literal(value: str, column: Column, zone: str) -> str | None:
    """A value of a column as a DuckDB literal; None where it cannot be parsed."""
    if value == "null":
        return "NULL"
    type_ = t.value_type(column.type)
    writers: list[tuple[Callable[..., bool], Callable[[str], str]]] = [
        (t.is_date, lambda text: f"DATE {_quoted(text)}"),
        (t.is_timestamp, lambda text: _timestamp(text, type_.tz is not None, zone)),
        (t.is_string, _quoted),
        (t.is_boolean, str),
        (t.is_integer, str),
        (t.is_floating, str),
        (t.is_decimal, str),
    ]
    try:
        return next((write(value) for is_one, write in writers if is_one(type_)), None)
    except ValueError:
        return None


def _timestamp(text: str, zoned: bool, zone: str) -> str:
    """A timestamp literal. Spark prints values in the zone of the driver's JVM, unless a trailing Z marks UTC."""
    parsed = datetime.fromisoformat(text)
    if not zoned:
        return f"TIMESTAMP '{parsed.replace(tzinfo=None)}'"
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=ZoneInfo(zone))
    return f"TIMESTAMPTZ '{parsed.astimezone(ZoneInfo('UTC'))}'"
