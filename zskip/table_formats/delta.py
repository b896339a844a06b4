"""`DeltaSource`: a Delta table as a source. deltalake reads the whole log once; later commits are read one by one."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zskip.core import types as t
from zskip.core.schema import Schema, join_path
from zskip.core.types import is_orderable, logical_type
from zskip.errors import CorruptFile, MissingDependency, TableError, TableNotFound, UnsupportedFormat, first_line
from zskip.stats import ColumnStatistics
from zskip.storage.local import LocalStorage
from zskip.storage.storage import Storage
from zskip.table_formats.deletion_vectors import positions
from zskip.table_formats.source import (
    FIELD_ID,
    RESTORE,
    STORED_AS,
    Content,
    content_files,
    deleted_rows,
    live_statistics,
    mark_of,
    plain_field,
    reading,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable

_FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
"""The supported reader features; any other may change which rows a file holds."""

_IGNORED = frozenset({"commitInfo", "txn", "domainMetadata", "cdc"})
_PHYSICAL, _ID = b"delta.columnMapping.physicalName", b"delta.columnMapping.id"
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")
_EXACT_DOUBLES = 1 << 53
_MISREAD = "[" + "".join(f"\\x{{{plane:X}0000}}-\\x{{{plane:X}FFFF}}" for plane in range(1, 17, 2)) + "]"
"""Characters that deltalake may have misread: it decodes an escaped pair of an even plane as the one 65,536 below."""


def commit_path(version: int) -> str:
    """The path of a version's commit in the log."""
    return f"_delta_log/{version:020}.json"


def is_delta(storage: Storage) -> bool:
    """Whether a folder holds a Delta table."""
    return bool(storage.names("_delta_log"))


def log_versions(storage: Storage) -> Iterator[int]:
    """The versions of the commits and checkpoints in a Delta log, unordered and with repetitions."""
    return (int(name[:20]) for name in storage.names("_delta_log") if name[:20].isdigit())


