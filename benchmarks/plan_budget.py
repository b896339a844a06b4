"""What a stranger's predicate may cost at plan time: texts that try to be costly, each planned over 10,000 files.

    python benchmarks/plan_budget.py [--only WORDS]

Half of the files hold one value of each column, for which DuckDB may be asked to compute; the others hold ranges. The
table is made up, as by a catalog, and no data file is there. Processor time, so that other work on the machine does not
count; memory is the peak of the process over what it held before. A predicate that is refused counts like any other.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.errors import ZskipError
from zskip.plan.planner import plan
from zskip.stats import ColumnStatistics, DataFiles, FileStatistics
from zskip.storage import open_storage
from zskip.tablelog.commit import TableUpdate, commit
from zskip.tablelog.index import Index
from zskip.tablelog.log import load

FILES = 10_000
SECONDS, MEGABYTES = 0.5, 200

A = "a" * 1900
WIDE = " || ".join(["w"] * 200)
MARKS = "\u0315\u0300" * 900
PREDICATES = {
    "counted repetition": f"regexp_matches('{A}' || w, '(.*a){{0,900}}b')",
    "repetition in repetition": "regexp_matches(w, '((a{0,30}){0,30}){0,30}b')",
    "many classes": f"regexp_matches(w, '{chr(92)}pL{{100}}{chr(92)}PL{{100}}[^{chr(92)}pN]{{100}}')",
    "many dots": f"regexp_matches('{A}' || w, '{'.*' * 500}b')",
    "replace at every byte": f"regexp_replace('{A}' || w, 'a.*b|a', '{A}', 'g') = 'x'",
    "groups in a replacement": f"length(regexp_replace('{A}' || w, '(a+)', '{chr(92) + '1'}{A}', 'g')) > 1",
    "extract of much": f"regexp_extract('{A}' || w, '(a|aa|aaa)*(a*)*b', 2) = 'x'",
    "like of many wildcards": f"'{A}' || w LIKE '{'%a_' * 300}b' || upper(w)",
    "ilike of many wildcards": f"'{A}' || w ILIKE '{'%a_' * 300}b' || upper(w)",
    "glob of many stars": f"'{A}' || w GLOB '{'*a?' * 300}b'",
    "replace squares": f"length(replace('{A}' || w, 'a', '{A}')) > 5",
    "replace of the column by itself": f"length(replace({WIDE}, 'a', {WIDE})) = 1",
    "replace in replace": "replace(replace(replace(w, 'a', w || w), 'a', w || w), 'a', w || w) = 'x'",
    "bits of bits": "length(bin(bin(bin(bin(bin(bin(w))))))) > 5",
    "hexadecimals of hexadecimals": f"length({'hex(' * 30}w{')' * 30}) > 5",
    "blobs of blobs": f"length({'CAST(CAST(' * 20}w{' AS VARCHAR) AS BLOB)' * 20}) > 5",
    "formats of dates": f"strftime(d, '{'%A %B %c ' * 400}') = 'x'",
    "dates from text": f"strptime(w, '{'%Y-%m-%d ' * 400}') > TIMESTAMP '2020-01-01'",
    "combining marks": f"nfc_normalize('{MARKS}' || w) = 'x'",
    "accents": f"strip_accents('{MARKS}' || w) = 'x'",
    "graphemes": f"length_grapheme('{MARKS}' || w) = 3 AND reverse('{MARKS}' || w) = 'x'",
    "split at every byte": f"split_part('{A}' || w, 'a', 1800) = 'x'",
    "a long needle": f"instr('{A}' || w, '{A}b') = 1",
    "concat with a long separator": f"length(concat_ws('{A}', {', '.join(['w'] * 300)})) = 1",
    "translate to long characters": f"length(translate('{A}' || w, 'a', '\U0001f600')) = 1",
    "digests": f"sha256(sha256(sha256('{A}' || w))) = 'x'",
    "trigonometry": " + ".join(f"sin(cos(tan(n + {i})))" for i in range(100)) + " = 1",
    "greatest common divisors": " + ".join(
        f"gcd(n::HUGEINT * 105102030495969020304050, {10**37 + i})" for i in range(30)
    )
    + " = 1",
    "moments in zones": " OR ".join(
        f"date_diff('month', timezone('Europe/Berlin', d::TIMESTAMP + to_days({i})), TIMESTAMPTZ '1900-01-01') = {i}"
        for i in range(30)
    ),
    "all combinations": "gcd(n, m) + lcm(n, m) % 7 = 100000 OR n ** m % 3 = 77 OR (n & m) = 3",
    "a hundred conditions": " AND ".join(f"upper(w || '{i}') <> lower(w || '{i}')" for i in range(100)),
    "a thousand conditions": " OR ".join(f"md5(w || '{i}') = 'x'" for i in range(1000)),
    "two hundred trials": " AND ".join(f"(n * n + {i} = 7 OR m * {i + 2} = 3)" for i in range(200)),
    "nested CASE": "CASE WHEN upper(w) = 'A' THEN 1 ELSE " * 150 + "2" + " END" * 150 + " = 1",
    "deep parentheses": "(" * 190 + "upper(w)" + ")" * 190 + " = 'x'",
    "a name of many dots": "q" + ".w" * 16_000 + " = 'x'",
    "a list of sums": f"n IN ({', '.join(f'n + {i}' for i in range(5_000))})",
    "an integer of many digits": f"n = {'9' * 5000}",
    "a decimal of many digits": f"substr(w, {'9' * 5000}) = '0.{'9' * 5000}'",
    "a list of long integers": f"n IN ({', '.join('9' * 4400 for _ in range(100))})",
    "eight thousand sums": " OR ".join(f"n + {i} = 3" for i in range(8_000)),
    "eight thousand calls": " OR ".join(f"upper(w) = '{i}'" for i in range(8_000)),
    "eight thousand LIKEs": " OR ".join(f"w LIKE '%{i}x%'" for i in range(8_000)),
    "twenty thousand ILIKEs": " OR ".join(f"w ILIKE '%{i}x%'" for i in range(20_000)),
    "three thousand sums": " OR ".join(f"n + {i} = 3" for i in range(3_000)),
    "2,500 sums in an AND": " AND ".join(f"n + {i} <> 3" for i in range(2_500)),
    "2,500 ILIKEs": " OR ".join(f"w ILIKE '%{i}x%'" for i in range(2_500)),
    "2,500 casts": " OR ".join(f"n::BIGINT = {i}" for i in range(2_500)),
    "1,200 functions": " OR ".join(f"f{i}(w) = '{i}'" for i in range(1_200)),
    "sixty thousand BETWEENs": " OR ".join(f"n BETWEEN {i * 3} AND {i * 3 + 1}" for i in range(60_000)),
    "three thousand BETWEENs": " OR ".join(f"n BETWEEN {i * 3} AND {i * 3 + 1}" for i in range(3_000)),
    "NOT IN of 40,000 triples": f"(n, m, w) NOT IN ({', '.join(f'({i}, {i}, {i})' for i in range(40_000))})",
    "NOT IN of 1,200 triples": f"(n, m, w) NOT IN ({', '.join(f'({i}, {i}, {i})' for i in range(1_200))})",
    "ANDs of ORs": " AND ".join(f"(n = {i} OR m = {i * 7} OR w = 'a{i}')" for i in range(1_400)),
    "five thousand beginnings": " OR ".join(f"w LIKE 'a{i}%'" for i in range(4_900)),
    "five thousand fractions": " OR ".join(f"n = {i}.5" for i in range(4_900)),
    "short lists": " OR ".join(f"n IN ({i}, {i + 3}, {i + 7})" for i in range(2_400)),
    "CASEs in one another": " OR ".join(
        "CASE WHEN n = 1 THEN 2 ELSE " * 150 + f"{i}" + " END" * 150 + " = 1" for i in range(7)
    ),
    "a COALESCE of many": f"coalesce({', '.join(f'nullif(n, {i})' for i in range(1_600))}) = 3",
    "many COALESCEs": " OR ".join(f"coalesce(nullif(n, {i}), m, {i}) = 3" for i in range(1_300)),
    "parentheses again and again": " OR ".join("(" * 180 + "n" + ")" * 180 + f" + 1 = {i}" for i in range(27)),
    "a concatenation of 4,900": " || ".join(["w"] * 4_900) + " = 'x'",
    "a long text": f"w = '{'x' * 1_900_000}'",
    "a long comment": f"/* {'x' * 1_900_000} */ n = 3",
    "many comments": "/* x */ " * 200_000 + "n = 3",
    "comments in comments": "/*" * 400_000 + "*/" * 400_000 + " n = 3",
    "nothing but parentheses": "( " * 200_000,
    "three thousand regular expressions": " OR ".join(f"regexp_matches(w, 'a{i}.*b')" for i in range(3_000)),
    "a CASE of five thousand": f"CASE {' '.join(f'WHEN n = {i} THEN {i + 1}' for i in range(5_000))} END = 3",
    "a hundred thousand ORs": " OR ".join(f"n = {i}" for i in range(100_000)),
    "a hundred thousand texts": " OR ".join(f"w = 'a{i}'" for i in range(100_000)),
    "6,000 in pairs": " OR ".join(f"n = {i} AND m = {i * 3}" for i in range(3_000)),
    "6,000 of two columns": " OR ".join(f"n = {i} OR w = 'a{i}'" for i in range(3_000)),
    "4,000 BETWEENs": " OR ".join(f"n BETWEEN {i * 3} AND {i * 3 + 1}" for i in range(4_000)),
    "1,000 sums and 4,600 plain": " OR ".join(f"n = {i} OR m < {i}" for i in range(2_300))
    + "".join(f" OR n + {i} = 3" for i in range(1_000)),
    "forty thousand decimals": f"n IN ({', '.join(f'{i}.5' for i in range(40_000))})",
}


def make(folder: Path) -> None:
    """Commit the statistics of a table of two kinds of files."""
    number = np.arange(FILES)
    single = number < FILES // 2
    words = ["a" * (i % 40) + str(i) for i in range(FILES - 2)] + ["a" * 4000, MARKS]
    types = {"w": pa.string(), "n": pa.int32(), "m": pa.int32(), "d": pa.date32()}
    lower = {
        "w": pa.array(words, pa.string()),
        "n": pa.array(number, pa.int32()),
        "m": pa.array(number % 1000, pa.int32()),
        "d": pa.array(number.astype(np.int32), pa.int32()).cast(pa.date32()),
    }
    upper = {
        "w": pc.if_else(pa.array(single | (number >= FILES - 2)), lower["w"], pa.scalar("b")),
        **{
            name: pa.array(lower[name].cast(pa.int32()).to_numpy() + np.where(single, 0, 900), pa.int32()).cast(type)
            for name, type in types.items()
            if name != "w"
        },
    }
    exact, none = pa.array(np.ones(FILES, bool)), pa.array(np.zeros(FILES, np.int64))
    columns = {name: ColumnStatistics(lower[name], upper[name], none, none, exact, exact) for name in types}
    units = FileStatistics(pa.array(np.full(FILES, 1000)), columns)
    names = pc.binary_join_element_wise("part-", pa.array(number).cast(pa.string()), ".parquet", "")
    data = DataFiles(
        names,
        pa.array(np.full(FILES, 100_000)),
        pa.nulls(FILES, pa.int64()),
        pa.nulls(FILES, pa.string()),
        units,
        units,
        np.arange(FILES + 1),
    )
    storage = open_storage(str(folder))
    details = {"source": "statistics"}
    commit(
        storage, None, TableUpdate("index", add=data, schema=Schema(pa.schema(types)), managed=False, details=details)
    )


def peak() -> float:
    """The most memory that this process has held since `forget_peak`, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def forget_peak() -> None:
    """Start anew to watch for the most memory (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only the predicates whose names hold these words")
    given = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        storage = open_storage(folder)
        index = Index(storage, load(storage))
        schema = index.snapshot.schema
        plan(index, bind("upper(w) = 'x' AND n % 7 = 3", schema))  # what a process does once
        print(f"{'predicate':<34} {'seconds':>8} {'wall':>8} {'MB':>6}   files kept of {FILES:,}")
        for name, text in PREDICATES.items():
            if given.only not in name:
                continue
            forget_peak()
            before, wall, busy = peak(), time.perf_counter(), time.process_time()
            try:
                found = f"{len(plan(index, bind(text, schema))):,}"
            except ZskipError as error:
                found = type(error).__name__
            busy, wall = time.process_time() - busy, time.perf_counter() - wall
            grown = peak() - before
            bad = busy > SECONDS or grown > MEGABYTES
            failed += bad
            verdict = "   TOO MUCH" if bad else ""
            print(f"{name:<34} {busy:>8.3f} {wall:>8.3f} {grown:>6.0f}   {found}{verdict}", flush=True)
    print(f"{failed} of {len(PREDICATES)} take more than {SECONDS} s or {MEGABYTES} MB")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
