"""Read the statistics of existing Parquet files from their footers, as far as they can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zskip.core import types as t
from zskip.core.offsets import numbers_of_runs, offsets_of
from zskip.core.option_checks import Progress, unreported
from zskip.core.schema import Column, Schema
from zskip.core.types import widened, widens
from zskip.errors import CorruptFile, NoParquet, SchemaMismatch
from zskip.parquet import footer_reads, trust
from zskip.parquet.arrow_differences import (
    geo_metadata,
    holds_clock,
    leaves,
    open_parquet,
    with_instants_of_all,
    with_parquet_types,
)
from zskip.parquet.batch_footers import joined
from zskip.parquet.parsed_footers import Footers, parse
from zskip.parquet.plain_decoder import PlainDecoder
from zskip.stats.files import ColumnStatistics, DataFiles, FileStatistics, hull
from zskip.storage import Listing, Storage, hive

FIELD_ID = b"PARQUET:field_id"
"""The key of a field's id in the metadata of Arrow schemas, present if the writer assigned ids."""

_BLOCK_BYTES = 32 << 20
_WIDE_FOOTER, _LARGER = 64 << 10, 8
_SIGNED = (t.is_signed_integer, t.is_floating, t.is_decimal, t.is_boolean, t.is_date, t.is_time, t.is_timestamp)
_TYPE_ORDER = 1
_PHYSICAL = ["BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"]


def read(
    storage: Storage,
    paths: Sequence[str] | None,
    schema: Schema | None = None,
    *,
    grow: bool = False,
    threads: int | None = None,
    listing: Listing | None = None,
    block_bytes: int = _BLOCK_BYTES,
    progress: Progress = unreported,
) -> tuple[Schema, DataFiles]:
    """The schema of Parquet files, and the statistics in their footers, in the order of the paths' bytes.

    ``schema``: the table's schema if it is known; otherwise the result has the union of the files' schemas, with
    numbers widened, followed by the partition columns in the names of folders; with ``grow``, the union of all of
    these. A column that a file lacks is NULL in all its rows; one whose type does not fit the table's is unknown.
    ``listing``: an earlier listing of these files, by which changed files are detected; ``paths`` may then be None ·
    ``block_bytes``: the approximate size of the footers that are in memory at once.

    Raises `CorruptFile`, `NoParquet` and `SchemaMismatch`.
    """
    listed = storage.size_and_modified(paths or ()) if listing is None else listing
    names = listed.path
    if not len(names):
        raise NoParquet("There is no Parquet file to index.")
    for path in names.filter(pc.is_null(listed.size)).to_pylist():
        raise CorruptFile(f"The file {storage.uri_of(path)} does not exist.")
    if listing is None:
        storage.require_inside(names)  # a listing has only paths in the table
    parts = list(_parts(storage, listed, None if grow else schema, threads, block_bytes, progress))
    folders = hive.partitions(names)
    table = schema
    if table is None or grow:
        known = [] if table is None else [("the table", table)]
        of_files = [(names[int(part.files[0])].as_py(), part.schema) for part in parts]
        table = united([*known, *of_files], folders)
    units, counts = _in_order(parts, [_as_of_table(part, table, folders, listed.path) for part in parts])
    owner = np.repeat(np.arange(len(names)), counts)
    in_files = {field.name.lower() for part in parts for field in part.schema.arrow}
    files = _with_partitions(hull(units, owner, len(names)), folders, table, in_files)
    units = _with_partitions(
        units, {key: values.take(pa.array(owner)) for key, values in folders.items()}, table, in_files
    )
    ends = offsets_of(counts)
    return table, DataFiles(names, listed.size, listed.modified, listed.etag, files, units, ends)


def row_groups(
    storage: Storage, listed: Listing, as_of_table: Callable[[Schema, FileStatistics], FileStatistics]
) -> tuple[FileStatistics, np.ndarray]:
    """The statistics of the files' row groups, in the order of the files, and the number of row groups of each file.

    ``as_of_table``: maps statistics from the columns of one file schema to those of a table, whose names may differ.
    Raises `CorruptFile`.
    """
    parts = list(_parts(storage, listed, None, None, _BLOCK_BYTES))
    return _in_order(parts, [as_of_table(part.schema, part.units) for part in parts])


