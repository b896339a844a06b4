"""LIKE and related patterns as ranges of strings, from their literal prefix.

x LIKE 'abc'     x = 'abc'
x LIKE 'abc%'    'abc' <= x < 'abd'
x LIKE 'abc_%d'  implies 'abc' <= x < 'abd'

The functions for each kind of pattern return None where its prefix implies no range.
"""

from __future__ import annotations

from itertools import product

import pyarrow as pa

from zskip.language import tree
from zskip.language.required_text import and_of_known, contains_conditions, like_pieces
from zskip.language.tree import Literal, Node, Opaque, Scalar, paths_of
from zskip.language.why import Cause, Why

NO_LITERAL_PREFIX = Why("a pattern that does not begin with a literal", Cause.NO_LITERAL_BEGINNING)
ONLY_PREFIX_PROVED = Why("only the literal beginning of the pattern is a range")

MAX_CHARACTERS = 10_000
"""The longest pattern that is analysed, unless it is a plain text or a plain prefix."""


def literal_prefix(pattern: str, escape: str | None) -> tuple[str, str] | None:
    r"""The literal prefix of a LIKE pattern, and the rest of the pattern; None if an escape is misplaced.

    >>> literal_prefix(r"a\%b%c", "\\")
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
    """A range of strings: they compare by bytes, and UTF-8 keeps the order of code points."""
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
    """``subject LIKE pattern``: exact if only the end of the pattern is a wildcard, else an `Opaque` with what it
    implies."""
    split = literal_prefix(pattern, escape)
    if split is None:
        return None
    beginning, rest = split
    if not rest:
        return tree.compare("=", subject, Literal(pa.scalar(beginning)))
    if set(rest) == {"%"}:
        return starts_with(subject, beginning)
    if len(pattern) > MAX_CHARACTERS:
        return None
    range_ = starts_with(subject, beginning) if beginning else None
    implies = and_of_known([range_, *contains_conditions(subject, like_pieces(pattern, escape))])
    if implies is None:
        return None
    paths = tuple(sorted(set(paths_of(subject))))
    reason = ONLY_PREFIX_PROVED if beginning else NO_LITERAL_PREFIX
    return Opaque(sql, paths, reason, implies=implies, strict=True)


_FOLDED_FROM_NON_ASCII = frozenset("kKsSiI")
"""ASCII letters to which case folding maps non-ASCII ones: the Kelvin sign, the long s, the dotless i."""

_MAX_CASED_LETTERS = 4
"""Leading letters of which both cases are enumerated, which gives at most 16 ranges."""


def ilike(subject: Scalar, pattern: str, escape: str | None) -> Node | None:
    """What ``subject ILIKE pattern`` implies: the literal prefix in one of its combinations of upper and lower case."""
    split = literal_prefix(pattern, escape)
    if split is None:
        return None
    beginning = split[0]
    count = next(
        (i for i, each in enumerate(beginning) if not each.isascii() or each in _FOLDED_FROM_NON_ASCII), len(beginning)
    )
    first, rest = beginning[: min(count, _MAX_CASED_LETTERS)], beginning[_MAX_CASED_LETTERS:count]
    if not first:
        return None
    spellings = sorted({"".join(each) for each in product(*((c.upper(), c.lower()) for c in first))})
    return tree.or_([_between_cases(subject, spelling, rest) for spelling in spellings])


def _between_cases(subject: Scalar, beginning: str, rest: str) -> Node:
    """The range of strings that begin with ``beginning``, followed by ``rest`` in any case: upper case sorts first."""
    low = tree.compare(">=", subject, Literal(pa.scalar(beginning + rest.upper())))
    below = starts_with(subject, beginning + rest.lower())
    return tree.and_([low, *below.parts[1:]]) if isinstance(below, tree.And) else low


def _is_plain(character: str) -> bool:
    """Whether a character matches itself in every syntax of regular expressions."""
    return character.isalnum() or character in " _-/@:,;=<>#&!%~'"


def exact_regex(subject: Scalar, pattern: str, whole: bool, dialect: str) -> Node | None:
    """The exact condition of a regular expression that consists of plain characters; None for any other.

    ``^abc`` and ``^abc.*`` are prefixes. ``abc`` matched as a ``whole``, and in DuckDB ``^abc$``, is equality; in Spark
    ``$`` also matches before a final line break.
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
    """The range that a regular expression implies if it is anchored, or matches as a ``whole``."""
    anchored = pattern.startswith("^")
    if "|" in pattern or not (anchored or whole):
        return None
    rest = pattern[anchored:]
    count = next((i for i, each in enumerate(rest) if not _is_plain(each)), len(rest))
    if count < len(rest) and rest[count] in "*?{+":
        # A quantifier may remove the last character; + only repeats it.
        count -= rest[count] != "+"
    return starts_with(subject, rest[:count]) if count > 0 else None


def glob(subject: Scalar, pattern: str) -> Node | None:
    """What ``subject GLOB pattern`` implies."""
    count = next((i for i, each in enumerate(pattern) if each in "*?[\\"), len(pattern))
    return starts_with(subject, pattern[:count]) if count else None
