"""What is written comes back: every orderable type as a clustering column, with its hostile values."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests import one_in
from zskip.core.schema import identifier

UTC = dt.UTC
NAN, INF = float("nan"), float("inf")
LONG = "x" * 10_000
TEXTS = ["", "a", "é", "😀", "\U0010ffff", "\x00", LONG, LONG + "y", "a\x00b", "Z"]

CASES: dict[str, tuple[pa.DataType, list[Any]]] = {
    **{
        f"int{bits}": (getattr(pa, f"int{bits}")(), [-(2 ** (bits - 1)), -1, 0, 1, 2 ** (bits - 1) - 1])
        for bits in (8, 16, 32, 64)
    },
    **{f"uint{bits}": (getattr(pa, f"uint{bits}")(), [0, 1, 2**bits - 1]) for bits in (8, 16, 32, 64)},
    "float16": (pa.float16(), [-INF, -1.5, -0.0, 0.0, 2.0, INF, NAN]),
    "float32": (pa.float32(), [-INF, -1.5, -0.0, 0.0, 1e-45, INF, NAN]),
    "float64": (pa.float64(), [-INF, -1.5, -0.0, 0.0, 5e-324, 1.7976931348623157e308, INF, NAN]),
    "decimal128": (pa.decimal128(38, 2), [decimal.Decimal("-" + "9" * 36 + ".99"), decimal.Decimal("0.01")]),
    "decimal256": (pa.decimal256(50, 0), [decimal.Decimal("-" + "9" * 50), decimal.Decimal(7)]),
    "bool": (pa.bool_(), [True, False]),
    "string": (pa.string(), TEXTS),
    "large_string": (pa.large_string(), TEXTS),
    "binary": (pa.binary(), [b"", b"\x00", b"\xff" * 300, b"\xff" * 301, b"abc"]),
    "fixed binary": (pa.binary(3), [b"\x00\x00\x00", b"\xff\xff\xff"]),
    "date32": (pa.date32(), [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]),
    "date64": (pa.date64(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "time32": (pa.time32("s"), [dt.time(0), dt.time(23, 59, 59)]),
    "time64": (pa.time64("us"), [dt.time(0), dt.time(23, 59, 59, 999_999)]),
    **{
        f"timestamp[{unit}{', ' + zone if zone else ''}]": (
            pa.timestamp(unit, zone or None),
            [
                dt.datetime(1700, 1, 1, tzinfo=UTC if zone else None),
                dt.datetime(1970, 1, 1, tzinfo=UTC if zone else None),
                dt.datetime(2200, 1, 1, 1, 2, 3, tzinfo=UTC if zone else None),
            ],
        )
        for unit, zone in [
            *((unit, "UTC") for unit in ("s", "ms", "us", "ns")),
            ("s", ""),
            ("ns", ""),
            ("us", "America/Sao_Paulo"),
        ]
    },
    "duration": (pa.duration("us"), [dt.timedelta(days=-3), dt.timedelta(0), dt.timedelta(microseconds=1)]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["b", "a", ""]),
}


def shown(rows: pa.Table) -> list[str]:
    """Rows as a multiset: NaN equals NaN, and −0.0 is told apart from 0.0."""
    return sorted(repr(row) for row in rows.to_pylist())


@pytest.mark.parametrize(
    ("name", "layout"),
    one_in(3, CASES, ("auto", "zorder", "linear")),
)
def test_every_type_comes_back(name: str, layout: str, tmp_path: Path) -> None:
    kind, values = CASES[name]
    column = [*values, None] * 3
    rows = pa.table({"x": pa.array(column, kind), "n": pa.array(range(len(column)))})
    zskip.write(rows, tmp_path / "t", by=["x"], layout=layout, files=2, row_group_rows=3)
    table = zskip.open(tmp_path / "t")
    back = table.to_arrow()
    # A type that Parquet lacks is kept in the nearest one that loses nothing: seconds as milliseconds, for one.
    assert back.schema == table.schema
    assert {type(value) for value in back["x"].to_pylist()} == {type(value) for value in rows["x"].to_pylist()}
    assert shown(back) == shown(rows)
    assert table.plan("x IS NULL").count() == 3
    assert table.plan("x IS NOT NULL").to_arrow().num_rows == len(column) - 3


def test_a_field_of_a_struct_is_a_clustering_column(tmp_path: Path) -> None:
    kind = pa.struct([("a", pa.struct([("b", pa.int64())])), ("c", pa.string())])
    values = [{"a": {"b": number % 50}, "c": "c"} for number in range(500)] + [None, {"a": None, "c": None}]
    rows = pa.table({"s": pa.array(values, kind)})
    table = zskip.write(rows, tmp_path / "t", by=["s.a.b"], files=10)
    assert shown(table.to_arrow()) == shown(rows)
    plan = table.plan("s.a.b = 7")
    assert plan.to_arrow().num_rows == 10
    assert plan.skipped.files.part > 5


def test_a_column_called_like_a_leaf_of_another(tmp_path: Path) -> None:
    """pyarrow chooses encodings by Parquet's paths, which are equal here. The leaf repeats, or the column does."""
    many, some = list(range(300)), [i % 13 for i in range(300)]
    rows = pa.table(
        {
            "x": [{"y": i} for i in many],
            "x.y": some,
            "z": [{"y": i} for i in some],
            "z.y": many,
            "l": [[i] for i in some],
            "l.list.element": [f"t{i}" for i in many],
            "m": [[i] for i in many],
            "m.list.element": [f"t{i}" for i in some],
            "k": range(300),
        }
    )
    table = zskip.write(rows.slice(0, 200), tmp_path / "t", by=["x.y", "k"], files=4)
    table.append(rows.slice(200))
    table.upsert(rows.slice(190, 20), on="k")
    zskip.cluster(tmp_path / "t", by=["k"])
    assert zskip.open(tmp_path / "t").to_arrow().sort_by("k").equals(rows)
    assert table.verify(random=3).held


