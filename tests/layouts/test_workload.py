"""A workload moves the cuts to where its queries are, and what is read decides between layouts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import zskip
from zskip import advisor, layouts, pruning
from zskip.binder import bind
from zskip.binder.workload_sql import table_query
from zskip.core.schema import Schema
from zskip.errors import SqlError
from zskip.layouts.fitting import Widths, task_of
from zskip.stats import collect

ROWS, FILES = 20_000, 25
RNG = np.random.default_rng(3)
TABLE = pa.table(
    {
        "day": pa.array(RNG.integers(0, 365, ROWS)),
        "price": pa.array(np.where(RNG.random(ROWS) < 0.02, np.nan, RNG.normal(size=ROWS))),
        "city": pa.array([f"city {n:03}" for n in RNG.integers(0, 200, ROWS)]),
        "note": pa.array([None if n % 7 == 0 else f"n{n}" for n in RNG.integers(0, 50, ROWS)]),
    }
)
WORKLOAD = [f"day BETWEEN {d} AND {d + 6} AND city LIKE 'city 0%'" for d in range(0, 350, 50)] + [
    "city IN ('city 001', 'city 150') AND price > 1.5",
    "SELECT count(*) FROM t WHERE note = 'n3' OR day + 1 = 10",
]


def read(assignment, queries):
    """The share of rows in files that may match, by exact file statistics and the planner's own evaluator."""
    file = assignment.assign(TABLE)
    order = np.argsort(file, kind="stable")
    rows = np.bincount(file, minlength=assignment.files)
    schema = Schema(TABLE.schema)
    cuts = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)
    statistics = collect.row_groups(TABLE.take(pa.array(order)), cuts, schema).statistics()
    shares = []
    for text in queries:
        may = pruning.outcomes(bind(table_query(text, schema).condition, schema), statistics).may_match
        shares.append(rows[may].sum() / ROWS)
    return float(np.mean(shares))


def test_a_workload_is_read_less_when_the_layout_knows_it():
    plain = layouts.fit(TABLE, ["price", "note"], files=FILES, total_rows=ROWS)
    fitted = layouts.fit(TABLE, ["price", "note"], files=FILES, total_rows=ROWS, workload=WORKLOAD)
    assert read(fitted, WORKLOAD) < read(plain, WORKLOAD) * 0.5
    assert {"day", "city"} <= set(fitted.columns)


def test_a_workload_alone_chooses_the_columns():
    fitted = layouts.fit(TABLE, None, files=FILES, total_rows=ROWS, workload=WORKLOAD[:7])
    assert set(fitted.columns) == {"day", "city"}


def test_what_the_cost_expects_is_what_the_planner_reads():
    """On the whole data as its own sample, the model and the planner agree query by query, or the model is above."""
    task = task_of(TABLE, ["day"], files=FILES, weights=None, workload=WORKLOAD, total_rows=ROWS)
    fitted = layouts.fit(TABLE, ["day"], files=FILES, total_rows=ROWS, workload=WORKLOAD)
    file = fitted.assign(TABLE)
    boxes = task.sample.boxes(file, fitted.files)
    rows = np.bincount(file, minlength=fitted.files)
    expected = [rows[matched].sum() / ROWS for matched in task.queries.matches(boxes)]
    for text, share in zip(WORKLOAD, expected, strict=True):
        assert read(fitted, [text]) <= share + 1e-9
    assert np.mean(expected) == pytest.approx(read(fitted, WORKLOAD), abs=0.02)


def test_conditions_that_are_always_possible_do_no_harm():
    fitted = layouts.fit(
        TABLE, ["day"], files=5, total_rows=ROWS, workload=["note IS NULL", "day < price", "random() < 1"]
    )
    assert fitted.files == 5


def test_a_workload_that_does_not_parse_is_refused():
    for text in ("day = = 3", "SELECT FROM WHERE", "nope = 3"):
        with pytest.raises(SqlError):
            layouts.fit(TABLE, ["day"], files=2, total_rows=ROWS, workload=[text])


def test_values_that_the_sample_lacks_are_asked_for_all_the_same():
    wide = pa.table({"key": RNG.permutation(10**6)[:40_000], "other": RNG.permutation(10**6)[:40_000]})
    sample, rest = wide.slice(0, 4000), wide.slice(4000)
    queries = [f"key = {key}" for key in rest["key"].slice(0, 100).to_pylist()]
    fitted = layouts.fit(sample, ["other", "key"], files=20, total_rows=len(wide), workload=queries)
    score = layouts.score(sample, fitted, ["other", "key"], workload=queries)
    file = fitted.assign(rest)
    boxes = [rest["key"].filter(pa.array(file == number)).to_numpy() for number in range(fitted.files)]
    held = [(box.min(), box.max(), len(box) / len(rest)) for box in boxes]
    keys = [int(query.split()[-1]) for query in queries]
    read = [sum(share for low, high, share in held if low <= key <= high) for key in keys]
    expected = [share.rows for share in score.queries]
    assert min(expected) > 0.02
    assert np.mean(expected) == pytest.approx(np.mean(read), abs=0.02)
    assert np.mean(read) < 0.1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-- the first\nSELECT * FROM t WHERE day = 3", "day = 3"),
        ("/* select */ (\n select 1 from t where city = 'x')", "city = 'x'"),
        ("WITH a AS (SELECT * FROM t WHERE day < 5) SELECT * FROM a", "day < 5"),
        ("selected = 1", "selected = 1"),
        ("-- SELECT\nday = 3", "-- SELECT\nday = 3"),
        ("withheld IS NULL", "withheld IS NULL"),
    ],
)
def test_statements_are_told_from_predicates(text, expected):
    assert table_query(text, Schema(TABLE.schema)).condition == expected


