"""What a person sees who prints an object: what it is, on a line, and not all that it holds."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import zskip


def test_objects_say_what_they_are(tmp_path: Path) -> None:
    rows = pa.table({"a": list(range(1000)), "b": [n % 97 for n in range(1000)]})
    table = zskip.write(rows, tmp_path / "lake", by=["a", "b"], files=4)
    plan = table.plan("a < 300 AND b = 5")
    assert repr(plan.predicate) == "<Predicate: a < 300 AND b = 5>"
    assert "4 files" in repr(table.index)
    assert repr(table.snapshot).startswith("<Snapshot 1: write at ")
    assert str(plan.skipped).startswith("files 3 of 4 (75 %), row groups ")
    for shown in (table, plan, plan.files, plan.files[0], table.index, table.snapshot, table.snapshot.layout):
        assert len(repr(shown)) < 600
        assert " at 0x" not in repr(shown)
    longest = table.plan(" OR ".join(f"a = {n}" for n in range(200)))
    assert len(repr(longest.predicate)) < 300


def test_a_notebook_shows_tables_plans_and_advice(tmp_path: Path) -> None:
    table = zskip.write(pa.table({"a<b": range(100)}), tmp_path / "t", by="a<b", files=4)
    plan = table.plan('"a<b" < 10')
    assert "<td>100</td>" in table._repr_html_()
    assert "a&lt;b int64" in table._repr_html_()
    assert "3 of 4" in plan._repr_html_()
    assert "a&lt;b" in plan._repr_html_()
    assert "<pre>" in table.advise(['"a<b" = 5'])._repr_html_()
