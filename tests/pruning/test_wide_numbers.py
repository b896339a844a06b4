"""Sums and products past 18 digits, and of unsigned integers of 64 bits: what DuckDB computes is in the outcomes, and
what the bounds decide with the margin of doubles is decided."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from random import Random

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from tests.pruning.oracles import DuckDBOracle, asked, breaches
from tests.pruning.units import Units, random_statistics, random_units
from tests.statements.cases import statements
from tests.tables import ranges_of, statistics_of
from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.language.tree import Opaque, walk

KINDS = ("n38_2", "u64", "i64", "n18_3", "u8", "n9_0")
CONSTANTS = (
    "0", "1", "-1", "7", "2.5", "-0.01", "100000000000000000000", "18446744073709551615", "123456789012345.678",
)  # fmt: skip


def computed(random: Random, table: Units, depth: int) -> str:
    if depth == 0 or random.random() < 0.2:
        return random.choice([random.choice(table.fields).sql] * 3 + [random.choice(CONSTANTS)])
    if random.random() < 0.2:
        return f"(-{computed(random, table, depth - 1)})"
    left, right = computed(random, table, depth - 1), computed(random, table, depth - 1)
    return f"({left} {random.choice('+-*')} {right})"


def asking(random: Random, table: Units) -> str:
    left = computed(random, table, random.choice([1, 1, 2, 3]))
    right = random.choice(CONSTANTS) if random.random() < 0.6 else computed(random, table, random.choice([0, 1]))
    if random.random() < 0.2:
        return f"{left} IN ({', '.join(random.sample(CONSTANTS, 4))})"
    return f"{random.choice(['', 'NOT '])}({left} {random.choice(['=', '<>', '<', '<=', '>', '>='])} {right})"


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
def test_every_outcome_that_duckdb_shows_is_foreseen(seed: int) -> None:
    random, oracle, decided, outcomes_known = Random(seed), DuckDBOracle(), 0, 0
    for _ in range(24 if seed else 5):
        table = random_units(random, kinds=KINDS, columns=4, units=5)
        if not table.unit:
            continue
        statistics, unit = random_statistics(random, table), np.asarray(table.unit, int)
        oracle.read(table.rows)
        questions = [asking(random, table) for _ in range(20)]
        for sql, yielded in zip(questions, oracle.yields(questions), strict=True):
            if yielded is None:
                continue
            outcomes = asked(sql, table.schema, statistics)
            breach = next(breaches(outcomes, yielded, unit), None)
            assert breach is None, f"{sql}\n  {breach}: {table.rows.to_pylist()[breach.row]}"
            outcomes_known += len(outcomes)
            decided += int((~outcomes.may_match | outcomes.all_match).sum())
    assert decided > outcomes_known / 4


TYPES = {
    "w": pa.decimal128(38, 2),
    "v": pa.decimal128(24, 4),
    "u": pa.uint64(),
    "i": pa.int64(),
    "m": pa.decimal128(18, 2),
}
BOUNDS: dict[str, tuple[object, object]] = {
    "w": (Decimal("-5.25"), Decimal(10) ** 30),
    "v": (Decimal("0.5"), Decimal("2.5")),
    "u": (2**63, 2**64 - 6),
    "i": (-3, 2**62),
    "m": (Decimal(10) ** 15, Decimal("9999999999999999.99")),
}
SCHEMA = Schema(pa.schema(TYPES))


@pytest.mark.parametrize(
    ("sql", "kept"),
    [(sql, kept == "kept") for kept in ("kept", "skipped") for sql in statements("wide_numbers", kept, "pruning")],
)
def test_the_bounds_decide(sql: str, kept: bool) -> None:
    columns = {name: ranges_of(*(pa.array([end], TYPES[name]) for end in ends)) for name, ends in BOUNDS.items()}
    outcomes = asked(sql, SCHEMA, statistics_of(**columns))
    assert not any(isinstance(node, Opaque) for node in walk(bind(sql, SCHEMA).tree))
    assert (bool(outcomes.may_match[0]), bool(outcomes.all_match[0])) == (kept, False)


def test_unknown_bounds_leave_a_sum_unknown() -> None:
    lower = pa.array([None, Decimal(1), Decimal(10) ** 35], TYPES["w"])
    upper = pa.array([Decimal(5), None, Decimal("9" * 36)], TYPES["w"])
    statistics = statistics_of(w=ranges_of(lower, upper))
    assert asked("w + 1 > 6.01", SCHEMA, statistics).may_match.tolist() == [False, True, True]
    assert asked("w + 1 < 1.99", SCHEMA, statistics).may_match.tolist() == [True, False, False]
    assert not asked("w + 1 > 5", SCHEMA, statistics).all_match.any()  # it may have more than 38 digits


@pytest.mark.parametrize(
    "sql", ["w * v > 1.00000001", "w + CAST(1 AS DOUBLE) > 5", "w = 1e0 * u", "-u > 5", "w / 2 > 1", "abs(w) > 1"]
)
def test_what_rounds_is_left_to_the_engine(sql: str) -> None:
    dialect = "spark" if "1.00000001" in sql else "duckdb"
    bound = bind("w * v * v > 1.00000001" if dialect == "spark" else sql, SCHEMA, dialect=dialect)
    assert any(isinstance(node, Opaque) for node in walk(bound.tree))


# --- decimals that have more digits than their type says, as DuckDB hands out its widest integers through Arrow ---


WIDEST = 2**127 - 1
ROWS = f"SELECT n, ({WIDEST}::HUGEINT - n) AS h FROM range(3) t(n)"


def test_a_folder_of_them_is_indexed_and_read(tmp_path: Path) -> None:
    rows = duckdb.sql(ROWS)
    for number in range(2):
        pq.write_table(rows.to_arrow_table(), tmp_path / f"{number}.parquet")
    table = zskip.index(tmp_path)
    assert table.plan("h > 5 AND n = 1").count() == 2
    assert table.plan("h < 5").paths == []
    assert zskip.sql(f"SELECT max(h), min(h), count(*) FROM '{tmp_path}'").fetchall() == [
        (Decimal(WIDEST), Decimal(WIDEST - 2), 6)
    ]
    assert table.verify().clean


def test_a_table_is_laid_out_by_them(tmp_path: Path) -> None:
    table = zskip.write(duckdb.sql(ROWS).to_arrow_table(), tmp_path / "t", by=["h", "n"], files=3)
    assert len(table.plan("n = 1").paths) == 1
    table.append(duckdb.sql(ROWS).to_arrow_table())
    assert zskip.open(tmp_path / "t").plan("h > 5 AND n = 1").count() == 2
    assert table.verify().clean
