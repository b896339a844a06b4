"""The advisor ranks layouts by what a workload reads."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from zskip import advisor
from zskip.errors import InvalidOption

RNG = np.random.default_rng(4)
ROWS = pa.table({name: RNG.integers(0, 1000, 4000) for name in ("a", "b", "c")})
WORKLOAD = [f"a = {n}" for n in range(0, 1000, 50)]
WORKLOAD += [f"SELECT * FROM t WHERE b BETWEEN {n} AND {n + 9}" for n in (3, 700)]


def test_candidates_are_ranked_beside_today_and_the_limit():
    advice = advisor.advise(
        ROWS, WORKLOAD, files=20, total_rows=4000, today=np.arange(4000) // 200, candidates=("auto", "linear")
    )
    reads = [candidate.read for candidate in advice.candidates]
    assert reads == sorted(reads)
    assert advice.least < reads[0] < 0.15 < 0.9 < advice.today
    assert {candidate.by for candidate in advice.candidates} == {("a",), ("a", "b")}
    assert len(advice.candidates[0].queries) == len(WORKLOAD)
    assert advice.command.startswith("zskip write SOURCE TARGET --by a")
    assert "today" in str(advice)
    assert "limit" in str(advice)


def test_a_workload_that_filters_nothing_is_refused():
    with pytest.raises(InvalidOption):
        advisor.advise(ROWS, ["SELECT * FROM t"], files=2, total_rows=4000)
