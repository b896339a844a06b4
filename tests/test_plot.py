"""Pictures say what the statistics say."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import zskip
from zskip import layouts, plot
from zskip.core.schema import Schema
from zskip.errors import InvalidOption
from zskip.stats import collect

ROWS = pa.table(
    {
        "n": pa.array([1, 2, 3, 4, None, None]),
        "day": pa.array([dt.date(2024, 1, day) for day in range(1, 7)]),
        "text": pa.array(list("abcdef")),
        "raw.bytes": pa.array([bytes([n, 255]) for n in range(6)]),
    }
)
STATISTICS = collect.row_groups(ROWS, np.array([0, 2, 4, 6]), Schema(ROWS.schema)).statistics()


def drawn(chart):
    """The rectangles: their ends on both axes, their state, what hovering shows."""
    tree = chart.to_dict()
    fields = [(tip["field"], tip["title"]) for tip in tree["encoding"]["tooltip"]]
    return [
        (
            (unit["left"], unit["right"], unit["bottom"], unit["top"]),
            unit["state"],
            {name: unit[field] for field, name in fields},
        )
        for unit in tree["datasets"][tree["data"]["name"]]
    ]


def test_boxes_stand_where_the_ranges_are():
    files = {"file": pa.array(["a", "b", "c"])}
    chart = plot.boxes(
        STATISTICS, "n", "text", survivors=np.array([True, False, True]), title="two columns", details=files
    )
    # the third unit holds only NULL in n, and has no place to be drawn at; what is lit lies on top
    assert drawn(chart) == [
        ((3.0, 4.0, 3.0, 4.0), "skipped", {"file": "b", "rows": 2, "n": "3 to 4", "text": "c to d"}),
        ((1.0, 2.0, 1.0, 2.0), "read", {"file": "a", "rows": 2, "n": "1 to 2", "text": "a to b"}),
    ]
    tree = chart.to_dict()
    assert tree["title"] == {"text": "two columns", "subtitle": "2 of 3 read, 66.7% of the rows"}
    labels = tree["encoding"]["y"]["axis"]
    assert json.loads(labels["labelExpr"].removesuffix("[datum.value]")) == {
        str(n): letter for n, letter in ((1, "a"), (2, "b"), (3, "c"), (4, "d"), (6, "f"))
    }


def test_labels_of_axes_are_short(tmp_path: Path) -> None:
    rows = pa.table({"url": [f"https://example.org/{name}" for name in "ab"], "n": [1, 10**15]})
    tree = zskip.write(rows, tmp_path / "t", by=["n"], files=2).plot("url", "n").to_dict()["encoding"]
    assert tree["x"]["axis"]["labelExpr"] == '{"1": "\\u2026a", "2": "\\u2026b"}[datum.value]'
    assert tree["y"]["axis"]["format"] == "~e"


def test_times_stand_on_an_axis_of_time():
    (first, *_) = drawn(chart := plot.boxes(STATISTICS, "day", '"raw.bytes"'))
    january = dt.datetime(2024, 1, 1, tzinfo=dt.UTC).timestamp() * 1000
    assert first[0] == (january, january + 86_400_000, 1.0, 2.0)
    assert first[2] == {"rows": 2, "day": "2024-01-01 to 2024-01-02", '"raw.bytes"': "00ff to 01ff"}
    assert chart.to_dict()["encoding"]["x"]["type"] == "temporal"
    assert chart.to_dict()["title"] == {"text": "3 boxes"}


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.pdf"])
def test_pictures_are_saved_by_their_ending(tmp_path, name):
    path = plot.save(plot.boxes(STATISTICS, "day", "text"), tmp_path / name)
    assert path.read_bytes()[:4] in (b"\x89PNG", b"<svg", b"%PDF")


def test_a_page_shows_bounds_under_the_pointer_without_a_network(tmp_path):
    table = zskip.write(ROWS, tmp_path / "table", by=["n", "text"], files=2)
    page = plot.save(table.plot("n", "text", where="n = 4"), tmp_path / "a.html").read_text(encoding="utf-8")
    assert all(path in page for path in table._index.paths(np.arange(2)).to_pylist())
    assert "1 of 2 read" in page
    assert "<script src=" not in page


def test_a_depth_histogram_has_a_part_for_each_column(tmp_path):
    tree = plot.depth_histogram(layouts.depths(STATISTICS, ["n", "day"])).to_dict()
    parts = tree["hconcat"]
    assert [part["title"]["text"] for part in parts] == ["n", "day"]
    assert tree["datasets"][parts[0]["data"]["name"]] == [{"units": "1", "share": 1.0}]
    assert parts[1]["title"]["subtitle"][0] == "1.0 of 3 units on average, 1 at worst"
    table = zskip.write(ROWS, tmp_path / "table", by=["n"], files=2)
    assert [part["title"]["text"] for part in table.plot(depth=True).to_dict()["hconcat"]] == ["n"]
    assert [part["title"]["text"] for part in table.plot("text", depth=True).to_dict()["hconcat"]] == ["text"]


def test_what_cannot_be_drawn_is_refused(tmp_path):
    with pytest.raises(InvalidOption):
        plot.boxes(STATISTICS, "n", "nope")
    with pytest.raises(InvalidOption):
        plot.save(plot.boxes(STATISTICS, "n", "day"), tmp_path / "a.nope")
    with pytest.raises(InvalidOption, match="no folder"):
        plot.save(plot.boxes(STATISTICS, "n", "day"), tmp_path / "nodir" / "a.svg")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("seconds", "label"),
    [
        (5, "[utcFormat(datum.value, '%H:%M:%S.%L'), utcFormat(datum.value, '%Y-%m-%d')]"),
        (50, "[utcFormat(datum.value, '%H:%M:%S'), utcFormat(datum.value, '%Y-%m-%d')]"),
        (40_000, "[utcFormat(datum.value, '%H:%M'), utcFormat(datum.value, '%Y-%m-%d')]"),
        (40 * 86_400, "utcFormat(datum.value, '%Y-%m-%d')"),
        (300 * 86_400, "utcFormat(datum.value, '%Y-%m')"),
    ],
)
def test_an_axis_of_time_has_hours_of_24_and_the_date(seconds: int, label: str, tmp_path: Path) -> None:
    start = dt.datetime(2018, 3, 24, 17, 15, 1)
    times = [start, start + dt.timedelta(seconds=seconds)]
    table = zskip.write(pa.table({"t": times, "a": [1, 2]}), tmp_path / "t", by="t", files=2)
    assert table.plot("t", "a").to_dict()["encoding"]["x"]["axis"]["labelExpr"] == label


def test_characters_that_the_renderer_dies_of_are_not_drawn(tmp_path: Path) -> None:
    name, text = "a\nb\\", "x\x1b\x00\uffff"
    table = zskip.write(pa.table({name: [text, "y", "z"], "k": [1, 2, 3]}), tmp_path / "t", by=[name, "k"], files=2)
    chart = table.plot(name, "k")
    spec = json.dumps(chart.to_dict(), ensure_ascii=False)
    assert not any(json.dumps(bad)[1:-1] in spec or bad in spec for bad in (text[1], text[2], text[3], name))
    assert "x���" in plot.save(chart, tmp_path / "p.svg").read_text(encoding="utf-8")
    assert "<svg" in table.plan("k = 1")._repr_html_()