@dataclass(frozen=True)
class DeltaSource:
    """A Delta table at its newest version, or at ``fixed``: a version or a time. ``options``: deltalake's."""

    storage: Storage
    options: Mapping[str, str] = field(default_factory=dict)
    fixed: int | datetime | None = None

    @property
    def format(self) -> str:
        return "delta"

    @property
    def home(self) -> Storage:
        return self.storage

    def table(self) -> DeltaTable:
        """The table, opened by deltalake. Raises `TableNotFound`, `CorruptFile` and `UnsupportedFormat`."""
        try:
            import deltalake
        except ImportError as error:
            raise MissingDependency('Delta tables need deltalake: pip install "zskip[delta]"') from error
        from deltalake.exceptions import TableNotFoundError

        if self.storage.local is not None and (code := _ENCODED.search(self.storage.uri)):
            raise UnsupportedFormat(
                f'deltalake takes "{code[0]}" in {self.storage.uri} for the code of a '
                "character, and looks for another folder. Rename the folder."
            )
        version = self.fixed if isinstance(self.fixed, int) else None
        if version is not None and is_delta(self.storage) and version > max(log_versions(self.storage), default=-1):
            # deltalake would look for every commit up to this one.
            raise TableNotFound(f"The Delta table at {self.storage.uri} has no version {version} yet.")
        try:
            with self._translated_errors():
                table = deltalake.DeltaTable(self.storage.uri, version, dict(self.options) or None)
                if isinstance(self.fixed, datetime):
                    table.load_as_version(self.fixed)
                    self._require_not_later(int(table.version()), self.fixed)
        except TableNotFoundError as error:
            if version is not None and is_delta(self.storage):
                raise TableNotFound(f"The Delta table at {self.storage.uri} has no version {version} now.") from error
            raise TableNotFound(f"There is no Delta table at {self.storage.uri}: {error}") from error
        except (TableError, OverflowError) as error:
            if version is None or self.storage.exists(commit_path(version)):
                raise
            raise TableNotFound(f"The Delta table at {self.storage.uri} has no version {version}.") from error
        return table

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Raise a `TableError` in place of deltalake's errors, which name no file of the log that is damaged."""
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            yield
        except TableNotFoundError:
            raise
        except DeltaError as error:
            _require_readable_log(self.storage)
            if "Deletion Vector error" in str(error):
                raise CorruptFile(
                    f"A deletion vector of the Delta table at {self.storage.uri} is damaged: {first_line(error)}. "
                    f"{RESTORE}"
                ) from error
            raise UnsupportedFormat(
                f"deltalake cannot read the Delta table at {self.storage.uri}: {first_line(error)}. "
                "Read it with an engine that can, restore what its log lacks, or open an earlier version with version=."
            ) from error

    def _require_not_later(self, version: int, as_of: datetime) -> None:
        """Raise `TableNotFound` if a version is later than a time: deltalake returns the oldest one then."""
        if any(other < version for other in log_versions(self.storage)):
            return
        latest = int(as_of.timestamp() * 1000)
        committed = self.storage.size_and_modified([commit_path(version)]).modified[0].as_py()
        if committed is None or committed // 1_000_000 <= latest:
            return
        # The time recorded in the commit, which history() shows, may be earlier than its file's.
        first, second = self._recorded_time(version), self._recorded_time(version + 1)
        if first is None or first > latest or (second is not None and second <= latest):
            raise TableNotFound(f"The Delta table at {self.storage.uri} has no version as old as {as_of.isoformat()}.")

    def _recorded_time(self, version: int) -> int | None:
        """The time recorded in a commit, in milliseconds since the epoch."""
        if not self.storage.exists(commit_path(version)):
            return None
        for line in self.storage.read(commit_path(version)).splitlines():
            commit_info = json.loads(line).get("commitInfo", {})
            if commit_info:
                return cast("int | None", commit_info.get("inCommitTimestamp", commit_info.get("timestamp")))
        return None

    # --- following ---

    def newest(self) -> DeltaSource:
        return self

    def is_current(self, state: Mapping[str, Any]) -> bool:
        version, mark = int(state["version"]), state["mark"]
        if isinstance(self.fixed, datetime) or self.mark(version) != mark:
            return False
        return self.fixed is not None or (mark != "" and not self.storage.exists(commit_path(version + 1)))

    def read(self) -> Content:
        expected = self.fixed if isinstance(self.fixed, int) else max(log_versions(self.storage), default=-1)
        mark = self.mark(expected)
        table = self.table()
        _require_features(table, self.storage.uri)
        with self._translated_errors():
            version = int(table.version())
            schema = pa.schema(table.schema().to_arrow())
            partition_by = tuple(table.metadata().partition_columns)
            deleted = {}
            if "deletionVectors" in (table.protocol().reader_features or ()):
                deleted = _deleted_rows_by_file(pa.table(table.deletion_vectors()), self.storage.uri)
            state = {
                "source": "delta",
                "table": str(table.metadata().id),
                "version": version,
                # Of the commit as it was before and after the table was opened: else it may be another table's by now.
                "mark": mark if version == expected and self.mark(version) == mark else "",
                "head": _head(table),
            }
            return _content(table, schema, partition_by, deleted, None, state)

    def changes(self, state: Mapping[str, Any]) -> Content | None:
        version, mark = int(state["version"]), state["mark"]
        if self.fixed is not None or not mark or self.mark(version) != mark:
            return None
        added: dict[str, dict[str, Any]] = {}
        removed: dict[str, None] = {}
        while self.storage.exists(commit_path(version + 1)):
            version += 1
            try:
                actions = _actions(self.storage.read(commit_path(version)))
            except FileNotFoundError:  # the table is being replaced
                return None
            if actions is None:
                return None
            # A commit that changes a file's deletes removes and adds the file, in either order.
            for gone in (action["remove"] for action in actions if "remove" in action):
                removed[gone["path"]] = None
                if _vector_id(added.get(gone["path"], {})) == _vector_id(gone):
                    added.pop(gone["path"], None)
            added |= {action["add"]["path"]: action["add"] for action in actions if "add" in action}
        if any((add.get("deletionVector") or {}).get("storageType") == "p" for add in added.values()):
            return None  # a vector at an absolute path, which only deltalake reads
        with reading(self.storage.uri_of(commit_path(version)), "of the log of a Delta table"):
            deleted = {
                unquote(path): rows
                for path, add in added.items()
                if (vector := add.pop("deletionVector", None)) and len(rows := positions(self.storage, vector))
            }
        with tempfile.TemporaryDirectory() as folder:
            # deltalake parses the statistics here too, from a log of just these files.
            log = Path(folder) / "_delta_log"
            log.mkdir()
            actions = [*state["head"], *({"add": add} for add in added.values())]
            (log / "00000000000000000000.json").write_text(
                "\n".join(json.dumps(action, ensure_ascii=False) for action in actions), "utf-8"
            )
            try:
                table = DeltaSource(LocalStorage(Path(folder))).table()
            except TableError:  # reading the whole log raises an error that names the damaged file
                return None
            schema = pa.schema(table.schema().to_arrow())
            partition_by = tuple(table.metadata().partition_columns)
            new_state = {**state, "version": version, "mark": self.mark(version)}
            if self.mark(int(state["version"])) != mark:
                return None  # another table has taken its place, and some of these commits are that table's
            gone = tuple(map(unquote, removed))
            return _content(table, schema, partition_by, deleted, gone, new_state)

    def mark(self, version: int) -> str:
        """A fingerprint of a commit, which differs if the table was recreated; empty if the commit is gone."""
        return mark_of(self.storage, commit_path(version))


