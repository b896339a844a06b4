"""`DeltaSource`: a Delta table as a source. deltalake reads the whole log once; later commits are read one by one.

It also makes the commits that replace files of the table, of the same or of changed rows.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zskip.core import types as t
from zskip.core.receipts import Version
from zskip.core.schema import Schema, join_path
from zskip.core.types import is_orderable, logical_type
from zskip.errors import (
    CommitConflict,
    CorruptFile,
    InvalidOption,
    MissingDependency,
    TableError,
    TableNotFound,
    UncertainCommit,
    UnsupportedFormat,
    first_line,
)
from zskip.stats import ColumnStatistics, DataFiles
from zskip.stats.collect import shortened
from zskip.storage import Staged, Storage, hive, open_storage
from zskip.storage.local import LocalStorage
from zskip.table_formats.source import (
    COMMIT_ATTEMPTS,
    FIELD_ID,
    RESTORE,
    STORED_AS,
    Content,
    Replaced,
    Replacement,
    content_files,
    deleted_rows,
    live_statistics,
    mark_of,
    plain_field,
    reading,
    refuse_old_values_of_index,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from zskip.tablelog.index import Index

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
    """A Delta table at its newest version, or at ``fixed``: a version or a time. ``options``: deltalake's · ``deep``:
    as in `Source`."""

    storage: Storage
    options: Mapping[str, str] = field(default_factory=dict)
    fixed: int | datetime | None = None
    deep: bool = False

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
        info = self._commit_info(version) if self.storage.exists(commit_path(version)) else {}
        return _milliseconds(info)

    def _commit_info(self, version: int) -> dict[str, Any]:
        """What a commit records of itself."""
        with reading(self.storage.uri_of(commit_path(version)), "a commit of a Delta table"):
            lines = self.storage.read(commit_path(version)).splitlines()
            infos = (json.loads(line).get("commitInfo") for line in lines if line.strip())
            return next(filter(None, infos), {})

    def history(self, limit: int | None) -> list[Version]:
        # Not by deltalake, whose history() counts versions wrongly where a commit records nothing of itself.
        commits = sorted(name for name in self.storage.names("_delta_log") if re.fullmatch(r"\d{20}\.json", name))
        return [self._version(int(name[:20])) for name in commits[::-1][:limit]]

    def _version(self, version: int) -> Version:
        info = self._commit_info(version)
        if (milliseconds := _milliseconds(info)) is None:
            milliseconds = self.storage.size_and_modified([commit_path(version)]).modified[0].as_py() // 1_000_000
        details = {**(info.get("operationParameters") or {}), **(info.get("operationMetrics") or {})}
        if info.get("userMetadata"):
            details["userMetadata"] = info["userMetadata"]
        committed = datetime.fromtimestamp(milliseconds / 1000, UTC)
        return Version(version, committed, info.get("operation", "unknown"), None, None, None, details)

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
                "one_spelling": True,
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
            # A commit may remove a file and add it again, in either order.
            for gone in (action["remove"] for action in actions if "remove" in action):
                if not state.get("one_spelling") or not re.fullmatch(_ONE_SPELLING, gone["path"], re.ASCII):
                    return None  # the log may have another spelling, and then the file stays
                removed[gone["path"]] = None
                added.pop(gone["path"], None)
            added |= {action["add"]["path"]: action["add"] for action in actions if "add" in action}
        if len(set(map(unquote, added))) < len(added):
            return None  # one file under two spellings is read twice
        # deltalake parses the statistics here too, from a log of just these files.
        with _log_of([*state["head"], *({"add": add} for add in added.values())]) as log:
            try:
                table = log.table()
            except TableError:  # reading the whole log raises an error that names the damaged file
                return None
            schema = pa.schema(table.schema().to_arrow())
            partition_by = tuple(table.metadata().partition_columns)
            new_state = {**state, "version": version, "mark": self.mark(version)}
            if self.mark(int(state["version"])) != mark:
                return None  # another table has taken its place, and some of these commits are that table's
            gone = tuple(removed)
            return _content(table, schema, partition_by, {}, gone, new_state)

    def require_replaceable(
        self, index: Index, files: np.ndarray, *, rows_change: bool = False, batch: tuple[str, int] | None = None
    ) -> None:
        uri = self.storage.uri
        if self.fixed is not None:
            raise UnsupportedFormat(f"An older version of the Delta table at {uri} cannot be changed: open its newest.")
        table = self.table()
        unknown = sorted(set(table.protocol().writer_features or ()) - _WRITER_FEATURES)
        # Writer version 5 implies the feature without naming it, and until a column is renamed no name shows it.
        mapped = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
        if mapped or unknown:
            what = "columnMapping" if mapped else unknown[0]
            raise UnsupportedFormat(
                f'The Delta table at {uri} uses the feature "{what}", for which deltalake cannot write files. '
                "Change it with the engine that wrote it."
            )
        if index.deletes(files).null_count < len(files):
            raise UnsupportedFormat(
                f"Files of the Delta table at {uri} have deletion vectors, which deltalake cannot remove with their "
                "files. Purge them first (REORG TABLE … APPLY (PURGE)), or leave them out with where=."
            )
        for name in index.snapshot.partition_by:
            type = index.snapshot.schema.arrow.field(name).type
            if not any(holds(type) for holds in _PARTITION_TYPES):
                raise UnsupportedFormat(
                    f'The Delta table at {uri} is partitioned by "{name}", a {type}: zskip lays out '
                    "partitions by texts, integers, dates and booleans."
                )
        refuse_old_values_of_index(index, files)
        if rows_change:
            self._require_changeable(table)
        if len(files) and not index.snapshot.details.get("one_spelling"):
            self._require_spelling(table, index.paths(files).to_pylist())

    def _require_spelling(self, table: DeltaTable, paths: Sequence[str]) -> None:
        """Raise `UnsupportedFormat` for a file whose path deltalake would write into its removal otherwise than the log
        spells it: readers would keep the file beside the one that takes its place."""
        from deltalake.transaction import RemoveAction

        gone = set(paths)
        with _log_of(_head(table)) as log:
            partition_by = table.metadata().partition_columns
            log.table().create_write_transaction(
                [RemoveAction(path, False, 0) for path in paths], "append", table.schema(), partition_by
            )
            lines = map(json.loads, log.storage.read(commit_path(1)).splitlines())
            written = {action["remove"]["path"] for action in lines if "remove" in action}
        for path in pa.table(table.get_add_actions())["path"].to_pylist():
            if unquote(path) in gone and path not in written:
                raise UnsupportedFormat(
                    f'The log of the Delta table at {self.storage.uri} spells the path of a file "{path}", '
                    "which deltalake would write otherwise, and so not remove. Change the table with the engine that "
                    "wrote it."
                )

    def _require_changeable(self, table: DeltaTable) -> None:
        """Raise `UnsupportedFormat` if changing rows needs more than to replace their files."""
        properties = table.metadata().configuration
        asked = [name for name in ("delta.appendOnly", "delta.enableChangeDataFeed") if properties.get(name) == "true"]
        asked += [name for name in properties if name.startswith("delta.constraints.")]
        text = table.schema().to_json()
        asked += [mark for mark in _CHECKED if f'"{mark}' in text]
        if asked:
            raise UnsupportedFormat(
                f'The Delta table at {self.storage.uri} has "{asked[0]}", which zskip does not apply to changed rows. '
                "Change them with a library of Delta."
            )

    def replace_files(self, new: Replacement) -> Replaced | None:
        if new.batch is not None and self._has_batch(new.batch):
            return None
        with Staged(self._take_back) as staged:
            files = new.write(self.storage, staged)
            for attempt in range(COMMIT_ATTEMPTS):
                try:
                    return Replaced(self, _commit(self, new, files, staged), files.path.to_pylist())
                except CommitConflict:
                    # The batch may be what others have committed: whoever has it must ask again.
                    if new.batch is not None or attempt == COMMIT_ATTEMPTS - 1:
                        raise
                new = new.again(self)
        raise AssertionError

    def _take_back(self, paths: Sequence[str]) -> None:
        """Remove new files, and the folder that they made anew if the table was removed meanwhile."""
        self.storage.delete(paths)
        if next(log_versions(self.storage), None) is None:
            self.storage.remove_empty("")

    def _has_batch(self, batch: tuple[str, int]) -> bool:
        """Whether the table has this batch of an application, or a later one."""
        known = self.table().transaction_version(batch[0])
        return known is not None and known >= batch[1]

    def mark(self, version: int) -> str:
        """A fingerprint of a commit, which differs if the table was recreated; empty if the commit is gone."""
        return mark_of(self.storage, commit_path(version))


def _milliseconds(info: Mapping[str, Any]) -> int | None:
    """The time of a commit by what it records of itself, since the epoch."""
    return cast("int | None", info.get("inCommitTimestamp", info.get("timestamp")))


def of_object(table: DeltaTable, chosen: int | str | datetime | None, options: Mapping[str, Any] | None) -> DeltaSource:
    """The table of an object of deltalake, at its version unless another one is chosen."""
    storage = open_storage(table.table_uri, options)
    version = table.version()
    # Any later one counts: log clean-up may have removed the next commit.
    pinned = version if chosen is None and any(other > version for other in log_versions(storage)) else chosen
    return DeltaSource(storage, _deltalake_options(options), _fixed(pinned))


def at_address(
    address: str, chosen: int | str | datetime | None, options: Mapping[str, Any] | None
) -> DeltaSource | None:
    """The table in a folder; None if there is none."""
    storage = open_storage(address, options)
    return DeltaSource(storage, _deltalake_options(options), _fixed(chosen)) if is_delta(storage) else None


def _fixed(chosen: int | str | datetime | None) -> int | datetime | None:
    if isinstance(chosen, str):
        raise InvalidOption(f"A version of a Delta table is a whole number, not {chosen!r}.")
    return chosen


def _deltalake_options(options: Mapping[str, Any] | None) -> dict[str, str]:
    """The storage options for deltalake, which passes them to the same library as zskip, but as strings."""
    found: dict[str, str] = {}
    for name, value in (options or {}).items():
        if name == "client_options":
            found |= _deltalake_options(value)
        elif name not in ("retry_config", "credential_provider"):
            found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


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


# Readers compare the paths of a log as they are spelled. These have no other spelling, encoded or not.
_ONE_SPELLING = r"^[\w./=-]*$"


@contextmanager
def _log_of(actions: Sequence[dict[str, Any]]) -> Iterator[DeltaSource]:
    """A table whose log has these actions alone, in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, commit_path(0))
        log.parent.mkdir()
        log.write_text("\n".join(json.dumps(action, ensure_ascii=False) for action in actions), "utf-8")
        yield DeltaSource(LocalStorage(Path(folder)))


