"""The deleted rows of an Iceberg table: position deletes in Parquet files, and deletion vectors in Puffin files."""

from __future__ import annotations

import io as buffers
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from zskip.errors import CorruptFile, MissingDependency, UnsupportedFormat
from zskip.table_formats.source import RESTORE, reading

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
    from pyiceberg.table import Table


class _Entry(NamedTuple):
    """A live entry of a delete manifest.

    ``target``, ``start``, ``size``: of a deletion vector, the path of its data file, and its bytes in the Puffin file.
    """

    file: DataFile
    sequence_number: int
    target: str | None
    start: int | None
    size: int | None


def deleted_by_file(
    table: Table, uri: str, sequence_numbers: Mapping[str, int], manifests: Sequence[ManifestFile]
) -> dict[str, np.ndarray]:
    """The numbers of the deleted rows by data file. ``sequence_numbers``: of the live data files, by path.

    Raises `UnsupportedFormat` for deletes by value, and `CorruptFile`.
    """
    from pyiceberg.manifest import DataFileContent

    found: dict[str, list[np.ndarray]] = {}
    vectors: dict[str, dict[str, _Entry]] = {}
    for entry in (entry for manifest in manifests for entry in _entries(table, manifest)):
        file = entry.file
        if file.content == DataFileContent.EQUALITY_DELETES:
            raise UnsupportedFormat(
                f"The Iceberg table at {uri} has equality deletes ({file.file_path}): which rows are "
                "deleted is only known by reading them. Compact the table with the engine that wrote them."
            )
        if file.file_format.value == "PUFFIN":
            if entry.target is None or entry.start is None or entry.size is None:
                raise CorruptFile(f"No manifest says where in {file.file_path} a deletion vector is. {RESTORE}")
            if sequence_numbers.get(entry.target, 1 << 62) <= entry.sequence_number:
                if any(entry.target in others for others in vectors.values()):
                    raise CorruptFile(f"{entry.target} has two deletion vectors, one in {file.file_path}. {RESTORE}")
                vectors.setdefault(file.file_path, {})[entry.target] = entry
            continue
        for path, rows in _position_deletes(table.io, file).items():
            if sequence_numbers.get(path, 1 << 62) <= entry.sequence_number:
                found.setdefault(path, []).append(rows)
    for address, entries in vectors.items():
        for path, rows in _vectors(table.io, address, entries).items():
            found.setdefault(path, []).append(rows)
    return {path: np.unique(np.concatenate(parts)) for path, parts in found.items()}


def _entries(table: Table, manifest: ManifestFile) -> list[_Entry]:
    """The live entries of a delete manifest, with the fields of version 3, which pyiceberg leaves out."""
    from pyiceberg.avro.file import AvroFile
    from pyiceberg.manifest import (
        DATA_FILE_TYPE,
        MANIFEST_ENTRY_SCHEMAS,
        DataFile,
        DataFileContent,
        FileFormat,
        ManifestEntry,
        ManifestEntryStatus,
    )

    fields = {field.name: number for number, field in enumerate(DATA_FILE_TYPE[3].fields)}
    target, start, size = (fields[name] for name in ("referenced_data_file", "content_offset", "content_size_in_bytes"))
    with (
        reading(manifest.manifest_path, "a manifest of an Iceberg table"),
        AvroFile[ManifestEntry](
            table.io.new_input(manifest.manifest_path),
            MANIFEST_ENTRY_SCHEMAS[3],
            read_types={-1: ManifestEntry, 2: DataFile},
            read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
        ) as entries,
    ):
        return [
            _Entry(file, _sequence_number(entry, manifest), file[target], file[start], file[size])
            for entry in entries
            if entry.status != ManifestEntryStatus.DELETED
            for file in [entry.data_file]
        ]


def _sequence_number(entry: ManifestEntry, manifest: ManifestFile) -> int:
    """The sequence number of an entry, inherited from its manifest if it has none."""
    number = entry.sequence_number
    return (manifest.sequence_number or 0) if number is None else number


