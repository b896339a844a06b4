"""Layouts: every row in one file, the same file however it comes, files within bounds."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import one_in
from zskip import curves, layouts
from zskip.errors import InvalidOption, NotOrderable, UnknownColumn, UnsupportedFormat
from zskip.layouts.cells import hilbert_cells, linear_cells, zorder_cells
from zskip.layouts.fitting import task_of
from zskip.layouts.greedy_tree import _literals, tree_cells
from zskip.layouts.reads import Sample, whole_read
from zskip.layouts.row_order import _Tiles

ROWS = 6000
FILES = 20


def rng(seed=0):
    return np.random.default_rng(seed)


SHAPES = {
    "uniform": lambda: rng().integers(0, 10**9, ROWS),
    "zipf": lambda: rng().zipf(1.3, ROWS).clip(max=10**6),
    "one heavy value": lambda: np.where(rng().random(ROWS) < 0.6, 7, rng(1).integers(0, 1000, ROWS)),
    "two values": lambda: rng().integers(0, 2, ROWS),
    "one value": lambda: np.zeros(ROWS, np.int64),
    "sorted": lambda: np.arange(ROWS),
    "all null": lambda: pa.nulls(ROWS, pa.int64()),
    "half null": lambda: pa.array(np.arange(ROWS), mask=rng().random(ROWS) < 0.5),
    "floats": lambda: np.where(rng().random(ROWS) < 0.1, np.nan, rng(1).normal(size=ROWS)),
    "strings": lambda: pa.array([f"10.0.{a}.{b}" for a, b in rng().integers(0, 256, (ROWS, 2))]),
}


def table(*names):
    columns = {name: pa.array(SHAPES[name]()) for name in names}
    # columns of one shape are turned against each other, and a column outside of by= tells rows apart
    return pa.table(
        {f"c{i}": values.take(pa.array(rng(i).permutation(ROWS))) for i, values in enumerate(columns.values())}
        | {"other": np.arange(ROWS)}
    )


def by(rows):
    return rows.column_names[:-1]


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("beside", [None, *(pytest.param(one, marks=pytest.mark.slow) for one in ("uniform", "zipf"))])
def test_files_stay_within_bounds(layout, shape, beside):
    rows = table(shape) if beside is None or beside == shape else table(shape, beside)
    assignment = layouts.fit(rows, by(rows), layout=layout, files=FILES, total_rows=ROWS)
    file = assignment.assign(rows)
    assert file.dtype == np.int64
    assert len(file) == ROWS
    sizes = np.bincount(file, minlength=assignment.files)
    assert len(sizes) == assignment.files <= FILES
    assert assignment.files >= FILES * 0.6
    assert sizes.min() >= ROWS / FILES / 2
    assert sizes.max() <= ROWS / FILES * 2


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_a_sample_keeps_the_bounds_of_the_whole(layout):
    rows = table("uniform", "zipf", "strings")
    sample = rows.take(pa.array(rng(5).choice(ROWS, 2000, replace=False)))
    assignment = layouts.fit(sample, by(rows), layout=layout, files=FILES, total_rows=ROWS)
    sizes = np.bincount(assignment.assign(rows), minlength=assignment.files)
    assert sizes.min() >= ROWS / FILES * 0.4
    assert sizes.max() <= ROWS / FILES * 2.2


@pytest.mark.parametrize(("layout", "shape"), one_in(3, layouts.LAYOUTS, SHAPES))
def test_the_same_row_goes_to_the_same_file(layout, shape):
    rows = table(shape, "uniform")
    assignment = layouts.fit(rows.slice(0, 1500), by(rows), layout=layout, files=FILES, total_rows=ROWS)
    file = assignment.assign(rows)
    order = rng(9).permutation(ROWS)
    assert np.array_equal(assignment.assign(rows.take(pa.array(order))), file[order])
    parts = [assignment.assign(batch) for batch in rows.to_batches(max_chunksize=777)]
    assert np.array_equal(np.concatenate(parts), file)
    singly = [assignment.assign(rows.slice(int(n), 1))[0] for n in order[:20]]
    assert singly == file[order[:20]].tolist()
    reloaded = layouts.from_json(json.loads(json.dumps(assignment.to_json())))
    assert np.array_equal(reloaded.assign(rows), file)
    assert reloaded.to_json() == assignment.to_json()


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_only_salt_may_part_equal_rows(layout):
    """A salted row stays in its cell, and within the cell's files, whatever comes with it."""
    rows = pa.table({"c0": pa.nulls(ROWS, pa.int64()), "other": pa.array(np.arange(ROWS) // 500)})
    assignment = layouts.fit(rows, ["c0"], layout=layout, files=FILES, total_rows=ROWS)
    assert assignment.cells.salt.max() > 1
    order = rng(9).permutation(ROWS)
    shuffled = rows.take(pa.array(order))
    cell = assignment.cell_of(rows)
    assert np.array_equal(assignment.cell_of(shuffled), cell[order])
    reloaded = layouts.from_json(json.loads(json.dumps(assignment.to_json())))
    for fitted, batch in ((assignment, shuffled), (reloaded, shuffled), (reloaded, shuffled.slice(77, 10))):
        within = fitted.assign(batch) - fitted.cells.first[fitted.cell_of(batch)]
        assert (within >= 0).all()
        assert (within < fitted.cells.salt[fitted.cell_of(batch)]).all()


@pytest.mark.parametrize(
    ("workload", "shape"), one_in(4, [None, ["c1 < 40", "c0 IS NOT NULL AND c1 BETWEEN 900 AND 5000"]], SHAPES)
)
def test_auto_is_the_best_of_its_candidates_on_the_sample(shape, workload):
    rows = table(shape, "uniform" if shape != "uniform" else "zipf").slice(0, 2000)

    def read(layout):
        fitted = layouts.fit(rows, by(rows), layout=layout, files=FILES, workload=workload, total_rows=ROWS)
        return layouts.score(rows, fitted, by(rows), workload=workload).cost

    assert read("auto") == min(read("tiles"), read("tree"))


@pytest.mark.parametrize(("columns", "bits"), [(2, 4), (3, 2), (4, 2)])
def test_cells_of_a_curve_stand_in_the_order_of_its_key(columns, bits):
    """A whole grid, each point a cell of its own: the cells' order is the curve's."""
    grid = np.array(list(itertools.product(range(1 << bits), repeat=columns)), np.uint64)
    grid = grid[rng().permutation(len(grid))]
    rows = pa.table({f"c{n}": axis for n, axis in enumerate(grid.T.astype(np.int64))})
    sample = task_of(rows, rows.column_names, files=2, weights=None, workload=None, total_rows=len(rows)).sample
    for cells_of, key in (
        (zorder_cells, curves.interleave(list(grid.T), bits)),
        (hilbert_cells, curves.hilbert_key(list(grid.T), bits)),
        (linear_cells, np.ravel_multi_index(grid.T.astype(np.int64), (1 << bits,) * columns)),
    ):
        cells = cells_of(sample, 1.0)
        assert cells.tree.cells == len(rows)
        assert np.array_equal(np.argsort(cells.cell), np.argsort(key)), cells_of


VALUES = st.one_of(st.none(), st.integers(-5, 5), st.integers(-(2**62), 2**62))
TEXT = st.one_of(st.none(), st.text(max_size=4))
FLOATS = st.one_of(st.none(), st.floats())


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(VALUES, TEXT, FLOATS), max_size=60),
    st.lists(st.tuples(VALUES, TEXT, FLOATS), max_size=20),
    st.sampled_from(list(layouts.LAYOUTS)),
    st.integers(1, 12),
)
def test_any_row_has_one_file(seen, unseen, layout, files):
    """Rows that the sample did not hold too; NULL, NaN and both zeros have their place."""
    types = {"a": pa.int64(), "b": pa.string(), "c": pa.float64()}

    def as_table(rows):
        return pa.table({n: pa.array([r[i] for r in rows], t) for i, (n, t) in enumerate(types.items())})

    assignment = layouts.fit(as_table(seen), list(types), layout=layout, files=files, total_rows=max(1, len(seen)))
    rows = as_table(seen + unseen)
    file = assignment.assign(rows)
    assert ((file >= 0) & (file < assignment.files)).all()
    assert assignment.files <= files
    zeros = [(a, b, -0.0 if c == 0 else c) for a, b, c in seen + unseen]
    assert np.array_equal(assignment.cell_of(as_table(zeros)), assignment.cell_of(rows))


def test_a_heavy_value_is_divided_by_the_other_columns_first():
    rows = table("one value", "uniform")
    assignment = layouts.fit(rows, by(rows), files=FILES, total_rows=ROWS)
    assert (assignment.cells.salt == 1).all()
    alone = layouts.fit(rows, ["c0"], files=FILES, total_rows=ROWS)
    assert alone.cells.salt.max() > 1


def test_salt_spreads_rows_that_are_equal_in_everything():
    rows = pa.table({"a": np.zeros(ROWS, np.int64)})
    assignment = layouts.fit(rows, ["a"], files=FILES, total_rows=ROWS)
    sizes = np.bincount(assignment.assign(rows), minlength=FILES)
    assert sizes.min() >= ROWS / FILES * 0.9


def test_salted_rows_are_told_apart_by_columns_of_any_type():
    text = pa.array([f"row {n}" for n in range(ROWS)])
    for arrow in (pa.string_view(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        rows = pa.table({"a": np.zeros(ROWS, np.int64), "text": text.cast(arrow)})
        assignment = layouts.fit(rows, ["a"], files=FILES, total_rows=ROWS)
        file = assignment.assign(rows)
        assert np.bincount(file, minlength=FILES).min() >= ROWS / FILES * 0.75
        assert np.array_equal(assignment.assign(rows.slice(100)), file[100:])


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"files": 0}, InvalidOption),
        ({"by": []}, InvalidOption),
        ({"by": ["nope"]}, UnknownColumn),
        ({"by": ["list"]}, NotOrderable),
        ({"weights": [1]}, InvalidOption),
        ({"weights": [0, 0]}, InvalidOption),
        ({"weights": [-1, 2]}, InvalidOption),
        ({"weights": [math.nan, 2]}, InvalidOption),
        ({"layout": "hillbert"}, InvalidOption),
    ],
)
def test_wishes_that_make_no_sense_are_refused(change, error):
    rows = pa.table({"a": [1, 2], "b": [3, 4], "list": [[1], [2]]})
    arguments = {"by": ["a", "b"], "files": 2, "total_rows": 2} | change
    with pytest.raises(error):
        layouts.fit(rows, arguments.pop("by"), **arguments)


