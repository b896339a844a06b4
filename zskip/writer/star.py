"""Dimensions at a write: rows are joined with them, so that a layout and the index know their attributes.

    rows ──keys──▶ dimension ──▶ rows with the attributes ──▶ layout, statistics
                                     └──▶ data files, without the attributes

A row whose key is NULL, or in no row of the dimension, has NULL attributes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.core import types as t
from zskip.core.schema import Column, Schema, split_path
from zskip.engines.arrow import to_arrow
from zskip.errors import InvalidOption, SchemaMismatch, UnknownColumn, ZskipError, in_quotes, nearest, row_shown
from zskip.plan import find_survivors
from zskip.stats import ColumnStatistics, DataFiles, FileStatistics
from zskip.storage import Storage, options_for
from zskip.tablelog.dimensions import Dimension, attribute_name, owner_of
from zskip.tablelog.index import Index
from zskip.tablelog.snapshot import Snapshot
from zskip.tablelog.table_folders import format_of_object, own_snapshot
from zskip.writer.key_match import Keys
from zskip.writer.open_source import open_source
from zskip.writer.row_source import Part, RowSource
from zskip.writer.storable import storable_type

_LOG = logging.getLogger("zskip")
# Attributes that repeat as often, or are longer on average, are joined as dictionaries: four bytes a row to move.
_LEAST_REPEATS, _LONGEST_MOVED = 4, 32


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
            case (source, Mapping() as keys) if keys and all(
                isinstance(each, str) for pair in keys.items() for each in pair
            ):
                if not isinstance(name, str) or not name or "." in name:
                    raise InvalidOption(f"joins= names a dimension {name!r}: give it a name without a dot.")
                if len(set(keys.values())) < len(keys):
                    raise InvalidOption(f"joins= compares several columns with one key of {name!r}: {dict(keys)}.")
                found.append(Join(name, source, tuple(keys.items())))
            case _:
                raise InvalidOption(
                    f"joins= has no dimension and keys for {name!r}: "
                    'joins={"customer": ("lake/customer", {"lo_custkey": "c_custkey"})}.'
                )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A dimension in memory. ``version``: None for rows without versions · ``finder``: the keys of its rows; None if
    none are known · ``columns``: its attributes, and the keys of further hops · ``reason``: why it cannot be joined."""

    dimension: Dimension
    version: str | None
    finder: Keys | None
    columns: pa.Table
    reason: str = ""


def _found(keys: Keys, values: Sequence[pa.ChunkedArray]) -> pa.Array:
    """The number of the dimension's row for each tuple of keys; null where there is none."""
    numbers = keys.numbers(pa.table(dict(zip(keys.columns, map(_as_keys, values), strict=True))))
    return pa.array(numbers, mask=numbers < 0)


