"""The bench of a user's own queries: figures that fit together, and a report for people and for machines."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import zskip
import zskip.spark
from tests.tables import build_table
from zskip import bench as benching
from zskip.bench import bench
from zskip.binder import bind
from zskip.errors import InvalidOption, SqlSyntaxError, ZskipError


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    numbers = np.random.default_rng(3).permutation(4000)
    rows = pa.table({"a": numbers // 4, "b": numbers % 50})
    index = build_table(tmp_path_factory.mktemp("bench") / "conn", rows, by="a", files=20)
    return SimpleNamespace(_index=index, uri=index.storage.uri, version=1)


def test_predicates_and_statements_are_timed_both_ways(table: Any) -> None:
    report = bench(
        table, ["a = 7", f"SELECT count(*) FROM '{table.uri}' WHERE b = 3", "SELECT a FROM conn WHERE a < 5"], runs=2
    )
    assert [one.files for one in report.timings] == [(1, 20), (20, 20), (1, 20)]
    assert [one.result_rows for one in report.timings] == [4, 1, 20]
    assert all(min(one.plan_seconds, one.zskip_seconds, one.plain_seconds) > 0 for one in report.timings)
    assert [one.bytes.whole for one in report.timings] == [table._index.snapshot.totals.bytes] * 3
    assert 0 < (report.timings[0].bytes.part or 0) < (report.timings[1].bytes.part or 0)
    assert "a = 7" in str(report)
    assert "bytes" in str(report)
    assert json.loads(json.dumps(dataclasses.asdict(report)))["timings"][0]["files"] == [1, 20]


def test_the_only_name_in_a_statement_is_the_table(table: Any) -> None:
    queries = [
        "SELECT * FROM lineitem WHERE a = 7",
        "WITH few AS (FROM flows WHERE a < 5) SELECT count(*) FROM few",
        "SELECT count(*) FROM x JOIN x y USING (a) WHERE a = 7",
    ]
    report = bench(table, queries, runs=1)
    assert [one.files for one in report.timings] == [(1, 20), (1, 20), (2, 40)]  # USING narrows both sides
    assert "medians of 1 run\n" in str(report)
    with pytest.raises(InvalidOption, match="reads no zskip table"):
        bench(table, ["SELECT * FROM one JOIN two USING (a)"], runs=1)
    with pytest.raises(InvalidOption, match="reads no zskip table"):
        bench(table, ['SELECT * FROM "some folder"'], runs=1)


def test_a_bench_without_a_query_or_a_table_says_so(table: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption):
        bench(table, [])
    with pytest.raises(InvalidOption, match="reads no zskip table"):
        bench(table, ["SELECT 1"])


def test_a_statement_that_does_not_parse_is_underlined(table: Any) -> None:
    with pytest.raises(SqlSyntaxError) as raised:
        bench(table, ["SELECT FROM WHERE t"])
    assert str(raised.value).split("\n") == [
        "The statement does not parse: Expected table name here.",
        "  SELECT FROM WHERE t",
        "              ^^^^^",
    ]


def test_ways_that_disagree_are_an_error(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = benching.rewrite

    def lossy(statement: str, con: Any, *, prune: bool = True, **options: Any) -> Any:
        ready = honest(statement, con, prune=prune, **options)
        return dataclasses.replace(ready, sql=f"FROM ({ready.sql}) LIMIT 1") if prune else ready

    monkeypatch.setattr(benching, "rewrite", lossy)
    with pytest.raises(ZskipError, match="gives 1 row through zskip, but 4 over all files"):
        bench(table, ["a = 7"], runs=1)


def test_the_gain_is_measured_against_the_table_as_it_was(tmp_path: Path) -> None:
    rows = pa.table({"a": np.random.default_rng(5).permutation(4000), "b": np.arange(4000)})
    old = zskip.write(rows, tmp_path / "old", by="a", files=20)
    new = zskip.write(rows, tmp_path / "new", by="b", files=20)
    queries = ["SELECT count(*) FROM new WHERE b = 7", "a = 7"]
    report = bench(new, queries, runs=1, before=old)
    assert report.before is not None
    assert (report.before.table, report.before.version) == (old.uri, 1)
    (b_then, a_then), (b_now, a_now) = report.before.timings, report.timings
    assert b_now.bytes.part < b_then.bytes.part / 5
    assert a_now.bytes.part > a_then.bytes.part * 5
    lines = str(report).splitlines()
    assert "READS MORE" in lines[-3]
    assert "a = 7" in lines[-3]
    assert "READS MORE" not in lines[-2]
    assert lines[-1].endswith("all 2; 1 of them read more")
    assert f"{b_then.bytes.part + a_then.bytes.part:>13,}" in lines[-1]
    new.delete("b = 7")
    again = bench(new, ["b < 10"], runs=1, before=zskip.open(tmp_path / "new", version=1))
    assert "(10 rows, then 9)" in str(again)


# --- the bench on Spark: both ways are timed, and compared ---


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_predicates_and_statements_are_timed_on_spark_too(table: Any) -> None:
    queries = [
        "a = 7",
        f"FROM '{table.uri}' WHERE a < 5",
        'WITH few AS (SELECT b, sum(a) AS "the {sum}" FROM conn WHERE conn.a < 50 GROUP BY b) SELECT * FROM few',
    ]
    report = bench(table, queries, runs=1, spark=True)
    for one in report.timings:
        assert min(one.spark_zskip_seconds or 0, one.spark_plain_seconds or 0) > 0
    assert str(report).count("Spark") == len(queries)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_ways_that_disagree_on_spark_are_an_error(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benching, "bind", lambda text, *given, **options: bind(f"{text} AND b < 0", *given, **options))
    with pytest.raises(ZskipError, match="gives 0 rows through zskip on Spark, but 4 over all files"):
        bench(table, ["a = 7"], runs=1, spark=True)
    honest = zskip.spark.table
    monkeypatch.setattr(zskip.spark, "table", lambda *given: honest(*given).where("a <> 3"))
    with pytest.raises(ZskipError, match="gives 16 rows through zskip on Spark, but 20 over all files"):
        bench(table, ["SELECT b FROM conn WHERE a < 5"], runs=1, spark=True)
