"""An engine's plan of a statement over stubs, as a tree: which scans there are, and which conditions reach them.

What the plan prints at a scan, and in the filters right above it, the engine applies to that scan's rows; so a row for
which one of these conditions is not TRUE contributes nothing. What cannot be read is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from zskip.expr.sql_literals import identifier

__all__ = ["Node", "Scan", "StubColumns", "places_scanned_once", "read_tree", "scan_below"]

_SCAN = "PYTHON_ARROW_SCAN"
_STUB_COLUMN = re.compile(r"\b(\w+)_\d+\b")
_TEXT = re.compile(r"'(?:[^']|'')*'")
_ORDINAL = re.compile(r"#(\d+)")
_PIECE = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\w+|\s+|.""", re.DOTALL)


class StubColumns(NamedTuple):
    """A stub's name, and the table's columns by every name that the plan may print for them."""

    name: str
    printed: Mapping[str, str]


class Scan(NamedTuple):
    """One scan of a stub: its place, and conditions on the table's columns in DuckDB's SQL.

    ``complete``: no other condition decides about its rows before they leave the scan and the filters right above it.
    """

    place: int
    conditions: tuple[str, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class Node:
    """An operator. ``info``: what is printed of it, one text an item · ``place``: the stub that it scans; None for
    another operator, and for a table of the user's own."""

    name: str
    info: Mapping[str, str]
    children: tuple[Node, ...]
    place: int | None = None

    def walk(self) -> Iterator[Node]:
        """This operator and all below it."""
        pending = [self]
        while pending:
            node = pending.pop()
            yield node
            pending += reversed(node.children)

    def scans(self, stubs: Sequence[StubColumns]) -> list[Scan] | None:
        """The scans of stubs; None where some scan might be of any of them."""
        found = []
        pending: list[tuple[Node, tuple[str, ...]]] = [(self, ())]
        while pending:
            node, above = pending.pop()
            if node.name == _SCAN:
                if not _printed(node).strip():
                    return None
                if (place := node.place) is not None:
                    texts = [*_split(node.info.get("Filters", "")), *above]
                    named = [_named(text, stubs[place].printed) for text in texts]
                    readable = tuple(text for text in named if text is not None)
                    found.append(Scan(place, readable, len(readable) == len(named)))
            below = _filters_below(node, above)
            pending += [(child, below) for child in reversed(node.children)]
        return found


def _filters_below(node: Node, above: tuple[str, ...]) -> tuple[str, ...]:
    """The conditions on the rows of what is right below an operator: any other than a filter makes rows of its own."""
    return (*above, node.info.get("Expression", "")) if node.name == "FILTER" else ()


def read_tree(plans: Any, stubs: Sequence[str]) -> Node:
    """The tree of a plan that was printed as JSON. ``stubs``: their names, by place."""
    if isinstance(plans, list):
        trees = tuple(read_tree(plan, stubs) for plan in plans)
        return trees[0] if len(trees) == 1 else Node("", {}, trees)
    info = {
        key: "\n".join(map(str, value)) if isinstance(value, list) else str(value)
        for key, value in plans.get("extra_info", {}).items()
    }
    children = tuple(read_tree(child, stubs) for child in plans.get("children", ()))
    return Node(plans["name"], info, children, _place(info, stubs) if plans["name"] == _SCAN else None)


def _place(scan: Mapping[str, str], stubs: Sequence[str]) -> int | None:
    # A text among the filters may hold what looks like a stub's column.
    shown = scan.get("Projections", "") or _TEXT.sub("", scan.get("Filters", ""))
    return next((stubs.index(name) for name in _STUB_COLUMN.findall(shown) if name in stubs), None)


def places_scanned_once(root: Node) -> set[int]:
    """The places of which the plan has one scan alone."""
    counted = Counter(node.place for node in root.walk())
    return {place for place, times in counted.items() if place is not None and times == 1}


def scan_below(node: Node, terms: Sequence[str]) -> tuple[int, list[str]] | None:
    """The scan whose rows reach an operator through projections and the filters right above the scan alone.

    ``terms``: what the operator prints of its input, ``#2`` for the third column of a projection; they come back as
    the scan prints them.
    """
    terms, filtered = list(terms), False
    while len(node.children) == 1:
        (node,) = node.children
        if not node.children:
            return None if node.place is None else (node.place, terms)
        if node.name == "FILTER":
            filtered = True
        elif node.name == "PROJECTION" and not filtered:
            shown = node.info.get("Projections", "").split("\n")
            ordinals = [_ORDINAL.fullmatch(term) for term in terms]
            terms = [
                term if at is None else shown[int(at[1])] if int(at[1]) < len(shown) else ""
                for term, at in zip(terms, ordinals, strict=True)
            ]
        else:
            return None
    return None


def _printed(node: Node) -> str:
    return f"{node.info.get('Projections', '')}\n{node.info.get('Filters', '')}"


def _split(filters: str) -> list[str]:
    """The conditions of a scan, which are printed one a line; a text may hold the end of a line too."""
    found, depth = [""], 0
    for piece in _PIECE.findall(filters):
        depth += (piece == "(") - (piece == ")")
        if depth == 0 and "\n" in piece and piece.isspace():
            found.append("")
        else:
            found[-1] += piece
    return [one for one in found if one]


def _named(condition: str, printed: Mapping[str, str]) -> str | None:
    """The condition with the table's own names; None where it names anything that is not surely its column."""
    lowered = {column.lower() for column in printed.values()}
    pieces = _PIECE.findall(condition)
    renamed = []
    for number, piece in enumerate(pieces):
        name = piece[1:-1].replace('""', '"') if piece[:1] == '"' and len(piece) > 1 else piece
        if name in printed:
            renamed.append(identifier(printed[name]))
            continue
        if name.lower() in lowered and piece[:1] != "'":
            before, after = "".join(pieces[:number]).rstrip(), "".join(pieces[number + 1 :]).lstrip()
            is_type = piece.isupper() and (before.endswith((" AS", "::")) or after.startswith("'"))
            if not (is_type or before.endswith(".") or after.startswith("(")):
                return None
        renamed.append(piece)
    return "".join(renamed)
