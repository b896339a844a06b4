"""The law of sketches: no unit that they skip holds a match, and none that they match wholly holds anything else."""

from __future__ import annotations

import os

import pytest

from tests.tablelog.sketches.laws import run

CASES, PARTS = int(os.environ.get("ZSKIP_FUZZ_CASES", "100000")), 200


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_sketches_exclude_no_outcome_that_duckdb_shows(part: int) -> None:
    tally, failures = run(CASES // PARTS, seed=part)
    assert not failures, "\n\n".join(failures)
    assert tally["skipped by sketches"] > tally["units of a tenth of them"] / 20
    assert tally["matched wholly by sketches"] > 0
    assert tally["asked of the sketches first"] > tally["cases"] / 5
