"""`IcebergSource`: an Iceberg table as a source. pyiceberg reads its snapshots, manifest by manifest.

It also makes the snapshots that replace files of the table, of the same or of changed rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from zskip.core import types as t
from zskip.core.receipts import Version
from zskip.core.schema import Column, Schema
from zskip.errors import (
    CommitConflict,
    CorruptFile,
    InvalidOption,
    MissingDependency,
    SchemaMismatch,
    TableNotFound,
    UnsupportedFormat,
    first_line,
)
from zskip.stats import ColumnStatistics
from zskip.storage import Staged, Storage, open_storage
from zskip.table_formats.iceberg_deletes import deleted_by_file
from zskip.table_formats.iceberg_metadata import (
    METADATA_ENDINGS,
    newest_metadata,
    path_in,
    plain_address,
    read_metadata,
    refuse_type,
)
from zskip.table_formats.source import (
    COMMIT_ATTEMPTS,
    DEFAULT,
    FIELD_ID,
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
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
    from pyiceberg.schema import Schema as IcebergSchema
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from zskip.tablelog.index import Index

_LOCATIONS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
"""Table properties that set folders for new files."""

_PARQUET_ID = b"PARQUET:field_id"
_RUN = "zskip.run"
"""The property of a snapshot that tells which call of zskip has made it."""

_FORM = 2
"""The form of the index's state. Incremented where an index of an earlier zskip would be read wrongly."""


