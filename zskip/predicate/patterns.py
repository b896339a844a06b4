"""LIKE and its relatives: what a pattern's literal beginning says of the order of strings.

x LIKE 'abc'     x = 'abc'
x LIKE 'abc%'    'abc' <= x < 'abd'
x LIKE 'abc_%d'  implies 'abc' <= x < 'abd'
"""

from __future__ import annotations

import pyarrow as pa

from zskip.predicate import tree
from zskip.predicate.tree import Literal, Node, Opaque, Scalar, paths_of

__all__ = ["like", "prefix", "starts_with"]


def prefix(pattern: str, escape: str | None) -> tuple[str, str] | None:
    r"""The literal beginning of a LIKE pattern, and what remains; None where an escape is misplaced.

    >>> prefix(r"a\%b%c", "\\")
    ('a%b', '%c')
    """
    literal: list[str] = []
    index = 0
    while index < len(pattern):
        character = pattern[index]
        if character == escape:
            index += 1
            if index >= len(pattern) or pattern[index] not in (escape, "%", "_"):
                return None
            literal.append(pattern[index])
        elif character in "%_":
            return "".join(literal), pattern[index:]
        else:
            literal.append(character)
        index += 1
    return "".join(literal), ""


def starts_with(subject: Scalar, beginning: str) -> Node:
    """The strings that begin so: a range, for strings compare by bytes and UTF-8 keeps the order of code points."""
    if not beginning:
        return tree.always(subject)
    low = tree.compare(">=", subject, Literal(pa.scalar(beginning)))
    last = next((i for i in range(len(beginning) - 1, -1, -1) if beginning[i] < "\U0010ffff"), None)
    if last is None:
        return low
    following = ord(beginning[last]) + 1
    following = 0xE000 if 0xD800 <= following <= 0xDFFF else following
    high = tree.compare("<", subject, Literal(pa.scalar(beginning[:last] + chr(following))))
    return tree.and_([low, high])


def like(subject: Scalar, pattern: str, escape: str | None, sql: str = "") -> Node | None:
    """``subject LIKE pattern``; None where the pattern says nothing of the order."""
    found = prefix(pattern, escape)
    if found is None:
        return None
    beginning, rest = found
    if not rest:
        return tree.compare("=", subject, Literal(pa.scalar(beginning)))
    if set(rest) == {"%"}:
        return starts_with(subject, beginning)
    if not beginning:
        return None
    paths = tuple(sorted(set(paths_of(subject))))
    reason = "only the literal beginning of the pattern is a range"
    return Opaque(sql, paths, reason, implies=starts_with(subject, beginning), strict=True)
