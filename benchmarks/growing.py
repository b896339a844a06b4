"""Tables that grow night by night, beside a full rewrite each night; and upserts by key, beside deltalake's merge.

python benchmarks/growing.py [--case NAME …] [--rows 1000000]

Look-ups of values drawn from the rows are asked of the ranges of the table's own files, after appends and `optimize`,
and of the files of a layout that is fitted to all rows up to then. A file has 200 rows.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from targets import at_least, at_most

import zskip
from zskip import layouts

_FILE = 200
_BY = ["ts", "user"]
_DAY = 1_000_000
_MEASURED = 20  # nights of each case


@dataclass(frozen=True)
class Case:
    """``nights``: the rows of each, the first of which makes the table · ``limit``: the most files that one night may
    rewrite, given as bytes · the rest: the wanted figures."""

    nights: Callable[[], Iterator[pa.Table]]
    read: float
    written: float | None = None
    opened: float | None = None
    limit: int | None = None


def night(number: int, rows: int, seed: int = 0, users: np.ndarray | None = None) -> pa.Table:
    """The rows of one night, in the order of time."""
    dice = np.random.default_rng([seed, number])
    user = dice.integers(0, 10_000, rows) if users is None else dice.choice(users, rows)
    return pa.table({"ts": np.sort(dice.integers(number * _DAY, (number + 1) * _DAY, rows)), "user": user})


def by_time(nights: int, files: float) -> Iterator[pa.Table]:
    return (night(number, max(1, round(files * _FILE))) for number in range(nights))


def hot(nights: int) -> Iterator[pa.Table]:
    users = np.concatenate([np.full(3_000, 7), np.arange(7_000)])  # three of ten rows are one user's
    return (night(number, _FILE, users=users) for number in range(nights))


def with_base(nights: int) -> Iterator[pa.Table]:
    yield pa.concat_tables(by_time(30, 5))
    yield from (night(number, _FILE) for number in range(30, 30 + nights))


def bulk(nights: int) -> Iterator[pa.Table]:
    """Ten per cent night by night, then the bulk of ninety."""
    yield from by_time(nights, 1)
    yield pa.concat_tables([night(number, 9 * _FILE) for number in range(nights, 2 * nights)])
    yield from (night(number, _FILE) for number in range(2 * nights, 2 * nights + 5))


def late(nights: int) -> Iterator[pa.Table]:
    """A tenth of the rows come up to thirty nights late."""
    held: list[pa.Table] = []
    dice = np.random.default_rng(5)
    for number in range(nights):
        rows = night(number, _FILE)
        held.append(rows.slice(0, _FILE // 10))
        came = [held[at] for at in sorted(dice.integers(max(0, number - 30), number + 1, 1).tolist())]
        yield pa.concat_tables([rows.slice(_FILE // 10), *came])


def backwards(nights: int) -> Iterator[pa.Table]:
    return (night(number, _FILE) for number in reversed(range(nights)))


def at_random(nights: int) -> Iterator[pa.Table]:
    rows = pa.concat_tables(by_time(nights, 1))
    order = np.random.default_rng(6).permutation(rows.num_rows)
    return (rows.take(pa.array(order[at : at + _FILE])) for at in range(0, rows.num_rows, _FILE))


CASES: Mapping[str, Case] = {
    "by time, 300 × 0.02 files": Case(lambda: by_time(300, 0.02), 1.3),
    "by time, 1000 × 0.02": Case(lambda: by_time(1000, 0.02), 1.3),
    "by time, 300 × 0.2": Case(lambda: by_time(300, 0.2), 1.3),
    "by time, 200 × 1": Case(lambda: by_time(200, 1), 1.3, 3.6, 1.6),
    "by time, 60 × 5": Case(lambda: by_time(60, 5), 1.3),
    "by time, 60 × 5, 20 files a night": Case(lambda: by_time(60, 5), 1.3, limit=20),
    "a hot user": Case(lambda: hot(100), 1.3),
    "a base of 30 days": Case(lambda: with_base(60), 1.3),
    "bulk of 90 % after 10 %": Case(lambda: bulk(40), 1.3),
    "a tenth late": Case(lambda: late(200), 1.6),
    "backfill backwards": Case(lambda: backwards(200), 1.4),
    "random, 200 × 1": Case(lambda: at_random(200), 2.2, None, 2.2),
    "random, 200 × 1, 20 files a night": Case(lambda: at_random(200), 3.2, limit=20),
    "random, 600 × 1": Case(lambda: at_random(600), 2.2, 4.6),
}


def look_ups(lower: np.ndarray, upper: np.ndarray, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The rows and the files that look-ups of these values read on average. ``lower``, ``upper``: of each file."""
    reads = (lower <= values[:, None]) & (values[:, None] <= upper)
    return np.array([(reads @ rows).mean(), reads.sum(axis=1).mean()])