@dataclass(frozen=True)
class IcebergSource:
    """An Iceberg table at one metadata file, and at its current snapshot or at ``fixed``: an id, a ref or a time.

    ``metadata``: the address of the metadata file · ``mark``: its fingerprint · ``table``: pyiceberg's table object, if
    it was opened by one · ``folder``: the table's folder, if some of its files lie outside · ``follows``: whether later
    metadata files in the folder replace this one, as they do if the folder was opened.
    """

    storage: Storage
    metadata: str
    mark: str = ""
    table: Table | None = None
    fixed: int | str | datetime | None = None
    folder: Storage | None = None
    follows: bool = False
    deep: bool = False

    @property
    def format(self) -> str:
        return "iceberg"

    @property
    def home(self) -> Storage:
        return self.folder or self.storage

    @staticmethod
    def newest_in(storage: Storage, fixed: int | str | datetime | None = None) -> IcebergSource | None:
        """The table in a folder, at its newest metadata file; None if there is none."""
        path = newest_metadata(storage)
        if path is None:
            return None
        return replace(IcebergSource.at(storage, storage.uri_of(path), fixed), follows=True)

    @staticmethod
    def at(
        storage: Storage,
        metadata: str,
        fixed: int | str | datetime | None = None,
        table: Table | None = None,
        folder: Storage | None = None,
    ) -> IcebergSource:
        """The table at the metadata file with this address."""
        path = path_in(storage, metadata)
        return IcebergSource(storage, storage.uri_of(path), mark_of(storage, path), table, fixed, folder)

    def after_commit(self) -> IcebergSource:
        """The same table at the new metadata file that a commit through its object has made."""
        if self.table is None:
            return self
        made = IcebergSource.at(self.storage, self.table.metadata_location, None, self.table, self.folder)
        return replace(made, deep=self.deep)

    def opened(self) -> Table:
        """The table, opened by pyiceberg. Raises `TableNotFound`, and `CorruptFile` for a damaged metadata file."""
        if self.table is not None:
            return self.table
        try:
            from pyiceberg.catalog.noop import NoopCatalog
            from pyiceberg.table import StaticTable
        except ImportError as error:
            raise MissingDependency('Iceberg tables need pyiceberg: pip install "zskip[iceberg]"') from error
        from zskip.table_formats.iceberg_io import StorageIO

        io, name = StorageIO(self.storage), "static-table"
        metadata = read_metadata(io, self.metadata)
        return StaticTable((name, self.metadata), metadata, self.metadata, io, NoopCatalog(name))

    # --- following ---

    def newest(self) -> IcebergSource:
        """As `Source.newest`. For a pyiceberg object the catalog is asked; the caller's object is not changed.

        Raises `TableNotFound` if the folder or the catalog no longer has the table.
        """
        if self.fixed is not None:
            return self
        if self.follows:
            found = IcebergSource.newest_in(self.storage)
            if found is None:
                raise TableNotFound(f"The Iceberg table at {self.storage.uri} has no metadata file any more.")
            return replace(found, deep=self.deep)
        if self.table is None:
            return self
        from pyiceberg.exceptions import NoSuchTableError
        from pyiceberg.table import StaticTable

        if isinstance(self.table, StaticTable):
            return self
        try:
            fresh = self.table.catalog.load_table(self.table.name())
        except NoSuchTableError as error:
            raise TableNotFound(f"The catalog has no table {'.'.join(self.table.name())} any more.") from error
        return replace(self, table=fresh).after_commit()

    def is_current(self, state: Mapping[str, Any]) -> bool:
        if isinstance(self.fixed, str | datetime) or state.get("form") != _FORM:
            return False
        return self.fixed is not None or (state["metadata"], state["mark"]) == (self.metadata, self.mark)

    def read(self) -> Content:
        table = self.opened()
        schema = _schema(table, self._columns(table), self.metadata)
        data, deletes = self.manifests(table)
        entries = [entry for manifest in data for entry in manifest_entries(table, manifest)]
        entries.sort(key=lambda entry: entry.sequence_number or 0)  # the oldest first, as of Delta
        sequence_numbers = {entry.data_file.file_path: entry.sequence_number or 0 for entry in entries}
        deleted = deleted_by_file(table, self.storage.uri, sequence_numbers, deletes)
        return self._content(table, schema, entries, deleted, None, data, deletes)

    def _columns(self, table: Table) -> IcebergSchema:
        """The table's schema, or that of the chosen snapshot."""
        snapshot = None if self.fixed is None else self._snapshot(table)
        number = None if snapshot is None else snapshot.schema_id
        return table.schema() if number is None else table.schemas().get(number, table.schema())

    def changes(self, state: Mapping[str, Any]) -> Content | None:
        if self.fixed is not None or state.get("form") != _FORM:
            return None
        table = self.opened()
        data, deletes = self.manifests(table)
        if [one.manifest_path for one in deletes] != state["deletes"] or table.schema().schema_id != state["schema"]:
            return None
        if str(table.metadata.table_uuid) != state.get("table"):
            return None
        known, now = set(state["manifests"]), {one.manifest_path for one in data}
        if deletes and known != now:
            # Which of the known deletes apply to a new file depends on the sequence numbers of both.
            return None
        entries = {
            entry.data_file.file_path: entry
            for manifest in data
            if manifest.manifest_path not in known
            for entry in manifest_entries(table, manifest)
        }
        try:
            before = {
                entry.data_file.file_path
                for path in known - now
                for entry in manifest_entries(table, _manifest(path, state["manifests"][path]))
            }
        except TableNotFound:
            return None  # the table's maintenance has expired the snapshot of these manifests and removed them
        gone = tuple(self._relative(path) for path in before - entries.keys())
        added = [entry for path, entry in entries.items() if path not in before]
        return self._content(table, _schema(table, self._columns(table), self.metadata), added, {}, gone, data, deletes)

    def manifests(self, table: Table) -> tuple[list[ManifestFile], list[ManifestFile]]:
        """The data manifests and the delete manifests of the chosen snapshot."""
        from pyiceberg.manifest import ManifestContent

        snapshot = self._snapshot(table)
        found: list[ManifestFile] = []
        if snapshot is not None:
            with reading(snapshot.manifest_list, "a list of manifests of an Iceberg table"):
                found = snapshot.manifests(table.io)
        deletes = [one for one in found if one.content == ManifestContent.DELETES]
        return [one for one in found if one.content == ManifestContent.DATA], deletes

    def _snapshot(self, table: Table) -> Snapshot | None:
        if self.fixed is None:
            return table.current_snapshot()
        if isinstance(self.fixed, datetime):
            found = table.snapshot_as_of_timestamp(int(self.fixed.timestamp() * 1000))
        elif isinstance(self.fixed, str):
            found = table.snapshot_by_name(self.fixed)
        else:
            found = table.snapshot_by_id(self.fixed)
        if found is None:
            raise TableNotFound(f"The Iceberg table at {self.metadata} has no snapshot {self.fixed}.")
        return found

    def snapshot_id(self, table: Table) -> int:
        """The id of the chosen snapshot; 0 if the table has none."""
        snapshot = self._snapshot(table)
        return 0 if snapshot is None else snapshot.snapshot_id

    # --- commits that replace files ---

    def history(self, limit: int | None) -> list[Version]:
        table = self.opened()
        snapshots = sorted(table.snapshots(), key=lambda one: (one.timestamp_ms, one.sequence_number or 0))
        refs: dict[int, list[str]] = {}
        for name, ref in table.refs().items():
            refs.setdefault(ref.snapshot_id, []).append(name)
        return [_version(one, refs.get(one.snapshot_id, [])) for one in snapshots[::-1][:limit]]

    def require_replaceable(
        self, index: Index, files: np.ndarray, *, rows_change: bool = False, batch: tuple[str, int] | None = None
    ) -> None:
        """Only the newest state of a catalog's table can be changed."""
        from pyiceberg.table import StaticTable

        if batch is not None:
            raise InvalidOption("An Iceberg table does not record batches: batch= is for zskip and Delta tables.")
        if isinstance(self.opened(), StaticTable) or self.fixed is not None:
            raise UnsupportedFormat(
                f"The Iceberg table at {self.metadata} can only be changed through its catalog: give the newest table "
                "that pyiceberg's catalog.load_table(…) returns in place of its path."
            )
        _require_partitions(self.opened(), self.metadata)
        refuse_old_values_of_index(index, files)

    def replace_files(self, new: Replacement) -> Replaced:
        """As `Source.replace_files`. pyiceberg writes the files, with the field ids, bounds and partitions of the
        table, and the id of this call in their names; rows of no file make none.

        Raises also `UnsupportedFormat` for a NULL list of structs.
        """
        from pyiceberg.exceptions import CommitFailedException

        table, run = self.opened(), uuid4()
        written: list[DataFile] = []
        with Staged(partial(_delete, table)) as staged:
            replaced = _live_entries(self, table, new.index.paths(new.gone))
            numbers = itertools.count()
            for part in filter(len, new.rows()):
                made = list(_write_data_files(table, part, run, numbers))
                staged.add(file.file_path for file in made)
                written += made
            for attempt in range(COMMIT_ATTEMPTS):
                for file in written:
                    if not table.io.new_input(file.file_path).exists():
                        raise CommitConflict(f"{file.file_path} was removed, as by a clean-up of orphans.")
                try:
                    _commit(table, replaced, written, run, staged)
                    break
                except CommitFailedException as error:
                    if attempt == COMMIT_ATTEMPTS - 1:
                        raise CommitConflict(
                            f"Other writers came first {COMMIT_ATTEMPTS} times ({first_line(error)})."
                        ) from error
                _refresh(table)
                new = new.again(self.after_commit())
                replaced = _live_entries(self, table, new.index.paths(new.gone))
        after = self.after_commit()
        return Replaced(after, after.snapshot_id(table), [file.file_path for file in written])

    # --- content ---

    def _relative(self, address: str) -> str:
        return path_in(self.storage, address)

    def _content(
        self,
        table: Table,
        schema: Schema,
        entries: Sequence[ManifestEntry],
        deleted: Mapping[str, np.ndarray],
        removed: tuple[str, ...] | None,
        data: Sequence[ManifestFile],
        deletes: Sequence[ManifestFile],
    ) -> Content:
        files = [entry.data_file for entry in entries]
        for file in files:
            if file.file_format.value != "PARQUET":
                raise UnsupportedFormat(f"{file.file_path} is {file.file_format.value}; zskip reads tables of Parquet.")
        path = pa.array([self._relative(file.file_path) for file in files], pa.string())
        if table.properties.get("schema.name-mapping.default"):
            self._require_ids(path.to_pylist())
        rows = pa.array([file.record_count for file in files], pa.int64())
        gone = [deleted.get(file.file_path) for file in files]
        live = pa.array(
            [file.record_count - (0 if one is None else len(one)) for file, one in zip(files, gone, strict=True)],
            pa.int64(),
        )
        vectors = pa.array([None if one is None else deleted_rows(one) for one in gone], pa.binary())
        ids = _ids(self._columns(table))
        columns = {
            column.path: live_statistics(_statistics(files, ids[column.parts], column, len(files)), rows, live)
            for column in schema
            if column.orderable and column.parts in ids
        }
        size = pa.array([file.file_size_in_bytes for file in files], pa.int64())
        state = {
            "source": "iceberg",
            "form": _FORM,
            "version": self.snapshot_id(table),
            "metadata": self.metadata,
            "mark": self.mark,
            "table": str(table.metadata.table_uuid),
            "schema": table.schema().schema_id,
            "manifests": {one.manifest_path: _recorded(one) for one in data},
            "deletes": [one.manifest_path for one in deletes],
        }
        modified = pa.nulls(len(files), pa.int64())
        return Content(schema, (), content_files(path, size, modified, live, columns, vectors), removed, state)

    def _require_ids(self, paths: Iterable[str]) -> None:
        """Raise `UnsupportedFormat` for a file without field ids, whose columns only a name mapping identifies."""
        filesystem = self.storage.filesystem()
        for path in paths:
            with pq.ParquetFile(self.storage.uri_of(path), filesystem=filesystem) as file:
                fields = list(file.schema_arrow)
            if not all(_PARQUET_ID in (one.metadata or {}) for one in fields):
                raise UnsupportedFormat(
                    f"{self.storage.uri_of(path)} has no field ids: it was added to the Iceberg table by the names of "
                    "its columns, which zskip does not follow. Write it into the table by an Iceberg engine."
                )


