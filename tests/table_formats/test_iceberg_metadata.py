"""Metadata files of Iceberg tables: which one is the newest, where it may name files, and what is refused by name."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

import zskip
from tests.table_formats.logs import new_catalog, require_same, rows
from zskip.errors import CorruptFile, TableNotFound, UnsupportedFormat


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return new_catalog(tmp_path / "lake")


def numbered(first: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + 10), pa.int64())})


def made(catalog: Catalog, name: str = "n.t", **properties: str) -> Table:
    table = catalog.create_table(name, schema=numbered(0).schema, properties=properties)
    table.append(numbered(0))
    table.append(numbered(10))
    return table


def local(address: str) -> Path:
    return Path(address.removeprefix("file://"))


# --- what is refused ---


def changed(table: Table, **changes: Any) -> Path:
    """A later metadata file of a table, with some entries changed."""
    place = local(table.metadata_location)
    later = place.with_name("00009-later.metadata.json")
    later.write_text(json.dumps(json.loads(place.read_text()) | changes))
    return later


def with_column(table: Table, type_: Any) -> Path:
    schema = json.loads(local(table.metadata_location).read_text())["schemas"][0]
    fields = [*schema["fields"], {"id": 9, "name": "q", "required": False, "type": type_}]
    later = {**schema, "schema-id": 1, "fields": fields}
    return changed(
        table,
        **{
            "format-version": 3,
            "next-row-id": 0,
            "current-schema-id": 1,
            "last-column-id": 10,
            "schemas": [schema, later],
        },
    )


def test_types_that_are_not_read_are_refused_by_name(catalog: Catalog) -> None:
    """They were called damaged, or read as binary with bounds that are points."""
    table = made(catalog)
    for type_ in ("variant", "geometry", "geometry(srid:4326)", "geography"):
        inner = {"type": "list", "element-id": 10, "element": type_, "element-required": False}
        for given in (type_, inner):
            with pytest.raises(UnsupportedFormat, match=rf'column "q.* has the type {type_.partition("(")[0]}'):
                zskip.open(with_column(table, given))


def test_a_later_format_and_a_view_are_refused_by_name(catalog: Catalog) -> None:
    table = made(catalog)
    with pytest.raises(UnsupportedFormat, match=r"version 4 of Iceberg's format, and zskip reads versions 1 to 3"):
        zskip.open(changed(table, **{"format-version": 4}))
    for damage in ("x", None, -1):
        with pytest.raises(CorruptFile, match="damaged"):
            zskip.open(changed(table, **{"format-version": damage}))
    view = changed(table, **{"view-uuid": "fa6506c3-7681-40c8-86dc-e36561f83385", "versions": [], "last-updated-ms": 0})
    document = json.loads(view.read_text())
    view.write_text(json.dumps({key: document[key] for key in ("view-uuid", "format-version", "location", "schemas")}))
    with pytest.raises(UnsupportedFormat, match="an Iceberg view, which has a query and no files"):
        zskip.open(view)


def test_columns_of_unknown_types_and_of_nanoseconds_are_read(catalog: Catalog) -> None:
    table = made(catalog)
    for type_ in ("unknown", "timestamp_ns", "timestamptz_ns"):
        opened = zskip.open(with_column(table, type_))
        assert opened.plan("q IS NULL AND id = 3").to_arrow()["id"].to_pylist() == [3]
        assert opened.plan("q IS NOT NULL").count() == 0


# --- the newest of a folder ---


def versions(catalog: Catalog) -> Path:
    """A table whose metadata files are numbered as Hadoop's: 1 is empty, 2 has ten rows, 3 has twenty."""
    folder = local(made(catalog).location()) / "metadata"
    for number, place in enumerate(sorted(folder.glob("*.metadata.json")), 1):
        place.rename(folder / f"v{number}.metadata.json")
    return folder


def test_metadata_files_are_read_however_they_are_compressed(catalog: Catalog) -> None:
    folder = versions(catalog)
    held = [place.read_bytes() for place in sorted(folder.glob("v*"))]
    for ending in (".metadata.json", ".gz.metadata.json", ".metadata.json.gz"):
        for place in folder.glob("v*"):
            place.unlink()
        for number, data in enumerate(held, 1):
            (folder / f"v{number}{ending}").write_bytes(gzip.compress(data) if ".gz" in ending else data)
        assert zskip.open(folder.parent).count() == 20
        assert zskip.open(folder / f"v2{ending}").count() == 10
        assert zskip.sql(f"SELECT count(*) FROM '{folder}/v2{ending}'").fetchall() == [(10,)]


HINTS = {
    "3": 20,
    "3\n": 20,
    "v3": 20,
    " 2\nof this writer": 20,  # the writer of 3 has not come to the hint yet
    "1": 20,
    "v2.metadata.json": 10,  # a name stands for itself
    "": 20,
    "latest": 20,
    "\xff\xfe": 20,
}


