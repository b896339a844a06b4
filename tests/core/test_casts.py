"""Casts at any depth, against the same values built in the other type."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from zskip.core.casts import cast

SHAPES = st.recursive(
    st.just("text"), lambda inner: st.tuples(st.sampled_from(["list", "map", "struct"]), inner), max_leaves=4
)


def _type(shape: Any, leaf: pa.DataType, make_list: Any) -> pa.DataType:
    if shape == "text":
        return leaf
    inside = _type(shape[1], leaf, make_list)
    return {
        "list": make_list(inside),
        "map": pa.map_(pa.string(), inside),
        "struct": pa.struct([("a", inside), ("b", inside)]),
    }[shape[0]]


def _values(shape: Any) -> st.SearchStrategy[Any]:
    if shape == "text":
        return st.none() | st.uuids().map(str)
    inside = _values(shape[1])
    made = {
        "list": st.lists(inside, max_size=3),
        "map": st.dictionaries(st.sampled_from("xyz"), inside).map(lambda entries: list(entries.items())),
        "struct": st.fixed_dictionaries({"a": inside, "b": inside}),
    }[shape[0]]
    return st.none() | made


def _as_texts(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, list | tuple):
        return type(value)(map(_as_texts, value))
    return {key: _as_texts(each) for key, each in value.items()} if isinstance(value, dict) else value


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_texts_become_uuids_at_any_depth(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    rows = data.draw(st.lists(_values(shape), max_size=6))
    begin = data.draw(st.integers(0, len(rows)))
    texts = pa.array(rows, _type(shape, pa.string(), data.draw(st.sampled_from([pa.list_, pa.large_list]))))[begin:]
    wanted = _type(shape, pa.uuid(), pa.list_)
    found = cast(texts, wanted)
    found.validate(full=True)
    assert found.type == wanted
    assert _as_texts(found.to_pylist()) == texts.to_pylist()


def test_a_required_field_stays_without_nulls_where_its_struct_is_null() -> None:
    rows = pa.array([{"a": 1}, None], pa.struct([pa.field("a", pa.int32(), nullable=False)]))
    found = cast(rows, pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())]))
    assert found.to_pylist() == [{"a": 1, "b": None}, None]
    assert found.chunk(0).field("a").null_count == 0