def _version(snapshot: Snapshot, refs: Sequence[str]) -> Version:
    summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
    operation = "unknown" if snapshot.summary is None else snapshot.summary.operation.value
    names = ("total-data-files", "total-records", "total-files-size")
    files, rows, size = (int(summary[name]) if name in summary else None for name in names)
    if summary.get("total-delete-files", "0") != "0":  # the totals count deleted rows, and the files that delete them
        rows = size = None
    details = {name: value for name, value in summary.items() if not name.startswith("total-")}
    if refs:  # the newest one may be that of another branch than main, which `open` reads
        details["refs"] = ", ".join(sorted(refs))
    committed = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
    return Version(snapshot.snapshot_id, committed, operation, files, rows, size, details)


def of_object(table: Table, chosen: int | str | datetime | None, options: Mapping[str, Any] | None) -> IcebergSource:
    """The table of a pyiceberg object, whose catalog is trusted for the locations of its files."""
    folder = open_storage(plain_address(table.location()), options)
    within = folder.uri.rstrip("/") + "/"
    locations = [table.properties[name] for name in _LOCATIONS if name in table.properties]
    if all((plain_address(each) + "/").startswith(within) for each in (table.metadata_location, *locations)):
        return IcebergSource.at(folder, table.metadata_location, chosen, table)
    root = "/" if folder.local is not None else "/".join(folder.uri.split("/")[:3])
    return IcebergSource.at(open_storage(root, options), table.metadata_location, chosen, table, folder)


