"""Random statements through `zskip.sql`, held against DuckDB over the same rows: rows, types and names are equal.

A long run from the shell:  python -m tests.statements.fuzz --cases 20000 --seed 1
A statement that failed, once more:  python -m tests.statements.fuzz --statement 1000004
"""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import zskip
import zskip.statements.duckdb.pruned_tables  # the rules of pruning, loaded before the first statement
from tests.statements.random_statements import COLUMNS, MACROS, TABLES, Statement, random_statement
from zskip.errors import SqlSyntaxError
from zskip.statements import joins
from zskip.statements.duckdb import pruning_rule
from zskip.statements.duckdb.statement import rewrite

_ROWS = 60
_TEXTS = ["it's", "it's", "s\\x31", "s\\x31", "é1", "é1", "S05", "a\nb", "a\nb", "tt"]
_SAME_ERRORS: dict[type[Exception], type[Exception]] = {duckdb.ParserException: SqlSyntaxError}


class Sides(NamedTuple):
    """``tables``: the folder of each, for zskip on ``own`` · ``plain``: a connection with the same rows."""

    tables: dict[str, str]
    own: duckdb.DuckDBPyConnection
    plain: duckdb.DuckDBPyConnection


class _Answer(NamedTuple):
    names: list[str]
    types: list[str]
    rows: list[str]


@contextmanager
def sides(folder: Path) -> Iterator[Sides]:
    """A table that zskip wrote, one with partitions and a schema that grew, and two folders of others' files: of
    several, and of one without NaN, of which DuckDB would answer max by the footer.

    Meanwhile every statement is explained, and joins ask for keys whatever that costs: tables this small never would.
    """
    rows = _rows(Random(5))
    zskip.write(rows, folder / "t0", by=["key", "val"], rows_per_file=8, row_group_rows=4)
    early = rows.slice(0, 40).drop_columns(["x"]).set_column(1, "val", rows.slice(0, 40)["val"].cast(pa.int16()))
    zskip.write(early, folder / "t1", by=["key"], rows_per_file=7, partition_by=["part"])
    zskip.open(folder / "t1").append(rows.slice(40))
    (folder / "t2").mkdir()
    ordered = rows.sort_by("day")
    for number in range(6):
        part = ordered.slice(10 * number, 10)
        pq.write_table(part.drop_columns(["s"]) if number == 2 else part, folder / "t2" / f"{number}.parquet")
    zskip.index(folder / "t2")
    (folder / "t3").mkdir()
    without_nan = pc.if_else(pc.is_nan(rows["x"]), None, rows["x"])
    pq.write_table(rows.set_column(rows.schema.get_field_index("x"), "x", without_nan), folder / "t3" / "0.parquet")
    zskip.index(folder / "t3")
    eager = patch.multiple(joins, _QUERY_SECONDS=-1000.0, FILE_SECONDS=10.0)
    explained = patch.object(pruning_rule, "MOST_RANGES", -1)
    with eager, explained, duckdb.connect() as own, duckdb.connect() as plain:
        for con in (own, plain):
            con.execute("SET threads = 1")
            for macro in MACROS:
                con.execute(macro)
        for name in TABLES:
            columns = '"' + '", "'.join(zskip.open(folder / name).schema.names) + '"'
            columns = columns.replace('"part"', "part::INTEGER AS part")
            plain.execute(
                f"CREATE TABLE {name} AS SELECT {columns} FROM read_parquet('{folder}/{name}/**/*.parquet', "
                "union_by_name = true)"
            )
        yield Sides({name: str(folder / name) for name in TABLES}, own, plain)