def test_a_newer_form_is_refused():
    rows = table("uniform")
    tree = layouts.fit(rows, ["c0"], files=3, total_rows=ROWS).to_json()
    with pytest.raises(UnsupportedFormat):
        layouts.from_json(tree | {"format": 99})


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_a_single_file_has_all_rows(layout):
    sample = table("uniform", "strings", "half null")
    fitted = layouts.fit(sample, by(sample), layout=layout, files=1, weights=[2, 0, 1], total_rows=ROWS)
    assert fitted.files == 1
    assert not fitted.assign(sample).any()
    assert (fitted.layout, fitted.columns) == ("tiles" if layout == "auto" else layout, ("c0", "c2"))


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
@pytest.mark.parametrize("weights", [[1, 0], [0, 1]])
def test_weights_order_no_rows_of_one_row_group(layout, weights):
    sample = table("uniform", "strings").slice(0, 4096)
    order = layouts.fit(sample, by(sample), layout=layout, files=1, weights=weights, total_rows=4096).arrange(
        sample, 4096
    )
    assert layout == "linear" or np.array_equal(order, np.arange(4096))


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_the_order_inside_a_file_is_a_permutation(layout):
    sample = table("uniform", "strings", "half null")
    assignment = layouts.fit(sample, by(sample), layout=layout, files=4, total_rows=ROWS)
    for rows in (0, 1, 99, 100, 1000):
        order = assignment.arrange(sample.slice(0, rows), 100)
        assert np.array_equal(np.sort(order), np.arange(rows))


