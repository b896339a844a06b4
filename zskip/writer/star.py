"""Dimensions at a write: rows are joined with them, so that a layout and the index know their attributes.

    rows ──keys──▶ dimension ──▶ rows with the attributes ──▶ layout, statistics
                                     └──▶ data files, without the attributes

A row whose key is NULL, or in no row of the dimension, has NULL attributes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.core.schema import Schema, names_given, split_path
from zskip.engines.arrow import to_arrow
from zskip.errors import InvalidOption, SchemaMismatch, ZskipError, in_quotes, nearest
from zskip.plan import find_survivors
from zskip.stats import ColumnStatistics, DataFiles, FileStatistics
from zskip.table_formats import index_of, is_table_object, own_snapshot, source_of
from zskip.tablelog import Dimension, Index
from zskip.tablelog.dimensions import attribute_name
from zskip.writer.open_source import open_source
from zskip.writer.row_source import Part, RowSource

_LOG = logging.getLogger("zskip")


@dataclass(frozen=True, slots=True)
class Join:
    """A dimension as `write` is given it. ``source``: its table, folder, or rows · ``keys``: as in `Dimension` ·
    ``attributes``: the columns whose ranges the index keeps, besides those that the layout names."""

    name: str
    source: Any
    keys: tuple[tuple[str, str], ...]
    attributes: tuple[str, ...] = ()

    @staticmethod
    def recorded(dimension: Dimension) -> Join:
        """The join of a dimension that a table was written with. A dimension without versions is not read again."""
        return Join(dimension.name, dimension.uri, dimension.keys)


def given_joins(joins: Mapping[str, Any] | None) -> tuple[Join, ...]:
    """The joins in the option ``joins=``. Raises `InvalidOption`."""
    if not isinstance(joins, Mapping | None):
        raise InvalidOption(f"joins= is a mapping of names to (dimension, keys), not {joins!r}.")
    found = []
    for name, given in (joins or {}).items():
        match given:
            case (source, Mapping() as keys) if isinstance(name, str) and name and "." not in name and keys:
                names_given([*keys, *keys.values()], "joins")
                found.append(Join(name, source, tuple(keys.items())))
            case _:
                raise InvalidOption(
                    f"joins= has no dimension and keys for {name!r}: "
                    'joins={"customer": ("lake/customer", {"lo_custkey": "c_custkey"})}.'
                )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A dimension in memory. ``lookup``: the row of a key · ``columns``: its attributes, and the keys of further hops.

    ``version``: None for rows without versions.
    """

    dimension: Dimension
    version: str | None
    keys: tuple[pa.Array, ...]
    columns: pa.Table

    def rows_of(self, values: Sequence[pa.ChunkedArray]) -> pa.Array:
        """The number of the dimension's row for each tuple of keys; null where there is none."""
        if len(values) == 1:
            return _row_numbers(values[0], self.keys[0])
        # The number of each distinct value, and of their combinations, in the place of several keys.
        given, known = np.zeros(len(values[0]), np.int64), np.zeros(len(self.keys[0]), np.int64)
        missing = np.zeros(len(given), bool)
        for column, key in zip(values, self.keys, strict=True):
            distinct = pc.unique(key)
            codes = _row_numbers(column, distinct)
            missing |= np.asarray(codes.is_null())
            given = given * len(distinct) + np.asarray(pc.fill_null(codes, 0))
            known = known * len(distinct) + np.asarray(pc.index_in(key, distinct))
        found = pc.index_in(pa.array(given), value_set=pa.array(known))
        return pc.if_else(pa.array(missing), pa.scalar(None, pa.int32()), found)


def _row_numbers(values: pa.ChunkedArray, keys: pa.Array) -> pa.Array:
    if t.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if values.type != keys.type:
        # Integers of different widths; a value that the key's type cannot hold has no row.
        values, keys = values.cast(pa.int64()), keys.cast(pa.int64())
    found = pc.index_in(values, value_set=keys, skip_nulls=True)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


