"""Schema evolution: add columns and widen types without loss; refuse everything else."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from zskip.core import types as t
from zskip.core.schema import join_path
from zskip.errors import SchemaMismatch

_INTEGER_BITS = {
    pa.int8(): (True, 8),
    pa.int16(): (True, 16),
    pa.int32(): (True, 32),
    pa.int64(): (True, 64),
    pa.uint8(): (False, 8),
    pa.uint16(): (False, 16),
    pa.uint32(): (False, 32),
    pa.uint64(): (False, 64),
}

_WRITTEN_AS_TEXT = ("arrow.uuid", "arrow.json")

_MOST_NAMES = 8
"""The greatest number of column names in one message."""


def appended(table: pa.Schema, rows: pa.Schema) -> pa.Schema:
    """As `evolved`, for rows to append. Raises `SchemaMismatch` also if they share no column with the table."""
    if table.names and rows.names and not set(table.names) & set(rows.names):
        raise SchemaMismatch(
            f"The rows and the table share no column: the table has {_listed(table.names)}, the rows have "
            f"{_listed(rows.names)}. Rename the columns, or write these rows to a table of their own."
        )
    return evolved(table, rows, "the rows")


def evolved(table: pa.Schema, rows: pa.Schema, where: str, before: str = "the table") -> pa.Schema:
    """The schema of a table after rows with another storable schema are added to it.

    A column that only the rows have is added as nullable; one that only the table has becomes nullable. If the types of
    a column differ, it gets their `common_type`. ``where``, ``before``: the names of the rows and of the table in
    messages. Raises `SchemaMismatch` if there is no common type, or if names differ only in case.
    """
    fields, names = [], set(table.names)
    known = {name.lower(): name for name in names}
    for field in table:
        index = rows.get_field_index(field.name)
        if index < 0:
            fields.append(field.with_nullable(True))
            continue
        given = rows.field(index)
        type = common_type(field.type, given.type)
        if type is None:
            raise SchemaMismatch(
                f'The column "{field.name}" is {field.type} in {before} and {given.type} in {where}: neither can take '
                "the values of the other without loss or another meaning in SQL. Cast the rows, or write them to"
                " another column."
            )
        fields.append(pa.field(field.name, type, field.nullable or given.nullable))
    for field in rows:
        if field.name in names:
            continue
        if field.name.lower() in known:
            raise SchemaMismatch(
                f'The column "{field.name}" of {where} differs only in case from '
                f'"{known[field.name.lower()]}" of {before}.'
            )
        fields.append(field.with_nullable(True))
    return pa.schema(fields, table.metadata)


def new_and_widened(
    before: pa.Schema | pa.StructType, after: pa.Schema | pa.StructType, above: tuple[str, ...] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The paths of columns and fields that only ``after`` has, and the changes of the others' types.

    >>> new_and_widened(pa.schema({"a": pa.int32()}), pa.schema({"a": pa.int64(), "b": pa.int8()}))
    (('b',), ('a: int32 → int64',))
    """
    new: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()
    for field in after:
        parts = (*above, field.name)
        index = before.get_field_index(field.name)
        if index < 0:
            new += (join_path(parts),)
        elif t.is_struct(old := before.field(index).type) and t.is_struct(field.type):
            more = new_and_widened(old, field.type, parts)
            new, widened = new + more[0], widened + more[1]
        elif old != field.type:
            widened += (f"{join_path(parts)}: {old} → {field.type}",)
    return new, widened


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")


