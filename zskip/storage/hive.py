"""Hive partitions: the values of partition columns as folder names, ``column=value/``, and back.

Values are written as by Spark and DuckDB: dates as 2024-01-31, NULL as ``__HIVE_DEFAULT_PARTITION__``, and characters
that a file system may refuse as %XX. Different values have different texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import pyarrow as pa

from zskip.core import types as t
from zskip.core.late_loading import pc
from zskip.errors import SchemaError, SchemaMismatch

NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{}\[\]^<>|]""")
_LONGEST_NAME = 255  # bytes, on most file systems
_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_FIT = (t.is_integer, t.is_string, t.is_boolean, t.is_date32, lambda type: t.is_timestamp(type) and type.tz is None)


def require_partition_type(column: str, type: pa.DataType) -> None:
    """Raises `SchemaError` for a type whose values cannot be folder names."""
    plain = type.value_type if t.is_dictionary(type) else type
    if not any(holds(plain) for holds in _FIT):
        raise SchemaError(
            f'The column "{column}" of type {type} cannot partition a table: its values cannot be folder names.'
        )


def partition_texts(values: pa.ChunkedArray, column: str) -> pa.ChunkedArray:
    """The text of each value; `NULL` for a null. Raises `SchemaMismatch` for a value that cannot be a folder name.

    >>> partition_texts(pa.chunked_array([[True, None]]), "b").to_pylist()
    ['true', '__HIVE_DEFAULT_PARTITION__']
    """
    if t.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    texts = values.cast(pa.string())
    if t.is_string(values.type):
        try:
            pc.unique(texts).validate(full=True)
        except pa.ArrowInvalid as error:
            raise SchemaMismatch(f'The column "{column}" holds a text that is not UTF-8: {error}') from error
        unfit = pc.or_(pc.equal(texts, ""), pc.equal(texts, NULL))
        if pc.any(unfit).as_py():
            raise SchemaMismatch(
                f'The column "{column}" holds an empty string or "{NULL}": as a folder name, that would be read as '
                "NULL. Partition by another column, or replace these values."
            )
    is_time = t.is_date(values.type) or t.is_timestamp(values.type)
    if is_time and pc.any(pc.starts_with(texts, "<")).as_py():  # "<value out of range: 13890172>"
        raise SchemaMismatch(
            f'The column "{column}" holds an infinite date or time, or one of a year beyond ±32767, which has no '
            "folder name. Partition by another column, or replace these values."
        )
    return pc.fill_null(texts, NULL)


def folder(columns: Sequence[str], texts: Sequence[str]) -> str:
    """The folder of a partition, with a slash at the end. Raises `SchemaMismatch` for a name that is too long.

    >>> folder(["day", "host"], ["2024-01-31", "a/b"])
    'day=2024-01-31/host=a%2Fb/'
    """
    names = [f"{_escape(column)}={_escape(text)}" for column, text in zip(columns, texts, strict=True)]
    for column, name in zip(columns, names, strict=True):
        if len(name.encode()) > _LONGEST_NAME:
            raise SchemaMismatch(
                f'A value of the column "{column}" is too long for a folder name: "{name[:60]}…" has more than '
                f"{_LONGEST_NAME} bytes. Partition by another column."
            )
    return "".join(f"{name}/" for name in names)


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def values_of(path: str) -> dict[str, str | None]:
    """The partition values in a path as text, None for NULL. Raises `SchemaMismatch` for bytes that are not UTF-8.

    >>> values_of("day=2024-01-31/host=a%2Fb/part-0.parquet")
    {'day': '2024-01-31', 'host': 'a/b'}
    """
    pairs = [segment.partition("=") for segment in path.split("/")[:-1] if "=" in segment]
    return {_decoded(name): None if text == NULL else _decoded(text) for name, _, text in pairs if name}


def encoded_names(path: str) -> dict[str, str]:
    """The partition columns in a path, and their encoded names.

    >>> encoded_names("a%20b=1/part-0.parquet")
    {'a b': 'a%20b'}
    """
    names = [segment.partition("=")[0] for segment in path.split("/")[:-1] if "=" in segment]
    return {_decoded(name): name for name in names if name}


def _decoded(text: str) -> str:
    """A text with its %XX decoded. Raises `SchemaMismatch` for bytes that are not UTF-8, at which DuckDB fails too."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise SchemaMismatch(f'The folder name "{text}" is not UTF-8 after decoding: rename the folder.') from error


def partitions(paths: pa.StringArray) -> dict[str, pa.StringArray]:
    """The text of each file's value of each partition column; null if a path has no folder for the column.

    >>> partitions(pa.array(["day=1/a.parquet", "day=2/host=x%20y/b.parquet"]))["host"].to_pylist()
    [None, 'x y']
    """
    if not pc.any(pc.match_substring(paths, "=")).as_py():
        return {}
    folders = pc.dictionary_encode(pc.replace_substring_regex(paths, r"(^|/)[^/]*$", "/"))
    found: dict[str, list[str | None]] = {}
    for number, folder in enumerate(folders.dictionary.to_pylist()):
        for name, text in values_of(folder).items():
            texts = found.setdefault(name, [None] * len(folders.dictionary))
            texts[number] = NULL if text is None else text
    return {name: pa.array(texts, pa.string()).take(folders.indices) for name, texts in found.items()}


def inferred_type(texts: pa.StringArray) -> pa.DataType:
    """The type of the partition values in folders of other writers; null and `NULL` are ignored.

    An integer or a date if every text is the canonical form of one, else a string: "007" is a string, and so is
    2024-02-30.

    >>> [inferred_type(pa.array(texts)) for texts in (['1', '-20', None], ['2024-01-31'], ['2024-02-30'])]
    [DataType(int64), DataType(date32[day]), DataType(string)]
    """
    values = texts.filter(pc.and_(pc.is_valid(texts), pc.not_equal(texts, NULL)))
    if not len(values):
        return pa.string()
    if pc.all(pc.match_substring_regex(values, _INTEGER)).as_py():
        return pa.int64()
    if pc.all(pc.match_substring_regex(values, _DATE)).as_py():
        try:
            values.cast(pa.date32())
        except pa.ArrowInvalid:
            return pa.string()
        return pa.date32()
    return pa.string()


def partition_scalars(texts: Mapping[str, str | None], types: Mapping[str, pa.DataType]) -> dict[str, pa.Scalar]:
    """The partition values of one path. Raises `SchemaMismatch` for text that is not a value of its type."""
    try:
        return {
            name: pa.array([text], pa.string()).cast(types[name])[0] for name, text in texts.items() if name in types
        }
    except pa.ArrowInvalid as error:
        raise SchemaMismatch(f"A folder name is not a value of its column: {error}") from error
