"""Casts at any depth, against the same values built in the other type."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zskip.core.casts import cast, flattened

SHAPES = st.recursive(
    st.just("leaf"),
    lambda inner: st.tuples(st.sampled_from(["list", "pair", "map", "map by UUID", "struct"]), inner),
    max_leaves=4,
)
LISTS = st.sampled_from([pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
WANTED_LISTS = st.sampled_from([pa.list_, pa.large_list])
PAIRS = st.sampled_from([pa.list_, pa.large_list, lambda item: pa.list_(item, 2)])


def _type(shape: Any, leaf: pa.DataType, key: pa.DataType, make_list: Any, make_pair: Any) -> pa.DataType:
    if shape == "leaf":
        return leaf
    inside = _type(shape[1], leaf, key, make_list, make_pair)
    if shape[0] == "struct":
        return pa.struct([("a", inside), ("b", inside)])
    if shape[0].startswith("map"):
        return pa.map_(key if "UUID" in shape[0] else pa.string(), inside)
    return (make_list if shape[0] == "list" else make_pair)(inside)


def _values(shape: Any) -> st.SearchStrategy[Any]:
    if shape == "leaf":
        return st.none() | st.uuids().map(str)
    inside = _values(shape[1])
    keys = st.uuids().map(str) if "UUID" in shape[0] else st.sampled_from("xyz")
    made = {
        "list": st.lists(inside, max_size=3),
        "pair": st.lists(inside, min_size=2, max_size=2),
        "struct": st.fixed_dictionaries({"a": inside, "b": inside}),
    }.get(shape[0], st.dictionaries(keys, inside, max_size=3).map(lambda entries: list(entries.items())))
    return st.none() | made


def _as_texts(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, list | tuple):
        return type(value)(map(_as_texts, value))
    return {key: _as_texts(each) for key, each in value.items()} if isinstance(value, dict) else value


@given(st.data())
def test_texts_become_uuids_or_dictionaries_at_any_depth(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    rows = data.draw(st.lists(_values(shape), max_size=6))
    begin = data.draw(st.integers(0, len(rows)))
    given_type = _type(shape, pa.string(), pa.string(), data.draw(LISTS), data.draw(PAIRS))
    texts = pa.array(rows, given_type)[begin:]
    leaf = data.draw(st.sampled_from([pa.uuid(), pa.dictionary(pa.int32(), pa.string())]))
    wanted = _type(shape, leaf, pa.uuid(), data.draw(WANTED_LISTS), lambda item: pa.list_(item, 2))
    found = cast(texts, wanted)
    found.validate(full=True)
    assert found.type == wanted
    assert _as_texts(found.to_pylist()) == texts.to_pylist()


@pytest.mark.parametrize("wanted", [pa.list_(pa.uuid(), 2), pa.list_(pa.uuid()), pa.large_list(pa.uuid())], ids=str)
def test_what_lists_of_a_fixed_size_hold_where_they_are_null_is_no_value(wanted: pa.DataType) -> None:
    """Arrow fills them with empty texts below a struct that is NULL."""
    pair = [str(UUID(int=7))] * 2
    rows = [None, {"pair": pair}, {"pair": None}]
    texts = pa.array(rows, pa.struct([("pair", pa.list_(pa.string(), 2))]))
    assert _as_texts(cast(texts, pa.struct([("pair", wanted)])).to_pylist()) == rows


def test_lists_that_are_all_null_are_flattened() -> None:
    lists = pa.ListArray.from_arrays([0, 0], pa.array([], pa.binary(16)).cast(pa.uuid()), mask=pa.array([True]))
    assert flattened(lists).type == pa.uuid()
    nested = pa.nulls(3, pa.list_(pa.struct([("a", pa.json_())])))
    assert len(flattened(nested)) == 0


def test_lists_of_another_length_than_the_types_are_refused() -> None:
    with pytest.raises(pa.ArrowInvalid, match="another length than 2"):
        cast(pa.array([["a"], None], pa.list_(pa.string())), pa.list_(pa.dictionary(pa.int8(), pa.string()), 2))


def test_a_required_field_stays_without_nulls_where_its_struct_is_null() -> None:
    rows = pa.array([{"a": 1}, None], pa.struct([pa.field("a", pa.int32(), nullable=False)]))
    found = cast(rows, pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())]))
    assert found.to_pylist() == [{"a": 1, "b": None}, None]
    assert found.chunk(0).field("a").null_count == 0


def _nullable(type: pa.DataType) -> pa.DataType:
    if pa.types.is_list(type):
        return pa.list_(_nullable(type.value_type))
    if pa.types.is_dictionary(type):
        return pa.string()
    return pa.struct([(field.name, _nullable(field.type)) for field in type]) if pa.types.is_struct(type) else type


LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int32(): st.integers(-9, 9),
    pa.string(): st.text(max_size=20),
    pa.bool_(): st.booleans(),
    pa.binary(16): st.uuids().map(lambda value: value.bytes),
    pa.list_(pa.int8()): st.lists(st.none() | st.integers(0, 9), max_size=3),
    pa.dictionary(pa.int8(), pa.string()): st.sampled_from("xyz"),
}


@given(st.data())
def test_required_fields_inside_structs_that_are_null_hold_no_null(data: st.DataObject) -> None:
    leaf = data.draw(st.sampled_from(list(LEAVES)))
    type, values = leaf, LEAVES[leaf]
    for _ in range(data.draw(st.integers(1, 3))):
        required = data.draw(st.booleans())
        inside = values if required else st.none() | values
        type, values = pa.struct([pa.field("a", type, not required)]), st.fixed_dictionaries({"a": inside})
        if data.draw(st.booleans()):
            type, values = pa.list_(type), st.lists(st.none() | values, max_size=3)
    rows = pa.array(data.draw(st.lists(st.none() | values, min_size=1, max_size=6)), _nullable(type))
    if data.draw(st.booleans()):  # it gives NULL for the fields of a struct that is NULL
        rows = duckdb.from_arrow(pa.table({"c": rows})).to_arrow_table()["c"].combine_chunks()
    found = cast(rows[data.draw(st.integers(0, len(rows) - 1)) :], type)
    found.validate(full=True)
    pq.write_table(pa.table({"c": found}), pa.BufferOutputStream())
    assert found.to_pylist() == rows[len(rows) - len(found) :].to_pylist()


def test_a_null_in_a_required_field_is_refused() -> None:
    rows = pa.array([{"a": 1}, {"a": None}], pa.struct([("a", pa.int64())]))
    with pytest.raises(pa.ArrowInvalid, match='"a" allows no NULL'):
        cast(rows, pa.struct([pa.field("a", pa.int64(), nullable=False)]))
