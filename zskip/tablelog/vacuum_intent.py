"""What a vacuum under way is about to remove, written into the log before its last look at it.

A commit may name files that are older than a vacuum's horizon: its writer stood still for long, or it restores an old
version. Either the vacuum sees its entry and spares the files, or the commit, which looks for intents after its entry
is there, sees the vacuum's intent and is taken back. So no file is removed that a version in use names, wherever the
two stand still. An intent that a crash left behind is removed by a later vacuum, as any file of such an age.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass

from zskip.errors import DamagedIndex
from zskip.storage.storage import Storage, abandon
from zskip.tablelog.log import LOG

__all__ = ["VacuumIntent", "declare", "intents"]

_PREFIX, _SUFFIX = "vacuum-", ".json"


@dataclass(frozen=True, slots=True)
class VacuumIntent:
    """What a vacuum may remove: files that were last changed at ``horizon`` (nanoseconds since the epoch) or before,
    and that no version from ``kept_from`` on names.
    """

    path: str
    horizon: int
    kept_from: int


def declare(storage: Storage, horizon: int, kept_from: int) -> VacuumIntent:
    """Write the intent of a vacuum."""
    intent = VacuumIntent(f"{LOG}/{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}", horizon, kept_from)
    try:
        storage.put(intent.path, json.dumps({"horizon": horizon, "kept_from": kept_from}).encode())
    except BaseException:
        abandon(storage, [intent.path])
        raise
    return intent


def intents(storage: Storage) -> list[VacuumIntent]:
    """The intents of vacuums that are under way, or that were broken off. Raises `DamagedIndex`."""
    found = []
    for name in storage.names(LOG, after=_PREFIX):
        if not name.startswith(_PREFIX) or not name.endswith(_SUFFIX):
            continue
        path = f"{LOG}/{name}"
        try:
            said = json.loads(storage.read_range(path, 0, 1000))
            found.append(VacuumIntent(path, int(said["horizon"]), int(said["kept_from"])))
        except FileNotFoundError:
            continue  # that vacuum has ended
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedIndex(
                f"{storage.uri_of(path)} is not the intent of a vacuum. If none is running, remove it."
            ) from error
    return found
