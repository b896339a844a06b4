"""The data of the page: the ranges of every file, and the predicate as a tree with changeable constants.

Bounds are exported as the planner compares them (`intervals.spans`): numbers, dates and times as float64, which
is exact up to 2**53, strings as ranks among all bounds of the column. For a part of the predicate that the page cannot
prove itself, the planner's outcomes are exported.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from zskip import pruning
from zskip.core import types as t
from zskip.language import Predicate
from zskip.language.intervals.spans import key_family, key_limits, keys, of_column
from zskip.language.tree import And, Compare, In, Is, IsNull, Literal, Node, Not, Or, Reference
from zskip.stats import Statistics

_EXACT = 1 << 53
_MOST_CONSTANTS = 64
"""A comparison with more constants cannot be changed in the page; its outcomes are exported."""


@dataclass(frozen=True, slots=True)
class ExportedColumn:
    """A column, and the form in which the page shows its values.

    ``kind``: "number", "boolean", "date", "timestamp", "time" (of day) or "text" · ``scale``: units of the key per
    displayed unit (10**scale of a decimal) or per millisecond · ``discrete``: no value lies between two neighbouring
    integer keys · ``exact``: the page may compare its bounds with constants; if not, numbers may be rounded ·
    ``zoned``: a timestamp of a time zone, shown in UTC · ``texts``: of a "text", the distinct bounds in order, as
    Latin-1 strings of bytes, or for binary as hexadecimal digits · ``limits``: the least and the greatest key of the
    type, which the planner takes for unknown bounds.
    """

    path: str
    kind: str
    scale: float
    discrete: bool
    exact: bool
    zoned: bool = False
    texts: list[str] = field(default_factory=list)
    limits: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """All files, or all row groups: their statistics, and each column's bounds as numbers."""

    statistics: Statistics
    bounds: dict[str, tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.uint8]]]


def columns_of(
    references: Sequence[Reference], statistics: Sequence[Statistics]
) -> tuple[list[ExportedColumn], list[Level]]:
    """The columns, and the levels with each column's bounds as order-preserving numbers."""
    levels = [Level(each, {}) for each in statistics]
    exported = []
    for reference in references:
        is_text = key_family(reference.type) == "bytes" and not t.is_decimal(reference.type)
        exported.append((_text_column if is_text else _number_column)(reference, levels))
    return exported, levels


def _known(reference: Reference, statistics: Statistics) -> tuple[list[pa.Array], NDArray[np.uint8]]:
    """The lower and the upper bounds of a column, null where the planner has none, and what its values may be."""
    ranges = statistics.columns.get(reference.path)
    span = of_column(ranges, reference.type, len(statistics))
    flags = (span.value + 2 * span.null + 4 * span.nan).astype(np.uint8)
    if ranges is None or ranges.lower.type != reference.type:
        return [pa.nulls(len(span), reference.type)] * 2, flags
    # The planner does not use a lower bound above the upper one.
    pairs = (ranges.lower, span.lower), (ranges.upper, span.upper)
    return [pc.if_else(pc.equal(keys(bound), used), bound, None) for bound, used in pairs], flags


def _text_column(reference: Reference, levels: Sequence[Level]) -> ExportedColumn:
    """A column of strings or binary. Its bounds get odd ranks, 1, 3, 5, …: a constant may lie between two of them."""
    known = [_known(reference, level.statistics) for level in levels]
    distinct = pc.unique(pa.chunked_array([keys(bound) for bounds, _ in known for bound in bounds], pa.binary()))
    distinct = distinct.take(pc.sort_indices(distinct)).drop_null()
    for level, (bounds, flags) in zip(levels, known, strict=True):
        lower, upper = (
            2.0 * np.asarray(pc.index_in(keys(bound), distinct).cast(pa.float64()).fill_null(unknown)) + 1.0
            for bound, unknown in zip(bounds, (-np.inf, np.inf), strict=True)
        )
        level.bounds[reference.path] = lower, upper, flags
    exact = t.is_string(reference.type)
    texts = [value.decode("latin-1") if exact else value.hex() for value in distinct.to_pylist()]
    return ExportedColumn(reference.path, "text", 1.0, False, exact, texts=texts)


def _number_column(reference: Reference, levels: Sequence[Level]) -> ExportedColumn:
    type = reference.type
    has_keys = key_family(type) != "bytes" and type != pa.uint64()
    exact = has_keys
    for level in levels:
        bounds, flags = _known(reference, level.statistics)
        ends = []
        for bound, unknown in zip(bounds, (-np.inf, np.inf), strict=True):
            values = pa.array(keys(bound)) if has_keys else bound
            numbers = np.asarray(values.cast(pa.float64(), safe=False).fill_null(0.0))
            is_known = np.asarray(bound.is_valid())
            if key_family(type) == "integer":
                exact = exact and bool((np.abs(numbers[is_known]) <= _EXACT).all())
            ends.append(np.where(is_known, numbers, unknown))
        level.bounds[reference.path] = ends[0], ends[1], flags
    kind, scale = _shown(type)
    discrete, zoned = key_family(type) == "integer", t.is_timestamp(type) and type.tz is not None
    limits = key_limits(type) if discrete else None
    return ExportedColumn(reference.path, kind, scale, discrete, exact, zoned, limits=limits)


