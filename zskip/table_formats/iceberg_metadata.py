"""The metadata file of an Iceberg table: finds the newest one of a folder, reads it, and refuses unsupported types."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from zskip.errors import TableNotFound, UnsupportedFormat
from zskip.storage.storage import Storage
from zskip.table_formats.source import reading

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata


METADATA_ENDINGS = (".metadata.json", ".metadata.json.gz")
"""The ends of the names of metadata files."""

_NUMBERED = re.compile(r"v?(\d+)(?:-[^/]*)?(?:\.gz)?\.metadata\.json(?:\.gz)?")
_BY_VERSION = re.compile(r"v?(\d+)(?:\.gz)?\.metadata\.json(?:\.gz)?")
_HINT = "metadata/version-hint.text"
_LATEST_FORMAT = 3
_UNREAD_TYPES = re.compile(r"(variant|geometry|geography)\b")
_GZIP = b"\x1f\x8b"


def newest_metadata(storage: Storage) -> str | None:
    """The path of the newest metadata file of the Iceberg table in a folder; None if there is none.

    It is the file that the version hint names, or the last of the consecutive versions after it: writers update the
    hint after they write the metadata file. Without a hint it is the file with the highest number.
    Raises `TableNotFound` if the hint names a later version than any that exists.
    """
    numbers = {name: int(match[1]) for name in storage.names("metadata") if (match := _NUMBERED.fullmatch(name))}
    if not numbers:
        return None
    newest = max(numbers, key=lambda name: (numbers[name], name))
    if storage.exists(_HINT):
        hint, *_ = [*storage.read(_HINT).decode(errors="replace").split(), ""]
        if named := next((name for name in _named(hint) if name in numbers), None):
            newest = named
        elif match := re.fullmatch(r"v?(\d{1,18})", hint):
            by_version = {numbers[name]: name for name in sorted(numbers) if _BY_VERSION.fullmatch(name)}
            version = int(match[1])
            if version > numbers[newest]:
                raise TableNotFound(
                    f"{storage.uri_of(_HINT)} says that the Iceberg table is at version {hint}, whose metadata file is "
                    "gone. Restore it from a copy of the table, or open an earlier one: "
                    f"{storage.uri_of(f'metadata/{newest}')}"
                )
            while version + 1 in by_version:
                version += 1
            newest = by_version.get(version, newest)
    return f"metadata/{newest}"


def _named(hint: str) -> Iterator[str]:
    """The names of metadata files that a hint may stand for, unless it is a version number."""
    yield hint
    if not re.fullmatch(r"v?\d+", hint):
        yield from (f"{hint}{ending}" for ending in (*METADATA_ENDINGS, ".gz.metadata.json"))


def read_metadata(io: FileIO, address: str) -> TableMetadata:
    """Read a metadata file with pyiceberg.

    Raises `TableNotFound`, `CorruptFile`, and `UnsupportedFormat` for a view, a later format version, and types that
    pyiceberg does not support.
    """
    from pyiceberg.table.metadata import TableMetadataUtil

    with reading(address, "the metadata file of an Iceberg table"):
        with io.new_input(address).open() as file:
            data = file.read()
        text = (gzip.decompress(data) if data.startswith(_GZIP) else data).decode()
        try:
            return TableMetadataUtil.parse_raw(text)
        except Exception:
            _refuse_unknown(json.loads(text), address)
            raise


def _refuse_unknown(document: Any, address: str) -> None:
    """Raise `UnsupportedFormat` for an intact document that pyiceberg does not support."""
    if not isinstance(document, dict):
        return
    if "view-uuid" in document:
        raise UnsupportedFormat(
            f"{address} is an Iceberg view, which has a query and no files. Open the tables that the query names."
        )
    version = document.get("format-version")
    if type(version) is int and version > _LATEST_FORMAT:
        raise UnsupportedFormat(
            f"{address} is of version {version} of Iceberg's format, and zskip reads versions 1 to {_LATEST_FORMAT}. "
            "Read the table with an engine that knows its version."
        )
    for name, type_ in _types(document.get("schemas", document.get("schema"))):
        refuse_type(name, type_, address)


def _types(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The types in a schema given as JSON, each with the name of its innermost field."""
    if isinstance(value, list):
        for one in value:
            yield from _types(one, name)
    elif isinstance(value, dict):
        name = str(value.get("name", name))
        for key in ("type", "fields", "element", "key", "value"):
            one = value.get(key)
            if isinstance(one, str):
                yield name, one
            else:
                yield from _types(one, name)


def refuse_type(name: str, type_: str, address: str) -> None:
    """Raise `UnsupportedFormat` for a column of a type that zskip does not read."""
    if found := _UNREAD_TYPES.match(type_):
        raise UnsupportedFormat(
            f'{address}: the column "{name}" of the Iceberg table has the type {found[1]}, which zskip does not read. '
            "Read the table with an engine that does, or keep such columns in a table of their own."
        )


# Converts the addresses in the metadata of an Iceberg table to paths in a storage.


def plain_address(location: str) -> str:
    """An address from an Iceberg writer in the form that `Storage.uri` has.

    >>> plain_address("file:/lake/t"), plain_address("s3a://lake/t")
    ('/lake/t', 's3://lake/t')
    """
    return re.sub(r"^s3[an]://", "s3://", re.sub(r"^file:/+", "/", location))  # Hadoop writes one slash


def path_in(storage: Storage, location: str) -> str:
    """The path in a storage of a file named in a table's metadata. Raises `UnsupportedFormat` for one outside it.

    For local folders, the targets of symbolic links are compared.
    """
    path, root = plain_address(location), storage.uri.rstrip("/") + "/"
    if path.startswith(root):
        return path.removeprefix(root)
    if storage.local is not None and path.startswith("/"):
        folder, _, name = path.rpartition("/")
        target = f"{_target(folder)}/{name}"
        if target.startswith(inner := f"{_target(storage.uri)}/"):
            return target.removeprefix(inner)
    raise UnsupportedFormat(
        f"The Iceberg table at {storage.uri} names the file {location}, which is outside of its folder. If a catalog "
        "keeps it there, by write.data.path or write.metadata.path, open the table by its object: "
        "zskip.open(catalog.load_table(…)). One disk or one bucket must hold its files. If the folder was moved, move "
        "it back, or have an engine rewrite its paths (rewrite_table_path of Spark)."
    )


@lru_cache(maxsize=4096)
def _target(folder: str) -> str:
    return os.path.realpath(folder).rstrip("/")
