"""Prints, per type and operator, the share of provably skippable units that the planner skips.

python benchmarks/tightness.py
"""

from __future__ import annotations

import sys
from operator import itemgetter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.pruning.test_tightness import FLOORS, OPERATORS, measure


def main() -> None:
    print(f"{'type':<10}{'operator':<40}{'skippable':>10}{'skipped':>9}{'wholly':>9}{'proved':>9}")
    for share in (measure(*operator) for operator in sorted(OPERATORS, key=itemgetter(0))):
        skipped = share.skipped / share.skippable if share.skippable else 1.0
        proved = share.proved / share.wholly if share.wholly else 1.0
        _, why = FLOORS.get(f"{share.type}: {share.operator}", (1.0, ""))
        print(
            f"{share.type:<10}{share.operator:<40}{share.skippable:>10,}{skipped:>9.1%}{share.wholly:>9,}{proved:>9.1%}"
            f"  {why}".rstrip()
        )


if __name__ == "__main__":
    main()
