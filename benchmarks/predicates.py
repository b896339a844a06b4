"""What a proof costs: microseconds per thousand units for each operator and family of functions, over 100,000 units.

    python benchmarks/predicates.py [--units 100000] [--runs 7] [--only LIKE]

``bind`` is the time from text to proof, paid once a predicate (milliseconds; text that was not seen before);
``prove`` is the evaluation over all units (microseconds per thousand of them). Each is the best of some runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.pruning import outcomes
from zskip.stats import Ranges, Statistics

SECONDS = 1_500_000_000
"""Where time begins in these units: 2017."""


def units(count: int) -> tuple[Schema, Statistics]:
    """Units that stand in order, each a thousandth of its column's values wide, as files of a clustered table do."""
    number = np.random.default_rng(1).permutation(count)
    low = number.astype(np.int64) * 100
    ends = {
        "i": (pa.array(low), pa.array(low + 999)),
        "j": (pa.array(low[::-1].copy()), pa.array(low[::-1] + 999)),
        "small": (pa.array((number % 100).astype(np.int16)), pa.array((number % 100 + 20).astype(np.int16))),
        "f": (pa.array(low / 8), pa.array((low + 999) / 8)),
        "m": (_decimals(low), _decimals(low + 999)),
        "b": (pa.array(number % 3 == 0), pa.array(number % 3 > 0)),
        "s": (_texts(number), _texts(number + 3)),
        "country": (_countries(number), _countries(number)),
        "d": (_days(number % 4000), _days(number % 4000 + 30)),
        "t": (_moments(low), _moments(low + 9999)),
        "z": (_moments(low).cast(pa.timestamp("us", "UTC")), _moments(low + 9999).cast(pa.timestamp("us", "UTC"))),
    }
    yes, no = pa.array(np.ones(count, bool)), pa.array(np.zeros(count, bool))
    some = pa.array(number % 10 == 0)
    columns = {name: Ranges(lower, upper, yes, some, no) for name, (lower, upper) in ends.items()}
    schema = Schema(pa.schema({name: lower.type for name, (lower, _) in ends.items()}))
    return schema, Statistics(pa.array(np.full(count, 100_000)), columns)


def _decimals(values: np.ndarray) -> pa.Array:
    return pa.array(values).cast(pa.decimal128(19, 0)).cast(pa.decimal128(14, 2))