def schemas(storage: Storage, listed: Listing) -> list[tuple[np.ndarray, Schema]]:
    """The schemas of files, each with the numbers of its files in the listing. Raises `CorruptFile`."""
    found: dict[bytes, tuple[list[np.ndarray], Schema]] = {}
    for group in _groups(storage, listed):
        found.setdefault(identity(group.schema), ([], group.schema))[0].append(group.files)
    return [(np.concatenate(files), schema) for files, schema in found.values()]


def require_folders(storage: Storage, listed: Listing, partition_by: Sequence[str]) -> None:
    """Raise `SchemaMismatch` for a file that lies in no folder of a partition column, and holds the column itself.

    A folder's name is where the values of such a column are read, so that the file's own would be lost. Only the
    footers of files that lie in no such folder are read. Raises `CorruptFile`.
    """
    folders = hive.partitions(listed.path)
    for name in partition_by:
        if name in folders and not folders[name].null_count:
            continue
        outside = listed if name not in folders else listed.take(np.asarray(folders[name].is_null()))
        for files, schema in schemas(storage, outside) if len(outside) else ():
            if name in schema.arrow.names:
                raise SchemaMismatch(
                    f'{storage.uri_of(outside.path[int(files[0])].as_py())} holds a column "{name}", which other files '
                    f"have by the name of their folder, {name}=…. Move it into such a folder, or away: zskip.write "
                    "reads both into a new table."
                )


def both_schemas(storage: Storage, listed: Listing) -> Iterator[tuple[np.ndarray, pa.Schema, pq.ParquetSchema]]:
    """The schemas of files in Arrow and in Parquet, each with the numbers of some of its files in the listing.

    Raises `CorruptFile`.
    """
    for group in _groups(storage, listed):
        yield group.files, group.schema.arrow, group.leaves


def opened(storage: Storage, path: str) -> pq.ParquetFile:
    """One file of which only the footer has been read. Raises `CorruptFile`."""
    listed = storage.size_and_modified([path])
    if listed.size.null_count:
        raise CorruptFile(f"The file {storage.uri_of(path)} does not exist.")
    (end,) = (end for ends in footer_reads.read(storage, listed, 1, _BLOCK_BYTES) for end in ends)
    try:
        return open_parquet(pa.BufferReader(end))
    except (pa.ArrowException, OSError) as error:
        raise CorruptFile(f"The footer of {storage.uri_of(path)} cannot be read: {error}") from error


def whole(storage: Storage, path: str) -> pq.ParquetFile:
    """One file, opened to read its rows."""
    source = (
        storage.uri_of(path) if storage.local is not None else pa.BufferReader(storage.read_range(path, 0, 1 << 62))
    )
    return open_parquet(source)


def files_of(storage: Storage, listed: Listing, wanted: Callable[[trust.Writer], bool]) -> Iterator[int]:
    """The numbers of the files whose writer is wanted. Raises `CorruptFile`."""
    for group in _groups(storage, listed):
        if wanted(group.origin):
            yield from group.files.tolist()


def with_instants_of_files(storage: Storage, listed: Listing, schema: pa.Schema) -> pa.Schema:
    """A table's schema with the columns in UTC that are INT96 in some of its files. Raises `CorruptFile`."""
    if not holds_clock(schema):
        return schema
    return with_instants_of_all(schema, ((arrow, leaves) for _, arrow, leaves in both_schemas(storage, listed)))


def _in_order(parts: Sequence[_Part], units: Sequence[FileStatistics]) -> tuple[FileStatistics, np.ndarray]:
    """The row groups of all parts, in the order of their files, and the number of row groups of each file."""
    order = np.argsort(np.concatenate([part.files for part in parts]), kind="stable")
    counts = np.concatenate([part.row_group_counts for part in parts])
    first = offsets_of(counts)
    together = FileStatistics.concat(units)
    if (order == np.arange(len(order))).all():
        return together, counts
    return together.take(numbers_of_runs(first[order], first[order + 1])), counts[order]


