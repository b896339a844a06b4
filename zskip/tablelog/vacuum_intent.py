"""The intent of a vacuum: which files it may remove, written to the log before the vacuum reads the log a last time.

A commit may name files that are older than a vacuum's horizon, if its writer was suspended for a long time or if it
restores an old version. Either the vacuum sees the commit's entry and keeps the files, or the commit, which looks for
intents after creating its entry, sees the intent and is withdrawn. So no file of a version in use is removed, no matter
when either of them is suspended. A vacuum that was suspended for too long gives up before it removes files. Only after
a longer time do other vacuums consider its intent abandoned.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from zskip.errors import DamagedIndex, FilesRemoved
from zskip.storage.storage import Storage, abandon, undone_on_error
from zskip.tablelog.log import LOG

__all__ = ["INTENT_LASTS", "VacuumIntent", "declared", "intents"]

_PREFIX, _SUFFIX = "vacuum-", ".json"

INTENT_LASTS = timedelta(days=1)
"""The age at which other vacuums may remove an intent."""

_GIVEN_UP = INTENT_LASTS / 2


@dataclass(frozen=True, slots=True)
class VacuumIntent:
    """What a vacuum may remove: files last modified at ``horizon`` (nanoseconds since the epoch) or earlier that no
    version from ``kept_from`` on names.
    """

    path: str
    horizon: int
    kept_from: int


@contextmanager
def declared(storage: Storage, horizon: int, kept_from: int) -> Iterator[Callable[[], None]]:
    """Declare an intent while the ``with`` block removes files; afterwards the intent is removed.

    The block must call the yielded function before it removes anything: it raises `FilesRemoved` if the intent was
    declared so long ago that others may ignore it.
    """
    path, start = f"{LOG}/{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}", time.time()

    def require_heeded() -> None:
        if time.time() - start > _GIVEN_UP.total_seconds():
            raise FilesRemoved(
                f"{storage.uri}: this vacuum was suspended for too long and removed no files. Repeat it."
            )

    # After an error, the vacuum removes nothing more, so commits need not heed the intent.
    with undone_on_error(partial(abandon, storage, [path])):
        storage.put(path, json.dumps({"horizon": horizon, "kept_from": kept_from}).encode())
        yield require_heeded
    storage.delete([path])


def intents(storage: Storage) -> list[VacuumIntent]:
    """The intents of running or aborted vacuums. Raises `DamagedIndex`."""
    found = []
    for name in storage.names(LOG, after=_PREFIX):
        if not name.startswith(_PREFIX) or not name.endswith(_SUFFIX):
            continue
        path = f"{LOG}/{name}"
        try:
            fields = json.loads(storage.read_range(path, 0, 1000))
            found.append(VacuumIntent(path, int(fields["horizon"]), int(fields["kept_from"])))
        except FileNotFoundError:
            continue  # that vacuum has ended
        except (ArithmeticError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise DamagedIndex(
                f"{storage.uri_of(path)} is not the intent of a vacuum. If none is running, remove it."
            ) from error
    return found