@dataclass(frozen=True, slots=True)
class Star:
    """The dimensions of a table, loaded for one write."""

    loaded: tuple[_Loaded, ...]

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        return tuple(each.dimension for each in self.loaded)

    @property
    def versions(self) -> tuple[str | None, ...]:
        """The version of each dimension; None for rows without versions."""
        return tuple(each.version for each in self.loaded)

    @property
    def attributes(self) -> list[pa.Field]:
        return [field for each in self.dimensions for field in each.fields[:-1]]

    def joined(self, source: RowSource) -> RowSource:
        """The rows of a source with the attributes as further columns."""
        schema = pa.schema([*source.schema, *self.attributes], metadata=source.schema.metadata)
        own = set(source.schema.names)

        def parts(columns: Sequence[str] | None) -> Iterator[Part]:
            wanted = schema.names if columns is None else list(columns)
            keys = [] if columns is None else [name for name in self._own_keys() if name not in columns]
            read = None if columns is None else [*(name for name in wanted if name in own), *keys]
            for part in source.parts(read):
                yield lambda part=part: self.with_attributes(part(), wanted)  # type: ignore[misc]  # a default binds

        return replace(source, schema=schema, parts=parts)

    def _own_keys(self) -> list[str]:
        hops = {each.dimension.name for each in self.loaded}
        keys = [column for each in self.loaded for column, _ in each.dimension.keys]
        return list(dict.fromkeys(key for key in keys if _hop(key, hops) is None))

    def with_attributes(self, rows: pa.Table, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows with their attributes; ``columns``: names of either, by default all."""
        wanted = [*rows.schema.names, *(field.name for field in self.attributes)] if columns is None else columns
        hops = {each.dimension.name for each in self.loaded}
        found: dict[str, pa.Array] = {}
        joined: dict[str, pa.ChunkedArray] = {name: rows.column(name) for name in wanted if name in rows.column_names}
        for each in self.loaded:  # a dimension comes after those that have its keys
            values = []
            for column, _ in each.dimension.keys:
                hop = _hop(column, hops)
                if hop is None:
                    values.append(rows.column(column))
                else:
                    further = next(other for other in self.loaded if other.dimension.name == hop[0])
                    values.append(further.columns.column(hop[1]).take(found[hop[0]]))
            found[each.dimension.name] = each.rows_of(values)
            for field in each.dimension.attributes:
                name = attribute_name(each.dimension.name, field.name)
                if name in wanted:
                    joined[name] = each.columns.column(field.name).take(found[each.dimension.name])
        return pa.table({name: joined[name] for name in wanted})

    def with_versions(self, files: DataFiles) -> DataFiles:
        """Files written from joined rows, with the versions of the dimensions in their statistics."""
        return replace(files, files=self._versioned(files.files), row_groups=self._versioned(files.row_groups))

    def _versioned(self, units: FileStatistics) -> FileStatistics:
        none, exact = pa.array(np.zeros(len(units), np.int64)), pa.array(np.ones(len(units), bool))
        versions = {}
        for each in self.loaded:
            bound = pa.repeat(pa.scalar(each.version, pa.string()), len(units))
            known = none if each.version else pa.nulls(len(units), pa.int64())
            flag = exact if each.version else pa.nulls(len(units), pa.bool_())
            versions[each.dimension.version_path] = ColumnStatistics(bound, bound, known, none, flag, flag)
        return FileStatistics(units.row_count, {**units.columns, **versions})


def _hop(column: str, dimensions: set[str]) -> tuple[str, str] | None:
    """The dimension and its column, for a key that is a column of another dimension."""
    name, dot, rest = column.partition(".")
    return (name, rest) if dot and name in dimensions else None


def _keys_of_hops(name: str, joins: Sequence[Join]) -> list[str]:
    """The columns of a dimension that are keys of further dimensions."""
    hops = (_hop(key, {name}) for join in joins for key, _ in join.keys)
    return [hop[1] for hop in hops if hop is not None]


def joined_with(
    joins: Sequence[Join], schema: Schema, attributes: Sequence[str], storage_options: Mapping[str, Any] | None
) -> Star | None:
    """The dimensions of rows with a schema, loaded. ``attributes``: those to keep, as ``dimension.column``.

    Raises `InvalidOption` for a dimension whose keys are not unique, and `UnknownColumn`.
    """
    if not joins:
        return None
    wanted = {join.name: list(join.attributes) for join in joins}
    for attribute in attributes:
        name, dot, column = ".".join(split_path(attribute)).partition(".")
        if dot and name in wanted and schema.find([attribute]) is None and column not in wanted[name]:
            wanted[name].append(column)
    loaded: list[_Loaded] = []
    for join in _in_order(joins):
        one = _load(join, wanted[join.name], _keys_of_hops(join.name, joins), storage_options)
        _require_comparable(one, schema, loaded)
        loaded.append(one)
    star = Star(tuple(loaded))
    for field in star.attributes:
        if schema.find([field.name]) is not None:
            raise InvalidOption(f'The rows have a column "{field.name}" already: give the dimension another name.')
    return star


def as_recorded(dimensions: Sequence[Dimension]) -> Star:
    """The dimensions of a table in their newest versions. The attributes of one that cannot be read are NULL."""
    joins = [Join.recorded(each) for each in dimensions]
    loaded = []
    for join, dimension in zip(joins, dimensions, strict=True):
        further = _keys_of_hops(join.name, joins)
        try:
            one = _load(join, dimension.attributes.names, further, None)
            if one.dimension.attributes != dimension.attributes:
                raise SchemaMismatch(f"{dimension.uri} has other types")
        except (ZskipError, OSError) as error:
            _LOG.warning("New files have no attributes of %s, which cannot be joined: %s", dimension.name, error)
            one = _unknown(dimension, further)
        loaded.append(one)
    return Star(tuple(loaded))


def _unknown(dimension: Dimension, further: Sequence[str]) -> _Loaded:
    columns = {field.name: pa.array([], field.type) for field in dimension.attributes}
    keys = tuple(pa.array([], pa.int64()) for _ in dimension.keys)
    return _Loaded(dimension, None, keys, pa.table({**{name: pa.array([], pa.int64()) for name in further}, **columns}))


def _in_order(joins: Sequence[Join]) -> list[Join]:
    """The joins, each after those whose columns are its keys. Raises `InvalidOption` for a circle."""
    names = {join.name for join in joins}
    done: list[Join] = []
    while len(done) < len(joins):
        known = {join.name for join in done}
        ready = [
            join
            for join in joins
            if join.name not in known
            and all(key.partition(".")[0] not in names - known or "." not in key for key, _ in join.keys)
        ]
        if not ready:
            raise InvalidOption("joins= has dimensions whose keys refer to each other in a circle.")
        done.extend(ready)
    return done


def _load(
    join: Join, attributes: Sequence[str], further: Sequence[str], storage_options: Mapping[str, Any] | None
) -> _Loaded:
    index, uri = _index_of(join.source, storage_options)
    if index is None:
        rows = open_source(join.source, storage_options)
        schema, version = Schema(rows.schema), None
    else:
        schema, version = index.snapshot.schema, index.identity
    keys = [key for _, key in join.keys]
    names = list(dict.fromkeys([*keys, *attributes, *further]))
    for name in names:
        if name not in schema.arrow.names:
            hint = nearest(name, schema.arrow.names)
            raise InvalidOption(f"The dimension {in_quotes(join.name)} has no column {in_quotes(name)}.{hint}")
    if index is None:
        parts = [part() for part in rows.parts(names)]
        empty = pa.schema([rows.schema.field(name) for name in names]).empty_table()
        table = pa.concat_tables([part.select(names) for part in parts]) if parts else empty
    else:
        table = to_arrow(find_survivors(index, None).scan, names)
    table = table.combine_chunks()
    valid = np.ones(table.num_rows, bool)
    for key in keys:
        valid &= np.asarray(table.column(key).is_valid())
    table = table.filter(pa.array(valid)).combine_chunks()
    _require_unique(join, table.select(keys))
    plain = [_one(table.column(key)) for key in keys]
    fields = [pa.field(name, schema.columns[Schema(schema.arrow).column(name).path].type) for name in attributes]
    for field in fields:
        schema.orderable([field.name])
    dimension = Dimension(join.name, uri if version else "", join.keys, pa.schema(fields), table.num_rows)
    return _Loaded(dimension, version, tuple(plain), table.select([*dict.fromkeys([*attributes, *further])]))


def _one(column: pa.ChunkedArray) -> pa.Array:
    column = column.cast(column.type.value_type) if t.is_dictionary(column.type) else column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _index_of(source: Any, storage_options: Mapping[str, Any] | None) -> tuple[Index | None, str]:
    if not isinstance(source, str | os.PathLike) and not is_table_object(source):
        return None, ""
    if (own := own_snapshot(source, storage_options=storage_options)) is not None:
        return Index(*own), own[0].uri
    foreign = source_of(source, storage_options=storage_options)
    return (None, "") if foreign is None else (index_of(foreign), foreign.storage.uri)


def schema_of(join: Join, storage_options: Mapping[str, Any] | None) -> Schema:
    """The columns of a dimension."""
    index, _ = _index_of(join.source, storage_options)
    return Schema(open_source(join.source, storage_options).schema) if index is None else index.snapshot.schema


def _require_unique(join: Join, keys: pa.Table) -> None:
    counted = keys.group_by(keys.column_names).aggregate([([], "count_all")])
    twice = counted.filter(pc.greater(counted.column("count_all"), 1)).slice(0, 1).drop_columns(["count_all"])
    if twice.num_rows:
        raise InvalidOption(
            f"The dimension {in_quotes(join.name)} has more than one row with the key {twice.to_pylist()[0]}: "
            "a row of facts would have several attributes. Give keys that are unique."
        )


def _require_comparable(one: _Loaded, schema: Schema, loaded: Sequence[_Loaded]) -> None:
    """Raise `InvalidOption` for a key that the dimension's key may equal without being identical."""
    known = {each.dimension.name: each for each in loaded}
    for (column, key), keys in zip(one.dimension.keys, one.keys, strict=True):
        hop = _hop(column, set(known))
        type = schema.column(column).type if hop is None else known[hop[0]].columns.schema.field(hop[1]).type
        type = type.value_type if t.is_dictionary(type) else type
        whole = t.is_integer(type) and t.is_integer(keys.type) and pa.uint64() not in (type, keys.type)
        if not whole and not (type == keys.type and t.is_exact(type)):
            raise InvalidOption(
                f"joins= compares {column}, {type}, with {key}, {keys.type}: keys are integers, or strings, dates, "
                "times or decimals of one type."
            )
