"""Replaces files of a Delta table with others, of the same or of changed rows, in one Delta commit."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.core.schema import Schema
from zskip.errors import CommitConflict, TableError, UncertainCommit, UnsupportedFormat, first_line
from zskip.parquet.legacy_calendar import refuse_old_files
from zskip.stats import DataFiles
from zskip.stats.collect import shorten_lower, shorten_upper
from zskip.storage import Staged, Storage, hive
from zskip.table_formats.delta import DeltaSource, commit_path
from zskip.table_formats.source import FIELD_ID, STORED_AS
from zskip.tablelog.index import Index

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
"""Writer features that a rewrite of unchanged rows satisfies; any other may require more of a writer."""

_PARTITION_TYPES = (t.is_string, t.is_integer, t.is_date, t.is_boolean)
_CHECKED = ("delta.invariants", "delta.generationExpression", "delta.identity.", "__CHAR_VARCHAR_TYPE_STRING")
"""Keys of a column's metadata that restrict its values."""
_LONGEST_TEXT, _EXACT_DIGITS = 64, 15


def require_replaceable(source: DeltaSource, index: Index, files: np.ndarray) -> None:
    """Raise `UnsupportedFormat` if replacing these files would lose data or is not supported, and `SchemaError` for
    old dates in Spark's legacy calendar."""
    uri = source.storage.uri
    if source.fixed is not None:
        raise UnsupportedFormat(f"An older version of the Delta table at {uri} cannot be changed: open its newest.")
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
    refuse_old_files(index.storage, index.paths(files).to_pylist(), index.snapshot.schema.arrow)


def require_changeable(source: DeltaSource) -> None:
    """Raise `UnsupportedFormat` if a writer of rows must do more for this table than replace its files."""
    table = source.table()
    properties = table.metadata().configuration
    asked = [name for name in ("delta.appendOnly", "delta.enableChangeDataFeed") if properties.get(name) == "true"]
    asked += [name for name in properties if name.startswith("delta.constraints.")]
    text = table.schema().to_json()
    asked += [mark for mark in _CHECKED if f'"{mark}' in text]
    if asked:
        raise UnsupportedFormat(
            f'The Delta table at {source.storage.uri} has "{asked[0]}", which zskip does not apply to changed rows. '
            "Change them with a library of Delta."
        )


def has_batch(source: DeltaSource, batch: tuple[str, int]) -> bool:
    """Whether the table has this batch of an application, or a later one."""
    known = source.table().transaction_version(batch[0])
    return known is not None and known >= batch[1]


def replace_files(
    source: DeltaSource,
    index: Index,
    gone: np.ndarray,
    files: DataFiles,
    staged: Staged,
    *,
    changes: str | None = None,
    batch: tuple[str, int] | None = None,
) -> int:
    """Replace the files numbered ``gone`` with ``files``, in a commit on the version of the index.

    The folders of the new files name their partition values · ``staged``: the new files · ``changes``: the note of a
    commit that changes rows; by default none does · ``batch``: recorded in the commit. Returns the new version.
    Raises `CommitConflict`, with the same rows as before, if the table has a newer version, was recreated, or a vacuum
    removed the files; and `UncertainCommit` if it is unknown whether the commit was made.
    """
    from deltalake import CommitProperties, Transaction
    from deltalake.transaction import AddAction, RemoveAction

    uri, state = source.storage.uri, index.snapshot.details
    version, run = int(state["version"]), uuid4().hex
    table = replace(source, fixed=version).table()
    now = int(time.time() * 1000)
    stats = _stats(files, index.snapshot.schema, index.snapshot.partition_by)
    changed = changes is not None
    adds = [
        AddAction(path, size, _partition_values(path, index.snapshot.partition_by), now, changed, text)
        for path, size, text in zip(files.path.to_pylist(), files.size.to_pylist(), stats, strict=True)
    ]
    removes = [RemoveAction(path, changed, now) for path in index.paths(gone).to_pylist()]
    _require_base(source, state)
    _require_files(source, files)
    # deltalake names every such commit a WRITE: the note has the verb.
    note = {"writtenBy": "zskip", "run": run, "userMetadata": changes or "OPTIMIZE by zskip.cluster: no row changed"}
    transactions = [] if batch is None else [Transaction(*batch)]
    # With retries, a commit on an old version succeeds, and restores rows that others have deleted since.
    properties = CommitProperties(max_commit_retries=0, custom_metadata=note, app_transactions=transactions)
    path = commit_path(version + 1)
    staged.maybe_committed(f"It was made if {path} in the folder {uri} contains {run}.")
    try:
        table.create_write_transaction(
            [*adds, *removes],
            "append",
            table.schema(),
            list(index.snapshot.partition_by),
            commit_properties=properties,
        )
    except Exception as error:
        # The log knows: deltalake also raises after it has committed, and after a request whose answer was lost.
        found = _run_of(source.storage, path, run)
        if found is None and source.storage.local is None:
            raise  # a request on its way may still create the entry
        if not found:
            staged.refused()
            raise CommitConflict(f"{uri}: version {version} is no longer the newest, or {first_line(error)}") from error
    staged.committed()
    _require_kept(source, state, files)
    return version + 1


