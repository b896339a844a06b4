r"""The texts that every string matched by a pattern must contain.

LIKE '%time_out at 10.%'     'time', 'out at 10.'
GLOB '*.exe'                 '.exe'
regex 'GET /a+b?c\.php'      'GET /a', 'c.php'
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zskip.expr import tree
from zskip.expr.tree import Contains, Node, Reference, Scalar

__all__ = ["containing", "glob_pieces", "implied", "like_pieces", "regex_pieces"]

_SHORTEST = 3
_ONE_CHARACTER_CLASSES = frozenset("dDwWsSbB")


def containing(subject: Scalar, pieces: Sequence[str], *, any_case: bool = False) -> list[Node]:
    """Conditions that a string has these pieces in it, but for short ones, of which no evidence is kept."""
    if not isinstance(subject, Reference):
        return []
    return [Contains(subject, piece, any_case) for piece in dict.fromkeys(pieces) if len(piece.encode()) >= _SHORTEST]


def implied(parts: Sequence[Node | None]) -> Node | None:
    """All of these conditions, but for those that are None; None where none is left."""
    left = [part for part in parts if part is not None]
    return tree.and_(left) if left else None


def like_pieces(pattern: str, escape: str | None) -> list[str]:
    r"""The pieces of text in a LIKE pattern; none where an escape is misplaced.

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
    """The pieces of text in a GLOB pattern, up to its first bracket or backslash.

    >>> glob_pieces("*.tar.g?[xyz]*")
    ['.tar.g']
    """
    plain = pattern.split("[")[0].split("\\")[0]
    return [piece for part in plain.split("*") for piece in part.split("?") if piece]


def regex_pieces(pattern: str) -> list[str]:
    r"""The pieces of text that a regular expression demands; none where it holds what is not read here.

    >>> regex_pieces(r"^GET /(a|b)x*yz+[0-9]{2}\.php$"), regex_pieces("abc|def"), regex_pieces("(?i)abc")
    (['GET /', 'yz', '.php'], [], [])
    """
    pieces = [""]
    for piece in _units(pattern):
        if piece is None:
            return []
        text, least, once = piece
        if text and least:
            pieces[-1] += text
        if not text or not once:
            pieces.append("")
    return [piece for piece in pieces if piece]


def _units(pattern: str) -> Iterator[tuple[str, bool, bool] | None]:
    """The parts of a regular expression in turn: its text, empty for anything else; whether it must be there; whether
    it is there exactly once. None for what is not read."""
    at = 0
    while at < len(pattern):
        character, text = pattern[at], ""
        at += 1
        match character:
            case "|" | ")" | "*" | "+" | "?" | "{":
                yield None
                return
            case "(" | "[":
                end = _end(pattern, at - 1)
                if end is None:
                    yield None
                    return
                at = end
            case "\\":
                follows = pattern[at : at + 1]
                if (
                    not follows.isascii()
                    or not follows
                    or (follows.isalnum() and follows not in _ONE_CHARACTER_CLASSES)
                ):
                    yield None
                    return
                at += 1
                text = "" if follows.isalnum() else follows
            case "." | "^" | "$":
                pass
            case _:
                text = character
        quantifier = pattern[at : at + 1]
        if quantifier and quantifier in "*+?{":
            at = pattern.find("}", at) + 1 if quantifier == "{" else at + 1
            if not at:
                yield None
                return
            at += pattern[at : at + 1] in ("?", "+")  # reluctant, possessive
            yield text, quantifier == "+", False
        else:
            yield text, True, True


def _end(pattern: str, start: int) -> int | None:
    """Where a group or a class that begins at ``start`` is over; None where that is not plain."""
    if pattern[start] == "[":
        end = pattern.find("]", start + 1 + (pattern[start + 1 : start + 2] in ("]", "^")))
        inner = pattern[start + 1 : end]
        return None if end < 0 or "[" in inner or "\\" in inner or inner in ("", "^") else end + 1
    if pattern[start + 1 : start + 2] == "?":
        return None
    depth, at = 0, start
    while at < len(pattern):
        if pattern[at] in "\\[" or pattern[at : at + 2] == "(?":
            return None
        depth += (pattern[at] == "(") - (pattern[at] == ")")
        at += 1
        if not depth:
            return at
    return None
