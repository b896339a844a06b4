"""Bad input: a clear error that names the thing, and nothing left behind."""

from __future__ import annotations

import datetime
import errno
import gzip
import inspect
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta, timezone
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import sqlglot
from duckdb import CatalogException

import zskip
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.errors import (
    CommitConflict,
    CorruptFile,
    FilesRemoved,
    ForeignTable,
    IncomparableTypes,
    InvalidOption,
    NoParquet,
    NotOrderable,
    SchemaError,
    SchemaMismatch,
    SqlSyntaxError,
    TableError,
    TableNotFound,
    UnknownColumn,
    UnknownParameter,
    UnsafePath,
    UnsupportedSql,
    ZskipError,
    shown,
)
from zskip.inspect.audit import doctor
from zskip.storage import open_storage
from zskip.tablelog.freshness import data_files, naming_replaced

STRUCTS = pa.table({"n": [1], "s": [{"user_id": 1}]})
COLUMN = Schema(pa.schema({"a": pa.int64()}))
ROWS = pa.table({"src_ip": ["10.0.0.1", "10.0.0.2"] * 500, "n": list(range(1000)), "tags": [["a"]] * 1000})


def nothing_left(path: Path) -> bool:
    return not path.exists() or not any(file.is_file() for file in path.rglob("*"))


def laid_out(folder: Path, by: Any = "n", rows: Any = ROWS, **options: Any) -> zskip.Table:
    return zskip.write(rows, folder / "t", by=by, **options)


def made(folder: Path, rows: pa.Table = ROWS) -> zskip.Table:
    """A table that is not at the place where nothing may be left."""
    return zskip.write(rows, folder / "made", by=rows.column_names[0])


def planned(folder: Path, condition: Any, rows: pa.Table = ROWS) -> object:
    return made(folder, rows).plan(condition)