@dataclass(frozen=True, slots=True)
class _Group:
    """Files whose footers have one shape."""

    files: np.ndarray
    footers: Footers
    schema: Schema
    leaves: pq.ParquetSchema

    @property
    def origin(self) -> trust.Writer:
        return trust.writer(self.footers.created_by.decode(errors="replace"), self.footers.pairs)


@dataclass(frozen=True, slots=True)
class _Part:
    """Files of one schema, and the statistics of their row groups. Nothing else of their footers is kept."""

    files: np.ndarray
    row_group_counts: np.ndarray
    schema: Schema
    units: FileStatistics


def _parts(
    storage: Storage,
    listed: Listing,
    wanted: Schema | None,
    threads: int | None,
    block_bytes: int,
    progress: Progress = unreported,
) -> Iterator[_Part]:
    """All files, in blocks: the footers of one block are freed before the next block is read."""
    block: list[bytes] = []
    first = size = 0
    for ends in footer_reads.read(storage, listed, threads, block_bytes):
        block += ends
        size += sum(map(len, ends))
        progress("footers", first + len(block), len(listed.path))
        # A block costs time for each column, whatever its number of files: those of wide tables are larger.
        full = size >= block_bytes * (_LARGER if size > _WIDE_FOOTER * len(block) else 1)
        if full or first + len(block) == len(listed.path):
            yield from _block(storage, listed, block, first, wanted)
            first, size, block = first + len(block), 0, []


def _block(storage: Storage, listed: Listing, ends: list[bytes], first: int, wanted: Schema | None) -> Iterator[_Part]:
    alike: dict[bytes, list[_Group]] = {}
    for group in _grouped(storage, listed.path.slice(first, len(ends)), ends, first):
        alike.setdefault(identity(group.schema), []).append(group)
    for groups in alike.values():
        yield _Part(
            np.concatenate([group.files for group in groups]),
            np.concatenate([group.footers.row_groups for group in groups]),
            groups[0].schema,
            FileStatistics.concat([_statistics(group, wanted) for group in groups]),
        )


def _groups(storage: Storage, listed: Listing) -> Iterator[_Group]:
    """All files, by the shape of their footers in each block. Raises `CorruptFile`."""
    first = 0
    for ends in footer_reads.read(storage, listed, None, _BLOCK_BYTES):
        yield from _grouped(storage, listed.path.slice(first, len(ends)), ends, first)
        first += len(ends)


def _grouped(storage: Storage, names: pa.StringArray, ends: list[bytes], first: int) -> Iterator[_Group]:
    data, file_ends = joined(ends)
    stops = file_ends - footer_reads.TRAILER_BYTES
    parsed, broken = parse(data, stops - footer_reads.footer_lengths(ends), stops)
    for number, why in broken:
        raise CorruptFile(f"The footer of {storage.uri_of(names[number].as_py())} cannot be read: {why}.")
    for found in parsed:
        example = int(found.files[0])
        try:
            parquet = open_parquet(pa.BufferReader(ends[example]))
            leaves = parquet.metadata.schema
            schema = Schema(with_parquet_types(parquet.schema_arrow, parquet.metadata))
            columns = [leaves.column(number) for number in range(len(leaves.names))]
            named = tuple((leaf.path.encode(), _PHYSICAL.index(leaf.physical_type)) for leaf in columns)
        except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: a name that is not UTF-8
            raise CorruptFile(
                f"The footer of {storage.uri_of(names[example].as_py())} cannot be read: {error}"
            ) from error
        if len(found.places) and found.leaves != named:
            raise CorruptFile(
                f"The row groups of {storage.uri_of(names[example].as_py())} do not have the columns of its schema."
            )
        yield _Group(found.files + first, found, schema, leaves)


