"""Rewrite long chains of one comparison as lists.

``c = 1 OR c = 2 …`` becomes ``c IN (1, 2, …)`` and ``c <> 1 AND c <> 2 …`` becomes ``c NOT IN (1, 2, …)``. Only chains
of integers on an integer column, or of strings on a string column, are rewritten: there both forms mean the same in all
engines. A hundred thousand terms then bind about as fast as a list of them.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator

from zskip.binder.fast_path import NO_NAMES
from zskip.binder.lists import FEWEST, READERS, stand_ins
from zskip.binder.names import Names
from zskip.binder.sql_text import LongList, SourceText
from zskip.core import types as t

__all__ = ["chains_as_lists"]

# An AND before a chain may belong to a BETWEEN, an OR may not.
_FORMS = (("OR", "=", r"|\b(?i:OR)\b", "IN"), ("AND", "(?:<>|!=)", "", "NOT IN"))


def chains_as_lists(source: SourceText, names: Names) -> SourceText:
    """The text with long chains replaced by IN or NOT IN, with a number for each list; the text itself without any."""
    text = source.text
    if names.dialect.name not in ("duckdb", "spark") or "->" in text or "lambda" in text.lower():
        return source  # a lambda's parameter may have the name of a column
    replacements: list[tuple[int, int, str]] = []
    lists: dict[str, LongList] = {}
    numbers = stand_ins(text)
    found = sorted(_chains(text, names), key=lambda each: each[0])
    if any(before[1] > after[0] for before, after in itertools.pairwise(found)):
        return source  # one is inside a string of the other
    for start, end, test, values in found:
        number = next(numbers)
        replacements.append((start, end, f"{test} ({number})"))
        lists[number] = values
    return source.replaced(replacements, lists)


def _chains(text: str, names: Names) -> Iterator[tuple[int, int, str, LongList]]:
    """The start and end of each chain, the test that replaces it, such as ``c IN``, and the list of that test."""
    quote = "`" if names.dialect.name == "spark" else '"'
    for connective, operator, before, test in _FORMS:
        for match in _pattern(connective, operator, before, quote).finditer(text):
            name, kind = match["name"], "numbers" if match["numbers"] else "texts"
            column = None if name.upper() in NO_NAMES else names.find([name.strip(quote)])
            if column is not None and (t.is_integer if kind == "numbers" else t.is_string)(column.type):
                constants = re.findall(rf"{re.escape(name)}\s*+{operator}\s*+({READERS[kind][0]})", match["chain"])
                values = ", ".join(constants)
                yield *match.span("chain"), f"{name} {test}", LongList(values, READERS[kind][1](values))


@functools.cache
def _pattern(connective: str, operator: str, before: str, quote: str) -> re.Pattern[str]:
    """The pattern of a chain that is a whole operand: nothing before or after it binds more tightly."""
    name = rf"(?P<name>[A-Za-z_]\w*+|{quote}[^{quote}\\]++{quote})"
    kinds = "|".join(
        rf"(?P<{kind}>{one}(?:\s++(?i:{connective})\s++(?P=name)\s*+{operator}\s*+{one}){{{FEWEST - 1},}})"
        for kind, one in (("numbers", r"\d{1,18}"), ("texts", READERS["texts"][0]))
    )
    return re.compile(
        rf"(?:^|\({before})\s*+(?P<chain>{name}\s*+{operator}\s*+(?:{kinds}))(?=\s*+(?:$|\)|(?i:OR|{connective})\b))"
    )
