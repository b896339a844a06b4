"""`Type`: everything that zskip knows of one type of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pyarrow as pa

__all__ = ["Form", "Type"]

Form: TypeAlias = Literal["integer", "float", "decimal", "bytes"]
"""How values lie in memory, and so how they are compared, hashed and kept in the index."""


def _itself(type: pa.DataType) -> pa.DataType:
    return type


def _none(type: pa.DataType) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """One type: how its values are ordered, kept, named and written in SQL. A new type is one such entry.

    ``arrow``: an example of each Arrow type that this is, and ``forms``: of each that `logical` turns into one.
    ``exact``: no other Arrow type than these very ones, though its Arrow id be the same.
    ``form``: None for a type whose values have no agreed order: it is stored and read, and never pruned on.
    ``kind``: the types that engines compare with one another, such as "number"; its name where empty.
    ``compared``: the type in which Arrow's kernels compare the values of a logical type.
    ``limits``: the least and the greatest value of a type of the form "integer", in its own units.
    ``tick``: nanoseconds of a date's or a time's unit, for a type whose integers count them.
    ``stored``: the type that a table keeps of this one.
    ``duckdb``, ``spark``: what the engine calls the type of a Parquet column; None where it has none.
    ``dialects``: those that know the type, and read `parsed` and `read` as said here.
    ``parsed``: the parser's names of the type. ``spelled``: a value as the text of a constant that a cast to the type
    reads; ``plain``: whether a constant of the type needs no cast. ``read``: the value that a text beside a column is;
    None for a text that is left to the engine. ``docs``: the row of docs/predicates.md.
    """

    name: str
    arrow: tuple[pa.DataType, ...]
    forms: tuple[pa.DataType, ...] = ()
    exact: bool = False
    form: Form | None = None
    kind: str = ""
    logical: Callable[[pa.DataType], pa.DataType] = _itself
    compared: Callable[[pa.DataType], pa.DataType] = _itself
    limits: Callable[[pa.DataType], tuple[int, int]] | None = None
    tick: Callable[[pa.DataType], int | None] = _none
    stored: Callable[[pa.DataType], pa.DataType] = _itself
    duckdb: Callable[[pa.DataType], str | None] = _none
    spark: Callable[[pa.DataType], str | None] = _none
    dialects: tuple[str, ...] = ("duckdb", "spark")
    parsed: Mapping[str, pa.DataType] = field(default_factory=dict)
    spelled: Callable[[Any], str] | None = None
    plain: Callable[[pa.DataType], bool] | None = None
    read: Callable[[str], pa.Scalar | None] | None = None
    docs: tuple[str, str] | None = None
