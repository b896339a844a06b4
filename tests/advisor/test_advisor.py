"""The advisor ranks layouts by what a workload reads."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import zskip
from zskip import advisor, layouts
from zskip.cli.main import main
from zskip.errors import InvalidOption, UnreadableFile
from zskip.tablelog.sketches import SketchName
from zskip.writer.sketch_advice import reads_with_values, worth_sketching

RNG = np.random.default_rng(4)
ROWS = pa.table({name: RNG.integers(0, 1000, 4000) for name in ("a", "b", "c")})
WORKLOAD = [f"a = {n}" for n in range(0, 1000, 50)]
WORKLOAD += [f"SELECT * FROM t WHERE b BETWEEN {n} AND {n + 9}" for n in (3, 700)]


def test_candidates_are_ranked_beside_today_and_the_limit():
    advice = advisor.advise(
        ROWS, WORKLOAD, files=20, total_rows=4000, today=np.arange(4000) // 200, candidates=("auto", "linear")
    )
    reads = [candidate.read for candidate in advice.candidates]
    assert reads == sorted(reads)
    assert advice.least < reads[0] < 0.15 < 0.9 < advice.today
    assert {candidate.by for candidate in advice.candidates} == {("a",), ("b",), ("a", "b")}
    assert len(advice.candidates[0].queries) == len(WORKLOAD)
    assert len(advice.today_queries) == len(advice.least_queries) == len(WORKLOAD)
    assert advice.today == pytest.approx(np.dot(advice.weights, advice.today_queries))
    assert advice.command.startswith("zskip write SOURCE TARGET --by a")
    assert advice.command.endswith(" --workload QUERIES.SQL")
    shown = str(advice)
    assert f"today     {advice.today:7.2%}" in shown
    assert f"limit     {advice.least:7.2%}" in shown
    assert "a = ?" in shown
    assert "b BETWEEN ? AND ?" in shown


def test_groups_say_what_gets_better_and_what_gets_worse():
    """Sorted by b today; most queries ask for a."""
    rows = ROWS.sort_by("b")
    advice = advisor.advise(rows, WORKLOAD, files=20, total_rows=4000, today=np.arange(4000) // 200)
    by_condition = {group.condition: group for group in advice.groups}
    asked, ranges = by_condition["a = ?"], by_condition["b BETWEEN ? AND ?"]
    assert (asked.verdict, ranges.verdict) == ("better", "worse")
    assert (len(asked.numbers), len(ranges.numbers)) == (20, 2)
    assert asked.weight + ranges.weight == pytest.approx(1)
    assert asked.best == pytest.approx(np.mean([advice.candidates[0].queries[number] for number in asked.numbers]))
    assert advice.candidates[0].worse == 1
    shown = str(advice)
    assert "WORSE" in shown
    assert "1 of 2 groups read more than today by the best layout." in shown
    # sorting by b alone, as today, harms nobody, and serves nobody
    assert any(not each.worse for each in advice.candidates)
    assert advice.harmless is None
    assert "Each candidate that reads noticeably less does so" in shown
    spared = replace(advice.candidates[1], by=("b",), read=advice.today / 2, worse=0)
    spared_advice = replace(advice, candidates=(advice.candidates[0], spared))
    assert spared_advice.harmless == spared
    assert f"None does by --by b --layout {spared.layout}" in str(spared_advice)


def test_queries_weigh_the_same_where_that_is_wanted():
    wide = ROWS.append_column("text", pa.array(["x" * 500] * len(ROWS)))
    queries = [f"SELECT * FROM t WHERE a = {n}" for n in range(0, 1000, 100)]
    queries += [f"SELECT count(*) FROM t WHERE b = {n}" for n in range(0, 1000, 20)]
    by_bytes, by_query = (
        advisor.advise(wide, queries, files=20, total_rows=4000, weigh=weigh, candidates=("tiles",))
        for weigh in ("bytes", "queries")
    )
    assert by_bytes.candidates[0].by == ("a",)
    assert "b" in by_query.candidates[0].by
    assert by_query.weights == pytest.approx([1 / 60] * 60)
    with pytest.raises(InvalidOption, match="weigh="):
        advisor.advise(wide, queries, files=20, total_rows=4000, weigh="rows")


def test_columns_are_mixed_beyond_the_order_in_which_they_are_asked_for():
    """All queries filter on c, which skips little; the best set leaves the most frequent column out."""
    queries = [f"c < 990 AND {column} = {n}" for column, step in (("b", 50), ("a", 100)) for n in range(0, 1000, step)]
    advice = advisor.advise(ROWS, queries, files=20, total_rows=4000, candidates=("tiles", "linear"))
    assert advice.candidates[0].by in (("b",), ("b", "a"), ("a", "b"))
    assert {("c",), ("c", "b"), ("b", "a")} <= {tuple(candidate.by) for candidate in advice.candidates}


def test_progress_is_reported():
    reported = []
    advisor.advise(ROWS, WORKLOAD, files=4, total_rows=4000, progress=lambda *each: reported.append(each))
    phases, done, totals = zip(*reported, strict=True)
    assert set(phases) == {"candidates"}
    assert list(done) == sorted(done)
    assert set(totals) == {done[-1]}


def test_a_workload_that_filters_nothing_is_refused():
    with pytest.raises(InvalidOption):
        advisor.advise(ROWS, ["SELECT * FROM t"], files=2, total_rows=4000)
    with pytest.raises(InvalidOption, match="The workload has no query"):
        advisor.advise(ROWS, [], files=2, total_rows=4000)


def test_a_rewrite_takes_longer_for_more_rows_and_slower_reading():
    few, many, slow = (
        advisor.advise(ROWS, ["a = 7"], files=4, total_rows=rows, candidates=("linear",), read_seconds=seconds)
        for rows, seconds in ((4000, 0.0), (40_000_000, 0.0), (4000, 1000.0))
    )
    assert 0 < few.rewrite_seconds < 60
    assert many.rewrite_seconds > 2 * few.rewrite_seconds
    assert 2000 < slow.rewrite_seconds < 2060


def test_a_look_up_of_a_value_outside_the_sample_is_not_free():
    rows = pa.table({"a": np.arange(0, 8000, 2), "b": RNG.integers(0, 1000, 4000)})
    advice = advisor.advise(rows, ["a = 4001"], files=10, total_rows=40_000, candidates=("linear",))
    assert advice.candidates[0].read == pytest.approx(0.1, abs=0.05)


def test_a_source_is_advised_on_by_the_command_that_names_its_workload(tmp_path, capsys):
    path, queries = tmp_path / "rows.parquet", tmp_path / "queries.sql"
    pq.write_table(ROWS, path)
    queries.write_text("a = 7;\nb < 100;\n", encoding="utf-8")
    assert main(["advise", str(path), "--workload", str(queries), "--json"]) == 0
    advice = json.loads(capsys.readouterr().out)
    assert advice["files"] == 100
    assert advice["rewrite_seconds"] > 0
    words = shlex.split(advice["command"])
    assert words[words.index("--workload") + 1] == str(queries)
    words[words.index("TARGET")] = str(tmp_path / "lake")
    assert words[0] == "zskip"
    assert main(words[1:]) == 0
    assert zskip.open(tmp_path / "lake").plan("a = 7").count() == ROWS["a"].to_pylist().count(7)


def test_a_workload_is_a_list_a_text_or_a_file(tmp_path):
    file = tmp_path / "queries.SQL"
    file.write_text("a = 7; -- one\nSELECT * FROM t WHERE b < 100", encoding="utf-8")
    rows = ROWS.slice(0, 1000)
    table = zskip.write(rows, tmp_path / "table", by=["c"], files=4)
    laid_out = {
        form: zskip.write(rows, tmp_path / form, by=["c"], files=4, workload=workload)
        for form, workload in {
            "list": ["a = 7", "SELECT * FROM t WHERE b < 100"],
            "text": "a = 7; SELECT * FROM t WHERE b < 100",
            "path": file,
            "name": str(file),
        }.items()
    }
    first, *others = (made._index.files(None, ["a", "b", "c"]).statistics for made in laid_out.values())
    assert all(one == first for one in others)
    assert all(set(made._index.snapshot.layout.columns) == set("abc") for made in laid_out.values())
    assert table.advise(file).queries == ("a = 7", "b < 100")
    assert f"--workload {shlex.quote(str(file))}" in table.advise(str(file)).command
    assert table.advise("a = 7\nb < 100").command.endswith("--workload QUERIES.SQL")
    with pytest.raises(UnreadableFile, match=r"gone\.sql"):
        zskip.write(rows, tmp_path / "never", by=["c"], workload="gone.sql")
    assert not (tmp_path / "never").exists()


@pytest.mark.slow
def test_of_many_queries_no_kind_is_missed():
    """2,400 queries in turn: every second or third one would all be of one kind."""
    queries = [f"{column} = {number}" for number in range(400) for column in "abcabc"]
    advice = advisor.advise(ROWS, queries, files=4, total_rows=4000, candidates=("tiles",))
    assert len(advice.queries) == 1000
    assert "advice for 1,000 of the workload's 2,400 queries, selected at random" in str(advice)
    assert sorted(group.condition for group in advice.groups) == ["a = ?", "b = ?", "c = ?"]
    fitted = layouts.fit(ROWS, None, layout="tree", files=8, workload=queries, total_rows=4000)
    assert sorted(fitted.columns) == ["a", "b", "c"]


def test_with_sketches_for_look_ups_a_layout_serves_the_other_queries():
    uids = pa.array([f"{n * 2654435761 % 2**32:08x}" for n in range(4000)])
    queries = [f"uid = '{uids[n]}'" for n in range(0, 4000, 100)]
    queries += [f"{column} < {n}" for column in "ab" for n in range(10, 60, 5)]
    rows = ROWS.append_column("uid", uids)
    advice = advisor.advise(rows, queries, files=20, total_rows=4000, candidates=("tiles",))
    assert advice.sketched is not None
    assert "uid" not in advice.sketched.by
    assert advice.sketched.read < 0.8 * advice.candidates[0].read
    assert max(advice.sketched.queries[:40]) == pytest.approx(1 / 20)
    assert "--sketch uid=values" in advice.sketched_command
    assert "--sketch" not in advice.command
    assert advice.sketched_command in str(advice)


def test_its_commands_run_for_any_source_and_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commas, quotes and spaces in names; a source that is no table, with which nothing can be compared."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(8)
    rows = pa.table({name: random.integers(0, 1000, 4000) for name in ("a,b", 'c"d', "e f")})
    csv.write_csv(rows, "rows.csv")
    Path("my queries.sql").write_text('"a,b" = 7 AND "c""d" < 100;\n"e f" = 9;\n')
    advice = zskip.advise("rows.csv", "my queries.sql", files=8)
    for command in filter(None, (advice.sketched_command, advice.command)):
        shutil.rmtree("TARGET", ignore_errors=True)
        assert main(shlex.split(command)[1:]) == 0
    assert main(shlex.split(advice.bench_command)[1:]) == 0
    assert {advice.candidates[0].by[0]} <= set(zskip.open("TARGET")._index.snapshot.layout.columns)


def test_a_layout_that_nothing_beats_is_kept() -> None:
    """Each row is in a file of its own value already."""
    random = np.random.default_rng(9)
    rows = pa.table({"a": np.repeat(np.arange(20), 200), "b": random.integers(0, 9, 4000)})
    workload = [f"a = {n}" for n in range(20)]
    advice = advisor.advise(rows, workload, files=20, total_rows=4000, today=np.arange(4000) // 200)
    assert advice.keep
    assert "Keep the layout of today: no candidate reads noticeably less." in str(advice)
    assert "zskip write" not in str(advice)
    assert "one file" not in str(advice)
    single = advisor.advise(rows, workload, files=1, total_rows=4000, today=np.zeros(4000, np.int64))
    assert str(single).endswith("To compare layouts of more files: files=50, or --files 50.")
    today = random.permutation(4000) // 200
    assert not advisor.advise(rows, workload, files=20, total_rows=4000, today=today).keep


def test_what_is_read_and_returned_at_least_is_that_of_the_rows() -> None:
    """No NULL, so no file is read for it; a text that no row holds is not returned, though no layout skips it."""
    rows = ROWS.append_column("text", pa.array([f"row {number}" for number in range(4000)]))
    workload = ["a IS NULL", "text LIKE '%0abc%'", "text LIKE '%9'", "a = 5"]
    advice = advisor.advise(
        rows, workload, files=20, total_rows=4000, today=np.arange(4000) // 200, candidates=("linear",)
    )
    assert advice.today_queries is not None
    assert advice.today_queries[:2] == (0, 1)
    assert advice.candidates[0].queries[:2] == (0, 1)
    assert advice.least_queries[:2] == (0, 0)
    assert advice.least_queries[2] == pytest.approx(0.1, abs=0.02)


def test_more_files_than_rows_are_refused() -> None:
    with pytest.raises(InvalidOption, match="more than the 4,000 rows"):
        advisor.advise(ROWS, WORKLOAD, files=10_000_000, total_rows=4000)
    assert zskip.advise(ROWS.slice(0, 50), ["a = 7"]).files == 50


@pytest.fixture
def star(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A table of orders, one of customers, and statements that filter orders by attributes of the customers."""
    monkeypatch.chdir(tmp_path)
    regions = pa.array(RNG.choice(["africa", "asia", "europe"], 500))
    zskip.write({"c_key": np.arange(500), "c_region": regions}, "lake/customer", by=["c_key"])
    orders = {"o_key": RNG.integers(0, 500, 4000), "o_day": RNG.integers(0, 365, 4000)}
    zskip.write(orders, "lake/orders", by=["o_day"], files=20)
    return [
        f"SELECT count(*) FROM orders, customer WHERE o_key = c_key AND c_region = '{region}' AND o_day < {day}"
        for region, day in (("asia", 400), ("europe", 90))
    ]