# --- the log ---


def _require_readable_log(storage: Storage) -> None:
    """Raise `CorruptFile` for the first commit, checkpoint or side-car that is no JSON or Parquet."""
    for name in sorted(storage.names("_delta_log")):
        path = f"_delta_log/{name}"
        with reading(storage.uri_of(path), "of the log of a Delta table"):
            if name.endswith(".json"):
                for line in storage.read(path).splitlines():
                    json.loads(line)
            elif name.endswith(".parquet"):
                pq.read_table(pa.BufferReader(storage.read(path)))


def _actions(commit: bytes) -> list[dict[str, Any]] | None:
    """The actions of a commit that only adds and removes files; None if it does more or cannot be parsed."""
    try:
        actions = [json.loads(line) for line in commit.splitlines() if line.strip()]
    except ValueError:
        return None
    for action in actions:
        if not isinstance(action, dict) or not action.keys() <= {"add", "remove", *_IGNORED}:
            return None
        files = [action[kind] for kind in ("add", "remove") if kind in action]
        if not all(isinstance(file, dict) and isinstance(file.get("path"), str) for file in files):
            return None
    return actions


def _vector_id(action: Mapping[str, Any]) -> tuple[Any, ...]:
    """The identity of an action's deletion vector."""
    vector = action.get("deletionVector") or {}
    return (vector.get("storageType"), vector.get("pathOrInlineDv"), vector.get("offset"))


def _require_features(table: DeltaTable, uri: str) -> None:
    """Raise `UnsupportedFormat` for a protocol with unsupported reader features."""
    protocol = table.protocol()
    unknown = sorted(set(protocol.reader_features or ()) - _FEATURES)
    if unknown or protocol.min_reader_version > 3:
        what = f'the feature "{unknown[0]}"' if unknown else f"reader version {protocol.min_reader_version}"
        raise UnsupportedFormat(
            f"The Delta table at {uri} uses {what}, which zskip does not know and could read wrongly. "
            "Read it with an engine that does."
        )


