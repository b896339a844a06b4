"""`Type`: the entry of one type of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pyarrow as pa

__all__ = ["Form", "Type"]

Form: TypeAlias = Literal["integer", "float", "decimal", "bytes"]
"""The representation of values, by which they are compared, hashed and stored in the index."""


def _itself(type: pa.DataType) -> pa.DataType:
    return type


def _none(type: pa.DataType) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """One type: how its values are ordered, stored, named and written in SQL. To add a type is to add an entry.

    ``arrow``: an example of each Arrow type of the entry. ``forms``: an example of each that `logical` turns into one.
    ``exact``: the entry covers only these Arrow types, not others with the same Arrow id.
    ``form``: None for a type whose values have no agreed order: it is stored and read, but never used to prune.
    ``kind``: the group of types that engines compare with one another, such as "number"; the type's name if empty.
    ``compared``: the type in which Arrow's kernels compare the values of a logical type.
    ``limits``: the least and the greatest value of a type of the form "integer", in its own units.
    ``tick``: the unit of a date or time in nanoseconds, for a type whose integers count such units.
    ``stored``: the type with which a table stores this one.
    ``duckdb``, ``spark``: the engine's name of the type of a Parquet column; None if it has none.
    ``dialects``: the dialects that have the type, and to which `parsed` and `read` apply.
    ``parsed``: the parser's names of the type. ``spelled``: a value as the text that a cast to the type reads.
    ``plain``: whether a constant of the type needs no cast. ``read``: the value of a string that is compared with a
    column; None if its cast is left to the engine. ``docs``: the row of docs/predicates.md.
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
