"""Random tables of hostile values, cut into units, and random statistics that are true of them."""

from __future__ import annotations

import bisect
import datetime as dt
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cached_property
from random import Random
from typing import Any

import pyarrow as pa

from zskip.core.schema import Schema, join_path
from zskip.core.types import logical_type
from zskip.stats import ColumnStatistics, FileStatistics, Statistics

DAY = 86_400
NAN = math.nan


@dataclass(frozen=True)
class Kind:
    """A column type, and the values that its rows and literals are drawn from, in order. Times are storage integers."""

    name: str
    family: str
    type: pa.DataType
    pool: tuple[Any, ...]

    @cached_property
    def plain(self) -> tuple[Any, ...]:
        """The pool without NaN, in order: what bounds are drawn from."""
        return tuple(sorted((value for value in self.pool if not is_nan(value)), key=key))

    @cached_property
    def keys(self) -> list[Any]:
        """What the values of ``plain`` are ordered by."""
        return [key(value) for value in self.plain]

    def array(self, values: Sequence[Any]) -> pa.Array:
        if self.family in _STORED_AS_INTEGERS:
            storage = pa.int32() if self.type.bit_width == 32 else pa.int64()
            return pa.array(values, storage).view(self.type)
        if pa.types.is_dictionary(self.type):
            return pa.array(values, self.type.value_type).dictionary_encode()
        if self.type == pa.float16():
            return pa.array(values, pa.float32()).cast(pa.float16())
        return pa.array(values, self.type)

    def bounds(self, values: Sequence[Any]) -> pa.Array:
        return self.array(values).cast(logical_type(self.type))


_STORED_AS_INTEGERS = {"date", "time", "timestamp", "zoned", "duration"}


def key(value: Any) -> Any:
    """What values of one kind are ordered by: strings by their bytes."""
    return value.encode() if isinstance(value, str) else value


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _integers(bits: int, signed: bool) -> tuple[int, ...]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    near = [-129, -128, -100, -12, -11, -10, -7, -3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 9, 10, 11, 12, 13, 99, 100, 127]
    far = [128, 255, 256, 1000, 32767, 65535, 2**31 - 1, 2**31, 2**32, 2**53, 2**53 + 1, -(2**31), -1000]
    pool = {value for value in [*near, *far, low, low + 1, high - 1, high] if low <= value <= high}
    return tuple(sorted(pool))


_FLOATS = (
    -math.inf, -1e300, -3e38, -1e10, -100.5, -10.0, -2.5, -1.5, -1.0, -0.5, -0.1, -5e-324, -0.0, 0.0, 5e-324, 0.1,
    0.3, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 10.0, 100.25, 16777216.0, 2.0**53, 2.0**53 + 2, 1e10, 3e38, 1e300, math.inf,
    NAN,
)  # fmt: skip


def _floats(bits: int) -> tuple[float, ...]:
    largest, smallest = {16: (65504.0, 6e-8), 32: (3.4e38, 1.4e-45), 64: (1.7e308, 5e-324)}[bits]
    kept = [v for v in _FLOATS if not math.isfinite(v) or (abs(v) <= largest and (v == 0 or abs(v) >= smallest))]
    array = pa.array(kept, pa.float32() if bits < 64 else pa.float64())
    array = array.cast(pa.float16()).cast(pa.float32()) if bits == 16 else array
    return tuple(value.as_py() for value in array)


def _decimals(precision: int, scale: int) -> tuple[Decimal, ...]:
    top = 10**precision - 1
    units = {
        0, 1, -1, 5, -5, 10, -10, 49, 50, 51, 99, 100, -100, 149, 150, 151, 250, -250, 999, 1000, 12345, top, -top,
        top - 1,
    }  # fmt: skip
    return tuple(sorted(Decimal(unit).scaleb(-scale, Context(prec=100)) for unit in units if abs(unit) <= top))


