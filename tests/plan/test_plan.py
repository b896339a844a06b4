"""Plans: what survives at each level, what is counted without reading, and what explain tells of it."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from itertools import product
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import zskip
from tests import ROOT
from tests.tables import build_table, plan_of, sorted_rows, whole_scan
from zskip.binder import bind
from zskip.errors import UnknownColumn, UnknownParameter, UnreadableFile, UnsupportedSql
from zskip.plan import Share, find_survivors
from zskip.plan.planner import plan
from zskip.plan.scan import Scan
from zskip.tablelog.index import Index


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    numbers = np.arange(4000)
    return pa.table(
        {
            "a": pa.array(numbers // 4, pa.int64()),
            "b": pa.array(numbers % 7, pa.int32()),
            "s": pa.array([f"x{number % 13}" if number % 5 else None for number in numbers]),
        }
    )


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> Index:
    return build_table(tmp_path_factory.mktemp("lake") / "t", rows, by="a", files=20, row_group_rows=40)


def test_a_point_look_up_keeps_one_file_and_one_row_group(index: Index) -> None:
    found = plan_of(index, "a = 123")
    assert [path.rsplit("/", 1)[1] for path in found.paths] == ["part-00002.parquet"]
    assert found.files[0].row_groups == (2,)
    assert found.files[0].rows == 200
    assert found.files[0].bytes == (Path(found.paths[0])).stat().st_size
    assert found.files[0].residual is not None
    assert found.skipped.files == Share(19, 20)
    assert found.skipped.row_groups == Share(99, 100)
    assert found.skipped.rows == Share(3960, 4000)


def test_nothing_survives_a_contradiction(index: Index) -> None:
    found = plan_of(index, "a > 5000")
    assert (found.paths, list(found.files), found.count()) == ([], [], 0)
    assert found.to_arrow().schema == index.snapshot.schema.arrow
    assert found.to_duckdb().columns == ["a", "b", "s"]
    assert found.skipped.files.fraction == 1.0


def test_files_that_match_wholly_have_no_residual_and_are_counted_unread(index: Index) -> None:
    found = plan_of(index, "a BETWEEN 50 AND 149")
    assert found.scan.all_match
    assert [file.residual for file in found.files] == [None, None]
    for path in found.paths:
        Path(path).rename(path + ".away")
    try:
        assert found.count() == 400
    finally:
        for path in found.paths:
            Path(path + ".away").rename(path)


def test_a_file_that_matches_in_part_is_counted_by_its_row_groups(index: Index) -> None:
    found = plan_of(index, "a < 60")
    assert [file.residual is None for file in found.files] == [True, False]
    assert found.files[1].row_groups == (0,)
    counted, rest = found.scan.without_counted()
    assert (counted, len(rest), found.count()) == (240, 0, 240)


def test_no_predicate_reads_everything(index: Index, rows: pa.Table) -> None:
    found = plan(index, None)
    assert len(found) == 20
    assert found.count() == 4000
    assert found.to_arrow().equals(rows)
    assert found.skipped.files == Share(0, 20)


@pytest.mark.parametrize(
    "where",
    [
        "a IN (1, 2, 500) AND b = 3",
        "s LIKE 'x1%' AND a BETWEEN 100 AND 300",
        "a = 3 AND s = 'nothing'",
        "TRUE",
        "NULL",
    ],
)
def test_every_engine_gives_the_rows_of_a_full_scan(index: Index, rows: pa.Table, where: str) -> None:
    con = duckdb.connect()
    expected = whole_scan(con, rows, where)
    found = plan_of(index, where)
    assert found.to_arrow().equals(expected)
    assert pa.Table.from_batches(found.to_batches(["s", "a"]), schema=expected.select(["s", "a"]).schema).equals(
        expected.select(["s", "a"])
    )
    assert sorted_rows(found.to_duckdb(con).fetchall()) == sorted_rows(expected)
    assert found.count() == len(expected)
    assert found.to_arrow([]).num_rows == len(expected)


def test_explain_says_what_each_condition_removes(index: Index) -> None:
    found = plan_of(index, "a < 60 AND b = 3")
    facts = found.as_dict()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["skipped"]["files"] == {"skipped": 18, "total": 20}
    assert [(part["text"], part["files"]["removed"]) for part in facts["conjuncts"]] == [("a < 60", 18), ("b = 3", 0)]
    text = found.explain()
    assert "18 of 20 (90 %)" in text
    assert "18 files        94 row groups   a < 60" in text


@pytest.mark.parametrize(
    ("sql", "says"),
    [("a = NULL", "NULL"), ("b = 1 AND s <> null", "NULL"), ("a NOT IN (1, NULL)", "NULL"), ("1 = 2", "holds\n"),
     ("a IS NULL", ""), ("a > 5000", ""), ("a IN (1, NULL)", "")],
)  # fmt: skip
def test_explain_names_a_condition_that_is_never_true(index: Index, sql: str, says: str) -> None:
    text = f"{plan_of(index, sql).explain()}\n"
    if says:
        assert says in text.partition("never TRUE, whatever a row ")[2]
    else:
        assert "never TRUE" not in text


def test_explain_says_what_duckdb_computed(index: Index) -> None:
    found = plan_of(index, "bit_count(a) = 99")
    (part,) = found.as_dict()["conjuncts"]
    told, removed = part["computed"], part["files"]["removed"]
    assert told["files"] == removed > 0
    assert f"computed by DuckDB for the few values of {removed} files" in found.explain()


def test_explain_of_a_file_shows_its_ranges_and_verdicts(index: Index) -> None:
    found = plan_of(index, "a < 60 AND b = 3")
    facts = found.as_dict("part-00001.parquet")
    assert facts["verdict"] == "kept"
    assert facts["conjuncts"][0]["ranges"]["a"]["lower"] == 50
    assert [group["verdict"] for group in facts["row_groups"]] == ["some row may match"] + ["no row matches"] * 4
    skipped = found.explain(index.storage.uri_of("part-00019.parquet"))
    assert "skipped" in skipped.splitlines()[0]
    assert "a from 950 to 999" in skipped
    with pytest.raises(UnreadableFile, match=r'Did you mean "part-'):
        found.explain("part-0001.parquet")


def test_files_are_made_when_they_are_looked_at(index: Index) -> None:
    files = plan_of(index, "b = 3").files
    assert len(files) == 20
    assert [file.path for file in files[3:5]] == [files[3].path, files[-16].path]
    with pytest.raises(IndexError):
        files[20]


def test_a_share_never_rounds_to_all_or_nothing() -> None:
    assert str(Share(999_999, 1_000_000)) == "999,999 of 1,000,000 (99.9999 %)"
    assert str(Share(1_000, 1_000)) == "1,000 of 1,000 (100 %)"
    assert str(Share(None, 5)) == "unknown"


def test_a_predicate_that_was_bound_to_narrower_columns_is_read_again(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"n": pa.array([1, 2, 3], pa.int32())}), tmp_path / "t", by=["n"], rows_per_file=1)
    beyond = table.plan("n > 3000000000").predicate
    assert beyond is not None
    assert table.plan(beyond).count() == 0
    table.append(pa.table({"n": pa.array([4_000_000_000], pa.int64()), "m": [1]}))
    assert table.plan(beyond).count() == 1
    assert table.delete(beyond).rows == 1
    table.overwrite(pa.table({"m": [1]}), by=["m"])
    with pytest.raises(UnknownColumn, match='no column "n"'):
        table.plan(beyond)


def test_of_a_folder_that_changed_the_unchanged_files_are_counted(tmp_path: Path) -> None:
    for name in "abc":
        pq.write_table(pa.table({"x": [ord(name)]}), tmp_path / f"{name}.parquet")
    zskip.index(tmp_path)
    pq.write_table(pa.table({"x": [1, 2, 3]}), tmp_path / "a.parquet")
    found = zskip.open(tmp_path).plan(f"x = {ord('b')}")
    size = (tmp_path / "b.parquet").stat().st_size
    assert found.skipped == (Share(1, 3), Share(1, 2), Share(1, 2), Share(size, 2 * size))
    assert "2 of 3 files are as they were indexed" in found.explain()
    (tmp_path / "c.parquet").unlink()
    pq.write_table(pa.table({"x": [1]}), tmp_path / "d.parquet")
    found = zskip.open(tmp_path).plan(f"x = {ord('b')}")
    assert (found.skipped.files, found.skipped.rows) == (Share(0, 3), Share(0, 1))
    assert "1 of 3 files are as they were indexed" in found.explain()
    assert repr(found).endswith("reads 3 of 3 files, 1 of 1 row in the index>")
    os.utime(tmp_path / "b.parquet", ns=(1, 1))  # as `cp -r` leaves copies
    found = zskip.open(tmp_path).plan(f"x = {ord('b')}")
    assert found.skipped == (Share(0, 3), *[Share(None, None)] * 3)
    text = found.explain()
    assert "all files have changed since the index was made: every one is read in full" in text
    assert "rows       unknown" in text
    assert "zskip index --refresh, or refresh() of the table" in text
    done = zskip.open(tmp_path).refresh()
    assert (done.added, done.changed, done.removed) == (1, 2, 1)
    found = zskip.open(tmp_path).plan(f"x = {ord('b')}")
    assert found.skipped.files == Share(2, 3)
    assert "refresh" not in found.explain()
    empty = zskip.write(pa.table({"x": pa.array([], "int64")}), tmp_path.parent / f"{tmp_path.name}-empty", by="x")
    assert set(empty.plan().skipped) == {Share(0, 0)}


def test_explain_has_the_values_of_parameters(index: Index) -> None:
    found = plan(index, bind("a = ? AND b IN ?", index.snapshot.schema, params=[123, list(range(100))]))
    assert 'WHERE "a" = 123 AND "b" IN (0, 1, 2, … 97 more)\n' in found.explain()
    assert 'row groups   "a" = 123\n' in found.explain()
    assert '"b" IN (0, 1, 2, … 97 more)\n' in found.explain()
    assert '  "a" = 123: some row may match\n' in found.explain(found.paths[0])


def test_a_plan_names_a_misspelt_function(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = zskip.write(pa.table({"s": ["a"]}), tmp_path / "t", by="s")
    assert len(table.plan("uper(s) = 'A'")) == 1
    assert caplog.messages == ['uper() is not a function that zskip knows. Did you mean "upper"?']
    caplog.clear()
    table.plan("upper(s) = 'A' AND suffix(s, 'a') AND list_apply(s, 'a') = 1")
    assert caplog.messages == []


def test_a_null_among_values_that_pyarrow_skips_is_not_read_as_one_that_matches(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"k": range(4), "s": ["x", None, "y", None]}), tmp_path / "t", by=["k"], files=2)
    values = pa.array(["x", None])
    with pytest.raises(UnsupportedSql, match="SKIP"):
        table.plan(pc.is_in(pc.field("s"), value_set=values, skip_nulls=True))
    found = table.plan(pc.is_in(pc.field("s"), value_set=values)).to_arrow()
    assert found.column("k").to_pylist() == [0, 1, 3]


def test_if_else_of_arrow_is_null_where_its_condition_is(tmp_path: Path) -> None:
    rows = pa.table({"n": range(8), "s": ["a", None, "b", None, "c", "a", None, "d"]})
    table = zskip.write(rows, tmp_path / "t", by="n", files=4)
    expression = pc.if_else(pc.field("s") == "a", True, pc.field("n") < 4)
    for each in (expression, ~expression):
        assert sorted(table.plan(each).to_arrow()["n"].to_pylist()) == rows.filter(each)["n"].to_pylist()
    table.delete(expression)
    assert sorted(table.to_arrow()["n"].to_pylist()) == [1, 3, 4, 6, 7]


@pytest.mark.parametrize(
    "expression",
    [
        pc.starts_with(pc.field("s"), "A", ignore_case=True),
        pc.field("s").isin(["a" * 39 + "é" * 30, "b" * 40 + "é" * 30, "a"]),  # which pyarrow cannot print
        pc.field("d") < pa.scalar(2**31 - 1, pa.date32()),
    ],
    ids=["ignore_case", "long texts", "a date beyond Python's"],
)
def test_what_of_arrow_cannot_be_read_is_refused_and_datasets_read_all(
    tmp_path: Path, expression: pc.Expression
) -> None:
    rows = pa.table({"n": range(4), "s": ["a", None, "b", "A"], "d": pa.array([1, 2, None, 3], pa.date32())})
    table = zskip.write(rows, tmp_path / "t", by="n", files=2)
    with pytest.raises(UnsupportedSql, match="cannot be read"):
        table.plan(expression)
    found = table.dataset().to_table(filter=expression)
    assert sorted(found["n"].to_pylist()) == rows.filter(expression)["n"].to_pylist()


def test_a_parameter_of_many_digits_is_refused_in_plain_words(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"n": range(4)}), tmp_path / "t", by=["n"], files=2)
    with pytest.raises(UnknownParameter, match="digits"):
        table.plan("n = ?", params=[10**5000])
    assert table.plan("n < ?", params=[10**500]).count() == 4
    assert table.plan("n = ?2 AND ? > 1 AND ?1 = 0", params=[0, 1, 2]).count() == 1
    assert table.plan("n in ($a,$b)and(n<>$c)and'$a,$b'='$a,$b'", params={"a": 1, "b": 2, "c": 2}).count() == 1
    assert table.plan("n in ($1,$2) and $$,$$ = ',' and $q$a$b$q$ = 'a$b'", params=[1, 2]).count() == 2
    assert table.plan("n = $A OR n = $a + 1", params={"a": 1}).count() == 2
    dollars = zskip.write(pa.table({"s": ["'$5", "'?5"]}), tmp_path / "dollars", by="s", files=2)
    assert dollars.plan(r"s = '\'$5' OR s = $1", dialect="spark", params=["x"]).to_arrow()["s"].to_pylist() == ["'$5"]
    for dialect in ("duckdb", "spark"):
        assert table.plan("n = ?::INT AND '' = ''", dialect=dialect, params=["1"]).to_arrow()["n"].to_pylist() == [1]
        assert table.plan("n = $1 OR '' <> ''", dialect=dialect, params=[1]).to_arrow()["n"].to_pylist() == [1]


def test_a_list_with_null_is_one_of_duckdb(tmp_path: Path) -> None:
    rows = pa.table({"n": range(6), "s": ["x", "x", "y", "y", None, None]})
    table, con = zskip.write(rows, tmp_path / "t", by="n", files=3), duckdb.connect()
    values: list[list[str | None]] = [["x"], ["x", None], [None], []]
    for predicate, given in product(["{}", "NOT ({})", "({}) IS NULL", "coalesce({}, s IS NULL)"], values):
        condition = predicate.format("s IN $1")
        wanted = con.sql(f"SELECT n FROM rows WHERE {condition} ORDER BY n", params=[given]).to_arrow_table()
        plan = table.plan(condition, params=[given])
        assert plan.count() == wanted.num_rows
        for found in (plan.to_arrow(), plan.to_duckdb(con).to_arrow_table()):
            assert found["n"].to_pylist() == wanted["n"].to_pylist(), (condition, given)


# --- a scan is a closed value: it goes to other processes, is cut into tasks, and is read as it was planned ---


READ = """
import pickle, sys
scan = pickle.loads(open(sys.argv[1], "rb").read())
print(scan.to_arrow(["a"]).column("a").to_pylist())
"""


@pytest.fixture
def table(tmp_path: Path) -> zskip.Table:
    rows = pa.table({"a": range(1000), "s": [f"x{number % 7}" for number in range(1000)]})
    return zskip.write(rows, tmp_path / "t", by="a", files=10, row_group_rows=20)


def test_another_process_reads_a_scan_and_plans_nothing(table: zskip.Table, tmp_path: Path) -> None:
    scan = table.plan("a BETWEEN 205 AND 207 AND s LIKE 'x%' AND a <> 206").scan
    pickled = tmp_path / "scan"
    pickled.write_bytes(pickle.dumps(scan))
    # What is planned anew would read the log: a scan must not.
    log = Path(table.uri, "_zskip")
    log.rename(tmp_path / "log")
    done = subprocess.run([sys.executable, "-c", READ, str(pickled)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[205, 207]"
    assert pickled.stat().st_size < 20_000


def test_a_pickled_scan_is_the_same_value(table: zskip.Table) -> None:
    scan = table.plan("a < 150 AND s <> 'x3'").scan
    again: Scan = pickle.loads(pickle.dumps(scan))
    assert again.files.equals(scan.files)
    assert (again.version, again.table_id, again.commit_id) == (1, scan.table_id, scan.commit_id)
    assert again.paths == scan.paths
    assert [again.row_groups_of(file) for file in range(len(again))] == [
        one.row_groups for one in table.plan("a < 150 AND s <> 'x3'").files
    ]
    assert again.to_arrow().equals(scan.to_arrow())
    assert repr(again) == f"<Scan of {table.uri}, version 1: a < 150 AND s <> 'x3': 2 files>"


def test_a_plan_says_what_to_send_instead(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="Send its `scan`"):
        pickle.dumps(zskip.write(pa.table({"a": [1]}), tmp_path / "t", by="a").plan())


def test_a_store_goes_along_by_its_address_and_options() -> None:
    rows = pa.table({"a": range(100)})
    scan = zskip.write(rows, "memory://scan-test/t", by="a", files=4).plan("a = 42").scan
    assert pickle.loads(pickle.dumps(scan)).to_arrow().to_pylist() == [{"a": 42}]


def test_a_scan_is_cut_into_tasks_by_bytes(table: zskip.Table) -> None:
    scan = table.plan("a % 2 = 0 AND a < 555").scan
    tasks = scan.split(2 * max(scan.sizes))
    assert 2 < len(tasks) < len(scan) == 6
    assert [path for task in tasks for path in task.paths] == scan.paths
    assert pa.concat_tables([task.to_arrow() for task in tasks]).equals(scan.to_arrow())
    assert table.plan("a < 0").scan.split(1000) == []


def test_parts_of_a_scan_keep_their_row_groups(table: zskip.Table) -> None:
    scan = table.plan("a IN (30, 130, 431)").scan
    groups = [scan.row_groups_of(file) for file in range(3)]
    assert all(groups)
    kept = np.array([False, True, True])
    part = scan.narrowed(kept)
    assert [part.row_groups_of(file) for file in range(2)] == groups[1:]
    assert part.to_arrow().column("a").to_pylist() == [130, 431]
    assert part.unfiltered().to_arrow().num_rows > 2


def test_survivors_narrow_by_number(table: zskip.Table) -> None:
    every = find_survivors(table._index, None)
    assert every.narrowed(np.array([3])).scan.to_arrow().num_rows == 100
    matching = find_survivors(table._index, table.plan("a < 250").predicate)
    assert matching.narrowed(np.array([2, 5])).numbers.tolist() == [2]


# --- folders that others write ---


def replaced(folder: Path) -> zskip.Table:
    for number in range(10):
        ids = range(100 * number, 100 * number + 100)
        pq.write_table(
            pa.table({"id": ids, "w": [pa.scalar(one).as_py() for one in ids]}),
            folder / f"{number}.parquet",
            row_group_size=10,
        )
    return zskip.index(folder)


def test_a_file_that_is_replaced_after_the_plan_gives_only_rows_that_match(tmp_path: Path) -> None:
    plan = replaced(tmp_path).plan("id BETWEEN 300 AND 399")
    assert [file.residual for file in plan.files] == [None]
    assert plan.scan.all_match
    lazy = plan.to_duckdb(duckdb.connect())
    ids = [*range(5000, 5050), *range(350, 400)]
    pq.write_table(pa.table({"id": ids, "w": ids}), tmp_path / "3.parquet")
    expected = list(range(350, 400))
    assert plan.to_arrow().column("id").to_pylist() == expected
    assert sorted(row[0] for row in lazy.fetchall()) == expected
    assert plan.scan.to_arrow(["w"]).column("w").to_pylist() == expected


def test_the_row_groups_of_a_file_that_is_replaced_are_not_those_of_the_plan(tmp_path: Path) -> None:
    plan = replaced(tmp_path).plan("id = 355")
    assert plan.files[0].row_groups == (5,)
    pq.write_table(pa.table({"id": [355, 1, 2], "w": [7, 8, 9]}), tmp_path / "3.parquet")
    assert plan.to_arrow().to_pylist() == [{"id": 355, "w": 7}]
    assert plan.count() == 1
    assert plan.to_duckdb(duckdb.connect()).fetchall() == [(355, 7)]


# --- the Arrow stream ---


def test_a_plan_and_a_table_are_arrow_streams(table: zskip.Table) -> None:
    polars, pandas = pytest.importorskip("polars"), pytest.importorskip("pandas")
    plan = table.plan("a > 997")
    assert pa.table(plan).equals(plan.to_arrow())
    assert pl_rows(polars.DataFrame(plan)) == [(998, "x4"), (999, "x5")]
    assert pandas.DataFrame.from_arrow(plan)["a"].tolist() == [998, 999]
    assert pa.table(plan.select(["s"])).to_pylist() == [{"s": "x4"}, {"s": "x5"}]
    assert duckdb.connect().sql("SELECT max(a) FROM plan").fetchall() == [(999,)]
    assert pa.table(table).num_rows == 1000


def pl_rows(frame: object) -> list[tuple[object, ...]]:
    return frame.rows()  # type: ignore[attr-defined, no-any-return]


def test_a_selection_holds_for_every_engine(table: zskip.Table) -> None:
    plan = table.plan("a = 5").select(["s"])
    assert plan.to_arrow().column_names == ["s"]
    assert plan.to_duckdb(duckdb.connect()).columns == ["s"]
    assert [batch.schema.names for batch in plan.to_batches()] == [["s"]]
    two = table.plan("a = 5").select(["a", "s"]).to_arrow()
    assert two == table.plan("a = 5").select("a", "s").to_arrow()
    assert two.select(["s"]) == table.plan("a = 5").select("s").to_arrow()
    with pytest.raises(zskip.UnknownColumn, match='no column "t"'):
        plan.select(["t"])
    with pytest.raises(zskip.InvalidOption, match="a column's name, or a list of names, not 5"):
        plan.select("s", 5)  # type: ignore[arg-type]


def test_the_docs_name_every_public_member_of_a_plan() -> None:
    page = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
    members = [name for name in dir(zskip.Plan) if not name.startswith("_")]
    assert len(members) < 17
    assert [name for name in members if f"plan.{name}" not in page] == []