def placed(path: Path, rows: pa.Table | bytes = ROWS) -> Path:
    """The folder of a new file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(rows) if isinstance(rows, bytes) else pq.write_table(rows, path)
    return path.parent


def columns(*names: str) -> pa.Table:
    return pa.table([[1]] * len(names), names=list(names))


def with_nulls(type: pa.DataType) -> pa.Table:
    return pa.table({"n": [1], "c": pa.nulls(1, type)})


def iceberg(folder: Path, metadata: bytes) -> Path:
    placed(folder / "raw" / "x.parquet")
    return placed(folder / "raw" / "metadata" / "v1.metadata.json", metadata).parent


def not_utf8(folder: Path) -> str:
    """The path of a file whose name is not UTF-8."""
    path = os.fsdecode(os.fsencode(placed(folder / "raw" / "a.parquet")) + b"/\xff.parquet")
    os.rename(folder / "raw" / "a.parquet", path)
    return path


def bound(value: object, dialect: str) -> object:
    return bind("a = ?", COLUMN, params=[value], dialect=dialect)


NOT_UTF8 = pa.Array.from_buffers(
    pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\3\0\0\0"), pa.py_buffer(b"\xed\xa0\x80")]
)
SURROGATES = pa.table({"p": NOT_UTF8, "a": pa.array([1])})
INFINITE, YEAR_40000 = (pa.table({"p": pa.array([day], pa.date32()), "a": [1]}) for day in (2**31 - 1, 13_890_172))
LAST = pa.table({"p": pa.array([2**63 - 1], pa.timestamp("us")), "a": [1]})
MOMENTS = pa.schema({"n": pa.int64(), "p": pa.struct({"t": pa.timestamp("us")})})
WIDE = pa.schema({"n": pa.int64(), "p": pa.struct({"t": pa.decimal256(60, 0)})})
NESTED = pa.table({"s": [{"x": 1, "y": {"z": 2}}]})
HUNDREDS = pa.decimal128(10, -2)
ODD_ZONE = pa.table({"z": pa.array([0], pa.timestamp("us", "+05:30"))})
NO_ITEMS = pa.list_(pa.int64(), 0)
AHEAD, BEHIND = (timezone(timedelta(hours=hours)) for hours in (5, -5))
Errors = type[Exception] | tuple[type[Exception], ...]

# What is done in an empty folder, the error, and what it says.
CASES: list[tuple[Callable[[Path], object], Errors, str]] = [
    # columns
    (lambda f: laid_out(f, "src_pi"), UnknownColumn, 'Did you mean "src_ip"'),
    (lambda f: zskip.read(made(f).uri, filters=[("src_pi", "=", "x")]), UnknownColumn, 'Did you mean "src_ip"'),
    (lambda f: made(f).plan(pc.field("N") == 3), UnknownColumn, 'no column "N". Did you mean "n"'),
    *(
        (partial(planned, condition=condition), UnknownColumn, 'no column "src_pi". Did you mean')
        for condition in (
            (pc.field("n") == 3) & (pc.field("src_pi") == "x"),
            pl.col("src_pi") == "x",
            (pl.col("n") == 3) | pl.col("src_pi").is_in(["x"]),
            pl.col("src_pi").str.len_bytes() > 3,
        )
    ),
    *(
        (partial(planned, condition=condition, rows=STRUCTS), UnknownColumn, 'Did you mean "s.user_id"')
        for condition in (pc.field("s", "usr_id") == 1, pl.col("s").struct.field("usr_id") == 1)
    ),
    (lambda f: made(f).plan(filters=[(3, "=", 3)]), InvalidOption, r"no list of filters .* operators are =, ==, !="),
    (lambda f: made(f).plan(filters=[("n", "in", "12")]), InvalidOption, "no list of filters"),
    (lambda f: made(f).plan(filters=[("n", "=", "x")]), UnsupportedSql, 'cannot be applied to "n", which is int'),
    (lambda f: made(f).plan("n > 5 AND src_pi = 'x'"), UnknownColumn, r"\n  n > 5 AND src_pi = 'x'\n {12}\^{6}$"),
    (lambda f: made(f).plan("n = 1", timezone="Europe/Berln"), InvalidOption, 'Did you mean "Europe/Berlin"'),
    (lambda f: bind("a = 1", COLUMN, timezone="UTCC"), InvalidOption, 'Did you mean "UTC"'),
    (lambda f: made(f).plan(pl.col("n").is_in([2**70])), UnsupportedSql, r'cannot be read: col\("n"\)\.is_in'),
    (lambda f: laid_out(f, "tags"), NotOrderable, "tags"),
    (lambda f: laid_out(f, "S", NESTED), UnknownColumn, r'"S" is a struct\. Name one of its fields: s\.x, s\.y\.z\.$'),
    (lambda f: laid_out(f, "s.Y", NESTED), UnknownColumn, r'column "s\.Y" is a struct\. Name .* fields: s\.y\.z\.$'),
    *(
        (partial(laid_out, by=name), UnknownColumn, re.escape(f'no column "{name}"'))
        for name in ('"n', 'n."', '"n"n', '"')
    ),
    (lambda f: laid_out(f, "a", columns("a", "A")), SchemaError, '"a" and "A"'),
    (lambda f: laid_out(f, "a", columns("a", "a")), SchemaError, '"a" and "a"'),
    (lambda f: laid_out(f, "a", columns("a", "")), SchemaError, "has no name"),
    *(
        (partial(laid_out, rows=with_nulls(type)), SchemaError, r'"c" of type .*decimal128\(10, -2\)')
        for type in (HUNDREDS, pa.list_(HUNDREDS), pa.struct({"x": HUNDREDS}))
    ),
    *(
        (partial(laid_out, rows=with_nulls(type)), SchemaError, rf'"{name}" has lists of the fixed size 0: ')
        for name, type in {"c": NO_ITEMS, "c.x": pa.struct({"x": NO_ITEMS}), "c.item": pa.list_(NO_ITEMS)}.items()
    ),
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
    (lambda f: laid_out(f, "a", INFINITE, partition_by="p"), SchemaMismatch, 'column "p" holds an infinite date'),
    (lambda f: laid_out(f, "a", YEAR_40000, partition_by="p"), SchemaMismatch, 'column "p" holds an infinite date'),
    (lambda f: laid_out(f, "a", LAST, partition_by="p"), SchemaMismatch, 'column "p" holds an infinite date or time'),
    (lambda f: laid_out(f, "a", SURROGATES, partition_by="p"), SchemaMismatch, "not UTF-8"),
    (lambda f: laid_out(f, "a", {"a": [1, "x"]}), SchemaError, "These values make no table"),
    *(
        (lambda f, value=value: laid_out(f, "a", {"a": value}), SchemaError, 'A column is a list of values, and "a" is')  # type: ignore[misc]
        for value in (3, None, "xyz", b"xyz", datetime.date(2024, 1, 1))
    ),
    (lambda f: laid_out(f, "a", []), InvalidOption, "An empty list has no columns"),
    (lambda f: made(f).append(()), InvalidOption, "An empty list has no columns"),
    (lambda f: laid_out(f, "a", pd.DataFrame({"a": [1, "x"]})), SchemaError, "column a"),
    (lambda f: laid_out(f, "a", pd.DataFrame([[1, 2]], columns=["a", "a"])), SchemaError, "Duplicate"),
    (lambda f: laid_out(f, "a", SURROGATES), SchemaMismatch, "not UTF-8"),
    (lambda f: laid_out(f, "p", SURROGATES), SchemaMismatch, "not UTF-8"),
    (lambda f: laid_out(f, ["a", "p"], SURROGATES, layout="zorder"), SchemaMismatch, "not UTF-8"),
    # values that a library cannot hold: errors of pandas, Arrow and polars, once
    *(
        (
            lambda f, rows=rows, to=to: getattr(made(f, rows), f"to_{to}")(),  # type: ignore[misc]
            SchemaError,
            rf'"p".*{advice}',
        )
        for rows, to, advice in (
            (INFINITE, "pandas", r"to_arrow\(\)\.to_pandas\(date_as_object=False\)"),
            (pa.table({"p": [1], "q": INFINITE["p"]}).rename_columns(["n", "p"]), "pandas", "columns="),
            (pa.table({"n": [1], "p": [{"t": 2**62}]}).cast(MOMENTS), "pandas", "columns="),
            (pa.table({"p": [2**63 - 1]}).cast(pa.schema({"p": pa.timestamp("ms")})), "arrow", "infinite time"),
            (pa.table({"n": [1], "p": [{"t": 1}]}).cast(WIDE), "polars", "columns="),
        )
    ),
    (lambda f: zskip.polars.scan(made(f, ODD_ZONE)), SchemaError, r'"z" of type timestamp\[us, tz=\+05:30\]'),
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
    # statements
    (lambda f: zskip.sql(f"FROM '{made(f).uri}s'"), TableNotFound, 'no table of that name. Did you mean "made"'),
    (lambda f: zskip.sql("FROM conn", tables={"con": made(f)}), CatalogException, r'rows\)\. Did you mean "con"\?$'),
    (lambda _: zskip.sql("FROM df"), CatalogException, r"by tables=, .* con\.register\(name, rows\)\.$"),
    (lambda _: zskip.sql("SELECT :x", params={"x": 1}), SqlSyntaxError, r"a parameter as \$name"),
    (lambda f: made(f).plan("n::VARCHAR::mood = 'a'").to_arrow(), UnsupportedSql, r'no type "mood": to_duckdb\(con\)'),
    (lambda f: made(f).plan("n::VARCHAR::mood = 'a'").count(), UnsupportedSql, r" = 'a'\n +\^\^\^\^$"),
    (lambda _: zskip.sql("OPTIMIZE t ZORDER BY (a)"), SqlSyntaxError, r"zskip\.cluster\(path, by=…\) lays a table out"),
    (lambda f: zskip.cluster(made(f).uri, zorder_by="n"), InvalidOption, "There are: by, .* full, .* threads"),  # type: ignore[call-arg]
    (lambda f: zskip.cluster(made(f).uri, target_size=1), InvalidOption, 'Did you mean "file_size"'),  # type: ignore[call-arg]
    (lambda f: made(f).plan("n = 1", dialect="foo"), InvalidOption, "There are: duckdb, spark, athena"),
    (lambda f: made(f).verify(predicates=2), InvalidOption, "random= is the number"),  # type: ignore[arg-type]
    (lambda f: made(f).optimize(zz=1), InvalidOption, "There are: full, dry_run, max_bytes, session, memory_limit"),  # type: ignore[call-arg]
    *(
        (
            lambda f, verb=verb: getattr(made(f), verb)(*([ROWS] if verb == "append" else ()), by="n"),  # type: ignore[misc]
            InvalidOption,
            r"zskip\.cluster\(path, by=…\) lays a table out anew",
        )
        for verb in ("optimize", "append", "tend")
    ),
    *(
        (lambda f, given=given: made(f).plan(**given), InvalidOption, message)  # type: ignore[misc]
        for given, message in (
            ({"predicate": "n = 1", "where": "n = 2"}, "all choose rows; give one"),
            ({"where": "n = 1", "filters": [("n", "=", 1)]}, "all choose rows; give one"),
            ({"filters": "n = 1"}, "filters= is a list of filters"),
        )
    ),
    # options that were taken, or raised errors of Python's
    (lambda f: laid_out(f, layout=-5), InvalidOption, "layout= is one of auto, tiles"),
    (lambda f: laid_out(f, progress=5), InvalidOption, "progress= is a function"),
    (lambda f: laid_out(f, temp_directory=5), InvalidOption, "temp_directory= is a path"),
    (lambda f: zskip.index(placed(f / "raw" / "a.parquet"), threads="x"), InvalidOption, "threads= is a whole number"),  # type: ignore[arg-type]
    (lambda f: zskip.index(placed(f / "raw" / "a.parquet"), sketches={"no": "values"}), UnknownColumn, '"no"'),
    (lambda f: made(f).plan("n = 1", dialect=[1]), InvalidOption, "dialect= is a text"),  # type: ignore[arg-type]
    (lambda f: made(f).optimize(dry_run="no"), InvalidOption, "dry_run= is True or False, not 'no'"),  # type: ignore[arg-type]
    (lambda f: made(f).vacuum(5), InvalidOption, "older_than= is a time span"),  # type: ignore[arg-type]
    (lambda f: zskip.cluster(made(f).uri, by="nope"), UnknownColumn, 'no column "nope"'),
    # addresses
    *(
        (lambda _, url=url: zskip.open(url), InvalidOption, "empty or dotted part")  # type: ignore[misc]
        for url in ("s3://lake/a//b", "s3://lake/..", "memory://lake/a/../b")
    ),
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


@pytest.mark.parametrize("length", [-200, 5])
def test_a_corrupt_file_is_named(length: int, tmp_path: Path) -> None:
    source = placed(tmp_path / "raw" / "good.parquet")
    placed(source / "worse.parquet", (source / "good.parquet").read_bytes()[:length])
    with pytest.raises(CorruptFile, match=r"worse\.parquet.* zskip doctor names every such file: move them away\.$"):
        zskip.index(source)
    assert "1 file cannot be read as Parquet: move it away, or every scan of the folder fails." in doctor(source).advice
    with pytest.raises(CorruptFile, match=r"worse\.parquet"):
        zskip.write(str(source), tmp_path / "t", by=["n"])
    assert not (source / "_zskip" / "log").exists()
    assert nothing_left(tmp_path / "t")


def test_a_file_that_is_listed_and_not_there_is_not_damaged(tmp_path: Path) -> None:
    storage = open_storage(placed(tmp_path / "raw" / "x.parquet"))
    with pytest.raises(FileNotFoundError), naming_replaced(storage, data_files(storage)):
        raise FileNotFoundError("x.parquet")


def test_a_file_that_arrow_cannot_decode_is_named(tmp_path: Path) -> None:
    """Arrow reads a column of JSON, and DuckDB's differences of more than 32 bits are beyond it."""
    path = tmp_path / "a.parquet"
    far = "(VALUES (-2147483648), (2147483647), (0)) AS v(n)"
    duckdb.sql(f"COPY (SELECT n::INTEGER AS n, '{{}}'::JSON AS j FROM {far}) TO '{path}' (PARQUET_VERSION v2)")
    table = zskip.index(tmp_path)
    with pytest.raises(CorruptFile, match=r"a\.parquet cannot be read: .*[^.]\. Restore it"):
        table.plan("n > 3").to_arrow()
    assert zskip.sql(f"SELECT n FROM '{tmp_path}' WHERE n > 3").fetchall() == [(2147483647,)]