def _rows(random: Random) -> pa.Table:
    def some(values: list[Any]) -> list[Any]:
        return [None if random.random() < 0.1 else random.choice(values) for _ in range(_ROWS)]

    val, txt = some(list(range(60))), some(["", *(f"s{number:02}" for number in range(40)), *_TEXTS])
    columns = {
        "key": pa.array([None if number % 17 == 16 else number // 2 for number in range(_ROWS)], pa.int32()),
        "val": pa.array(val, pa.int32()),
        "txt": pa.array(txt),
        "day": pa.array(some([datetime.date(2024, 1, 1) + datetime.timedelta(days=at) for at in range(30)])),
        "x": pa.array(some([*(at / 4 for at in range(-4, 40)), *3 * [float("nan"), -0.0, 0.0], float("inf")])),
        "s": pa.array([{"a": a, "c": c} for a, c in zip(val, txt, strict=True)]),
        "part": pa.array([number % 3 for number in range(_ROWS)], pa.int32()),
    }
    columns["s"] = columns["s"].cast(pa.struct([("a", pa.int32()), ("c", pa.string())]))
    columns["s.a"] = pa.array([number // 4 for number in range(_ROWS)], pa.int32())
    return pa.table({name.strip('"'): columns[name.strip('"')] for name in COLUMNS})


def difference(given: Sides, statement: Statement) -> tuple[str, str | None]:
    """What kind of case a statement is, and how the two sides differ."""
    try:
        wanted: _Answer | Exception = _answer(given.plain.sql(statement.text, params=statement.params), statement)
    except duckdb.Error as error:
        wanted = error
    try:
        relation = zskip.sql(statement.text, given.own, params=statement.params, tables=given.tables)
        found: _Answer | Exception = _answer(relation, statement)
    except Exception as error:  # whatever it is, it is compared
        found = error
    if isinstance(wanted, Exception):
        if isinstance(found, _SAME_ERRORS.get(type(wanted), type(wanted))):
            return "errors", None
        # A row that raises may lie in a file that is not read.
        if isinstance(wanted, duckdb.DataError) and isinstance(found, _Answer):
            return "errors of rows that were skipped", None
        return "errors", f"DuckDB raises {wanted!r}\n  zskip: {found!r}"
    if isinstance(found, duckdb.DataError) and _raises_over_all_files(given, statement):
        return "errors of rows that DuckDB reaches in files alone", None
    if isinstance(found, duckdb.DataError) and isinstance(_unoptimized(given, statement), type(found)):
        return "errors of rows that DuckDB's optimizer may leave out", None
    if isinstance(found, Exception):
        return "answers", f"DuckDB answers, zskip raises {found!r}"
    for name, one, other in zip(_Answer._fields, wanted, found, strict=True):
        if one != other and found == _unoptimized(given, statement):
            return "answers that DuckDB's optimizer loses", None
        if one != other:
            return "answers", f"other {name}: DuckDB\n  {one}\n  zskip\n  {other}"
    return "answers" if wanted.rows else "empty answers", None


def _raises_over_all_files(given: Sides, statement: Statement) -> bool:
    """Whether DuckDB itself fails on a row, where it reads the statement's tables from their files."""
    read = rewrite(statement.text, given.own, params=statement.params, tables=given.tables, prune=False)
    try:
        given.own.execute(read.sql, read.parameters).fetchall()
    except duckdb.DataError:
        return True
    return False


def _unoptimized(given: Sides, statement: Statement) -> _Answer | duckdb.Error:
    """What DuckDB itself answers where all conditions are evaluated in the order of the text.

    Which rows come to an error depends on the order that its optimizer takes, by how many rows it expects; SQL leaves
    that open. And EXISTS over FULL JOIN … ON TRUE is false in DuckDB 2.0, whatever rows there are, where its optimizer
    changes the sides.
    """
    given.plain.execute("PRAGMA disable_optimizer")
    try:
        return _answer(given.plain.sql(statement.text, params=statement.params), statement)
    except duckdb.Error as error:
        return error
    finally:
        given.plain.execute("PRAGMA enable_optimizer")


def _answer(relation: duckdb.DuckDBPyRelation, statement: Statement) -> _Answer:
    names, types = relation.columns, [str(type) for type in relation.types]
    rows = [repr(_canonical(row)) for row in relation.fetchall()]
    return _Answer(names, types, rows if statement.ordered else sorted(rows))


def _canonical(value: Any) -> Any:
    """Any of the values that SQL takes for the same: 0.0 for -0.0."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, dict):
        return {name: _canonical(one) for name, one in value.items()}
    return tuple(map(_canonical, value)) if isinstance(value, tuple | list) else value


def run(
    given: Sides, cases: int, seed: int, *, stop_after: int = 10, aloud: bool = False
) -> tuple[Counter[str], list[str]]:
    """How many cases of which kind there were, and what failed. The same seed gives the same statements."""
    counts: Counter[str] = Counter()
    failures: list[str] = []
    for number in range(cases):
        statement_seed = seed * 1_000_003 + number
        statement = random_statement(Random(statement_seed))
        kind, failure = difference(given, statement)
        counts[kind] += 1
        if failure is not None:
            failures.append(f"--statement {statement_seed}\n{statement.text}\n  {statement.params}\n  {failure}")
            if aloud:
                print(failures[-1], end="\n\n", flush=True)
            if len(failures) >= stop_after:
                break
    return counts, failures


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--cases", type=int, default=20_000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--stop-after", type=int, default=10, metavar="FAILURES")
    options.add_argument("--statement", type=int, help="the seed of one statement: show its failure alone")
    chosen = options.parse_args()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, sides(Path(folder)) as given:
        if chosen.statement is not None:
            statement = random_statement(Random(chosen.statement))
            print(statement, *difference(given, statement), sep="\n")
            return 0
        counts, failures = run(given, chosen.cases, chosen.seed, stop_after=chosen.stop_after, aloud=True)
    shown = ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common())
    print(f"{shown}; {len(failures)} failures in {time.perf_counter() - started:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