def _position_deletes(io: FileIO, file: DataFile) -> dict[str, np.ndarray]:
    if file.file_format.value != "PARQUET":
        raise UnsupportedFormat(f"The deletes in {file.file_path} are {file.file_format.value}; zskip reads Parquet.")
    with reading(file.file_path, "deleted rows of an Iceberg table"), io.new_input(file.file_path).open() as opened:
        rows = pq.read_table(buffers.BytesIO(opened.read()), columns=["file_path", "pos"])
    paths, codes = np.unique(np.asarray(rows.column("file_path").to_pylist(), object).astype(str), return_inverse=True)
    numbers = rows.column("pos").to_numpy()
    return {str(path): numbers[codes == code] for code, path in enumerate(paths)}


def _vectors(io: FileIO, address: str, entries: Mapping[str, _Entry]) -> dict[str, np.ndarray]:
    """The live deletion vectors in a Puffin file, by data file. The file may hold others, which are not live."""
    found = {}
    with reading(address, "deletion vectors of an Iceberg table"), io.new_input(address).open() as opened:
        end = opened.seek(0, buffers.SEEK_END)
        for path, entry in entries.items():
            start, size = entry.start or 0, entry.size or 0
            if start < 0 or size < _FRAME or start + size > end:
                raise CorruptFile(
                    f"{address} has {end:,} bytes, and no deletion vector of {size:,} at {start:,}. {RESTORE}"
                )
            opened.seek(start)
            where = f"{address} at byte {start:,}"
            data = _unframed(opened.read(size), size - _FRAME, where)
            found[path] = _bitmap_rows(data, entry.file.record_count, where)
    return found


# A deletion vector: a magic number and a 64-bit Roaring bitmap (Lemire 2016) in the portable format, in a blob of a
# Puffin file. Those of Delta are decoded by deltalake.

_MAGIC = 1681511377
_SIZE, _CHECKSUM = struct.Struct(">i"), struct.Struct(">I")
_FRAME = _SIZE.size + _CHECKSUM.size
"""The bytes around a bitmap in a file: its size before it, its checksum behind it."""


def _unframed(framed: bytes, size: int, where: str) -> bytes:
    """The bitmap without the size before it and the checksum after it.

    ``size``: of the bitmap, in bytes · ``where``: the file and the offset, for errors. Raises `CorruptFile`.
    """
    data = framed[_SIZE.size : _SIZE.size + size]
    if size < 0 or len(framed) != size + _FRAME or _SIZE.unpack_from(framed)[0] != size:
        raise CorruptFile(f"The deletion vector in {where} is not one of {size:,} bytes. {RESTORE}")
    if _CHECKSUM.unpack_from(framed, _SIZE.size + size)[0] != zlib.crc32(data):
        raise CorruptFile(f"The deletion vector in {where} does not match its checksum. {RESTORE}")
    return data


def _bitmap_rows(data: bytes, count: int, where: str) -> np.ndarray:
    """The row numbers in a bitmap with its magic number, ascending. ``count``: their expected number.

    Raises `CorruptFile`, which names ``where``.
    """
    try:
        from pyroaring import BitMap64
    except ImportError as error:
        raise MissingDependency('Deletion vectors need pyroaring: pip install "zskip[iceberg]"') from error
    if len(data) < 4 or struct.unpack_from("<i", data)[0] != _MAGIC:
        raise CorruptFile(f"The deletion vector in {where} does not start with its magic number. {RESTORE}")
    try:
        rows = np.array(BitMap64.deserialize(data[4:]).to_array(), np.int64)
    except ValueError as error:
        raise CorruptFile(f"The deletion vector in {where} is not a valid bitmap: {error}. {RESTORE}") from error
    if len(rows) != count:
        raise CorruptFile(f"The deletion vector in {where} holds {len(rows):,} rows, not {count:,}. {RESTORE}")
    return rows