def test_a_table_without_columns_to_lay_out_by_takes_those_of_its_workload(tmp_path):
    table = zskip.write(
        TABLE, tmp_path / "t", by=None, files=10, workload=["price < 3", "SELECT * FROM t WHERE day = 5"]
    )
    assert set(table._index.snapshot.layout.columns) == {"price", "day"}
    assert len(table.plan("day = 5").paths) < 10


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("WITH w AS (SELECT * FROM t WHERE day = 1) SELECT note FROM w WHERE price > 2", "day = 1 AND price > 2"),
        ("SELECT k FROM (SELECT day AS k, city FROM t) AS w WHERE w.k < 9 AND city = 'x'", "day < 9 AND city = 'x'"),
        ("SELECT * FROM (SELECT day + 1 AS d FROM t WHERE note = 'a' OR price = 1) WHERE d = 3",
         "(note = 'a' OR price = 1) AND (day + 1) = 3"),
        ("SELECT * FROM (SELECT day, sum(price) AS price FROM t GROUP BY day) WHERE price > 9 AND day = 2", "day = 2"),
        ("SELECT * FROM (SELECT * FROM t WHERE day = 1 LIMIT 5) WHERE price > 2", "day = 1"),
        ("WITH w AS (SELECT * FROM t WHERE day = 1) SELECT * FROM w JOIN w AS v USING (note) WHERE v.price = 2",
         "day = 1"),
        ("SELECT 1 FROM t AS x JOIN t AS y ON x.note = y.note WHERE x.day = 1 AND y.day = 2", "(day = 1) OR (day = 2)"),
        ("SELECT 1 FROM t JOIN u ON t.day = u.day WHERE t.day = u.day AND t.day = 1 AND city = 'x'",
         "day = 1 AND city = 'x'"),
        ("SELECT note FROM t WHERE day = 1 UNION ALL SELECT note FROM t WHERE price = 2", "(day = 1) OR (price = 2)"),
        ("SELECT 1 FROM t WHERE day = 1 AND EXISTS (FROM t AS v WHERE v.day = t.day AND v.price = 2)",
         "(day = 1) OR (price = 2)"),
    ],
)  # fmt: skip
def test_a_statement_is_one_query_with_the_conditions_that_reach_its_scans(text, condition):
    assert table_query(text, Schema(TABLE.schema)).condition == condition


# --- what a layout minimises for a workload is bytes: of the columns that each query names, row by row ---


DICE = np.random.default_rng(11)
ROWS = 8000
READ_TABLE = pa.table(
    {
        "a": pa.array(DICE.integers(0, 1000, ROWS), pa.int32()),
        "b": pa.array(DICE.integers(0, 1000, ROWS), pa.int32()),
        "wide": ["x" * 200] * ROWS,
    }
)
RANGES = [(low, low + 20) for low in range(0, 1000, 100)]
PLACE = pa.struct([("x", pa.int32()), ("y", pa.int32())])
SCHEMA = Schema(pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.string()), ("s", PLACE)]))


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a = 1", None),
        ("SELECT * FROM t WHERE a = 1", None),
        ("SELECT t.*, b FROM t WHERE a = 1", None),
        ("(SELECT * FROM t WHERE a = 1)", None),
        ("SELECT COLUMNS('b.*') FROM t WHERE a = 1", None),
        ("WITH x AS (SELECT * FROM t WHERE a < 5) SELECT * FROM x", None),
        ("SELECT count(*) FROM t WHERE a = 1", "a"),
        ("SELECT upper(C) FROM t WHERE t.a = 1 ORDER BY b", "a b c"),
        ("WITH x AS (SELECT * FROM t WHERE a < 5) SELECT sum(b) FROM x", "a b"),
        ("SELECT max(c) FROM (SELECT * FROM t WHERE b = 1)", "b c"),
        ("SELECT u.z FROM t JOIN u ON t.b = u.k WHERE a = 1", "a b"),
        ("SELECT s FROM t WHERE a = 1", "a s.x s.y"),
        ("SELECT t.s.x FROM t WHERE a = 1", "a s.x"),
    ],
)
def test_a_query_reads_the_columns_that_it_names(text, columns):
    query = table_query(text, SCHEMA)
    assert query is not None
    assert query.columns == (None if columns is None else frozenset(columns.split()))


