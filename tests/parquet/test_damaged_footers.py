"""Footers that are damaged or forged: `CorruptFile` with the file's name, or what pyarrow reads; nothing else."""

from __future__ import annotations

import copy
import faulthandler
import io
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, cast

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.parquet import compact_thrift as thrift
from zskip.core.schema import Schema
from zskip.errors import CorruptFile, SchemaMismatch
from zskip.inspect import audit
from zskip.parquet import footers
from zskip.stats import DataFiles
from zskip.storage import Listing

ROWS = pa.table(
    {
        "n": pa.array([5, None, 7, 9, 1 << 61, -3], pa.int64()),
        "s": ["a", "b", None, "dé", "e" * 70, "f"],
        "f": [0.5, -1.0, 2.0, None, 4.0, 5.0],
        "t": pa.array([0, 1, None, 3, 4, 5], pa.timestamp("us", "UTC")),
        "st": [
            {"x": 1, "y": "a"},
            {"x": 2, "y": None},
            None,
            {"x": 4, "y": "b"},
            {"x": 5, "y": "c"},
            {"x": 6, "y": "d"},
        ],
        "l": [[1], [], None, [2, 3], [4], [5]],
        "b": [True, False, None, True, True, False],
    }
)
PATHS = ("n", "s", "f", "t", "st.x", "st.y", "b")


def by_arrow() -> bytes:
    buffer = io.BytesIO()
    pq.write_table(ROWS, buffer, row_group_size=3)
    return buffer.getvalue()


def by_duckdb(folder: Path) -> bytes:
    path = folder / "duckdb.parquet"
    duckdb.from_arrow(ROWS).write_parquet(str(path))
    return path.read_bytes()


def by_polars(folder: Path) -> bytes:
    path = folder / "polars.parquet"
    polars.DataFrame(polars.from_arrow(ROWS)).write_parquet(path, row_group_size=2)
    return path.read_bytes()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("written")
    return [by_arrow(), by_duckdb(folder), by_polars(folder)]


@dataclass
class Memory:
    """Files in memory, as `footers.read` asks a storage for them."""

    files: dict[str, bytes]
    local: None = field(default=None, init=False)

    def uri_of(self, path: str) -> str:
        return f"memory://{path}"

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self.files[path][start : start + length]

    def size_and_modified(self, paths: Sequence[str]) -> Listing:
        sizes = pa.array([len(self.files[path]) for path in paths], pa.int64())
        return Listing(
            pa.array(paths), sizes, pa.array([0] * len(paths), pa.int64()), pa.nulls(len(paths), pa.string())
        )

    def require_inside(self, paths: pa.StringArray) -> None: ...


def footer_of(file: bytes) -> bytes:
    return file[-8 - int.from_bytes(file[-8:-4], "little") : -8]


def with_footer(footer: bytes) -> bytes:
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def read(*made: bytes) -> tuple[Schema, DataFiles]:
    """What is read of files named 0.parquet, 1.parquet, …"""
    storage = Memory({f"{number}.parquet": file for number, file in enumerate(made)})
    return footers.read(storage, list(storage.files), threads=1)


def check(made: bytes, sane: bytes) -> str:
    """Read a damaged file beside sane ones, and hold it against pyarrow. Returns how it ended."""
    place, around = 1, (sane, made, sane)
    try:
        schema, found = read(*around)
    except SchemaMismatch:  # it has other columns than its neighbours now
        place, around = 0, (made,)
    except CorruptFile as error:
        return refused(error, place)
    try:
        schema, found = read(*around)
    except CorruptFile as error:
        return refused(error, place)
    agrees_with_arrow(schema, found, place, made)
    return "read"


def refused(error: CorruptFile, place: int) -> str:
    assert f"memory://{place}.parquet" in str(error), error
    return "refused"


Facts = list[tuple[int, dict[str, tuple[Any, Any, Any]] | None]]


def facts_of_arrow(made: bytes) -> Facts | None:
    """Per row group its rows and, by column, null count and bounds, as pyarrow reads them; None where it cannot.

    In a process of its own: pyarrow ends its process at statistics that do not fit their column.
    """
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        try:
            faulthandler.disable()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            facts = pickle.dumps(read_by_arrow(made))
            with os.fdopen(send, "wb") as pipe:
                pipe.write(facts)
        finally:
            os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        sent = pipe.read()
    os.waitpid(child, 0)
    return cast(Facts, pickle.loads(sent)) if sent else None


