"""`followed`: the layout of a Delta or Iceberg table after others dropped, renamed or replaced columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from zskip.binder import bind
from zskip.binder.workload_sql import table_query
from zskip.core.schema import Schema, join_path
from zskip.errors import SqlError
from zskip.table_formats.source import FIELD_ID, STORED_AS
from zskip.tablelog.snapshot import LayoutRecord


def followed(layout: LayoutRecord, before: Schema, after: Schema, *, recreated: bool = False) -> LayoutRecord:
    """The layout by those of its columns that ``after`` has, by their names there, and that can be ordered.

    Weights follow their columns, and queries of the workload that no longer fit the columns are dropped. A layout whose
    columns are all gone has none. ``recreated``: the columns are those of another table, which has ids of its own.
    """
    names = {_identity(field, recreated): field.name for field in after.arrow}

    def path_after(path: str) -> str | None:
        column = before.columns.get(path)
        name = None if column is None else names.get(_identity(before.arrow.field(column.parts[0]), recreated))
        if column is None or name is None:
            return None
        found = after.columns.get(join_path([name, *column.parts[1:]]))
        return found.path if found is not None and found.orderable else None

    options = dict(layout.options)
    by: list[str] = list(options.get("by") or ())
    paths = {path: path_after(path) for path in (*layout.columns, *by)}
    kept = {path: new for path, new in paths.items() if new is not None}
    options["by"] = [kept[path] for path in by if path in kept]
    options["weights"] = _weights_of(options.get("weights"), by or layout.columns, kept)
    options["workload"] = [query for query in options.get("workload") or () if _fits(query, after)] or None
    return replace(layout, columns=tuple(kept[path] for path in layout.columns if path in kept), options=options)


def _identity(field: pa.Field, recreated: bool) -> bytes:
    """What a column keeps when it is renamed: its id or its name in the files."""
    marks: Mapping[bytes, bytes] = {} if recreated else field.metadata or {}
    return marks.get(FIELD_ID) or marks.get(STORED_AS) or field.name.encode()


def _weights_of(weights: Any, by: Sequence[str], kept: Mapping[str, str]) -> Any:
    """The weights of the columns that are kept, in the form in which they were given; None if they are all zero."""
    if weights is None:
        return None
    if isinstance(weights, Mapping):
        named = {kept[path]: weight for path, weight in weights.items() if path in kept}
        return named if any(named.values()) else None
    listed = [weight for path, weight in zip(by, weights, strict=False) if path in kept]
    return listed if any(listed) else None


def _fits(query: str, schema: Schema) -> bool:
    try:
        found = table_query(query, schema)
        if found is not None:
            bind(found.condition, schema)
    except SqlError:
        return False
    return True