def measured(ranges: Mapping[str, tuple[np.ndarray, np.ndarray]], counts: np.ndarray, rows: pa.Table) -> np.ndarray:
    drawn = rows.take(pa.array(np.random.default_rng(9).integers(0, rows.num_rows, 400)))
    figures = [look_ups(*ranges[name], counts, np.asarray(drawn[name])) for name in _BY]
    return np.asarray(np.mean(figures, axis=0))


def of_table(table: zskip.Table, rows: pa.Table) -> np.ndarray:
    statistics = table._index.files(None, _BY).statistics
    ranges = {name: (np.asarray(one.lower), np.asarray(one.upper)) for name, one in statistics.columns.items()}
    return measured(ranges, np.asarray(statistics.row_count), rows)


def of_full(rows: pa.Table) -> tuple[np.ndarray, int]:
    number = layouts.fit(rows, _BY, files=-(-rows.num_rows // _FILE), total_rows=rows.num_rows).assign(rows)
    order = np.argsort(number, kind="stable")
    starts = np.flatnonzero(np.diff(number[order], prepend=-1))
    values = {name: np.asarray(rows[name])[order] for name in _BY}
    ranges = {
        name: (np.minimum.reduceat(each, starts), np.maximum.reduceat(each, starts)) for name, each in values.items()
    }
    return measured(ranges, np.diff(starts, append=len(order)), rows), len(starts)


def grow(name: str, case: Case) -> None:
    """Print what look-ups read over the nights, and what that cost."""
    nights = list(case.nights())
    step = max(1, len(nights) // _MEASURED)
    ours, full, written = [], [], 0
    worst = (0.0, 0)  # the share of the files that one night rewrites, of more than 50, and how many there were
    with tempfile.TemporaryDirectory() as folder:
        table = zskip.write(nights[0], folder + "/t", by=_BY, rows_per_file=_FILE)
        known = set(table.plan().scan.relative_paths)
        for number, rows in enumerate(nights[1:], 1):
            table.append(rows)
            before = len(table._index)
            size = table._index.snapshot.totals.bytes or 0
            done = table.optimize(max_bytes=None if case.limit is None else case.limit * size // before)
            everything = np.arange(len(table._index))
            paths, held = table._index.paths(everything), table._index.row_counts(everything)
            now = dict(zip(paths.to_pylist(), held.to_pylist(), strict=True))
            written += sum(rows_held for path, rows_held in now.items() if path not in known)
            known = set(now)
            if before > 50:
                worst = max(worst, (done.files_rewritten / before, before))
            if number % step == 0 or number == len(nights) - 1:
                so_far = pa.concat_tables(nights[: number + 1])
                figure, files = of_full(so_far)
                ours.append(of_table(table, so_far))
                full.append(figure)
        if case.limit is None:
            assert table.optimize().files_rewritten == 0, "a second optimize changes nothing"
        count = len(table._index)
    read, opened = np.mean(ours, axis=0) / np.mean(full, axis=0)
    appended = sum(rows.num_rows for rows in nights)
    at_most(case.read, float(read), f"{name}: rows read by look-ups, averaged over the nights, of a full rewrite's")
    per_row = (written + nights[0].num_rows) / appended
    if case.written is not None:
        at_most(case.written, per_row, f"{name}: rows written for each row appended")
    else:
        print(f"      {name}: {per_row:.2f} rows written for each row appended")
    if case.opened is not None:
        at_most(case.opened, float(opened), f"{name}: files opened by a look-up, of a full rewrite's")
    at_most(1.2, count / files, f"{name}: files, of a full rewrite's")
    if case.limit is not None:
        at_most(0.5, worst[0], f"{name}: of {worst[1]} files, the most rewritten in one night")
    else:
        print(f"      {name}: at most {worst[0]:.0%} of {worst[1]} files rewritten in one night", flush=True)


def sharp(nights: int, rows: int) -> None:
    """Print what look-ups by user skip after a batch each night, beside a full rewrite."""
    with tempfile.TemporaryDirectory() as folder:
        table = zskip.write(night(0, rows), folder + "/t", by=_BY, rows_per_file=1_000)
        for number in range(1, nights + 1):
            table.append(night(number, rows))
            table.optimize()
        skipped = table.clustering()["user"].skipped
        table.optimize(full=True)
        at_least(
            0.9,
            skipped / table.clustering()["user"].skipped,
            f"{nights} nights of {rows:,}: skipped by user, of what full=True gives",
        )


# --- upserts ---


def cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def merge(path: Path, rows: pa.Table) -> None:
    import deltalake

    merger = deltalake.DeltaTable(path).merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


def upserts(rows: int) -> None:
    """Print the processor time of upserts beside deltalake's merge of the same rows."""
    import deltalake

    dice = np.random.default_rng(1)

    def made(ids: np.ndarray) -> pa.Table:
        values = {f"v{number}": dice.random(len(ids)) for number in range(4)}
        return pa.table({"id": ids, "ts": ids * 10, "name": [f"n{one % 1000}" for one in ids.tolist()], **values})

    whole = made(np.arange(rows))
    newest = np.arange(rows - rows // 20, rows)
    batches = {
        "newest 5 %, 10,000 keys": (0.4, [made(dice.choice(newest, 10_000, replace=False))]),
        "newest 5 %, 20 batches of 1,000": (
            0.5,
            [made(dice.choice(newest, 1_000, replace=False)) for _ in range(20)],
        ),
        "spread over the whole table, 10,000 keys": (1.1, [made(dice.choice(rows, 10_000, replace=False))]),
    }
    for name, (wanted, given) in batches.items():
        with tempfile.TemporaryDirectory() as folder:
            here = Path(folder)
            table = zskip.write(whole, here / "ours", by=["ts"], files=100, sketches={"id": "values"})
            size = -(-rows // 100)
            starts = range(0, rows, size)
            for start in starts:
                deltalake.write_deltalake(here / "theirs", whole.slice(start, size), mode="append")
            ours = cpu(lambda: [table.upsert(each, on="id") for each in given])  # noqa: B023
            theirs = sum(cpu(partial(merge, here / "theirs", each)) for each in given)
            assert table.count() == rows
            at_most(wanted, ours / theirs, f"upserts, {name}: processor time, of deltalake's ({ours:.2f} s)")


def deletes() -> None:
    """Print how the time of a delete by a list of ids grows with the list."""
    with tempfile.TemporaryDirectory() as folder:
        ids = np.random.default_rng(2).permutation(500_000)
        seconds = []
        for count in (1_000, 10_000):
            rows = pa.table({"id": ids, "ts": np.arange(len(ids))})
            table = zskip.write(rows, f"{folder}/{count}", by="ts", files=1_000)
            seconds.append(cpu(lambda: table.delete(f"id IN ({', '.join(map(str, ids[:count]))})")))  # noqa: B023
        at_most(3, seconds[1] / seconds[0], f"delete of 10,000 ids in 1,000 files, of 1,000 ids ({seconds[1]:.1f} s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*CASES, "user", "upserts", "deletes"]
    parser.add_argument("--case", choices=names, action="append", help="only this one; may be repeated")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the table that is upserted into")
    given = parser.parse_args()
    for name in given.case or names:
        if name == "user":
            sharp(59, 1_000)
            sharp(39, 5_000)
        elif name == "upserts":
            upserts(given.rows)
        elif name == "deletes":
            deletes()
        else:
            grow(name, CASES[name])


if __name__ == "__main__":
    main()