def test_a_version_hint_is_where_the_search_begins(catalog: Catalog) -> None:
    folder = versions(catalog)
    for hint, count in HINTS.items():
        (folder / "version-hint.text").write_bytes(hint.encode("latin-1"))
        assert zskip.open(folder.parent).count() == count, hint


def test_a_hint_to_a_version_that_is_gone_is_refused(catalog: Catalog) -> None:
    """An older version was opened."""
    folder = versions(catalog)
    (folder / "version-hint.text").write_text("7")
    with pytest.raises(TableNotFound, match=r"version-hint\.text .* version 7, whose metadata file is gone"):
        zskip.open(folder.parent)
    assert zskip.open(folder / "v3.metadata.json").count() == 20


def test_a_hint_names_files_with_ids_too(catalog: Catalog) -> None:
    table = made(catalog)
    folder = local(table.location()) / "metadata"
    second = sorted(folder.glob("*.metadata.json"))[1]
    (folder / "version-hint.text").write_text(second.name.removesuffix(".metadata.json"))
    assert zskip.open(folder.parent).count() == 10


# --- refresh ---


def test_refresh_moves_to_the_newest_metadata(catalog: Catalog) -> None:
    """It stayed at the metadata file of the first opening."""
    table = made(catalog)
    folder, held_object = local(table.location()), catalog.load_table("n.t")
    moving = [zskip.open(folder), zskip.open(folder, deep=True), zskip.open(held_object)]
    pinned = [
        zskip.open(local(table.metadata_location)),
        zskip.open(folder, version=held_object.metadata.current_snapshot_id),
    ]
    table.append(numbered(20))
    for held in pinned:
        done = held.refresh()
        assert done.version == done.before
        assert held.count() == 20
    for held in moving:
        done = held.refresh()
        assert done.version != done.before
        assert held.count() == 30
    assert len(held_object.scan().to_arrow()) == 20
    table.delete("id < 5")
    for held in moving:
        held.refresh()
        require_same(held, table.scan().to_arrow(), ["id < 7", "id >= 25"])


@pytest.mark.parametrize("way", ["folder", "object"])
def test_refresh_of_a_table_that_is_gone_is_refused(catalog: Catalog, way: str) -> None:
    table = made(catalog)
    held = zskip.open(local(table.location()) if way == "folder" else table)
    catalog.drop_table("n.t")
    shutil.rmtree(local(table.location()))
    with pytest.raises(TableNotFound, match="any more"):
        held.refresh()


# --- where its files may be ---


def test_a_table_that_is_named_by_a_link_is_opened(catalog: Catalog, tmp_path: Path) -> None:
    """It was refused: the metadata names the target."""
    table = made(catalog)
    (tmp_path / "link").symlink_to(local(table.location()))
    (tmp_path / "lake2").symlink_to(tmp_path / "lake")
    for place in (tmp_path / "link", tmp_path / "lake2" / "n" / "t"):
        require_same(zskip.open(place), table.scan().to_arrow(), ["id = 15"])
    other = new_catalog(tmp_path / "lake2", "d")
    by_link = made(other, "n.u")
    for place in (by_link, tmp_path / "lake2" / "n" / "u", tmp_path / "lake" / "n" / "u"):
        require_same(zskip.open(place), by_link.scan().to_arrow(), ["id = 15"])
    zskip.cluster(by_link, by=["id"], files=1)
    assert len(list(other.load_table("n.u").scan().plan_files())) == 1


@pytest.mark.parametrize(
    "properties",
    [
        {"write.metadata.path": "elsewhere/meta"},
        {"write.data.path": "elsewhere/data", "write.object-storage.enabled": "true"},
        pytest.param({"write.data.path": "elsewhere/data"}, marks=pytest.mark.slow),
        pytest.param({"write.object-storage.enabled": "true"}, marks=pytest.mark.slow),
    ],
    ids=lambda given: " ".join(given),
)
def test_a_catalog_may_name_files_outside_of_the_folder(
    catalog: Catalog, tmp_path: Path, properties: dict[str, str]
) -> None:
    placed = {
        name: f"file://{tmp_path}/{value}" if name.endswith("path") else value for name, value in properties.items()
    }
    table, plain = made(catalog, **placed), made(catalog, "n.plain")
    require_same(zskip.open(table), table.scan().to_arrow(), ["id = 15", "id < 3"])
    assert rows(zskip.open(plain).to_arrow()) == rows(plain.scan().to_arrow())
    table.delete("id = 15")
    require_same(zskip.open(table), table.scan().to_arrow(), ["id = 15", "id = 14"])
    assert zskip.cluster(table, by=["id"], files=3).files_written == 3
    table = catalog.load_table("n.t")
    require_same(zskip.open(table), table.scan().to_arrow(), ["id = 15", "id = 14"])
    assert zskip.cluster(table).files_rewritten == 0
    if any(name.endswith("path") for name in properties):
        with pytest.raises(UnsupportedFormat, match="files outside of its folder"):
            zskip.attach(table)
    if "write.data.path" in properties:
        with pytest.raises(UnsupportedFormat, match=r"catalog\.load_table"):
            zskip.open(local(table.metadata_location))
