"""The law of `values`: a plan by sketches gives the rows of a full scan, as DuckDB tells them, on hostile values."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import zskip
from zskip.plan import planner
from zskip.tablelog.sketches import SKETCHES, kinds
from zskip.tablelog.sketches.kinds import Sketch

VALUES: dict[str, tuple[pa.DataType, list[object]]] = {
    "i": (pa.int32(), [-(2**31), -1, 0, 1, 7, 2**31 - 1]),
    "u": (pa.uint64(), [0, 1, 2**63 - 1, 2**63, 2**64 - 1]),
    "f": (pa.float64(), [-0.0, 0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, 5e-324, 2.0**53]),
    "g": (pa.float32(), [-0.0, 0.0, 0.1, 2.0, math.nan]),
    "d": (pa.decimal128(9, 2), [Decimal("0"), Decimal("1.10"), Decimal("-1.1"), Decimal("10")]),
    "w": (pa.decimal128(38, 3), [Decimal(10**30), Decimal("0.001"), Decimal("-5")]),
    "s": (pa.string(), ["", "a", "A", "a\0", "\0", "é", "e\u0301", "a" * 128, "a" * 129, "𝄞", "x' OR 1=1"]),
    "c": (pa.dictionary(pa.int32(), pa.string()), ["one", "two", "three"]),
    "b": (pa.binary(), [b"", b"\0", b"\xff\xfe", b"abc"]),
    "t": (
        pa.timestamp("us"),
        [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1970, 1, 1), datetime(2024, 2, 29)],
    ),
    "z": (pa.timestamp("ms", "UTC"), [datetime(1900, 1, 1, tzinfo=UTC), datetime(2024, 10, 27, 1, 30, tzinfo=UTC)]),
    "y": (pa.date32(), [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)]),
    "h": (pa.time64("us"), [time(0), time(23, 59, 59, 999999)]),
    "o": (pa.bool_(), [True, False]),
}


def literal(name: str, value: object) -> str:
    """A value in DuckDB's SQL, of its column's type."""
    type, _ = VALUES[name]
    if isinstance(value, bytes):
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
    if isinstance(value, str):
        return " || chr(0) || ".join("'" + piece.replace("'", "''") + "'" for piece in value.split("\0"))
    if isinstance(value, float):
        return f"'{value}'::{'FLOAT' if type == pa.float32() else 'DOUBLE'}"
    if isinstance(value, datetime):
        return f"{'TIMESTAMPTZ' if value.tzinfo else 'TIMESTAMP'} '{value}'"
    if isinstance(value, date | time):
        return f"{'DATE' if isinstance(value, date) else 'TIME'} '{value.isoformat()}'"
    return str(value)


def rows_of(random: np.random.Generator, count: int, shown: float) -> pa.Table:
    """Random rows; each value only in some places, so that files lack it. ``shown``: the share that is not NULL."""
    columns: dict[str, pa.Array] = {"n": pa.array(np.arange(count))}
    for name, (type, values) in VALUES.items():
        place = np.arange(count) * len(values) // count + random.integers(0, 2, count)
        chosen = [values[at % len(values)] if random.random() < shown else None for at in place.tolist()]
        plain = pa.array(chosen, type.value_type if pa.types.is_dictionary(type) else type)
        columns[name] = plain.dictionary_encode() if pa.types.is_dictionary(type) else plain
    table = pa.table(columns)
    inner = pa.StructArray.from_arrays([table["s"].combine_chunks(), table["i"].combine_chunks()], ["s", "i"])
    return table.append_column("r", inner)


def predicate(random: np.random.Generator, depth: int = 2) -> str:
    """A random predicate of equalities."""
    if depth and random.random() < 0.4:
        left, right = predicate(random, depth - 1), predicate(random, depth - 1)
        return random.choice(
            [f"({left}) AND ({right})", f"({left}) OR ({right})", f"NOT ({left})", f"({left}) IS TRUE"]
        )
    name = str(random.choice(list(VALUES)))
    values = VALUES[name][1]
    some = [literal(name, values[at]) for at in random.integers(0, len(values), 3).tolist()]
    column = f"r.{name}" if name in ("s", "i") and random.random() < 0.3 else name
    other = str(random.choice(list(VALUES)))
    pair = f"({literal(name, values[0])}, {literal(other, VALUES[other][1][-1])})"
    return str(
        random.choice(
            [
                f"{column} = {some[0]}",
                f"{column} <> {some[0]}",
                f"{column} IN ({', '.join(some)})",
                f"{column} NOT IN ({', '.join(some)})",
                f"{column} IN ({some[0]}, NULL)",
                f"{column} IS NOT DISTINCT FROM {some[1]}",
                f"{column} IS DISTINCT FROM {some[1]}",
                f"({column}, {other}) = {pair}",
                f"({column}, {other}) IN ({pair})",
                f"{column} = {some[0]} OR n % 7 = 3",
            ]
        )
    )


def matching(con: duckdb.DuckDBPyConnection, where: str) -> list[int]:
    return [n for (n,) in con.sql(f"SELECT n FROM rows WHERE {where} ORDER BY n").fetchall()]


def check(folder: Path, seed: int, asked: int) -> int:
    """Ask random predicates of a random table; how many files were read."""
    random = np.random.default_rng(seed)
    rows = rows_of(random, 300, shown=0.9)
    con = duckdb.connect()
    con.register("rows", rows)
    con.execute("SET TimeZone = 'UTC'")
    sketches = dict.fromkeys([*VALUES, "r.s", "r.i"], "values")
    table = zskip.write(rows.slice(0, 200), folder / "t", by="n", files=8, sketches=sketches)
    table.append(rows.slice(200, 60))
    table.append(rows.slice(260))
    read = 0
    for _ in range(asked):
        where = predicate(random)
        plan = table.plan(where)
        assert sorted(plan.to_arrow(["n"])["n"].to_pylist()) == matching(con, where), where
        read += len(plan)
    return read


def test_plans_by_sketches_give_the_rows_of_a_full_scan(tmp_path: Path) -> None:
    check(tmp_path, seed=1, asked=150)


def test_sketches_asked_before_ranges_give_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "_MANY_FILES", 0)
    monkeypatch.setattr(planner, "_LEAST_SAVING", 1)
    asked_first = check(tmp_path / "first", seed=3, asked=75)
    monkeypatch.undo()
    assert check(tmp_path / "later", seed=3, asked=75) == asked_first


def test_forced_collisions_read_more_and_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = SKETCHES["values"]
    short = Sketch(values.keys, lambda entries: 3, values.check_column)
    monkeypatch.setitem(kinds.SKETCHES, "values", short)
    check(tmp_path, seed=2, asked=150)
