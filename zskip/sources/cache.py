"""The user's cache folder, which holds the side-cars of tables that keep none themselves.

Whatever is in it can be made anew from the table's own log: nothing in it is synced to disk, and what a crash or a
cleaner of caches has damaged is replaced at the next opening.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from datetime import timedelta
from pathlib import Path

from zskip.errors import MissingDependency, TableError
from zskip.sources.source import Source
from zskip.storage.local import LocalStorage
from zskip.tablelog import Snapshot, vacuum

__all__ = ["cache_of", "tidy"]

_UNUSED = timedelta(days=30)
_FORM = 3
"""Of what is kept: counted up where a side-car that an earlier zskip has left could not be followed on."""

_REPLACED, _VERSIONS_AT_ONCE = timedelta(days=1), 64


def cache_of(source: Source, deep: bool) -> LocalStorage:
    """The folder for the side-car of a table; one with the files' footers is kept apart.

    Where it is made, those that no one has opened for a month are removed.

    Raises `MissingDependency`, and `TableError` where the cache folder cannot be written.
    """
    try:
        from platformdirs import user_cache_path
    except ImportError as error:
        raise MissingDependency(
            f'Tables of other formats need platformdirs: pip install "zskip[{source.format}]"'
        ) from error
    every = user_cache_path("zskip") / "sources"
    identities = f"{source.home.identity} {source.storage.identity}"
    name = hashlib.sha256(f"{_FORM} {source.format} {identities} {source.fixed!r} {deep}".encode()).hexdigest()[:32]
    folder = every / name
    try:
        if folder.is_dir():
            os.utime(folder)
        else:
            _remove_unused(every)
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TableError(
            f"The cache folder {every} cannot be written ({error}). Name another one in the environment variable "
            "XDG_CACHE_HOME, or keep the index of the table in its own folder: zskip.attach(path)."
        ) from error
    return LocalStorage(folder, durable=False)


def tidy(parts: LocalStorage, made: Snapshot) -> None:
    """Now and then remove what versions of the side-car that were replaced long ago leave in the cache."""
    if made.version % _VERSIONS_AT_ONCE == 0:
        vacuum(parts, older_than=_REPLACED)


def _remove_unused(every: Path) -> None:
    if not every.is_dir():
        return
    oldest = time.time() - _UNUSED.total_seconds()
    for folder in every.iterdir():
        if folder.stat().st_mtime < oldest:
            shutil.rmtree(folder, ignore_errors=True)
