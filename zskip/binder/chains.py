"""Long chains of one comparison, written as lists: ``c = 1 OR c = 2 …`` as ``c IN (1, 2, …)``, ``c <> 1 AND c <> 2 …``
as NOT IN.

Of whole numbers beside an integer, and of texts beside a text, where every engine takes both forms for the same. So a
hundred thousand terms bind about as fast as a list of them.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator

from zskip import types as t
from zskip.binder.fast_path import NO_NAMES
from zskip.binder.lists import FEWEST, READERS, stand_ins
from zskip.binder.names import Names
from zskip.binder.sql_text import LongList, SourceText

__all__ = ["joined"]

# The AND in front of a term may belong to a BETWEEN, an OR cannot.
_FORMS = (("OR", "=", r"|\b(?i:OR)\b", "IN"), ("AND", "(?:<>|!=)", "", "NOT IN"))


def joined(source: SourceText, names: Names) -> SourceText:
    """The text with a test against a list for each long chain, and a number for each list; the same without any."""
    text = source.text
    if names.dialect.name not in ("duckdb", "spark") or "->" in text or "lambda" in text.lower():
        return source  # the name of a lambda's argument is no column's
    replacements: list[tuple[int, int, str]] = []
    lists: dict[str, LongList] = {}
    numbers = stand_ins(text)
    found = sorted(_lists(text, names), key=lambda each: each[0])
    if any(before[1] > after[0] for before, after in itertools.pairwise(found)):
        return source  # one stands in a text of the other
    for start, end, test, listed in found:
        number = next(numbers)
        replacements.append((start, end, f"{test} ({number})"))
        lists[number] = listed
    return source.replaced(replacements, lists)


def _lists(text: str, names: Names) -> Iterator[tuple[int, int, str, LongList]]:
    """Where each chain starts and ends, and the list that means the same, with what stands before it."""
    quote = "`" if names.dialect.name == "spark" else '"'
    for link, sign, before, verb in _FORMS:
        for match in _chain(link, sign, before, quote).finditer(text):
            name, kind = match["name"], "numbers" if match["numbers"] else "texts"
            column = None if name.upper() in NO_NAMES else names.find([name.strip(quote)])
            if column is not None and (t.is_integer if kind == "numbers" else t.is_string)(column.type):
                constants = re.findall(rf"{re.escape(name)}\s*+{sign}\s*+({READERS[kind][0]})", match["chain"])
                listed = ", ".join(constants)
                yield *match.span("chain"), f"{name} {verb}", LongList(listed, READERS[kind][1](listed))


@functools.cache
def _chain(link: str, sign: str, before: str, quote: str) -> re.Pattern[str]:
    """A chain that is a whole operand of what stands around it."""
    name = rf"(?P<name>[A-Za-z_]\w*+|{quote}[^{quote}\\]++{quote})"
    kinds = "|".join(
        rf"(?P<{kind}>{one}(?:\s++(?i:{link})\s++(?P=name)\s*+{sign}\s*+{one}){{{FEWEST - 1},}})"
        for kind, one in (("numbers", r"\d{1,18}"), ("texts", READERS["texts"][0]))
    )
    return re.compile(
        rf"(?:^|\({before})\s*+(?P<chain>{name}\s*+{sign}\s*+(?:{kinds}))(?=\s*+(?:$|\)|(?i:OR|{link})\b))"
    )
