"""Addresses of tables of other formats: escapes, metadata files in SQL, folders with a side-car, object stores."""

from __future__ import annotations

import base64
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog, load_catalog

import zskip
from tests.clouds import Place
from tests.table_formats.logs import changed_commit, not_yet_made, require_same, rows, with_deletion_vectors
from zskip.errors import ForeignTable, SchemaError, TableNotFound, UnsupportedFormat

ROWS = pa.table({"id": pa.array(range(9), pa.int64())})


def test_paths_of_the_log_are_decoded_once(tmp_path: Path) -> None:
    values = [
        "a b", "%20", "%2520", "ü", "+", "#", "a/b", "a%2Fb", "?", "x=y", "'", '"', "..", "\\", "%", "日", "*", ":",
    ]  # fmt: skip
    made = pa.table({"id": pa.array(range(len(values)), pa.int64()), "part": values})
    path = tmp_path / "ü+a#b 100%"
    write_deltalake(path, made, partition_by=["part"])
    predicates = ["part = '" + value.replace("'", "''") + "'" for value in values]
    theirs, opened = pa.table(DeltaTable(path).scan()), zskip.open(path)
    require_same(opened, theirs, predicates[:4])
    for number, predicate in enumerate(predicates):
        assert opened.plan(predicate).to_arrow()["id"].to_pylist() == [number]
    require_same(zskip.open(DeltaTable(path)), theirs)
    zskip.cluster(path, by=["id"], files=1)
    assert rows(pa.table(DeltaTable(path).scan())) == rows(theirs)
    require_same(zskip.open(path), theirs, predicates[:4])


def test_a_delta_table_object_stays_at_its_version_when_the_log_is_cleaned(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for _ in range(3):
        write_deltalake(path, ROWS, mode="append")
    older = DeltaTable(path)
    for _ in range(3):
        write_deltalake(path, ROWS, mode="append")
    DeltaTable(path).create_checkpoint()
    for version in range(5):
        (path / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(TableNotFound, match="no version 2"):
        zskip.open(older)


def test_a_folder_that_deltalake_looks_for_elsewhere_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", ROWS)
    (tmp_path / "t").rename(tmp_path / "a%20b")
    with pytest.raises(UnsupportedFormat, match=r'"%20" in .*/a%20b .*Rename the folder'):
        zskip.open(tmp_path / "a%20b")


def test_a_metadata_file_in_a_statement_is_its_table(catalog: Catalog, tmp_path: Path) -> None:
    """It was read as a file of JSON."""
    table = catalog.create_table("n.t", schema=ROWS.schema)
    table.append(ROWS)
    before = table.metadata_location
    table.delete("id < 4")
    for address, count in ((table.metadata_location, 5), (before, 9)):
        for name in (address, address.removeprefix("file://")):
            assert zskip.sql(f"SELECT count(*) FROM '{name}'").fetchall() == [(count,)]
    (tmp_path / "other.metadata.json").write_text('{"a": 1}')
    assert zskip.sql(f"SELECT a FROM '{tmp_path}/other.metadata.json'").fetchall() == [(1,)]


def test_a_column_without_a_name_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"": [1], "b": [2]}))
    with pytest.raises(SchemaError, match="no name"):
        zskip.open(tmp_path / "t")