def read_by_arrow(made: bytes) -> Facts:
    file = pq.ParquetFile(pa.BufferReader(made))
    own = Schema(file.schema_arrow)
    leaves = {file.metadata.schema.column(number).path: number for number in range(file.metadata.num_columns)}
    facts: Facts = []
    for group in map(file.metadata.row_group, range(file.metadata.num_row_groups)):
        columns = {}
        for path in (path for path in PATHS if path in leaves and path in own.columns):
            statistics = group.column(leaves[path]).statistics
            null_count = statistics.null_count if statistics and statistics.has_null_count else None
            bounds = bounds_of(statistics) if statistics and statistics.has_min_max else (None, None)
            columns[path] = (null_count, *bounds)
        facts.append((group.num_rows, columns))
    return facts


def types_of(made: bytes) -> dict[str, pa.DataType]:
    return {column.path: column.type for column in Schema(pq.ParquetFile(pa.BufferReader(made)).schema_arrow)}


def bounds_of(statistics: Any) -> tuple[Any, Any]:
    """Of times the numbers: Python's own reach neither so far nor to nanoseconds."""
    if statistics.logical_type.type == "TIMESTAMP":
        return statistics.min_raw, statistics.max_raw
    return statistics.min, statistics.max


def agrees_with_arrow(schema: Schema, found: DataFiles, place: int, made: bytes) -> None:
    facts = facts_of_arrow(made)
    first, last = (int(end) for end in found.first_row_group[place : place + 2])
    if facts is None:
        return
    assert found.row_groups.row_count[first:last].to_pylist() == [rows for rows, _ in facts]
    own = types_of(made)
    for unit, (rows, columns) in zip(range(first, last), facts, strict=True):
        for path in columns.keys() & schema.columns.keys():
            if schema.columns[path].type != own[path]:
                continue  # the neighbours' unit or width
            column = found.row_groups.columns[path]
            nulls, lower, upper = columns[path]
            assert column.null_count[unit].as_py() in (None, nulls, 0 if rows == 0 else None), path
            for bound, told in ((column.lower[unit], lower), (column.upper[unit], upper)):
                if pa.types.is_timestamp(bound.type):
                    bound = bound.cast(pa.int64())
                if bound.is_valid and told is not None:  # pyarrow has both bounds or none
                    assert pa.scalar(told).cast(bound.type).equals(bound), path


def flipped(file: bytes, random: Random) -> bytes:
    """One or two bits of the footer changed."""
    changed = bytearray(footer_of(file))
    for _ in range(random.randint(1, 2)):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return with_footer(bytes(changed))


def spliced(file: bytes, random: Random) -> bytes:
    """A run of the footer's bytes left out, doubled, or put elsewhere."""
    footer = footer_of(file)
    first, second, third = sorted(random.randrange(len(footer)) for _ in range(3))
    pieces = footer[:first], footer[first:second], footer[second:third], footer[third:]
    order = random.choice([(0, 2, 3), (0, 1, 1, 2, 3), (0, 2, 1, 3)])
    return with_footer(b"".join(pieces[place] for place in order))


def forged(file: bytes, random: Random) -> bytes:
    """A footer in good Thrift with one field repeated, dropped, of another kind or of another number."""
    fields = thrift.decode(footer_of(file))
    places = list(structs(fields))
    struct = random.choice(places)
    if not struct:
        return with_footer(thrift.encode(fields))
    chosen = random.randrange(len(struct))
    number, kind, value = struct[chosen]
    match random.choice(["repeat", "drop", "renumber", "number", "kind", "shuffle"]):
        case "repeat":
            struct.insert(random.randrange(len(struct) + 1), copy.deepcopy(struct[chosen]))
        case "drop":
            del struct[chosen]
        case "renumber":
            struct[chosen][0] = random.choice([number + 1, number - 1, 0, -number, 1 << 14])
        case "number" if kind in (thrift.I16, thrift.I32, thrift.I64):
            struct[chosen][2] = random.choice([-value, -1, value + 1, 1 << 31, 1 << 62, (1 << 63) - 1, -(1 << 63)])
        case "kind":
            struct[chosen][1:] = random.choice([[thrift.I64, 1], [thrift.BINARY, b"\xff" * 8], [thrift.TRUE, None]])
        case _ if kind == thrift.LIST:
            random.shuffle(value[1])
            del value[1][random.randrange(len(value[1]) + 1) :]
    return with_footer(thrift.encode(fields))


def structs(fields: thrift.Fields) -> Iterator[thrift.Fields]:
    yield fields
    for _, kind, value in fields:
        if kind == thrift.STRUCT:
            yield from structs(value)
        elif kind == thrift.LIST and value[0] == thrift.STRUCT:
            for one in value[1]:
                yield from structs(one)


