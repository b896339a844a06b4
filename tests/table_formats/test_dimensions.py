"""Delta and Iceberg tables as dimensions of a zskip table: statements equal a full scan while they change."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from threading import Timer

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake

import zskip
from tests.table_formats.logs import commit_of, connection, delete_rows, new_catalog
from zskip.statements.duckdb import explain_facts, pruned_tables

RANDOM = np.random.default_rng(5)
REGIONS = np.array(["africa", "asia", "europe", "oceania"])
PLACES = RANDOM.integers(0, 4, 400)
CUSTOMERS = pa.table({"k": np.arange(400), "region": REGIONS[PLACES], "partner": REGIONS[3 - PLACES]})
FACTS = pa.table({"ck": RANDOM.integers(0, 420, 4000), "v": RANDOM.integers(0, 100, 4000)})
NEW = pa.table({"k": [405, 406], "region": ["asia", "europe"], "partner": ["europe", "asia"]})
STATEMENT = "SELECT count(*), sum(v) FROM {facts} JOIN {customers} ON ck = k WHERE region = '{region}'"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dimension's new keys are asked for however long that takes, beside facts that are read in a moment."""
    monkeypatch.setattr(pruned_tables, "Timer", lambda _, interrupt: Timer(60, interrupt))


def written(folder: Path, address: str) -> zskip.Table:
    joins = {"customer": (address, {"ck": "k"})}
    return zskip.write(FACTS, folder / "facts", by=["customer.region"], joins=joins, files=16)


def check(folder: Path, address: str, customers: pa.Table) -> None:
    with connection(facts=FACTS, customers=customers) as con:
        for region in ("asia", "europe"):
            whole = con.sql(STATEMENT.format(facts="facts", customers="customers", region=region)).fetchall()
            assert zskip.sql(statement(folder, address, region)).fetchall() == whole


def statement(folder: Path, address: str, region: str = "asia") -> str:
    return STATEMENT.format(facts=f"'{folder}/facts'", customers=f"'{address}'", region=region)


def skipped(folder: Path, address: str) -> int:
    tables = explain_facts(statement(folder, address), duckdb.connect())
    return next(16 - int(each["files_read"]) for each in tables if each["table"] == f"'{folder}/facts'")


def test_a_dimension_in_delta_that_changes(tmp_path: Path) -> None:
    address = str(tmp_path / "customers")
    write_deltalake(address, CUSTOMERS)
    facts = written(tmp_path, address)

    def checked() -> int:
        check(tmp_path, address, pa.table(DeltaTable(address).to_pyarrow_table()))
        return skipped(tmp_path, address)

    unchanged = checked()
    assert unchanged > 10
    write_deltalake(address, NEW, mode="append")
    assert unchanged > checked() > 8  # the files that may hold the key of the new row stay
    DeltaTable(address).update(updates={"region": "'asia'"}, predicate="region = 'europe'")
    checked()
    DeltaTable(address).delete("k < 200")
    checked()
    DeltaTable(address).optimize.compact()
    checked()
    facts.refresh_joins()
    assert checked() > 5  # half of the customers are in asia
    DeltaTable(address).restore(0)  # other rows have keys now than those of the attributes
    checked()
    DeltaTable(address).alter.add_columns(Field("further", "string"))
    checked()


def test_a_delta_dimension_that_was_put_back_and_changed_otherwise(tmp_path: Path) -> None:
    """Its version has the number that the attributes had been computed from, and other rows."""
    address, backup = str(tmp_path / "customers"), tmp_path / "backup"
    write_deltalake(address, CUSTOMERS)
    shutil.copytree(address, backup)
    write_deltalake(address, CUSTOMERS, mode="overwrite")
    facts = written(tmp_path, address)
    shutil.rmtree(address)
    shutil.copytree(backup, address)
    regions = CUSTOMERS.column("region").take(pa.array(range(len(CUSTOMERS) - 1, -1, -1)))
    write_deltalake(address, CUSTOMERS.set_column(1, "region", regions), mode="overwrite")
    check(tmp_path, address, pa.table(DeltaTable(address).to_pyarrow_table()))
    assert facts.refresh_joins().files == 16
    check(tmp_path, address, pa.table(DeltaTable(address).to_pyarrow_table()))


def test_a_dimension_in_iceberg_that_changes(tmp_path: Path) -> None:
    catalog = new_catalog(tmp_path)
    table = catalog.create_table("n.customers", CUSTOMERS.schema)
    table.append(CUSTOMERS)
    address = table.location().removeprefix("file://")
    facts = written(tmp_path, address)

    def checked() -> int:
        check(tmp_path, address, catalog.load_table("n.customers").scan().to_arrow())
        return skipped(tmp_path, address)

    unchanged = checked()
    assert unchanged > 10
    table.append(NEW)
    assert unchanged > checked() > 8
    table.delete("k < 100")
    checked()
    facts.refresh_joins()
    assert checked() > 10
    # Two columns change their names, without a new snapshot: the attributes are those of the other one now.
    for old, new in (("region", "before"), ("partner", "region"), ("before", "partner")):
        with table.update_schema() as update:
            update.rename_column(old, new)
    checked()
    table.append(NEW.set_column(0, "k", pa.array([410, 411])))
    checked()
    with table.update_schema() as update:
        update.rename_column("k", "kk")
    explained = zskip.explain(statement(tmp_path, address).replace("ck = k", "ck = kk"))
    assert "are not used: zskip finds no join by ck = k that could skip files\n" in f"{explained}\n"


def test_rows_of_a_dimension_in_delta_that_come_back(tmp_path: Path) -> None:
    """A file of the dimension has the same name, and fewer deleted rows."""
    address = tmp_path / "customers"
    write_deltalake(address, CUSTOMERS)
    delete_rows(address, list(range(200)))
    facts = written(tmp_path, str(address))
    check(tmp_path, str(address), CUSTOMERS.slice(200))
    assert skipped(tmp_path, str(address)) > 10
    first, second = (commit_of(address, version) for version in (0, 1))
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    (added,) = [action["add"] for action in actions if "add" in action]
    deleted = added.pop("deletionVector")
    removed = {"path": added["path"], "deletionTimestamp": 1, "dataChange": True, "deletionVector": deleted}
    second.write_text("\n".join(map(json.dumps, [{"remove": removed}, {"add": added}])))
    check(tmp_path, str(address), CUSTOMERS)
    stale = skipped(tmp_path, str(address))
    facts.refresh_joins()
    check(tmp_path, str(address), CUSTOMERS)
    assert skipped(tmp_path, str(address)) > stale
