"""Every reader gives the types and the rows that ``spark.read.parquet`` gives over the same files, in any session."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from functools import partial, reduce
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
import zskip.spark as zs
from zskip.errors import SchemaError, UnsupportedSql
from zskip.spark.inferred_types import NULL, HiveRule
from zskip.spark.spark_session import setting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
slow = pytest.mark.slow

# What opens a folder, and gives the rows of it that meet a condition.
Reader = Callable[["SparkSession", Path], Callable[[str], "DataFrame"]]

READERS: dict[str, Reader] = {
    "table": lambda spark, folder: zs.table(spark, folder).where,
    "connector": lambda spark, folder: zs.table(spark, folder, connector=True).where,
    "handle": lambda spark, folder: zs.table(spark, zskip.open(folder)).where,
    "read": lambda spark, folder: partial(zs.read, spark, folder),
    "sql": lambda spark, folder: lambda where: zs.sql(spark, f"SELECT * FROM '{folder}' WHERE {where}"),
    "source": lambda spark, folder: spark.read.format("zskip").load(str(folder)).where,
    "to_spark": lambda spark, folder: lambda where: zskip.open(folder).plan(where, dialect="spark").to_spark(spark),
}

SHORT = ("table", "read", "source")  # the readers of the short form
EACH_WAY = {name: READERS[name] for name in ("table", "connector", "read")}  # that plans
SESSIONS = [
    pytest.param(zone, ansi, id=f"{zone} {ansi}", marks=[] if (zone, ansi) == ("Europe/Berlin", "true") else [slow])
    for zone in ("Europe/Berlin", "America/New_York", "UTC")
    for ansi in ("true", "false")
]


@contextmanager
def session(spark: SparkSession, zone: str, ansi: str, **more: str) -> Iterator[None]:
    names = {f"spark.sql.{name.replace('__', '.')}": value for name, value in more.items()}
    # Generating code costs more than these few rows.
    names |= {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    with setting(spark, {"spark.sql.session.timeZone": zone, "spark.sql.ansi.enabled": ansi, **names}):
        zs.register_source(spark)
        yield


def seen(found: Sequence[DataFrame], columns: Sequence[str]) -> list[list[str]]:
    """Of each frame its rows, by one job."""
    names = [f"`{name}`" for name in columns]
    tagged = [each.selectExpr(f"{number} AS place", *names) for number, each in enumerate(found)]
    rows: list[list[str]] = [[] for _ in found]
    for place, *row in reduce(lambda one, other: one.unionAll(other), tagged).collect():
        rows[place].append(str(row))
    return [sorted(each) for each in rows]


def require_same(spark: SparkSession, folder: Path, predicates: Sequence[str], readers: dict[str, Reader]) -> None:
    plain = spark.read.parquet(str(folder))
    conditions = ["id >= 0", *predicates]
    wanted = seen([plain.where(where) for where in conditions], plain.columns)
    for name, reader in readers.items():
        found = list(map(reader(spark, folder), conditions))
        assert {each: found[0].schema[each].dataType for each in found[0].columns} == {
            each: plain.schema[each].dataType for each in plain.columns
        }, name
        for where, one, other in zip(conditions, seen(found, plain.columns), wanted, strict=True):
            assert one == other, (name, where)


# --- files ---


def written_by_spark(spark: SparkSession, folder: Path) -> Path:
    """A folder as Spark writes it by default: INT96, also inside of structs, in the night when clocks go back."""
    times = "timestamp_micros(1729981800000007 + id * 1800000000)"  # from 2024-10-26 22:30 UTC, every half hour
    rows = spark.range(0, 60).selectExpr(
        "id",
        f"if(id % 11 = 3, NULL, {times}) AS ts",
        f"named_struct('t', {times}, 'n', id) AS st",
        "timestamp_ntz'2024-10-27 00:00:00' + make_dt_interval(0, 0, cast(id * 20 AS int)) AS local",
        "CAST(concat('K', id % 7) AS STRING) COLLATE UTF8_LCASE AS name",
        "make_dt_interval(0, CAST(id AS int)) AS lasted",
        "encode(concat('k', id % 7), 'utf-8') AS raw",
    )
    rows.repartitionByRange(4, "id").write.parquet(str(folder))
    return folder


OVER_FILES = [
    "ts < timestamp'2024-10-27 00:00:00'",
    "ts >= timestamp'2024-10-27 02:30:00' AND id < 40",
    "ts = timestamp'2024-10-27 03:00:00.000007'",
    "ts > '2024-10-27'",
    "CAST(ts AS DATE) = DATE '2024-10-27'",
    "hour(ts) = 3",
    "date_trunc('DAY', ts) = timestamp'2024-10-28 00:00:00'",
    "ts IS NULL",
    "ts <=> NULL OR st.t < timestamp'2024-10-27 00:00:00'",
    "st.t BETWEEN timestamp'2024-10-27 00:00:00' AND timestamp'2024-10-27 05:00:00'",
    "unix_micros(ts) > 1730000000000000",
    "local < timestamp_ntz'2024-10-27 01:00:00'",
    "local = ts",
    "name = 'k3'",
    "name IN ('k1', 'K2')",
    "name > 'k5' AND id > 10",
    "lasted > INTERVAL '1 10' DAY TO HOUR",
    "raw = encode('k3', 'utf-8')",
]


@pytest.fixture(scope="module")
def by_spark(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = written_by_spark(spark, tmp_path_factory.mktemp("by spark") / "t")
    zs.index(spark, folder)
    return folder


@pytest.mark.parametrize(("zone", "ansi"), SESSIONS)
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=slow)])
def test_folders_that_spark_wrote(spark: SparkSession, by_spark: Path, zone: str, ansi: str, whole: bool) -> None:
    with session(spark, zone, ansi):
        if whole:
            readers = {name: reader for name, reader in READERS.items() if name != "source"}
            require_same(spark, by_spark, OVER_FILES, readers)
        else:
            require_same(spark, by_spark, OVER_FILES[::4], {name: READERS[name] for name in ("table", "read")})


@pytest.mark.slow
@pytest.mark.parametrize(("zone", "ansi"), SESSIONS)
def test_a_named_format_reads_what_arrow_holds(spark: SparkSession, tmp_path: Path, zone: str, ansi: str) -> None:
    rows = spark.range(0, 60).selectExpr("id", "timestamp_micros(1729981800000007 + id * 1800000000) AS ts")
    rows.repartitionByRange(4, "id").write.parquet(str(tmp_path / "t"))
    zskip.index(tmp_path / "t", deep=True)
    with session(spark, zone, ansi):
        predicates = [where for where in OVER_FILES if not {"st.", "local", "name", "lasted", "raw"} & set_in(where)]
        require_same(spark, tmp_path / "t", predicates[::3], {"source": READERS["source"]})


def set_in(where: str) -> set[str]:
    return {name for name in ("st.", "local", "name", "lasted", "raw") if name in where}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"parquet__inferTimestampNTZ__enabled": "false"}, marks=slow),
        pytest.param({"parquet__binaryAsString": "true"}, marks=slow),
        pytest.param({"parquet__inferTimestampNTZ__enabled": "false", "parquet__binaryAsString": "true"}, id="both"),
    ],
)
@pytest.mark.parametrize("deep", [pytest.param(False, marks=slow), True])
def test_the_sessions_rules_of_inference(
    spark: SparkSession, tmp_path: Path, settings: dict[str, str], deep: bool
) -> None:
    times = pa.array([1_729_981_800_000_007 + n * 1_800_000_000 for n in range(60)]).cast(pa.timestamp("us"))
    rows = pa.table(
        {
            "id": list(range(60)),
            "at": times,
            "st": pa.array([{"t": each} for each in times], pa.struct([("t", pa.timestamp("us"))])),
            "b": pa.array([f"k{n % 7}".encode() for n in range(60)], pa.binary()),
            "j": pa.array(['{"a":1}', "{}"] * 30, pa.json_()),  # a text on Spark
        }
    )
    for number in range(4):
        pq.write_table(rows.slice(15 * number, 15), tmp_path / f"{number}.parquet")
    zskip.index(tmp_path, deep=deep)
    predicates = ["at < '2024-10-27 02:30:00'", "st.t >= '2024-10-27 02:30:00'", "b = 'k3'", "at IS NULL", "id = 17"]
    predicates += ["j = '{}'", "j LIKE '%a%'"]
    with session(spark, "Europe/Berlin", "true", **settings):
        require_same(spark, tmp_path, predicates, {name: READERS[name] for name in SHORT})
        if "parquet__inferTimestampNTZ__enabled" in settings:
            kept = zs.read(spark, tmp_path, "at < timestamp'2024-10-27 04:30:00'").inputFiles()
            assert len(kept) == 1, "the bounds of clocks are those of instants"


def test_the_first_file_tells_and_a_column_that_it_lacks_is_sought(spark: SparkSession, tmp_path: Path) -> None:
    stamp = pa.array([date(2024, 6, 2)]).cast(pa.timestamp("us"))
    pq.write_table(pa.table({"id": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"id": [2], "ts": stamp}), tmp_path / "2.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(pa.table({"id": [3], "ts": stamp}), tmp_path / "3.parquet")
    zskip.index(tmp_path)
    with session(spark, "Europe/Berlin", "true"):
        found = zs.table(spark, tmp_path)
        assert dict(found.dtypes) == {"id": "bigint", "ts": "timestamp"}
        assert [row.id for row in found.where("ts > timestamp'2024-06-02 01:00:00'").sort("id").collect()] == [2, 3]
        assert found.where("ts > timestamp'2024-06-02 02:00:00'").count() == 0


def test_a_column_of_fixed_length_is_compared_without_its_blanks(spark: SparkSession, tmp_path: Path) -> None:
    char = {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}
    rows = spark.createDataFrame([(0, "a    "), (1, "ab   "), (2, "z    ")], "id INT, v STRING")
    rows = rows.select("id", "v", rows.v.alias("c", metadata=char)).repartitionByRange(3, "id")
    rows.write.parquet(str(tmp_path / "t"))
    zskip.index(tmp_path / "t")
    with session(spark, "UTC", "true"):
        require_same(spark, tmp_path / "t", ["c = 'a'", "c IN ('b', 'z')", "c < 'ab'", "v = 'a'"], EACH_WAY)


def test_old_dates_in_a_session_that_converts_them(spark: SparkSession, tmp_path: Path) -> None:
    """Files that do not say in which calendar they are; a table's are in that of today."""
    (tmp_path / "t").mkdir()
    for number, day in enumerate([date(1500, 3, 1), date(1582, 10, 14), date(2000, 1, 1)]):
        moment = pa.array([datetime(day.year, day.month, day.day)], pa.timestamp("us", "UTC"))
        rows = pa.table({"id": [number], "d": [day], "t": moment, "new": [date(2000, 1, 1 + number)]})
        pq.write_table(rows, tmp_path / "t" / f"{number}.parquet")
    zskip.index(tmp_path / "t")
    table = zskip.write(rows, tmp_path / "own", by="id")
    table.append(pq.read_table(tmp_path / "t" / "0.parquet"))
    old = ["d = DATE '1500-02-20'", "d < DATE '1500-03-01'", "d > DATE '1500-03-01'", "t < TIMESTAMP '1500-03-01'"]
    with session(spark, "UTC", "true", parquet__datetimeRebaseModeInRead="LEGACY"):
        require_same(spark, tmp_path / "t", old, EACH_WAY)
        assert len(zs.read(spark, tmp_path / "t", "new = DATE '2000-01-02'").inputFiles()) == 1
        for name, reader in EACH_WAY.items():
            own = reader(spark, tmp_path / "own")
            assert [own(each).count() for each in ["d = DATE '1500-03-01'", *old]] == [1, 0, 0, 1, 0], name


