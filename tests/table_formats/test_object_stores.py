"""Delta and Iceberg tables in an object store: opened, looked up in, and followed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

import zskip
from tests.clouds import STORES, Place, unavailable

pytestmark = pytest.mark.skipif(unavailable("s3") is not None, reason=str(unavailable("s3")))


@pytest.fixture(scope="module")
def bucket() -> Iterator[Place]:
    with STORES["s3"]() as place:
        yield place


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
