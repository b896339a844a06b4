"""verify finds lies and only lies; doctor says what footers are good for."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog

import zskip
from zskip.core.schema import Schema
from zskip.errors import InvalidOption, NoParquet, SchemaMismatch
from zskip.inspect.audit import doctor, verify
from zskip.inspect.audit.verify import random_predicates
from zskip.storage import open_storage
from zskip.tablelog import commit


@pytest.fixture(scope="module")
def rows(fixtures: Path) -> pa.Table:
    return pq.read_table(fixtures / "flights.parquet").slice(0, 8_000)


@pytest.fixture(scope="module")
def honest(rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> zskip.Table:
    path = tmp_path_factory.mktemp("lake") / "flights"
    return zskip.write(rows, path, by=["date", "carrier", "dest"], files=16, row_group_rows=200)


def test_an_honest_table_is_clean(honest: zskip.Table) -> None:
    report = verify(honest._index, random=6, sample=4)
    assert report.clean, str(report)
    assert len(report.checks) == 6
    assert sum(check.read for check in report.checks) > 4
    assert sum(check.row_groups_read for check in report.checks) > 4
    assert all(set(check.rows) == {"duckdb", "arrow"} for check in report.checks)
    assert "Every proof held.\nNot checked: values that changed in a file which can be read" in str(report)


def test_given_predicates_are_checked_as_they_stand(honest: zskip.Table) -> None:
    report = verify(honest._index, ["carrier = 'UA' -- a remark", "date > DATE '2013-02-01'"], sample=None)
    assert report.clean
    assert [check.read for check in report.checks] == [check.skipped for check in report.checks]
    (check,) = verify(honest._index, ["carrier = $who"], params={"who": "UA"}, sample=None).checks
    assert check.rows == report.checks[0].rows
    assert check.rows["duckdb"] > 0


def lying(table: zskip.Table) -> zskip.Table:
    """A table over the same files whose index says of every file that its only carrier is AA."""
    data = table._index.data_files()
    bound = pa.array(["AA"] * len(data))
    carrier = replace(data.files.columns["carrier"], lower=bound, upper=bound)
    files = replace(data.files, columns={**data.files.columns, "carrier": carrier})
    storage = open_storage(table.uri)
    gone = data.path.to_pylist()
    lie = commit.commit(
        storage, table._index.snapshot, commit.TableUpdate("append", add=replace(data, files=files), remove=gone)
    )
    return zskip.open(table.uri, version=lie.version)


def test_a_lie_is_found(rows: pa.Table, tmp_path: Path) -> None:
    table = lying(zskip.write(rows, tmp_path / "t", by=["carrier"], files=8))
    report = verify(table._index, ["carrier = 'UA'"], sample=None)
    assert not report.clean
    (check,) = report.checks
    expected = int(np.sum(np.asarray(rows["carrier"]) == "UA"))
    assert sum(found.rows for found in check.wrong) == expected
    assert {found.claim for found in check.wrong} == {"skipped"}
    assert "WRONG" in str(report)


def test_missing_and_cut_files_are_named(rows: pa.Table, tmp_path: Path) -> None:
    table = zskip.write(rows, tmp_path / "t", by=["date"], files=8)
    first, second, *_ = sorted((tmp_path / "t").glob("*.parquet"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-10])
    report = verify(table._index, ["date < DATE '1990-01-01'"])
    assert report.missing == (first.name, second.name)
    assert not report.clean


@pytest.mark.parametrize("cut", [0, 100, None])
def test_predicates_over_missing_and_cut_files_are_left_out(cut: int | None, tmp_path: Path) -> None:
    table = zskip.write(pa.table({"a": range(3000)}), tmp_path / "t", by=["a"], files=3)
    victim = Path(table.plan("a = 1500").paths[0])
    if cut is None:
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:cut])
    report = table.verify(["a = 1500", "a < 10"], sample=None)
    assert (report.missing, report.unchecked) == ((victim.name,), ("a = 1500",))
    assert [check.predicate for check in report.checks] == ["a < 10"]
    assert "plans read these files: 1.\nEvery proof that was checked held.\n" in str(report)
    report = table.verify(random=4)
    assert report.missing == (victim.name,)
    assert len(report.checks) + len(report.unchecked) == 4


def test_dates_beyond_those_of_python_are_verified(tmp_path: Path) -> None:
    days, times = pa.array([2**31 - 1, 0], pa.date32()), pa.array([2**63 - 1, 0], pa.timestamp("us"))
    report = zskip.write(pa.table({"day": days, "time": times}), tmp_path / "t", by="day").verify(random=20)
    assert len(report.checks) == 20
    assert not [check for check in report.checks if check.wrong]


def test_random_predicates_are_repeatable_and_bind(rows: pa.Table, honest: zskip.Table) -> None:
    schema = Schema(rows.schema)
    first = random_predicates(rows, schema, 50, seed=3)
    assert first == random_predicates(rows, schema, 50, seed=3)
    assert first != random_predicates(rows, schema, 50, seed=4)
    assert len(set(first)) > 40


def test_an_unknown_engine_is_refused(honest: zskip.Table) -> None:
    with pytest.raises(InvalidOption, match="there are duckdb, arrow, spark"):
        verify(honest._index, engines=["hive"])


def test_doctor_tells_good_footers_from_bad(tmp_path: Path) -> None:
    stamps = pa.array(np.arange(1000) * 1_000_000, pa.timestamp("us"))
    good = pa.table({"n": np.arange(1000), "s": [f"{n:05}" for n in range(1000)]})
    pq.write_table(good.slice(0, 500), tmp_path / "good-0.parquet")
    pq.write_table(good.slice(500), tmp_path / "good-1.parquet")
    pq.write_table(pa.table({"t": stamps}), tmp_path / "int96.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(pa.table({"bare": np.arange(10)}), tmp_path / "bare.parquet", write_statistics=False)
    pq.write_table(pa.table({"list": [[1], [2]], "f": [1.0, float("nan")]}), tmp_path / "nested.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no footer here")
    report = doctor(tmp_path)
    assert (report.files, report.rows) == (5, 2012)
    assert set(report.unreadable) == {"broken.parquet"}
    found = {column.column: column for column in report.columns}
    assert (found["n"].bounded, found["n"].finding) == (1.0, "")
    assert found["n"].unread == 0.5  # two files of equal size, and every value is in one of them
    assert "INT96" in found["t"].finding
    assert "TIMESTAMP_MICROS" in found["t"].advice
    assert (found["bare"].bounded, found["bare"].finding) == (0.0, "no usable bounds")
    assert "NaN" in found["f"].finding
    assert "no order" in found["list.list.element"].finding if "list.list.element" in found else True
    assert any("cannot be read" in line for line in report.advice)
    assert not (tmp_path / "_zskip").exists()


def test_doctor_needs_parquet(tmp_path: Path) -> None:
    with pytest.raises(NoParquet):
        doctor(tmp_path)


def test_verify_names_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    rows = pa.table({"a": range(4000), "s": [f"text {n * 7919 % 4000}" for n in range(4000)]})
    orders = (["a > 10", "a < 100"], ["a < 100", "a > 10"])
    for url, predicates in zip((str(tmp_path / "t"), f"memory://{tmp_path.name}/t"), orders, strict=True):
        table = zskip.write(rows, url, by=["a"], files=4)
        victim = table.plan("a = 2500").scan.relative_paths[0]
        data = table._index.storage.read(victim)
        table._index.storage.put(victim, data[:4] + bytes(len(data) // 3) + data[4 + len(data) // 3 :])
        report = zskip.open(url).verify(predicates, sample=None)
        assert (list(report.damaged), report.unchecked) == ([victim], ("a > 10",))
        assert [check.predicate for check in report.checks] == ["a < 100"]
        assert f"DAMAGED  {victim}" in str(report)
        assert not report.clean
    report = zskip.open(url).verify(random=3, sample=None)
    assert list(report.damaged) == [victim]
    assert len(report.checks) + len(report.unchecked) == 3


@pytest.mark.usefixtures("parts_in_files")
def test_doctor_looks_at_the_newest_version_of_a_table(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"a": range(1000)}), tmp_path, by=["a"], files=4)
    table.delete("a < 500")
    report = doctor(tmp_path)
    assert (report.files, report.rows) == (table._index.snapshot.totals.files, 500)
    assert any("vacuum" in advice for advice in report.advice)
    table.vacuum("0 days")
    assert not any("vacuum" in advice for advice in doctor(tmp_path).advice)
    part = tmp_path / table._index.snapshot.shards[0].file_part.path
    part.write_bytes(part.read_bytes()[:-1])
    assert any("--repair" in advice for advice in doctor(tmp_path).advice)


def test_doctor_knows_that_a_table_has_bounds_of_its_own(tmp_path: Path) -> None:
    """Its footers have none where a value is NaN, and `zskip index` takes no table."""
    zskip.write(pa.table({"a": [1.0, float("nan")]}), tmp_path, by="a")
    (column,) = doctor(tmp_path).columns
    assert column.advice == "none is needed here: the table's index has bounds of its own"


def test_doctor_leaves_out_files_that_a_log_has_removed(tmp_path: Path) -> None:
    """They were counted as part of the table."""
    path = tmp_path / "delta"
    write_deltalake(path, pa.table({"a": range(100)}))
    write_deltalake(path, pa.table({"a": range(10)}), mode="overwrite")
    catalog = load_catalog("c", type="in-memory", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=pa.schema({"a": pa.int64()}))
    table.append(pa.table({"a": range(100)}))
    table.overwrite(pa.table({"a": range(10)}))
    for folder in (path, tmp_path / "n" / "t"):
        found = doctor(folder)
        assert (found.files, found.rows) == (1, 10)
        assert any("more files are not part of the table's newest version" in one for one in found.advice)
    (path / "_delta_log" / f"{0:020}.json").write_text("{broken")
    found = doctor(path)
    assert (found.files, found.rows) == (2, 110)
    assert any(f"{0:020}.json" in one for one in found.advice)


HALF, WIDE = pa.array(range(40), pa.int32()).cast(pa.float16()), pa.array(range(40)).cast(pa.decimal256(50, 0))
ONE_EACH = pa.array(range(41), pa.int32())
NUMBERS_IN_TYPES_BEYOND_DUCKDB = {
    "half": HALF,
    "wide": WIDE,
    "struct": pa.StructArray.from_arrays([HALF, WIDE], ["a", "b"]),
    "list in struct": pa.StructArray.from_arrays([pa.ListArray.from_arrays(ONE_EACH, WIDE)], ["a"]),
    "map": pa.MapArray.from_arrays(ONE_EACH, pa.array([str(number) for number in range(40)]), WIDE),
}


def test_types_that_duckdb_does_not_take_from_arrow_are_verified(tmp_path: Path) -> None:
    no_doubles = pa.array([Decimal("12345678901234567890123.45678"), None] * 20, pa.decimal256(50, 5))
    rows = pa.table({"n": range(40), **NUMBERS_IN_TYPES_BEYOND_DUCKDB, "no doubles": no_doubles})
    table = zskip.write(rows, tmp_path, by="n", files=4)
    present = [f'"{name}" IS NOT NULL' for name in rows.column_names[1:]]
    done = table.verify(["n > 20", *present], sample=None)
    assert done.clean
    assert [check.rows["duckdb"] for check in done.checks] == [19, *[40] * 5, 20]
    assert table.verify(random=6).clean
    for name in NUMBERS_IN_TYPES_BEYOND_DUCKDB:
        assert table.plan(f"n = 5 OR \"{name}\"::VARCHAR LIKE '%7%'").to_arrow().num_rows == 5, name
    assert table.advise([f"n > 20 AND {' AND '.join(present)}"]).candidates


def test_values_that_python_does_not_hold_are_verified(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "n": range(40),
            "zone": pa.array(range(40), pa.timestamp("us", "Mars/Olympus_Mons")),
            "duration": pa.array(range(1 << 62, (1 << 62) + 40), pa.duration("s")),
        }
    )
    table = zskip.write(rows, tmp_path, by="n", files=4)
    done = table.verify(random=20)
    assert done.clean
    assert len(done.checks) == 20
    assert any("zone" in check.predicate for check in done.checks)
    assert table.advise(["n > 20 AND zone IS NOT NULL AND duration IS NOT NULL"]).candidates


NESTED: list[tuple[pa.DataType, pa.DataType | None, Any]] = [
    (pa.map_(pa.uuid(), pa.int64()), pa.map_(pa.binary(16), pa.int64()), [(b"x" * 16, 1)]),
    (pa.list_(pa.uuid(), 2), pa.list_(pa.binary(16), 2), [b"x" * 16, None]),
    (pa.list_(pa.null()), None, [None]),
    (pa.list_(pa.struct([("a", pa.int32()), ("n", pa.null())])), None, [{"a": 1, "n": None}]),
    (pa.list_(pa.dictionary(pa.int32(), pa.string()), 2), pa.list_(pa.string(), 2), ["a", "b"]),
]
"""Types, the types that Python's values of them are made of, where these are others, and a value."""


