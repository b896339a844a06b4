"""The queries of real logs become a workload: those on the table, by their conditions, with a count of the others."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
import zskip.spark
from zskip.advisor.query_logs.spark_event_log import condition_of
from zskip.binder.workload_sql import table_query
from zskip.cli.main import main
from zskip.core.schema import Schema
from zskip.errors import InvalidOption, UnreadableFile
from zskip.writer.workload_input import queries_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = pa.table({"a": range(1000), "b": [f"x{number}" for number in range(1000)]})


@pytest.fixture
def table(tmp_path: Path) -> zskip.Table:
    return zskip.write(ROWS, tmp_path / "lake" / "conn", by="a", files=10)


def logged(table: zskip.Table, log: Path, *more: str) -> None:
    """Run statements on a connection that logs them. FILES in ``more`` are those of the table."""
    path = table._index.storage.local
    with duckdb.connect() as con:
        con.execute("CREATE TABLE other AS SELECT 1 AS a, 2 AS z")
        con.execute(f"CREATE VIEW flows AS FROM '{path}/*.parquet'")
        con.execute(f"CALL enable_logging('QueryLog', storage = 'file', storage_path = '{log}')")
        zskip.sql(f"SELECT count(*) FROM '{path}' WHERE a < 50 AND b LIKE 'x4%'", con).fetchall()
        con.execute(f"SELECT * FROM read_parquet('{path}/*.parquet')\nWHERE a = 7 -- one, \"two\"").fetchall()
        con.execute(f"FROM '{path}/*.parquet' WHERE b = 'x;\"8'").fetchall()
        con.execute("SELECT f.b FROM flows f JOIN other o USING (a) WHERE f.a BETWEEN 3 AND 9 AND o.z = 2").fetchall()
        con.execute("SELECT b FROM flows WHERE a = $1", [5]).fetchall()
        con.execute("SELECT max(a) FROM flows").fetchall()
        con.execute(f"WITH w AS (SELECT * FROM '{path}/*.parquet' WHERE a > 3) SELECT b FROM w WHERE a < 9").fetchall()
        con.execute("SELECT z FROM other WHERE a = 1").fetchall()
        con.execute("CREATE TABLE more AS SELECT 1 AS a").fetchall()
        for statement in more:
            con.execute(statement.replace("FILES", f"'{path}/*.parquet'")).fetchall()


@pytest.mark.parametrize("form", ["folder", "one.csv"])
def test_duckdbs_own_log_is_a_workload(form: str, table: zskip.Table, tmp_path: Path) -> None:
    log = tmp_path / form
    logged(
        table,
        log,
        "CREATE OR REPLACE TEMP TABLE more AS SELECT * FROM FILES WHERE a = 11",
        "INSERT INTO more SELECT * FROM FILES WHERE a = 12",
        f"COPY (SELECT * FROM FILES WHERE a = 13) TO '{tmp_path / 'copy.csv'}'",
        "EXPLAIN ANALYZE SELECT * FROM FILES WHERE a = 14",
        "SELECT * FROM FILES x JOIN FILES y USING (a) WHERE y.b = 'x15'",  # two columns have the name b
        "EXPLAIN SELECT * FROM FILES WHERE a = 16",
    )
    found = table.logged_queries(duckdb_log=log, log_name="Flows")
    assert found.queries == (
        'SELECT "a", "b" FROM "conn" WHERE a < 50 AND b LIKE \'x4%\'',
        'SELECT * FROM "conn" WHERE a = 7',
        'SELECT * FROM "conn" WHERE b = \'x;"8\'',
        'SELECT "a", "b" FROM "conn" WHERE a BETWEEN 3 AND 9',
        'SELECT "a", "b" FROM "conn" WHERE a > 3 AND a < 9',
        *(f'SELECT * FROM "conn" WHERE a = {number}' for number in (11, 12, 13, 14)),
        "SELECT * FROM \"conn\" WHERE b = 'x15'",
    )
    assert queries_of(found) == found.queries  # what `advise`, `write` and `bench` take
    assert found.left_out["has parameters, whose values the log does not hold"] == 1
    assert found.left_out["has no condition on its columns"] == 1
    assert found.left_out["reads other tables"] >= 1
    assert "10 queries of the log are on this table" in str(found)
    assert len(table.logged_queries(duckdb_log=log).queries) == 9
    with pytest.raises(InvalidOption, match=r"It reads .*flows.*log_name="):
        zskip.write(ROWS, tmp_path / "elsewhere", by="a").logged_queries(duckdb_log=log)


@pytest.mark.slow
def test_the_command_advises_by_a_log_and_saves_its_queries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = zskip.write(ROWS, tmp_path / "conn", by="b", files=10)  # most of the queries are on "a"
    log, saved = tmp_path / "log", tmp_path / "queries.sql"
    logged(table, log)
    where = ["advise", str(table._index.storage.local), "--from-duckdb-log", str(log)]
    assert main([*where, "--log-name", "flows", "--save-workload", str(saved)]) == 0
    printed = capsys.readouterr().out
    assert "5 queries of the log are on this table" in printed
    assert f"--workload {saved}" in printed
    assert main(["bench", str(table._index.storage.local), "--queries", str(saved), "--runs", "1"]) == 0
    capsys.readouterr()
    assert main([*where, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["queries"]) == 4
    assert main(["advise", str(table._index.storage.local), "--workload", str(saved), "--log-name", "x"]) == 2


@pytest.mark.parametrize("content", [None, "", "a,b\n1,2\n"])
def test_what_is_no_log_is_refused(content: str | None, table: zskip.Table, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    if content is not None:
        log.write_text(content, encoding="utf-8")
    with pytest.raises(UnreadableFile, match="enable_logging") as refused:
        table.logged_queries(duckdb_log=log)
    assert "Binder" not in str(refused.value)
    with pytest.raises(InvalidOption, match="one log"):
        table.logged_queries()
    with pytest.raises(UnreadableFile, match="event log"):
        table.logged_queries(spark_event_log=log if content else tmp_path / "nowhere")


def test_a_log_that_is_cut_off_is_read_up_to_there(table: zskip.Table, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    logged(table, log)
    whole, content = table.logged_queries(duckdb_log=log), log.read_bytes()
    lines = content.rstrip(b"\n").rpartition(b"\n")
    log.write_bytes(lines[0] + b"\n" + lines[2][:25])
    cut = table.logged_queries(duckdb_log=log)
    assert whole.queries[: len(cut)] == cut.queries
    assert len(cut) >= len(whole) - 1
    assert cut.left_out["is cut off or unreadable in the log"] == 1
    lines_of_pattern = content.count(b"LIKE")
    assert lines_of_pattern
    log.write_bytes(content.replace(b"LIKE", b"LIKE\xff"))
    garbled = table.logged_queries(duckdb_log=log)
    assert garbled.queries == whole.queries[1:]
    assert garbled.left_out["is cut off or unreadable in the log"] == lines_of_pattern


def test_a_workload_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "asked.sql").write_text("\ufeffa = 5;\nSELECT * FROM t WHERE a < 3", encoding="utf-8")
    assert queries_of(tmp_path / "asked.sql") == ("a = 5", "SELECT * FROM t WHERE a < 3")


def test_an_event_log_that_is_cut_off_is_read_up_to_there(table: zskip.Table, tmp_path: Path) -> None:
    scan = {
        "Location": f"InMemoryFileIndex(1 paths)[file:{table._index.storage.local}]",
        "PushedFilters": "[EqualTo(a,5)]",
    }
    event = {
        "Event": "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart",
        "sparkPlanInfo": {"metadata": scan, "children": []},
    }
    line = json.dumps(event) + "\n"
    for name, write in [
        ("log", Path.write_bytes),
        ("log.gz", lambda path, data: path.write_bytes(gzip.compress(data))),
    ]:
        odd: list[Any] = [None, [], {"metadata": 5, "children": 5}, {"metadata": {"Location": 5}, "children": [5]}]
        others = [{**event, "sparkPlanInfo": plan} for plan in odd]
        others.append({"Event": "SparkListenerEnvironmentUpdate", "System Properties": None})
        write(tmp_path / name, ("\ufeff" + line * 3 + "\n".join(map(json.dumps, others)) + "\n").encode())
        assert len(table.logged_queries(spark_event_log=tmp_path / name)) == 3
        write(tmp_path / name, (line * 3 + line[:90]).encode())
        cut = table.logged_queries(spark_event_log=tmp_path / name)
        assert (len(cut), dict(cut.left_out)) == (3, {"is cut off in the log": 1})
        for broken in ("[1, 2]\n", line[:90] + "\n"):
            write(tmp_path / name, (line + broken + line).encode())
            with pytest.raises(UnreadableFile, match="line 2"):
                table.logged_queries(spark_event_log=tmp_path / name)
    gathered = gzip.compress(b"".join(line.replace("a,5", f"a,{number}").encode() for number in range(2000)))
    (tmp_path / "log.gz").write_bytes(gathered[: len(gathered) // 2])
    half = table.logged_queries(spark_event_log=tmp_path / "log.gz")
    assert 100 < len(half) < 1900
    assert half.left_out == {"is cut off in the log": 1}


TYPED = Schema(
    pa.schema(
        [
            ("a", pa.int64()),
            ("b", pa.string()),
            ("d", pa.date32()),
            ("t", pa.timestamp("us", "UTC")),
            ("n", pa.timestamp("us")),
            ("m", pa.decimal128(12, 2)),
            ("g", pa.bool_()),
            ("s", pa.struct([("x", pa.int64())])),
            ("raw", pa.binary()),
        ]
    )
)


@pytest.mark.parametrize(
    ("filters", "condition"),
    [
        ("[IsNotNull(a), EqualTo(a,5)]", '"a" = 5'),
        ("[IsNotNull(a)]", None),
        ("[]", None),
        ("[IsNotNull(b), EqualTo(b,x, 7))]", "\"b\" = 'x, 7)'"),
        ("[EqualTo(b,it's), IsNotNull(a)]", "\"b\" = 'it''s'"),
        ("[In(a, [1,2,3])]", '"a" IN (1, 2, 3)'),
        ("[Or(In(a, [1,2]),StringStartsWith(b,x, 5))]", '(("a" IN (1, 2)) OR (starts_with("b", \'x, 5\')))'),
        ("[Not(EqualTo(a,3)), LessThan(m,3.50)]", 'NOT ("a" = 3) AND "m" < 3.50'),
        (
            "[Or(And(GreaterThan(a,1),LessThan(a,3)),And(EqualTo(g,true),IsNull(b)))]",
            '(((("a" > 1) AND ("a" < 3))) OR ((("g" = true) AND ("b" IS NULL))))',
        ),
        ("[GreaterThanOrEqual(d,2020-02-01)]", "\"d\" >= DATE '2020-02-01'"),
        ("[LessThan(t,2020-01-02 03:04:05.5)]", "\"t\" < TIMESTAMPTZ '2020-01-02 02:04:05.500000+00:00'"),
        ("[LessThan(t,2020-01-02T03:04:05.5Z)]", "\"t\" < TIMESTAMPTZ '2020-01-02 03:04:05.500000+00:00'"),
        ("[LessThan(n,2020-01-02T03:04:05)]", "\"n\" < TIMESTAMP '2020-01-02 03:04:05'"),
        ("[EqualTo(s.x,7), EqualTo(`s`.`x`,8)]", '"s"."x" = 7 AND "s"."x" = 8'),
        ("[EqualTo(raw,[B@1f), EqualTo(gone,1), EqualTo(a,1)]", '"a" = 1'),
        ("[EqualNullSafe(a,null), StringContains(b,q)]", '"a" IS NOT DISTINCT FROM NULL AND contains("b", \'q\')'),
    ],
)
def test_pushed_filters_are_read(filters: str, condition: str | None) -> None:
    assert condition_of(filters, TYPED, "Europe/Paris") == condition


# --- the scans of a real event log of Spark become a workload: plans by it are those by the queries that ran ---


SCANNED = pa.table(
    {
        "a": range(400),
        "b": [f"x, {number})" for number in range(400)],
        "d": [dt.date(2020, 1, 1) + dt.timedelta(number) for number in range(400)],
        "t": pa.array([dt.datetime(2020, 1, 1) + dt.timedelta(hours=n) for n in range(400)], pa.timestamp("us", "UTC")),
        "m": pa.array([Decimal(number) / 100 for number in range(400)], pa.decimal128(12, 2)),
        "s": [{"x": number} for number in range(400)],
    }
)
QUERIES = [
    "a = 5",
    "b = 'x, 7)'",
    "d >= DATE '2020-02-01' AND d < DATE '2020-03-01'",
    "t < TIMESTAMP '2020-01-02 03:04:05.5'",
    "m > 3.5 OR a <= 7",
    "a IN (1, 2, 399) OR b LIKE 'x, 5%'",
    "NOT (a < 30)",
    "s.x = 7",
]


@contextmanager
def event_log(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Spark's own writer of event logs, on the session that is there."""
    context = spark.sparkContext._jsc.sc()
    jvm = spark._jvm
    assert jvm is not None
    nothing = jvm.scala.Option.empty()
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    folder.mkdir()
    address = jvm.java.net.URI(folder.as_uri())
    writer = jvm.org.apache.spark.scheduler.EventLoggingListener("app-1", nothing, address, context.conf(), hadoop)
    writer.start()
    context.addSparkListener(writer)
    try:
        yield
    finally:
        context.listenerBus().waitUntilEmpty()
        context.removeSparkListener(writer)
        writer.stop()


