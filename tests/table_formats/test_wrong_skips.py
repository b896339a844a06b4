"""Statistics of logs by which others lost rows: each file is made so, and no row is lost."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import zskip
from tests.table_formats.logs import changed_commit, first_commit, not_yet_made, require_same
from zskip.table_formats.iceberg import decoded

MOMENT = dt.datetime(2024, 1, 1, 0, 0, 0, 123_456, tzinfo=dt.UTC)
NAN = float("nan")


def rewritten(path: Path, change: dict[str, Any]) -> None:
    """Put other statistics into the only file's action; None takes a statistic out."""
    with changed_commit(first_commit(path)) as actions:
        (add,) = (action["add"] for action in actions if "add" in action)
        stats = json.loads(add["stats"])
        for kind, value in change.items():
            if value is None:
                stats.pop(kind)
            else:
                stats[kind] = {**stats.get(kind, {}), **value} if isinstance(value, dict) else value
        add["stats"] = json.dumps(stats)


@pytest.mark.parametrize(
    ("values", "type", "change", "predicate", "found"),
    [
        ([1.0, NAN], pa.float64(), {"maxValues": {"x": 1.0}}, "x > 5", 1),
        ([1.0, NAN], pa.float64(), {"minValues": {"x": "NaN"}, "maxValues": {"x": "NaN"}}, "x = 1", 1),
        ([1, 9], pa.int64(), {"minValues": {"x": 9}, "maxValues": {"x": 1}}, "x = 9", 1),
        (
            [MOMENT],
            pa.timestamp("us", "UTC"),
            {"maxValues": {"x": "2024-01-01T00:00:00.123Z"}},
            f"x = TIMESTAMPTZ '{MOMENT}'",
            1,
        ),
        ([1, None], pa.int64(), {"nullCount": None}, "x IS NULL", 1),
        ([None, None], pa.int64(), {"nullCount": {"x": 2}}, "x IS NULL", 2),
        ([1, 2], pa.int64(), {"minValues": None, "maxValues": None}, "x = 2", 1),
        ([1, 2], pa.int64(), {"nullCount": {"x": 7}}, "x IS NOT NULL", 2),
        (
            [Decimal("12345678901234567.89")],
            pa.decimal128(19, 2),
            {"minValues": {"x": 1.2345678901234566e16}, "maxValues": {"x": 1.2345678901234566e16}},
            "x = 12345678901234567.89",
            1,
        ),
        ([-0.0], pa.float64(), {"minValues": {"x": 0.0}, "maxValues": {"x": 0.0}}, "x = 0", 1),
    ],
)
def test_bad_statistics_lose_no_row(
    tmp_path: Path, values: list[Any], type: pa.DataType, change: dict[str, Any], predicate: str, found: int
) -> None:
    write_deltalake(tmp_path / "t", pa.table({"x": pa.array(values, type)}))
    rewritten(tmp_path / "t", change)
    plan = zskip.open(tmp_path / "t").plan(predicate)
    assert plan.to_arrow().num_rows == found
    assert plan.count() == found


@pytest.mark.parametrize("followed", [False, True], ids=["first opening", "later commit"])
def test_escaped_letters_beyond_the_first_plane_keep_their_rows(followed: bool, tmp_path: Path) -> None:
    """deltalake reads those of even planes as the ones 65,536 earlier."""
    letters = [chr((plane << 16) + 0xBB7) for plane in range(17)]
    write_deltalake(tmp_path / "t", pa.table({"s": ["a"]}))
    for letter in letters:
        write_deltalake(tmp_path / "t", pa.table({"s": [letter * 2, f"{letter}b"]}), mode="append")
    later = sorted((tmp_path / "t" / "_delta_log").glob("*.json"))[1:]
    for commit in later:
        with changed_commit(commit) as actions:
            for add in (action["add"] for action in actions if "add" in action):
                add["stats"] = json.dumps(json.loads(add["stats"]))
                assert "\\u0bb7" in add["stats"] or "\\ud" in add["stats"]
    with not_yet_made(later if followed else [], tmp_path):
        opened = zskip.open(tmp_path / "t")
    opened.refresh()
    for letter in letters:
        assert opened.plan(f"s = '{letter}b'").count() == 1, hex(ord(letter))
    # The bounds of other letters skip as before.
    assert len(opened.plan("s = 'a'").files) == 1 + len(range(1, 17))


def test_an_unknown_feature_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"x": [1, 2]}))
    features = ["timestampNtz", "catalogManaged"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    with changed_commit(first_commit(path)) as actions:
        next(action for action in actions if "protocol" in action)["protocol"] = protocol
    with pytest.raises(zskip.TableError, match=r"catalogManaged|feature"):
        zskip.open(path)


def test_a_file_that_is_added_again_replaces_itself(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"x": [1, 2]}))
    assert zskip.open(path).plan().count() == 2
    first = first_commit(path).read_text().splitlines()
    again = [line for line in first if line.startswith('{"add"')]
    (path / "_delta_log" / f"{1:020}.json").write_text("\n".join(again))
    assert zskip.open(path).plan().count() == len(pa.table(DeltaTable(path).scan())) == 2


def test_bounds_from_before_a_promotion_keep_their_bytes() -> None:
    ints = [number.to_bytes(4, "little", signed=True) for number in (-7, 2**31 - 1)]
    assert decoded(ints, pa.int64()).to_pylist() == [-7, 2**31 - 1]
    assert decoded([b"\x00\x00\x80\x3f"], pa.float64()).to_pylist() == [1.0]
    assert decoded([(19_000).to_bytes(4, "little")], pa.timestamp("us")).to_pylist() == [None]
    assert decoded([b"\xc3"], pa.string()).to_pylist() == [None]
    assert decoded([b"\xff\x85"], pa.decimal128(9, 2)).to_pylist() == [Decimal("-1.23")]


def test_a_column_that_a_file_lacks_is_null_there(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"x": [1, 2]}))
    zskip.open(path)
    write_deltalake(path, pa.table({"x": [3], "y": [4]}), mode="append", schema_mode="merge")
    opened = zskip.open(path)
    assert sorted(opened.plan("y IS NULL").to_arrow()["x"].to_pylist()) == [1, 2]
    assert opened.plan("y = 4").count() == 1
    assert {pq.read_schema(file).names[-1] for file in path.glob("*.parquet")} == {"x", "y"}


@pytest.mark.parametrize("deep", [False, True])
def test_a_long_partition_value_comes_back_whole(tmp_path: Path, deep: bool) -> None:
    path, value = tmp_path / "t", "ä" * 5000 + "end"
    write_deltalake(path, pa.table({"a": [1, 2], "p": ["x", "x"]}), partition_by=["p"])
    with changed_commit(first_commit(path)) as actions:
        next(action["add"] for action in actions if "add" in action)["partitionValues"] = {"p": value}
    opened = zskip.open(path, deep=deep)
    require_same(opened, pa.table(DeltaTable(path).scan()), [f"p = '{value}'", "p > 'ä'", "p = 'ä'"])
    assert opened.plan("p LIKE '%end'").to_arrow()["p"].to_pylist() == [value, value]
    write_deltalake(path, pa.table({"a": [3], "p": ["y"]}), mode="append")
    require_same(zskip.open(path, deep=deep), pa.table(DeltaTable(path).scan()), ["p = 'y'", f"p = '{value}'"])
