"""LIKE and related patterns as ranges of strings, from their literal prefix.

x LIKE 'abc'     x = 'abc'
x LIKE 'abc%'    'abc' <= x < 'abd'
x LIKE 'abc_%d'  implies 'abc' <= x < 'abd'

The functions for each kind of pattern return None where its prefix implies no range.

And the substrings that a string must contain to match a pattern:

LIKE '%time_out at 10.%'     'time', 'out at 10.'
GLOB '*.exe'                 '.exe'
regex 'GET /a+b?c.php'       'GET /a', 'c'
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import pyarrow as pa

from zskip.language import tree
from zskip.language.tree import Cause, Contains, Literal, Node, Opaque, Reference, Scalar, Why, paths_of

_MIN_BYTES = 3
_CLASS_ESCAPES = frozenset("dDwWsSbB")


def contains_conditions(subject: Scalar, pieces: Sequence[str], *, any_case: bool = False) -> list[Node]:
    """One `Contains` per distinct piece; pieces of less than three bytes are left out, since sketches hold trigrams."""
    if not isinstance(subject, Reference):
        return []
    return [Contains(subject, piece, any_case) for piece in dict.fromkeys(pieces) if len(piece.encode()) >= _MIN_BYTES]


def and_of_known(parts: Sequence[Node | None]) -> Node | None:
    """The AND of the parts that are not None; None if all are."""
    known = [part for part in parts if part is not None]
    return tree.and_(known) if known else None


def like_pieces(pattern: str, escape: str | None) -> list[str]:
    r"""The literal pieces of a LIKE pattern; none if an escape is misplaced.

    >>> like_pieces(r"%50\% of_all%", "\\")
    ['50% of', 'all']
    """
    pieces: list[list[str]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            character = next(characters, "")
            if character not in (escape, "%", "_"):
                return []
            pieces[-1].append(character)
        elif character in "%_":
            pieces.append([])
        else:
            pieces[-1].append(character)
    return ["".join(piece) for piece in pieces if piece]


def glob_pieces(pattern: str) -> list[str]:
    """The literal pieces of a GLOB pattern, up to its first bracket or backslash.

    >>> glob_pieces("*.tar.g?[xyz]*")
    ['.tar.g']
    """
    plain = pattern.split("[")[0].split("\\")[0]
    return [piece for part in plain.split("*") for piece in part.split("?") if piece]


def regex_pieces(pattern: str) -> list[str]:
    r"""The literal pieces that every match of a regular expression contains; none if it uses unsupported syntax.

    >>> regex_pieces(r"^GET /(a|b)x*yz+[0-9]{2}\.php$"), regex_pieces("abc|def"), regex_pieces("(?i)abc")
    (['GET /', 'yz', '.php'], [], [])
    """
    pieces = [""]
    for atom in _atoms(pattern):
        if atom is None:
            return []
        text, required, once = atom
        if text and required:
            pieces[-1] += text
        if not text or not once:
            pieces.append("")
    return [piece for piece in pieces if piece]


def _atoms(pattern: str) -> Iterator[tuple[str, bool, bool] | None]:
    """The atoms of a regular expression in order: the literal character, empty for any other atom; whether at least one
    occurrence is required; whether exactly one is. Yields None and stops at unsupported syntax."""
    position = 0
    while position < len(pattern):
        character, text = pattern[position], ""
        position += 1
        match character:
            case "|" | ")" | "*" | "+" | "?" | "{":
                yield None
                return
            case "(" | "[":
                end = _group_end(pattern, position - 1)
                if end is None:
                    yield None
                    return
                position = end
            case "\\":
                follows = pattern[position : position + 1]
                if not follows.isascii() or not follows or (follows.isalnum() and follows not in _CLASS_ESCAPES):
                    yield None
                    return
                position += 1
                text = "" if follows.isalnum() else follows
            case "." | "^" | "$":
                pass
            case _:
                text = character
        quantifier = pattern[position : position + 1]
        if quantifier and quantifier in "*+?{":
            position = pattern.find("}", position) + 1 if quantifier == "{" else position + 1
            if not position:
                yield None
                return
            position += pattern[position : position + 1] in ("?", "+")  # reluctant, possessive
            yield text, quantifier == "+", False
        else:
            yield text, True, True


def _group_end(pattern: str, start: int) -> int | None:
    """The position after the group or character class that opens at ``start``; None for unsupported syntax in it."""
    if pattern[start] == "[":
        end = pattern.find("]", start + 1 + (pattern[start + 1 : start + 2] in ("]", "^")))
        inner = pattern[start + 1 : end]
        return None if end < 0 or "[" in inner or "\\" in inner or inner in ("", "^") else end + 1
    if pattern[start + 1 : start + 2] == "?":
        return None
    depth, position = 0, start
    while position < len(pattern):
        if pattern[position] in "\\[" or pattern[position : position + 2] == "(?":
            return None
        depth += (pattern[position] == "(") - (pattern[position] == ")")
        position += 1
        if not depth:
            return position
    return None


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


def like(subject: Scalar, pattern: str, escape: str | None) -> Node | None:
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
    return Opaque("", paths, reason, implies=implies, strict=True)


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