def _head(table: DeltaTable) -> list[dict[str, Any]]:
    """The actions for the protocol and the metadata, with which a log starts."""
    protocol, metadata = table.protocol(), table.metadata()
    versions: dict[str, Any] = {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
    }
    if protocol.min_reader_version >= 3:
        versions["readerFeatures"] = list(protocol.reader_features or ())
    if protocol.min_writer_version >= 7:
        versions["writerFeatures"] = list(protocol.writer_features or ())
    described = {
        "id": str(metadata.id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": table.schema().to_json(),
        "partitionColumns": list(metadata.partition_columns),
        "configuration": dict(metadata.configuration),
        "createdTime": metadata.created_time,
    }
    return [{"protocol": versions}, {"metaData": described}]


def _deleted_rows_by_file(vectors: pa.Table, uri: str) -> dict[str, np.ndarray]:
    """The numbers of the deleted rows of each file, from deltalake's masks of the live rows."""
    found = {}
    prefix = uri.rstrip("/") + "/"
    for path, selected in zip(vectors.column("filepath"), vectors.column("selection_vector"), strict=True):
        address = unquote(path.as_py().removeprefix("file://"))
        kept = np.asarray(selected.values.to_numpy(zero_copy_only=False), bool)
        found[address.removeprefix(prefix)] = np.flatnonzero(~kept)
    return found


# --- statistics ---


def _content(
    table: DeltaTable,
    schema: pa.Schema,
    partition_by: tuple[str, ...],
    deleted: Mapping[str, np.ndarray],
    removed: tuple[str, ...] | None,
    state: Mapping[str, Any],
) -> Content:
    adds = pa.table(table.get_add_actions(flatten=False)).combine_chunks()
    path = _unquoted(_column(adds, "path", pa.string()).cast(pa.string()))
    rows = _column(adds, "num_records", pa.int64())
    foreign = path.filter(pc.match_substring_regex(path, r"^(/|[A-Za-z][A-Za-z0-9+.-]*:/)"))
    if len(foreign):
        raise UnsupportedFormat(
            f"The Delta table names the file {foreign[0]}, which is outside of its folder, as shallow clones do. "
            "zskip reads tables that hold their own files."
        )
    deletes, live = pa.nulls(len(path), pa.binary()), rows
    if deleted:
        vectors = [deleted.get(name) for name in path.to_pylist()]
        deletes = pa.array([None if vector is None else deleted_rows(vector) for vector in vectors], pa.binary())
        live = pc.subtract(rows, pa.array([0 if vector is None else len(vector) for vector in vectors], pa.int64()))
    columns = dict(_partition_columns(adds, schema, partition_by, live))
    for parts, stored, type in _leaves(schema):
        if parts[0] not in partition_by and is_orderable(type):
            found = _statistics(adds, stored, logical_type(type))
            columns[join_path(parts)] = live_statistics(found, rows, live)
    modified = pc.multiply(_column(adds, "modification_time", pa.int64()), 1_000_000)
    files = content_files(path, _column(adds, "size_bytes", pa.int64()), modified, live, columns, deletes)
    by_id = table.metadata().configuration.get("delta.columnMapping.mode") == "id"
    fields = [plain_field(one, _by_id(one) if by_id else _stored_as(one), _stored_as) for one in schema]
    return Content(Schema(pa.schema(fields)), partition_by, files, removed, state)


def _column(adds: pa.Table, name: str, type: pa.DataType) -> pa.Array:
    if name not in adds.column_names:
        return pa.nulls(len(adds), type)
    column = adds.column(name)
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks)
        if len(column)
        else pa.array([], column.type)
    )


def _unquoted(paths: pa.StringArray) -> pa.StringArray:
    """The percent-encoded paths of the log, decoded."""
    if not pc.any(pc.match_substring(paths, "%")).as_py():
        return paths
    return pa.array(map(unquote, paths.to_pylist()), pa.string())