def _partition_values(path: str, partition_by: Sequence[str]) -> dict[str, str | None]:
    texts = hive.values_of(path)
    return {name: texts[name] for name in partition_by}


def _run_of(storage: Storage, path: str, run: str) -> bool | None:
    """Whether a commit was made by this run; None if it does not exist."""
    return run.encode() in storage.read(path) if storage.exists(path) else None


def _require_kept(source: DeltaSource, state: Mapping[str, Any], files: DataFiles) -> None:
    """Return to the version before the commit if others removed its base or its files while it was made.

    Its entry stays, since others may have seen it. Raises `CommitConflict` once the table has the rows of before, and
    `UncertainCommit` if it does not.
    """
    from deltalake import CommitProperties

    version = int(state["version"]) + 1
    try:
        _require_base(source, state)
        _require_files(source, files)
    except CommitConflict as error:
        try:
            table = source.newest().table()
            if table.version() == version:
                # Refused if another version comes first.
                table.restore(version - 1, commit_properties=CommitProperties(max_commit_retries=0))
                raise error
        except CommitConflict:
            raise
        except Exception as failure:
            raise UncertainCommit(_names_lost_files(error, version, first_line(failure))) from failure
        raise UncertainCommit(_names_lost_files(error, version, "others have committed after it")) from error
    except Exception as error:
        raise UncertainCommit(
            f"Version {version} was made, and then it could not be seen whether its files are there "
            f"({first_line(error)}). No file was removed."
        ) from error


def _names_lost_files(error: CommitConflict, version: int, why: str) -> str:
    return (
        f"{error} Version {version} names the files all the same, and cannot be undone here: {why}. Go back to version "
        f"{version - 1} with deltalake's restore."
    )


def _require_base(source: DeltaSource, state: Mapping[str, Any]) -> None:
    """Raise `CommitConflict` if the version on which a change is based no longer belongs to the table."""
    mark = source.mark(int(state["version"]))
    if mark and mark == state["mark"]:
        return
    if not mark:  # log clean-up may have removed the commit after a checkpoint
        try:
            if source.table().metadata().id == state["table"]:
                return
        except TableError:
            pass
    raise CommitConflict(f"The table at {source.storage.uri} was deleted, or replaced by another one.")


def _require_files(source: DeltaSource, files: DataFiles) -> None:
    found = source.storage.size_and_modified(files.path.to_pylist())
    if found.size.null_count:
        gone = found.path.filter(pc.is_null(found.size))
        raise CommitConflict(
            f"{source.storage.uri_of(gone[0].as_py())} was removed, as by a vacuum, before it was used."
        )


def _stats(files: DataFiles, schema: Schema, partition_by: Sequence[str]) -> list[str]:
    """Each file's statistics as JSON for the log."""
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
            # Other readers apply the upper bound to all rows, and NaN sorts above it.
            upper = pa.array(
                [None if nan != 0 else bound for bound, nan in zip(upper.to_pylist(), nans, strict=True)], upper.type
            )
        for name, values in (("minValues", lower), ("maxValues", upper), ("nullCount", known.null_count)):
            for one, value in zip(entries, values.to_pylist(), strict=True):
                text = value if name == "nullCount" else _json_value(value)
                if text is not None:
                    _put(one[name], column.parts, text)
    # Not escaped to ASCII: deltalake misreads surrogate pairs of characters beyond U+1FFFF.
    return [json.dumps(one, allow_nan=False, ensure_ascii=False) for one in entries]


def _put(into: dict[str, Any], parts: Sequence[str], value: Any) -> None:
    for part in parts[:-1]:
        into = into.setdefault(part, {})
    into[parts[-1]] = value


def _json_value(value: Any) -> Any:
    """A bound as a JSON value of the log; None if that cannot represent it exactly."""
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
