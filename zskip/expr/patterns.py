"""LIKE and related patterns: the range of strings that a literal prefix implies.

x LIKE 'abc'     x = 'abc'
x LIKE 'abc%'    'abc' <= x < 'abd'
x LIKE 'abc_%d'  implies 'abc' <= x < 'abd'
"""

from __future__ import annotations

from itertools import product

import pyarrow as pa

from zskip.expr import tree
from zskip.expr.required_text import containing, implied, like_pieces
from zskip.expr.tree import Literal, Node, Opaque, Scalar, paths_of
from zskip.expr.why import Cause, Why

__all__ = [
    "BEGINNING_ONLY",
    "LONGEST",
    "UNPROVED",
    "exact_regex",
    "glob",
    "ilike",
    "like",
    "prefix",
    "regex",
    "starts_with",
]


UNPROVED = Why("a pattern that does not begin with a literal", Cause.NO_LITERAL_BEGINNING)
BEGINNING_ONLY = Why("only the literal beginning of the pattern is a range")
"""Why ranges say nothing of a pattern."""


LONGEST = 10_000
"""Characters of a pattern that is more than a beginning or a whole text; of a longer one nothing is proved."""


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
    if len(pattern) > LONGEST:
        return None
    begins = starts_with(subject, beginning) if beginning else None
    implies = implied([begins, *containing(subject, like_pieces(pattern, escape))])
    if implies is None:
        return None
    paths = tuple(sorted(set(paths_of(subject))))
    reason = BEGINNING_ONLY if beginning else UNPROVED
    return Opaque(sql, paths, reason, implies=implies, strict=True)


_FOLDED_FROM_ELSEWHERE = frozenset("kKsSiI")
"""Letters that others, outside of ASCII, become when case is folded: the Kelvin sign, the long s, the dotless i."""


_SPELLED = 4
"""Letters whose two cases become ranges of their own: at most 16 ranges."""


def ilike(subject: Scalar, pattern: str, escape: str | None) -> Node | None:
    """What ``subject ILIKE pattern`` implies: one of the ways to spell its beginning in capital and small letters."""
    found = prefix(pattern, escape)
    if found is None:
        return None
    count = next(
        (i for i, each in enumerate(found[0]) if not each.isascii() or each in _FOLDED_FROM_ELSEWHERE), len(found[0])
    )
    first, rest = found[0][: min(count, _SPELLED)], found[0][_SPELLED:count]
    if not first:
        return None
    spellings = sorted({"".join(each) for each in product(*((c.upper(), c.lower()) for c in first))})
    return tree.or_([_between_cases(subject, spelling, rest) for spelling in spellings])


def _between_cases(subject: Scalar, beginning: str, rest: str) -> Node:
    """The strings that begin so and go on with ``rest`` in any case: capital letters stand before small ones."""
    low = tree.compare(">=", subject, Literal(pa.scalar(beginning + rest.upper())))
    below = starts_with(subject, beginning + rest.lower())
    return tree.and_([low, *below.parts[1:]]) if isinstance(below, tree.And) else low


def _is_plain(character: str) -> bool:
    """A character that stands for itself in every syntax of regular expressions."""
    return character.isalnum() or character in " _-/@:,;=<>#&!%~'"


def exact_regex(subject: Scalar, pattern: str, whole: bool, dialect: str) -> Node | None:
    """What a regular expression of nothing but plain characters says; None for every other.

    ``^abc`` is a beginning, and so is ``^abc.*``. A match as a whole, or in DuckDB ``^abc$``, is equality; in Spark
    a line's end may stand before the ``$``.
    """
    anchored, ended = pattern.startswith("^"), pattern.endswith("$")
    literal = pattern[anchored : len(pattern) - ended]
    rest = literal.removesuffix(".*") if anchored and not whole and not ended else literal
    if (not rest and (whole or ended)) or not all(map(_is_plain, rest)) or (ended and dialect != "duckdb"):
        return None
    if whole or (anchored and ended):
        return tree.compare("=", subject, Literal(pa.scalar(rest)))
    return starts_with(subject, rest) if anchored else None


def regex(subject: Scalar, pattern: str, whole: bool) -> Node | None:
    """What a regular expression implies that begins with literal characters, anchored or matched as a whole."""
    anchored = pattern.startswith("^")
    if "|" in pattern or not (anchored or whole):
        return None
    rest = pattern[anchored:]
    count = next((i for i, each in enumerate(rest) if not _is_plain(each)), len(rest))
    if count < len(rest) and rest[count] in "*?{+":
        # A quantifier may take the last character away; + repeats it.
        count -= rest[count] != "+"
    return starts_with(subject, rest[:count]) if count > 0 else None


def glob(subject: Scalar, pattern: str) -> Node | None:
    """What ``subject GLOB pattern`` implies."""
    count = next((i for i, each in enumerate(pattern) if each in "*?[\\"), len(pattern))
    return starts_with(subject, pattern[:count]) if count else None
