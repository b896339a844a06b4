"""`SourceText`: SQL text with parts replaced before parsing, and the mapping back to the user's text."""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from zskip.errors import InvalidOption

__all__ = ["LongList", "Parameters", "SourceText", "is_unicode", "require_parameters"]

Parameters: TypeAlias = Sequence[object] | Mapping[str, object]
"""The values of ``?`` and ``$1``, in order; or those of ``$name`` and ``:name``, by name."""


def require_parameters(params: object) -> None:
    """Raises `InvalidOption` unless ``params`` is None, a sequence of values or a mapping of names to values."""
    if params is not None and (isinstance(params, str | bytes | Set) or not isinstance(params, Iterable)):
        raise InvalidOption(f"params= is a list of values, or a mapping of names to values, not {params!r}.")


def is_unicode(text: str) -> bool:
    """Whether a text can be encoded as UTF-8, which unpaired surrogates cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_STAND_IN = re.compile(r"(?<!\d)\d{18}(?!\d)")
"""A number of the form that stands for a long list in the parsed text."""


@dataclass(frozen=True, slots=True)
class LongList:
    """The constants of one IN: as SQL text, and as an array."""

    text: str
    values: pa.Array


@dataclass(frozen=True, slots=True)
class SourceText:
    """The text that is parsed: the user's ``original`` with parts of it replaced, in one or more passes.

    ``previous``: the text before the last pass. ``pieces``, ascending: where each piece of ``text`` starts, where its
    origin in ``previous`` starts, and whether the piece replaces its origin or copies it. ``lists``: the long lists, by
    the number that stands for each in ``text``.
    """

    original: str
    text: str
    pieces: tuple[tuple[int, int, bool], ...] = ((0, 0, False),)
    previous: SourceText | None = None
    lists: Mapping[str, LongList] = field(default_factory=dict)

    def replaced(
        self, replacements: Iterable[tuple[int, int, str]], lists: Mapping[str, LongList] | None = None
    ) -> SourceText:
        """This text with replacements of (start, end, text), and the lists that some of them stand for."""
        texts: list[str] = []
        pieces: list[tuple[int, int, bool]] = []
        position = length = 0
        for start, end, text in sorted(replacements):
            pieces += [(length, position, False), (length + start - position, start, True)]
            texts += [self.text[position:start], text]
            length += start - position + len(text)
            position = end
        if not pieces:
            return self
        pieces.append((length, position, False))
        replaced = "".join([*texts, self.text[position:]])
        return SourceText(self.original, replaced, tuple(pieces), self, {**self.lists, **(lists or {})})

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The half-open range of ``original`` that corresponds to a range of ``text``."""
        if self.previous is None:
            return start, end
        return self.previous.span(self._previous_offset(start, False), self._previous_offset(end, True))

    def _previous_offset(self, offset: int, as_end: bool) -> int:
        index = max(0, bisect.bisect_right(self.pieces, (offset - as_end, math.inf)) - 1)
        start, previous_start, replaces = self.pieces[index]
        if not replaces:
            return previous_start + offset - start
        next_start = self.pieces[index + 1][1]
        return next_start if as_end else previous_start

    def expand_lists(self, text: str) -> str:
        """A part of ``text`` with the numbers that stand for lists replaced by the lists."""
        if not self.lists:
            return text
        return _STAND_IN.sub(lambda found: self.lists[found[0]].text if found[0] in self.lists else found[0], text)

    def holds_each_list_once(self) -> bool:
        """Whether each number that stands for a list occurs exactly once in ``text``."""
        numbers = [number for number in _STAND_IN.findall(self.text) if number in self.lists]
        return len(numbers) == len(self.lists)
