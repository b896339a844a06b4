"""What a layout minimises for a workload is bytes: of the columns that each query names, row by row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from zskip import advisor, layouts
from zskip.binder.workload_sql import table_query
from zskip.core.schema import Schema
from zskip.layouts.fitting_task import Widths, task_of

RNG = np.random.default_rng(11)
ROWS = 8000
TABLE = pa.table(
    {
        "a": pa.array(RNG.integers(0, 1000, ROWS), pa.int32()),
        "b": pa.array(RNG.integers(0, 1000, ROWS), pa.int32()),
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
        fitted = layouts.fit(TABLE, None, files=25, workload=workload, total_rows=ROWS)
        shares = [share.rows for share in layouts.score(TABLE, fitted, ["a"], workload=conditions).queries]
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


def test_even_queries_of_even_rows_cost_their_rows():
    rows = TABLE.select(["a", "b"])
    workload = [f"a BETWEEN {low} AND {high}" for low, high in RANGES]
    fitted = layouts.fit(rows, ["b"], files=10, workload=workload, total_rows=ROWS)
    score = layouts.score(rows, fitted, ["b"], workload=workload)
    assert score.cost == pytest.approx(score.read)


def test_the_cost_of_a_box_is_the_expected_share_of_bytes():
    """What layouts are grown by is what they are scored by: chances of boxes times their bytes."""
    workload = ["SELECT a FROM t WHERE a < 300", "b > 900", "SELECT wide FROM t WHERE a = 5 AND b = 5"]
    task = task_of(TABLE, ["a"], files=10, weights=None, workload=workload, total_rows=ROWS)
    file = TABLE["a"].to_numpy() // 100
    rows = np.bincount(file)
    expected = (rows * task.reads(task.sample.boxes(file, 10))).sum() / ROWS
    assert layouts.score(TABLE, file, ["a"], workload=workload).cost == pytest.approx(expected)


def test_the_advisor_ranks_by_bytes():
    narrow = [f"SELECT count(*) FROM t WHERE a BETWEEN {low} AND {high}" for low, high in RANGES]
    wide = [f"SELECT * FROM t WHERE b BETWEEN {low} AND {high}" for low, high in RANGES]
    advice = advisor.advise(TABLE, [*narrow, *wide, *narrow], files=20, total_rows=ROWS, candidates=("linear",))
    # sorted by a alone, the wide queries read all; two thirds of the queries are narrow
    first = {candidate.by: candidate.read for candidate in advice.candidates}[("a",)]
    shares = Widths(TABLE, (frozenset("a"), None)).weights
    assert first > 0.9
    assert shares[1] > 0.95


def test_the_advisor_answers_for_each_of_many_queries():
    queries = [f"a = {number}" for number in range(301)]
    advice = advisor.advise(TABLE, queries, files=5, total_rows=ROWS, candidates=("linear",))
    assert len(advice.candidates[0].queries) == len(advice.least_queries) == 301
    (group,) = advice.groups
    assert (group.condition, len(group.numbers)) == ("a = ?", 301)
