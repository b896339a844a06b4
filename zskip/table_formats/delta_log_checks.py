"""Finds the missing or damaged file of a Delta log: deltalake only reports that it cannot read the log.

| file | |
| --- | --- |
| `00000000000000000007.json` | the commit of version 7 |
| `….checkpoint.parquet`, `….checkpoint.ID.parquet`, `….checkpoint.ID.json` | a checkpoint: all that is live |
| `….checkpoint.0000000001.0000000003.parquet` | the first of three parts of a checkpoint |
| `_sidecars/….parquet` | a side-car that a checkpoint with an ID refers to |
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from zskip.storage.storage import Storage
from zskip.table_formats.source import reading

_COMMIT = re.compile(r"(\d{20})\.json")
_WHOLE = re.compile(r"(\d{20})\.checkpoint(?:\.[0-9A-Fa-f-]{36})?\.(?:parquet|json)")
_PART = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
_WHAT = "of the log of a Delta table"


def commit_path(version: int) -> str:
    """The path of a version's commit in the log."""
    return f"_delta_log/{version:020}.json"


def require_intact_log(storage: Storage, version: int | None = None) -> None:
    """Require the files of the log that a version (None: the newest) needs.

    Raises `TableNotFound` for a missing file, and `CorruptFile` for a damaged commit or checkpoint; both name the file.
    """
    names = sorted(storage.names("_delta_log"))
    commits = {int(match[1]) for name in names if (match := _COMMIT.fullmatch(name))}
    newest = max(commits, default=-1) if version is None else version
    checkpoints, parts = defaultdict[int, list[str]](list), defaultdict[int, set[str]](set)
    for name in names:
        if match := _WHOLE.fullmatch(name):
            checkpoints[int(match[1])].append(name)
        elif match := _PART.fullmatch(name):
            every = {f"{match[1]}.checkpoint.{n:010}.{match[3]}.parquet" for n in range(1, int(match[3]) + 1)}
            parts[int(match[1])] = every
            if every <= set(names):
                checkpoints[int(match[1])] += sorted(every)
    first = max((one for one in checkpoints if one <= newest), default=-1)
    for name in dict.fromkeys(checkpoints.get(first, ())):
        for sidecar in _require_readable(storage, f"_delta_log/{name}"):
            _require_readable(storage, sidecar)
    gone = [commit_path(one) for one in range(first + 1, min(newest, first + 1 + len(names)) + 1) if one not in commits]
    if gone and (incomplete := parts.get(max((one for one in parts if one <= newest), default=-1))):
        gone = [f"_delta_log/{name}" for name in sorted(incomplete - set(names))] or gone
    for path in gone[:1]:
        with reading(storage.uri_of(path), _WHAT):
            raise FileNotFoundError(path)
    for one in range(first + 1, newest + 1):
        _require_readable(storage, commit_path(one))


def _require_readable(storage: Storage, path: str) -> list[str]:
    """Read a commit or a checkpoint, and return the paths of its side-cars. Raises `CorruptFile`."""
    with reading(storage.uri_of(path), _WHAT):
        if path.endswith(".json"):
            actions: list[Any] = [json.loads(line) for line in storage.read(path).splitlines()]
            named = [one.get("sidecar") for one in actions if isinstance(one, dict)]
        else:
            table = pq.read_table(pa.BufferReader(storage.read(path)))
            named = table.column("sidecar").to_pylist() if "sidecar" in table.column_names else []
        return [f"_delta_log/_sidecars/{one['path'].rpartition('/')[2]}" for one in named if one]