def _statistics(group: _Group, wanted: Schema | None) -> FileStatistics:
    """The statistics of a group's row groups, in the columns of its files: all, or only those in ``wanted``."""
    row_count = pa.array(group.footers.rows, pa.int64())
    origin = group.origin
    leaf = dict(_leaf_numbers(group.schema))
    columns = {}
    for own in group.schema:
        if wanted is None or own.path in wanted.columns:
            known = _leaf_statistics(group, own, leaf.get(own.path), row_count, origin)
            columns[own.path] = known or ColumnStatistics.unknown(own.type, len(row_count))
    return FileStatistics(row_count, columns)


def _is_absent(column: Column, folded: set[str]) -> bool:
    """Whether no column's name differs only in case. Readers that ignore case would read such a column instead."""
    return column.parts[0].lower() not in folded


def _as_of_table(
    part: _Part, table: Schema, folders: dict[str, pa.StringArray], names: pa.StringArray
) -> FileStatistics:
    """The statistics of a part's row groups, in the columns of the table. ``names``: of all files."""
    row_count = part.units.row_count
    folded = {name.lower() for name in part.schema.arrow.names}
    columns = {}
    for column in table:
        own = part.schema.columns.get(column.path)
        unknown = ColumnStatistics.unknown(column.type, len(row_count))
        if own is None:
            absent = column.parts[0] not in folders and _is_absent(column, folded)
            columns[column.path] = ColumnStatistics.all_null(column.type, row_count) if absent else unknown
        elif t.is_null(own.type):
            columns[column.path] = ColumnStatistics.all_null(column.type, row_count)
        elif widens(own.type, column.type):
            known = part.units.columns[column.path]
            columns[column.path] = replace(
                known, lower=widened(known.lower, column.type), upper=widened(known.upper, column.type)
            )
        else:
            if t.is_unsigned_integer(own.type) and t.is_integer(column.type):
                _require_held(part, column, names)
            columns[column.path] = unknown
    return FileStatistics(row_count, columns)


def _require_held(part: _Part, column: Column, names: pa.StringArray) -> None:
    """Raise `SchemaMismatch` for unsigned integers that may exceed the signed type of the same column in other files.

    No engine reads them in that type, but a plan would skip them: no value of the type equals them.
    """
    known = part.units.columns[column.path]
    beyond = pc.fill_null(pc.greater(known.upper, pa.scalar(2**63 - 1, pa.uint64())), True)
    empty = pc.fill_null(pc.equal(known.null_count, part.units.row_count), False)
    groups = np.flatnonzero(np.asarray(pc.and_not(beyond, empty)))
    if len(groups):
        file = names[int(np.repeat(part.files, part.row_group_counts)[groups[0]])]
        raise SchemaMismatch(
            f'The column "{column.path}" is uint64 in {file}, with a value beyond {column.type}, which it is in other '
            "files, or without statistics. Cast it to one type in all files, such as DECIMAL(20, 0)."
        )


def _leaf_statistics(
    group: _Group, own: Column, number: int | None, row_count: pa.Int64Array, origin: trust.Writer
) -> ColumnStatistics | None:
    if number is None or t.is_null(own.type):
        return None
    leaf = group.leaves.column(number)
    if leaf.max_repetition_level or leaf.path != ".".join(own.parts) or not len(group.footers.rows):
        return None
    slots = group.footers.slots(number)
    null_count = _known(slots["null_count"])
    order = group.footers.orders[number] if number < len(group.footers.orders) else None
    distrust = trust.reason_to_distrust(origin, own.path, own.type, leaf.physical_type)
    unknown = ColumnStatistics.unknown(own.type, len(row_count))
    statistics = ColumnStatistics(
        unknown.lower,
        unknown.upper,
        null_count,
        _known(slots["nan_count"]) if t.is_floating(own.type) else pa.array(np.zeros(len(row_count), np.int64)),
        unknown.lower_exact,
        unknown.upper_exact,
    )
    if order in (None, _TYPE_ORDER) and distrust is None:
        statistics = _with_bounds(group, statistics, slots, own.type, leaf, origin)
    return trust.trusted(statistics, row_count, origin)


