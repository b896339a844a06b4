"""The schema of files with different schemas: the columns of all, in types that hold the values of each."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from zskip.core import types as t
from zskip.core.schema import Schema
from zskip.errors import SchemaMismatch
from zskip.storage import hive

__all__ = ["identity", "united"]


def identity(schema: Schema) -> bytes:
    """A key that is equal for schemas of the same columns. Some extension types have no hash."""
    identity: bytes = schema.arrow.remove_metadata().serialize().to_pybytes()
    return identity


def united(schemas: Sequence[tuple[str, Schema]], folders: dict[str, pa.StringArray]) -> Schema:
    """The columns of all files, with numbers widened, followed by the partition columns in the names of folders.

    ``schemas``: each with the name of a file that has it, or of the table. Raises `SchemaMismatch` for a column whose
    types have no common type, and for names that differ only in case.
    """
    distinct = [schema.arrow.remove_metadata() for schema in {identity(each): each for _, each in schemas}.values()]
    types: dict[str, list[pa.DataType]] = {}
    for field in (field for each in distinct for field in each):
        if field.type not in (known := types.setdefault(field.name, [])):
            known.append(field.type)
    distinct = [
        pa.schema([field.with_type(_common(field.type)) if len(types[field.name]) > 1 else field for field in each])
        for each in distinct
    ]
    try:
        schema = pa.unify_schemas(distinct, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SchemaMismatch(_without_common_type(schemas) or f"The files have no common schema: {error}") from error
    _require_one_spelling(Schema(schema), schemas)
    for key, values in folders.items():
        if schema.get_field_index(key) < 0:
            schema = schema.append(pa.field(key, hive.inferred_type(values)))
    return Schema(schema)


def _common(type: pa.DataType) -> pa.DataType:
    """The type of the values, without what only the Arrow schema adds: dictionaries, views, time zones."""
    if t.is_dictionary(type):
        return type.value_type
    if t.is_string_view(type):
        return pa.string()
    if t.is_binary_view(type):
        return pa.binary()
    if t.is_timestamp(type) and type.tz is not None:
        return pa.timestamp(type.unit, "UTC")
    if t.is_struct(type):
        return pa.struct([field.with_type(_common(field.type)) for field in type])
    return type


def _without_common_type(schemas: Sequence[tuple[str, Schema]]) -> str | None:
    """The message about the first column whose types cannot be united, with a file of each type."""
    found: dict[str, dict[pa.DataType, str]] = {}
    for where, schema in schemas:
        for field in schema.arrow:
            types = found.setdefault(field.name, {})
            types.setdefault(_common(field.type), where)
            try:
                pa.unify_schemas([pa.schema([(field.name, type)]) for type in types], promote_options="permissive")
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                has = ", and ".join(f"{type} in {name}" for type, name in types.items())
                return f'The column "{field.name}" has types without a common type: {has}. Move one of them away.'
    return None


def _require_one_spelling(united: Schema, schemas: Sequence[tuple[str, Schema]]) -> None:
    """Raise `SchemaMismatch` for names that differ only in case: one column in some engines, two in others."""
    spelled: dict[tuple[str, ...], str] = {}
    for column in united:
        other = spelled.setdefault(tuple(part.lower() for part in column.parts), column.path)
        if other == column.path or any({other, column.path} <= schema.columns.keys() for _, schema in schemas):
            continue
        one, two = (next(name for name, schema in schemas if path in schema.columns) for path in (other, column.path))
        raise SchemaMismatch(
            f'A column is named "{other}" in {one} and "{column.path}" in {two}: one column in engines that '
            "ignore case, two in others. Rewrite the files with one name: "
            "zskip.write(duckdb.sql(\"FROM read_parquet('…/*.parquet', union_by_name = true)\"), new_path, by=…)."
        )