def _texts(values: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise("key-", pc.utf8_lpad(pa.array(values).cast(pa.string()), 7, "0"), "")


def _countries(values: np.ndarray) -> pa.Array:
    """Two hundred of them, each alone in its files, as partitions are."""
    return pc.binary_join_element_wise("c", pa.array(values % 200).cast(pa.string()), "")


def _days(values: np.ndarray) -> pa.Array:
    return pa.array((values + SECONDS // 86_400).astype(np.int32)).cast(pa.date32())


def _moments(values: np.ndarray) -> pa.Array:
    return pa.array((values + SECONDS) * 1_000_000).cast(pa.timestamp("us"))


def listed(count: int, spell: str = "{}", step: int = 997) -> str:
    """So many constants, far from one another."""
    return ", ".join(spell.format(value * step) for value in range(count))


def pairs(count: int) -> str:
    """So many rows of two constants."""
    return ", ".join(f"({value * 997}, {value * 991})" for value in range(count))


def legs(count: int) -> str:
    """So many rows of two constants, each spelled as two comparisons."""
    return " OR ".join(f"(i = {value * 997} AND j = {value * 991})" for value in range(count))


# By what is measured: predicates of that kind. {n} is another number in each run.
QUESTIONS: dict[str, list[str]] = {
    "=": ["i = {n}"],
    "<>": ["i <> {n}"],
    "<": ["i < {n}"],
    ">=": ["i >= {n}"],
    "= of doubles": ["f = {n}.5"],
    "= of decimals": ["m = {n}.25"],
    "= of strings": ["s = 'key-00{n}'"],
    "< of strings": ["s < 'key-00{n}'"],
    "= of dates": ["d = DATE '2020-02-29' AND {n} > 0"],
    "< of timestamps": ["t < TIMESTAMP '2018-03-24 17:15:00.{n}'"],
    "< of zoned timestamps": ["z < TIMESTAMPTZ '2018-03-24 17:15:00.{n}+02:00'"],
    "IS NULL": ["i IS NULL AND {n} > 0"],
    "IS DISTINCT FROM": ["i IS DISTINCT FROM {n}"],
    "a boolean column": ["b AND {n} > 0"],
    "column against column": ["i < j AND {n} > 0"],
    "BETWEEN": ["i BETWEEN {n} AND {n} + 500000"],
    "IN of 10": ["i IN ({n}, " + listed(10) + ")"],
    "IN of 10,000": ["i IN ({n}, " + listed(10_000) + ")"],
    "NOT IN of 10,000": ["i NOT IN ({n}, " + listed(10_000) + ")"],
    "IN of 10 strings": ["s IN ('{n}', " + listed(10, "'key-00{:05}'", 97) + ")"],
    "IN of 10,000 strings": ["s IN ('{n}', " + listed(10_000, "'key-00{:05}'", 9) + ")"],
    "row values": ["(i, j) IN (({n}, 1), (2, {n}), (3, 5))"],
    "row values in order": ["(i, j) < ({n}, 5)"],
    "row values, 2,000 in IN": ["(i, j) IN (({n}, 1), " + pairs(2_000) + ")"],
    "LIKE 'p%'": ["s LIKE 'key-00{n}%'"],
    "LIKE 'p_q%'": ["s LIKE 'key-00{n}_7%'"],
    "starts_with": ["starts_with(s, 'key-00{n}')"],
    "regexp_matches('^p')": ["regexp_matches(s, '^key-00{n}')"],
    "left, substr": ["left(s, 9) = 'key-00{n}'"],
    "+ constant": ["i + 17 > {n}"],
    "* constant": ["i * -3 > {n}"],
    "column + column": ["i + j > {n}"],
    "column * column": ["i * j > {n}"],
    "/ of doubles": ["f / 3 > {n}"],
    "% constant": ["i % 1000 = {n} % 7"],
    "abs": ["abs(i - {n}) < 5"],
    "floor, ceil, round": ["round(f) = {n}"],
    "CAST to BIGINT, DOUBLE": ["CAST(i AS DOUBLE) > {n}"],
    "year": ["year(d) = 2020 AND {n} > 0"],
    "month, day": ["month(d) = 7 AND {n} > 0"],
    "date_trunc": ["date_trunc('month', t) = TIMESTAMP '2018-03-01' AND {n} > 0"],
    "date_trunc in a zone": ["date_trunc('day', z) = TIMESTAMPTZ '2018-03-01 00:00:00+01:00' AND {n} > 0"],
    "CAST to DATE": ["CAST(t AS DATE) = DATE '2018-03-01' AND {n} > 0"],
    "CAST to DATE in a zone": ["CAST(z AS DATE) = DATE '2018-03-01' AND {n} > 0"],
    "± interval": ["t + INTERVAL 90 MINUTE < TIMESTAMP '2018-03-24 17:15:00' AND {n} > 0"],
    "datediff": ["datediff('day', DATE '2018-01-01', d) < {n}"],
    "hour": ["hour(t) = 7 AND {n} > 0"],
    "small integers, tried": ["small % 7 = 3 AND small * 2 <> 8 AND {n} > 0"],
    "computed, single strings": ["upper(country) = 'C{n}'"],
    "computed, two columns": ["country || '-' || small % 2 = 'c1-{n}'"],
    "computed, dates of a month": ["strftime(d, '%A-{n}') = 'Sunday-{n}'"],
    "CASE": ["CASE WHEN i < {n} THEN j > 5 ELSE f < 5 END"],
    "coalesce": ["coalesce(i, 0) = {n}"],
    "AND of 100, one column": [" AND ".join(f"i <> {{n}}{number}" for number in range(100))],
    "AND of 8 columns": [
        "i > {n} AND j > 5 AND f < 1e6 AND m > 5 AND s > 'key' AND d > DATE '2018-01-01' "
        "AND t > TIMESTAMP '2018-01-01' AND small < 50"
    ],
    "OR of 100, two columns": [" OR ".join(f"(i = {{n}}{number} AND j > {number})" for number in range(100))],
    "OR of 400 rows, 2 columns": ["(i = {n} AND j = 1) OR " + legs(400)],
    "NOT of an AND": ["NOT (i > {n} AND j > 5)"],
}


def best(runs: int, work: Callable[[int], object]) -> float:
    """The least seconds of some runs."""
    found = []
    for run in range(runs):
        began = time.perf_counter()
        work(run)
        found.append(time.perf_counter() - began)
    return min(found)


def measure(sql: str, schema: Schema, statistics: Statistics, runs: int) -> tuple[float, float]:
    """Seconds from text to proof, and seconds of one proof over all units."""
    few = statistics.take(np.arange(1))
    bound = bind(sql.replace("{n}", "10000"), schema, timezone="Europe/Berlin")

    def text_to_proof(run: int) -> None:
        outcomes(bind(sql.replace("{n}", str(10_001 + run)), schema, timezone="Europe/Berlin"), few)

    outcomes(bound, statistics)
    return best(runs, text_to_proof), best(runs, lambda _: outcomes(bound, statistics))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--units", type=int, default=100_000)
    options.add_argument("--runs", type=int, default=7)
    options.add_argument("--only", default="", help="a part of the name of what is measured")
    given = options.parse_args()
    schema, statistics = units(given.units)
    print(f"{given.units:,} units\n{'':<28}{'bind, ms':>10}{'prove, µs per 1,000 units':>28}{'skipped':>10}")
    for name, asked in QUESTIONS.items():
        if given.only.lower() not in name.lower():
            continue
        for sql in asked:
            binding, proving = measure(sql, schema, statistics, given.runs)
            bound = bind(sql.replace("{n}", "10000"), schema, timezone="Europe/Berlin")
            skipped = float((~outcomes(bound, statistics).may_match).mean())
            print(f"{name:<28}{binding * 1e3:>10.2f}{proving * 1e9 / given.units:>28.1f}{skipped:>10.1%}", flush=True)


if __name__ == "__main__":
    main()