def test_files_of_others_are_named_and_no_table_is_written_among_them(tmp_path: Path) -> None:
    for number in range(3):
        placed(tmp_path / f"{number}.parquet", pa.table({"a": [number]}))
    with pytest.raises(zskip.TableNotFound, match=r"but 3 Parquet files\. Index them by zskip\.index\(path\)"):
        zskip.open(tmp_path)
    with pytest.raises(zskip.TableExists, match=r"0\.parquet and 2 more\. Lay them out in place by zskip\.cluster"):
        zskip.write(pa.table({"a": [7]}), tmp_path, by="a")
    assert not (tmp_path / "_zskip").exists()
    assert zskip.write(pa.table({"a": [7]}), tmp_path, by="a", mode="append").count() == 1
    indexed = zskip.index(placed(tmp_path / "indexed" / "a.parquet", pa.table({"a": [1]})))
    with pytest.raises(zskip.InvalidOption, match=r"zskip\.cluster\(path, by=…\) lays them out"):
        indexed.append(pa.table({"a": [7]}))


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
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for most, count in ((300_000, 200_000), (700, 2)):  # in a data file, and in the entry of the log
    rows = pa.table({"n": np.random.default_rng(0).integers(0, 1 << 60, count)})
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, 300_000))
    try:
        zskip.write(rows, sys.argv[1], by=["n"], files=2)
    except OSError as error:
        print(error.errno)
