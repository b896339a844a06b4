"""Which sketches would help a workload: for look-ups by value or text on columns that the layout does not serve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from zskip.binder import bind
from zskip.expr.tree import Compare, Computable, Contains, In, Literal, Node, Opaque, Reference, walk
from zskip.schema import Schema
from zskip.sketches import SketchName
from zskip.sketches.hashing import can_hash

__all__ = ["SketchAdvice", "worth_sketching"]

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
        size = "" if self.bytes is None else f", takes about {max(self.bytes / 1e6, 0.1):,.1f} MB"
        reads = "the files that may hold the text" if self.read is None else f"about {self.read:.2%} of the files"
        return f"{self.name.column}={self.name.kind}: a look-up reads {reads}, not {self.layout_reads:.2%}{size}"


def worth_sketching(
    sample: pa.Table, queries: Sequence[str], layout_reads: Sequence[float], files: int, total_rows: int
) -> tuple[SketchAdvice, ...]:
    """The sketches with which queries would read at most half of what they read by the layout.

    ``sample``: rows of the table · ``layout_reads``: the share that each query reads by the layout · ``files``: of the
    table. Raises `SqlError`.
    """
    schema = Schema(sample.schema)
    asked: dict[SketchName, list[float]] = {}
    for query, reads in zip(queries, layout_reads, strict=True):
        for name in {name for part in bind(query, schema).conjuncts for name in _serves(part.tree)}:
            asked.setdefault(name, []).append(reads)
    found = []
    for name, reads_of in asked.items():
        share, size = _expected(sample, schema, name, files, total_rows)
        layout = sum(reads_of) / len(reads_of)
        if layout >= _LEAST_GAIN * (1 / files if share is None else share):
            found.append(SketchAdvice(name, share, layout, size))
    return tuple(sorted(found, key=lambda each: (-each.layout_reads, each.name)))


def _serves(node: Node) -> Iterator[SketchName]:
    """The sketches that could prove this condition false."""
    match node:
        case Compare("=", Reference(path, type), Literal()) | Compare("=", Literal(), Reference(path, type)):
            if can_hash(type):
                yield SketchName(path, "values")
        case In(Reference(path, type), _, _):
            if can_hash(type):
                yield SketchName(path, "values")
        case Computable(part):
            yield from _serves(part)
        case Opaque(implies=implies) if implies is not None:
            for each in walk(implies):
                if isinstance(each, Contains) and isinstance(each.term, Reference):
                    yield SketchName(each.term.path, "substrings")


def _expected(
    sample: pa.Table, schema: Schema, name: SketchName, files: int, total_rows: int
) -> tuple[float | None, int | None]:
    """The expected share of files that hold one value, and the bytes of the sketch."""
    if name.kind != "values":
        return None, None
    values = schema.columns[name.column].of(sample).drop_null()
    distinct = pc.count_distinct(values).as_py()
    if distinct > len(values) / 2:
        # Mostly unique: each value of the table lies in about one file.
        entries = total_rows * distinct // max(1, len(values))
        return 1 / files, _BYTES_AN_ENTRY * entries
    each = min(files, max(1, total_rows // max(1, distinct)))
    return each / files, _BYTES_AN_ENTRY * min(total_rows, distinct * each)
