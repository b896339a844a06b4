"""Hive partitions: the values of partition columns as folder names, ``column=value/``, and back.

Values are written as by Spark: dates as 2024-01-31, times as 2024-01-31 10:00:00.5, NULL as
``__HIVE_DEFAULT_PARTITION__``, and characters that a file system may refuse as %XX. Different values have different
texts. Names of other writers have the types and values that DuckDB infers.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from zskip.core import types as t
from zskip.core.late_loading import ask_duckdb, pc
from zskip.errors import SchemaError, SchemaMismatch, first_line

NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{}\[\]^<>|]""")
_LONGEST_NAME = 255  # bytes, on most file systems
INTEGER = re.compile("^(0|-?[1-9][0-9]{0,17})$")
DATE = re.compile("^[0-9]{4}-[0-9]{2}-[0-9]{2}$")
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
    if t.is_timestamp(values.type):  # as by Spark, to which 10:00:00.000000 is no time
        texts = pc.replace_substring_regex(texts, r"\.0+$", "")
        texts = pc.replace_substring_regex(texts, r"(\.[0-9]*[1-9])0+$", r"\1")
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


def texts_of(path: str) -> dict[str, str]:
    """The partition columns in a path, each with the text of its value as it is written there.

    >>> texts_of("day=2024-01-31/host=a%2Fb/part-0.parquet")
    {'day': '2024-01-31', 'host': 'a%2Fb'}
    """
    pairs = [segment.partition("=") for segment in path.split("/")[:-1] if "=" in segment]
    return {_decoded(name): text for name, _, text in pairs if name}


def values_of(path: str) -> dict[str, str | None]:
    """The partition values in a path as text, None for NULL. Raises `SchemaMismatch` for bytes that are not UTF-8.

    >>> values_of("day=2024-01-31/host=a%2Fb/part-0.parquet")
    {'day': '2024-01-31', 'host': 'a/b'}
    """
    return {name: None if text == NULL else _decoded(text) for name, text in texts_of(path).items()}


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
    """For each partition column the text in the name of each file's folder, as it is written there.

    Null if a path has no folder for the column.

    >>> partitions(pa.array(["day=1/a.parquet", "day=2/host=x%20y/b.parquet"]))["host"].to_pylist()
    [None, 'x%20y']
    """
    if not pc.any(pc.match_substring(paths, "=")).as_py():
        return {}
    folders = pc.dictionary_encode(pc.replace_substring_regex(paths, r"(^|/)[^/]*$", "/"))
    found: dict[str, list[str | None]] = {}
    for number, folder in enumerate(folders.dictionary.to_pylist()):
        for name, text in texts_of(folder).items():
            texts = found.setdefault(name, [None] * len(folders.dictionary))
            texts[number] = text
    return {name: pa.array(texts, pa.string()).take(folders.indices) for name, texts in found.items()}


def inferred_type(texts: pa.StringArray) -> pa.DataType:
    """The type that DuckDB infers from the names of folders: BIGINT, DATE, TIMESTAMP or VARCHAR.

    ``texts``: as they are written in the names; null and `NULL` are ignored.

    >>> [inferred_type(pa.array(texts)) for texts in (['1', '-20', None], ['2024-01-31'], ['1', '007'], ['2024-1-1'])]
    [DataType(int64), DataType(date32[day]), DataType(string), DataType(date32[day])]
    """
    names = pc.unique(texts.filter(pc.and_(pc.is_valid(texts), pc.not_equal(texts, NULL))))
    if not len(names):
        return pa.string()
    if pc.all(pc.match_substring_regex(names, INTEGER.pattern)).as_py():
        return pa.int64()
    if pc.all(pc.match_substring_regex(names, DATE.pattern)).as_py():
        try:
            names.cast(pa.date32())
        except pa.ArrowInvalid:
            return pa.string()
        return pa.date32()
    return _inferred_by_duckdb(names.to_pylist())


def _inferred_by_duckdb(names: list[str]) -> pa.DataType:
    """The type that DuckDB infers for names in any form, such as 2024-1-1 and 0x10.

    Its rule is stricter than TRY_CAST: that finds out whether to ask for the type of files in folders of these names.
    """
    types = {"DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us"), "BIGINT": pa.int64()}
    fit = " OR ".join(f"bool_and(lower(name) = 'null' OR TRY_CAST(name AS {type}) IS NOT NULL)" for type in types)
    short = f"max(strlen('p=' || name)) <= {_LONGEST_NAME}"
    ask = f"SELECT {short} AND ({fit}) FROM (SELECT unnest($1::VARCHAR[]) AS name)"
    if ask_duckdb(ask, [names]) == [(True,)]:
        return types.get(_type_of_folders(names), pa.string())
    return pa.string()


def _type_of_folders(names: list[str]) -> str:
    from tempfile import TemporaryDirectory

    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), file)
    with TemporaryDirectory() as root:
        for name in names:
            inner = Path(root, f"p={name}")
            inner.mkdir()
            (inner / "0.parquet").write_bytes(file.getvalue())
        read = "SELECT typeof(p) FROM read_parquet($1, hive_partitioning = true) LIMIT 1"
        found: str = ask_duckdb(read, [f"{root}/*/*.parquet"])[0][0]
    return found