def test_queries_weigh_by_the_bytes_that_they_read():
    """Fitted on queries of which one half reads 4 bytes a row and the other half 208, the layout serves the latter."""
    narrow = [f"SELECT count(*) FROM t WHERE a BETWEEN {low} AND {high}" for low, high in RANGES]
    wide = [f"SELECT * FROM t WHERE b BETWEEN {low} AND {high}" for low, high in RANGES]
    conditions = [query.split("WHERE ")[1] for query in (*narrow, *wide)]

    def read(workload):
        fitted = layouts.fit(READ_TABLE, None, files=25, workload=workload, total_rows=ROWS)
        shares = [share.rows for share in layouts.score(READ_TABLE, fitted, ["a"], workload=conditions).queries]
        return np.mean(shares[:10]), np.mean(shares[10:])

    even_a, even_b = read(conditions)
    assert even_a == pytest.approx(even_b, rel=0.5)
    narrow_read, wide_read = read([*narrow, *wide])
    assert wide_read < 0.5 * even_b
    assert narrow_read > 2 * wide_read


def test_rows_weigh_by_their_own_bytes():
    """Where some rows have a long text, their files are the smaller ones."""
    x, y = np.random.default_rng(5).integers(0, 1000, (2, ROWS))
    long = x < 100
    rows = pa.table({"x": x, "y": y, "text": ["y" * (5000 if each else 5) for each in long]})
    ranges = [(low, low + 4) for low in range(0, 1000, 50)]
    queries = [f"SELECT text FROM t WHERE {column} BETWEEN {low} AND {high}" for column in "xy" for low, high in ranges]
    weights = task_of(rows, ["x", "y"], files=20, weights=None, workload=queries, total_rows=ROWS).row_weights
    assert weights.mean() == pytest.approx(1)
    assert weights[long].min() > 100 * weights[~long].max()

    def bytes_read(workload):
        fitted = layouts.fit(rows, ["x", "y"], layout="tree", files=40, workload=workload, total_rows=ROWS)
        return layouts.score(rows, fitted, ["x", "y"], workload=queries).cost

    assert bytes_read(queries) < 0.8 * bytes_read([query.replace("text", "x, y") for query in queries])


def test_the_score_is_the_bytes_that_are_read():
    rows = pa.table({"k": pa.array([1, 2, 3, 4], pa.int32()), "t": ["", "1234", "12345678", "12345678"]})
    file = np.array([0, 0, 1, 1])
    workload = ["k = 1", "SELECT t FROM t WHERE k > 2", "SELECT max(k) FROM t WHERE k < 4"]
    score = layouts.score(rows, file, ["k"], workload=workload)
    # 16 bytes of k, 20 of t: file 0 holds 8 and 4
    assert [share.bytes for share in score.queries] == pytest.approx([12 / 36, 24 / 36, 1])
    assert [share.rows for share in score.queries] == [0.5, 0.5, 1.0]
    assert score.weights == pytest.approx([36 / 88, 36 / 88, 16 / 88])
    assert score.cost == score.bytes
    plain = layouts.score(rows, file, ["k"])
    assert plain.cost == plain.read == 0.5
    assert plain.bytes == pytest.approx((12 + 24) / 36 / 2)


def test_the_cost_of_a_box_is_the_expected_share_of_bytes():
    """What layouts are grown by is what they are scored by: chances of boxes times their bytes."""
    workload = ["SELECT a FROM t WHERE a < 300", "b > 900", "SELECT wide FROM t WHERE a = 5 AND b = 5"]
    task = task_of(READ_TABLE, ["a"], files=10, weights=None, workload=workload, total_rows=ROWS)
    file = READ_TABLE["a"].to_numpy() // 100
    rows = np.bincount(file)
    expected = (rows * task.reads(task.sample.boxes(file, 10))).sum() / ROWS
    assert layouts.score(READ_TABLE, file, ["a"], workload=workload).cost == pytest.approx(expected)


def test_the_advisor_ranks_by_bytes():
    narrow = [f"SELECT count(*) FROM t WHERE a BETWEEN {low} AND {high}" for low, high in RANGES]
    wide = [f"SELECT * FROM t WHERE b BETWEEN {low} AND {high}" for low, high in RANGES]
    advice = advisor.advise(READ_TABLE, [*narrow, *wide, *narrow], files=20, total_rows=ROWS, candidates=("linear",))
    # sorted by a alone, the wide queries read all; two thirds of the queries are narrow
    first = {candidate.by: candidate.read for candidate in advice.candidates}[("a",)]
    shares = Widths(READ_TABLE, (frozenset("a"), None)).weights
    assert first > 0.9
    assert shares[1] > 0.95


def test_the_advisor_answers_for_each_of_many_queries():
    queries = [f"a = {number}" for number in range(301)]
    advice = advisor.advise(READ_TABLE.slice(0, 1000), queries, files=5, total_rows=1000, candidates=("linear",))
    assert len(advice.candidates[0].queries) == len(advice.least_queries) == 301
    (group,) = advice.groups
    assert (group.condition, len(group.numbers)) == ("a = ?", 301)