"""


def test_a_disk_that_takes_no_more_bytes(tmp_path: Path) -> None:
    """The kernel itself refuses a file of more bytes in mid-write, as it does when a disk is full."""
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path / "t")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == [str(errno.EFBIG)] * 2
    assert nothing_left(tmp_path / "t")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_folder_without_permission(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where root runs the tests, who may write everywhere, the system's answers are made up."""

    def refused(path: str, *_: object, exist_ok: bool = False) -> None:
        if not exist_ok and not Path(path).parent.is_dir():  # a file, and not a folder
            raise FileNotFoundError(path)
        raise OSError(code, os.strerror(code), path)

    table, raw, closed = made(tmp_path), placed(tmp_path / "raw" / "a.parquet"), tmp_path / "closed"
    closed.mkdir()
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr("zskip.storage.local._Named", refused)
    monkeypatch.setattr(os, "makedirs", refused)
    for write, folder in (
        (lambda: zskip.write(ROWS, closed / "t", by=["n"]), closed),
        (lambda: table.append(ROWS), tmp_path / "made"),
        (lambda: table.restore(1), tmp_path / "made" / "_zskip" / "log" / ("0" * 17)),
        (lambda: zskip.index(raw), raw),
    ):
        with pytest.raises(OSError, match=r"into this folder: .* or write the rows to another folder") as error:
            write()
        assert (error.value.errno, error.value.filename) == (code, str(folder))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_that_may_not_be_read_is_not_damaged(tmp_path: Path) -> None:
    table = laid_out(tmp_path, files=4)
    (path,) = table.plan("n = 7").paths
    Path(path).chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(PermissionError, match=re.escape(Path(path).name)):
        table.plan("n = 7").to_arrow()


@pytest.mark.parametrize("folder", ["_zskip", ""])
def test_a_folder_that_may_not_be_read_is_named(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was no table, or one to lay out anew. The system's answers are made up, since root may read everything."""
    path = Path(laid_out(tmp_path, files=4).uri)
    raw = placed(tmp_path / "raw" / "a.parquet")
    zskip.index(raw)
    closed = [os.path.join(table, folder).rstrip("/") for table in (path, raw)]
    _close(monkeypatch, closed)
    for table, name in zip((path, raw), closed, strict=True):
        for use in (
            lambda table: zskip.open(table).plan("n = 7"),
            lambda table: zskip.sql(f"SELECT count(*) FROM '{table}'").fetchall(),
            lambda table: zskip.cluster(table, by="n", dry_run=True),
            lambda table: zskip.write(ROWS, table, by="n", mode="append"),
            lambda table: zskip.index(table),
        ):
            with pytest.raises(PermissionError, match="the right to read this folder") as error:
                use(table)
            assert error.value.filename == name


def test_a_delta_table_is_read_without_an_index_that_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deltalake.write_deltalake(tmp_path / "d", ROWS)
    zskip.attach(tmp_path / "d")
    _close(monkeypatch, [str(tmp_path / "d" / "_zskip")])
    assert zskip.open(tmp_path / "d").count() == ROWS.num_rows


def _close(monkeypatch: pytest.MonkeyPatch, closed: list[str]) -> None:
    """Let this user read nothing in some folders, nor list them."""
    opened, there = os.open, os.path.lexists

    def within(path: object) -> bool:
        return any(f"{path}".startswith(f"{folder}/") for folder in closed)

    def refused(path: Any, *options: Any, **named: Any) -> int:
        if within(path) or str(path).rstrip("/") in closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *options, **named)

    monkeypatch.setattr(os, "open", refused)
    monkeypatch.setattr(os.path, "lexists", lambda path: not within(path) and there(path))


def test_an_argument_of_another_kind_is_named(tmp_path: Path) -> None:
    table = zskip.write(ROWS, tmp_path / "t", by="n", files=4)
    # Each is of a type that the signature does not take, on purpose.
    for wrong in (
        lambda: table.plan(5),  # type: ignore[arg-type]
        lambda: table.delete(None),  # type: ignore[arg-type]
        lambda: table.restore(None),  # type: ignore[arg-type]
        lambda: zskip.open(tmp_path / "t", as_of=datetime.date(2030, 1, 1)),  # type: ignore[arg-type]
        lambda: zskip.open(5),  # type: ignore[arg-type]
        lambda: table.history("3"),  # type: ignore[arg-type]
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
        lambda: table.append(ROWS, batch=("a", -1)),
        lambda: table.clustering(5),  # type: ignore[arg-type]
        lambda: zskip.sql(None),  # type: ignore[arg-type]
        lambda: zskip.explain([]),  # type: ignore[arg-type]
        lambda: zskip.explain("SELECT ?", params=5),  # type: ignore[arg-type]
        lambda: zskip.sql("SELECT 1", 5),  # type: ignore[arg-type]
        lambda: zskip.sql("SELECT ?", params=5),  # type: ignore[arg-type]
        lambda: zskip.index(tmp_path / "i", statistics=5, schema=ROWS.schema),  # type: ignore[arg-type]
        lambda: zskip.write(ROWS, tmp_path / "other", by=["n"], weights=["a"]),  # type: ignore[list-item]
        lambda: zskip.write(ROWS, tmp_path / "other", by=["n"], weights={"n": "a"}),  # type: ignore[dict-item]
    ):
        with pytest.raises(InvalidOption, match="not "):
            wrong()
    with pytest.raises(SqlSyntaxError, match="half of a surrogate pair"):
        zskip.sql("SELECT '\ud800'")
    with pytest.raises(InvalidOption, match="more than 64 bits"):
        zskip.read(tmp_path / "t", filters=[("n", "=", 10**30)])
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