@pytest.mark.parametrize("row_groups", [1, 2, 7, 10])
def test_slabs_lead_to_the_row_groups_of_the_order_inside_a_file(row_groups):
    """Sort, count, sort again within what was counted off: the same rows in each row group."""
    random = np.random.default_rng(8)
    rows = pa.table({name: random.permutation(row_groups * 300) for name in ("a", "b", "c")})
    assignment = layouts.fit(rows, ["a", "b", "c"], layout="tiles", files=1, total_rows=len(rows))
    order = np.arange(len(rows))
    for level in assignment.slabs(rows, row_groups):
        unit = np.arange(len(rows)) // 300
        values = np.stack([np.asarray(rows[name]) for name in assignment.columns])[:, order]
        order = order[np.lexsort([values[level.column[unit], np.arange(len(rows))], level.first[unit]])]
    wanted = assignment.arrange(rows, 300)
    assert [set(part) for part in np.split(order, row_groups)] == [set(part) for part in np.split(wanted, row_groups)]


def test_slabs_of_a_file_that_the_sample_missed():
    sample = table("uniform", "strings")
    assignment = layouts.fit(sample, by(sample), layout="tiles", files=4, total_rows=ROWS)
    for rows in (0, 1, 3):
        levels = assignment.slabs(sample.slice(0, rows), 5)
        assert levels
        assert all(len(level.first) == len(level.column) == 5 for level in levels)
    assert assignment.slabs(sample, 1) == []


