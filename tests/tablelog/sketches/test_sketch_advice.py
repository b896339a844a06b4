"""The advisor proposes sketches for look-ups that no layout serves, and none where a layout does."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import zskip
from zskip.tablelog.sketches import SketchName
from zskip.writer.sketch_advice import reads_with_values, worth_sketching

COUNT, FILES = 6000, 20
ROWS = pa.table(
    {
        "a": np.random.default_rng(1).integers(0, 1000, COUNT),
        "uid": [f"{number * 2654435761 % 2**32:08x}" for number in range(COUNT)],
        "flag": np.arange(COUNT) % 2,
        "text": [f"name {number % 777} of {number}" for number in range(COUNT)],
    }
)


def test_sketches_are_proposed_where_a_layout_reads_much() -> None:
    reads = {"a = 5": 0.05, "uid = 'x'": 1.0, "uid IN ('x') AND a < 7": 0.5, "flag = 1": 1.0, "text LIKE '%777%'": 1.0}
    found = {each.name: each for each in worth_sketching(ROWS, list(reads), list(reads.values()), FILES, 10 * COUNT)}
    # Every file holds half of all flags, and the layout serves a.
    assert set(found) == {SketchName("uid", "values"), SketchName("text", "substrings")}
    uid = found[SketchName("uid", "values")]
    assert (uid.read, uid.layout_reads, uid.bytes) == (pytest.approx(1 / FILES), 0.75, 3 * 10 * COUNT)
    assert str(uid) == "uid=values: a look-up reads about 5.00% of the files, not 75.00%, takes about 175.8 KiB"


def test_the_advice_names_them_in_its_command() -> None:
    advice = zskip.advise(ROWS.slice(0, 500), ["a < 100", f"uid = '{ROWS['uid'][7]}'"], files=4)
    assert "uid" in advice.candidates[0].by or "--sketch uid=values" in advice.command
    assert all(str(each) in str(advice) for each in advice.sketches)


def test_values_that_a_sample_hardly_repeats_are_not_taken_for_unique() -> None:
    """A value has 30 rows of 600,000. In a sample of 6,000 most values are single, but 30 rows are in many files."""
    rows = pa.table({"part": np.random.default_rng(3).integers(0, 20_000, 6000)})
    (found,) = worth_sketching(rows, ["part = 5"], [1.0], 100, 600_000)
    assert found.read is not None
    assert 0.2 < found.read < 0.32
    two, other = reads_with_values(rows, ["part IN (5, 6)", "part < 7"], 100, 600_000)
    assert 0.36 < two < 0.54
    assert other == 1.0
