"""Bad input: a clear error that names the thing, and nothing left behind."""

from __future__ import annotations

import datetime
import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlglot

import zskip
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.errors import (
    CorruptFile,
    ForeignTable,
    IncomparableTypes,
    InvalidOption,
    NoParquet,
    NotOrderable,
    SchemaError,
    SchemaMismatch,
    SqlSyntaxError,
    TableExists,
    TableNotFound,
    UnknownColumn,
    UnknownParameter,
    UnsafePath,
    UnsupportedSql,
)

ROWS = pa.table({"src_ip": ["10.0.0.1", "10.0.0.2"] * 500, "n": list(range(1000)), "tags": [["a"]] * 1000})


def nothing_left(path: Path) -> bool:
    return not path.exists() or not any(file.is_file() for file in path.rglob("*"))


def laid_out(folder: Path, by: Any = "n", rows: pa.Table = ROWS, **options: Any) -> zskip.Table:
    return zskip.write(rows, folder / "t", by=by, **options)


def made(folder: Path, rows: pa.Table = ROWS) -> zskip.Table:
    """A table that is not at the place where nothing may be left."""
    return zskip.write(rows, folder / "made", by=rows.column_names[0])


def placed(path: Path, rows: pa.Table | bytes = ROWS) -> Path:
    """The folder of a new file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(rows) if isinstance(rows, bytes) else pq.write_table(rows, path)
    return path.parent


def columns(*names: str) -> pa.Table:
    return pa.table([[1]] * len(names), names=list(names))


def iceberg(folder: Path, metadata: bytes) -> Path:
    placed(folder / "raw" / "x.parquet")
    return placed(folder / "raw" / "metadata" / "v1.metadata.json", metadata).parent


def not_utf8(folder: Path) -> str:
    """The path of a file whose name is not UTF-8."""
    path = os.fsdecode(os.fsencode(placed(folder / "raw" / "a.parquet")) + b"/\xff.parquet")
    os.rename(folder / "raw" / "a.parquet", path)
    return path


def bound(value: object, dialect: str) -> object:
    return bind("a = ?", Schema(pa.schema({"a": pa.int64()})), params=[value], dialect=dialect)


NOT_UTF8 = pa.Array.from_buffers(
    pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\3\0\0\0"), pa.py_buffer(b"\xed\xa0\x80")]
)
SURROGATES = pa.table({"p": NOT_UTF8, "a": pa.array([1])})
AHEAD, BEHIND = (timezone(timedelta(hours=hours)) for hours in (5, -5))
Errors = type[Exception] | tuple[type[Exception], ...]

# What is done in an empty folder, the error, and what it says.
CASES: list[tuple[Callable[[Path], object], Errors, str]] = [
    # columns
    (lambda f: laid_out(f, "src_pi"), UnknownColumn, 'Did you mean "src_ip"'),
    (lambda f: made(f).plan("n > 5 AND src_pi = 'x'"), UnknownColumn, r"\n  n > 5 AND src_pi = 'x'\n {12}\^{6}$"),
    (lambda f: laid_out(f, "tags"), NotOrderable, "tags"),
    (lambda f: laid_out(f, "a", columns("a", "A")), SchemaError, '"a" and "A"'),
    (lambda f: laid_out(f, "a", columns("a", "a")), SchemaError, '"a" and "a"'),
    (lambda f: laid_out(f, "a", columns("a", "")), SchemaError, "has no name"),
    (lambda f: zskip.index(placed(f / "raw" / "a.parquet", columns("", "x"))), SchemaError, "no name"),
    (lambda f: zskip.index(placed(f / "day=1" / "a.parquet", columns("day")).parent), SchemaError, "hold no column"),
    # sources and folders
    (lambda f: zskip.index(placed(f / "empty" / "x", b"")), NoParquet, "empty"),
    (lambda f: zskip.write(str(placed(f / "empty" / "x", b"")), f / "t", by="n"), NoParquet, ""),
    (lambda f: zskip.open(placed(f / "empty" / "x", b"")), TableNotFound, ""),
    (lambda f: zskip.write(not_utf8(f), f / "t", by="n"), UnsafePath, r"xff\.parquet.*not UTF-8"),
    # an error of pydantic's, once
    *(
        (lambda f, do=do, text=text: do(iceberg(f, text)), error, message)  # type: ignore[misc]
        for text in (b"{}", b"{broken", b"[]", b'{"format-version": 2}', b'{"format-version": "x"}', b"", b"\xff\xfe")
        for do, error, message in (
            (zskip.open, (CorruptFile, TableNotFound), r"v1\.metadata\.json"),
            (lambda at: zskip.write(at, at.parent / "t", by="a"), (CorruptFile, TableNotFound), r"v1\.metadata\.json"),
            (zskip.index, ForeignTable, ""),
        )
    ),
    # values
    *(
        (
            lambda f, value=value: laid_out(f, "a", pa.table({"p": [value], "a": [1]}), partition_by="p"),  # type: ignore[misc]
            SchemaMismatch,
            'the column "p" is too long for a folder name',
        )
        for value in ("x" * 300, "é" * 130, "/" * 100)
    ),
    (lambda f: laid_out(f, "a", SURROGATES, partition_by="p"), SchemaMismatch, "not UTF-8"),
    (lambda f: laid_out(f, "a", SURROGATES), SchemaMismatch, "not UTF-8"),
    (lambda f: laid_out(f, "p", SURROGATES), SchemaMismatch, "not UTF-8"),
    (lambda f: laid_out(f, ["a", "p"], SURROGATES, layout="zorder"), SchemaMismatch, "not UTF-8"),
    # a folder that was indexed, and that no engine could read
    *(
        (
            lambda f, name=name: zskip.index(placed(f / name / "x.parquet").parent),  # type: ignore[misc]
            SchemaMismatch,
            r'folder name ".*%.*" is not UTF-8',
        )
        for name in ("p=%ED%A0%80", "%FF=1")
    ),
    # parameters: a MemoryError and an OverflowError, once
    *(
        (lambda f, value=value: made(f).plan("src_ip IN $v", params={"v": value}), UnknownParameter, "surrogate")  # type: ignore[misc]
        for value in (["\ud800"], ["\ud800"] * 60, ["x", "\udfff"] * 60)
    ),
    (lambda f: made(f).plan("src_ip = $v", params={"v": "\ud800"}), UnknownParameter, "surrogate"),
    *(
        (lambda f, value=value, dialect=dialect: bound(value, dialect), UnknownParameter, message)  # type: ignore[misc]
        for dialect in ("duckdb", "spark")
        for value, message in (
            (Decimal("1e999999999"), "has more than 38 digits"),
            (Decimal("1e-999999999"), "has more than 38 digits"),
            (datetime.datetime.max.replace(tzinfo=BEHIND), "In UTC, the year"),
            (datetime.datetime.min.replace(tzinfo=AHEAD), "In UTC, the year"),
        )
    ),
    # conditions
    (lambda f: made(f).plan("n > 5 AND AND n < 7"), SqlSyntaxError, r"\^"),
    *(
        (
            lambda f, verb=verb, sql=sql: getattr(made(f), verb)(sql),  # type: ignore[misc]
            IncomparableTypes,
            rf"TRUE or FALSE, and this is VARCHAR[^\n]*\n  {re.escape(sql)}\n {{{2 + at}}}\^{{{width}}}$",
        )
        for verb in ("plan", "delete")
        for sql, at, width in (
            ("src_ip", 0, 6), ("n > 5 AND src_ip", 10, 6), ("NOT 'yes'", 4, 5), ("(src_ip) OR n = 1", 1, 6),
        )
    ),
    # options
    *(
        (lambda f, options=options: laid_out(f, **options), InvalidOption, "")  # type: ignore[misc]
        for options in (
            {"files": 0}, {"rows_per_file": 0}, {"file_size": "0MB"}, {"row_group_rows": 0}, {"layout": "spiral"},
            {"compression": "zip"}, {"files": 3, "rows_per_file": 3}, {"mode": "replace"}, {"weights": {"n": -1.0}},
            {"memory_limit": 1},
        )
    ),
    *(
        (lambda f, rows=rows: made(f).head(rows), InvalidOption, "rows= is a number of rows, not")  # type: ignore[misc]
        for rows in ("5", -1, 1.5)
    ),
    (lambda f: zskip.sql("SELECT * FROM t", tables=f), InvalidOption, "tables= is a mapping of names to tables"),  # type: ignore[arg-type]
    (lambda f: made(f).verify(predicates=2), InvalidOption, "random= is the number"),  # type: ignore[arg-type]
    (lambda f: made(f).optimize(zz=1), InvalidOption, "There are: full, dry_run, max_bytes, session, memory_limit"),  # type: ignore[call-arg]
]  # fmt: skip


@pytest.mark.parametrize(("do", "error", "message"), CASES)
def test_bad_input_is_refused_and_leaves_nothing(
    do: Callable[[Path], object], error: Errors, message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message or None):
        do(tmp_path)
    assert nothing_left(tmp_path / "t")
    assert not [path for path in tmp_path.rglob("_zskip/**/*") if path.is_file() and "made" not in path.parts]
    assert not (tmp_path / "made").exists() or zskip.open(tmp_path / "made").version == 1


@pytest.mark.parametrize("damage", ["truncated", "not parquet"])
def test_a_corrupt_file_is_named(damage: str, tmp_path: Path) -> None:
    source = tmp_path / "raw"
    source.mkdir()
    pq.write_table(ROWS, source / "good.parquet")
    content = (source / "good.parquet").read_bytes()
    (source / "worse.parquet").write_bytes(content[:-200] if damage == "truncated" else b"hello")
    with pytest.raises(CorruptFile, match=r"worse\.parquet"):
        zskip.index(source)
    with pytest.raises(CorruptFile, match=r"worse\.parquet"):
        zskip.write(str(source), tmp_path / "t", by=["n"])
    assert not (source / "_zskip" / "log").exists()
    assert nothing_left(tmp_path / "t")


def test_files_of_others_are_named_and_no_table_is_written_among_them(tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(pa.table({"a": [number]}), tmp_path / f"{number}.parquet")
    with pytest.raises(zskip.TableNotFound, match=r"but 3 Parquet files\. Index them by zskip\.index\(path\)"):
        zskip.open(tmp_path)
    with pytest.raises(zskip.TableExists, match=r"0\.parquet and 2 more\. Lay them out in place by zskip\.cluster"):
        zskip.write(pa.table({"a": [7]}), tmp_path, by="a")
    assert not (tmp_path / "_zskip").exists()
    assert zskip.write(pa.table({"a": [7]}), tmp_path, by="a", mode="append").count() == 1
    indexed = tmp_path / "indexed"
    indexed.mkdir()
    pq.write_table(pa.table({"a": [1]}), indexed / "a.parquet")
    with pytest.raises(zskip.InvalidOption, match=r"zskip\.cluster\(path, by=…\) lays them out"):
        zskip.index(indexed).append(pa.table({"a": [7]}))


def test_an_existing_table_stays(tmp_path: Path) -> None:
    zskip.write(ROWS, tmp_path / "t", by=["n"])
    before = sorted((tmp_path / "t").rglob("*"))
    with pytest.raises(TableExists, match="overwrite"):
        zskip.write(ROWS, tmp_path / "t", by=["n"])
    assert sorted((tmp_path / "t").rglob("*")) == before


def test_a_source_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    def batches():  # type: ignore[no-untyped-def]
        yield ROWS.to_batches()[0]
        raise RuntimeError("the source broke off")

    reader = pa.RecordBatchReader.from_batches(ROWS.schema, batches())
    with pytest.raises(RuntimeError, match="broke off"):
        zskip.write(reader, tmp_path / "t", by=["n"], files=4)
    assert nothing_left(tmp_path / "t")


FULL_DISK = """
import resource, signal, sys
import numpy as np, pyarrow as pa
import zskip, zskip.table, zskip.writer.write
rows = pa.table({"n": np.random.default_rng(0).integers(0, 1 << 60, 200_000)})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
try:
    zskip.write(rows, sys.argv[1], by=["n"], files=2)
