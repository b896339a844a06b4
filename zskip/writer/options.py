"""`WriteOptions`: how a table is written, validated on construction."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from numbers import Real
from typing import TYPE_CHECKING, Any, TypedDict

from zskip.core.option_checks import (
    Progress,
    bytes_of,
    refuse,
    require_callback,
    require_choice,
    require_flag,
    require_number,
    require_path,
)
from zskip.core.schema import require_distinct
from zskip.errors import InvalidOption, nearest, shown
from zskip.layouts import LAYOUTS
from zskip.storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa

    from zskip.writer.star import Star

_SPANS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_SPANS |= {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_LEAST_MEMORY = 64_000
_DEFAULT_FILE_SIZE = 128_000_000
# What a file takes at most to describe a column of few rows.
_DESCRIBED_BYTES = 1_000
ROW_GROUP_ROWS = 122_880
_LEAST_GROUPS, _LEAST_GROUP_ROWS = 16, 4_096
OF_CLUSTER = ("by", "layout", "files", "rows_per_file", "file_size", "weights", "workload")
CODECS = ("zstd", "snappy", "gzip", "brotli", "lz4", "none")


class Resources(TypedDict, total=False):
    """The resources that a change of a table may use, and its progress callback.

    ``memory_limit``: bytes, or text such as "2GB" · ``temp_directory``: for spill files · ``threads``: the greatest
    number of threads.
    """

    memory_limit: int | str | None
    temp_directory: str | os.PathLike[str] | None
    threads: int | None
    progress: Progress | None


class FileLayout(TypedDict, total=False):
    """How rows are laid out in files: the options of `WriteOptions` except ``by`` and the resources."""

    layout: str
    files: int | None
    rows_per_file: int | None
    file_size: int | str | None
    row_group_rows: int | None
    compression: str
    weights: Mapping[str, float] | Sequence[float] | None
    workload: Sequence[str] | None
    partition_by: Sequence[str]
    sketches: Mapping[str, str | Sequence[str]]
    seed: int
    storage_options: Mapping[str, Any] | None


class Rewrite(Resources, FileLayout, total=False):
    """The options that an overwrite may change; those not given keep their values."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How rows are written as files. At most one of ``files``, ``rows_per_file`` and ``file_size`` is given.

    ``file_size`` and ``memory_limit`` are bytes, or text such as "128MB" · ``weights``: the share of look-ups on each
    clustering column · ``workload``: predicates like the expected queries · ``seed``: for drawing the sample ·
    ``sketches``: the kinds of sketches of each column · ``hidden``: write data files below ``_data/`` with the ending
    ``.pq``, where programs that list the folder, or all Parquet files in it, do not find them · ``folder_names``: for
    some hive folders other names, as `hive.kept_names` returns them · ``star``: loads the dimensions with which the
    rows are joined · ``strict_memory``: refuse files that need far more than the limit.
    """

    by: Sequence[str] = ()
    layout: str = "auto"
    files: int | None = None
    rows_per_file: int | None = None
    file_size: int | str | None = None
    row_group_rows: int | None = None
    compression: str = "zstd"
    weights: Mapping[str, float] | Sequence[float] | None = None
    workload: Sequence[str] | None = None
    partition_by: Sequence[str] = ()
    sketches: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    memory_limit: int | str | None = None
    temp_directory: str | os.PathLike[str] | None = None
    threads: int | None = None
    seed: int = 0
    progress: Progress | None = field(default=None, compare=False)
    storage_options: Mapping[str, Any] | None = None
    hidden: bool = False
    folder_names: Mapping[str, str] = field(default_factory=dict)
    star: Callable[[Storage], Star] | None = field(default=None, compare=False)
    strict_memory: bool = True

    def __post_init__(self) -> None:
        sizes = [name for name in ("files", "rows_per_file", "file_size") if getattr(self, name) is not None]
        if len(sizes) > 1:
            raise InvalidOption(
                f"Give one of files=, rows_per_file= and file_size=, not {' and '.join(f'{size}=' for size in sizes)}."
            )
        for name in ("files", "rows_per_file", "row_group_rows", "threads"):
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name), least=1)
                object.__setattr__(self, name, int(getattr(self, name)))
        for name in ("file_size", "memory_limit"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, bytes_of(value, name))
        if isinstance(self.memory_limit, int) and self.memory_limit < _LEAST_MEMORY:
            raise InvalidOption(f"memory_limit= of {self.memory_limit} bytes is too small: give 64 kB at least.")
        if self.temp_directory is not None:
            require_path("temp_directory", self.temp_directory)
        if self.progress is not None:
            require_callback("progress", self.progress)
        require_flag("hidden", self.hidden)
        for name in self.folder_names.values():
            if "/" in name or "=" not in name:
                raise InvalidOption(f"folder_names= has {shown(name)}, which is no name of a hive folder.")
        require_choice("layout", self.layout, LAYOUTS)
        codec = self.compression.lower() if isinstance(self.compression, str) else self.compression
        require_choice("compression", codec, CODECS)
        object.__setattr__(self, "compression", codec)
        _require_weights(self.weights)
        _require_queries(self.workload)
        require_seed(self.seed)
        for name in ("by", "partition_by"):
            object.__setattr__(self, name, require_distinct(getattr(self, name), name))

    def group_rows(self, rows: int) -> int:
        """The greatest number of rows of a row group in a new table of ``rows``.

        122,880 by default, and fewer in a small table, in which a single row group would leave nothing to skip.
        """
        if self.row_group_rows is not None:
            return self.row_group_rows
        return min(ROW_GROUP_ROWS, max(_LEAST_GROUP_ROWS, -(-rows // _LEAST_GROUPS)))

    def data_path(self, folder: str, name: str) -> str:
        """The path of a data file in a partition's folder, from its name without the ending.

        >>> WriteOptions().data_path("day=1/", "part-0"), WriteOptions(hidden=True).data_path("day=1/", "part-0")
        ('day=1/part-0.parquet', '_data/day=1/part-0.pq')
        """
        return f"_data/{folder}{name}.pq" if self.hidden else f"{folder}{name}.parquet"

    @property
    def cores(self) -> int:
        """The greatest number of threads: by default the number of cores that this process may use."""
        return self.threads or (
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        )

    @property
    def memory(self) -> int:
        """The bytes of memory to use: by default half of those that are free."""
        return int(self.memory_limit or _free_memory() // 2)

    @property
    def sized_by_bytes(self) -> bool:
        """Whether the number of files depends on the size of the rows on disk."""
        return self.files is None and self.rows_per_file is None

    def file_count(self, rows: int, stored: float) -> int:
        """The number of files for ``rows``, at most one per row. ``stored``: bytes of a row on disk, if needed."""
        if self.files is not None:
            return max(1, min(self.files, rows))
        if self.rows_per_file is not None:
            return max(1, -(-rows // self.rows_per_file))
        return max(1, round(rows * stored / int(self.file_size or _DEFAULT_FILE_SIZE)))

    def fit_in_a_file(self, rows: pa.Table) -> bool:
        """Whether rows are so few bytes in memory that they surely make one file, and need no measure."""
        described = rows.num_columns * _DESCRIBED_BYTES
        return bool(rows.nbytes + described < int(self.file_size or _DEFAULT_FILE_SIZE))

    def report(self, phase: str, done: int, total: int | None) -> None:
        """Report the progress of a phase to the callback, if there is one."""
        if self.progress is not None:
            self.progress(phase, done, total)


def _free_memory() -> int:
    """The bytes of free memory, within the limit of the control group."""
    import psutil

    free = int(psutil.virtual_memory().available)
    try:
        with open("/sys/fs/cgroup/memory.max") as most, open("/sys/fs/cgroup/memory.current") as used:
            return max(0, min(free, int(most.read()) - int(used.read())))
    except (OSError, ValueError):
        return free  # there is no control group, or it sets no limit


def require_seed(seed: object) -> None:
    """Raise `InvalidOption` unless the seed is an integer from 0 to 2**64 - 1."""
    require_number("seed", seed, least=0, most=(1 << 64) - 1)


def _require_weights(weights: object) -> None:
    numbers = weights.values() if isinstance(weights, Mapping) else weights
    if weights is not None and (
        isinstance(numbers, str | bytes)
        or not isinstance(numbers, Iterable)
        or any(isinstance(number, bool) or not isinstance(number, Real) for number in numbers)
    ):
        raise refuse("weights", "a number for each column of by=, or a mapping of columns to numbers", weights)


def _require_queries(workload: object) -> None:
    queries = None if isinstance(workload, str) or not isinstance(workload, Sequence) else workload
    if workload is not None and (queries is None or not all(isinstance(query, str) for query in queries)):
        raise refuse("workload", "a list of predicates or SELECT statements", workload)


def timedelta_of(text: str | timedelta) -> timedelta:
    """The duration that a text such as "7 days" gives. Raises `InvalidOption`.

    >>> timedelta_of("7 days"), timedelta_of("90min")
    (datetime.timedelta(days=7), datetime.timedelta(seconds=5400))
    """
    if isinstance(text, timedelta):
        span = text
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+?)s?\s*", str(text).lower())
        if match is None or match[2] not in _SPANS:
            raise refuse("older_than", 'a time span such as "7 days" or "12 hours"', text)
        try:
            span = timedelta(seconds=float(match[1]) * _SPANS[match[2]])
        except OverflowError:
            raise refuse("older_than", "a shorter time span", text) from None
    if span < timedelta(0):
        raise InvalidOption("A time span cannot be negative.")
    return span


def resources_of(options: Resources, *own: str) -> WriteOptions:
    """The resources of a change. ``own``: the method's other options, listed in the error about an unknown one."""
    known = [*own, *Resources.__annotations__]
    unknown = [name for name in options if name not in Resources.__annotations__]
    if unknown:
        anew = " zskip.cluster(path, by=…) lays a table out anew."
        near = nearest(unknown[0], known, listed=True) or f" There are: {', '.join(known)}."
        hint = anew if unknown[0] in OF_CLUSTER else near
        raise InvalidOption(f'There is no option "{unknown[0]}" here.{hint}')
    return WriteOptions(**options)