def test_a_plan_of_another_dialect_is_refused_where_it_means_other_rows(spark: SparkSession, by_spark: Path) -> None:
    plan = zskip.open(by_spark).plan("ts < TIMESTAMP '2024-10-27 00:00:00'")
    with pytest.raises(UnsupportedSql, match="ts"):
        plan.to_spark(spark)
    assert zskip.open(by_spark).plan("id < 7").to_spark(spark).count() == 7


@pytest.mark.parametrize("rewrite", ["spark", pytest.param("local", marks=slow)])
@pytest.mark.parametrize(("zone", "ansi"), SESSIONS)
def test_a_rewrite_keeps_types_and_instants(
    spark: SparkSession, by_spark: Path, tmp_path: Path, rewrite: str, zone: str, ansi: str
) -> None:
    plain = spark.read.parquet(str(by_spark)).drop("name", "lasted")
    plain.write.parquet(str(tmp_path / "p"))
    with session(spark, zone, ansi):
        if rewrite == "spark":
            zs.cluster(spark, tmp_path / "p", by=["id"], files=5)
        else:
            zskip.cluster(tmp_path / "p", by=["id"], files=5)
        for path in zskip.open(tmp_path / "p").plan().paths:
            types = {
                leaf.path: json.loads(leaf.logical_type.to_json()).get("isAdjustedToUTC")
                for leaf in (pq.ParquetFile(path).schema.column(n) for n in (1, 2, 4))
            }
            assert types == {"ts": True, "st.t": True, "local": False}
        over = [where for where in OVER_FILES if "name" not in where and "lasted" not in where]
        wanted = seen([plain.where(where) for where in over], plain.columns)
        for name in ("table", "read"):
            found = seen(list(map(READERS[name](spark, tmp_path / "p"), over)), plain.columns)
            assert found == wanted, name


