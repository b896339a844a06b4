r"""Substrings that a string must contain to match a pattern.

LIKE '%time_out at 10.%'     'time', 'out at 10.'
GLOB '*.exe'                 '.exe'
regex 'GET /a+b?c\.php'      'GET /a', 'c.php'
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zskip.language import tree
from zskip.language.tree import Contains, Node, Reference, Scalar

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