def at_address(
    address: str, chosen: int | str | datetime | None, options: Mapping[str, Any] | None
) -> IcebergSource | None:
    """The table in a folder, or that of a metadata file; None if there is none."""
    folder, _, name = address.rstrip("/").rpartition("/")
    if not name.endswith(METADATA_ENDINGS):
        return IcebergSource.newest_in(open_storage(address, options), chosen)
    storage = open_storage(folder.rpartition("/")[0] or ".", options)
    return IcebergSource.at(storage, storage.uri_of(f"{folder.rpartition('/')[2]}/{name}"), chosen)


def manifest_entries(table: Table, manifest: ManifestFile) -> list[ManifestEntry]:
    """The entries of a manifest. Raises `CorruptFile`, and `TableNotFound` if the manifest is gone."""
    with reading(manifest.manifest_path, "a manifest of an Iceberg table"):
        return manifest.fetch_manifest_entry(table.io)


def _recorded(manifest: ManifestFile) -> list[int]:
    """The fields of a manifest that the state records, for `_manifest` to read it after the table has dropped it."""
    return [manifest.manifest_length, manifest.partition_spec_id]


def _manifest(path: str, recorded: Sequence[int]) -> ManifestFile:
    from pyiceberg.manifest import ManifestContent, ManifestFile

    length, spec = recorded
    return ManifestFile.from_args(
        manifest_path=path,
        manifest_length=length,
        partition_spec_id=spec,
        content=ManifestContent.DATA,
        sequence_number=0,
        min_sequence_number=0,
        added_snapshot_id=0,
    )