def test_statements_over_what_is_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zskip.write(ROWS, tmp_path / "t", by="n")
    monkeypatch.chdir(tmp_path)
    for missing in ("FROM 'tt'", "DELETE FROM 'tt'"):
        with pytest.raises(TableNotFound, match='no zskip table at "tt"'):
            zskip.sql(missing)
    with pytest.raises(UnsupportedSql, match=r"Table\.append, upsert, overwrite and delete change it"):
        zskip.sql("DELETE FROM 't' WHERE n = 1")
    with pytest.raises(InvalidOption, match=r'con\.register\("rows", rows\)'):
        zskip.sql("FROM rows", tables={"rows": ROWS})


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
    forms = [
        ("{w} = 5", 1), ("{w} > 3 AND {w} < 9", 5), ("{w} IN (5, 6)", 2), ("NOT {w} >= 4", 4), ("{w} + 1 = 6", 1),
        ("{w} BETWEEN 1 AND 7 OR ({w}) = 9", 8), ("{w} IS NOT NULL AND abs({w}) <= 5", 6), ("5 = {w}", 1),
    ]  # fmt: skip
    for place, word in enumerate(WORDS):
        for sql, count in forms[place % 3 :: 3]:
            plan = table.plan(sql.replace("{w}", word.upper()), dialect=dialect)
            assert plan.skipped.files.part >= 9, sql
            if dialect == "duckdb":
                assert plan.to_arrow().num_rows == count, sql
    for sql in ("map(['a'], [1]) IS NOT NULL AND map = 5", "if(map = 5, TRUE, FALSE)"):
        assert table.plan(sql, dialect=dialect).skipped.files.part == 9, "what is called is no column"


# --- what once raised an error of Python's or of another library's: now one of zskip's own, which names the thing ---


HUNDRED = pa.table({"a": range(100)})


def iceberg_folder(folder: Path, metadata: bytes, name: str = "v1.metadata.json") -> Path:
    placed(folder / "metadata" / name, metadata)
    return placed(folder / "x.parquet", HUNDRED)


@pytest.mark.parametrize("name", ["v1.metadata.json.gz", "version-hint.text", "v1.gz.metadata.json"])
@pytest.mark.parametrize("where", ["disk", "memory"])
def test_every_name_of_iceberg_metadata_is_known(name: str, where: str, tmp_path: Path) -> None:
    """Their deleted rows came back."""
    folder = iceberg_folder(tmp_path / "t", gzip.compress(b"{}") if "gz" in name else b"1", name)
    place: Any = folder
    if where == "memory":
        place = f"memory://{tmp_path.name}/t"
        for path in folder.rglob("*.*"):
            open_storage(place).put(str(path.relative_to(folder)), path.read_bytes())
    with pytest.raises(ForeignTable, match="Iceberg"):
        zskip.index(place)
    with pytest.raises((ForeignTable, CorruptFile, TableNotFound)):
        zskip.write(place, tmp_path / "copy", by=["a"])


def test_a_version_hint_that_is_no_text_is_no_hint(tmp_path: Path) -> None:
    folder = iceberg_folder(tmp_path / "t", b"{}")
    (folder / "metadata" / "version-hint.text").write_bytes(b"\xff\xfe")
    with pytest.raises(CorruptFile, match=r"v1\.metadata\.json"):
        zskip.open(folder)


def test_a_long_value_in_the_name_of_a_folder(tmp_path: Path) -> None:
    fits = zskip.write(pa.table({"p": ["x" * 253], "a": [1]}), tmp_path / "fits", by=["a"], partition_by=["p"])
    assert fits.plan("p > 'w'").count() == 1


def test_a_writer_whose_file_was_vacuumed_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stood still for longer than the vacuum's time: a FileNotFoundError of a name that nobody knows."""

    def remove_temporaries() -> None:
        for path in tmp_path.rglob("*.tmp"):
            path.unlink()

    storage = open_storage(tmp_path)
    file = storage.open_writer("part.parquet")
    file.write(b"x" * 100)
    remove_temporaries()
    with pytest.raises(FilesRemoved, match=r"part\.parquet was removed while it was written, by a vacuum"):
        file.close()
    link = os.link

    def stalled(source: str, target: str) -> None:
        remove_temporaries()
        link(source, target)

    monkeypatch.setattr(os, "link", stalled)
    with pytest.raises(FilesRemoved, match="entry was removed"):
        storage.put_if_absent("entry", b"x")
    assert not storage.exists("entry")


