"""`SourceText`: the user's text, with the values that stand in it without being parsed."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from zskip.errors import InvalidOption

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


class Value(NamedTuple):
    """A value at a half-open range of the text: a plain one of Python, an Arrow array, or a list of plain ones.

    ``given``: it is a parameter or a read of the clock, in whose place an engine needs a constant. A long list of the
    text itself stays as it is written.
    """

    start: int
    end: int
    value: object
    given: bool = True

    @property
    def is_list(self) -> bool:
        return isinstance(self.value, pa.Array | list)


class SourceText:
    """The text of a predicate and its values, by where they start. The parser sees a constant in place of each."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.values: dict[int, Value] = {}
        self._given: list[Value] = []

    def add(self, values: Iterable[Value]) -> None:
        """Adds values that do not overlap with others."""
        for value in values:
            self.values[value.start] = value
            if value.given:
                bisect.insort(self._given, value, key=lambda each: each.start)

    def given(self, start: int, end: int) -> Sequence[Value]:
        """The values in a range of the text that an engine needs as constants, in order."""
        first = bisect.bisect_left(self._given, start, key=lambda each: each.start)
        last = bisect.bisect_left(self._given, end, key=lambda each: each.start)
        return self._given[first:last]
