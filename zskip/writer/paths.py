"""The rows of files given by path: Parquet by row group, CSV and JSON through DuckDB, zskip tables by snapshot."""

from __future__ import annotations

import glob
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from zskip.core import types as t
from zskip.core.schema import identifier
from zskip.errors import CorruptFile, InvalidOption, NoParquet, TableNotFound, UnsafePath
from zskip.parquet.arrow_differences import (
    geo_metadata,
    holds_int96,
    is_damage,
    open_parquet,
    with_instants_of_all,
    with_parquet_types,
)
from zskip.parquet.legacy_calendar import refuse_old_values
from zskip.storage import Storage, hive, open_storage
from zskip.storage.local import absolute
from zskip.storage.secrets import refuse_secrets, without_secrets
from zskip.storage.storage import PARQUET_ENDINGS
from zskip.tablelog.freshness import listed
from zskip.tablelog.index import Index
from zskip.tablelog.log import load
from zskip.tablelog.table_folders import refuse_files_of_tables
from zskip.writer import row_source
from zskip.writer.evolution import united
from zskip.writer.row_source import Part, RowSource
from zskip.writer.storable import (
    compact_strings,
    refuse_variants_of_file,
    storable_rows,
    storable_schema,
    with_encoded,
)

KINDS = {
    **dict.fromkeys(PARQUET_ENDINGS, "parquet"),
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_COMPRESSED = (".gz", ".zst")
_NO_SOURCE = (
    'There is no zskip table, and no Parquet, CSV or JSON file, at "{}". Name one, or a folder or glob of them.'
)


@dataclass(frozen=True, slots=True)
class _File:
    """A file to read.

    ``name``: its path or address · ``relative``: its path relative to the folder or the storage · ``partition``: the
    types of its partition columns, if a table defines them · ``folder``: that folder, relative to the one that all
    given paths share.
    """

    name: str
    relative: str
    storage: Storage | None = None
    partition: pa.Schema | None = None
    folder: str = ""

    @property
    def hive_path(self) -> str:
        """The path whose folders may give it columns: raw/day=1/x and raw/day=2/y have days, as has the folder raw."""
        return f"{self.folder}/{self.relative}" if self.partition is None else self.relative

    def opened(self) -> Any:
        """The path or file object to pass to pyarrow."""
        if self.storage is None:
            return self.name
        return self.storage.filesystem().open(self.storage.uri_of(self.relative))


def open_paths(paths: Sequence[str], storage_options: Mapping[str, Any] | None = None) -> RowSource:
    """The rows of files, in the order of the paths; within a glob or folder, in the order of names.

    Raises `NoParquet` if there is no file to read, `CorruptFile` for a file that cannot be read, and `ForeignTable` for
    files of Delta, Iceberg or Hudi tables, which without the table's log would yield deleted rows.
    """
    folders, found = zip(*(_expanded(path, storage_options) for path in paths), strict=True)
    if not any(found):  # tables without a file
        table = load(open_storage(os.path.expanduser(paths[0]), storage_options))
        return row_source.of_table(t.empty_table(table.schema.arrow))
    same_store = len({"://" in folder for folder in folders}) == 1
    shared = os.path.commonpath(folders) if same_store else None
    files = [
        file if shared is None else replace(file, folder=os.path.relpath(folder, shared))
        for folder, each in zip(folders, found, strict=True)
        for file in each
    ]
    kinds = sorted({KINDS.get(_ending(file.name), "parquet") for file in files})
    if len(kinds) > 1:
        raise InvalidOption(f"The paths mix {' and '.join(kinds)} files; write them one kind after another.")
    return _of_parquet(files) if kinds == ["parquet"] else _of_text(files, kinds[0])


def is_folder(path: str) -> bool:
    """Whether a path is a folder. A URL may be one if it is not a glob and has no known file ending."""
    if "://" in path:
        return not glob.has_magic(path) and not _has_known_ending(path)
    return os.path.isdir(path)


def _ending(name: str) -> str:
    """A file name's ending in lower case, without that of a compression."""
    stem, ending = os.path.splitext(name.lower())
    return os.path.splitext(stem)[1] if ending in _COMPRESSED else ending


def _expanded(path: str, storage_options: Mapping[str, Any] | None) -> tuple[str, list[_File]]:
    """The folder and the files of a path, glob, folder or URL; for a table that zskip wrote, of its newest snapshot.

    The folder is an absolute path or a URL; of a glob it is the part without signs.
    """
    if "://" in path:
        return _remote(path, storage_options)
    refuse_secrets(path)
    path = os.path.expanduser(path)
    if os.path.isdir(os.path.join(path, "_zskip")):
        return absolute(path), _of_snapshot(path, storage_options)
    if os.path.isdir(path):
        folder, names = path, [*_files_below(path)]
    elif os.path.isfile(path):
        folder, names = os.path.dirname(path), [path]
    else:
        folder = os.path.join("", *takewhile(lambda part: not glob.has_magic(part), Path(path).parts))
        names = [name for name in sorted(glob.glob(path, recursive=True)) if os.path.isfile(name)]
    files = [_File(name, os.path.relpath(name, folder or ".")) for name in names]
    for file in files:
        if any("\ud800" <= letter <= "\udfff" for letter in file.name):
            raise UnsafePath(f"The name {os.fsencode(file.name)!r} of a file is not UTF-8. Rename the file.")
    if not files:
        raise NoParquet(_NO_SOURCE.format(path))
    placed = [os.path.splitdrive(absolute(file.name)) for file in files]
    for drive in {drive for drive, _ in placed}:
        names = [name.replace(os.sep, "/").lstrip("/") for one, name in placed if one == drive]
        refuse_files_of_tables(open_storage(drive + os.sep), pa.array(names, pa.string()))
    return absolute(folder or "."), files


def _files_below(folder: str) -> Iterator[str]:
    """The paths of the visible files of known kinds below a folder, sorted folder by folder.

    Raises `UnsafePath` for a link to a folder, whose rows may be those of another folder once more.
    """
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name[0] not in "._")
        for link in (os.path.join(parent, name) for name in folders if os.path.islink(os.path.join(parent, name))):
            raise UnsafePath(f'"{link}" is a link to a folder. Remove it, or give the paths of the files themselves.')
        for name in sorted(names):
            path = os.path.join(parent, name)
            if name[0] not in "._" and _has_known_ending(name) and os.path.isfile(path):
                yield path


