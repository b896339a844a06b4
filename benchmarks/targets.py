"""What the benchmarks must show: each figure is printed beside what is wanted of it, and whether that is met."""

from __future__ import annotations

__all__ = ["at_least", "at_most"]


def at_least(wanted: float, found: float, what: str, unit: str = "") -> None:
    """Print a figure that should be large.

    >>> at_least(4, 4.25, "index 10,000 files, faster than a loop", " times")
    PASS  index 10,000 files, faster than a loop: 4.25 times, wanted at least 4
    """
    _print(found >= wanted, what, found, unit, f"at least {wanted:g}")


def at_most(wanted: float, found: float, what: str, unit: str = "") -> None:
    """Print a figure that should be small.

    >>> at_most(50, 61.5, "plan over 1,000,000 files, warm", " ms")
    FAIL  plan over 1,000,000 files, warm: 61.5 ms, wanted at most 50
    """
    _print(found <= wanted, what, found, unit, f"at most {wanted:g}")


def _print(passed: bool, what: str, found: float, unit: str, wanted: str) -> None:
    figure = f"{found:,.0f}" if found >= 100 else f"{found:.3g}"
    print(f"{'PASS' if passed else 'FAIL'}  {what}: {figure}{unit}, wanted {wanted}", flush=True)
