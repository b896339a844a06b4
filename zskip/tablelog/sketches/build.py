"""`SketchBuilder`: builds segments during a write, in bounded memory.

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

from zskip.core import types as t
from zskip.core.schema import Schema
from zskip.errors import InvalidOption
from zskip.tablelog.sketches.hashing import Hashes
from zskip.tablelog.sketches.kinds import SKETCHES
from zskip.tablelog.sketches.pairs import RUN_FILE_BITS, Coverage, MergeInput, Numbers, Run, write_segment
from zskip.tablelog.snapshot import SketchName


@dataclass(slots=True)
class _Pending:
    """The pairs of one sketch so far: in memory, in the order of the files, and in sorted runs on disk."""

    in_memory: list[Numbers] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)


class SketchBuilder:
    """Collects the keys of files and writes them as segments. Threads may share one.

    ``memory_limit``: in bytes; half of it is for sorting · ``make_folder``: called once, when the first spill file is
    written; the caller removes the folder.
    """

    def __init__(self, names: Sequence[SketchName], memory_limit: int, make_folder: Callable[[], str]) -> None:
        self._pending = {name: _Pending() for name in names}
        self._memory_limit, self._make_folder = memory_limit // 2, make_folder
        self._folder: str | None = None
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = {}
        self._bytes_in_memory = 0

    @property
    def names(self) -> tuple[SketchName, ...]:
        return tuple(self._pending)

    def __len__(self) -> int:
        """The number of files added."""
        return len(self._numbers)

    def add(self, path: str, keys: Sequence[Hashes]) -> None:
        """Add a file. ``keys``: one array per sketch, in the order of `names`. Raises `InvalidOption` at 2^24 files."""
        with self._lock:
            number = self._numbers.setdefault(path, len(self._numbers))
        if number >= 1 << RUN_FILE_BITS:
            raise InvalidOption(
                f"One write makes sketches of {1 << RUN_FILE_BITS:,} files at most: write larger files."
            )
        for pending, file_keys in zip(self._pending.values(), keys, strict=True):
            pairs = Run.of(file_keys, number)
            with self._lock:
                pending.in_memory.append(pairs)
                self._bytes_in_memory += pairs.nbytes
                if self._bytes_in_memory > self._memory_limit:
                    self._spill()

    def _spill(self) -> None:
        """Write each sketch's pairs in memory to disk as a sorted run."""
        self._folder = self._folder or self._make_folder()
        for number, pending in enumerate(self._pending.values()):
            if pending.in_memory:
                path = os.path.join(self._folder, f"sketch-{number}-{len(pending.runs)}.npy")
                np.save(path, _sorted_pairs(pending.in_memory))
                pending.runs.append(Run(np.load(path, mmap_mode="r")))
        self._bytes_in_memory = 0

    def write(self, name: SketchName, sink: BinaryIO, ids: Mapping[str, int]) -> int:
        """Write the segment of one sketch; return its number of pairs. ``ids``: the id of each added file, by path."""
        pending = self._pending[name]
        sources = [*pending.runs, *([Run(_sorted_pairs(pending.in_memory))] if pending.in_memory else [])]
        file_ids = np.array([ids[path] for path in self._numbers], np.int64)
        coverage = Coverage.of(np.sort(file_ids))
        numbers = coverage.numbers(file_ids)
        key_bits = SKETCHES[name.kind].key_bits(sum(map(len, sources)))
        return write_segment(sink, [MergeInput(run, numbers) for run in sources], coverage, key_bits)


def _sorted_pairs(waiting: list[Numbers]) -> Numbers:
    """The pairs in ascending order. Empties the list."""
    pairs = np.concatenate(waiting)
    waiting.clear()
    pairs.sort(kind="stable")  # timsort merges the runs that are sorted already: each file's pairs
    return pairs


def keys_of(name: SketchName, schema: Schema, rows: pa.Table) -> Hashes:
    """The distinct keys of some rows for one sketch; none where the rows lack its column."""
    column = schema.columns[name.column]
    if column.parts[0] not in rows.column_names:
        return np.zeros(0, np.uint64)
    whole = rows.column(column.parts[0])
    # A dictionary stays encoded: hashing its values is faster than hashing every row.
    encoded = len(column.parts) == 1 and t.is_dictionary(whole.type)
    return SKETCHES[name.kind].keys(whole if encoded else column.of(rows))