def test_a_count_is_of_what_a_read_finds(tmp_path: Path) -> None:
    """A foreign file that was replaced after the plan was counted as it had been; one that is gone is named."""
    for name in ("x", "y"):
        placed(tmp_path / f"{name}.parquet", HUNDRED)
    table, file = zskip.index(tmp_path), tmp_path / "x.parquet"
    plans = [table.plan(sql) for sql in ("a >= 0", "a BETWEEN 0 AND 99", None)]
    assert [plan.count() for plan in plans] == [200] * 3
    before = file.stat()
    placed(file, HUNDRED.slice(0, 0))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000))
    for plan in plans:
        assert plan.count() == plan.to_arrow().num_rows == 100
    file.unlink()
    for read in (plans[0].count, plans[0].to_arrow):
        with pytest.raises(TableNotFound, match=r"x\.parquet"):
            read()


def test_an_optimize_of_a_file_that_is_gone_says_so(tmp_path: Path) -> None:
    """It said that the file is not a complete one of Parquet."""
    table = zskip.write(HUNDRED, tmp_path, by="a", files=2)
    Path(table.plan().paths[0]).unlink()
    with pytest.raises(TableNotFound, match=r"part-000000-.*\.parquet.* is gone"):
        table.optimize(full=True)


@pytest.mark.parametrize("managed", [True, False])
def test_a_damaged_file_is_named_by_a_plans_reads(managed: bool, tmp_path: Path) -> None:
    """Errors of DuckDB's, which name no file."""
    rows = HUNDRED.append_column("s", pa.array([f"k{number % 7}" for number in range(100)]))
    if managed:
        table = zskip.write(rows, tmp_path / "t", by="a", files=4)
    else:
        for number in range(4):
            placed(tmp_path / "t" / f"{number}.parquet", rows.slice(number * 25, 25))
        table = zskip.index(tmp_path / "t")
    planned = table.plan("a % 2 = 0")
    damaged = Path(planned.paths[2])
    whole = damaged.read_bytes()
    stamp = damaged.stat().st_mtime_ns
    damaged.write_bytes(whole[:4] + b"\xff" * 40 + whole[44:])
    os.utime(damaged, ns=(stamp, stamp))
    for read in (planned.to_arrow, planned.count, lambda: list(planned.to_batches())):
        with pytest.raises(CorruptFile, match=damaged.name):
            read()
    damaged.write_bytes(whole)
    assert table.plan("a % 2 = 0").count() == 50


@pytest.mark.parametrize(("cut", "kind"), [(None, TableNotFound), (100, CorruptFile)])
def test_a_bad_file_is_named_by_a_datasets_reads(cut: int | None, kind: type[Exception], tmp_path: Path) -> None:
    """FileNotFoundError and ArrowInvalid."""
    table = zskip.write(HUNDRED, tmp_path / "t", by="a", files=4)
    dataset, every = table.dataset(), pc.field("a") >= 0
    assert (dataset.count_rows(), dataset.head(3).num_rows, dataset.take([0, 99]).num_rows) == (100, 3, 2)
    assert sum(batch.num_rows for batch in dataset.to_batches(["a"], every)) == dataset.to_table().num_rows == 100
    for path in map(Path, table.plan().paths):
        if cut is None:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:cut])
    for filter in (None, every):
        reads: list[Callable[[], object]] = [
            lambda filter=filter: dataset.to_table(filter=filter),
            lambda filter=filter: list(dataset.to_batches(filter=filter)),
            lambda filter=filter: dataset.head(3, filter=filter),
            lambda filter=filter: dataset.take([0], filter=filter),
            lambda filter=filter: dataset.count_rows(filter=filter),
        ]
        for read in reads:
            with pytest.raises(kind, match=r"part-.*\.parquet"):
                read()


def test_a_column_chunk_of_another_name_than_its_columns(tmp_path: Path) -> None:
    """A KeyError of Python's."""
    source = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": range(100), "s": ["k"] * 100}), source)
    whole = source.read_bytes()
    chunk = b"\x19\x18\x01s"  # path_in_schema, a list of one text
    assert whole.count(chunk) == 1
    source.write_bytes(whole.replace(chunk, b"\x19\x18\x01c"))
    table = zskip.write(source, tmp_path / "t", by="a")
    assert table.plan("s = 'k'").count() == 100


@pytest.mark.parametrize("link", [False, True])
def test_a_file_in_place_of_a_folder_is_refused(link: bool, tmp_path: Path) -> None:
    """Errors of Python's: NotADirectoryError, and FileExistsError from a write."""
    path = tmp_path / "x.parquet"
    pq.write_table(HUNDRED, path)
    if link:
        (tmp_path / "link.parquet").symlink_to(path)
        path = tmp_path / "link.parquet"
    for attempt in (
        zskip.index,
        doctor,
        lambda at: zskip.write(HUNDRED, at, by="a"),
        lambda at: zskip.cluster(at, by="a"),
    ):
        with pytest.raises(TableError, match=r"\.parquet is not a folder, and a table is one"):
            attempt(path)
    assert pq.read_table(path).num_rows == 100


def test_a_delete_after_a_column_got_another_type_says_so(tmp_path: Path) -> None:
    """DuckDB's ConversionException, or another meaning of the same text."""
    table = zskip.write(HUNDRED, tmp_path / "t", by="a")
    zskip.open(tmp_path / "t").overwrite(pa.table({"a": ["x", "3"]}), by="a")
    with pytest.raises(
        CommitConflict, match='"a" is int64 in version 1, at which this object is, and string in version 2'
    ):
        table.delete("a = 3")
    assert zskip.open(tmp_path / "t").delete("a = '3'").rows == 1
    narrow = zskip.write(pa.table({"a": pa.array([1, 2], pa.int8())}), tmp_path / "n", by="a")
    zskip.open(tmp_path / "n").append(pa.table({"a": [1000]}))
    assert narrow.delete("a = 2").rows == 1