_STRINGS = (
    "", " ", " a", "\t", "\n", "!", "%", "-1", "0", "1", "1.5", "10", "2", "2020-01-01", "2020-02-30", "9", "A",
    "AB", "Ab", "B", "Z", "\\", "_", "a", "a ", "a%b", "a\\b", "a_b", "aB", "aa", "ab", "abc", "abcd", "abd", "ac",
    "az", "b", "ba", "it's", "z", "zz", "~", "\x7f", "é", "É", "e\u0301", "ß", "ſ", "İ", "ı", "K", "k", "Σ", "ς",
    "\ud7ff", "\ue000", "\ufffd", "\uffff", "\U0001f600", "\U0001f600b", "\U0010ffff", "\U0010ffff\U0010ffff",
    "a\x00", "a\x00b", "\x00", "a" * 70, "a" * 70 + "b", "x" * 100, "true", "TRUE", "NaN", "null", "a\U0010ffff",
    "a\U0010ffffb", "2020-01-01 00:00:00", "1e3", "日本", "日本語",
)  # fmt: skip
_BYTES = (
    b"", b"\x00", b"\x00\x00", b"\x01", b"A", b"a", b"a\x00", b"ab", b"abc", b"b", b"\x7f", b"\x80", b"\xc3\xa9",
    b"\xff", b"\xff\xff",
)  # fmt: skip
_DATES = (
    -719162, -141428, -141427, -25568, -25567, -366, -1, 0, 1, 30, 31, 58, 59, 365, 10956, 11016, 18261, 18262,
    18263, 18290,
)  # fmt: skip
_DATES += (18291, 18292, 18293, 18320, 18321, 18322, 18626, 18627, 18628, 19722, 19723, 20089, 2932896)
_MOMENTS = (
    -1, 1, 1520730000, 1520733600, 1541296799, 1541296800, 1541300400, 1540688400, 1540692000, 1522508400, 1519523999,
    1519524000, 1519527599, 1519527600, 1578000000, 1580515200, 1580515261, 1583020799, 1583020800, 1583020801,
    -1693706400,
)  # fmt: skip
_SECONDS = tuple(sorted({*(day * DAY + second for day in _DATES[1:-1] for second in (0, DAY - 1)), *_MOMENTS}))


