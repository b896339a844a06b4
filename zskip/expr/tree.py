"""The bound tree: a predicate over a table's columns as a few kinds of typed nodes.

Scalars:     `Reference` · `Literal` · `Call` · `Foreign` (an expression that zskip does not know)
Predicates:  `Compare` · `In` · `IsNull` · `Contains` · `And` · `Or` · `Not` · `Is` · `Choose` · `Opaque` · `Computable`

The lower-case constructors normalise at the door: ``a > b`` is built as ``b < a``, ANDs are flat, a comparison over
a CASE stands inside its branches. Nodes compare by identity, scalars by value, so that one scalar that occurs twice
is one **term**, and everything that is said of one term is decided together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal as Either

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.expr.why import Why
from zskip.types import is_floating

__all__ = [
    "And",
    "Call",
    "Choose",
    "Compare",
    "Computable",
    "Contains",
    "Foreign",
    "In",
    "Is",
    "IsNull",
    "Literal",
    "Node",
    "Not",
    "Opaque",
    "Or",
    "Reference",
    "Scalar",
    "always",
    "and_",
    "choose",
    "columns",
    "compare",
    "in_",
    "is_",
    "never",
    "not_",
    "or_",
    "unknown",
]


@dataclass(frozen=True, slots=True)
class Reference:
    """A column, by the path of its leaf."""

    path: str
    type: pa.DataType = field(hash=False)  # not every extension type has a hash


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant that fits the type of what it is compared with exactly. A null value is SQL NULL."""

    value: pa.Scalar

    @property
    def type(self) -> pa.DataType:
        return self.value.type


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the table in `zskip.functions.evaluated`; ``options`` are its arguments that are not scalars."""

    function: str
    arguments: tuple[Scalar, ...]
    type: pa.DataType
    options: tuple[object, ...] = ()
    hashed: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Known once, from those of the arguments: a thousand calls in one another are hashed in a thousand steps.
        object.__setattr__(self, "hashed", hash((self.function, self.arguments, self.type, self.options)))

    def __hash__(self) -> int:
        return self.hashed

    def __reduce__(self) -> tuple[object, ...]:
        # Made anew in another process, where texts have other hashes.
        return Call, (self.function, self.arguments, self.type, self.options)


@dataclass(frozen=True, slots=True)
class Foreign:
    """An expression that zskip does not reason about: its text, the columns that it reads, and why."""

    sql: str
    paths: tuple[str, ...]
    reason: str
    type: pa.DataType


Scalar = Reference | Literal | Call | Foreign


@dataclass(frozen=True, slots=True, eq=False)
class Compare:
    """``left op right``, NULL where either is NULL. NaN equals itself and is above every number."""

    op: Either["<", "<=", "="]
    left: Scalar
    right: Scalar


@dataclass(frozen=True, slots=True, eq=False)
class In:
    """``term IN values``: sorted, distinct, of the term's type. ``or_null``: the list holds NULL beside them.

    The extreme values: no value at all is never TRUE, and NULL only where the term is.
    """

    term: Scalar
    values: pa.Array
    or_null: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class IsNull:
    """``term IS NULL``: never NULL itself."""

    term: Scalar


@dataclass(frozen=True, slots=True, eq=False)
class Contains:
    """``text`` stands somewhere in the string ``term``; NULL where the term is. ``folded``: letters match in any case.

    No range can tell; only `zskip.pruning.Evidence` can.
    """

    term: Scalar
    text: str
    folded: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class And:
    """All of ``parts``. No parts: TRUE."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Or:
    """Any of ``parts``. No parts: FALSE."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Not:
    """FALSE where ``part`` is TRUE, TRUE where it is FALSE, NULL where it is NULL."""

    part: Node


@dataclass(frozen=True, slots=True, eq=False)
class Is:
    """``part IS TRUE``, ``IS FALSE`` or ``IS UNKNOWN``: never NULL itself."""

    part: Node
    outcome: bool | None


@dataclass(frozen=True, slots=True, eq=False)
class Choose:
    """``then`` where ``condition`` is TRUE, ``otherwise`` where it is FALSE or NULL."""

    condition: Node
    then: Node
    otherwise: Node


@dataclass(frozen=True, slots=True, eq=False)
class Opaque:
    """A predicate that cannot be proved from ranges.

    ``implies`` must be TRUE wherever this is TRUE (None: nothing is implied). ``strict``: never fails, and is NULL
    only where one of its columns is.
    """

    sql: str
    paths: tuple[str, ...]
    reason: Why
    implies: Node | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Computable:
    """``part`` with the text by which DuckDB can compute it for single values of the columns that it reads.

    ``timezone`` is the session's.
    """

    part: Node
    columns: tuple[Reference, ...]
    sql: str
    timezone: str


Node = Compare | In | IsNull | Contains | And | Or | Not | Is | Choose | Opaque | Computable


def compare(op: str, left: Scalar, right: Scalar) -> Node:
    """A comparison by any of ``= <> < <= > >=`` between scalars of one type; NULL on either side is never TRUE."""
    for side in (left, right):
        if isinstance(side, Literal) and not side.value.is_valid:
            return unknown()
    match op:
        case ">":
            return Compare("<", right, left)
        case ">=":
            return Compare("<=", right, left)
        case "<>":
            return Not(Compare("=", left, right))
        case "<" | "<=" | "=":
            return Compare(op, left, right)
    raise ValueError(f"not a comparison: {op}")


def in_(term: Scalar, values: pa.Array, or_null: bool = False) -> Node:
    """``term IN values``: sorted here; nulls among the values become ``or_null``."""
    or_null = or_null or values.null_count > 0
    values = values.drop_null()
    if is_floating(values.type):
        values = pa.array(np.asarray(values) + 0.0, values.type)  # -0.0 becomes 0.0: the two are one value
    distinct = pc.unique(values)
    return In(term, distinct.take(pc.sort_indices(distinct)), or_null)


def always(term: Scalar) -> Node:
    """TRUE where the term is not NULL, NULL where it is."""
    return Not(never(term))


def never(term: Scalar) -> Node:
    """FALSE where the term is not NULL, NULL where it is."""
    return In(term, pa.array([], term.type))


def unknown() -> Node:
    """NULL for every row."""
    return In(Literal(pa.scalar(None, pa.bool_())), pa.array([], pa.bool_()))


def not_(part: Node) -> Node:
    """NOT; two of them cancel out."""
    if isinstance(part, Not):
        return part.part
    if isinstance(part, And) and not part.parts:
        return Or(())
    if isinstance(part, Or) and not part.parts:
        return And(())
    return Not(part)


def and_(parts: Sequence[Node]) -> Node:
    """AND of any number of parts, flat: an AND among them gives its own parts; one part is itself."""
    flat = tuple(_flat(And, parts))
    return flat[0] if len(flat) == 1 else And(flat)


def or_(parts: Sequence[Node]) -> Node:
    """OR of any number of parts, flat."""
    flat = tuple(_flat(Or, parts))
    return flat[0] if len(flat) == 1 else Or(flat)


def is_(part: Node, outcome: bool | None) -> Node:
    """``part IS TRUE``, ``IS FALSE`` or ``IS UNKNOWN`` (None)."""
    return Is(part, outcome)


def choose(condition: Node, then: Node, otherwise: Node) -> Node:
    """CASE WHEN condition THEN then ELSE otherwise END."""
    return Choose(condition, then, otherwise)


def _flat(kind: type[And] | type[Or], parts: Sequence[Node]) -> Iterator[Node]:
    for part in parts:
        if isinstance(part, kind):
            yield from part.parts
        else:
            yield part


def _scalars(node: Node) -> tuple[Scalar, ...]:
    match node:
        case Compare(_, left, right):
            return (left, right)
        case In(term, _, _) | IsNull(term) | Contains(term, _, _):
            return (term,)
    return ()


def children(node: Node) -> tuple[Node, ...]:
    """The predicates that stand directly under a node."""
    match node:
        case And(parts) | Or(parts):
            return parts
        case Not(part) | Is(part, _) | Computable(part):
            return (part,)
        case Choose(condition, then, otherwise):
            return (condition, then, otherwise)
    return ()


def walk(node: Node) -> Iterator[Node]:
    """Every predicate of the tree, parents first, without recursion."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(children(node)))


