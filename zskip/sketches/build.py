"""`SketchBuilder`: build segments during a write, in bounded memory.

a file's rows ──▶ distinct keys ──▶ pairs in memory ──(beyond the limit)──▶ sorted runs on disk ──▶ one segment
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from zskip import types as t
from zskip.errors import InvalidOption
from zskip.schema import Schema
from zskip.sketches.hashing import Hashes
from zskip.sketches.kinds import SKETCHES, SketchName
from zskip.sketches.pairs import RUN_FILE_BITS, Coverage, Numbers, Run, Source, write_segment

__all__ = ["SketchBuilder", "keys_of"]


@dataclass(slots=True)
class _Pending:
    """What one sketch has collected: pairs in memory, in the order of the files, and sorted runs on disk."""

    in_memory: list[Numbers] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)


class SketchBuilder:
    """Collects the keys of files; safe to share between threads.

    ``most_bytes``: the memory limit, half of which is for sorting · ``make_folder``: makes a folder for spill files
    when one is needed; the caller removes it.
    """

    def __init__(self, names: Sequence[SketchName], most_bytes: int, make_folder: Callable[[], str]) -> None:
        self._pending = {name: _Pending() for name in names}
        self._most_bytes, self._make_folder = most_bytes // 2, make_folder
        self._folder: str | None = None
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = {}
        self._waiting = 0

    @property
    def names(self) -> tuple[SketchName, ...]:
        return tuple(self._pending)

    def __len__(self) -> int:
        """How many files were added."""
        return len(self._numbers)

    def add(self, path: str, keys: Sequence[Hashes]) -> None:
        """Collect what each sketch keeps of a file, in the order of their names."""
        with self._lock:
            number = self._numbers.setdefault(path, len(self._numbers))
        if number >= 1 << RUN_FILE_BITS:
            raise InvalidOption(
                f"One write makes sketches of {1 << RUN_FILE_BITS:,} files at most: write larger files."
            )
        for pending, of_file in zip(self._pending.values(), keys, strict=True):
            pairs = Run.of(of_file, number)
            with self._lock:
                pending.in_memory.append(pairs)
                self._waiting += pairs.nbytes
                if self._waiting > self._most_bytes:
                    self._spill()

    def _spill(self) -> None:
        """Sort what waits in memory into a run on disk, for each sketch."""
        self._folder = self._folder or self._make_folder()
        for number, pending in enumerate(self._pending.values()):
            if pending.in_memory:
                path = os.path.join(self._folder, f"sketch-{number}-{len(pending.runs)}.npy")
                np.save(path, _sorted(pending.in_memory))
                pending.runs.append(Run(np.load(path, mmap_mode="r")))
        self._waiting = 0

    def write(self, name: SketchName, sink: BinaryIO, ids: Mapping[str, int]) -> int:
        """Write the segment of one sketch, given the id of each file that was added; how many entries it has."""
        pending = self._pending[name]
        sources = [*pending.runs, *([Run(_sorted(pending.in_memory))] if pending.in_memory else [])]
        by_number = np.array([ids[path] for path in self._numbers], np.int64)
        coverage = Coverage.of(np.sort(by_number))
        numbers = coverage.numbers(by_number)
        key_bits = SKETCHES[name.kind].key_bits(sum(map(len, sources)))
        return write_segment(sink, [Source(run, numbers) for run in sources], coverage, key_bits)


def _sorted(waiting: list[Numbers]) -> Numbers:
    """The pairs of all files in ascending order; empties the list."""
    pairs = np.concatenate(waiting)
    waiting.clear()
    pairs.sort(kind="stable")  # which merges what is in order already: the pairs of each file
    return pairs


def keys_of(name: SketchName, schema: Schema, rows: pa.Table) -> Hashes:
    """What a sketch keeps of some rows: none where they lack its column, which is then all NULL."""
    column = schema.columns[name.column]
    if column.parts[0] not in rows.column_names:
        return np.zeros(0, np.uint64)
    whole = rows.column(column.parts[0])
    # Still dictionary-encoded where it is: few values are hashed faster than many rows.
    encoded = len(column.parts) == 1 and t.is_dictionary(whole.type)
    return SKETCHES[name.kind].keys(whole if encoded else column.of(rows))
