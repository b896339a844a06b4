"""Sketches of Delta and Iceberg tables: made from the live rows, kept while the format's log moves on."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.schema import Field, PrimitiveType
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.types import LongType, NestedField, StringType, UUIDType

import zskip
from tests import ROOT
from zskip.errors import InvalidOption


def rows(first: int, count: int = 200) -> pa.Table:
    numbers = range(first, first + count)
    uid = [None if n % 50 == 7 else f"{n * 2654435761 % 2**32:08x}" for n in numbers]
    return pa.table({"n": pa.array(numbers), "day": pa.array([n % 2 for n in numbers]), "uid": uid})


def uid(n: int) -> str:
    return f"uid = '{n * 2654435761 % 2**32:08x}'"


def found(table: zskip.Table, n: int) -> tuple[int, list[int]]:
    """How many files a look-up of a row reads, and which rows it finds."""
    plan = table.plan(uid(n))
    return len(plan.paths), plan.to_arrow(["n"])["n"].to_pylist()


@pytest.mark.parametrize("partition_by", [[], ["day"]], ids=["plain", "by day"])
def test_a_delta_table_has_sketches_while_its_log_moves_on(tmp_path: Path, partition_by: list[str]) -> None:
    path = tmp_path / "t"
    for first in range(0, 1000, 200):
        write_deltalake(path, rows(first), mode="append", partition_by=partition_by)
    table = zskip.open(path)
    assert table.add_sketches({"uid": "values"}).sketches == ("values of uid",)
    version = table.version
    assert [found(table, n) for n in (3, 999)] == [(1, [3]), (1, [999])]
    assert found(table, 5000) == (0, [])
    assert table.plan(f"NOT {uid(3)}").count() == len(table.plan("uid IS NOT NULL").to_arrow()) - 1
    assert found(zskip.open(path), 3) == (1, [3])
    assert zskip.open(path).version == version

    write_deltalake(path, rows(1000), mode="append")
    DeltaTable(path).delete("n = 3")
    opened = zskip.open(path)
    files, numbers = found(opened, 1100)
    assert numbers == [1100]
    assert files > 1  # what has come since is known to no sketch
    assert found(opened, 3)[1] == []
    opened.refresh()
    assert found(opened, 1100) == (1, [1100])
    assert found(opened, 3)[1] == []
    assert found(zskip.open(path), 700) == (1, [700])

    opened.drop_sketches("uid")
    assert found(zskip.open(path), 700)[1] == [700]
    assert not zskip.open(path)._index.snapshot.sketches
    with pytest.raises(InvalidOption, match="no sketch"):
        opened.drop_sketches("uid")


def test_a_change_of_the_schema_keeps_the_sketches_of_other_columns(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for first in (0, 200):
        write_deltalake(path, rows(first), mode="append")
    zskip.open(path).add_sketches({"uid": "values", "n": "values"})
    DeltaTable(path).alter.add_columns([Field("more", PrimitiveType("long"), True)])
    table = zskip.open(path)
    assert table.columns[-1] == "more"
    assert found(table, 3) == (1, [3])
    write_deltalake(path, rows(900).drop_columns(["n"]).append_column("n", rows(0)["n"].cast(pa.string())),
                    mode="overwrite", schema_mode="overwrite")  # fmt: skip
    table = zskip.open(path)
    assert [sketch.name.column for sketch in table._index.snapshot.sketches] == ["uid"]
    assert table.plan(uid(950)).to_arrow()["n"].to_pylist() == ["50"]
    assert table.plan("n = '50'").count() == 1


def test_a_table_made_anew_has_no_sketches_of_the_one_before(tmp_path: Path) -> None:
    import shutil

    path = tmp_path / "t"
    write_deltalake(path, rows(0))
    zskip.open(path).add_sketches({"uid": "values"})
    shutil.rmtree(path)
    write_deltalake(path, rows(5000))
    table = zskip.open(path)
    assert not table._index.snapshot.sketches
    assert found(table, 5100) == (1, [5100])


def test_deleted_and_mapped_columns_have_sketches(tmp_path: Path) -> None:
    for name, column, value in (
        ("dv-partitioned-with-checkpoint", "col2", "'foo1'"),
        ("data-reader-timestamp_ntz-name-mode", "id", "3"),
    ):
        opened = zskip.open(ROOT / "fixtures" / "delta" / name)
        before = opened.plan(f"{column} = {value}").to_arrow()
        opened.add_sketches({column: "values"})
        after = opened.plan(f"{column} = {value}")
        assert sorted(map(repr, after.to_arrow().to_pylist())) == sorted(map(repr, before.to_pylist()))
        assert opened.plan(f"{column} <> {value}").count() == len(opened.plan(f"{column} <> {value}").to_arrow())


def test_an_iceberg_table_has_sketches_while_it_moves_on(catalog: Catalog) -> None:
    table = catalog.create_table("n.t", schema=rows(0).schema)
    for first in range(0, 1000, 200):
        table.append(rows(first))
    opened = zskip.open(table)
    opened.add_sketches({"uid": "values"})
    assert [found(opened, n) for n in (3, 999, 5000)] == [(1, [3]), (1, [999]), (0, [])]
    table.append(rows(1000))
    with table.update_schema() as update:
        update.rename_column("uid", "old")
    with table.update_schema() as update:
        update.add_column("uid", StringType())
    opened = zskip.open(table)
    # The name now means another column.
    assert not opened._index.snapshot.sketches
    assert opened.plan(uid(3)).to_arrow().num_rows == 0
    assert opened.plan(f"old{uid(3)[3:]}").to_arrow(["n"])["n"].to_pylist() == [3]


def test_uuids_of_an_iceberg_table_are_skipped_by_sketches_alone(catalog: Catalog) -> None:
    fields = NestedField(1, "n", LongType()), NestedField(2, "u", UUIDType())
    table = catalog.create_table("n.u", schema=IcebergSchema(*fields))
    # The first is above all others as unsigned bytes, and below them as Java compares: such bounds are in the wild.
    values = [UUID("ffffffff-0000-4000-8000-000000000000"), *(UUID(int=n << 100 | 7) for n in range(1, 8))]
    for first in range(0, len(values), 2):
        some = values[first : first + 2]
        held = pa.array([value.bytes for value in some], pa.binary(16))
        table.append(
            pa.table({"n": pa.array(range(first, first + 2)), "u": pa.ExtensionArray.from_storage(pa.uuid(), held)})
        )
    opened = zskip.open(table)
    for number, value in enumerate(values):
        plan = opened.plan(f"u = '{value}'")
        assert (len(plan), plan.to_arrow(["n"])["n"].to_pylist()) == (len(values) // 2, [number])
    assert opened.plan("u IS NOT NULL").count() == len(values)
    opened.add_sketches({"u": "values"})
    for number, value in enumerate(values):
        plan = opened.plan(f"u = '{value}'")
        assert (len(plan), plan.to_arrow(["n"])["n"].to_pylist()) == (1, [number])
    assert len(opened.plan("u = '00000000-0000-4000-8000-000000000000'")) == 0
