"""Hive folders, ``column=value/``: the values of partition columns as text in names, and back.

A value's text is what Spark and DuckDB write: dates as 2024-01-31, NULL as ``__HIVE_DEFAULT_PARTITION__``, characters
that a file system may refuse as %XX. No two values share a text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from zskip.errors import SchemaError, SchemaMismatch

__all__ = ["NULL", "folder", "inferred", "partition_texts", "refuse_unfit", "scalars", "values_of"]

NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{}\[\]^<>|]""")
_FIT = (t.is_integer, t.is_string, t.is_boolean, t.is_date32, lambda type: t.is_timestamp(type) and type.tz is None)


def refuse_unfit(column: str, type: pa.DataType) -> None:
    """Raise `SchemaError` for a type whose values are not fit to be names of folders."""
    plain = type.value_type if t.is_dictionary(type) else type
    if not any(holds(plain) for holds in _FIT):
        raise SchemaError(
            f'The column "{column}" of type {type} cannot partition a table: its values make no folder names.'
        )


def partition_texts(values: pa.ChunkedArray, column: str) -> pa.ChunkedArray:
    """The text of each value; `NULL` for a null. Raises `SchemaMismatch` for text that no folder can carry.

    >>> partition_texts(pa.chunked_array([[True, None]]), "b").to_pylist()
    ['true', '__HIVE_DEFAULT_PARTITION__']
    """
    if t.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    texts = values.cast(pa.string())
    if t.is_string(values.type):
        unfit = pc.or_(pc.equal(texts, ""), pc.equal(texts, NULL))
        if pc.any(unfit).as_py():
            raise SchemaMismatch(
                f'The column "{column}" holds an empty string or "{NULL}": as a folder name, that would be read as '
                "NULL. Partition by another column, or replace these values."
            )
    return pc.fill_null(texts, NULL)


def folder(columns: Sequence[str], texts: Sequence[str]) -> str:
    """The folder of a partition, with a slash at its end.

    >>> folder(["day", "host"], ["2024-01-31", "a/b"])
    'day=2024-01-31/host=a%2Fb/'
    """
    return "".join(f"{_escape(column)}={_escape(text)}/" for column, text in zip(columns, texts, strict=True))


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def values_of(path: str) -> dict[str, str | None]:
    """The texts in a path's folders; None for NULL.

    >>> values_of("day=2024-01-31/host=a%2Fb/part-0.parquet")
    {'day': '2024-01-31', 'host': 'a/b'}
    """
    pairs = [segment.partition("=") for segment in path.split("/")[:-1] if "=" in segment]
    return {unquote(name): None if text == NULL else unquote(text) for name, _, text in pairs if name}


def inferred(texts: Sequence[str | None]) -> pa.DataType:
    """The type that foreign folders seem to mean: whole numbers, dates, or text. Zero-padded numbers stay text."""
    known = [text for text in texts if text is not None]
    if known and all(re.fullmatch(r"-?[1-9]\d{0,17}|0", text) for text in known):
        return pa.int64()
    if known and all(re.fullmatch(r"\d{4}-\d\d-\d\d", text) for text in known):
        return pa.date32()
    return pa.string()


def scalars(texts: Mapping[str, str | None], types: Mapping[str, pa.DataType]) -> dict[str, pa.Scalar]:
    """The values of one path's folders. Raises `SchemaMismatch` for text that is no value of its type."""
    try:
        return {
            name: pa.array([text], pa.string()).cast(types[name])[0] for name, text in texts.items() if name in types
        }
    except pa.ArrowInvalid as error:
        raise SchemaMismatch(f"A folder name holds no value of its column: {error}") from error
