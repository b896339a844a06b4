"""The types of the values inside structs, lists and maps."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

__all__ = ["with_leaves"]


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