# --- hive folders ---

# For each column of folder names, its names, and predicates that raise in no session.
KINDS: dict[str, tuple[list[str], list[str]]] = {
    "numbers": (["7", "007", "-3"], ["{} = 7", "{} = '7'", "{} * 2 < 10", "{} > '2'", "CAST({} AS STRING) = '7'"]),
    "hours": (["00", "07", "23"], ["{} = 7", "{} BETWEEN 1 AND 8", "length(CAST({} AS STRING)) = 1"]),
    "wide": (["7", "2147483648", "8"], ["{} > 7", "{} IN (8, 9)"]),
    "huge": (["7", "9223372036854775808", "-1"], ["{} > 8", "{} = 7"]),
    "powers": (["1E5", "7", "8"], ["{} = 100000", "{} < 8"]),
    "fractions": (["9.5", "10.5", "1"], ["{} > 9.9", "{} > '10'", "{} = 1", "{} * 2 = 19"]),
    "mixed": (["2147483648", "9.5", "7"], ["{} = '9.5'", "{} > '3'"]),
    "nans": (["NaN", "-1.5", "Infinity"], ["{} > 1", "isnan({})", "{} < 0"]),
    "days": (["2024-01-31", "2024-02-29", NULL], ["{} > DATE '2024-02-01'", "year({}) = 2024", "{} IS NULL"]),
    "times": (
        ["2024-10-27 02:30:00", "2024-03-31 02:30:00", "2024-01-31 10:00:00.5"],
        ["{} > timestamp'2024-03-01 00:00:00'", "{} = timestamp'2024-03-31 03:30:00'", "hour({}) = 2"],
    ),
    "moments": (["2024-01-31", "2024-01-31 10:00:00", NULL], ["{} = timestamp'2024-01-31 00:00:00'", "{} IS NULL"]),
    "texts": (["x y", "7", "a%2Fb"], ["{} = 'a/b'", "{} LIKE 'x%'", "{} > '8'", "{} = '7'"]),
    "escapes": (["%31", "2", "30"], ["{} = '1'", "{} > '2'", "{} = 1"]),
    "others": (["%C3%A9", "é", "x"], ["{} = 'é'", "{} = 'Ã©'", "length({}) = 2"]),
    "dotted.name": (["7", "007", "-3"], ["`dotted.name` = 7", "`dotted.name` = '7'"]),
    "nulls": ([NULL, "7", "8"], ["{} IS NULL", "{} <=> 7 OR id = 3", "{} = 8"]),
    "signs": (["+7", "-0", "8"], ["{} = 7", "{} = 0", "{} <= '8'"]),
    "zeros": (["-0", "7", "8"], ["{} = 0", "{} <= '7'"]),
    "short": (["2024-1-1", "2024-01-02", NULL], ["{} = '2024-1-1'", "{} < '2024-1'", "{} = DATE '2024-01-01'"]),
    "hex": (["0x10", "1", "2"], ["{} = '0x10'", "{} < '1'", "{} = '16'"]),
    "blanks": ([" 1", "2", "3"], ["{} = '1'", "{} = ' 1'", "{} < '1'"]),
    "words": (["7", "NULL", "8"], ["{} = 'NULL'", "{} IS NULL", "{} < '8'"]),
    "zones": (["2024-01-31 10:00:00Z", "2024-01-31T11:00:00", NULL], ["{} > '2024-01-31 1'", "{} LIKE '%Z'"]),
}


