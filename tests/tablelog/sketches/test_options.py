"""Options of sketches: those that are refused, those that appends keep, and what explain names."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import zskip
from zskip.errors import InvalidOption

ROWS = pa.table({"k": range(2000), "w": [f"word{number * 7919 % 100_003:07}" for number in range(2000)]})


@pytest.fixture
def table(tmp_path: Path) -> zskip.Table:
    return zskip.write(ROWS, tmp_path / "t", by=["k"], files=20, sketches={"w": ["values", "substrings"]})


@pytest.mark.parametrize("kinds", [None, 5, ["values", 3]])
def test_kinds_that_are_none_are_refused(kinds: object, table: zskip.Table) -> None:
    asked: dict[str, object] = {"w": kinds}
    with pytest.raises(InvalidOption, match="sketch"):
        table.add_sketches(asked)  # type: ignore[arg-type]


def test_an_append_refuses_sketches_that_the_table_lacks(table: zskip.Table) -> None:
    with pytest.raises(InvalidOption, match="add_sketches"):
        zskip.write(ROWS, table.uri, mode="append", sketches={"k": "values"})
    assert zskip.write(ROWS, table.uri, mode="append", sketches={"w": "values"}).count() == 4000


def test_a_column_of_nothing_but_null_is_appended(table: zskip.Table) -> None:
    table.append(pa.table({"k": [-1], "w": pa.nulls(1)}))
    assert table.plan("w IS NULL").count() == 1


def test_explain_does_not_call_a_pattern_unused_that_a_sketch_proved(table: zskip.Table) -> None:
    shown = str(table.plan("w LIKE '%d0007919%'").explain())
    assert "by sketches" in shown
    assert "not used" not in shown
    assert "would prune" not in shown


def test_durations_have_no_values(tmp_path: Path) -> None:
    rows = pa.table({"k": [1, 2], "lasted": pa.array([1, 2], pa.duration("us"))})
    with pytest.raises(InvalidOption, match="lasted"):
        zskip.write(rows, tmp_path / "t", by=["k"], files=2, sketches={"lasted": "values"})
    assert not (tmp_path / "t").exists()
