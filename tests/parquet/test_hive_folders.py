"""Hive folders and the names of Parquet files mean the same to the index, the writer, the engines and doctor."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from zskip.inspect.audit import doctor

ROWS = pa.table({"id": [1, 2]})


def test_folders_have_one_type_for_all(tmp_path: Path) -> None:
    keys = {
        "day": (["2024-02-28", "2024-02-29"], pa.date32()),
        "no_day": (["2024-02-28", "2024-02-30"], pa.string()),
        "number": (["1", "-20"], pa.int64()),
        "padded": (["1", "007"], pa.string()),
        "large": (["1", "9" * 19], pa.string()),
        "escaped": (["a%2Fb", "x%20y"], pa.string()),
        "nullable": (["1", "__HIVE_DEFAULT_PARTITION__"], pa.int64()),
    }
    lake = tmp_path / "lake"
    for number in range(2):
        folder = lake.joinpath(*(f"{key}={texts[number]}" for key, (texts, _) in keys.items()))
        folder.mkdir(parents=True)
        pq.write_table(ROWS, folder / "1.parquet")
    written = zskip.write(str(lake), tmp_path / "out", by="id")
    indexed = zskip.index(lake)
    for key, (_, type) in keys.items():
        assert indexed.schema.field(key).type == written.schema.field(key).type == type, key
    ways = [table.plan("id = 1").to_arrow([*keys]) for table in (indexed, written)]
    ways.append(indexed.plan("id = 1").to_duckdb().select(*keys).to_arrow_table())
    rows = [sorted(map(str, way.to_pylist())) for way in ways]
    assert len(rows[0]) == 2
    assert rows[0] == rows[1] == rows[2]


def test_globs_and_lists_have_the_columns_of_folders(tmp_path: Path) -> None:
    """They were lost in silence, while the folder itself and a glob of URLs had them."""
    lake = tmp_path / "lake"
    for day in (1, 2):
        (lake / f"day={day}").mkdir(parents=True)
        pq.write_table(ROWS, lake / f"day={day}" / "0.parquet")
    days = [lake / "day=1", lake / "day=2"]
    sources = (
        *(lake, lake / "*" / "*.parquet", lake / "**" / "*.parquet", lake / "day=[12]" / "*"),
        *(days, [day / "0.parquet" for day in days], [days[0] / "*.parquet", days[1]]),
    )
    for number, source in enumerate(sources):
        table = zskip.write(source, tmp_path / str(number), by="id")
        assert sorted(table.to_arrow()["day"].to_pylist()) == [1, 1, 2, 2], source


def test_no_column_is_in_folders_and_in_files_beside_them(tmp_path: Path) -> None:
    """Its values were NULL, also in what adopt and cluster wrote before they removed the file."""
    lake, other = tmp_path / "lake", tmp_path / "t"
    (lake / "g=1").mkdir(parents=True)
    pq.write_table(ROWS, lake / "g=1" / "1.parquet")
    zskip.index(lake)
    table = zskip.write(ROWS.append_column("g", pa.array([1, 2])), other, by="id", partition_by="g")
    for folder in (lake, other):
        pq.write_table(ROWS, folder / "g=1" / "2.parquet")
        pq.write_table(ROWS.append_column("g", pa.array([7, 8])), folder / "flat.parquet")
    text = f"SELECT count(*) FROM '{lake}' WHERE g = 7"
    opened = zskip.open(lake)
    for use in (opened.refresh, lambda: opened.plan("g = 7"), lambda: zskip.sql(text), table.adopt):
        with pytest.raises(zskip.SchemaMismatch, match=r'flat\.parquet holds a column "g", which other files have by'):
            use()
    shutil.rmtree(lake / "_zskip")
    for use in (lambda: zskip.index(lake), lambda: zskip.cluster(lake, by="id")):
        with pytest.raises(zskip.SchemaMismatch, match=r'flat\.parquet holds a column "g"'):
            use()
    assert sorted(map(str, zskip.write(lake, tmp_path / "both", by="id").to_arrow()["g"].to_pylist())) == list("111178")
    pq.write_table(ROWS, lake / "flat.parquet")
    assert zskip.index(lake).to_arrow()["g"].null_count == 2


def test_the_ends_of_names_say_parquet_in_any_case(tmp_path: Path) -> None:
    for name in ("a.PARQUET", "b.Parq", "c.pq", "d.parquet"):
        pq.write_table(ROWS, tmp_path / name)
    (tmp_path / "e.parquet.crc").write_bytes(b"x")
    assert doctor(tmp_path).files == 4
    assert zskip.write(str(tmp_path), "memory://hive-names/out", by="id")._index.snapshot.totals.rows == 8
    assert zskip.index(tmp_path)._index.snapshot.totals.files == 4


def test_views_stand_beside_strings(tmp_path: Path) -> None:
    for name, type in (("1", pa.string_view()), ("2", pa.string()), ("3", pa.large_string())):
        pq.write_table(pa.table({"a": pa.array([name], type)}), tmp_path / f"{name}.parquet")
    for name, type in (("1", pa.binary_view()), ("2", pa.binary())):
        (tmp_path / "binary").mkdir(exist_ok=True)
        pq.write_table(pa.table({"a": pa.array([name.encode()], type)}), tmp_path / "binary" / f"{name}.parquet")
    assert zskip.index(tmp_path / "binary").plan().count() == 2
    for path in (tmp_path / "binary").glob("*.parquet"):
        path.unlink()
    assert doctor(tmp_path).files == 3
    assert zskip.index(tmp_path).plan("a >= '2'").to_arrow().column("a").to_pylist() == ["2", "3"]


def test_doctor_says_which_files_have_other_types(tmp_path: Path) -> None:
    for number, type in enumerate([pa.int32(), pa.int32(), pa.date32()]):
        pq.write_table(pa.table({"a": pa.array([1], pa.int32()).cast(type)}), tmp_path / f"{number}.parquet")
    unreadable = doctor(tmp_path).unreadable
    assert list(unreadable) == ["2.parquet"]
    assert "cannot be indexed together with 1.parquet" in unreadable["2.parquet"]