@slow
@pytest.mark.parametrize(("zone", "ansi"), SESSIONS)
def test_hive_folders(spark: SparkSession, tmp_path: Path, zone: str, ansi: str) -> None:
    """One folder with all kinds of names, each for a column of its own."""
    folder = partitioned(tmp_path / "t", {name: names for name, (names, _) in KINDS.items()})
    zskip.index(folder)
    predicates = [each.format(name) for name, (_, over) in KINDS.items() for each in over]
    with session(spark, zone, ansi):
        require_same(spark, folder, predicates, READERS)
    with session(spark, zone, ansi, sources__partitionColumnTypeInference__enabled="false"):
        require_same(spark, folder, ["numbers = '7'", "days > '2024'", "nulls IS NULL"], READERS)


def partitioned(folder: Path, columns: dict[str, list[str]]) -> Path:
    """A hive folder of ten rows for each row of names, which are written as they are given."""
    for place, names in enumerate(zip(*columns.values(), strict=True)):
        inner = folder.joinpath(*(f"{column}={name}" for column, name in zip(columns, names, strict=True)))
        inner.mkdir(parents=True)
        pq.write_table(pa.table({"id": list(range(10 * place, 10 * place + 10))}), inner / "0.parquet")
    return folder


def test_files_are_skipped_by_hive_columns_of_any_type(spark: SparkSession, tmp_path: Path) -> None:
    """By Spark itself where its values are others than the index's."""
    folder = partitioned(tmp_path / "t", {"p": ["7", "007", "-3"]})
    zskip.index(folder)
    plan = zs.table(spark, folder).where("p = -3")._jdf.queryExecution().executedPlan().toString()
    assert "PartitionFilters: [isnotnull(p#" in plan
    found = zs.table(spark, folder).where("p = -3")
    assert found.count() == 10