def _with_bounds(
    group: _Group,
    statistics: ColumnStatistics,
    slots: dict[str, np.ndarray],
    type: pa.DataType,
    leaf: pq.ColumnSchema,
    origin: trust.Writer,
) -> ColumnStatistics:
    # The deprecated fields `min` and `max` compare all types as signed, so only bounds of signed types are correct.
    old = any(holds(type) for holds in _SIGNED) and leaf.physical_type not in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
    bounds = {}
    for side in ("lower", "upper"):
        at, length = slots[f"{side}_at"], slots[f"{side}_length"]
        if old:
            absent = at < 0
            at = np.where(absent, slots[f"old_{side}_at"], at)
            length = np.where(absent, slots[f"old_{side}_length"], length)
        decoder = PlainDecoder(group.footers.data, at, length)
        bounds[side] = decoder.values(type, leaf.physical_type, leaf.logical_type.to_json(), upper=side == "upper")
    fixed = not (t.is_string(type) or t.is_binary(type))
    exact = {
        side: pa.array(
            np.where(slots[f"{side}_exact"] < 0, fixed, slots[f"{side}_exact"] == 1),
            mask=_unknown_exactness(slots[f"{side}_exact"], fixed and origin.known, bounds[side]),
        )
        for side in bounds
    }
    return ColumnStatistics(
        bounds["lower"], bounds["upper"], statistics.null_count, statistics.nan_count, exact["lower"], exact["upper"]
    )


def _unknown_exactness(flag: np.ndarray, always_exact: bool, bound: pa.Array) -> np.ndarray:
    """Whether it is unknown if a bound is exact. ``always_exact``: the writer never truncates values of this type."""
    unknown: np.ndarray = np.asarray(pc.is_null(bound))
    return unknown if always_exact else unknown | (flag < 0)


def _known(counts: np.ndarray) -> pa.Int64Array:
    return pa.array(counts, pa.int64(), mask=counts < 0)


def _leaf_numbers(schema: Schema) -> Iterator[tuple[str, int]]:
    """The number of each column among the leaves of its Parquet schema."""
    number = 0
    for column in schema:
        count = len(list(leaves(column.type)))
        if count == 1:
            yield column.path, number
        number += count


def _with_partitions(
    units: FileStatistics, folders: dict[str, pa.StringArray], table: Schema, in_files: set[str]
) -> FileStatistics:
    """With the partition columns in the names of folders.

    Engines differ on which value they read if the files have a column of that name too, so it is unknown.
    """
    columns = dict(units.columns)
    for key, values in folders.items():
        column = table.find([key])
        if column is None:
            continue
        if key.lower() in in_files or not column.orderable:
            columns[column.path] = ColumnStatistics.unknown(column.type, len(units))
        else:
            columns[column.path] = statistics(values, column.type, units.row_count)
    return FileStatistics(units.row_count, columns)


# Statistics of partition columns, from folder names: ``day=2018-03-24/host=a%2Fb/part-0.parquet``.


def statistics(values: pa.StringArray, type: pa.DataType, row_count: pa.Int64Array) -> ColumnStatistics:
    """The statistics of a partition column: all rows of a file have the value in the name of its folder.

    An empty value, and the word NULL beside numbers, are NULL to some readers and a text to others: unknown.
    """
    empty = pc.fill_null(pc.equal(values, ""), True)
    texts = hive.decoded(pc.if_else(empty, pa.scalar(None, pa.string()), values))
    try:
        bound = hive.cast(texts, type)
    except SchemaMismatch:  # some text is not a value of the type
        return ColumnStatistics.unknown(type, len(values))
    null = pc.is_null(texts)
    either = pc.or_(empty, pc.and_(pc.is_null(bound), pc.invert(null)))
    unknown = pa.scalar(None, pa.int64())
    null_count = pc.if_else(either, unknown, pc.if_else(null, row_count, pa.scalar(0, pa.int64())))
    exact = pc.if_else(pc.is_valid(bound), True, pa.scalar(None, pa.bool_()))
    zeros = pa.array(np.zeros(len(values), np.int64))
    return ColumnStatistics(bound, bound, null_count, zeros, exact, exact)