# --- columns ---


def _schema(table: Table, columns: IcebergSchema, metadata: str) -> Schema:
    """The Arrow schema of these columns, with field ids. Raises `UnsupportedFormat` for unsupported columns."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.schema import index_by_id

    for number, one in index_by_id(columns).items():
        refuse_type(columns.find_column_name(number) or one.name, str(one.field_type), metadata)
    own = _ids(columns)
    if len(set(own.values())) < len(own):
        raise CorruptFile(
            f"{metadata} gives two columns of one schema the same id. Restore it from a copy of the table."
        )
    names: dict[int, str] = {}
    for schema in table.metadata.schemas:
        for parts, number in _ids(schema).items():
            if len(parts) > 1 and names.setdefault(number, parts[-1]) != parts[-1]:
                raise UnsupportedFormat(
                    f'The Iceberg table at {metadata} renamed the nested field "{names[number]}" to "{parts[-1]}". '
                    "zskip follows renames of whole columns."
                )
    _refuse_reused(table)
    arrow = schema_to_pyarrow(columns)
    defaults = {one.field_id: one.initial_default for one in columns.fields if one.initial_default is not None}
    _refuse_defaults(columns, metadata)

    def marks(one: pa.Field) -> dict[bytes, bytes]:
        number = (one.metadata or {})[_PARQUET_ID]
        default = defaults.get(int(number))
        return {FIELD_ID: number} | ({} if default is None else {DEFAULT: str(default).encode()})

    return Schema(pa.schema([plain_field(one, marks(one), _stored_as) for one in arrow]))


def _stored_as(one: pa.Field) -> dict[bytes, bytes]:
    """The name of a nested field in files: most of Iceberg's writers replace its special characters, some do not."""
    from pyiceberg.schema import make_compatible_name

    name = make_compatible_name(one.name)
    return {STORED_AS: f"{name}\0{one.name}".encode()} if name != one.name else {}


def _refuse_defaults(columns: IcebergSchema, metadata: str) -> None:
    """Raise `UnsupportedFormat` for defaults that zskip cannot give to the rows of older files."""
    from pyiceberg.schema import index_by_id
    from pyiceberg.types import BinaryType, FixedType, NestedField

    whole = {one.field_id for one in columns.fields}
    for number, one in index_by_id(columns).items():
        if not isinstance(one, NestedField) or one.initial_default is None:
            continue
        if number not in whole or isinstance(one.field_type, BinaryType | FixedType):
            kind = "a nested field" if number not in whole else f"a column of {one.field_type}"
            raise UnsupportedFormat(
                f'The Iceberg table at {metadata} has a default for "{one.name}", {kind}: zskip reads '
                "defaults of whole columns that are neither binary nor fixed."
            )


def _refuse_reused(table: Table) -> None:
    """Raise `UnsupportedFormat` for a nested field that reuses the name of a dropped one: DuckDB resolves by name."""
    numbers: dict[tuple[int, str], int] = {}
    for schema in table.metadata.schemas:
        every = _ids(schema)
        for parts, number in every.items():
            if len(parts) > 1 and numbers.setdefault((every[parts[:-1]], parts[-1]), number) != number:
                raise UnsupportedFormat(
                    f'The Iceberg table at {table.location()} has a nested field "{parts[-1]}" in the place of a '
                    "dropped one of that name, which zskip cannot tell apart."
                )