def decoded(texts: pa.StringArray) -> pa.StringArray:
    """Texts from `partitions` without their %XX; null for `NULL`. Raises `SchemaMismatch` for bytes that are not UTF-8.

    >>> decoded(pa.array(["a%2Fb", "__HIVE_DEFAULT_PARTITION__"])).to_pylist()
    ['a/b', None]
    """
    texts = pc.if_else(pc.equal(texts, NULL), pa.scalar(None, pa.string()), texts)
    if not pc.any(pc.match_substring(texts, "%")).as_py():
        return texts
    encoded = pc.dictionary_encode(texts)
    return pa.array(map(_decoded, encoded.dictionary.to_pylist()), pa.string()).take(encoded.indices)


def cast(texts: pa.StringArray, type: pa.DataType) -> pa.Array:
    """The values of decoded texts as DuckDB reads them. Raises `SchemaMismatch` for a text that is not of the type.

    >>> cast(pa.array(["2024-01-31", "2024-2-1", None]), pa.date32()).to_pylist()
    [datetime.date(2024, 1, 31), datetime.date(2024, 2, 1), None]
    """
    try:
        return texts.cast(type)
    except pa.ArrowInvalid as error:
        name = {pa.int64(): "BIGINT", pa.date32(): "DATE", pa.timestamp("us"): "TIMESTAMP"}.get(type)
        if name is None:
            raise SchemaMismatch(f"A folder name is not a value of its column: {error}") from error
        return _cast_by_duckdb(texts, name)


def _cast_by_duckdb(texts: pa.StringArray, type: str) -> pa.Array:
    import duckdb

    # Beside numbers and dates, the word NULL is no value.
    value = f"CAST(CASE WHEN lower(text) <> 'null' THEN text END AS {type})"
    with duckdb.connect() as con:
        try:
            read = con.sql(f"SELECT {value} FROM (SELECT unnest($1::VARCHAR[]) AS text)", params=[texts.to_pylist()])
            return read.to_arrow_table().column(0).combine_chunks()
        except duckdb.Error as error:
            raise SchemaMismatch(f"A folder name is not a value of its column: {first_line(error)}") from error


def partition_values(path: str, types: Mapping[str, pa.DataType]) -> dict[str, pa.Scalar]:
    """The values of partition columns according to a path's folders; NULL for a column without a folder.

    Raises `SchemaMismatch` for a text that is not a value of its type.

    >>> partition_values("/lake/day=7/host=a%2Fb/x.parquet", {"day": pa.int64(), "host": pa.string()})
    {'day': <pyarrow.Int64Scalar: 7>, 'host': <pyarrow.StringScalar: 'a/b'>}
    """
    texts = texts_of(path)
    return {name: cast(decoded(pa.array([texts.get(name)], pa.string())), type)[0] for name, type in types.items()}


def kept_names(paths: pa.StringArray, schema: pa.Schema) -> dict[str, str]:
    """The folders in these paths that a rewrite must not rename, by the names that `folder` gives them.

    2024-1-1 would become 2024-01-01, which is a date to Spark as well, and the text %31 would become 1, a number.
    Raises `SchemaMismatch` for two such folders of one value, whose rows a rewrite cannot tell apart, and for the word
    NULL beside numbers or dates, a text to Spark, of which the index of a rewrite knows that it is NULL to others.

    >>> kept_names(pa.array(["day=2024-1-1/a", "day=2024-01-02/a"]), pa.schema({"day": pa.date32()}))
    {'day=2024-01-01': 'day=2024-1-1'}
    """
    kept: dict[str, str] = {}
    for column, texts in partitions(paths).items():
        old = pc.unique(texts.drop_null())
        values = pa.chunked_array([cast(decoded(old), schema.field(column).type)])
        new = [_escape(text) for text in partition_texts(values, column).to_pylist()]
        # Spark takes each byte of %C3%A9 for a letter.
        if t.is_string(values.type) and t.is_string(inferred_type(pa.array(new, pa.string()))):
            old = old.filter(pc.invert(pc.string_is_ascii(decoded(old))))
            new = [name for name in new if not name.isascii()]
        found: dict[str, str] = {}
        for before, after in zip(old.to_pylist(), new, strict=True):
            if after == NULL != before:
                raise SchemaMismatch(
                    f'The folder "{column}={before}" is NULL to DuckDB, and a text to Spark. Rename it to '
                    f'"{column}={NULL}", or use zskip.write for a new table.'
                )
            if found.setdefault(after, before) != before:
                raise SchemaMismatch(
                    f'The folders "{column}={found[after]}" and "{column}={before}" stand for one value, which can be '
                    "laid out in one of them only. Move the files of the other, or write a new table by zskip.write."
                )
        name = _escape(column)
        for after, before in found.items():
            # %31 and 1 are the same text, which only its encoding keeps from being a number.
            same = before == after if t.is_string(values.type) else _decoded(before) == _decoded(after)
            if not same:
                kept[f"{name}={after}"] = f"{name}={before}"
    return kept