def _leaves(schema: pa.Schema) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], pa.DataType]]:
    """Each leaf column: its path, its path in the files, and its type."""
    waiting: list[tuple[tuple[str, ...], tuple[str, ...], pa.Field]] = [((), (), one) for one in reversed(schema)]
    while waiting:
        above, stored, one = waiting.pop()
        parts, inner = (*above, one.name), (*stored, _physical(one))
        if t.is_struct(one.type):
            waiting += [(parts, inner, one.type.field(n)) for n in reversed(range(one.type.num_fields))]
        else:
            yield parts, inner, one.type


def _physical(one: pa.Field) -> str:
    return str((one.metadata or {}).get(_PHYSICAL, one.name.encode()), "utf-8")


def _stored_as(one: pa.Field) -> dict[bytes, bytes]:
    name = _physical(one)
    return {STORED_AS: name.encode()} if name != one.name else {}


def _by_id(one: pa.Field) -> dict[bytes, bytes]:
    return {FIELD_ID: (one.metadata or {})[_ID]}


def _partition_columns(
    adds: pa.Table, schema: pa.Schema, partition_by: tuple[str, ...], live: pa.Int64Array
) -> Iterator[tuple[str, ColumnStatistics]]:
    for name in partition_by:
        type = logical_type(schema.field(name).type)
        values = _field(_column(adds, "partition", pa.null()), (name,), type)
        if t.is_string(type):
            # Delta stores NULL as an empty string here.
            values = pc.if_else(pc.equal(values, ""), pa.scalar(None, type), values)
        null = pc.is_null(values)
        exact = pa.array(np.ones(len(adds), bool))
        zeros = pa.array(np.zeros(len(adds), np.int64))
        yield join_path([name]), ColumnStatistics(values, values, pc.if_else(null, live, zeros), zeros, exact, exact)


def _field(values: pa.Array, parts: tuple[str, ...], type: pa.DataType) -> pa.Array:
    """A leaf of nested structs, NULL where a struct above it is NULL; all NULL if there is no such leaf."""
    for part in parts:
        if not t.is_struct(values.type) or (position := values.type.get_field_index(part)) < 0:
            return pa.nulls(len(values), type)
        values = pc.struct_field(values, [position])
    return values if values.type == type else values.cast(type)


def _statistics(adds: pa.Table, stored: tuple[str, ...], type: pa.DataType) -> ColumnStatistics:
    """The log's statistics of a column, over all rows of each file, deleted ones included."""
    lower, upper = (_field(_column(adds, name, pa.null()), stored, type) for name in ("min", "max"))
    exact = pa.array(np.full(len(adds), not (t.is_string(type) or t.is_timestamp(type) or t.is_decimal(type))))
    if t.is_string(type):
        lower, upper = (
            pc.if_else(pc.match_substring_regex(bound, _MISREAD), pa.scalar(None, type), bound)
            for bound in (lower, upper)
        )
    if t.is_timestamp(type):
        # Some writers truncate both bounds to milliseconds.
        upper = pc.add(upper, pa.scalar(999, pa.duration("us"))).cast(type)
    if t.is_decimal(type):
        # delta-rs writes decimals as doubles: larger bounds are not exact.
        limit = pa.scalar(_EXACT_DOUBLES, pa.int64()).cast(pa.float64()).as_py() / 10**type.scale
        lower, upper = (
            pc.if_else(pc.less(pc.abs(bound.cast(pa.float64())), limit), bound, pa.scalar(None, type))
            for bound in (lower, upper)
        )
    nulls = _field(_column(adds, "null_count", pa.null()), stored, pa.int64())
    zeros = pa.array(np.zeros(len(adds), np.int64))
    nans = pa.nulls(len(adds), pa.int64()) if t.is_floating(type) else zeros
    return ColumnStatistics(lower, upper, nulls, nans, exact, exact)
