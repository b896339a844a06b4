"""The steps of small tables' lives, and the rows that they must hold before and after each."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from zskip.tablelog import shards

# Each process is forked from one that has imported what they need, and nothing else.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.torture.preloaded", "tests.table_formats.logs", "tests.torture.histories"])

Rows = pa.Table
States = Mapping[int, Rows]


def rows_of(start: int, stop: int) -> Rows:
    """Rows by number: what each holds follows from its id, so that contents can be compared, and not counts alone."""
    id = np.arange(start, stop)
    share = (id * 31 % 97) / 7
    share[id % 13 == 0] = np.nan
    return pa.table(
        {
            "id": id,
            "host": pa.array([f"10.0.{n * 7919 % 50}.{n % 7}" for n in id.tolist()]),
            "port": pa.array(id * 7919 % 1000, pa.int32(), mask=id % 11 == 0),
            "share": pa.array(share),
            "day": pa.array([f"d{n % 2}" for n in id.tolist()]),
        }
    )


def contents(rows: Rows) -> list[str]:
    """All rows in one order, and in a form in which NaN equals NaN."""
    return [repr(row) for row in rows.select(sorted(rows.column_names)).sort_by("id").to_pylist()]


def joined(*parts: Rows) -> Rows:
    return pa.concat_tables(parts, promote_options="default")


def left(rows: Rows, last: int) -> Rows:
    """What ``DELETE WHERE id % 10 = 3 OR id BETWEEN 120 AND last`` leaves."""
    id = rows.column("id").to_numpy()
    return rows.filter(pa.array((id % 10 != 3) & ((id < 120) | (id > last))))


BEGUN = rows_of(0, 300)
MORE, MANY, NEXT = rows_of(1000, 1030), rows_of(1000, 3000), rows_of(9000, 9005)
WIDER = MORE.append_column("note", pa.array(["new"] * len(MORE)))
SMALL = [rows_of(400 + 10 * number, 410 + 10 * number) for number in range(6)]
GROWN = joined(BEGUN, *SMALL)
CHANGED = joined(BEGUN.slice(0, 60), BEGUN.slice(100), MORE)


def nothing(folder: Path) -> States:
    return {}


def begun(folder: Path) -> States:
    zskip.write(BEGUN, folder, by=["host", "port"], files=3, row_group_rows=50)
    return {1: BEGUN}


def partitioned(folder: Path) -> States:
    zskip.write(BEGUN, folder, by=["port"], files=2, partition_by="day")
    return {1: BEGUN}


def grown(folder: Path) -> States:
    """A table of seven small shards: the next commit merges them."""
    begun(folder)
    table = zskip.open(folder)
    for more in SMALL:
        table.append(more)
    return {1 + count: joined(BEGUN, *SMALL[:count]) for count in range(7)}


def lived(folder: Path) -> States:
    """A table that grew, lost rows and was laid out anew: much of it is for vacuum."""
    states = grown(folder)
    table = zskip.open(folder)
    table.delete("id % 10 = 3 OR id BETWEEN 120 AND 139")
    table.optimize(full=True)
    return {**states, 8: left(GROWN, 139), 9: left(GROWN, 139)}


def foreign(folder: Path) -> States:
    """Someone else's files, which no one has indexed."""
    folder.mkdir()
    for number in range(3):
        pq.write_table(BEGUN.slice(100 * number, 100), folder / f"{number}.parquet", row_group_size=40)
    return {}


def indexed(folder: Path) -> States:
    """Someone else's files, which changed since they were indexed. Their rows are what lies there."""
    foreign(folder)
    zskip.index(folder)
    pq.write_table(BEGUN.slice(0, 60), folder / "0.parquet")
    pq.write_table(MORE, folder / "3.parquet")
    return {1: CHANGED}


def plain(folder: Path) -> States:
    """Someone else's files, indexed as they are."""
    foreign(folder)
    zskip.index(folder)
    return {1: BEGUN}


def clustered(folder: Path) -> None:
    if not zskip.open(folder)._index.snapshot.managed:
        zskip.cluster(folder, by=["host", "port"], files=3)


def clustered_alone(folder: Path) -> None:
    clustered(folder)
    zskip.open(folder).vacuum("0 days")


def damaged(folder: Path) -> States:
    """A table whose statistics are lost: it cannot be read until they are made again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "INLINE_BYTES", 0)
        begun(folder)
    for part in (folder / "_zskip" / "stats").iterdir():
        part.unlink()
    return {}


def spilled(folder: Path) -> object:
    """More rows than memory may hold go through spill files, in a folder that breaks as well."""
    spill = folder.parent / "spill"
    spill.mkdir(exist_ok=True)
    return zskip.open(folder).append(MANY, memory_limit=100_000, temp_directory=spill)


@dataclass(frozen=True, slots=True)
class Step:
    """One verb of a table's life.

    ``prepare`` makes the table, and gives the rows of each of its versions that can be read · ``act``: the verb ·
    ``after``: the rows that are there then · ``commits_before``: it commits more than once, so that a later failure
    leaves what the commits before it made.
    """

    prepare: Callable[[Path], States]
    act: Callable[[Path], object]
    after: Rows
    commits_before: bool = False


STEPS = {
    "write": Step(nothing, begun, BEGUN),
    "write partitions": Step(nothing, partitioned, BEGUN),
    "append": Step(begun, lambda folder: zskip.open(folder).append(MORE), joined(BEGUN, MORE)),
    "append through spill files": Step(begun, spilled, joined(BEGUN, MANY)),
    "append a column": Step(begun, lambda folder: zskip.open(folder).append(WIDER), joined(BEGUN, WIDER)),
    "append to partitions": Step(partitioned, lambda folder: zskip.open(folder).append(MORE), joined(BEGUN, MORE)),
    "append and merge shards": Step(grown, lambda folder: zskip.open(folder).append(MORE), joined(GROWN, MORE)),
    "delete": Step(
        grown,
        lambda folder: zskip.open(folder).delete("id % 10 = 3 OR id BETWEEN 120 AND 199"),
        left(GROWN, 199),
    ),
    "optimize fully": Step(grown, lambda folder: zskip.open(folder).optimize(full=True), GROWN),
    "overwrite": Step(grown, lambda folder: zskip.open(folder).overwrite(MORE), MORE),
    "restore": Step(lived, lambda folder: zskip.open(folder).restore(1), BEGUN),
    "vacuum": Step(lived, lambda folder: zskip.open(folder).vacuum("0 days"), left(GROWN, 139)),
    "cluster": Step(plain, clustered, BEGUN, commits_before=True),
    "cluster and vacuum": Step(plain, clustered_alone, BEGUN, commits_before=True),
    "index": Step(foreign, zskip.index, BEGUN),
    "refresh": Step(indexed, lambda folder: zskip.open(folder).refresh(), CHANGED),
    "repair": Step(damaged, zskip.repair, BEGUN),
}