def paths_of(scalar: Scalar) -> Iterator[str]:
    """The columns that a scalar reads, with repetitions."""
    waiting: list[Scalar] = [scalar]
    while waiting:
        match waiting.pop():
            case Reference(path, _):
                yield path
            case Call(_, arguments, _, _):
                waiting.extend(arguments)
            case Foreign(paths=paths):
                yield from paths


def columns(node: Node) -> frozenset[str]:
    """The paths of all columns that a predicate reads.

    >>> columns(IsNull(Reference("a.b", pa.int64())))
    frozenset({'a.b'})
    """
    found: set[str] = set()
    for each in walk(node):
        if isinstance(each, Opaque):
            found.update(each.paths)
        for scalar in _scalars(each):
            found.update(paths_of(scalar))
    return frozenset(found)


def size(node: Node) -> int:
    """The predicates of the tree, each as often as a walk would meet it: a part that stands in two places counts twice.

    Found without that walk, which of parts within parts may take forever.
    """
    sizes: dict[int, int] = {}
    waiting: list[tuple[Node, bool]] = [(node, False)]
    while waiting:
        each, ready = waiting.pop()
        if id(each) in sizes:
            continue
        below = children(each)
        if ready or not below:
            sizes[id(each)] = 1 + sum(sizes[id(child)] for child in below)
        else:
            waiting.append((each, True))
            waiting.extend((child, False) for child in below)
    return sizes[id(node)]


def is_doubtful(node: Node) -> bool:
    """Whether ranges may not show everything about a predicate: it holds functions, or what is opaque."""
    return any(
        isinstance(each, Opaque) or any(isinstance(scalar, Call | Foreign) for scalar in _scalars(each))
        for each in walk(node)
    )


def depth(node: Node) -> int:
    """The greatest number of predicates, and of functions below them, above one another."""
    deepest = 0
    waiting: list[tuple[Node | Scalar, int]] = [(node, 1)]
    while waiting:
        each, level = waiting.pop()
        deepest = max(deepest, level)
        if isinstance(each, Call):
            waiting.extend((argument, level + 1) for argument in each.arguments)
        elif not isinstance(each, Reference | Literal | Foreign):
            below = _scalars(each)
            deepest = max(deepest, level + bool(below))
            waiting.extend([(scalar, level + 1) for scalar in below if isinstance(scalar, Call)])
            waiting.extend([(child, level + 1) for child in children(each)])
    return deepest