def test_nothing_is_written_into_a_folder_with_a_side_car(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", ROWS)
    zskip.attach(tmp_path / "t")
    for mode in ("error", "append", "overwrite"):
        with pytest.raises(ForeignTable, match="Delta"):
            zskip.write(ROWS, tmp_path / "t", by=["id"], mode=mode)
    with pytest.raises(ForeignTable, match=r"zskip\.open"):
        zskip.index(tmp_path / "t")
    assert zskip.open(tmp_path / "t").plan().count() == 9


def z85(text: str) -> bytes:
    """Decode ZeroMQ's base 85, which has the digits of Python's in another order."""
    theirs = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    ours = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
    return base64.b85decode(text.encode().translate(bytes.maketrans(theirs, ours)))


def test_deletion_vectors_by_an_absolute_path_are_applied(tmp_path: Path) -> None:
    """They were refused in a commit that came after the first opening."""
    table = tmp_path / "t"
    commits = with_deletion_vectors(table)
    for commit in commits:
        with changed_commit(commit) as actions:
            vectors = [action.get(kind, {}).get("deletionVector") for action in actions for kind in ("add", "remove")]
            for vector in filter(None, vectors):
                name = uuid.UUID(bytes=z85(vector["pathOrInlineDv"][-20:])[:16])
                vector |= {"storageType": "p", "pathOrInlineDv": f"file://{table}/deletion_vector_{name}.bin"}
    with not_yet_made(commits[6:], tmp_path):
        zskip.open(table)
    theirs = pa.table(DeltaTable(table).scan())
    assert len(theirs) == 35
    require_same(zskip.open(table), theirs)


# --- tables of Delta and Iceberg tables in an object store: opened, looked up in, and followed ---


def numbered(first: int) -> pa.Table:
    return pa.table({"n": pa.array(range(first, first + 100)), "text": [f"{n}" for n in range(first, first + 100)]})


@pytest.mark.parametrize("deep", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_delta_table_is_followed(bucket: Place, deep: bool) -> None:
    root, options = bucket
    url = f"{root}/delta {deep}"
    theirs = {name: value for name, value in options.items() if isinstance(value, str)} | {"allow_http": "true"}
    for first in (0, 100):
        write_deltalake(url, numbered(first), mode="append", storage_options=theirs)
    opened = zskip.open(url, deep=deep, storage_options=options)
    plan = opened.plan("n = 150")
    assert len(plan.paths) == 1
    assert plan.to_arrow()["text"].to_pylist() == ["150"]
    write_deltalake(url, numbered(200), mode="append", storage_options=theirs)
    DeltaTable(url, storage_options=theirs).delete("n = 150")
    opened = zskip.open(url, deep=deep, storage_options=options)
    assert opened.count() == 299
    assert opened.plan("n = 150").count() == 0
    assert opened.plan("n = 250").to_arrow()["text"].to_pylist() == ["250"]
    assert zskip.sql(f"SELECT count(*) FROM '{url}' WHERE n > 290", storage_options=options).fetchall() == [(9,)]
    attached = zskip.attach(url, storage_options=options)
    assert attached._index.parts is attached._index.storage
    assert zskip.open(url, storage_options=options).plan("n = 250").count() == 1
    done = zskip.cluster(url, by=["n"], files=4, storage_options=options)
    assert done.files_written == len(DeltaTable(url, storage_options=theirs).file_uris())
    assert zskip.open(url, storage_options=options).plan("n = 250").to_arrow()["text"].to_pylist() == ["250"]


def test_an_iceberg_table_is_followed(bucket: Place, tmp_path: Path) -> None:
    root, options = bucket
    catalog = load_catalog(
        "c",
        type="in-memory",
        warehouse=root,
        **{
            "s3.endpoint": options["aws_endpoint"],
            "s3.access-key-id": options["aws_access_key_id"],
            "s3.secret-access-key": options["aws_secret_access_key"],
            "s3.region": options["aws_region"],
        },
    )
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=numbered(0).schema)
    for first in (0, 100):
        table.append(numbered(first))
    for place in (table, table.location(), table.metadata_location):
        plan = zskip.open(place, storage_options=options).plan("n = 150")
        assert len(plan.paths) == 1
        assert plan.to_arrow()["text"].to_pylist() == ["150"]
    table.append(numbered(200))
    table.delete("n = 150")
    for place in (table, table.location()):
        opened = zskip.open(place, deep=True, storage_options=options)
        assert opened.count() == 299
        assert opened.plan("n = 150").count() == 0
        assert opened.plan("n = 250").to_arrow()["text"].to_pylist() == ["250"]
    done = zskip.cluster(table, by=["n"], files=4, storage_options=options)
    assert done.files_written == len(list(catalog.load_table("n.t").scan().plan_files()))


@pytest.mark.parametrize("format", ["zskip", "delta"])
def test_dimensions_are_read_again_with_the_options_of_their_facts(
    bucket: Place, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    root, options = bucket
    theirs = {name: value for name, value in options.items() if isinstance(value, str)} | {"allow_http": "true"}
    dimension, url = f"{root}/dim {format}", f"{root}/facts {format}"
    rows = pa.table({"k": [1, 2], "region": ["ASIA", "EUROPE"]})
    more = pa.table({"k": [3], "region": ["AFRICA"]})
    if format == "zskip":
        zskip.write(rows, dimension, by="k", storage_options=options)
    else:
        write_deltalake(dimension, rows, storage_options=theirs)
    facts = zskip.write(
        pa.table({"ck": [1, 2, 3] * 20, "v": range(60)}),
        url,
        by="dim.region",
        files=3,
        joins={"dim": (dimension, {"ck": "k"})},
        storage_options=options,
    )
    facts.append(pa.table({"ck": [1, 1], "v": [60, 61]}))
    if format == "zskip":
        zskip.open(dimension, storage_options=options).append(more)
    else:
        write_deltalake(dimension, more, mode="append", storage_options=theirs)
    count = f"SELECT count(*) FROM '{url}' f JOIN '{dimension}' d ON ck = k WHERE region = 'ASIA'"
    assert zskip.sql(count, storage_options=options).fetchall() == [(22,)]
    explained = str(zskip.explain(count, storage_options=options))
    assert "attributes of" in explained
    assert "are not used" not in explained, "the dimension's older version is read with the same options"
    assert facts.refresh_joins().files == len(facts.plan().paths)
    assert facts.verify(random=0).attributes == ()
