"""Random lives of Delta tables, written by deltalake: after each step all that it reads is read alike, by the log
alone and, at every other step, by the footers too."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.schema import Field, PrimitiveType

import zskip
from tests.table_formats.logs import new_catalog, require_same

DAYS = [dt.date(2024, 1, day) for day in range(1, 6)]


def made(random_: random.Random, count: int, grown: int) -> pa.Table:
    """Rows with NULL, NaN, long texts, times between milliseconds, decimals of many digits."""

    def maybe(value: object) -> object:
        return None if random_.random() < 0.15 else value

    moment = dt.datetime(2024, 1, 1)
    kinds: dict[str, tuple[pa.DataType, Callable[[], object]]] = {
        "id": (pa.int64(), lambda: random_.randrange(100)),
        "small": (pa.int32(), lambda: random_.randrange(-9, 9)),
        "day": (pa.date32(), lambda: random_.choice(DAYS)),
        "text": (pa.string(), lambda: random_.choice("abc\x7fÿ") * random_.choice([1, 70])),
        "ratio": (pa.float64(), lambda: random_.choice([0.0, -0.0, 1.5, -7.25, float("nan")])),
        "moment": (
            pa.timestamp("us", "UTC"),
            lambda: moment + dt.timedelta(microseconds=random_.randrange(10**7)),
        ),
        "price": (pa.decimal128(20, 3), lambda: Decimal(random_.randrange(-(10**19), 10**19)).scaleb(-3)),
        "nested": (
            pa.struct({"x": pa.int64(), "y": pa.string()}),
            lambda: {"x": maybe(random_.randrange(9)), "y": "y"},
        ),
    }
    columns = {name: pa.array([maybe(value()) for _ in range(count)], type) for name, (type, value) in kinds.items()}
    for number in range(grown):
        columns[f"more{number}"] = pa.array([maybe(random_.randrange(5)) for _ in range(count)], pa.int64())
    return pa.table(columns)


def predicates(random_: random.Random, count: int, text: str = "text") -> list[str]:
    def one() -> str:
        number, day = random_.randrange(100), random_.choice(DAYS)
        second = f"2024-01-01 00:00:{random_.randrange(10):02}.{random_.randrange(10**6):06}"
        return random_.choice(
            [
                f"id = {number}",
                f"id BETWEEN {number} AND {number + 5}",
                f"small > {random_.randrange(-9, 9)}",
                "id IS NULL",
                "ratio > 1.4",
                "ratio <> 1.5",
                "ratio IS NOT NULL",
                f"day = DATE '{day}'",
                f"day <> DATE '{day}' AND id < {number}",
                "day IS NULL",
                f"{text} >= '{random_.choice('abcÿ') * random_.choice([1, 20])}'",
                f"{text} LIKE 'c%' AND id > {number}",
                f"id IN ({number}, {number + 40}) OR price IS NULL",
                f"moment >= TIMESTAMPTZ '{second}Z'",
                f"moment < TIMESTAMPTZ '{second}Z' OR small = 3",
                f"price > {random_.randrange(-(10**16), 10**16)}",
                f"nested.x = {random_.randrange(9)}",
                f"NOT (id > {number} AND small < 0)",
            ]
        )

    return [one() for _ in range(count)]


STEPS = [
    "append", "append", "append", "delete", "update", "merge", "overwrite",
    "grow", "compact", "z_order", "cluster", "restore", "checkpoint",
]  # fmt: skip


def live(path: Path, steps: int, seed: int, partition_by: list[str], asked: int) -> None:
    random_ = random.Random(seed)
    grown = 0
    write_deltalake(
        path, made(random_, 40, 0), partition_by=partition_by, configuration={"delta.checkpointInterval": "7"}
    )
    for number in range(steps):
        table = DeltaTable(path)
        step = random_.choice(STEPS)
        if step == "append":
            rows = made(random_, random_.randrange(1, 30), grown)
            write_deltalake(path, rows, mode="append")
        elif step == "delete":
            table.delete(f"id = {random_.randrange(100)}")
        elif step == "update":
            table.update(updates={"small": "5"}, predicate=f"id < {random_.randrange(20)}")
        elif step == "merge":
            rows = made(random_, 5, grown)
            table.merge(
                rows, "t.id = s.id AND s.id IS NOT NULL", source_alias="s", target_alias="t"
            ).when_not_matched_insert_all().execute()
        elif step == "overwrite":
            day = random_.choice(DAYS)
            rows = made(random_, 8, grown)
            rows = rows.set_column(2, "day", pa.array([day] * 8, pa.date32()))
            write_deltalake(path, rows, mode="overwrite", predicate=f"day = '{day}'")
        elif step == "grow" and grown < 3:
            table.alter.add_columns([Field(f"more{grown}", PrimitiveType("long"), True)])
            grown += 1
        elif step == "compact":
            table.optimize.compact()
        elif step == "z_order" and partition_by == []:
            table.optimize.z_order(["id", "small"])
        elif step == "cluster":
            zskip.cluster(path, by=["id", "small"], files=4)
        elif step == "restore" and table.version() > 2:
            table.restore(table.version() - random_.randrange(1, 3))
            grown = sum(name.startswith("more") for name in pa.schema(DeltaTable(path).schema().to_arrow()).names)
        elif step == "checkpoint":
            table.create_checkpoint()
        opened = zskip.open(path, deep=number % 2 == 1)
        require_same(opened, pa.table(DeltaTable(path).scan()), predicates(random_, asked))


@pytest.mark.parametrize("partition_by", [pytest.param([], marks=pytest.mark.slow), ["day"]], ids=["plain", "by day"])
def test_a_short_life(tmp_path: Path, partition_by: list[str]) -> None:
    live(tmp_path / "t", 10, 11, partition_by, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_long_life(tmp_path: Path, seed: int) -> None:
    live(tmp_path / "t", 250, seed, ["day"] if seed % 2 else [], 20)


def test_the_files_of_older_commits_come_first(tmp_path: Path) -> None:
    """Over files in falling order, DuckDB reads all of them for the first rows."""
    catalog = new_catalog(tmp_path)
    iceberg = catalog.create_table("n.t", schema=pa.schema({"k": pa.int64()}))
    for number in range(4):
        write_deltalake(tmp_path / "t", pa.table({"k": [number]}), mode="append")
        iceberg.append(pa.table({"k": [number]}))
    for table in (zskip.open(tmp_path / "t"), zskip.open(catalog.load_table("n.t"))):
        assert table.to_arrow()["k"].to_pylist() == [0, 1, 2, 3]
