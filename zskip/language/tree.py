"""The bound tree: typed nodes for predicates over a table's columns.

Scalars:     `Reference` · `Literal` · `Call`
Predicates:  `Compare` · `In` · `IsNull` · `Contains` · `And` · `Or` · `Not` · `Is` · `Choose` · `Opaque` · `Computable`

The lower-case constructors normalise: ``a > b`` is built as ``b < a``, and nested ANDs are flattened. Predicates
compare by identity. Scalars compare by value, so two occurrences of the same scalar are one **term**, and all
conditions on one term are decided together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal as Either

import numpy as np
import pyarrow as pa

from zskip.core.late_loading import pc
from zskip.core.types import is_floating


class Cause(StrEnum):
    """Kinds of reasons. `zskip.pruning.reasons` suggests a rewrite by them."""

    CASE_FOLDED = "a text in one case"
    ENGINE_CASTS = "a cast that is left to the engine"
    NO_LITERAL_BEGINNING = "a pattern without a literal beginning"
    MIDDLE_OF_TEXT = "a part of a text that is not its beginning"
    CLOCKS_CHANGE = "a zone whose clocks change"
    AMBIGUOUS_MOMENT = "a moment that clocks show twice or never"
    ENGINE_ROUNDS = "a number that the engine rounds"
    SEVERAL_TYPES = "constants of several types"
    MISSPELT = "a function's name that is like a known one"
    NO_STATISTICS = "no statistics"
    UNSUPPORTED = "not supported"


@dataclass(frozen=True, slots=True)
class Why:
    """``text``: for users. ``cause``: for code that distinguishes reasons."""

    text: str
    cause: Cause = Cause.UNSUPPORTED

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Reference:
    """A column, by the path of its leaf field."""

    path: str
    type: pa.DataType = field(hash=False)  # not every extension type has a hash


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. Beside a column it has exactly the column's type. A null value is SQL NULL."""

    value: pa.Scalar

    @property
    def type(self) -> pa.DataType:
        return self.value.type


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function in `FUNCTIONS`; ``options`` are the arguments that are not scalars."""

    function: str
    arguments: tuple[Scalar, ...]
    type: pa.DataType
    options: tuple[object, ...] = ()
    hashed: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Computed once, from the arguments' hashes: hashing a thousand nested calls takes a thousand steps.
        object.__setattr__(self, "hashed", hash((self.function, self.arguments, self.type, self.options)))

    def __hash__(self) -> int:
        return self.hashed

    def __reduce__(self) -> tuple[object, ...]:
        # Strings hash differently in another process.
        return Call, (self.function, self.arguments, self.type, self.options)


Scalar = Reference | Literal | Call


@dataclass(frozen=True, slots=True, eq=False)
class Compare:
    """``left op right``; NULL if either side is. NaN equals itself and is greater than every number."""

    op: Either["<", "<=", "="]
    left: Scalar
    right: Scalar


@dataclass(frozen=True, slots=True, eq=False)
class In:
    """``term IN values``; the values are sorted, distinct and of the term's type. ``or_null``: the list contains NULL.

    Without values it is FALSE, or NULL where the term is.
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
    """The string ``term`` contains ``text``; NULL where the term is. ``folded``: letters match in any case.

    Ranges cannot decide it; `zskip.pruning.Evidence` can.
    """

    term: Scalar
    text: str
    folded: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class And:
    """The AND of ``parts``; TRUE if there are none."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Or:
    """The OR of ``parts``; FALSE if there are none."""

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
    """A predicate that ranges cannot decide.

    ``implies`` is TRUE in every row in which this is TRUE; None if nothing is known. ``strict``: it never raises an
    error, and is NULL only where one of its columns is.
    """

    sql: str
    paths: tuple[str, ...]
    reason: Why
    implies: Node | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Computable:
    """``part``, with a way to evaluate it for single values of ``columns``: by DuckDB, or by the session it comes from.

    ``columns``: all that it reads · ``sql``, ``timezone``: for DuckDB; the zone is the session's, an IANA name ·
    ``evaluate``: in place of DuckDB. It takes as many values of each column, and returns for each place 1 (TRUE), 0
    (FALSE), 2 (NULL) or -1 (unknown, or an error), or None if it cannot evaluate them.
    """

    part: Node
    columns: tuple[Reference, ...]
    sql: str
    timezone: str
    evaluate: Callable[[Sequence[pa.Array]], np.ndarray | None] | None = None


Node = Compare | In | IsNull | Contains | And | Or | Not | Is | Choose | Opaque | Computable


MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""For each comparison of ``x`` with ``y``, that of ``y`` with ``x``."""