def _ids(schema: IcebergSchema) -> dict[tuple[str, ...], int]:
    """The ids of all columns and nested fields, by path."""
    from pyiceberg.types import ListType, MapType, StructType

    found: dict[tuple[str, ...], int] = {}

    def visit(type: Any, above: tuple[str, ...]) -> None:
        if isinstance(type, StructType):
            for one in type.fields:
                found[(*above, one.name)] = one.field_id
                visit(one.field_type, (*above, one.name))
        elif isinstance(type, ListType):
            found[(*above, "element")] = type.element_id
            visit(type.element_type, (*above, "element"))
        elif isinstance(type, MapType):
            for name, number, inner in (
                ("key", type.key_id, type.key_type),
                ("value", type.value_id, type.value_type),
            ):
                found[(*above, name)] = number
                visit(inner, (*above, name))

    visit(schema.as_struct(), ())
    return found


def _statistics(files: Sequence[DataFile], number: int, column: Column, units: int) -> ColumnStatistics:
    """The manifests' statistics of a column, over all rows of each file, deleted ones included."""
    type = column.type
    lower, upper = (
        decoded([(bounds or {}).get(number) for bounds in every], type)
        for every in ([file.lower_bounds for file in files], [file.upper_bounds for file in files])
    )
    nulls = pa.array([(file.null_value_counts or {}).get(number) for file in files], pa.int64())
    zeros = pa.array(np.zeros(units, np.int64))
    nans = pa.array([(file.nan_value_counts or {}).get(number) for file in files], pa.int64())
    may_be_truncated = t.is_string(type) or t.is_binary(type)
    exact = pa.array(np.full(units, not may_be_truncated))
    return ColumnStatistics(lower, upper, nulls, nans if t.is_floating(type) else zeros, exact, exact)


# --- bounds in Iceberg's single-value serialization, decoded a column at a time ---
#
# | type | bytes |
# | --- | --- |
# | int, date · long, time, timestamp | 4 · 8, little-endian; 4 for an int promoted to long |
# | float · double | 4 · 8, little-endian; 4 for a float promoted to double |
# | decimal | the unscaled number, big-endian, in as few bytes as possible |
# | string, binary, fixed | UTF-8 or the bytes themselves |
# | boolean | one byte |
#
# UUIDs are left out: for years Java compared them as two signed numbers, and bounds do not name their writer.


def decoded(bounds: Sequence[bytes | None], type: pa.DataType) -> pa.Array:
    """The bounds as values of a type; null where a bound is missing or is not a value of that type.

    >>> decoded([(7).to_bytes(4, "little"), None], pa.int64()).to_pylist()
    [7, None]
    """
    if t.is_string(type):
        return pa.array([_text(bound) for bound in bounds], pa.string())
    if t.is_binary(type):
        return pa.array(bounds, pa.binary())
    if t.is_decimal(type):
        return pa.array([_decimal(bound, type) for bound in bounds], type)
    if t.is_boolean(type):
        return pa.array([None if bound is None or len(bound) != 1 else bound != b"\x00" for bound in bounds], type)
    if t.is_floating(type):
        return _numbers(bounds, {4: "<f4", 8: "<f8"} if t.is_float64(type) else {4: "<f4"}, type)
    if t.is_int32(type) or t.is_date32(type):
        return _numbers(bounds, {4: "<i4"}, pa.int32()).view(type)
    if t.is_int64(type):
        return _numbers(bounds, {4: "<i4", 8: "<i8"}, type)
    if t.is_time64(type) or t.is_timestamp(type):
        # The 4-byte bounds of a date promoted to timestamp count days: they become null.
        return _numbers(bounds, {8: "<i8"}, pa.int64()).view(type)
    return pa.nulls(len(bounds), type)


def _numbers(bounds: Sequence[bytes | None], forms: dict[int, str], type: pa.DataType) -> pa.Array:
    lengths = np.fromiter((0 if bound is None else len(bound) for bound in bounds), np.int64, len(bounds))
    values = np.zeros(len(bounds), type.to_pandas_dtype())
    for length, form in forms.items():
        of_length = lengths == length
        data = b"".join(bound for bound in bounds if bound is not None and len(bound) == length)
        values[of_length] = np.frombuffer(data, form)
    return pa.array(values, type, mask=~np.isin(lengths, list(forms)))


def _text(bound: bytes | None) -> str | None:
    try:
        return None if bound is None else bound.decode("utf-8")
    except UnicodeDecodeError:
        return None  # truncated within a character