def _as_keys(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values as keys, of which integers of any width may equal each other."""
    plain = _plain(values)
    return plain.cast(pa.int64()) if t.is_integer(plain.type) and plain.type != pa.uint64() else plain


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values in the type that a table would store, without a dictionary: an indexed folder has other forms."""
    type = values.type.value_type if t.is_dictionary(values.type) else values.type
    return values.cast(storable_type(type))


@dataclass(frozen=True, slots=True)
class Star:
    """The dimensions of a table, loaded for one write."""

    loaded: tuple[_Loaded, ...]

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        return tuple(each.dimension for each in self.loaded)

    @property
    def versions(self) -> dict[Dimension, str | None]:
        """The version of each dimension; None for rows without versions."""
        return {each.dimension: each.version for each in self.loaded}

    @property
    def unjoined(self) -> tuple[str, ...]:
        """The dimensions that cannot be joined, each with the reason."""
        return tuple(f"{each.dimension.name} cannot be joined: {each.reason}" for each in self.loaded if each.reason)

    def require_joined(self, columns: Iterable[Column]) -> None:
        """Raise `InvalidOption` if a layout by these columns has an attribute whose dimension cannot be joined: files
        that are rewritten would lose what they are laid out by."""
        named = {column.parts[0] for column in columns}
        for each in self.loaded:
            lost = named & {field.name for field in each.dimension.fields} if each.reason else ()
            if lost:
                raise InvalidOption(
                    f"Rows are laid out by {', '.join(sorted(lost))}, and {each.dimension.name} cannot be joined: "
                    f"{each.reason}. Nothing was changed. Mend the dimension, or lay the table out by other columns: "
                    "cluster(by=…)."
                )

    @property
    def attributes(self) -> list[pa.Field]:
        return [field for each in self.dimensions for field in each.fields[:-1]]

    def require_distinct_names(self, schema: Schema) -> None:
        """Raise `InvalidOption` if a column of the rows has the name of a column that the index has for a dimension."""
        for dimension in self.dimensions:
            names = [field.name for field in dimension.fields]
            twice = [name for name in names if schema.find([name]) is not None or names.count(name) > 1]
            if twice:
                raise InvalidOption(
                    f"The index keeps {in_quotes(twice[0])} for the dimension {in_quotes(dimension.name)}, and a "
                    "column of the rows or of the dimension has the same name. Rename that column."
                )

    @property
    def keys(self) -> list[str]:
        """The columns of the rows that are keys of dimensions."""
        return list(dict.fromkeys(column for owner, column in self._keys() if owner is None))

    def joined(self, source: RowSource) -> RowSource:
        """The rows of a source with the attributes as further columns."""
        schema = pa.schema([*source.schema, *self.attributes], metadata=source.schema.metadata)
        keys = [name for name in self.keys if name in source.schema.names]

        def parts(columns: Sequence[str] | None) -> Iterator[Part]:
            wanted = schema.names if columns is None else list(columns)
            own = [name for name in wanted if name in source.schema.names]
            read = (
                list(dict.fromkeys([*own, *keys])) or source.schema.names[:1]
            )  # without a column, rows are not counted
            for part in source.parts(None if columns is None else read):
                yield lambda part=part: self.with_attributes(part(), wanted)  # type: ignore[misc]  # a default binds

        return replace(source, schema=schema, parts=parts)

    def _keys(self, *dimensions: Dimension) -> list[tuple[str | None, str]]:
        """The columns that equal the keys of some dimensions, by default of all, each with its owner (`owner_of`)."""
        names = {each.name for each in self.dimensions}
        return [owner_of(column, names) for each in dimensions or self.dimensions for column, _ in each.keys]

    def with_attributes(self, rows: pa.Table, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows with their attributes; ``columns``: names of either, by default all."""
        wanted = [*rows.schema.names, *(field.name for field in self.attributes)] if columns is None else columns
        keys = set(self._keys())
        places: dict[str, tuple[str | None, str]] = {name: (None, name) for name in rows.column_names}
        joined = {place: rows.column(name) for name, place in places.items()}
        for each in self.loaded:  # a dimension comes after those that have its keys
            owner = each.dimension.name
            of_rows = [joined[key] for key in self._keys(each.dimension) if key in joined]
            known = [column for column in of_rows if not t.is_null(column.type)]
            if each.finder is None or len(known) < len(each.dimension.keys):  # a column that is missing is NULL
                numbers = pa.nulls(rows.num_rows, pa.int64())
            else:
                numbers = _found(each.finder, of_rows)
            for name in each.columns.column_names:
                place, attribute = (owner, name), attribute_name(owner, name)
                if attribute in wanted or place in keys:
                    joined[place] = each.columns.column(name).take(numbers)
                    places[attribute] = place
        return pa.table({name: joined[places[name]] for name in wanted})

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
            if each.finder is None:  # the rows' attributes are not NULL, but unknown
                for field in each.dimension.attributes:
                    versions[each.dimension.path(field.name)] = ColumnStatistics.unknown(field.type, len(units))
        return FileStatistics(units.row_count, {**units.columns, **versions})


def _keys_of(dimension: str, joins: Sequence[Join]) -> list[str]:
    """The columns of a dimension that are keys of further dimensions."""
    owned = [owner_of(key, {dimension}) for join in joins for key, _ in join.keys]
    return [column for owner, column in owned if owner is not None]


def joined_with(
    joins: Sequence[Join], schema: Schema, attributes: Sequence[str], storage_options: Mapping[str, Any] | None
) -> Star | None:
    """The dimensions of rows with a schema, loaded. ``attributes``: those to keep, as ``dimension.column``.

    Raises `InvalidOption` for a dimension whose keys are not unique, and `UnknownColumn`.
    """
    if not joins:
        return None
    ordered = in_order(joins)
    wanted = {join.name: list(join.attributes) for join in joins}
    for attribute in attributes:
        parts = split_path(attribute)
        name = ".".join(parts)
        owner, column = owner_of(name, wanted)
        if owner is None:
            _require_column(attribute, schema, joins, storage_options)
            continue
        if schema.find([owner, column]) is not None or (len(parts) > 1 and schema.find([name]) is not None):
            raise InvalidOption(f'The rows have a column "{attribute}" already: give the dimension another name.')
        if schema.find([name]) is None and column not in wanted[owner]:  # a name in quotes is that of a column
            wanted[owner].append(column)
    loaded: list[_Loaded] = []
    for join in ordered:
        further = _keys_of(join.name, joins)
        loaded.append(_load(join, wanted[join.name], further, schema, loaded, storage_options))
    star = Star(tuple(loaded))
    star.require_distinct_names(schema)
    return star


def _require_column(
    name: str, schema: Schema, joins: Sequence[Join], storage_options: Mapping[str, Any] | None
) -> None:
    """Raise `UnknownColumn`, with a hint at the attributes too, for a name that is no column of the rows."""
    try:
        schema.column(name)
    except UnknownColumn as error:
        attributes = [
            attribute_name(join.name, attribute)
            for join in joins
            for attribute in schema_of(join, storage_options).arrow.names
        ]
        raise UnknownColumn(
            f"There is no column {in_quotes(name)}.{nearest(name, [*schema.columns, *attributes])}"
        ) from error


def as_recorded(snapshot: Snapshot, storage: Storage) -> Star:
    """The dimensions of a table in a storage, in their newest versions.

    The attributes of one that cannot be read are NULL.
    """
    joins = [Join.recorded(each) for each in snapshot.dimensions]
    loaded: list[_Loaded] = []
    for join, dimension in zip(joins, snapshot.dimensions, strict=True):
        further = _keys_of(join.name, joins)
        try:
            if not dimension.uri:
                raise InvalidOption("it was given as rows, or as a folder of files")
            unknown = {each.dimension.name for each in loaded if each.finder is None}
            for column, _ in join.keys:
                if (owner := owner_of(column, unknown)[0]) is not None:
                    raise InvalidOption(f"its keys are columns of {owner}")
            options = options_for(dimension.uri, storage)
            one = _load(join, dimension.attributes.names, further, snapshot.schema, loaded, options)
            if retyped := dimension.retyped(Schema(one.dimension.attributes)):
                changes = ", ".join(retyped.values())
                raise SchemaMismatch(f"{changes}; zskip.write(…, joins=…, mode='overwrite') takes the new types")
        except (ZskipError, OSError) as error:
            _LOG.warning("%s cannot be joined, so files get no attributes of it: %s", dimension.name, error)
            one = _Loaded(dimension, None, None, dimension.attributes.empty_table(), str(error).rstrip("."))
        loaded.append(one)
    return Star(tuple(loaded))


def in_order(joins: Sequence[Join]) -> list[Join]:
    """The joins, each after those whose columns are its keys. Raises `InvalidOption` for a circle."""
    for join in joins:
        for key, _ in join.keys:
            if owner_of(key, {join.name})[0] is not None:
                raise InvalidOption(
                    f"The key {in_quotes(key)} reads as a column of the dimension {in_quotes(join.name)} itself: give "
                    "the dimension another name."
                )
    names = {join.name for join in joins}
    done: list[Join] = []
    while len(done) < len(joins):
        missing = names - {join.name for join in done}
        left = [join for join in joins if join.name in missing]
        ready = [join for join in left if not any(owner_of(key, missing)[0] for key, _ in join.keys)]
        if not ready:
            raise InvalidOption("joins= has dimensions whose keys refer to each other in a circle.")
        done.extend(ready)
    return done


def _load(
    join: Join,
    attributes: Sequence[str],
    further: Sequence[str],
    facts: Schema,
    loaded: Sequence[_Loaded],
    storage_options: Mapping[str, Any] | None,
) -> _Loaded:
    """A dimension, read. ``further``: columns that are keys of other dimensions · ``loaded``: those before it."""
    index, uri = _index_of(join.source, storage_options)
    keys = [key for _, key in join.keys]
    names = list(dict.fromkeys([*keys, *attributes, *further]))
    if index is None:
        rows = open_source(join.source, storage_options)
        schema, version = Schema(rows.schema), None
    else:
        schema, version = index.snapshot.schema, index.identity
    for name in names:
        if name not in schema.arrow.names:
            hint = nearest(name, schema.arrow.names)
            raise InvalidOption(f"The dimension {in_quotes(join.name)} has no column {in_quotes(name)}.{hint}")
    if index is None:
        parts = [part() for part in rows.parts(names)]
        empty = t.empty_table(pa.schema([rows.schema.field(name) for name in names]))
        table = pa.concat_tables([part.select(names) for part in parts]) if parts else empty
    else:
        table = to_arrow(find_survivors(index, None).scan, names)
    for key in keys:
        table = table.filter(pc.is_valid(_plain(table.column(key))))
    table = table.combine_chunks()
    key_columns = {key: _plain(table.column(key)) for key in keys}
    _require_comparable(join, {key: column.type for key, column in key_columns.items()}, facts, loaded)
    _require_unique(join, pa.table(key_columns))
    fields = [pa.field(name, schema.columns[Schema(schema.arrow).column(name).path].type) for name in attributes]
    for field in fields:
        schema.orderable([field.name])
    dimension = Dimension(join.name, uri if version else "", join.keys, pa.schema(fields))
    columns = {name: _repeating(table.column(name)) for name in dict.fromkeys([*attributes, *further])}
    finder = Keys.of(pa.table({key: _as_keys(column) for key, column in key_columns.items()}), keys)
    return _Loaded(dimension, version, finder, pa.table(columns))


def _repeating(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column, as a dictionary if it has strings that repeat."""
    if not t.is_string(column.type):
        return column
    encoded = column.dictionary_encode().combine_chunks()
    distinct = encoded.dictionary
    moved = _LEAST_REPEATS * len(distinct) <= len(encoded) or distinct.nbytes > _LONGEST_MOVED * len(distinct)
    return pa.chunked_array([encoded]) if moved else column


def _index_of(source: Any, storage_options: Mapping[str, Any] | None) -> tuple[Index | None, str]:
    """The index of a dimension that is a table, and the table's address; None and "" for rows and other folders."""
    if isinstance(index := getattr(source, "_index", None), Index):  # a `zskip.Table`
        return index, index.storage.uri
    if not isinstance(source, str | os.PathLike) and format_of_object(source) is None:
        return None, ""
    if (own := own_snapshot(source, storage_options=storage_options)) is not None:
        return Index(*own), own[0].uri
    from zskip.table_formats.locate import index_of, source_of

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
            f"The dimension {in_quotes(join.name)} has more than one row with the key {row_shown(twice)}: "
            "a row of facts would have several attributes. Give keys that are unique."
        )


def _require_comparable(join: Join, keys: Mapping[str, pa.DataType], facts: Schema, loaded: Sequence[_Loaded]) -> None:
    """Raise `InvalidOption` for a key that the dimension's key may equal without being identical."""
    known = {each.dimension.name: each.columns.schema for each in loaded}
    for column, key in join.keys:
        owner, name = owner_of(column, known)
        type, own = facts.column(name).type if owner is None else known[owner].field(name).type, keys[key]
        type = type.value_type if t.is_dictionary(type) else type
        integers, unsigned = t.is_integer(type) and t.is_integer(own), pa.uint64() in (type, own)
        if not (integers and not unsigned) and not (type == own and t.is_exact(type)):
            hint = " uint64 is compared with uint64 alone: cast one of the two." if integers else ""
            raise InvalidOption(
                f"joins= compares {column}, {type}, with {key}, {own}: keys are integers, or strings, dates, "
                f"timestamps or decimals of one type.{hint}"
            )
