"""Reasons say what removed how much, what could not help, and what would."""

import pyarrow as pa

from zskip import interpret, predicate
from zskip.schema import Schema
from zskip.stats import Ranges, Statistics

SCHEMA = Schema(pa.schema({"x": pa.int64(), "s": pa.string(), "unseen": pa.int64()}))
YES, NO = pa.array([True, True]), pa.array([False, False])
STATISTICS = Statistics(
    pa.array([9, 9]),
    {
        "x": Ranges(pa.array([1, 7]), pa.array([4, 9]), YES, NO, NO),
        "s": Ranges(pa.array(["a", "f"]), pa.array(["c", "k"]), YES, NO, NO),
    },
)


def test_each_conjunct_says_what_it_removes_alone() -> None:
    found = interpret.reasons(predicate.bind("x > 5 AND s < 'z' AND unseen = 1", SCHEMA), STATISTICS)
    assert [(each.text, each.removed, each.proved) for each in found] == [
        ("x > 5", 1, 1),
        ("s < 'z'", 0, 2),
        ("unseen = 1", 0, 0),
    ]
    assert found[2].opaque == (("unseen", "no statistics of this column"),)


def test_what_is_opaque_says_why_and_what_would_prune() -> None:
    (found,) = interpret.reasons(predicate.bind("upper(s) = 'A'", SCHEMA), STATISTICS)
    assert found.removed == 0
    assert "UPPER" in found.opaque[0][1]
    assert found.rewrite == "keep a column that holds the text folded, and compare that"
