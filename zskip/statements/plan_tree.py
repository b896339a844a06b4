"""An engine's plan of a statement over stubs, as a tree: its scans, and the conditions that apply to each.

The engine applies the conditions that the plan prints at a scan, and in the filters directly above it, to the rows of
that scan. So a row for which one of them is not TRUE contributes nothing. Conditions that cannot be parsed are dropped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from zskip.core.schema import QUOTED_NAME, identifier

_SCAN = "PYTHON_ARROW_SCAN"
GROUPS = frozenset({"HASH_GROUP_BY", "PERFECT_HASH_GROUP_BY"})
"""The operators of GROUP BY."""
_STUB_COLUMN = re.compile(r"\b(\w+)_\d+\b")
_TEXT = re.compile(r"'(?:[^']|'')*'")
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")
ORDINAL = re.compile(r"#(\d+)")
"""How an operator prints a column of its input, by its number."""
_PIECE = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\w+|\s+|.""", re.DOTALL)


class StubColumns(NamedTuple):
    """A stub's name, and ``printed``: the table's column for each name that the plan may print for it."""

    name: str
    printed: Mapping[str, str]


class Scan(NamedTuple):
    """One scan of a stub, and the conditions on the table's columns, in DuckDB's SQL.

    ``place``: the table's number in the statement · ``complete``: the scan, and the filters directly above it, apply no
    other condition.
    """

    place: int
    conditions: tuple[str, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class Node:
    """An operator. ``info``: the texts that the plan prints for it, by name · ``place``: the number of the stub that it
    scans; None for other operators and for tables of the user."""

    name: str
    info: Mapping[str, str]
    children: tuple[Node, ...]
    place: int | None = None

    def walk(self) -> Iterator[Node]:
        """This operator and all below it, parents first."""
        pending = [self]
        while pending:
            node = pending.pop()
            yield node
            pending += reversed(node.children)

    def scans(self, stubs: Sequence[StubColumns]) -> list[Scan] | None:
        """The scans of stubs; None if some scan cannot be assigned to a stub."""
        found = []
        quoted = {name.lower() for stub in stubs for name in stub.printed if not _PLAIN_NAME.fullmatch(name)}
        pending: list[tuple[Node, tuple[str, ...]]] = [(self, ())]
        while pending:
            node, above = pending.pop()
            if node.name == _SCAN:
                filters = node.info.get("Filters", "")
                if not (node.info.get("Projections", "") + filters).strip():
                    return None
                if (place := node.place) is not None:
                    conditions = (*_split(filters), *above)
                    renamed = [_renamed(text, stubs[place].printed, quoted) for text in conditions]
                    readable = tuple(text for text in renamed if text is not None)
                    found.append(Scan(place, readable, len(readable) == len(renamed)))
            below = _filters_below(node, above)
            pending += [(child, below) for child in reversed(node.children)]
        return found


def _filters_below(node: Node, above: tuple[str, ...]) -> tuple[str, ...]:
    """The conditions that apply to an operator's input. Operators other than filters output rows of their own."""
    return (*above, node.info.get("Expression", "")) if node.name == "FILTER" else ()


def read_tree(plans: Any, stubs: Sequence[str]) -> Node:
    """The tree of a plan that was printed as JSON. ``stubs``: the names of the stubs, in order of their numbers."""
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
    # A string literal in a filter may look like a stub's column.
    shown = scan.get("Projections", "") or _TEXT.sub("", scan.get("Filters", ""))
    return next((stubs.index(name) for name in _STUB_COLUMN.findall(shown) if name in stubs), None)


def places_scanned_once(root: Node) -> set[int]:
    """The numbers of the stubs that the plan scans exactly once."""
    counted = Counter(node.place for node in root.walk())
    return {place for place, times in counted.items() if place is not None and times == 1}


def scan_below(node: Node, terms: Sequence[str]) -> tuple[int, list[str]] | None:
    """The number of the stub whose scan feeds an operator through nothing but projections and, directly above the scan,
    filters; and the operator's terms as the scan prints them. None for other plans.

    ``terms``: the input columns as the operator prints them, such as ``#2`` for the third column of a projection.
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
            ordinals = [ORDINAL.fullmatch(term) for term in terms]
            terms = [
                term if at is None else shown[int(at[1])] if int(at[1]) < len(shown) else ""
                for term, at in zip(terms, ordinals, strict=True)
            ]
        else:
            return None
    return None


def _split(filters: str) -> list[str]:
    """The conditions of a scan, which are printed one per line. A string literal may contain a line break too."""
    conditions, depth = [""], 0
    for piece in _PIECE.findall(filters):
        depth += (piece == "(") - (piece == ")")
        if depth == 0 and "\n" in piece and piece.isspace():
            conditions.append("")
        else:
            conditions[-1] += piece
    return [condition for condition in conditions if condition]


def _renamed(condition: str, printed: Mapping[str, str], quoted: Collection[str]) -> str | None:
    """The condition with the table's column names; None if it contains a name that may not be the table's column.

    ``quoted``: the lower-case names of columns that SQL has to quote. Above a scan, a plan prints them as they are:
    "s.a" like a field of s, and "a-b" like a difference.
    """
    lowered = {column.lower() for column in printed.values()}
    text = condition.lower()
    bare = QUOTED_NAME.sub("", text)
    if any(name in (text if '"' in name else bare) for name in quoted):
        return None
    pieces = _PIECE.findall(condition)
    renamed = []
    for number, piece in enumerate(pieces):
        name = _bare(piece)
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


def _bare(piece: str) -> str:
    """A piece of a printed text without the quotes of a name."""
    return piece[1:-1].replace('""', '"') if piece[:1] == '"' and len(piece) > 1 else piece
