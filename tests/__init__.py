"""All tests: a folder for each room of `zskip/`, a file for each room that is one module, and what they share."""

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "fixtures"


def one_in(step: int, *axes: Iterable[Any]) -> list[Any]:
    """The parameters of all combinations. One in ``step`` along each axis is always tried, the others are slow."""
    places = product(*(enumerate(axis) for axis in axes))
    return [
        pytest.param(*(value for _, value in one), marks=[pytest.mark.slow] if sum(at for at, _ in one) % step else [])
        for one in places
    ]
