"""`cast`: a column in another type, at any depth, also by casts that Arrow lacks: UUIDs and JSON of texts, intervals of
the bytes in which Parquet stores them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.core.offsets import offsets_of


def cast(values: pa.Array | pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    """Values in another type that can hold them; the fields of structs are matched by name, missing ones become NULL.

    Raises `pyarrow.ArrowInvalid` and `ValueError` for a value that does not fit.
    """
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    return pa.chunked_array([_cast(chunk, type) for chunk in chunks], type)


def flattened(lists: pa.Array) -> pa.Array:
    """The items of lists. `flatten` alone fails for extension types if all lists are NULL."""
    return lists.values[:0] if lists.null_count == len(lists) else lists.flatten()


def leaf_values(values: pa.Array) -> Iterator[pa.Array]:
    """The values at the ends of nested ones: of fields, items, and the keys and items of maps.

    >>> [leaf.to_pylist() for leaf in leaf_values(pa.array([{"a": 1, "l": [2, 3]}]))]
    [[1], [2, 3]]
    """
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if t.is_map(values.type):
        inner = [values.keys, values.items]
    elif t.is_struct(values.type):
        inner = values.flatten()
    elif t.is_nested(values.type):
        inner = [flattened(values)]
    else:
        yield values
        return
    for each in inner:
        yield from leaf_values(each)


def _cast(values: pa.Array, type: pa.DataType) -> pa.Array:
    """As `cast`, for one array."""
    if t.is_dictionary(values.type) and values.dictionary.null_count:
        values = values.dictionary_decode()  # a null in the dictionary, which the indices do not mark
    if values.type == type:
        return values
    if t.is_run_end_encoded(values.type):
        return _cast(pc.run_end_decode(values), type)
    if isinstance(type, pa.JsonType) and isinstance(values.type, pa.JsonType):
        return pa.ExtensionArray.from_storage(type, values.storage.cast(type.storage_type))
    if isinstance(type, pa.BaseExtensionType) and t.is_string(t.logical_type(values.type)):
        return pa.ExtensionArray.from_storage(type, _parsed(values.to_pylist(), type))
    if t.is_interval(type) and values.type == pa.binary(12):
        return _intervals(values)
    of_size = t.is_fixed_size_list(values.type) and not t.is_fixed_size_list(type)
    if of_size or t.is_list_view(values.type) or t.is_large_list_view(values.type):
        # Casting list views directly gives wrong rows in Arrow 26; rebuilding from lengths does not. Lists of a fixed
        # size have items where they are NULL, which may not fit.
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
        offsets = pa.array(offsets_of(lengths), pa.int32())
        return _cast(pa.ListArray.from_arrays(offsets, flattened(values), mask=values.is_null()), type)
    # Arrow's cast parses no texts inside lists and maps, and repeats indices of an empty dictionary in lists of a fixed
    # size.
    if _is_list(values.type) and _is_list(type) and values.type.value_type != type.value_type:
        offsets, used = _from_zero(values.offsets)
        items, is_null = _cast(values.values[used], type.value_type), values.is_null()
        if t.is_large_list(type):
            return pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), items, type, mask=is_null)
        return pa.ListArray.from_arrays(offsets, items, type, mask=is_null)
    if t.is_fixed_size_list(type) and values.type.value_type != type.value_type:
        items = _cast(_items_of_size(values, type.list_size), type.value_type)
        items = items if type.value_field.nullable else _without_nulls(items)
        return pa.FixedSizeListArray.from_arrays(items, type=type, mask=values.is_null())
    if t.is_map(values.type) and t.is_map(type):
        offsets, used = _from_zero(values.offsets)
        keys, items = _cast(values.keys[used], type.key_type), _cast(values.items[used], type.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type, mask=values.is_null())
    if t.is_struct(values.type) and t.is_struct(type):
        return pa.StructArray.from_arrays(_children(values, type), fields=list(type), mask=values.is_null())
    if t.is_dictionary(type) and t.is_dictionary(values.type):
        indices, dictionary = values.indices.cast(type.index_type), _cast(values.dictionary, type.value_type)
        return pa.DictionaryArray.from_arrays(indices, dictionary, ordered=type.ordered)
    if t.is_dictionary(type):
        return _cast(values, type.value_type).dictionary_encode().cast(type)
    if t.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values if values.type == type else values.cast(type)


def _is_list(type: pa.DataType) -> bool:
    return bool(t.is_list(type) or t.is_large_list(type))


def _from_zero(offsets: pa.Array) -> tuple[pa.Array, slice]:
    """The offsets of lists or maps moved to begin at 0, and the items that they use."""
    numbers = offsets.to_numpy()
    return pa.array(numbers - numbers[0], pa.int32()), slice(numbers[0], numbers[-1])


def _items_of_size(lists: pa.Array, size: int) -> pa.Array:
    """The items of lists that have ``size`` each; those of a list that is NULL are NULL."""
    is_null = lists.is_null().to_numpy(zero_copy_only=False)
    if t.is_fixed_size_list(lists.type):
        starts, sizes = (lists.offset + np.arange(len(lists))) * size, np.array(lists.type.list_size)
    else:
        offsets = lists.offsets.to_numpy()
        starts, sizes = offsets[:-1], np.diff(offsets)
    if not (is_null | (sizes == size)).all():
        raise pa.ArrowInvalid(f"a list has another length than {size}")
    places = starts[:, np.newaxis] + np.arange(size)
    return lists.values.take(pa.array(places.ravel(), mask=np.repeat(is_null, size)))


def _parsed(texts: Sequence[str | None], type: pa.BaseExtensionType) -> pa.Array:
    """The storage of UUIDs or JSON from their texts. Raises `ValueError`."""
    if type.extension_name == "arrow.uuid":
        return pa.array([None if text is None else uuid.UUID(text).bytes for text in texts], type.storage_type)
    for text in texts:
        if text is not None:
            json.loads(text)
    return pa.array(texts, type.storage_type)


def _intervals(values: pa.Array) -> pa.Array:
    """Intervals of Parquet, which Arrow reads as their bytes: months, days and milliseconds, each of 32 bits."""
    plain = values.fill_null(bytes(12))
    start = 12 * plain.offset
    stored = np.frombuffer(plain.buffers()[1], "<u4", 3 * len(plain), start).reshape(-1, 3)
    found = np.empty(len(plain), [("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
    found["months"], found["days"], found["nanoseconds"] = stored[:, 0], stored[:, 1], stored[:, 2] * np.int64(10**6)
    is_valid = pa.array(values.is_valid().to_numpy(zero_copy_only=False)).buffers()[1]
    buffers = [is_valid if values.null_count else None, pa.py_buffer(found)]
    return pa.Array.from_buffers(pa.month_day_nano_interval(), len(values), buffers, values.null_count)


def _children(values: pa.StructArray, type: pa.StructType) -> list[pa.Array]:
    """The fields of structs in the order of ``type``, matched by name; missing ones become NULL.

    What a field holds where its struct is NULL is arbitrary: NULL here, unless the field allows none.
    """
    given, children = dict(zip(values.type.names, values.flatten(), strict=True)), []
    for field in type:
        if field.name not in given:
            children.append(pa.nulls(len(values), field.type))
        elif field.nullable:
            children.append(_cast(given[field.name], field.type))
        elif given[field.name].null_count > values.null_count:
            raise pa.ArrowInvalid(f'the field "{field.name}" allows no NULL, and the rows hold one')
        else:
            children.append(_without_nulls(_cast(values.field(field.name), field.type)))
    return children


def _without_nulls(values: pa.Array) -> pa.Array:
    """The same values, and arbitrary ones in place of NULLs."""
    if not values.null_count:
        return values
    if isinstance(values.type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(values.type, _without_nulls(values.storage))
    if t.is_dictionary(values.type):
        return _without_nulls(values.dictionary_decode()).dictionary_encode().cast(values.type)
    if t.is_struct(values.type):
        return pa.StructArray.from_arrays([values.field(n) for n in range(len(values.type))], fields=list(values.type))
    buffers = [None, *values.buffers()[1:]]
    if not values.type.num_fields:
        return pa.Array.from_buffers(values.type, len(values), buffers, 0, values.offset)
    own = buffers[: values.type.num_buffers]
    return pa.Array.from_buffers(values.type, len(values), own, 0, values.offset, [values.values])