def _shown(type: pa.DataType) -> tuple[str, float]:
    if t.is_date(type):
        return "date", 1.0 / 86_400_000 if t.is_date32(type) else 1.0
    if t.is_timestamp(type) or t.is_time(type):
        return "timestamp" if t.is_timestamp(type) else "time", {"s": 1e-3, "ms": 1.0, "us": 1e3, "ns": 1e6}[type.unit]
    if t.is_decimal(type) and key_family(type) == "integer":
        return "number", float(10**type.scale)
    return "boolean" if t.is_boolean(type) else "number", 1.0


def tree_of(
    predicate: Predicate, columns: Sequence[ExportedColumn], levels: Sequence[Level], arrays: Arrays
) -> dict[str, Any]:
    """The predicate as a JSON tree. A constant is exported as its key, the number that orders it, or as text."""
    known = {column.path: column for column in columns if column.exact}

    def constant(value: pa.Scalar, column: ExportedColumn) -> dict[str, Any]:
        if column.kind == "text":
            return {"text": value.as_py()}
        key = keys(pa.array([value.as_py()], value.type))
        return {"key": float(key[0])}

    def fixed(node: Node) -> dict[str, Any]:
        masks = []
        for level in levels:
            found = pruning.outcomes(replace(predicate, tree=node, parts=()), level.statistics)
            masks.append(arrays.add(_mask(found)))
        return {"is": "fixed", "masks": masks}

    def exported(node: Node) -> dict[str, Any]:
        match node:
            case And(parts) | Or(parts):
                return {"is": "and" if isinstance(node, And) else "or", "parts": [exported(part) for part in parts]}
            case Not(part):
                return {"is": "not", "part": exported(part)}
            case Is(part, outcome):
                return {"is": "is", "part": exported(part), "outcome": outcome}
            case IsNull(Reference(path, _)) if path in known:
                return {"is": "null", "column": path}
            case Compare(op, Reference(path, _), Literal(value)) if _sendable(known.get(path), [value]):
                return {"is": "compare", "op": op, "column": path, "constant": constant(value, known[path])}
            case Compare(op, Literal(value), Reference(path, _)) if _sendable(known.get(path), [value]):
                swapped = {"<": ">", "<=": ">=", "=": "="}[op]
                return {"is": "compare", "op": swapped, "column": path, "constant": constant(value, known[path])}
            case In(Reference(path, _), values, or_null) if _sendable(known.get(path), list(values)):
                constants = [constant(value, known[path]) for value in values]
                return {"is": "in", "column": path, "constants": constants, "or_null": or_null}
        return fixed(node)

    return exported(predicate.tree)


def _sendable(column: ExportedColumn | None, values: Sequence[pa.Scalar]) -> bool:
    """Whether the page compares these constants with the column exactly as the planner does."""
    if column is None or len(values) > _MOST_CONSTANTS or not all(value.is_valid for value in values):
        return False
    if column.kind == "text":
        return True
    numbers = np.asarray(keys(pa.array([value.as_py() for value in values], values[0].type)) if values else [])
    return bool(np.isfinite(numbers).all() and (not column.discrete or (np.abs(numbers) <= _EXACT).all()))


def _mask(found: pruning.Outcomes) -> NDArray[np.uint8]:
    mask: NDArray[np.uint8] = (
        found.can_be_true + 2 * found.can_be_false + 4 * found.can_be_null + 8 * found.can_fail
    ).astype(np.uint8)
    return mask


# The arrays of the page in their compact form, and the columns whose arrays fit into the page.


def packed(data: bytes) -> str:
    """Bytes in the form in which the page contains them: compressed, in Base64."""
    return base64.b64encode(zlib.compress(data, 9)).decode()


class Arrays:
    """Arrays in one block of bytes, each in the narrowest form that holds it exactly.

    The bytes of an array are ordered by their position in a value: the first byte of each value, then the second, and
    so on. Nearby values are similar, so these runs compress better.
    """

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._length = 0

    @property
    def block(self) -> bytes:
        """All arrays, each aligned to eight bytes."""
        return b"".join(self._blocks)

    def packed(self) -> str:
        """The block, compressed, in Base64."""
        return packed(self.block)

    def add(self, values: NDArray[Any]) -> dict[str, Any]:
        """Add an array. Returns its position in the block and its form: ``value = base + number``."""
        base = 0.0
        if values.dtype == np.float64:
            finite = values[np.isfinite(values)]
            integral = len(finite) == len(values) and bool((finite == np.floor(finite)).all())
            if integral and len(finite) and finite.max() - finite.min() < 1 << 32:
                base = float(finite.min())
                shifted = values - base
                values = shifted.astype(np.uint16 if shifted.max() < 1 << 16 else np.uint32)
        raw = np.ascontiguousarray(values).view(np.uint8).reshape(-1, values.dtype.itemsize).T.tobytes()
        place = {"at": self._length, "length": len(values), "type": values.dtype.name, "base": base}
        padded = raw + bytes(-len(raw) % 8)
        self._blocks.append(padded)
        self._length += len(padded)
        return place


def fitting(
    columns: Mapping[str, tuple[Sequence[str], Sequence[NDArray[Any]]]], needed: set[str], characters: int
) -> set[str]:
    """The columns that fit into so many characters: all ``needed`` ones, then the others in their order.

    ``columns``: the texts and arrays of each column. At least one column is returned.
    """
    kept: set[str] = set()
    for path in sorted(columns, key=lambda path: path not in needed):
        texts, values = columns[path]
        arrays = Arrays()
        for each in values:
            arrays.add(each)
        characters -= len(arrays.packed()) + (len(json.dumps(list(texts), ensure_ascii=False)) if texts else 0)
        if not kept or path in needed or characters >= 0:
            kept.add(path)
    return kept