@pytest.mark.parametrize("entries", [1, 4, 100, 1 << 17])
def test_table_and_walk_agree_with_one_row_at_a_time(monkeypatch, entries):
    monkeypatch.setattr("zskip.layouts.assignment._GRID_ENTRIES", entries)
    rows = table("uniform", "half null", "strings")
    assignment = layouts.fit(rows, by(rows), layout="tree", files=FILES, total_rows=ROWS)
    tree, few = assignment.tree, rows.slice(0, 500)
    codes = [
        boundaries.codes(few.column(path))
        for path, boundaries in zip(assignment.columns, assignment.boundaries, strict=True)
    ]
    expected = []
    for row in range(len(few)):
        node = 0
        while node >= 0:
            above = codes[tree.column[node]][row] >= tree.threshold[node]
            node = int(tree.above[node] if above else tree.below[node])
        expected.append(~node)
    assert assignment.cell_of(few).tolist() == expected


def test_slabs_of_unequal_width_read_more_than_equal_ones():
    """Five files on two columns: a slab of two and one of three, 0.4 and 0.6 wide. Six files share evenly."""
    even, least = np.ones((1, 2)), np.zeros(2)
    one = (0.4**2 + 0.6**2) / 2
    other = (0.4 / 2 + 0.6 / 3) / 2
    assert whole_read(even, np.full(2, 0.5), np.array([5.0]), least) == pytest.approx([one + other])
    assert whole_read(even, np.full(2, 0.5), np.array([6.0]), least) == pytest.approx([(1 / 2 + 1 / 3) / 2])