@pytest.mark.parametrize("statistics", [True, False])
def test_an_integer_beyond_those_of_another_file_says_so(tmp_path: Path, statistics: bool) -> None:
    """A plan for 2**64 - 1 would skip the file that has it: no value of int64 equals that."""
    placed(tmp_path / "a.parquet", pa.table({"v": [-1, 2]}))
    placed(tmp_path / "b.parquet", pa.table({"v": pa.array([3, 7, None], pa.uint64())}))
    table = zskip.index(tmp_path)
    assert table.plan("v > 2").to_arrow()["v"].to_pylist() == [3, 7]
    beyond = pa.table({"v": pa.array([3, 2**64 - 1], pa.uint64())})
    pq.write_table(beyond, tmp_path / "b.parquet", write_statistics=statistics)
    table = zskip.open(tmp_path)
    for read in (table.to_arrow, table.plan("v > 0").count, table.dataset().to_table):
        with pytest.raises(SchemaMismatch, match=r'"v" is uint64 in .*b\.parquet'):
            read()
    with pytest.raises(SchemaMismatch, match=r'"v" is uint64 in b\.parquet, with a value beyond int64, .* or without'):
        table.refresh()


def test_a_far_timestamp_beside_nanoseconds_says_so(tmp_path: Path) -> None:
    """DuckDB's ConversionException."""
    far, near = (pa.table({"t": pa.array([value], pa.timestamp("us"))}) for value in (253_370_764_800_000_000, 0))
    pq.write_table(far, tmp_path / "1.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(near.cast(pa.schema([("t", pa.timestamp("ns"))])), tmp_path / "2.parquet")
    table = zskip.index(tmp_path)
    plan = table.plan("t >= TIMESTAMP '2021-01-01'")
    for read in (table.to_arrow, plan.to_arrow, plan.count):
        with pytest.raises(SchemaMismatch, match='"t" has nanoseconds'):
            read()


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_times_at_the_ends_of_years_stand_in_lists(unit: str, tmp_path: Path) -> None:
    """Python's times have no local ones beyond the years 1 to 9999."""
    rows = pa.table({"n": [1, 2, 3], "t": pa.array([0, 1, None]).cast(pa.timestamp(unit, "Asia/Tokyo"))})
    table = zskip.write(rows, tmp_path / "t", by="n", files=3)
    ends = "TIMESTAMPTZ '9999-12-31 23:59:59+00', TIMESTAMPTZ '0001-01-01 00:00:00+00'"
    assert table.plan(f"t IN ({ends}, TIMESTAMPTZ '1970-01-01 00:00:00+00')").to_arrow()["n"].to_pylist() == [1]
    assert len(table.plan(f"t NOT IN ({ends})").to_arrow()) == 2


def test_a_misspelt_function_is_underlined_in_the_predicate(tmp_path: Path) -> None:
    """And zskip's own SQL, with its parameters, is not shown."""
    table, misspelt = zskip.write(pa.table({"s": ["a", "b"]}), tmp_path / "t", by="s"), "lowr(s) = 'a'"
    plan = table.plan(misspelt)
    for read in (plan.to_arrow, plan.to_duckdb, plan.count, lambda: table.delete(misspelt)):
        with pytest.raises(duckdb.CatalogException, match="name lowr does not exist") as caught:
            read()
        assert "  lowr(s) = 'a'\n  ^^^^" in str(caught.value)
        assert "read_parquet" not in str(caught.value)
    assert 'Did you mean "lower"?' in plan.explain()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"a": ["text"]}, 'The column "a" has types without a common type: int64 in {others}, and string in 7.parquet'),
        ({"A": [1]}, 'A column is named "a" in {others} and "A" in 7.parquet'),
    ],
)
def test_a_file_that_does_not_fit_is_named(rows: dict[str, Any], message: str, tmp_path: Path) -> None:
    for number in range(20):
        pq.write_table(pa.table({"a": [number]}), tmp_path / f"{number}.parquet")
    table = zskip.index(tmp_path)
    pq.write_table(pa.table(rows), tmp_path / "7.parquet")
    with pytest.raises(SchemaMismatch, match=re.escape(message.format(others="the table"))):
        table.refresh()
    if "a" in rows:  # DuckDB reads a column of another spelling
        with pytest.raises(SchemaMismatch, match=re.escape(message.format(others="the table"))):
            table.plan("a = 3").to_arrow()
    shutil.rmtree(tmp_path / "_zskip")
    with pytest.raises(SchemaMismatch, match=re.escape(message.format(others="0.parquet"))):
        zskip.index(tmp_path)
    paths = [tmp_path / f"{number}.parquet" for number in (5, 6, 7)]
    table = zskip.write(paths[0], tmp_path / "t", by="a")
    for write in (partial(zskip.write, paths, tmp_path / "u", by="a"), partial(table.append, paths)):
        with pytest.raises(
            SchemaMismatch, match=r" earlier files and string in .*7\.parquet|7\.parquet .* earlier files"
        ):
            write()