except OSError as error:
    print(error.errno)
"""


def test_a_disk_that_takes_no_more_bytes(tmp_path: Path) -> None:
    """The kernel itself refuses a file of more than 300 kB in mid-write, as it does when a disk is full."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "t")], capture_output=True, text=True, timeout=120, check=True
    )
    assert int(done.stdout) == errno.EFBIG
    assert nothing_left(tmp_path / "t")


def test_a_folder_without_permission(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    if os.access(closed, os.W_OK):
        pytest.skip("this user may write everywhere")
    with pytest.raises(PermissionError):
        zskip.write(ROWS, closed / "t", by=["n"])
    assert nothing_left(closed)


def test_an_argument_of_another_kind_is_named(tmp_path: Path) -> None:
    table = zskip.write(ROWS, tmp_path / "t", by="n", files=4)
    # Each is of a type that the signature does not take, on purpose.
    for wrong in (
        lambda: table.plan(5),  # type: ignore[arg-type]
        lambda: table.delete(None),  # type: ignore[arg-type]
        lambda: table.restore(None),  # type: ignore[arg-type]
        lambda: zskip.open(tmp_path / "t", version="1"),  # type: ignore[arg-type]
        lambda: zskip.open(tmp_path / "t", as_of=datetime.date(2030, 1, 1)),  # type: ignore[arg-type]
        lambda: zskip.open(5),  # type: ignore[arg-type]
        lambda: table.history("3"),  # type: ignore[arg-type]
        lambda: table.verify(random=-1),
        lambda: table.verify(["n = 1"], sample=-1),
        lambda: table.plan("n = ?", params=5),  # type: ignore[arg-type]
        lambda: table.plan("n = ?", params="7"),
        lambda: table.plan("n = ?", params={7}),  # type: ignore[arg-type]
        lambda: table.plan("n = 1").to_arrow([5]),  # type: ignore[list-item]
        lambda: table.plan("n = 1").to_arrow(5),  # type: ignore[arg-type]
        lambda: table.plan("n = 1").to_duckdb(columns=[5]),  # type: ignore[list-item]
        lambda: table.plan("n = 1").to_duckdb(5),  # type: ignore[arg-type]
        lambda: table.plan("n = 1").explain(5),  # type: ignore[arg-type]
        lambda: table.append(ROWS, batch=5),  # type: ignore[arg-type]
        lambda: table.append(ROWS, batch=("a",)),  # type: ignore[arg-type]
        lambda: table.append(ROWS, batch=(1, "a")),  # type: ignore[arg-type]
        lambda: table.append(ROWS, batch=("\ud800", 1)),
        lambda: table.append(ROWS, batch=("a", 10**5000)),
        lambda: table.clustering(5),  # type: ignore[arg-type]
        lambda: table.advise("n = 1", seed="x"),  # type: ignore[arg-type]
        lambda: zskip.advise(ROWS, "n = 1", seed="x"),  # type: ignore[arg-type]
        lambda: zskip.sql(None),  # type: ignore[arg-type]
        lambda: zskip.sql("SELECT 1", 5),  # type: ignore[arg-type]
        lambda: zskip.sql("SELECT ?", params=5),  # type: ignore[arg-type]
        lambda: zskip.index(tmp_path / "i", statistics=5, schema=ROWS.schema),  # type: ignore[arg-type]
        lambda: zskip.write(ROWS, tmp_path / "other", by=["n"], weights="a"),  # type: ignore[arg-type]
        lambda: zskip.write(ROWS, tmp_path / "other", by=["n"], weights=["a"]),  # type: ignore[list-item]
        lambda: zskip.write(ROWS, tmp_path / "other", by=["n"], weights={"n": "a"}),  # type: ignore[dict-item]
        lambda: zskip.write(ROWS, tmp_path / "other", by=["n"], seed="x"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidOption, match="not "):
            wrong()
    for by in (5, ["n", 5]):
        with pytest.raises(InvalidOption, match="by= is a column's name"):
            zskip.write(ROWS, tmp_path / "other", by=by)  # type: ignore[arg-type]
    for workload in (5, [5], ["n = 1", None]):
        with pytest.raises(InvalidOption, match="A workload is a list of SQL queries"):
            zskip.write(ROWS, tmp_path / "other", by=["n"], workload=workload)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="by= names no column, and no workload"):
        zskip.write(ROWS, tmp_path / "other", by=None)
    assert not (tmp_path / "other").exists()
    assert zskip.open(tmp_path / "t").version == 1


def test_an_empty_address_is_not_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidOption, match="a path or a URL, not ''"):
        zskip.write(ROWS, "", by="n")
    assert nothing_left(tmp_path)