def _has_known_ending(name: str) -> bool:
    return _ending(name) in KINDS


def _remote(url: str, storage_options: Mapping[str, Any] | None) -> tuple[str, list[_File]]:
    """The folder and the files of a URL, which may be a glob, a folder, a file or a zskip table."""
    from fsspec.utils import glob_translate

    scheme, _, rest = url.partition("://")
    segments = rest.split("/")
    fixed = next((index for index, segment in enumerate(segments) if glob.has_magic(segment)), len(segments))
    if fixed == len(segments):
        if open_storage(url, storage_options).list("_zskip"):
            return url, _of_snapshot(url, storage_options)
        fixed = fixed if not _has_known_ending(segments[-1]) else fixed - 1
    root = f"{scheme}://{'/'.join(segments[:fixed])}"
    storage = open_storage(root, storage_options)
    pattern = "/".join(segments[fixed:])
    names = storage.list("", hidden=False).path.to_pylist()
    fits = re.compile(glob_translate(pattern)).match if pattern else _has_known_ending
    chosen = list(filter(fits, names))
    if not chosen:
        raise NoParquet(_NO_SOURCE.format(without_secrets(url)))
    refuse_files_of_tables(storage, pa.array(chosen, pa.string()))
    return root, [_File(storage.uri_of(name), name, storage) for name in chosen]


def rows_of_files(storage: Storage, schema: pa.Schema, partition_by: Sequence[str], paths: Sequence[str]) -> RowSource:
    """The rows of some files in a table's folder, in the order of the paths, with the table's columns and types."""
    if not paths:
        return row_source.of_table(t.empty_table(schema))
    partition = pa.schema([schema.field(name) for name in partition_by])
    files = _of_parquet(
        [_File(storage.uri_of(path), path, None if storage.local else storage, partition) for path in paths]
    )

    def parts(columns: Sequence[str] | None) -> Iterator[Part]:
        wanted = schema.names if columns is None else list(columns)
        kept = pa.schema([schema.field(name) for name in wanted])
        stored = [name for name in wanted if name in files.schema.names]
        encoded = [field.name for field in kept if field.name in files.encoded and t.is_string(field.type)]
        transit = with_encoded(kept, encoded)
        for part in files.parts(stored):
            yield lambda part=part: storable_rows(part(), transit)  # type: ignore[misc]  # a default binds

    return RowSource(schema, files.row_count, True, parts, encoded=files.encoded)