def test_a_new_folder_changes_the_type(spark: SparkSession, tmp_path: Path) -> None:
    folder = partitioned(tmp_path / "t", {"p": ["1", "2"]})
    zskip.index(folder)
    for name in ("7", "2147483648", "9.5", "x"):
        (folder / f"p={name}").mkdir()
        pq.write_table(pa.table({"id": [100]}), folder / f"p={name}" / "0.parquet")
        require_same(spark, folder, ["p > '1'", "p = '7'"], {"table": READERS["table"]})


@pytest.mark.parametrize(("zone", "ansi"), SESSIONS)
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=slow)])
def test_hive_folders_laid_out_in_place_keep_their_types(
    spark: SparkSession, tmp_path: Path, zone: str, ansi: str, whole: bool
) -> None:
    kinds = ("numbers", "fractions", "times", "texts", "short", "escapes")
    if whole:
        # "%C3%A9" and "é" are one value to DuckDB, which lays the rows out, and two to Spark; the word NULL is refused.
        kinds = tuple(kind for kind in KINDS if kind not in ("others", "words"))
    names = {kind: KINDS[kind][0] for kind in kinds}
    folder = partitioned(tmp_path / "t", names)
    zskip.cluster(folder, by="id", files=4)
    predicates = [each.format(kind) for kind in names for each in KINDS[kind][1][: None if whole else 2]]
    with session(spark, zone, ansi):
        # The old files are still there, for programs that list the folder.
        readers = READERS if whole else {name: READERS[name] for name in ("table", "source")}
        require_same(spark, folder, predicates, readers)


def test_names_that_spark_reads_otherwise_are_laid_out_without_it(spark: SparkSession, tmp_path: Path) -> None:
    odd = {"hex": ["0x10", "2", "-0"], "short": ["2024-1-1", "2024-01-02", NULL], "escaped": ["%C3%A9", "x", "y"]}
    for kind, names in odd.items():
        with pytest.raises(SchemaError, match=f"({'|'.join(names)}).* has another value on Spark than in DuckDB"):
            zs.cluster(spark, partitioned(tmp_path / kind, {"p": names}), by="id")
    folder = partitioned(tmp_path / "t", odd)
    zskip.cluster(folder, by="id")
    predicates = ["hex = '0x10'", "short < '2024-1-2'", "escaped = 'é'"]
    require_same(spark, folder, predicates, {"table": READERS["table"]})
    counts = zskip.sql(f"SELECT count(hex), count(short), count(escaped) FROM '{folder}'").fetchall()
    assert counts == [(30, 20, 30)]


def test_a_hive_column_of_another_name_on_spark_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """pyarrow writes names so."""
    folder = partitioned(tmp_path / "t", {"gr%C3%B6%C3%9Fe": ["1", "2", "3"]})
    with pytest.raises(SchemaError, match='"größe" has another name on Spark'):
        zs.cluster(spark, folder, by="id")
    for name in READERS.keys() - {"source"}:  # whose errors Spark wraps
        with pytest.raises(SchemaError, match='"größe" has another name on Spark'):
            READERS[name](spark, folder)("`größe` = 2").collect()