def compare(op: str, left: Scalar, right: Scalar) -> Node:
    """A comparison by ``= <> < <= > >=`` between scalars of one type; NULL if a side is the literal NULL."""
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
    """``term IN values``, in any order, with duplicates and nulls."""
    or_null = or_null or values.null_count > 0
    values = values.drop_null()
    if not len(values):
        return In(term, values, or_null)  # of any type, also of one whose values have no order
    if is_floating(values.type):
        values = pa.array(np.asarray(values) + 0.0, values.type)  # -0.0 becomes 0.0: the two are one value
    distinct = pc.unique(values)
    return In(term, distinct.take(pc.sort_indices(distinct)), or_null)


def is_true(term: Scalar) -> Node:
    """A boolean term as a predicate."""
    return compare("=", term, Literal(pa.scalar(True)))


def is_nan(term: Scalar) -> Node:
    """Whether a float term is NaN; NULL where it is NULL."""
    return in_(term, pa.array([float("nan")], term.type))


def always(term: Scalar) -> Node:
    """TRUE where the term is not NULL, else NULL."""
    return Not(never(term))


def never(term: Scalar) -> Node:
    """FALSE where the term is not NULL, else NULL."""
    return In(term, pa.array([], term.type))


def unknown() -> Node:
    """NULL in every row."""
    return In(Literal(pa.scalar(None, pa.bool_())), pa.array([], pa.bool_()))


def not_(part: Node) -> Node:
    """NOT; a double negation cancels out."""
    if isinstance(part, Not):
        return part.part
    if isinstance(part, And) and not part.parts:
        return Or(())
    if isinstance(part, Or) and not part.parts:
        return And(())
    return Not(part)


def and_(parts: Sequence[Node]) -> Node:
    """The AND of any number of parts, flattened; a single part is returned as it is."""
    flat = tuple(_flat(And, parts))
    return flat[0] if len(flat) == 1 else And(flat)


def or_(parts: Sequence[Node]) -> Node:
    """The OR of any number of parts, flattened; a single part is returned as it is."""
    flat = tuple(_flat(Or, parts))
    return flat[0] if len(flat) == 1 else Or(flat)


def _flat(kind: type[And] | type[Or], parts: Sequence[Node]) -> Iterator[Node]:
    for part in parts:
        if isinstance(part, kind):
            yield from part.parts
        else:
            yield part


def _scalars(node: Node) -> tuple[Scalar, ...]:
    if isinstance(node, Compare):
        return (node.left, node.right)
    return (node.term,) if isinstance(node, In | IsNull | Contains) else ()


def children(node: Node) -> tuple[Node, ...]:
    """The predicates directly under a node."""
    if isinstance(node, Compare | In):  # nearly all nodes of a long predicate
        return ()
    if isinstance(node, And | Or):
        return node.parts
    match node:
        case Not(part) | Is(part, _) | Computable(part):
            return (part,)
        case Choose(condition, then, otherwise):
            return (condition, then, otherwise)
    return ()


def walk(node: Node) -> Iterator[Node]:
    """Every predicate of the tree, parents first, without recursion."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


def paths_of(scalar: Scalar) -> Iterator[str]:
    """The paths of the columns that a scalar reads, with repetitions."""
    stack: list[Scalar] = [scalar]
    while stack:
        match stack.pop():
            case Reference(path, _):
                yield path
            case Call(_, arguments, _, _):
                stack.extend(arguments)


def columns(node: Node) -> frozenset[str]:
    """The paths of the columns that a predicate reads.

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
    """The number of predicates that `walk` yields: a node that is shared by two parents counts twice.

    Computed bottom-up over distinct nodes, since shared nodes may make the walk exponentially long.
    """
    sizes: dict[int, int] = {}
    stack: list[tuple[Node, bool]] = [(node, False)]
    while stack:
        each, children_done = stack.pop()
        if id(each) in sizes:
            continue
        below = children(each)
        if children_done or not below:
            sizes[id(each)] = 1 + sum(sizes[id(child)] for child in below)
        else:
            stack.append((each, True))
            stack.extend((child, False) for child in below)
    return sizes[id(node)]


def has_call_or_opaque(node: Node) -> bool:
    """Whether a predicate holds a function call or an opaque part, of which ranges may not show everything."""
    return any(
        isinstance(each, Opaque) or any(isinstance(scalar, Call) for scalar in _scalars(each)) for each in walk(node)
    )


def depth(node: Node) -> int:
    """The depth of nesting, of predicates and of the function calls below them."""
    deepest = 0
    stack: list[tuple[Node | Scalar, int]] = [(node, 1)]
    while stack:
        each, level = stack.pop()
        deepest = max(deepest, level)
        if isinstance(each, Call):
            stack.extend((argument, level + 1) for argument in each.arguments)
        elif not isinstance(each, Reference | Literal):
            below = _scalars(each)
            deepest = max(deepest, level + bool(below))
            stack.extend([(scalar, level + 1) for scalar in below if isinstance(scalar, Call)])
            stack.extend([(child, level + 1) for child in children(each)])
    return deepest
