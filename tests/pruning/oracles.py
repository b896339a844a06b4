"""What real engines say of each row, and the laws that a unit's `Outcomes` are held to."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from tests.pruning.cases import Case
from zskip import pruning
from zskip.binder import bind
from zskip.core import types as t
from zskip.core.schema import Schema
from zskip.pruning import Budget, Outcomes, evaluate
from zskip.stats import Statistics

# What a row yields. RAISED: the engine refuses this row, so that nothing is asked of the plan.
TRUE, FALSE, NULL, RAISED = 1, 0, 2, -1
NAMES = {TRUE: "TRUE", FALSE: "FALSE", NULL: "NULL", RAISED: "an error"}


@functools.cache
def _database() -> duckdb.DuckDBPyConnection:
    """One database for all oracles: its cursors have their own temporary tables and settings, and start at once."""
    con = duckdb.connect()
    con.execute("SET threads = 1")
    return con


def _as_read(type: pa.DataType) -> pa.DataType:
    """The type with seconds and milliseconds as microseconds, as DuckDB reads them from Parquet."""
    is_coarse = lambda leaf: t.is_timestamp(leaf) and leaf.unit in ("s", "ms")  # noqa: E731
    return t.with_leaves(type, lambda leaf: pa.timestamp("us", leaf.tz) if is_coarse(leaf) else leaf)


class DuckDBOracle:
    """DuckDB over one table at a time."""

    def __init__(self, timezone: str = "UTC") -> None:
        self.con = _database().cursor()
        self.con.execute(f"SET TimeZone = '{timezone}'")

    def read(self, rows: pa.Table) -> None:
        """Take these rows as the table that predicates are asked of."""
        self.con.execute("DROP TABLE IF EXISTS units")
        self.con.register(
            "arrow_rows", rows.cast(pa.schema([each.with_type(_as_read(each.type)) for each in rows.schema]))
        )
        self.con.execute("CREATE TEMP TABLE units AS SELECT * FROM arrow_rows")

    def yields(self, predicates: Sequence[str], batch: int = 16) -> list[np.ndarray | None]:
        """Each predicate's outcome per row; None where DuckDB refuses the predicate as a whole."""
        found: list[np.ndarray | None] = []
        for start in range(0, len(predicates), batch):
            found += self._yields(list(predicates[start : start + batch]))
        return found

    def _yields(self, predicates: list[str]) -> list[np.ndarray | None]:
        # TRY gives NULL for a row that raises, so the predicate's own NULL is spelt 2.
        asked = ", ".join(
            f"coalesce(TRY(coalesce(({sql})::TINYINT, {NULL})), {RAISED}) AS p{n}" for n, sql in enumerate(predicates)
        )
        try:
            answer = self.con.execute(f"SELECT {asked} FROM units").fetchnumpy()
            return [np.asarray(answer[f"p{n}"]) for n in range(len(predicates))]
        except duckdb.Error:
            if len(predicates) == 1:
                return [None]
            middle = len(predicates) // 2
            return self._yields(predicates[:middle]) + self._yields(predicates[middle:])


@dataclass(frozen=True)
class Breach:
    """A unit whose rows yield what its outcomes exclude: a wrong skip, or a wrong "all match"."""

    unit: int
    yielded: str
    row: int

    def __str__(self) -> str:
        return f"unit {self.unit}, row {self.row} yields {self.yielded}, which the outcomes exclude"


def breaches(outcomes: Outcomes, yielded: np.ndarray, unit: np.ndarray) -> Iterator[Breach]:
    """Every row whose outcome its unit excludes: the law is that there is none."""
    # By what a row yields: FALSE, TRUE, NULL, and RAISED, which is -1.
    allowed = np.stack([outcomes.can_be_false, outcomes.can_be_true, outcomes.can_be_null, outcomes.can_fail])
    for row in np.flatnonzero(~allowed[yielded, unit]):
        yield Breach(int(unit[row]), NAMES[int(yielded[row])], int(row))


def described(statistics: Statistics, unit: int) -> str:
    """One unit's ranges, a line per column, for a failure's report."""
    lines = [f"  {statistics.row_count[unit].as_py()} rows"]
    for path, ranges in statistics.columns.items():
        names = ("lower", "upper", "has_value", "has_null", "has_nan")
        parts = (f"{name}={getattr(ranges, name)[unit]}" for name in names)
        lines.append(f"  {path} {ranges.lower.type}: " + " ".join(parts))
    return "\n".join(lines)


def observed(oracle: DuckDBOracle, case: Case) -> frozenset[str]:
    """The outcomes that DuckDB gives over rows that fill a case's box. Raises duckdb.Error where it refuses it."""
    oracle.read(case.rows())
    oracle.con.execute(f"SET TimeZone = '{case.settings.get('timezone', 'UTC')}'")
    sql = case.sql
    if "now" in case.settings:  # an engine's clock cannot be set, so the instant is written into the text
        instant = case.settings["now"]
        sql = sql.replace("now()", f"TIMESTAMPTZ '{instant.isoformat(' ')}'").replace(
            "current_date", f"DATE '{instant.date()}'"
        )
    asked = f"SELECT DISTINCT coalesce(TRY(coalesce(({sql})::TINYINT, {NULL})), {RAISED}) FROM units"
    if "random()" in sql or "uuid()" in sql:  # TRY takes no volatile function
        asked = f"SELECT DISTINCT coalesce(({sql})::TINYINT, {NULL}) FROM units"
    parameters = case.options.get("params", [])
    found = {value for (value,) in oracle.con.execute(asked, parameters).fetchall()} - {RAISED}
    return frozenset(NAMES[value].lower() for value in found)


# --- what a predicate is proved to give, for tests that compare two ways to prove it ---


def asked(sql: str, schema: Schema, statistics: Statistics) -> Outcomes:
    """The outcomes by a proof that is made anew, and not remembered from another way."""
    evaluate._proofs.clear()
    return pruning.outcomes(bind(sql, schema), statistics, budget=Budget(1 << 50))


def masks(found: Outcomes) -> list[list[bool]]:
    """By unit, whether TRUE, FALSE and NULL may come out."""
    return [found.can_be_true.tolist(), found.can_be_false.tolist(), found.can_be_null.tolist()]