# The schema of files with different schemas: the columns of all, in types that hold the values of each.


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
        pa.schema(
            [
                field.with_type(_common(field.type, known)) if len(known := types[field.name]) > 1 else field
                for field in each
            ]
        )
        for each in distinct
    ]
    try:
        schema = pa.unify_schemas(distinct, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SchemaMismatch(_without_common_type(schemas) or f"The files have no common schema: {error}") from error
    keys = pa.schema([(key, hive.inferred_type(values)) for key, values in folders.items()])
    schema = pa.schema([*schema, *(field for field in keys if field.name not in schema.names)])
    _require_one_spelling(Schema(schema), [*schemas, ("the names of folders", Schema(keys))], bool(folders))
    return Schema(schema.with_metadata(geo_metadata(one.arrow for _, one in schemas) or None))


def _common(type: pa.DataType, types: Sequence[pa.DataType]) -> pa.DataType:
    """The type of the values, without what only the Arrow schema adds: dictionaries, views, time zones.

    ``types``: those of the column in all files. Integers and decimals beside decimals become one decimal, of DuckDB's
    digits: Arrow leaves integers too few, and gives decimals more than 38, which DuckDB reads as doubles.
    """
    decimals = [each for each in types if t.is_decimal(each)]
    if (t.is_integer(type) or t.is_decimal(type)) and decimals and all(each.precision <= 38 for each in decimals):
        digits = max(each.precision - each.scale for each in decimals)
        scale = min(38 - digits, max(each.scale for each in decimals))
        digits = max(digits, *(t.integer_digits(each) for each in types if t.is_integer(each)), 0)
        return pa.decimal128(min(38, digits + scale), scale)
    if t.is_dictionary(type):
        return type.value_type
    if t.is_string_view(type):
        return pa.string()
    if t.is_binary_view(type):
        return pa.binary()
    if t.is_timestamp(type) and type.tz is not None:
        return pa.timestamp(type.unit, "UTC")
    if t.is_struct(type):
        fields: dict[str, list[pa.DataType]] = {}
        for field in (field for each in types if t.is_struct(each) for field in each):
            fields.setdefault(field.name, []).append(field.type)
        return pa.struct([field.with_type(_common(field.type, fields[field.name])) for field in type])
    if t.is_list(type):
        items = [each.value_type for each in types if t.is_list(each)]
        return pa.list_(type.value_field.with_type(_common(type.value_type, items)))
    if t.is_map(type):
        maps = [each for each in types if t.is_map(each)]
        item = _common(type.item_type, [each.item_type for each in maps])
        return pa.map_(_common(type.key_type, [each.key_type for each in maps]), type.item_field.with_type(item))
    return type


def _without_common_type(schemas: Sequence[tuple[str, Schema]]) -> str | None:
    """The message about the first column whose types cannot be united, with a file of each type."""
    found: dict[str, dict[pa.DataType, str]] = {}
    for where, schema in schemas:
        for field in schema.arrow:
            types = found.setdefault(field.name, {})
            types.setdefault(_common(field.type, [field.type, *types]), where)
            try:
                pa.unify_schemas([pa.schema([(field.name, type)]) for type in types], promote_options="permissive")
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                has = ", and ".join(f"{type} in {name}" for type, name in types.items())
                # Spark before and after a change of spark.sql.parquet.outputTimestampType
                way = " If one is INT96, zskip.write makes a table of both." if all(map(t.is_timestamp, types)) else ""
                return f'The column "{field.name}" has types without a common type: {has}. Move one of them away.{way}'
    return None


def _require_one_spelling(united: Schema, schemas: Sequence[tuple[str, Schema]], folders: bool) -> None:
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
            "zskip.write(duckdb.sql(\"FROM read_parquet('…/*.parquet', union_by_name = true)\"), new_path, by=…)"
            f"{'; or rename the folders' if folders else ''}."
        )