def test_overflow_is_that_of_sparks_type(spark: SparkSession, tmp_path: Path) -> None:
    folder = partitioned(tmp_path / "t", {"p": ["1", "2", "-3", "2147483647", NULL]})
    zskip.index(folder)
    assert len(zs.read(spark, folder, where="p = 2").inputFiles()) == 1
    with session(spark, "UTC", "false"):
        predicates = ["p + 2147483647 < 0", "p + 1 < 0", "p * 2 = -2", "-p > 1", "p = 2147483648L", "p IS NULL"]
        require_same(spark, folder, predicates, {name: READERS[name] for name in SHORT})


def test_a_plan_of_another_dialect_keeps_its_meaning(spark: SparkSession, tmp_path: Path) -> None:
    folder = partitioned(tmp_path / "t", {"p": ["7", "007", "8"]})
    table = zskip.index(folder)
    found = table.plan("p = '7'").to_spark(spark)  # texts in DuckDB, integers on Spark
    assert dict(found.dtypes)["p"] == "int"
    assert sorted(row.id for row in found.collect()) == sorted(table.plan("p = '7'").to_arrow()["id"].to_pylist())


RULE = HiveRule(infers=True, clock="timestamp", has_time=True)


def inferred_by_spark(spark: SparkSession, folder: Path, columns: Sequence[Sequence[str]]) -> list[str]:
    """Spark's own types of columns of hive values, from files that exist only in a manifest."""
    (folder / "_spark_metadata").mkdir(parents=True)
    lines = ["v1"]
    for row in range(len(columns[0])):
        names = (quote(f"p{place}={quote(texts[row], safe=' +')}") for place, texts in enumerate(columns))
        line = {"path": f"{folder.as_uri()}/{'/'.join(names)}/{row}.parquet", "size": 1, "isDir": False}
        same = {"modificationTime": 0, "blockReplication": 1, "blockSize": 1, "action": "add"}
        lines.append(json.dumps(line | same))
    (folder / "_spark_metadata" / "0").write_text("\n".join(lines))
    return [field.dataType.simpleString() for field in spark.read.schema("x int").parquet(str(folder)).schema][1:]


PIECES = [
    *"0123456789", "7", "00", "-", "+", ".", "e5", "E", "d", " ", ":", "2024-02-29", "10:00:00", "-01-31", "NaN",
    "0x1p3",
]  # fmt: skip
# fmt: off
SINGLE = [
    "7", "007", "+7", "-0", "2147483648", "9223372036854775808", "99999999999999999999999999999999999999", "1E5",
    "1e5", "1E-5", "9.5", "9.", ".5", "NaN", "Infinity", "-Infinity", "inf", "1d", "1f", "0x1p3", "1_000", "1L",
    "true", "NULL", "2024-01-31", "2024-1-1", "2024-02-30", "2024", "2024-01", "-2024-02-29", "-2023-02-29",
    "0000-01-01", "0000-02-29", "10000-01-01", "2024-01-31T00:00:00", "12:00", "12:00:00", "24:00:00", "12:00:00.5",
    "12:00:00.1234567", "1E37", "1E38", "0E5", "0e50", "12E37", "-1E38", "1.0", "100.", "5E0", "1e+5", "1E400",
]
# fmt: on
SPACED = ["2024-01-31 00:00:00", "2024-01-31 23:59:59.123456", "2024-01-31 24:00:00", "2024-01-31 00:00", "1 ", " 1.5"]


@pytest.mark.parametrize("more", [0, pytest.param(3000, marks=slow)])
def test_the_rule_of_hive_types_is_sparks(spark: SparkSession, tmp_path: Path, more: int) -> None:
    dice = Random(7 + more)
    texts = [*SINGLE, *SPACED, *("".join(dice.choices(PIECES, k=dice.randint(1, 4))) for _ in range(60 + more))]
    single = [[text] for text in texts]
    pairs = [dice.choices([*SINGLE, *SPACED, NULL], k=3) for _ in range(60 + more // 10)]
    for number, columns in enumerate([single[start : start + 400] for start in range(0, len(single), 400)] + [pairs]):
        known = inferred_by_spark(spark, tmp_path / str(number), columns)
        for names, wanted in zip(columns, known, strict=True):
            assert RULE.type_of(names).simpleString() == wanted, names