def _instants(per_second: int) -> tuple[int, ...]:
    part = [0, 1, per_second // 2, per_second - 1] if per_second > 1 else [0]
    edge = 2**62
    pool = {second * per_second + part[index % len(part)] for index, second in enumerate(_SECONDS)}
    return tuple(sorted(value for value in pool if abs(value) < edge))


def _kinds() -> dict[str, Kind]:
    kinds = [
        Kind(f"i{bits}", "integer", getattr(pa, f"int{bits}")(), _integers(bits, True)) for bits in (8, 16, 32, 64)
    ]
    kinds += [
        Kind(f"u{bits}", "integer", getattr(pa, f"uint{bits}")(), _integers(bits, False)) for bits in (8, 16, 32, 64)
    ]
    kinds += [Kind(f"f{bits}", "float", getattr(pa, f"float{bits}")(), _floats(bits)) for bits in (16, 32, 64)]
    for type in (
        pa.decimal32(5, 2),
        pa.decimal64(15, 1),
        pa.decimal128(9, 0),
        pa.decimal128(18, 3),
        pa.decimal128(38, 2),
    ):
        pool = _decimals(type.precision, type.scale)
        kinds.append(Kind(f"n{type.precision}_{type.scale}", "decimal", type, pool))
    strings = tuple(sorted(set(_STRINGS), key=key))
    kinds += [
        Kind("n50_3", "decimal", pa.decimal256(50, 3), _decimals(50, 3)),
        Kind("b", "boolean", pa.bool_(), (False, True)),
        Kind("s", "string", pa.string(), strings),
        Kind("ls", "string", pa.large_string(), strings),
        Kind("ds", "string", pa.dictionary(pa.int32(), pa.string()), strings),
        Kind("x", "binary", pa.binary(), tuple(sorted(_BYTES))),
        Kind("d", "date", pa.date32(), _DATES),
        Kind("d64", "date", pa.date64(), tuple(day * DAY * 1000 for day in _DATES)),
    ]
    for unit, per_second in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        kinds.append(Kind(f"t{unit}", "timestamp", pa.timestamp(unit), _instants(per_second)))
        kinds.append(Kind(f"z{unit}", "zoned", pa.timestamp(unit, "UTC"), _instants(per_second)))
        clock = [0, 1, 59, 60, 3599, 3600, 43200, 43201, DAY - 1]
        type = pa.time32(unit) if per_second < 10**6 else pa.time64(unit)
        pool = sorted({*(second * per_second for second in clock), DAY * per_second - 1})
        kinds.append(Kind(f"c{unit}", "time", type, tuple(pool)))
    spans = [0, 1, -1, 60, 3600, 86399, 86400, 90000, -86400, 31 * DAY, 366 * DAY]
    kinds.append(Kind("span", "duration", pa.duration("us"), tuple(sorted(span * 10**6 for span in spans))))
    return {kind.name: kind for kind in kinds}


KINDS = _kinds()
# What DuckDB cannot read from Arrow: half floats and decimals wider than 38 digits.
DUCKDB_KINDS = [name for name in KINDS if name not in ("f16", "n50_3")]


@dataclass(frozen=True)
class Field:
    """A leaf: its kind, its SQL name, and the parts of its path."""

    kind: Kind
    parts: tuple[str, ...]

    @property
    def path(self) -> str:
        return join_path(self.parts)

    @property
    def sql(self) -> str:
        return ".".join(part if part.isidentifier() else '"' + part.replace('"', '""') + '"' for part in self.parts)


@dataclass(frozen=True)
class Units:
    """Rows by column path, and the unit of each row."""

    fields: tuple[Field, ...]
    values: dict[str, list[Any]]
    unit: list[int]
    count: int

    @cached_property
    def rows(self) -> pa.Table:
        """The rows as Arrow, with their unit in ``__unit``; structs are assembled from their leaves."""
        columns: dict[str, pa.Array] = {}
        inner: dict[str, list[tuple[str, pa.Array]]] = {}
        for field in self.fields:
            array = field.kind.array(self.values[field.path])
            if len(field.parts) == 1:
                columns[field.parts[0]] = array
            else:
                inner.setdefault(field.parts[0], []).append((field.parts[1], array))
        for name, leaves in inner.items():
            columns[name] = pa.StructArray.from_arrays([leaf for _, leaf in leaves], [leaf for leaf, _ in leaves])
        return pa.table({**columns, "__unit": pa.array(self.unit, pa.int32())})

    @cached_property
    def schema(self) -> Schema:
        return Schema(self.rows.drop_columns(["__unit"]).schema)

    @cached_property
    def starts(self) -> list[int]:
        """Where each unit's rows begin, and where the last one's end."""
        return [bisect.bisect_left(self.unit, number) for number in range(self.count + 1)]

    @cached_property
    def truths(self) -> dict[str, list[Truth]]:
        """What is true of each column in each unit."""
        spans = list(itertools.pairwise(self.starts))
        return {path: [truth_of(values[start:end]) for start, end in spans] for path, values in self.values.items()}


@dataclass(frozen=True)
class Truth:
    """Exact statistics of some values. The bounds are None where there is no value to bound."""

    lower: Any
    upper: Any
    nulls: int
    nans: int


def truth_of(values: Sequence[Any]) -> Truth:
    present = [value for value in values if value is not None]
    plain = [value for value in present if not is_nan(value)]
    lower, upper = (min(plain, key=key), max(plain, key=key)) if plain else (None, None)
    return Truth(lower, upper, len(values) - len(present), len(present) - len(plain))


SIZES = (0, 1, 1, 2, 3, 4, 6)
"""Rows of a unit."""


def random_units(
    random: Random,
    *,
    kinds: Sequence[str] = DUCKDB_KINDS,
    columns: int = 5,
    units: int = 10,
    sizes: Sequence[int] = SIZES,
) -> Units:
    """A table of some columns, each unit drawn from a window of each column's values, with nulls."""
    fields: list[Field] = []
    for number in range(columns):
        kind = KINDS[random.choice(kinds)]
        names = [(f"{kind.name}_{number}",)] * 6 + [
            (f"odd {kind.name}.{number}",),
            ("st", f"{kind.name}_{number}"),
            (f"Mixed{number}",),
        ]
        fields.append(Field(kind, random.choice(names)))
        if random.random() < 0.3:
            fields.append(Field(kind, (f"{kind.name}_{number}b",)))
    lengths = random.choices(sizes, k=units)
    unit = [number for number, length in enumerate(lengths) for _ in range(length)]
    values = {field.path: [v for length in lengths for v in drawn(random, field.kind, length)] for field in fields}
    return Units(tuple(fields), values, unit, units)


def drawn(random: Random, kind: Kind, count: int) -> list[Any]:
    pool = kind.pool
    width = random.choice((1, 1, 2, 3, 6, len(pool)))
    start = random.randrange(max(1, len(pool) - width + 1))
    found = random.choices(pool[start : start + width], k=count)
    if kind.family == "float" and random.random() < 1 / 3:
        found = [NAN if random.random() < 0.4 else value for value in found]
    nulls = random.choice((0, 0, 0, 0.3, 0.7, 1))
    return [None if random.random() < nulls else value for value in found] if nulls else found


def random_statistics(random: Random, table: Units, looseness: float | None = None) -> Statistics:
    """Statistics that are true of the units: exact where ``looseness`` is 0, else moved outwards or unknown."""
    return random_file_statistics(random, table, looseness).statistics()


def random_file_statistics(random: Random, table: Units, looseness: float | None = None) -> FileStatistics:
    """The same, in the form that is kept."""
    loose = random.choice([0.0, 0.1, 0.5]) if looseness is None else looseness
    columns = {}
    for field in table.fields:
        if random.random() < loose / 4:
            continue
        slots = [_loosened(random, field.kind, truth, loose) for truth in table.truths[field.path]]
        lower, upper, nulls, nans = (list(part) for part in zip(*slots, strict=True))
        flags = pa.nulls(table.count, pa.bool_())
        columns[field.path] = ColumnStatistics(
            field.kind.bounds(lower),
            field.kind.bounds(upper),
            pa.array(nulls, pa.int64()),
            pa.array(nans, pa.int64()),
            flags,
            flags,
        )
    counts = [end - start for start, end in itertools.pairwise(table.starts)]
    known = [None if random.random() < loose / 4 else count for count in counts]
    return FileStatistics(pa.array(known, pa.int64()), columns)


def _loosened(random: Random, kind: Kind, truth: Truth, loose: float) -> tuple[Any, Any, int | None, int | None]:
    lower, upper, nulls, nans = truth.lower, truth.upper, truth.nulls, truth.nans
    if not loose:
        return lower, upper, nulls, nans
    if random.random() < loose:
        if lower is None:  # no value that they could lie about
            lower, upper = random.choice(kind.plain), random.choice(kind.plain)
        else:
            below, above = bisect.bisect_right(kind.keys, key(lower)), bisect.bisect_left(kind.keys, key(upper))
            lower = kind.plain[random.randrange(below)]
            upper = kind.plain[random.randrange(above, len(kind.plain))]
    elif isinstance(lower, str) and random.random() < loose:
        lower, upper = truncated(lower, upper, random.randrange(1, 4))
    if random.random() < loose / 3:
        lower = None
    if random.random() < loose / 3:
        upper = None
    if random.random() < loose / 3:
        nulls = None
    if random.random() < loose / 3:
        nans = None
    return lower, upper, nulls, nans


def truncated(lower: str, upper: str, length: int) -> tuple[str, str | None]:
    """Bounds cut to some characters, the upper one rounded up; None where there is nothing above it."""
    if len(upper) <= length:
        return lower[:length], upper
    for end in range(length, 0, -1):
        last = ord(upper[end - 1])
        if last < 0x10FFFF:
            return lower[:length], upper[: end - 1] + chr(0xE000 if last == 0xD7FF else last + 1)
    return lower[:length], None


def literal(kind: Kind, value: Any) -> str:
    """A value as SQL that DuckDB and Spark read."""
    if value is None:
        return "NULL"
    if kind.family == "boolean":
        return str(value).upper()
    if kind.family == "float":
        return f"CAST('{value!s}' AS DOUBLE)" if not math.isfinite(value) else repr(value)
    if kind.family == "string":
        return "'" + value.replace("'", "''") + "'"
    if kind.family == "binary":
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
    if kind.family in ("date", "timestamp", "zoned", "time"):
        seconds, fraction = _seconds(kind, value)
        if kind.family == "date":
            return f"DATE '{dt.date(1970, 1, 1) + dt.timedelta(days=seconds // DAY)}'"
        if kind.family == "time":
            return f"TIME '{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}'"
        text = (dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)).isoformat(" ") + fraction
        return f"TIMESTAMP '{text}'" if kind.family == "timestamp" else f"TIMESTAMPTZ '{text}+00:00'"
    if kind.family == "duration":
        return f"INTERVAL '{value // 10**6} seconds'"
    return str(value)


def _seconds(kind: Kind, value: int) -> tuple[int, str]:
    """Whole seconds, and the fraction as text, of a time in storage units."""
    if kind.type == pa.date32():
        return value * DAY, ""
    unit = "ms" if kind.type == pa.date64() else kind.type.unit
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit]
    seconds, rest = divmod(value, 10**digits)
    return seconds, f".{rest:0{digits}d}" if rest else ""
