"""The types of the values inside structs, lists and maps."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

__all__ = ["with_leaves"]


def with_leaves(type: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type with its leaves changed; the type itself where none changes. Lists become plain ones.

    >>> with_leaves(pa.struct({"a": pa.list_(pa.float16())}), lambda leaf: pa.float32())
    StructType(struct<a: list<item: float>>)
    """
    if not pa.types.is_nested(type) or pa.types.is_union(type):
        return change(type)
    fields = [type.field(number) for number in range(type.num_fields)]
    if all(with_leaves(field.type, change) == field.type for field in fields):
        return type
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(with_leaves(field.type, change)) for field in type])
    if pa.types.is_map(type):
        return pa.map_(with_leaves(type.key_type, change), with_leaves(type.item_type, change))
    return pa.list_(type.value_field.with_type(with_leaves(type.value_type, change)))
