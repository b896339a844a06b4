"""Upper bounds for the cost of evaluating an expression in DuckDB for one value.

DuckDB cannot be interrupted inside a batch of rows, and its memory limit does not cover strings there. So the size of a
batch is chosen by these bounds, each the worst that was measured, so that no batch can take long.

| expression                             | bytes of the result            | nanoseconds                              |
| -------------------------------------- | ------------------------------ | ---------------------------------------- |
| any function                           | those of its arguments, and 64 | 2,000, and those of a naive search       |
| `upper`, `hex`, a cast, …              | 2 to 8 times the argument      |                                          |
| `replace`, `regexp_replace`            | argument times replacement     |                                          |
| `nfc_normalize`, `strip_accents`       | 4 times the argument           | quadratic: combining marks are sorted    |
| a regular expression of p steps        |                                | 5 p a byte , 2,000 p to compile          |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MOST_BYTES = 4 << 20
"""The most bytes of all results for one batch of values, of which DuckDB holds a few copies."""

MOST_NANOSECONDS = 10_000_000
"""The most time for one batch of values."""

_FIXED = 64
"""The most bytes of a number, a date or an interval, also as text."""


class TooCostly(Exception):
    """A single value may cost more than a batch is allowed to, or its cost has no known bound."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Upper bounds for one value. ``length``: bytes of the result · ``memory``: bytes of all intermediate results ·
    ``time``: nanoseconds · ``once``: nanoseconds of a batch of any size"""

    length: int
    memory: int
    time: int
    once: int = 0

    @property
    def batch(self) -> int:
        """The number of values that one batch may hold."""
        return max(1, min(MOST_BYTES // self.memory, (MOST_NANOSECONDS - self.once) // self.time, 1 << 14))


_GROWTH: dict[str, int] = {
    **dict.fromkeys(("upper", "ucase", "lower", "lcase"), 3),
    **dict.fromkeys(("strip_accents", "nfc_normalize", "translate"), 4),
    **dict.fromkeys(("hex", "to_hex"), 2),
    **dict.fromkeys(("bin", "to_binary"), 8),
    **dict.fromkeys(("strftime", "concat_ws"), _FIXED),
}
"""The factor by which a result may be longer than all arguments together."""

_PATTERNS = frozenset({"regexp_matches", "regexp_full_match", "regexp_extract", "regexp_replace"})


def cost(expression: Mapping[str, Any], lengths: Mapping[tuple[str, ...], int]) -> Cost:
    """The cost of an expression of DuckDB's syntax tree; ``lengths`` are the most bytes of a value of each column.

    Raises `TooCostly` if a single value may cost more than a batch is allowed to.
    """
    parts = [cost(child, lengths) for child in children(expression)]
    match expression["class"]:
        case "COLUMN_REF":
            length = lengths[tuple(expression["column_names"])]
            found = Cost(length, length, 1)
        case "CONSTANT":
            text = str(_text(expression)).encode()
            length = len(text) if _is_string(expression) else max(len(text), _FIXED)
            found = Cost(length, length, 1)
        case "FUNCTION":
            found = _function_cost(expression, parts)
        case "CAST":
            # A BLOB as text has four characters per byte.
            found = _sum(4 * parts[0].length + _FIXED, 10 * parts[0].length, parts)
        case _:
            found = _sum(sum(part.length for part in parts) + _FIXED, sum(part.length for part in parts), parts)
    if found.memory > MOST_BYTES or found.time + found.once > MOST_NANOSECONDS:
        raise TooCostly
    return found


def children(expression: object) -> Iterator[dict[str, Any]]:
    """The expressions directly below a node of DuckDB's syntax tree."""
    queue = list(expression.values()) if isinstance(expression, Mapping) else [expression]
    while queue:
        each = queue.pop(0)
        if isinstance(each, dict):
            if "class" in each:
                yield each
            else:
                queue.extend(each.values())
        elif isinstance(each, list):
            queue.extend(each)