def united(schemas: Sequence[tuple[str, pa.Schema]]) -> pa.Schema:
    """The schema that holds the rows of all named schemas. Raises `SchemaMismatch`."""
    schema = schemas[0][1]
    for where, other in schemas[1:]:
        if not other.equals(schema):
            schema = evolved(schema, other, where, "earlier files")
    return schema


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type that represents every value of both types exactly; None if there is none.

    ``one``, the table's type, stays as it is beside an instant in another time zone; bytes beside bytes of a fixed
    width: so rows of Iceberg's type fixed come back from its library; UUIDs and JSON beside texts, and lists beside
    those of a fixed length: so DuckDB's relations give them; and maps whose values it can hold. Timestamps of two units
    have no common type: the finer unit has the smaller range, and the coarser one rounds. Nor have times of day in
    nanoseconds and in a coarser unit: DuckDB compares no TIME_NS with a TIME.

    >>> common_type(pa.int16(), pa.uint16()), common_type(pa.int64(), pa.float64())
    (DataType(int32), None)
    """
    if one == other:
        return one
    if t.is_null(one) or t.is_null(other):
        return other if t.is_null(one) else one
    if t.is_binary(one) and t.is_fixed_size_binary(other):
        return one
    if isinstance(one, pa.BaseExtensionType) and one.extension_name in _WRITTEN_AS_TEXT and t.is_string(other):
        return one
    if isinstance(one, pa.JsonType) and isinstance(other, pa.JsonType):
        return one
    if t.is_timestamp(one) and t.is_timestamp(other) and one.unit == other.unit and one.tz and other.tz:
        return one
    if t.is_fixed_size_list(one) and t.is_fixed_size_list(other):
        is_same = one.value_type == other.value_type and one.list_size == other.list_size
        return (one if one.value_field.nullable else other) if is_same else None
    if t.is_fixed_size_list(one) and t.is_list(other) and one.value_type == other.value_type:
        return one  # the length of each list is checked when its rows are stored
    if t.is_list(one) and t.is_fixed_size_list(other):
        return common_type(one, pa.list_(other.value_field))
    if t.is_map(one) and t.is_map(other) and one.key_type == other.key_type:
        return one if common_type(one.item_type, other.item_type) == one.item_type else None
    for left, right in ((one, other), (other, one)):
        wider = _widened(left, right)
        if wider is not None:
            return wider
    return None


def may_round(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether some number of type ``old``, at any depth, is another number as ``new``, or cannot be one.

    >>> may_round(pa.int32(), pa.float64()), may_round(pa.list_(pa.int64()), pa.list_(pa.float64()))
    (False, True)
    """
    if t.is_struct(old) and t.is_struct(new):
        known = {field.name: field.type for field in new}
        return any(may_round(field.type, known[field.name]) for field in old if field.name in known)
    if t.is_list(old) and t.is_list(new):
        return may_round(old.value_type, new.value_type)
    if t.is_map(old) and t.is_map(new):
        return may_round(old.key_type, new.key_type) or may_round(old.item_type, new.item_type)
    return t.is_numeric(old) and t.is_numeric(new) and common_type(old, new) != new


def _widened(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The common type of two types; it is enough that one order of the arguments gives it."""
    if one in _INTEGER_BITS and other in _INTEGER_BITS:
        return _wider_integer(one, other)
    if t.is_integer(one) and t.is_floating(other):
        digits = {16: 11, 32: 24, 64: 53}[other.bit_width]
        signed, bits = _INTEGER_BITS[one]
        if bits - signed <= digits:
            return other
        return pa.float64() if bits - signed <= 53 else None
    if t.is_floating(one) and t.is_floating(other):
        return one if one.bit_width > other.bit_width else other
    if t.is_decimal(one) and (t.is_decimal(other) or t.is_integer(other)):
        return _wider_decimal(one, other)
    if t.is_time(one) and t.is_time(other) and one.unit != "ns":
        return one if t.widens(other, one) else None
    if t.is_dictionary(one) and (one.value_type == other or t.is_dictionary(other)):
        return common_type(one.value_type, other.value_type) if t.is_dictionary(other) else other
    if t.is_list(one) and t.is_list(other):
        item = common_type(one.value_type, other.value_type)
        return None if item is None else pa.list_(pa.field(one.value_field.name, item))
    if t.is_struct(one) and t.is_struct(other):
        try:
            return pa.struct(list(evolved(pa.schema(list(one)), pa.schema(list(other)), "the other")))
        except SchemaMismatch:
            return None
    return None


def _wider_integer(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    (signed, bits), (other_signed, other_bits) = _INTEGER_BITS[one], _INTEGER_BITS[other]
    if signed == other_signed:
        return one if bits > other_bits else other
    needed = max(bits if signed else bits + 1, other_bits if other_signed else other_bits + 1)
    return next((type for type, (has_sign, size) in _INTEGER_BITS.items() if has_sign and size >= needed), None)


def _wider_decimal(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if t.is_decimal(other):
        integer_digits, scale = other.precision - other.scale, other.scale
    else:
        integer_digits, scale = t.integer_digits(other), 0
    common_scale = max(one.scale, scale)
    precision = max(one.precision - one.scale, integer_digits) + common_scale
    if precision <= 38:
        return pa.decimal128(precision, common_scale)
    # DuckDB reads more digits as doubles: no append makes them of fewer.
    wide = one.precision > 38 or (t.is_decimal(other) and other.precision > 38)
    return pa.decimal256(precision, common_scale) if wide and precision <= 76 else None