def _actions(commit: bytes) -> list[dict[str, Any]] | None:
    """The actions of a commit that only adds and removes whole files; None if it does more or cannot be parsed.

    Deletion vectors are left to deltalake, which reads them with the whole log.
    """
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
        if any(file.get("deletionVector") for file in files):
            return None
    return actions


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
    # The newest comes first. Rows mostly ascend with time, and the first rows in an ascending order are asked for most.
    adds = adds.sort_by([("modification_time", "ascending"), ("path", "ascending")])
    spelled = _column(adds, "path", pa.string()).cast(pa.string())
    others = pc.any(pc.invert(pc.match_substring_regex(spelled, _ONE_SPELLING))).as_py()
    state = {**state, "one_spelling": bool(state.get("one_spelling")) and not others}
    path = _unquoted(spelled)
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
    return adds.column(name).combine_chunks()


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


# --- commits that replace files ---


def _commit(source: DeltaSource, new: Replacement, files: DataFiles, staged: Staged) -> int:
    """Replace files by ``files``, in a commit on the version of the index. Returns the new version.

    The folders of the new files name their partition values. Raises `CommitConflict`, with the same rows as before, if
    the table has a newer version, was recreated, or a vacuum removed the files; and `UncertainCommit`.
    """
    from deltalake import CommitProperties, Transaction
    from deltalake.transaction import AddAction, RemoveAction

    index, uri, state = new.index, source.storage.uri, new.index.snapshot.details
    version, run = int(state["version"]), uuid4().hex
    table = replace(source, fixed=version).table()
    now = int(time.time() * 1000)
    stats = _stats(files, index.snapshot.schema, index.snapshot.partition_by)
    changed = new.changes is not None
    adds = [
        AddAction(path, size, _partition_values(path, index.snapshot.partition_by), now, changed, text)
        for path, size, text in zip(files.path.to_pylist(), files.size.to_pylist(), stats, strict=True)
    ]
    removes = [RemoveAction(path, changed, now) for path in index.paths(new.gone).to_pylist()]
    _require_base(source, state)
    _require_files(source, files)
    # deltalake names every such commit a WRITE: the note has the verb.
    note = {
        "writtenBy": "zskip",
        "run": run,
        "userMetadata": new.changes or "OPTIMIZE by zskip.cluster: no row changed",
    }
    transactions = [] if new.batch is None else [Transaction(*new.batch)]
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
        short = shortened(known, _LONGEST_TEXT)
        lower, upper = short.lower, short.upper
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