def _sum(length: int, time: int, parts: list[Cost], memory: int = 0, once: int = 0) -> Cost:
    return Cost(
        length,
        length + memory + sum(part.memory for part in parts),
        2_000 + time + sum(part.time for part in parts),
        once + sum(part.once for part in parts),
    )


def _function_cost(expression: Mapping[str, Any], parts: list[Cost]) -> Cost:
    name = expression["function_name"]
    lengths = [part.length for part in parts]
    total = sum(lengths)
    first, second, third = (*lengths, 0, 0, 0)[:3]
    # The time of a naive search of one argument in the other.
    time = 10 * total + first * second
    if name in _PATTERNS:
        return _regex_cost(expression, parts)
    if name == "replace":
        return _sum((first + 1) * (1 + third), time, parts)
    if name == "split_part":
        return _sum(first, 100 * first + time, parts, memory=40 * first)
    if name in ("nfc_normalize", "strip_accents"):
        time += 4 * first * first
    return _sum(_GROWTH.get(name, 1) * total + _FIXED, time, parts)


def _regex_cost(expression: Mapping[str, Any], parts: list[Cost]) -> Cost:
    """The cost of a regular expression. Raises `TooCostly` unless the pattern is a constant."""
    pattern = _text(expression["arguments"][1]["expression"]) if len(parts) > 1 else None
    if pattern is None:
        raise TooCostly
    steps, length = program_steps(pattern), parts[0].length
    once = 2_000 * steps
    if expression["function_name"] == "regexp_replace":
        # At worst there is a match at every byte, each found after scanning all bytes that follow.
        replaced = (length + 1) * (1 + 2 * parts[2].length) if len(parts) > 2 else length
        return _sum(replaced, 2 * steps * length * length + 5 * steps * length, parts, once=once)
    return _sum(length + _FIXED, 5 * steps * length, parts, once=once)


_TOKEN = re.compile(r"\\[pP]|\\.|\[\^?\]?(?:\\.|\[:\w*:\]|[^\]\\])*\]|\{\d*,?\d*\}|.", re.DOTALL)
_CLASS, _UNICODE_CLASS = 12, 1500


def program_steps(pattern: str) -> int:
    """An upper bound for the steps of a compiled regular expression, in which counted repetitions are written out.

    Raises `TooCostly` if no bound is known, or it is far too large.

    >>> program_steps("^ab"), program_steps("^(ab){3}$")
    (3, 14)
    """
    groups, last = [0], 0  # the steps of each open group, and of the atom that a repetition would repeat
    for token in _TOKEN.findall(pattern):
        if token == "(":
            groups.append(2)
            continue
        if token == ")":
            last = groups.pop()
        elif token[0] == "{" and len(token) > 2:
            least, _, most = token[1:-1].partition(",")
            count = max(int(most[:9] or 0), int(least[:9] or 0) + token.endswith(",}"))
            groups[-1] += last * (max(count, 1) - 1)
            last *= count
            continue
        elif token in ("\\p", "\\P"):
            last = _UNICODE_CLASS
        elif token[0] == "[":
            last = _CLASS + _CLASS // 2 * len(token) + _UNICODE_CLASS * (token.count("\\p") + token.count("\\P"))
        else:
            last = _CLASS if token[0] in "\\." else 1
        if not groups or token == "\\Q" or groups[-1] > MOST_NANOSECONDS:
            raise TooCostly
        groups[-1] += last
    if len(groups) > 1 or groups[0] > MOST_NANOSECONDS:
        raise TooCostly
    return groups[0]


def _is_string(expression: Mapping[str, Any]) -> bool:
    return bool((expression.get("literal") or {}).get("kind") == "STRING")


def _text(expression: Mapping[str, Any]) -> str | None:
    """The text of a constant; None for any other expression."""
    if expression["class"] != "CONSTANT":
        return None
    literal = expression.get("literal")
    return str(literal["text"]) if literal and "text" in literal else str(expression.get("value"))