def test_odd_names(tmp_path: Path) -> None:
    names = ["a.b", "select", 'quo"te', "sp ace", "ünï"]
    table = zskip.write(pa.table({name: range(100) for name in names}), tmp_path / "t", by=names, files=5)
    for name in names:
        plan = table.plan(f"{identifier(name)} = 42")
        assert plan.to_arrow().to_pylist() == [dict.fromkeys(names, 42)]
        assert plan.skipped.files.part >= 3


@pytest.mark.parametrize(
    ("values", "layout"),
    one_in(2, [[], [1], [7] * 500, [None] * 500], ["auto", "tiles", "tree", "hilbert", "zorder", "linear"]),
)
def test_small_and_even_tables(values: list[Any], layout: str, tmp_path: Path) -> None:
    rows = pa.table({"x": pa.array(values, pa.int64()), "y": pa.array(range(len(values)), pa.int64())})
    table = zskip.write(rows, tmp_path / "t", by=["x"], layout=layout, files=5)
    assert shown(zskip.open(table.uri).to_arrow()) == shown(rows)
    assert table.plan("x = 7").count() == values.count(7)
    assert table.plan("x IS NULL").count() == values.count(None)


def test_what_is_of_the_type_null_comes_back(tmp_path: Path) -> None:
    fields = pa.array([{"x": None, "y": 1}, None, {}] * 4, pa.struct({"x": pa.null(), "y": pa.int64()}))
    lists = pa.array([[None], None, []] * 4, pa.list_(pa.null()))
    rows = pa.table({"n": range(12), "column": pa.nulls(12), "field": fields, "lists": lists})
    table = zskip.write(rows, tmp_path / "t", by=["n"], files=3)
    assert table.to_arrow().sort_by("n").equals(rows)
    for name in rows.column_names[1:]:
        assert table.plan(f'"{name}" IS NULL AND n < 4').count() == rows[name].slice(0, 4).null_count
    assert table.verify(random=3).held


def test_geometries_stay_geometries(tmp_path: Path) -> None:
    """GeoParquet says in the metadata of a file which columns are geometries."""
    raw = tmp_path / "raw"
    raw.mkdir()
    with duckdb.connect() as con:
        for number in range(3):
            points = f"SELECT range + {number * 10} AS id, ('POINT (' || range || ' 1)')::GEOMETRY AS g FROM range(10)"
            con.execute(f"COPY ({points}) TO '{raw}/{number}.parquet'")
        whole = con.sql(f"FROM '{raw}/*.parquet' ORDER BY id")
        types, rows = whole.types, whole.fetchall()
        table = zskip.write(raw, tmp_path / "t", by=["id"], files=2)
        zskip.index(raw)
        zskip.cluster(raw, by=["id"])
        for place in (tmp_path / "t", raw):
            found = zskip.sql(f"FROM '{place}' ORDER BY id", con)
            assert (found.types, found.fetchall()) == (types, rows)
        table.append(con.sql("SELECT 77::BIGINT AS id, unhex('0101000000000000000000F03F000000000000F03F') AS g"))
        found = zskip.sql(f"SELECT g FROM '{tmp_path}/t' WHERE id = 77", con)
        assert (found.types, found.fetchall()) == (types[1:], con.sql("SELECT 'POINT (1 1)'::GEOMETRY").fetchall())
    described = [json.loads(pq.read_schema(path).metadata[b"geo"])["columns"]["g"] for path in table.plan().paths]
    assert [each.get("bbox") for each in described] == [
        None,
        None,
        None,
    ]  # that of the first files does not hold for rows that come later


@pytest.mark.parametrize("geo", ["{}", "nothing", '{"version": "1", "columns": {"a": 1}, "primary_column": "a"}', "[]"])
def test_metadata_of_geometries_that_no_reader_takes_is_left_out(tmp_path: Path, geo: str) -> None:
    rows = pa.table({"a": [1, 2]}).replace_schema_metadata({"geo": geo, "of": "me"})
    pq.write_table(rows, tmp_path / "rows.parquet")
    for source in (rows, tmp_path / "rows.parquet"):
        table = zskip.write(source, tmp_path / "t", by=["a"], mode="overwrite")
        assert b"geo" not in (pq.read_schema(table.plan().paths[0]).metadata or {})