def cut_one_by_one(sample, rows, cell_rows, reads, borders, literals):
    """The leaves of a tree in order, each cell split by itself, every candidate's rows counted by themselves."""
    if len(rows) <= cell_rows:
        return [rows]
    best = None
    for column, codes in enumerate(sample.codes):
        mine = np.sort(codes[rows])
        middle = mine[np.arange(1, 16) * len(mine) // 16]
        inside = borders[column][(borders[column] > mine[0]) & (borders[column] <= mine[-1])]
        places = {int((mine < m).sum()) for m in middle} | {int((mine <= m).sum()) for m in middle}
        places |= {int((mine < b).sum()) for b in inside[:: max(1, len(inside) // literals)]}
        for place in sorted(places - {0, len(mine)}):
            high = codes[rows] >= mine[place]
            part = Sample(
                sample.columns, *(tuple(v[rows] for v in each) for each in (sample.codes, sample.codes_null_last)),
                sample.distinct, sample.cdf,
            )  # fmt: skip
            read = reads(part.boxes(high.astype(int), 2))
            cost = (~high).sum() * read[0] + high.sum() * read[1]
            if best is None or cost < best[0]:
                best = cost, rows[~high], rows[high]
    if best is None:
        return [rows]
    return [leaf for side in best[1:] for leaf in cut_one_by_one(sample, side, cell_rows, reads, borders, literals)]


def test_literals_are_chosen_evenly_in_each_cell(monkeypatch):
    monkeypatch.setattr("zskip.layouts.greedy_tree._LITERALS", 3)
    borders, codes = np.array([2, 3, 5, 7, 11, 13, 17, 19, 23, 29], np.int32), 40
    least, most = np.array([1, 3, 12, 8]), np.array([29, 11, 12, 9])
    cell = np.arange(4) * codes
    inside = [borders[(borders > low) & (borders <= high)] for low, high in zip(least, most, strict=True)]
    expected = [cell[n] + code for n, some in enumerate(inside) for code in some[:: max(1, len(some) // 3)]]
    assert _literals(borders, cell + least, cell + most, codes).tolist() == expected


ASKED = ["c0 BETWEEN 100 AND 400000000", "c1 = '10.0.7.9' OR c2 > 17"]
ASKED += [f"c2 BETWEEN {n} AND {n + 100}" for n in range(0, 6000, 300)]


@pytest.mark.parametrize(("workload", "at_once", "literals"), [(None, 50, 3), (ASKED, 1 << 16, 64), (ASKED, 50, 3)])
def test_a_level_at_once_is_cut_as_cell_by_cell(monkeypatch, workload, at_once, literals):
    monkeypatch.setattr("zskip.layouts.greedy_tree._LITERALS", literals)
    monkeypatch.setattr("zskip.layouts.greedy_tree._ROWS_AT_ONCE", at_once)
    monkeypatch.setattr("zskip.layouts.greedy_tree._BOXES_AT_ONCE", at_once)
    rows = table("uniform", "strings", "half null", "one heavy value").slice(0, 200)
    task = task_of(rows, by(rows), files=5, weights=[4, 3, 2, 1], workload=workload, total_rows=200)
    borders = task.queries.borders if task.queries else [np.empty(0, np.int32)] * 4
    cells = tree_cells(task.sample, 15.0, task.reads, task.queries.borders if task.queries else None)
    leaves = cut_one_by_one(task.sample, np.arange(200), 15.0, task.reads, borders, literals)
    assert len(leaves) == cells.tree.cells
    expected = np.empty(200, np.int32)
    for number, leaf in enumerate(leaves):
        expected[leaf] = number
    assert np.array_equal(cells.cell, expected)
    node = np.zeros(200, np.int64)  # and the tree leads every row to its cell
    while (node >= 0).any():
        walking = np.flatnonzero(node >= 0)
        here = node[walking]
        codes = np.stack(task.sample.codes)[cells.tree.column[here], walking]
        node[walking] = np.where(codes >= cells.tree.threshold[here], cells.tree.above[here], cells.tree.below[here])
    assert np.array_equal(~node, expected)


@given(
    values=st.lists(st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 9), st.just(2**63)), min_size=2, max_size=200),
    places=st.lists(st.integers(1, 199), min_size=1, max_size=6),
)
def test_parts_are_those_of_a_partition(values: list[int], places: list[int]) -> None:
    column = np.array(values, np.uint64)
    ends = np.unique(np.minimum(places, len(column) - 1))
    tiles = _Tiles([column], np.zeros((1, len(column)), np.int64), 1, np.ones(1))
    rows = np.arange(len(column))[::-1]
    parted = tiles.partition(0, rows, ends)
    assert sorted(parted) == sorted(rows)
    for end in ends:
        assert column[parted[:end]].max() <= column[parted[end:]].min()