def test_one_text_is_not_taken_for_a_list_of_letters(tmp_path: Path) -> None:
    table = zskip.write(ROWS, tmp_path / "t", by="n", files=4)
    (check,) = table.verify("n = 7").checks
    assert check.predicate == "n = 7"
    assert table.plan("n = 7").to_arrow("src_ip").column_names == ["src_ip"]
    assert table.plan("n = 7").to_duckdb(columns="src_ip").columns == ["src_ip"]
    assert list(table.clustering("src_ip")) == ["src_ip"]


def test_the_parser_does_not_speak_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = zskip.write(ROWS, tmp_path / "t", by=["n"])
    for statement in ("CALL x()", "EXPLAIN SELECT 1", "VACUUM FULL x"):
        with pytest.raises(UnsupportedSql, match="not a condition on rows"):
            table.plan(statement)
    with pytest.raises(duckdb.Error):
        zskip.sql("VACUUM FULL x")
    assert not caplog.records
    sqlglot.parse("CALL x()", dialect="duckdb")
    assert len(caplog.records) == 1, "of another's parse it still does"


WORDS = ("comment", "if", "list", "map", "object", "range", "row", "set", "struct", "update", "use")


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
def test_columns_that_are_called_like_the_parsers_words(dialect: str, tmp_path: Path) -> None:
    rows = pa.table({word: list(range(1000)) for word in WORDS})
    table = zskip.write(rows, tmp_path / "t", by=WORDS[0], files=10)
    for word in WORDS:
        for sql, count in (
            ("{w} = 5", 1), ("{w} > 3 AND {w} < 9", 5), ("{w} IN (5, 6)", 2), ("NOT {w} >= 4", 4), ("{w} + 1 = 6", 1),
            ("{w} BETWEEN 1 AND 7 OR ({w}) = 9", 8), ("{w} IS NOT NULL AND abs({w}) <= 5", 6), ("5 = {w}", 1),
        ):  # fmt: skip
            plan = table.plan(sql.replace("{w}", word.upper()), dialect=dialect)
            assert plan.skipped.files.part >= 9, sql
            if dialect == "duckdb":
                assert plan.to_arrow().num_rows == count, sql
    for sql in ("map(['a'], [1]) IS NOT NULL AND map = 5", "if(map = 5, TRUE, FALSE)"):
        assert table.plan(sql, dialect=dialect).skipped.files.part == 9, "what is called is no column"