def _of_snapshot(url: str, storage_options: Mapping[str, Any] | None) -> list[_File]:
    storage = open_storage(url, storage_options)
    snapshot = load(storage)
    index = Index(storage, snapshot)
    changes = listed(index)  # other programs add files to a folder that is only indexed
    names = (index.paths(np.arange(len(index))) if changes is None else changes.listing.path).to_pylist()
    partition = pa.schema([snapshot.schema.arrow.field(name) for name in snapshot.partition_by])
    return [_File(storage.uri_of(name), name, None if storage.local else storage, partition) for name in names]


def _of_parquet(files: Sequence[_File]) -> RowSource:
    """The rows of Parquet files by row group. Their schemas may differ as far as schema evolution allows."""
    if len(files) > 1:
        with ThreadPoolExecutor(8) as pool:
            read_footers = list(pool.map(_footer, files))
    else:
        read_footers = [*map(_footer, files)]
    footers = [footer for footer, _ in read_footers]
    folders = _folder_values(files)
    for file, (footer, schema) in zip(files, read_footers, strict=True):
        refuse_variants_of_file(schema, footer.schema, file.name)
    try:
        own = [with_parquet_types(schema, footer) for footer, schema in read_footers]
        int96 = {each: footer.schema for each, footer in zip(own, footers, strict=True) if holds_int96(footer.schema)}
        schemas = [
            (file.name, storable_schema(_with_folders(with_instants_of_all(schema, int96.items()), values)))
            for file, schema, values in zip(files, own, folders, strict=True)
        ]
    except pa.ArrowException as error:
        raise CorruptFile(f"Arrow cannot read the schema of a footer: {error}") from error
    schema = united(schemas).with_metadata(geo_metadata(own) or None)
    encoded = compact_strings(footers, schema)
    opened = threading.local()

    def read(number: int, group: int, columns: Sequence[str] | None) -> pa.Table:
        file, footer = files[number], footers[number]
        # One reader per thread and file: threads cannot share a reader, and opening one is cheap compared with reading.
        if getattr(opened, "number", None) != number:
            # pyarrow raises a KeyError for a name that the file lacks.
            present = [name for name in encoded if name in read_footers[number][1].names]
            opened.number, opened.reader = (
                number,
                open_parquet(file.opened(), metadata=footer, pre_buffer=bool(file.storage), read_dictionary=present),
            )
        wanted = schema.names if columns is None else list(columns)
        # A folder's value overrides a column of the same name in its files, as in an indexed folder.
        stored = [name for name in read_footers[number][1].names if name in set(wanted) - set(folders[number])]
        try:
            rows = opened.reader.read_row_group(group, columns=stored, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            if not is_damage(error):
                raise
            raise CorruptFile(f'"{file.name}" cannot be read as Parquet: {error}') from error
        for name, value in folders[number].items():
            if name in wanted:
                rows = rows.append_column(name, pa.repeat(value, footer.row_group(group).num_rows))
        return storable_rows(rows, with_encoded(pa.schema([schema.field(name) for name in wanted]), encoded))

    def parts(columns: Sequence[str] | None) -> Iterator[Part]:
        for number, footer in enumerate(footers):
            for group in range(footer.num_row_groups):
                yield lambda number=number, group=group: read(number, group, columns)  # type: ignore[misc]  # defaults bind

    return RowSource(schema, sum(footer.num_rows for footer in footers), True, parts, encoded=frozenset(encoded))


def _footer(file: _File) -> tuple[pq.FileMetaData, pa.Schema]:
    """A file's footer and its Arrow schema.

    Raises `CorruptFile`, `TableNotFound` for a file that is gone, and `SchemaError` for old dates of a legacy calendar.
    """
    try:
        with open_parquet(file.opened()) as parquet:
            refuse_old_values(parquet, file.name)
            return parquet.metadata, parquet.schema_arrow
    except FileNotFoundError as error:
        raise TableNotFound(
            f'"{file.name}" is gone. Put it back, or restore a version whose files are there.'
        ) from error
    except (pa.ArrowException, OSError) as error:
        if not is_damage(error):
            raise
        raise CorruptFile(f'"{file.name}" is not a complete Parquet file: {error}') from error


def _folder_values(files: Sequence[_File]) -> list[dict[str, pa.Scalar]]:
    """The partition values of each file, from the names of its folders; their types are a table's, or inferred."""
    texts = [hive.texts_of(file.hive_path) for file in files]
    names = {name: None for given in texts for name in given}
    types = {name: hive.inferred_type(pa.array([given.get(name) for given in texts], pa.string())) for name in names}
    partition = files[0].partition
    if partition is not None:
        types = {field.name: field.type for field in partition}
    return [
        hive.partition_values(file.hive_path, {name: type for name, type in types.items() if name in given})
        for file, given in zip(files, texts, strict=True)
    ]


def _with_folders(schema: pa.Schema, values: Mapping[str, pa.Scalar]) -> pa.Schema:
    for name, value in values.items():
        field = pa.field(name, value.type)
        schema = schema.set(schema.names.index(name), field) if name in schema.names else schema.append(field)
    return schema


def _of_text(files: Sequence[_File], kind: str) -> RowSource:
    """The rows of CSV or JSON files through DuckDB, which infers types and reads lazily."""
    import duckdb

    names = [file.name for file in files]

    def query(columns: Sequence[str] | None) -> pa.RecordBatchReader:
        connection = duckdb.connect(config={"threads": 2})
        connection.execute("SET TimeZone = 'UTC'")
        for storage in {id(file.storage): file.storage for file in files if file.storage}.values():
            connection.register_filesystem(storage.filesystem())
        chosen = "*" if columns is None else ", ".join(map(identifier, columns))
        try:
            rows = connection.sql(f"SELECT {chosen} FROM read_{kind}_auto($files)", params={"files": names})
            return rows.to_arrow_reader(row_source.PART_ROWS)
        except duckdb.Error as error:
            raise CorruptFile(f'"{names[0]}" cannot be read as {kind.upper()}: {error}') from error

    return row_source.of_streams(storable_schema(query(None).schema), query)


# The names of data files, which say to which layout group a file belongs. part-000007-0f3a…c2.parquet file 7 of the
# write (run) 0f3a…c2, which is its layout group part-000007-9b21…77-3-in-0f3a…c2.parquet what the write 9b21…77 made
# of it in place: the group stays

_NAME = (
    r"(?:^|/)part-(?P<number>\d+)(?:_\d+)?-(?P<run>[0-9a-f]{16})(?:-\d+)*(?:-in-(?P<group>[0-9a-f]{16}))?"
    r"\.(?:parquet|pq)$"
)


def folders_of(paths: pa.StringArray) -> NDArray[np.int64]:
    """The number of each file's folder."""
    folder = pc.replace_substring_regex(paths, r"[^/]*$", "")
    return np.asarray(pc.dictionary_encode(folder).indices, np.int64)


def groups_of(paths: pa.StringArray) -> NDArray[np.int64]:
    """The number of each file's layout group. Groups do not span folders; a file of another writer is its own.

    >>> names = ["part-000000-00000000000000aa.parquet", "part-000001-00000000000000bb-in-00000000000000aa.parquet"]
    >>> groups_of(pa.array([*names, "x.parquet", "day=1/" + names[0]])).tolist()
    [0, 0, 1, 2]
    """
    parts = pc.extract_regex(paths, _NAME)
    group, run = pc.struct_field(parts, "group"), pc.struct_field(parts, "run")
    folder = pc.replace_substring_regex(paths, r"[^/]*$", "")
    name = pc.binary_join_element_wise(folder, pc.if_else(pc.equal(group, ""), run, group), "")
    return np.asarray(pc.dictionary_encode(pc.coalesce(name, paths)).indices, np.int64)


def in_place(path: str, run: str, number: int) -> str:
    """The name, without folder and ending, of the file that replaces another one in place.

    >>> in_place("day=1/part-000007-00000000000000aa.parquet", "00000000000000bb", 3)
    'part-000007-00000000000000bb-3-in-00000000000000aa'
    """
    match = re.search(_NAME, path)
    if match is None:
        return f"part-{number:06d}-{run}"
    return f"part-{match['number']}-{run}-{number}-in-{match['group'] or match['run']}"
