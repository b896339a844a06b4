"""The registry of types: what each entry promises, and a new type by one entry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import zskip
from tests import ROOT
from zskip.core import types as t
from zskip.language.intervals.spans import key_family, key_limits, keys, values_of
from zskip.language.render import constant_sql
from zskip.stats.keys import dense_codes
from zskip.tablelog.sketches.hashing import can_hash, hashes

# Values of each type, ascending.
ASCENDING: dict[str, list[pa.Array]] = {
    "boolean": [pa.array([False, False, True])],
    "integer": [
        pa.array([np.iinfo(type.to_pandas_dtype()).min, 7, np.iinfo(type.to_pandas_dtype()).max], type)
        for type in t.of(pa.int8()).arrow
    ],
    "float": [pa.array([float("-inf"), 1.5, float("nan")], type) for type in (pa.float32(), pa.float64())],
    "decimal": [pa.array([-1, 2, 3]).cast(pa.decimal128(21, 2)), pa.array([-1, 2, 3]).cast(pa.decimal128(38, 5))],
    "string": [pa.array(["", "it's", "ä"])],
    "binary": [pa.array([b"", b"\x00", b"\xff"])],
    "UUID": [pa.array([b"\x00" * 16, b"\x7f" * 16, b"\xff" * 16], t.UUID)],
    "date": [
        pa.array([-1, 0, 19_000], pa.int32()).cast(pa.date32()),
        pa.array([0, 86_400_000, 2**40]).view(pa.date64()),
    ],
    "time": [
        pa.array([0, 1, 86_399_999_999]).cast(pa.time64("us")),
        pa.array([0, 1, 2], pa.int32()).view(pa.time32("ms")),
    ],
    "timestamp": [pa.array([-1, 0, 10**12]).cast(type) for type in (pa.timestamp("us"), pa.timestamp("ms", "UTC"))],
    "duration": [pa.array([-1, 0, 10**15]).cast(pa.duration("us"))],
}
VALUES = [pytest.param(values, id=str(values.type)) for arrays in ASCENDING.values() for values in arrays]


def test_every_ordered_type_is_tried() -> None:
    assert {entry.name for entry in t.ENTRIES if entry.form is not None} == ASCENDING.keys()


@pytest.mark.parametrize("values", VALUES)
def test_keys_keep_the_order_and_give_the_values_back(values: pa.Array) -> None:
    family = key_family(values.type)
    found = keys(values)
    assert values_of(found, values.type).equals(values) or family == "float"
    plain = found.to_pylist() if family == "bytes" else found[~np.isnan(found)].tolist()
    assert plain == sorted(plain)
    assert dense_codes(values)[0].tolist() in ([1, 2, 3], [1, 2], [1, 1, 2])
    if family == "integer":
        low, high = key_limits(values.type)
        assert low <= plain[0] <= plain[-1] <= high


@pytest.mark.parametrize("values", VALUES)
def test_json_gives_the_values_back_and_different_values_have_different_hashes(values: pa.Array) -> None:
    given = pa.concat_arrays([values, pa.nulls(1, values.type)])
    shown = str(t.decode_values(t.encode_values(given), values.type))
    assert shown == str(given)  # as text, for NaN equals itself there
    assert can_hash(values.type)
    assert len(set(hashes(values).tolist())) == len(values.unique())


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        yield con


@pytest.mark.parametrize("values", VALUES)
def test_duckdb_reads_a_constant_as_the_type_that_it_is_named(values: pa.Array, con: duckdb.DuckDBPyConnection) -> None:
    texts = [constant_sql(value, "duckdb") for value in values]
    if t.of(values.type).plain is None and t.of(values.type).spelled is None:
        assert set(texts) == {None}
        return
    name = t.of(values.type).duckdb(values.type)
    for value, text in zip(values, texts, strict=True):
        assert text is not None
        (typed, same), *_ = con.execute(f"SELECT typeof({text}), {text} = CAST({text} AS {name})").fetchall()
        assert same
        assert typed in (name, "TIMESTAMP WITH TIME ZONE") or t.is_binary(value.type)


def test_a_moment_beyond_pythons_calendar_has_no_constant() -> None:
    assert constant_sql(pa.scalar(10**15, pa.timestamp("ms")), "duckdb") is None


def test_only_the_types_know_of_uuids() -> None:
    """The measure of the registry: this type, which has an order, a literal and a name of its own, is one entry."""
    knowing = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "zskip").rglob("*.py"))
        if any(word in path.read_text(encoding="utf-8") for word in ("pa.uuid", "types import UUID", "binary(16)"))
    ]
    assert knowing == ["zskip/core/types.py"]


class Address(pa.ExtensionType):
    """An IPv4 address: a type that zskip does not know."""

    def __init__(self) -> None:
        super().__init__(pa.uint32(), "tests.ipv4")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Address:
        return cls()


@pytest.fixture
def address() -> Iterator[Address]:
    address = Address()
    pa.register_extension_type(address)
    yield address
    pa.unregister_extension_type("tests.ipv4")


def test_a_type_that_is_not_known_is_kept_and_never_pruned_on(address: Address, tmp_path: Path) -> None:
    rows = _addresses(address)
    table = zskip.write(rows, tmp_path / "t", by="n", files=4)
    for condition in ("ip < 16", "ip IN (1, 2)", "ip = ip", "coalesce(ip, 5) = 3", "abs(ip) = 3", "ip IS NOT NULL"):
        assert len(table.plan(condition).paths) == 4
        assert table.plan(condition).explain()
    assert len(table.plan("ip IS NULL").paths) == 0
    assert table.to_arrow().sort_by("n").equals(rows)


def test_a_new_type_is_one_entry(address: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = t.Type(
        name="address",
        arrow=(),
        forms=(address,),
        exact=True,
        logical=lambda type: pa.uint32(),
        duckdb=lambda type: "UINTEGER",
        spark=lambda type: "BIGINT",
    )
    monkeypatch.setitem(t._FORMS_BY_ID, address.id, [entry, *t._FORMS_BY_ID[address.id]])
    rows = _addresses(address)
    table = zskip.write(rows, tmp_path / "t", by="ip", files=8, sketches={"ip": "values"})
    assert table.schema.field("ip").type == address
    plan = table.plan("ip < 200000")
    assert 1 <= len(plan.paths) <= 2
    assert plan.to_arrow().sort_by("n").equals(rows.filter(pc.less(rows["ip"].cast(pa.uint32()), 200_000)))
    con = duckdb.connect()
    assert zskip.sql(f"SELECT count(*) FROM '{table.uri}' WHERE ip < 200000", con).fetchall() == [(200,)]
    table.append(rows)
    assert table.count() == 2 * len(rows)
    assert table.verify(random=5).clean
    assert zskip.open(table.uri).plan("ip = 5000").count() == 2


def _addresses(address: Address) -> pa.Table:
    numbers = np.random.default_rng(5).permutation(4000)
    ip = pa.ExtensionArray.from_storage(address, pa.array(numbers * 1000, pa.uint32()))
    return pa.table({"n": np.arange(4000), "ip": ip})


def test_a_folder_of_extension_types_is_indexed(address: Address, tmp_path: Path) -> None:
    rows = _addresses(address)
    for number in range(2):
        pq.write_table(rows.slice(number * 2000, 2000), tmp_path / f"{number}.parquet")
    table = zskip.index(tmp_path)
    assert table.schema.field("ip").type == address
    assert table.count() == len(rows)


def test_each_level_of_a_nested_type_is_visited_once() -> None:
    type: pa.DataType = pa.float16()
    wanted: pa.DataType = pa.float32()
    for _ in range(50):  # twice a level would be 2**50 calls
        type = pa.list_(pa.struct([pa.field("a", type, nullable=False)]))
        wanted = pa.list_(pa.struct([pa.field("a", wanted, nullable=False)]))
    assert t.with_leaves(type, lambda leaf: pa.float32()) == wanted
    map_type = pa.map_(pa.string(), pa.float16())
    assert t.with_leaves(map_type, lambda leaf: pa.float32() if leaf == pa.float16() else leaf) == pa.map_(
        pa.string(), pa.float32()
    )