def _decimal(bound: bytes | None, type: pa.Decimal128Type) -> Decimal | None:
    if bound is None:
        return None
    number = int.from_bytes(bound, "big", signed=True)
    return t.decimal_of(number, type.scale) if abs(number) < 10**type.precision else None


# --- commits that replace files ---


def _commit(table: Table, replaced: Sequence[DataFile], written: Sequence[DataFile], run: UUID, staged: Staged) -> None:
    """Replace the files in one snapshot on top of the loaded one, without pyiceberg's retries.

    Raises pyiceberg's CommitFailedException if another writer came first, `CommitConflict` for any other refusal, and
    `UncertainCommit`.
    """
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, ValidationException
    from pyiceberg.table import Table, TableProperties

    # On a retry, pyiceberg would not check whether rows of the replaced files have been deleted since.
    once = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    metadata = table.metadata.model_copy(update={"properties": once})
    tried = Table(table.name(), metadata, table.metadata_location, table.io, table.catalog, table.config)
    name = ".".join(table.name())
    staged.maybe_committed(f"Load the table {name} again: it was made if a snapshot has zskip.run = {run}.")
    try:
        with (
            tried.transaction() as transaction,
            transaction.update_snapshot(snapshot_properties={_RUN: str(run)}).overwrite() as snapshot,
        ):
            for file in replaced:
                snapshot.delete_data_file(file)
            for file in written:
                snapshot.append_data_file(file)
    except (CommitFailedException, ValidationException, NoSuchTableError) as error:
        staged.refused()
        if isinstance(error, CommitFailedException):
            raise
        raise CommitConflict(f"The catalog refuses the commit ({first_line(error)}).") from error
    except Exception as error:
        # The catalog knows: its library also raises after a commit, and after a request whose answer was lost.
        now = _loaded(table)
        if now is None or str(run) not in _runs(now):
            # These come from reading the table before the request; any other request may still arrive.
            if isinstance(error, FileNotFoundError) or _is_recreated(error):
                staged.refused()
                raise CommitConflict(f"The table was changed ({first_line(error)}).") from error
            raise
        tried = now
    staged.committed()
    table.metadata, table.metadata_location = tried.metadata, tried.metadata_location


def _loaded(table: Table) -> Table | None:
    """The table as its catalog has it now; None if the catalog does not answer, or has no such table."""
    with suppress(Exception):
        return table.catalog.load_table(table.name())
    return None


def _runs(table: Table) -> set[str]:
    """The calls of zskip that made snapshots of the table."""
    summaries = [snapshot.summary for snapshot in table.metadata.snapshots if snapshot.summary is not None]
    return {each.additional_properties[_RUN] for each in summaries if _RUN in each.additional_properties}


def _refresh(table: Table) -> None:
    """Load the newest state of the table. Raises `CommitConflict` if it was dropped or recreated."""
    from pyiceberg.exceptions import NoSuchTableError

    try:
        table.refresh()
    except (NoSuchTableError, ValueError) as error:
        if isinstance(error, ValueError) and not _is_recreated(error):
            raise
        raise CommitConflict(f"The table was dropped or recreated ({first_line(error)}).") from error


def _is_recreated(error: BaseException) -> bool:
    """Whether pyiceberg's error means that the table was recreated under its name."""
    return isinstance(error, ValueError) and "UUID does not match" in str(error)


def _live_entries(source: IcebergSource, table: Table, paths: pa.StringArray) -> list[DataFile]:
    """The table's entries for these files. Raises `CommitConflict` if some are no longer live."""
    wanted = set(paths.to_pylist())
    manifests, _ = source.manifests(table)
    live = [entry.data_file for manifest in manifests for entry in manifest_entries(table, manifest)]
    found = [one for one in live if path_in(source.storage, one.file_path) in wanted]
    if len(found) < len(paths):
        raise CommitConflict(f"{source.metadata}: files that were to be replaced are no longer in the table.")
    return found


def _delete(table: Table, paths: Sequence[str]) -> None:
    for path in paths:
        with suppress(OSError):  # an orphan, which Iceberg's clean-up removes
            table.io.delete(path)


