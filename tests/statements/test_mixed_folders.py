"""Folders of Parquet files that differ as real ones do, and statements over them.

A column may have a narrower type in some files, stand elsewhere, or be missing; the fields of a struct too. The first
file may be tiny, a file may be empty, a column may be NULL or NaN throughout.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip

_STRUCT = pa.struct({"p": pa.int64(), "q": pa.string()})
SCHEMA = pa.schema(
    {
        "k": pa.int64(),
        "n": pa.int64(),
        "x": pa.float64(),
        "d": pa.date32(),
        "ts": pa.timestamp("us"),
        "z": pa.timestamp("us", "UTC"),
        "txt": pa.string(),
        "s": _STRUCT,
        "l": pa.list_(pa.int64()),
    }
)
# DuckDB reads folders without nested columns in another way, where the first file has the table's types.
FLAT = pa.schema([field for field in SCHEMA if not pa.types.is_nested(field.type)])
_NARROWER = {"k": pa.int32(), "n": pa.int16(), "x": pa.float32()}
_DAY = datetime.date(2024, 1, 1)
_TIME = datetime.datetime(2024, 1, 1)


def write_folder(folder: Path, schema: pa.Schema, random: Random) -> pa.Table:
    """Write some files, and return their rows in the order of the files, as the columns of the schema."""
    folder.mkdir()
    parts = []
    for number in range(random.randrange(2, 6)):
        count = random.choice([1, 3, 20, 60] if number else [1, 1, 20, 40])
        if number and random.random() < 0.12:
            count = 0
        at = random.randrange(100)
        rows = pa.table({field.name: _values(field, count, at, random) for field in schema}, schema)
        # The first file has all columns, so that the table has the schema that is expected here.
        stored = _as_some_writer(rows, random) if number else rows
        pq.write_table(stored, folder / f"{number}.parquet", row_group_size=random.choice([7, 1000]))
        parts.append(pa.Table.from_pylist(stored.to_pylist(), schema))
    return pa.concat_tables(parts)


def _values(field: pa.Field, count: int, at: int, random: Random) -> pa.Array:
    if random.random() < 0.1:
        return pa.nulls(count, field.type)
    if field.name == "x" and random.random() < 0.1:
        return pa.array([float("nan")] * count, field.type)
    return pa.array([_value(field.name, at + random.randrange(30), random) for _ in range(count)], field.type)


def _value(name: str, at: int, random: Random) -> Any:
    if random.random() < 0.1:
        return None
    return {
        "k": at,
        "n": -at,
        "x": float("nan") if random.random() < 0.1 else at / 2,
        "d": _DAY + datetime.timedelta(at),
        "ts": _TIME + datetime.timedelta(hours=at, microseconds=at),
        "z": (_TIME + datetime.timedelta(hours=at)).replace(tzinfo=datetime.UTC),
        "txt": f"s{at:03}",
        "s": {"p": None if random.random() < 0.1 else at, "q": f"q{at % 7}"},
        "l": [] if random.random() < 0.2 else [at, None],
    }[name]


def _as_some_writer(rows: pa.Table, random: Random) -> pa.Table:
    names = [name for name in rows.column_names if random.random() > 0.15] or ["k"]
    if random.random() < 0.5:
        random.shuffle(names)
    made = rows.select(names)
    for name in names:
        number = made.schema.get_field_index(name)
        if name in _NARROWER and random.random() < 0.3:
            made = made.set_column(number, name, made.column(name).cast(_NARROWER[name]))
        if name == "s" and random.random() < 0.5:
            fields = random.choice([["q", "p"], ["q"], ["p"]])
            kept = pa.struct([_STRUCT.field(field) for field in fields])
            values = [
                None if one is None else {field: one[field] for field in fields} for one in made.column("s").to_pylist()
            ]
            made = made.set_column(number, "s", pa.chunked_array([pa.array(values, kept)]))
    if random.random() < 0.2:
        made = made.append_column("extra", pa.nulls(made.num_rows, pa.int64()))
    return made


def random_statement(schema: pa.Schema, random: Random) -> str:
    """A statement over the tables ``t`` and ``u``, whose rows have no order unless the order is total."""

    def one_of(*names: str) -> str:
        return random.choice([name for name in names if name.partition(".")[0] in schema.names])

    joined = random.random() < 0.5
    aliases = ["a", "b"] if joined else ["a"]
    kind = random.choice(["JOIN", "JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN"])
    key = one_of("k", "n", "d", "ts", "z", "txt", "s.p")
    source = f"t a {kind} u b ON a.{key} = b.{key}" if joined else random.choice(["t a", "u a"])
    visible = aliases if kind not in ("SEMI JOIN", "ANTI JOIN") else ["a"]
    where = " AND ".join(_condition(random.choice(visible), one_of, random) for _ in range(random.randrange(3)))
    where = f" WHERE {where}" if where else ""
    columns = [f"{random.choice(visible)}.{one_of(*_EXPRESSIONS)}" for _ in range(random.randrange(1, 4))]
    form = random.random()
    if form < 0.3:
        name = f"{random.choice(visible)}.{one_of('k', 'n', 'd', 'ts', 'z', 'txt', 'x', 's.p')}"
        return f"SELECT count(*), count({name}), min({name}), max({name}) FROM {source}{where}"
    if form < 0.45:
        return f"SELECT {columns[0]} AS g, count(*) FROM {source}{where} GROUP BY g"
    if form < 0.55 and not joined:
        return f"SELECT * FROM {source}{where}"
    if form < 0.65:
        return f"SELECT DISTINCT a.k FROM {source}{where} ORDER BY k LIMIT 5"
    return f"SELECT {', '.join(columns)} FROM {source}{where}"


_EXPRESSIONS = ["k", "n", "x", "d", "ts", "z", "txt", "s", "l", "s.p", "s.q"]


def _condition(alias: str, one_of: Callable[..., str], random: Random) -> str:
    at = random.randrange(130)
    literals = {
        "k": str(at),
        "n": str(-at),
        "x": random.choice([str(at / 2), "'NaN'"]),
        "d": f"DATE '{_DAY + datetime.timedelta(at)}'",
        "ts": f"TIMESTAMP '{_TIME + datetime.timedelta(hours=at)}'",
        "z": f"TIMESTAMPTZ '{_TIME + datetime.timedelta(hours=at)}+00'",
        "txt": f"'s{at:03}'",
        "s.p": str(at),
        "s.q": f"'q{at % 7}'",
    }
    name = one_of(*literals, "l", "s")
    column = f"{alias}.{name}"
    if name in ("l", "s") or random.random() < 0.2:
        return f"{column} IS {random.choice(['', 'NOT '])}NULL"
    if random.random() < 0.15:
        return f"{column} IN ({literals[name]}, NULL)"
    return f"{column} {random.choice(['=', '<', '>', '<=', '>=', '<>'])} {literals[name]}"


# --- statements over folders of unlike files give DuckDB's rows and types, however the files are read ---


_STATEMENTS = 12


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_statements_over_mixed_folders(tmp_path: Path, seed: int) -> None:
    _compare(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 540, 20))
def test_many_statements_over_mixed_folders(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + 20):
        _compare(tmp_path, seed)


def _compare(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    con, oracle = duckdb.connect(), duckdb.connect()
    for each in (con, oracle):
        each.execute("SET TimeZone = 'America/New_York'")
    paths, schema = {}, random.choice([SCHEMA, FLAT])
    for name in ("t", "u"):
        paths[name] = str(tmp_path / f"{name}{seed}")
        rows = write_folder(Path(paths[name]), schema, random)
        table = zskip.index(paths[name])
        assert table.schema.names[: len(schema)] == schema.names
        oracle.register("rows", rows)
        extra = [f"CAST(NULL AS BIGINT) AS {name}" for name in table.schema.names[len(schema) :]]
        oracle.execute(f"CREATE TABLE {name} AS SELECT {', '.join(['*', *extra])} FROM rows")
    for _ in range(_STATEMENTS):
        text = random_statement(schema, random)
        expected, found = oracle.sql(text), zskip.sql(text, con, tables=paths)
        what = f"seed {seed}: {text}"
        assert found.columns == expected.columns, what
        assert found.types == expected.types, what
        assert sorted(map(repr, found.fetchall())) == sorted(map(repr, expected.fetchall())), what
