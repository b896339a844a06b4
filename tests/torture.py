"""The long form of the crash tests: `python -m tests.torture` kills 500 writers, and races eight processes."""

from __future__ import annotations

import os
import sys

import pytest

CASES = "killed or fault or racing or damaged or lost"


def main(rounds: int = 500) -> int:
    """Run them; the exit code is pytest's."""
    os.environ.setdefault("ZSKIP_TORTURE", str(rounds))
    return int(pytest.main(["-q", "-x", os.path.join(os.path.dirname(__file__), "test_sidecar.py"), "-k", CASES]))


if __name__ == "__main__":
    sys.exit(main())