JOINS = {"customer": ("lake/customer", {"o_key": "c_key"})}


def test_advice_proposes_the_attributes_of_dimensions(star: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    advice = zskip.advise("lake/orders", star, joins=JOINS)
    assert "zskip bench" not in str(advice)  # it knows no dimensions
    best = advice.candidates[0]
    assert '"customer.c_region"' in best.by
    assert advice.today is not None
    assert best.read < 0.5 * advice.today
    assert '"customer.c_region" = ' in str(advice)

    # The command that it gives writes that layout, which then serves the statements.
    Path("QUERIES.SQL").write_text(";\n".join(star), encoding="utf-8")
    command = shlex.split(advice.command.replace("TARGET", "better/orders"))
    assert command[-2:] == ["--join", "customer=lake/customer:o_key=c_key"]
    assert main(command[1:]) == 0
    capsys.readouterr()
    facts = zskip.open("better/orders")
    assert [each.name for each in facts._index.snapshot.dimensions] == ["customer"]
    asked = star[0].replace("FROM orders, customer", "FROM 'better/orders', 'lake/customer'")
    assert "\"c_region\" = 'asia'" in str(zskip.explain(asked))

    # Later advice joins the dimensions of the table again.
    assert '"customer.c_region"' in facts.advise(star).candidates[0].by


def test_advice_on_rows_without_a_name(star: list[str]) -> None:
    """The facts are the one table of the statements that is not a dimension, as they are for `write`."""
    rows = zskip.read("lake/orders")
    advice = zskip.advise(rows, star, joins=JOINS, files=20)
    assert '"customer.c_region"' in advice.candidates[0].by
    table = zskip.write(rows, "elsewhere", workload=star, joins=JOINS, files=20)
    assert table._index.snapshot.layout is not None
    assert '"customer.c_region"' in table._index.snapshot.layout.columns


@pytest.mark.parametrize("given", ["customer", "customer=lake/customer", "=lake/customer:a=b", "customer=lake:a="])
def test_a_join_that_cannot_be_read_is_named(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["write", "rows.parquet", "t", "--by", "a", "--join", given])
    assert "customer=lake/customer:o_custkey=c_custkey" in capsys.readouterr().err


# --- the advisor proposes sketches for look-ups that no layout serves, and none where a layout does ---


COUNT, FILES = 6000, 20
SEARCHED = pa.table(
    {
        "a": np.random.default_rng(1).integers(0, 1000, COUNT),
        "uid": [f"{number * 2654435761 % 2**32:08x}" for number in range(COUNT)],
        "flag": np.arange(COUNT) % 2,
        "text": [f"name {number % 777} of {number}" for number in range(COUNT)],
    }
)


def test_sketches_are_proposed_where_a_layout_reads_much() -> None:
    reads = {"a = 5": 0.05, "uid = 'x'": 1.0, "uid IN ('x') AND a < 7": 0.5, "flag = 1": 1.0, "text LIKE '%777%'": 1.0}
    found = {
        each.name: each for each in worth_sketching(SEARCHED, list(reads), list(reads.values()), FILES, 10 * COUNT)
    }
    # Every file holds half of all flags, and the layout serves a.
    assert set(found) == {SketchName("uid", "values"), SketchName("text", "substrings")}
    uid = found[SketchName("uid", "values")]
    assert (uid.read, uid.layout_reads, uid.bytes) == (pytest.approx(1 / FILES), 0.75, 3 * 10 * COUNT)
    assert str(uid) == "uid=values: a look-up reads about 5.00% of the files, not 75.00%, takes about 175.8 KiB"


def test_the_advice_names_them_in_its_command() -> None:
    advice = zskip.advise(SEARCHED.slice(0, 500), ["a < 100", f"uid = '{SEARCHED['uid'][7]}'"], files=4)
    assert "uid" in advice.candidates[0].by or "--sketch uid=values" in advice.command
    assert all(str(each) in str(advice) for each in advice.sketches)


def test_values_that_a_sample_hardly_repeats_are_not_taken_for_unique() -> None:
    """A value has 30 rows of 600,000. In a sample of 6,000 most values are single, but 30 rows are in many files."""
    rows = pa.table({"part": np.random.default_rng(3).integers(0, 20_000, 6000)})
    (found,) = worth_sketching(rows, ["part = 5"], [1.0], 100, 600_000)
    assert found.read is not None
    assert 0.2 < found.read < 0.32
    two, other = reads_with_values(rows, ["part IN (5, 6)", "part < 7"], 100, 600_000)
    assert 0.36 < two < 0.54
    assert other == 1.0


def test_today_is_what_plans_read(tmp_path: Path) -> None:
    """A sample lacks the least and greatest values of files: by it, a look-up near the end read nothing already."""
    values = np.random.default_rng(1).permutation(60_000)
    (tmp_path / "raw").mkdir()
    for number in range(6):
        pq.write_table(pa.table({"n": values[number::6]}), tmp_path / "raw" / f"{number}.parquet")
    table = zskip.index(tmp_path / "raw")
    for condition in ("n < 12", "n > 59990", "n = 30000"):
        advice = table.advise([condition], files=6)
        assert advice.today == len(table.plan(condition)) / 6 > 0.3
        assert advice.candidates[0].read == pytest.approx(1 / 6, rel=0.01)
        assert advice.groups[0].verdict == "better"
