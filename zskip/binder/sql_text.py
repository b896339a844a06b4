"""`Source`: a text with parts replaced before parsing, and the mapping back to the user's text."""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from zskip.errors import InvalidOption

__all__ = ["LongList", "Parameters", "Source", "is_unicode", "require_parameters"]

Parameters: TypeAlias = Sequence[object] | Mapping[str, object]
"""The values of ``?`` and ``$1``, in order; or those of ``$name`` and ``:name``, by name."""


def require_parameters(params: object) -> None:
    """Raises `InvalidOption` for what is neither a sequence of values nor a mapping of names to them."""
    if params is not None and (isinstance(params, str | bytes | Set) or not isinstance(params, Iterable)):
        raise InvalidOption(f"params= is a list of values, or a mapping of names to values, not {params!r}.")


def is_unicode(text: str) -> bool:
    """Whether a text is one that can be stored: it holds no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_STAND_IN = re.compile(r"(?<!\d)\d{18}(?!\d)")
"""The form of a number that stands for a list."""


@dataclass(frozen=True, slots=True)
class LongList:
    """The constants of one IN: as they stand in the text, and as an array."""

    text: str
    values: pa.Array


@dataclass(frozen=True, slots=True)
class Source:
    """A text that is parsed, made of the user's ``original`` by replacing parts of it, once or more.

    ``edges`` holds, for each piece of ``frozen``, its start there, its start in the text ``below``, and whether it
    replaces what stands there, ascending. ``lists``: by the number that stands for each in ``frozen``.
    """

    original: str
    frozen: str
    edges: tuple[tuple[int, int, bool], ...] = ((0, 0, False),)
    below: Source | None = None
    lists: Mapping[str, LongList] = field(default_factory=dict)

    def replaced(
        self, replacements: Iterable[tuple[int, int, str]], lists: Mapping[str, LongList] | None = None
    ) -> Source:
        """This text with other text from some start to some end, again and again."""
        pieces: list[str] = []
        edges: list[tuple[int, int, bool]] = []
        at = length = 0
        for start, end, text in sorted(replacements):
            edges += [(length, at, False), (length + start - at, start, True)]
            pieces += [self.frozen[at:start], text]
            length += start - at + len(text)
            at = end
        if not edges:
            return self
        edges.append((length, at, False))
        frozen = "".join([*pieces, self.frozen[at:]])
        return Source(self.original, frozen, tuple(edges), self, {**self.lists, **(lists or {})})

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The half-open range in the original of one in the frozen text."""
        if self.below is None:
            return start, end
        return self.below.span(self._origin(start, False), self._origin(end, True))

    def _origin(self, offset: int, as_end: bool) -> int:
        index = max(0, bisect.bisect_right(self.edges, (offset - as_end, math.inf)) - 1)
        frozen, below, replaces = self.edges[index]
        if not replaces:
            return below + offset - frozen
        following = self.edges[index + 1][1]
        return following if as_end else below

    def whole(self, text: str) -> str:
        """A part of the frozen text with its lists written out."""
        if not self.lists:
            return text
        return _STAND_IN.sub(lambda found: self.lists[found[0]].text if found[0] in self.lists else found[0], text)

    def holds_each_list_once(self) -> bool:
        """Whether no number that stands for a list stands anywhere else in the frozen text."""
        found = [number for number in _STAND_IN.findall(self.frozen) if number in self.lists]
        return len(found) == len(self.lists)
