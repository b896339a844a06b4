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

from zskip.binder.workload_sql import TableQuery, union
from zskip.errors import UnreadableFile
from zskip.query_logs.logged import Collector, LoggedQueries, TableNames
from zskip.query_logs.pushed_filters import condition_of
from zskip.schema import Schema

__all__ = ["from_spark_event_log"]

_QUERY_START = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
_ENVIRONMENT = "SparkListenerEnvironmentUpdate"
_CODECS = {".zstd": "zstd", ".zst": "zstd"}
_UNREADABLE = (".lz4", ".lzf", ".snappy")
_HOW = "spark.eventLog.enabled and spark.eventLog.dir make Spark write one."


def from_spark_event_log(path: str | os.PathLike[str], schema: Schema, table: TableNames) -> LoggedQueries:
    """The scans of a table in an event log: a file, a folder of rolled files, or a folder of several logs.

    Raises `UnreadableFile`, and `InvalidOption` if no scan of the table has a filter.
    """
    collector = Collector(schema, table)
    zone = "UTC"
    for event in _events(Path(path)):
        if event.get("Event") == _ENVIRONMENT:
            zone = event.get("System Properties", {}).get("user.timezone") or "UTC"
        elif event.get("Event") == _QUERY_START:
            own = [scan for scan in _scans(event["sparkPlanInfo"]) if collector.reads_table(_paths(scan))]
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


def _scans(node: Mapping[str, Any]) -> Iterator[Mapping[str, str]]:
    """The metadata of each file scan in a plan."""
    metadata = node.get("metadata") or {}
    if "Location" in metadata:
        yield metadata
    for child in node.get("children") or ():
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


def _events(path: Path) -> Iterator[dict[str, Any]]:
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if _is_log(each))
    if not files:
        raise UnreadableFile(f'There is no event log of Spark at "{path}". {_HOW}')
    for file in files:
        codec = _CODECS.get(file.suffix)
        if file.suffix in _UNREADABLE:
            raise UnreadableFile(
                f'"{file}" is compressed by {file.suffix[1:]}, which only Spark reads. Write logs with '
                "spark.eventLog.compression.codec=zstd, or with spark.eventLog.compress=false."
            )
        with pa.input_stream(str(file), compression=codec) as stream:
            try:
                for line in io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8"):
                    yield json.loads(line)
            except (ValueError, OSError) as error:
                if not _is_being_written(file):
                    raise UnreadableFile(f'"{file}" is not an event log of Spark, or is cut off: {error}') from error


def _is_being_written(file: Path) -> bool:
    """Whether the application still runs, so that the last line may be incomplete."""
    return file.name.endswith(".inprogress") or any(file.parent.glob("appstatus_*.inprogress"))


def _is_log(path: Path) -> bool:
    return path.is_file() and not path.name.startswith((".", "appstatus_"))