def test_an_interrupt_of_duckdb_is_a_keyboard_interrupt(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"a": np.arange(300_000) % 100}), tmp_path / "t", by="a", files=2)
    child = f"""
import os, signal, threading, zskip
table = zskip.open({str(tmp_path / "t")!r})
table.delete("list_sum(range(a)) < 0")  # so that all is loaded
threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    table.delete("list_sum(range(500 + a)) < 0")
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, timeout=60)
    assert done.stdout == "interrupted\n", done.stderr
    assert zskip.open(tmp_path / "t").version == table.version


# --- every option of every public verb with values that it cannot have: refused by name, before anything is done ---


FORTY = pa.table({"a": range(40), "s": [f"k{number % 4}" for number in range(40)]})
HOSTILE: tuple[Any, ...] = (-5, 1 << 70, 2.5, math.nan, "", "\0", [1], {}, {"a": object()}, b"x", object())
# Options whose value may be anything of the kind: they are checked by what they are handed to.
NAMED_OTHERWISE = {"where", "columns", "params", "by", "workload", "partition_by", "sketches", "engines", "log_name"}
_OTHERS = {"session", "spark", "storage_options", "options"}
_RESOURCES = ("memory_limit", "temp_directory", "threads", "progress")
_LAYOUT = ("layout", "files", "rows_per_file", "file_size", "row_group_rows", "compression", "weights", "workload")

# Of each verb: how it is called with one option, and the options that its signature leaves to `**options`.
VERBS: dict[str, tuple[Callable[..., Any], Callable[[Path], Any], tuple[str, ...]]] = {
    "write": (zskip.write, lambda path: lambda **o: zskip.write(FORTY, path / "new", **{"by": "a", **o}), ()),
    "index": (zskip.index, lambda path: lambda **o: zskip.index(path / "raw", **o), ()),
    "open": (zskip.open, lambda path: lambda **o: zskip.open(path / "t", **o), ()),
    "read": (zskip.read, lambda path: lambda **o: zskip.read(path / "t", **o), ()),
    "repair": (zskip.repair, lambda path: lambda **o: zskip.repair(path / "t", **o), ()),
    "cluster": (zskip.cluster, lambda path: lambda **o: zskip.cluster(path / "raw", **{"by": "a", **o}), _RESOURCES),
    "advise": (zskip.advise, lambda path: lambda **o: zskip.advise(FORTY, **{"workload": ["a = 1"], **o}), ()),
    "sql": (zskip.sql, lambda path: lambda **o: zskip.sql("SELECT 1", **o), ()),
    "Table.advise": (
        zskip.Table.advise,
        lambda path: lambda **o: zskip.open(path / "t").advise(**{"workload": ["a = 1"], **o}),
        (),
    ),
}
for _name, _given, _more in (
    ("plan", ("a = 1",), ()),
    ("head", (), ()),
    ("to_arrow", (), ()),
    ("append", (FORTY,), _RESOURCES),
    ("overwrite", (FORTY,), (*_RESOURCES, *_LAYOUT, "partition_by", "sketches", "seed")),
    ("delete", ("a = 1",), _RESOURCES),
    ("add_sketches", ({"s": "values"},), _RESOURCES),
    ("drop_sketches", (), ()),
    ("optimize", (), _RESOURCES),
    ("history", (), ()),
    ("restore", (), ()),
    ("refresh", (), ()),
    ("vacuum", (), ()),
    ("tend", (), _RESOURCES),
    ("verify", ("a = 1",), ()),
    ("clustering", (), ()),
    ("logged_queries", (), ()),
    ("plot", ("a", "s"), ()),
    ("explore", (), ()),
):

    def _called(path: Path, name: str = _name, given: tuple[Any, ...] = _given) -> Callable[..., Any]:
        def call(**option: Any) -> Any:
            arguments = {"path": path / "page.html", **option} if name == "explore" else option
            return getattr(zskip.open(path / "t"), name)(*given, **arguments)

        return call

    VERBS[f"Table.{_name}"] = (getattr(zskip.Table, _name), _called, _more)


def options_of(verb: str) -> list[str]:
    """Every option by keyword, and those that are left to `**options`."""
    function, _, more = VERBS[verb]
    parameters = inspect.signature(function).parameters.values()
    alone = {"Table.head", "Table.to_arrow", "Table.drop_sketches", "Table.history", "Table.restore", "Table.vacuum"}
    keywords = [
        each.name for each in parameters if each.kind is each.KEYWORD_ONLY or (verb in alone and each.name != "self")
    ]
    # DuckDB itself refuses the parameters of a statement.
    others = _OTHERS | ({"params"} if verb == "sql" else set())
    return [name for name in dict.fromkeys([*keywords, *more]) if name not in others]


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    zskip.write(FORTY, folder / "t", by="a", files=2)
    (folder / "raw").mkdir()
    pq.write_table(FORTY, folder / "raw" / "x.parquet")
    return folder


def refuse_all(verb: str, tables: Path, folder: Path, every: int) -> None:
    """Call a verb with each option and every n-th of the values."""
    copy = folder / "copy"
    for place, option in enumerate(options_of(verb)):
        for value in HOSTILE[place % every :: every]:
            case = f"{verb}({option}={shown(value)})"
            if not copy.exists():
                shutil.copytree(tables, copy)
            before = files_in(copy)
            try:
                VERBS[verb][1](copy)(**{option: value})
            except ZskipError as error:
                message = str(error)
            except Exception as error:
                raise AssertionError(case) from error
            else:
                shutil.rmtree(copy)  # a value that the option may have after all
                continue
            assert len(message) < 700, f"{case}: {message}"
            assert option in message or option in NAMED_OTHERWISE, f"{case}: {message}"
            if verb == "cluster":
                shutil.rmtree(copy)  # the folder may have got an index
            else:
                assert files_in(copy) == before, f"{case} left files"


@pytest.mark.parametrize("verb", VERBS)
def test_a_hostile_option_is_refused_by_name(verb: str, tables: Path, tmp_path: Path) -> None:
    refuse_all(verb, tables, tmp_path, 11)


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_every_hostile_option_is_refused_by_name(verb: str, tables: Path, tmp_path: Path) -> None:
    refuse_all(verb, tables, tmp_path, 1)


def test_a_folder_may_begin_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    zskip.write(ROWS, "~no-user-of-that-name", by="n")
    assert zskip.open("~no-user-of-that-name").count() == ROWS.num_rows
