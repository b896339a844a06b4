"""Which sketches would help a workload: for look-ups by value or text on columns that the layout does not serve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.binder import bind
from zskip.core.option_checks import size_text
from zskip.core.schema import Schema
from zskip.language.tree import Compare, Computable, Contains, In, Literal, Node, Opaque, Reference, walk
from zskip.tablelog.sketches import SketchName
from zskip.tablelog.sketches.hashing import can_hash

_BYTES_AN_ENTRY = 3
_LEAST_GAIN = 2.0


@dataclass(frozen=True, slots=True)
class SketchAdvice:
    """A sketch that pays. ``read``: the share of files that a look-up of one value would read · ``layout_reads``: the
    average share that the best layout reads of the queries that the sketch would serve · ``bytes``: its approximate
    size. ``read`` and ``bytes`` are None where a sample cannot tell."""

    name: SketchName
    read: float | None
    layout_reads: float
    bytes: int | None

    def __str__(self) -> str:
        size = "" if self.bytes is None else f", takes about {size_text(self.bytes)}"
        reads = "the files that may hold the text" if self.read is None else f"about {self.read:.2%} of the files"
        return f"{self.name.column}={self.name.kind}: a look-up reads {reads}, not {self.layout_reads:.2%}{size}"


def worth_sketching(
    sample: pa.Table, queries: Sequence[str], layout_reads: Sequence[float], files: int, total_rows: int
) -> tuple[SketchAdvice, ...]:
    """The sketches with which queries would read at most half as much as with the layout alone.

    ``sample``: rows of the table · ``layout_reads``: the share that each query reads with the layout · ``files``: the
    number of the table's files. Raises `SqlError`.
    """
    schema = Schema(sample.schema)
    asked: dict[SketchName, list[float]] = {}
    for query, reads in zip(queries, layout_reads, strict=True):
        for name in {name for part in bind(query, schema).conjuncts for name, _ in _serves(part.tree)}:
            asked.setdefault(name, []).append(reads)
    found = []
    for name, reads_of in asked.items():
        share, size = _expected(sample, schema, name, files, total_rows)
        layout = sum(reads_of) / len(reads_of)
        if layout >= _LEAST_GAIN * (1 / files if share is None else share):
            found.append(SketchAdvice(name, share, layout, size))
    return tuple(sorted(found, key=lambda each: (-each.layout_reads, each.name)))


def reads_with_values(sample: pa.Table, queries: Sequence[str], files: int, total_rows: int) -> list[float]:
    """The share of files that each query would read with the best sketch of values on one of its columns.

    It is 1 if no sketch serves the query. Rows are assumed to be in random files, which is true of columns that the
    layout does not cluster. Raises `SqlError`.
    """
    schema = Schema(sample.schema)
    rows: dict[str, float] = {}
    found = []
    for query in queries:
        least = 1.0
        for part in bind(query, schema).conjuncts:
            for name, values in _serves(part.tree):
                if name.kind == "values":
                    if name.column not in rows:
                        rows[name.column] = _rows_of_one_value(sample, schema, name.column, total_rows)
                    least = min(least, _share_of_files(rows[name.column] * values, files))
        found.append(least)
    return found


def _serves(node: Node) -> Iterator[tuple[SketchName, int]]:
    """The sketches that could prove this condition false, each with the number of constants to look up in it."""
    match node:
        case Compare("=", Reference(path, type), Literal()) | Compare("=", Literal(), Reference(path, type)):
            if can_hash(type):
                yield SketchName(path, "values"), 1
        case In(Reference(path, type), values, _):
            if can_hash(type):
                yield SketchName(path, "values"), len(values)
        case Computable(part):
            yield from _serves(part)
        case Opaque(implies=implies) if implies is not None:
            for each in walk(implies):
                if isinstance(each, Contains) and isinstance(each.term, Reference):
                    yield SketchName(each.term.path, "substrings"), 1


def _expected(
    sample: pa.Table, schema: Schema, name: SketchName, files: int, total_rows: int
) -> tuple[float | None, int | None]:
    """The expected share of files that hold one value, and the bytes of the sketch."""
    if name.kind != "values":
        return None, None
    rows = _rows_of_one_value(sample, schema, name.column, total_rows)
    share = _share_of_files(rows, files)
    return share, int(_BYTES_AN_ENTRY * min(total_rows, total_rows / rows * share * files))


def _rows_of_one_value(sample: pa.Table, schema: Schema, column: str, total_rows: int) -> float:
    """The number of the table's rows that share a row's value, on average over the rows.

    It is estimated from the pairs of equal values in the sample. The number of distinct values would not do: values
    that repeat in a large table are often unique in its sample.
    """
    values = schema.columns[column].of(sample).drop_null()
    counts = np.asarray(pc.struct_field(pc.value_counts(values), "counts"), np.float64)
    pairs = len(values) * (len(values) - 1)
    equal = float((counts * (counts - 1)).sum()) / pairs if pairs else 0.0
    return max(1.0, equal * total_rows)


def _share_of_files(rows: float, files: int) -> float:
    """The expected share of files that hold at least one of some rows, if the rows are in random files."""
    return float(max(1 / files, 1.0 - (1.0 - 1.0 / files) ** rows))
