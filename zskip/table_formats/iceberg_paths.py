"""Converts the addresses in the metadata of an Iceberg table to paths in a storage."""

from __future__ import annotations

import os
import re
from functools import lru_cache

from zskip.errors import UnsupportedFormat
from zskip.storage.storage import Storage

__all__ = ["path_in", "plain_address"]


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