@pytest.mark.spark
def test_scans_plan_as_the_queries_that_ran(spark: SparkSession, tmp_path: Path) -> None:
    table = zskip.write(SCANNED, tmp_path / "conn", by=["a"], files=8)
    (tmp_path / "other").mkdir()
    pq.write_table(SCANNED, tmp_path / "other" / "0.parquet")
    with event_log(spark, tmp_path / "log"):
        plain = spark.read.parquet(str(tmp_path / "conn"))
        pruned = zskip.spark.table(spark, str(tmp_path / "conn"))
        for frame in (plain, pruned):
            for query in QUERIES:
                frame.where(query).select("a", "b").collect()
        plain.select("a").collect()
        spark.read.parquet(str(tmp_path / "other")).where("a = 3").collect()
    found = table.logged_queries(spark_event_log=tmp_path / "log")
    assert len(found.queries) == 2 * len(QUERIES)
    assert found.left_out == {"has no condition on its columns": 1, "reads other tables": 1}
    for text, query in zip(found.queries, 2 * QUERIES, strict=True):
        read = table_query(text, table._index.snapshot.schema)
        assert read is not None
        assert table.plan(read.condition).paths == table.plan(query).paths, query
        assert {"a", "b"} <= (read.columns or set())
        assert "m" not in (read.columns or ()) or "m" in query
    assert table.advise(found.queries).groups