def test_nested_values_are_verified(tmp_path: Path) -> None:
    """Of 40 rows in four files, half are NULL: all of two files."""
    rows = pa.table({"n": range(40)})
    for number, (type, plain, value) in enumerate(NESTED):
        values = pa.array([value] * 20 + [None] * 20, plain or type).cast(type)
        rows = rows.append_column(f"x{number}", values)
    table = zskip.write(rows, tmp_path, by="n", files=4)
    found = table.to_arrow()
    found.validate(full=True)
    assert found.to_pylist() == rows.to_pylist()
    for name in rows.column_names[1:]:
        done = table.verify([f"n > 10 AND {name} IS NOT NULL", f"{name} IS NULL"], sample=None)
        assert done.clean
        assert [check.rows["arrow"] for check in done.checks] == [9, 20]


def test_timestamps_that_duckdb_does_not_read_are_named(tmp_path: Path) -> None:
    times = pa.array(range(1 << 62, (1 << 62) + 40), pa.timestamp("ms"))
    table = zskip.write(pa.table({"n": range(40), "when": times}), tmp_path, by="n", files=4)
    assert table.plan("n = 5").to_arrow(["n"]).num_rows == 1
    reads = [
        lambda: table.plan("n = 5").to_arrow(),
        lambda: list(table.plan("n = 5").to_batches()),
        lambda: table.delete("n = 5"),
        lambda: table.advise(["n = 5"]),
    ]
    for read in reads:
        with pytest.raises(SchemaMismatch, match='timestamp of "when" lies outside'):
            read()


def test_doctor_names_int96_that_was_rewritten_as_clocks(tmp_path: Path) -> None:
    """As cluster rewrote it before it kept instants. The old files tell, and without them their statistics do."""
    stamps = pa.array(np.arange(40) * 10**9 + 10**15, pa.timestamp("us"))
    rows = pa.table({"a": list(range(40)), "t": stamps, "clock": stamps})
    pq.write_table(rows.drop("clock"), tmp_path / "1.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(rows.drop("t"), tmp_path / "2.parquet")
    old = zskip.index(tmp_path)

    def named() -> list[str]:
        return [advice for advice in doctor(tmp_path).advice if "INT96" in advice]

    zskip.cluster(tmp_path, by="a", files=2)
    assert not named()
    table = zskip.open(tmp_path)
    table.overwrite(table.to_arrow().set_column(1, "t", table.to_arrow()["t"].cast(pa.timestamp("us"))))
    (advice,) = named()
    assert '"t"' in advice
    assert "may have been" not in advice
    for path in old.plan().paths:
        Path(path).unlink()
    (advice,) = named()
    assert '"t"' in advice
    assert "may have been" in advice
    zskip.open(tmp_path).vacuum("0 seconds")
    assert not named()
