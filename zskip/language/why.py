"""`Why`: why ranges cannot decide an expression, as a value and as a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """Kinds of reasons. `zskip.pruning.reasons` suggests a rewrite by them."""

    CASE_FOLDED = "a text in one case"
    ENGINE_CASTS = "a cast that is left to the engine"
    NO_LITERAL_BEGINNING = "a pattern without a literal beginning"
    MIDDLE_OF_TEXT = "a part of a text that is not its beginning"
    CLOCKS_CHANGE = "a zone whose clocks change"
    AMBIGUOUS_MOMENT = "a moment that clocks show twice or never"
    ENGINE_ROUNDS = "a number that the engine rounds"
    SEVERAL_TYPES = "constants of several types"
    MISSPELT = "a function's name that is like a known one"
    NO_STATISTICS = "no statistics"
    UNSUPPORTED = "not supported"


@dataclass(frozen=True, slots=True)
class Why:
    """``text``: for users. ``cause``: for code that distinguishes reasons."""

    text: str
    cause: Cause = Cause.UNSUPPORTED

    def __str__(self) -> str:
        return self.text
