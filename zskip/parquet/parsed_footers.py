"""Parse thousands of Parquet footers: one of each shape field by field, the others with the same shape together.

Files of one writer have footers of one shape: the same fields in the same order, with other numbers and bounds.
`thrift.trace` reads one footer and notes its shape; `batch_footers.follow` parses all others by that shape with
numpy, and finds those with another shape, of which one is traced next.

The alternative is pyarrow together with DuckDB's `parquet_metadata`, which only together have the bounds and their
exactness. They take 10 times the processor time, and pyarrow 26 aborts the process on a bound of the wrong length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np

from zskip.parquet.batch_footers import follow
from zskip.parquet.thrift import CHUNK_FIELDS, Shape, trace

SLOTS: Final = tuple(name for names in CHUNK_FIELDS.values() for name in names)
_RARE, _MANY_RARE = 8, 16
_BLOCK_BYTES, _LEAST_BLOCK = 16 << 20, 512


@dataclass(frozen=True, slots=True)
class Footers:
    """Footers of one shape, and so of one schema and one writer. ``files``: the positions of these footers.

    ``created_by``, ``pairs``: of the writer; only pairs that affect how values are read have values ·
    ``leaves``: the path of each leaf column, and the number of its physical type in Parquet; empty without row groups ·
    ``orders``: that of each leaf column's bounds; 1 is the order of its type ·
    ``rows``: the number of rows of each row group, file by file · ``row_groups``: their number in each file ·
    ``places``: for each row group and each leaf column, the row of ``kept`` with each field, or the value of a flag ·
    ``kept``: numbers, and the offsets and lengths of texts in ``data``; an array (places, footers) ·
    ``data``: the bytes of all footers
    """

    files: np.ndarray
    created_by: bytes
    pairs: dict[bytes, bytes]
    leaves: tuple[tuple[bytes, int], ...]
    orders: tuple[int, ...]
    rows: np.ndarray
    row_groups: np.ndarray
    places: Sequence[Sequence[Mapping[str, int | bool]]]
    kept: np.ndarray
    data: np.ndarray

    def slots(self, column: int) -> dict[str, np.ndarray]:
        """The fields of `SLOTS` for a leaf column: one number per row group, -1 if absent."""
        absent = np.full(len(self.files), -1, np.int64)

        def of_group(chunks: Sequence[Mapping[str, int | bool]], name: str) -> np.ndarray:
            place = chunks[column].get(name)
            if place is None:
                return absent
            return np.full(len(self.files), place, np.int64) if isinstance(place, bool) else self.kept[place]

        if len(self.places) == 1:
            return {name: of_group(self.places[0], name) for name in SLOTS}
        return {name: np.stack([of_group(one, name) for one in self.places], axis=1).reshape(-1) for name in SLOTS}


def parse(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> tuple[list[Footers], list[tuple[int, str]]]:
    """The footers in groups of one shape, and the numbers of damaged ones, each with the reason.

    ``data``: from `joined`; footer i is in ``data[starts[i]:ends[i]]``.
    """
    groups: list[Footers] = []
    broken: list[tuple[int, str]] = []
    rest = np.arange(len(starts))
    rare = 0
    while len(rest):
        first = int(rest[0])
        try:
            shape = trace(data[starts[first] : ends[first]].tobytes())
        except ValueError as error:
            broken.append((first, str(error)))
            rest = rest[1:]
            continue
        # Once many shapes have turned out to be rare, footers are traced one by one.
        chosen = rest if rare < _MANY_RARE else rest[:1]
        if len(chosen) == 1:
            good, kept = np.ones(1, bool), _kept_of_traced(shape, starts[first])
        else:
            good, kept = _follow_in_threads(shape, data, starts[chosen], ends[chosen])
        if not good[0]:
            broken.append((first, "it cannot be parsed by its own shape"))
            rest = rest[1:]
            continue
        rare += good.sum() < min(_RARE, len(rest))
        files = chosen[good]
        counted = _counts_agree(shape, kept)
        broken += [
            (int(file), "the number of rows is not the sum of those of its row groups") for file in files[~counted]
        ]
        groups.append(_group(shape, files[counted], kept[:, counted], data))
        rest = np.concatenate([chosen[~good], rest[len(chosen) :]])
    return groups, broken


def _counts_agree(shape: Shape, kept: np.ndarray) -> np.ndarray:
    """Whether the numbers of rows of each footer's row groups are not negative, and their sum is that of the file."""
    rows = kept[shape.rows]
    agree: np.ndarray = (rows >= 0).all(axis=0) & (rows.sum(axis=0) == kept[shape.total_rows])
    return agree


def _follow_in_threads(
    shape: Shape, data: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`follow` in threads, for blocks of footers that fit the processor's caches. Numpy releases the GIL."""
    block = int(np.clip(_BLOCK_BYTES * len(starts) // max(1, (ends - starts).sum()), _LEAST_BLOCK, len(starts)))
    firsts = range(0, len(starts), block)
    if len(firsts) == 1:
        return follow(shape.steps, len(shape.values), data, starts, ends)

    def part(first: int) -> tuple[np.ndarray, np.ndarray]:
        return follow(shape.steps, len(shape.values), data, starts[first : first + block], ends[first : first + block])

    with ThreadPoolExecutor() as pool:
        good, kept = zip(*pool.map(part, firsts), strict=True)
    return np.concatenate(good), np.concatenate(kept, axis=1)


def _kept_of_traced(shape: Shape, start: np.int64) -> np.ndarray:
    """The result of `follow` for the traced footer itself."""
    kept = np.array(shape.values, np.int64).reshape(-1, 1)
    for chunks in shape.row_groups:
        for chunk in chunks:
            kept[[place for name, place in chunk.places.items() if name.endswith("_at")]] += start
    return kept


def _group(shape: Shape, files: np.ndarray, kept: np.ndarray, data: np.ndarray) -> Footers:
    return Footers(
        files,
        shape.created_by,
        dict(shape.pairs),
        shape.leaves,
        tuple(shape.orders),
        kept[shape.rows].T.reshape(-1),
        np.full(len(files), len(shape.row_groups), np.int64),
        [[chunk.places for chunk in chunks] for chunks in shape.row_groups],
        kept,
        data,
    )