@pytest.mark.parametrize("damage", [flipped, spliced, forged])
@pytest.mark.parametrize("cases", [pytest.param(12, id="few"), pytest.param(3400, id="many", marks=pytest.mark.slow)])
def test_damage_is_named_or_read_as_arrow_reads_it(
    files: list[bytes], damage: Callable[[bytes, Random], bytes], cases: int
) -> None:
    ended = {"refused": 0, "read": 0}
    for case in range(cases):
        random = Random(f"{damage.__name__} {case}")
        sane = random.choice(files)
        made = damage(sane, random)
        try:
            ended[check(made, sane)] += 1
        except BaseException as error:
            error.add_note(f"case {case}")
            raise
    assert min(ended.values()) > 0, ended


def change(file: bytes, path: tuple[int, ...], edit: Callable[[thrift.Fields, int], Any]) -> bytes:
    """The file with `edit(struct, place in it)` done to a field; a list's element is named by its place."""
    fields = thrift.decode(footer_of(file))
    here: Any = fields
    for step in path[:-1]:
        if isinstance(here, tuple):
            here = here[1][step]
        else:
            here = next(value for number, _, value in here if number == step)
    edit(here, next(place for place, (number, _, _) in enumerate(here) if number == path[-1]))
    return with_footer(thrift.encode(fields))


def put(value: int) -> Callable[[thrift.Fields, int], None]:
    def edit(struct: thrift.Fields, place: int) -> None:
        struct[place][2] = value

    return edit


def repeat(struct: thrift.Fields, place: int) -> None:
    struct.append(copy.deepcopy(struct[place]))


def remove(struct: thrift.Fields, place: int) -> None:
    del struct[place]


def turn_columns(struct: thrift.Fields, place: int) -> None:
    struct[place][2][1].reverse()


def turn_all_columns(struct: thrift.Fields, place: int) -> None:
    for group in struct[place][2][1]:
        turn_columns(group, 0)


REFUSED = {
    "row groups twice": ((4,), repeat),
    "the file's rows twice": ((3,), repeat),
    "no row groups": ((4,), remove),
    "no number of rows": ((3,), remove),
    "a negative number of rows": ((4, 0, 3), put(-3)),
    "rows that do not sum to the file's": ((4, 1, 3), put(2)),
    "more rows than the sum": ((3,), put(7)),
    "columns of one row group in another order": ((4, 0, 1), turn_columns),
    "columns of all row groups in another order": ((4,), turn_all_columns),
    "a null count twice": ((4, 0, 1, 0, 3, 12, 3), repeat),
}


def test_a_footer_that_contradicts_itself_is_refused_by_name() -> None:
    file = by_arrow()
    for name, (path, edit) in REFUSED.items():
        assert check(change(file, path, edit), file) == "refused", name


def test_a_null_count_that_cannot_be_is_unknown() -> None:
    file = by_arrow()
    for count in (-1, -(1 << 62), -(1 << 63), 1 << 62, (1 << 63) - 1, 4):
        _, found = read(file, change(file, (4, 0, 1, 0, 3, 12, 3), put(count)), file)
        assert found.row_groups.columns["n"].null_count.to_pylist() == [1, 0, None, 0, 1, 0], count


def test_numbers_of_every_length_are_the_same_side_by_side_and_alone() -> None:
    file = by_arrow()
    numbers = [sign * (1 << power) for power in range(63) for sign in (1, -1)]
    numbers += [(1 << 63) - 1, -(1 << 63)]
    made = [change(file, (4, 0, 2), put(number)) for number in numbers]
    _, found = read(*made)
    assert found.row_groups.columns["n"].null_count.to_pylist() == [1, 0] * len(made)


def test_deeply_nested_lists_are_refused() -> None:
    fields = thrift.decode(footer_of(by_arrow()))
    nested = b"".join([b"\x19"] * 20_000)
    made = with_footer(thrift.encode(fields)[:-1] + bytes([thrift.LIST]) + thrift.varint(99 << 1) + nested + b"\x00")
    with pytest.raises(CorruptFile, match=r"0\.parquet"):
        read(made)


def test_one_damaged_file_does_not_stop_the_doctor(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.parquet").write_bytes(by_arrow())
    made = change(by_arrow(), (4, 0, 3), put(-3))
    (tmp_path / "b.parquet").write_bytes(made)
    (tmp_path / "d.parquet").write_bytes(b"PAR1 nothing PAR1")
    report = audit.doctor(tmp_path)
    assert report.files == 2
    assert sorted(report.unreadable) == ["b.parquet", "d.parquet"]


@pytest.mark.parametrize("byte", [0, 1, 2, 255])
def test_a_byte_that_is_no_boolean_is_no_bound(byte: int) -> None:
    made = change(by_arrow(), (4, 0, 1, 7, 3, 12, 6), put(bytes([byte])))  # type: ignore[arg-type]  # a binary field
    _, found = read(made)
    assert found.row_groups.columns["b"].lower[0].as_py() == {0: False, 1: True}.get(byte)