def _write_data_files(table: Table, rows: pa.Table, run: UUID, numbers: itertools.count[int]) -> Iterable[DataFile]:
    from pyiceberg.io.pyarrow import _dataframe_to_data_files, schema_to_pyarrow

    _require_lists_kept(table, rows)
    _require_groups(table, rows)
    schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    arranged = pa.Table.from_arrays([_as_stored(rows.column(one.name), one) for one in schema], schema=schema)
    return _dataframe_to_data_files(table.metadata, arranged, table.io, run, numbers)


def _require_partitions(table: Table, metadata: str) -> None:
    """Raise `MissingDependency` or `UnsupportedFormat` if pyiceberg cannot tell the partitions of new rows."""
    from pyiceberg.exceptions import NotInstalledError
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    spec, schema = table.spec(), table.schema()
    if spec.is_unpartitioned():
        return
    by = ", ".join(f"{field.transform}({schema.find_column_name(field.source_id)})" for field in spec.fields)
    try:
        for field in spec.fields:
            source = schema.find_type(field.source_id)
            values = field.transform.pyarrow_transform(source)(pa.nulls(0, schema_to_pyarrow(source)))
            pa.table([values], ["partition"]).group_by("partition").aggregate([])  # as pyiceberg divides rows
    except NotInstalledError as error:
        raise MissingDependency(
            f"The Iceberg table at {metadata} is partitioned by {by}. To write such partitions, pyiceberg needs "
            'pyiceberg-core: pip install "pyiceberg[pyiceberg-core]"'
        ) from error
    except (ValueError, NotImplementedError) as error:
        raise UnsupportedFormat(
            f"The Iceberg table at {metadata} is partitioned by {by}, which pyiceberg cannot write "
            f"({first_line(error)}). Change the table with another library."
        ) from error


def _require_groups(table: Table, rows: pa.Table) -> None:
    """Raise `UnsupportedFormat` for numbers that partition the rows and of which pyiceberg would lose or double some.

    It groups rows by the bits of a number and takes those of a group by "=": none for NaN, and for 0.0 those of -0.0,
    too.
    """
    schema = Schema(rows.schema)
    for field in table.spec().fields:
        name = table.schema().find_column_name(field.source_id)
        column = next(column for column in schema if ".".join(column.parts) == name)
        if t.is_floating(column.type) and str(field.transform) == "identity":
            values = np.asarray(column.of(rows).drop_null())
            signs = np.signbit(values[values == 0])
            if np.isnan(values).any() or (signs.any() and not signs.all()):
                raise UnsupportedFormat(
                    f'The column "{name}", by which the Iceberg table {".".join(table.name())} is partitioned, holds '
                    "NaN, or both 0.0 and -0.0: pyiceberg would lose or double such rows. Change the table with "
                    "another library."
                )


def _as_stored(values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """The values in the type of a field. Raises `SchemaMismatch`, as for bytes of another width."""
    try:
        return values.cast(field.type)
    except pa.ArrowInvalid as error:
        raise SchemaMismatch(f'A value of the column "{field.name}" does not fit {field.type}: {error}') from error


def _require_lists_kept(table: Table, rows: pa.Table) -> None:
    """Raise `UnsupportedFormat` if a list of structs is NULL: pyiceberg writes it as an empty list."""
    for name, values in zip(rows.column_names, rows.columns, strict=True):
        if any(map(_has_null_list_of_structs, values.chunks)):
            raise UnsupportedFormat(
                f'A list of structs in the column "{name}" of the Iceberg table {".".join(table.name())} is NULL: '
                "pyiceberg would write an empty list in its place. Change the table with another library."
            )


def _has_null_list_of_structs(values: pa.Array) -> bool:
    type = values.type
    if t.is_struct(type):
        return any(map(_has_null_list_of_structs, values.drop_null().flatten()))
    if t.is_map(type):
        entries = values.drop_null()
        return any(map(_has_null_list_of_structs, (entries.keys, entries.items)))
    if not t.is_list(type) and not t.is_large_list(type) and not t.is_fixed_size_list(type):
        return False
    return bool(t.is_struct(type.value_type) and values.null_count) or _has_null_list_of_structs(values.flatten())
