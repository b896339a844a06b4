"""`Type`: the entry of one type of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

Form: TypeAlias = Literal["integer", "float", "decimal", "bytes"]
"""The representation of values, by which they are compared, hashed and stored in the index."""


def _itself(type: pa.DataType) -> pa.DataType:
    return type


def _none(type: pa.DataType) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """One type: how its values are ordered, stored, named and written in SQL. To add a type is to add an entry.

    ``arrow``: an example of each Arrow type of the entry. ``forms``: an example of each that `logical` turns into one.
    ``exact``: the entry covers only these Arrow types, not others with the same Arrow id.
    ``form``: None for a type whose values have no agreed order: it is stored and read, but never used to prune.
    ``kind``: the group of types that engines compare with one another, such as "number"; the type's name if empty.
    ``compared``: the type in which Arrow's kernels compare the values of a logical type.
    ``limits``: the least and the greatest value of a type of the form "integer", in its own units.
    ``tick``: the unit of a date or time in nanoseconds, for a type whose integers count such units.
    ``stored``: the type with which a table stores this one.
    ``duckdb``, ``spark``: the engine's name of the type of a Parquet column; None if it has none.
    ``dialects``: the dialects that have the type, and to which `parsed` and `read` apply.
    ``parsed``: the parser's names of the type. ``spelled``: a value as the text that a cast to the type reads.
    ``plain``: whether a constant of the type needs no cast. ``read``: the value of a string that is compared with a
    column; None if its cast is left to the engine. ``docs``: the row of docs/predicates.md.
    """

    name: str
    arrow: tuple[pa.DataType, ...]
    forms: tuple[pa.DataType, ...] = ()
    exact: bool = False
    form: Form | None = None
    kind: str = ""
    logical: Callable[[pa.DataType], pa.DataType] = _itself
    compared: Callable[[pa.DataType], pa.DataType] = _itself
    limits: Callable[[pa.DataType], tuple[int, int]] | None = None
    tick: Callable[[pa.DataType], int | None] = _none
    stored: Callable[[pa.DataType], pa.DataType] = _itself
    duckdb: Callable[[pa.DataType], str | None] = _none
    spark: Callable[[pa.DataType], str | None] = _none
    dialects: tuple[str, ...] = ("duckdb", "spark")
    parsed: Mapping[str, pa.DataType] = field(default_factory=dict)
    spelled: Callable[[Any], str] | None = None
    plain: Callable[[pa.DataType], bool] | None = None
    read: Callable[[str], pa.Scalar | None] | None = None
    docs: tuple[str, str] | None = None


# The types of the values inside structs, lists and maps.


def with_leaves(type: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type with its leaves changed; the type itself if none changes. Lists of all forms become plain lists.

    >>> with_leaves(pa.struct({"a": pa.list_(pa.float16())}), lambda leaf: pa.float32())
    StructType(struct<a: list<item: float>>)
    """
    if not pa.types.is_nested(type) or pa.types.is_union(type):
        return change(type)
    fields = [type.field(number) for number in range(type.num_fields)]
    changed = [field.with_type(with_leaves(field.type, change)) for field in fields]
    if changed == fields:
        return type
    if pa.types.is_struct(type):
        return pa.struct(changed)
    if pa.types.is_map(type):
        key, item = changed[0].type
        return pa.map_(key.type, item.type)
    return pa.list_(changed[0])


# Bounds of one type as bounds of another that holds all its values, or unknown: never rounded, never wrapped.


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether every value of ``old`` is a value of ``new``, in the same order.

    >>> widens(pa.int32(), pa.int64()), widens(pa.int64(), pa.int32()), widens(pa.string(), pa.int64())
    (True, False, False)
    """
    if old == new or t.is_null(old):
        return True
    if t.is_integer(old) and t.is_integer(new):
        signs = t.is_unsigned_integer(old), t.is_unsigned_integer(new)
        return bool(old.bit_width < new.bit_width and (signs[0] == signs[1] or signs == (True, False)))
    if t.is_floating(new) and (t.is_integer(old) or t.is_floating(old)):
        mantissa = {16: 11, 32: 24, 64: 53}[new.bit_width]
        narrower = mantissa + 1 if t.is_integer(old) else new.bit_width
        return bool(old.bit_width < narrower)
    if t.is_decimal(old) and t.is_decimal(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    if t.is_integer(old) and t.is_decimal(new):
        return bool(new.precision - new.scale >= len(str(2**old.bit_width)))
    if t.is_date(old):
        return bool(t.is_date(new) and new.bit_width > old.bit_width) or (t.is_timestamp(new) and new.tz is None)
    finer = ("s", "ms", "us", "ns")
    if t.is_timestamp(old) and t.is_timestamp(new):
        return (old.tz is None) == (new.tz is None) and finer.index(new.unit) >= finer.index(old.unit)
    if (t.is_time(old) and t.is_time(new)) or (t.is_duration(old) and t.is_duration(new)):
        return finer.index(new.unit) >= finer.index(old.unit)
    return False


def widened(bounds: pa.Array, type: pa.DataType) -> pa.Array:
    """The bounds as values of ``type``; all unknown if it cannot hold every value of their type.

    >>> widened(pa.array([1, None], pa.int32()), pa.int64()).to_pylist()
    [1, None]
    >>> widened(pa.array([0, 2**30], pa.date32()), pa.timestamp("ns")).is_null().to_pylist()
    [False, True]
    """
    if bounds.type == type:
        return bounds
    if not widens(bounds.type, type):
        return pa.nulls(len(bounds), type)
    try:
        return bounds.cast(type)
    except pa.ArrowException:  # a date outside the range of timestamps in nanoseconds
        wrapped = bounds.cast(type, safe=False)
        return pc.if_else(pc.equal(wrapped.cast(bounds.type, safe=False), bounds), wrapped, pa.scalar(None, type))
