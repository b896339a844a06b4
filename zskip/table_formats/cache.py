"""The user's cache folder, which holds the side-cars of tables that have none in their own folder.

All side-cars can be rebuilt from the tables' logs. So nothing is synced to disk, and a side-car that a crash or a cache
cleaner has damaged is rebuilt when the table is opened next.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from datetime import timedelta
from pathlib import Path

from zskip.errors import MissingDependency, TableError
from zskip.storage.local import LocalStorage
from zskip.table_formats.source import Source
from zskip.tablelog import Snapshot, vacuum

__all__ = ["cache_of", "vacuum_at_intervals"]

_UNUSED = timedelta(days=30)
_CACHE_VERSION = 4
"""Incremented whenever a side-car left by an earlier zskip could not be brought up to date."""

_REPLACED, _VERSIONS_PER_VACUUM = timedelta(days=1), 64


def cache_of(source: Source, deep: bool) -> LocalStorage:
    """The cache folder for the side-car of a table. ``deep``: for one that includes the statistics in footers.

    Creating a folder removes those that were not opened for a month.

    Raises `MissingDependency`, and `TableError` if the cache folder cannot be written.
    """
    try:
        from platformdirs import user_cache_path
    except ImportError as error:
        name = source.format
        raise MissingDependency(f'{name.title()} tables need platformdirs: pip install "zskip[{name}]"') from error
    root = user_cache_path("zskip") / "sources"
    identities = f"{source.home.identity} {source.storage.identity}"
    key = f"{_CACHE_VERSION} {source.format} {identities} {source.fixed!r} {deep}"
    folder = root / hashlib.sha256(key.encode()).hexdigest()[:32]
    try:
        if folder.is_dir():
            os.utime(folder)
        else:
            _remove_unused(root)
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TableError(
            f"The cache folder {root} cannot be written ({error}). Name another one in the environment variable "
            "XDG_CACHE_HOME, or keep the index of the table in its own folder: zskip.attach(path)."
        ) from error
    return LocalStorage(folder, durable=False)


def vacuum_at_intervals(parts: LocalStorage, made: Snapshot) -> None:
    """Vacuum the side-car in the cache once every 64 versions."""
    if made.version % _VERSIONS_PER_VACUUM == 0:
        vacuum(parts, older_than=_REPLACED)


def _remove_unused(root: Path) -> None:
    if not root.is_dir():
        return
    oldest = time.time() - _UNUSED.total_seconds()
    for folder in root.iterdir():
        if folder.stat().st_mtime < oldest:
            shutil.rmtree(folder, ignore_errors=True)
