"""All tests: a folder for each room of `zskip/`, a file for each room that is one module, and what they share."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "fixtures"
