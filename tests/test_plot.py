"""Pictures say what the statistics say."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from zskip import layouts, plot
from zskip.errors import InvalidOption
from zskip.schema import Schema
from zskip.stats import collect

ROWS = pa.table(
    {
        "n": pa.array([1, 2, 3, 4, None, None]),
        "day": pa.array([dt.date(2024, 1, day) for day in range(1, 7)]),
        "text": pa.array(list("abcdef")),
    }
)
STATISTICS = collect.row_groups(ROWS, np.array([0, 2, 4, 6]), Schema(ROWS.schema)).statistics()


def test_boxes_stand_where_the_ranges_are():
    figure = plot.boxes(STATISTICS, "n", "text", survivors=np.array([False, True, True]), title="two columns")
    axes = figure.axes[0]
    skipped, read = axes.collections
    # the third unit holds only NULL in n, and has no place to be drawn at
    assert [path.get_extents().bounds for path in skipped.get_paths()] == [(1.0, 1.0, 1.0, 1.0)]
    assert [path.get_extents().bounds for path in read.get_paths()] == [(3.0, 3.0, 1.0, 1.0)]
    assert axes.get_title() == "two columns: 2 of 3 read"


@pytest.mark.parametrize("name", ["a.png", "a.svg"])
def test_pictures_are_saved_by_their_ending(tmp_path, name):
    path = plot.save(plot.boxes(STATISTICS, "day", "text"), tmp_path / name)
    assert path.stat().st_size > 1000


def test_a_depth_histogram_has_a_part_for_each_column():
    figure = plot.depth_histogram(layouts.depths(STATISTICS, ["n", "day"]))
    assert [axes.get_title() for axes in figure.axes] == ["n: 1.0 of 3 on average", "day: 1.0 of 3 on average"]


def test_what_cannot_be_drawn_is_refused(tmp_path):
    with pytest.raises(InvalidOption):
        plot.boxes(STATISTICS, "n", "nope")
    with pytest.raises(InvalidOption):
        plot.save(plot.boxes(STATISTICS, "n", "day"), tmp_path / "a.nope")
