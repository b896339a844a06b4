"""Replace files of a Delta table by others with the same rows, in one commit of the format."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from zskip import types as t
from zskip.errors import CommitConflict, UnsupportedFormat
from zskip.schema import Schema
from zskip.sources.delta import DeltaSource
from zskip.sources.source import FIELD_ID, STORED_AS
from zskip.stats import DataFiles
from zskip.tablelog import Index
from zskip.tablelog.short_bounds import shorten_lower, shorten_upper

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["replace_files", "require_replaceable"]

_WRITER_FEATURES = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "deletionVectors",
        "generatedColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
    }
)
"""Features that a rewrite without a change of rows leaves as they are; any other one may ask more of a writer."""

_PARTITION_TYPES = (t.is_string, t.is_integer, t.is_date, t.is_boolean)
_LONGEST_TEXT, _EXACT_DIGITS = 64, 15


def require_replaceable(source: DeltaSource, index: Index, files: np.ndarray) -> None:
    """Raise `UnsupportedFormat` where these files cannot be replaced without a loss, and say why."""
    uri = source.storage.uri
    if source.fixed is not None:
        raise UnsupportedFormat(f"An older version of the Delta table at {uri} cannot be laid out: open its newest.")
    unknown = sorted(set(source.table().protocol().writer_features or ()) - _WRITER_FEATURES)
    marked = [one.name for one in index.snapshot.schema.arrow if {STORED_AS, FIELD_ID} & set(one.metadata or {})]
    if marked or unknown:
        what = "columnMapping" if marked else unknown[0]
        raise UnsupportedFormat(
            f'The Delta table at {uri} uses the feature "{what}", for which deltalake cannot write files. '
            "Lay it out with the engine that wrote it."
        )
    if index.deletes(files).null_count < len(files):
        raise UnsupportedFormat(
            f"Files of the Delta table at {uri} have deletion vectors, which deltalake cannot remove with their files. "
            "Purge them first (REORG TABLE … APPLY (PURGE)), or leave them out with where=."
        )
    for name in index.snapshot.partition_by:
        type = index.snapshot.schema.arrow.field(name).type
        if not any(holds(type) for holds in _PARTITION_TYPES):
            raise UnsupportedFormat(
                f'The Delta table at {uri} is partitioned by "{name}", a {type}: zskip lays out '
                "partitions by texts, integers, dates and booleans."
            )


def replace_files(
    source: DeltaSource, index: Index, gone: np.ndarray, files: DataFiles, values: Sequence[Mapping[str, str | None]]
) -> None:
    """Commit that ``files`` stand in the place of those of ``gone``, on the version that the index has.

    ``values``: the partition values of each new file, as texts. Raises `CommitConflict` where the table has moved on.
    """
    from deltalake import CommitProperties, DeltaTable
    from deltalake.exceptions import CommitFailedError
    from deltalake.transaction import AddAction, RemoveAction

    version = int(index.snapshot.details["version"])
    table: DeltaTable = DeltaTable(source.storage.uri, version, dict(source.options) or None)
    now = int(time.time() * 1000)
    stats = _stats(files, index.snapshot.schema, index.snapshot.partition_by)
    adds = [
        AddAction(path, size, dict(value), now, False, text)
        for path, size, value, text in zip(files.path.to_pylist(), files.size.to_pylist(), values, stats, strict=True)
    ]
    removes = [RemoveAction(path, False, now) for path in index.paths(gone).to_pylist()]
    try:
        # Without a limit of 0 a stale table's commit is accepted, and brings back what others deleted meanwhile.
        table.create_write_transaction(
            [*adds, *removes],
            "append",
            table.schema(),
            list(index.snapshot.partition_by),
            commit_properties=CommitProperties(max_commit_retries=0, custom_metadata={"writtenBy": "zskip"}),
        )
    except CommitFailedError as error:
        raise CommitConflict(f"{source.storage.uri}: version {version} is no longer the newest ({error}).") from error


def _stats(files: DataFiles, schema: Schema, partition_by: Sequence[str]) -> list[str]:
    """Each file's statistics as the log keeps them."""
    rows = files.files.row_count.to_pylist()
    entries: list[dict[str, Any]] = [{"numRecords": n, "minValues": {}, "maxValues": {}, "nullCount": {}} for n in rows]
    for path, known in files.files.columns.items():
        column = schema.columns[path]
        if column.parts[0] in partition_by:
            continue
        lower = shorten_lower(known.lower, _LONGEST_TEXT)[0] if t.is_string(column.type) else known.lower
        upper = shorten_upper(known.upper, _LONGEST_TEXT)[0] if t.is_string(column.type) else known.upper
        nans = known.nan_count.to_pylist()
        if t.is_floating(column.type):
            # Others take the upper bound for one of all rows, and NaN sorts above it.
            upper = pa.array(
                [None if nan != 0 else bound for bound, nan in zip(upper.to_pylist(), nans, strict=True)], upper.type
            )
        for name, values in (("minValues", lower), ("maxValues", upper), ("nullCount", known.null_count)):
            for one, value in zip(entries, values.to_pylist(), strict=True):
                text = value if name == "nullCount" else _json_value(value)
                if text is not None:
                    _put(one[name], column.parts, text)
    # As they are: deltalake misreads letters beyond U+1FFFF that are escaped as two halves.
    return [json.dumps(one, allow_nan=False, ensure_ascii=False) for one in entries]


def _put(into: dict[str, Any], parts: Sequence[str], value: Any) -> None:
    for part in parts[:-1]:
        into = into.setdefault(part, {})
    into[parts[-1]] = value


def _json_value(value: Any) -> Any:
    """A bound as the log writes it; None for one that it has no exact form for."""
    if isinstance(value, bool | bytes):
        return None
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%f") + ("Z" if value.tzinfo else "")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value) if len(value.as_tuple().digits) <= _EXACT_DIGITS else None
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if isinstance(value, int | str) else None
