"""The scans in Spark's event logs as a workload: the columns that each reads, and its pushed filters.

Spark writes them with ``spark.eventLog.enabled``: by default a folder of rolled files per application, else one file,
compressed with zstd. The event at the start of a query holds its physical plan.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from zskip.advisor.query_logs.logged import Collector, LoggedQueries, TableNames
from zskip.advisor.query_logs.pushed_filters import condition_of
from zskip.binder.workload_sql import TableQuery, union
from zskip.core.schema import Schema
from zskip.errors import UnreadableFile

__all__ = ["from_spark_event_log"]

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
