"""The text fixtures: a unit's statistics, a predicate, ``----``, and which outcomes its rows can have.

    table                                    one unit; ? is an unknown bound, - means that there is no value at all
      x   int64    1 .. 10
      y   float64  0.5 .. ?     null  nan?   null, nan: there is one · null?, nan?: unknown · neither: there is none
    timezone Europe/Berlin                   also: dialect, ansi, parameters (as JSON), now

    x > 10
    ----
    skip   false

``skip``: no row can match · ``all``: every row does · ``keep``: anything else; then the outcomes that rows can have.
A ``#`` starts a comment; after an answer, ``# loose:`` says why the planner foresees more than rows can have.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import math
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests import FIXTURES
from zskip.core.schema import Schema, split_path
from zskip.core.types import logical_type
from zskip.stats import Ranges, Statistics

FOLDER = FIXTURES / "predicates"
UNKNOWN = object()
EPOCH = dt.datetime(1970, 1, 1)
TYPES = {
    **{f"{sign}int{bits}": getattr(pa, f"{sign}int{bits}")() for bits in (8, 16, 32, 64) for sign in ("", "u")},
    "float32": pa.float32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "uuid": pa.uuid(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "zoned": pa.timestamp("us", "UTC"),
    **{f"timestamp_{unit}": pa.timestamp(unit) for unit in ("s", "ms", "ns")},
}


@dataclass(frozen=True)
class ColumnBox:
    """What one line of a table block says of a column."""

    path: str
    type: pa.DataType
    lower: Any
    upper: Any
    has_value: bool
    has_null: bool | None
    has_nan: bool | None

    def ranges(self) -> Ranges:
        type = logical_type(self.type)
        bounds = (pa.array([None if bound is UNKNOWN else bound], type) for bound in (self.lower, self.upper))
        flags = (pa.array([flag], pa.bool_()) for flag in (self.has_value, self.has_null, self.has_nan))
        return Ranges(*bounds, *flags)


@dataclass(frozen=True)
class Case:
    """A predicate over one unit, and the outcomes that the unit's rows can have."""

    file: str
    line: int
    table: tuple[ColumnBox, ...]
    settings: dict[str, Any] = field(hash=False)
    sql: str
    verdict: str
    outcomes: frozenset[str]
    loose: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.sql}"

    @property
    def options(self) -> dict[str, Any]:
        """What `bind` is given: of named parameters those that the predicate has."""
        named = self.settings.get("params")
        if not isinstance(named, dict):
            return self.settings
        return {**self.settings, "params": {name: value for name, value in named.items() if f"${name}" in self.sql}}

    @property
    def statistics(self) -> Statistics:
        return Statistics(pa.array([1_000_000], pa.int64()), {box.path: box.ranges() for box in self.table})

    @property
    def schema(self) -> Schema:
        return Schema(_assembled({box.path: pa.array([], box.type) for box in self.table}).schema)

    def rows(self, most: int = 60_000) -> pa.Table:
        """Rows that fill the box: every value where there are few, else bounds, literals, and what is next to them."""
        sampled = [box for box in self.table if re.search(rf"(?i)\b{re.escape(split_path(box.path)[-1])}\b", self.sql)]
        values = {box.path: list(samples(box, self.sql)) for box in self.table}
        each = max(3, int(most ** (1 / max(1, len(sampled)))))
        chosen = [values[box.path][:: math.ceil(len(values[box.path]) / each)] for box in sampled]
        chosen = [[*some, values[box.path][-1]] for some, box in zip(chosen, sampled, strict=True)]
        crossed = list(itertools.islice(itertools.product(*chosen), most))
        columns = {}
        for box in self.table:
            at = sampled.index(box) if box in sampled else None
            columns[box.path] = pa.array([values[box.path][0] if at is None else row[at] for row in crossed], box.type)
        return _assembled(columns)


def _assembled(leaves: dict[str, pa.Array]) -> pa.Table:
    """A table from its leaves, by path."""
    nested = _nested([(split_path(path), array) for path, array in leaves.items()])
    return pa.Table.from_struct_array(nested)


def _nested(leaves: list[tuple[tuple[str, ...], pa.Array]]) -> pa.Array:
    """A struct column from its leaves, by their paths inside it."""
    fields: dict[str, Any] = {}
    for parts, array in leaves:
        if len(parts) == 1:
            fields[parts[0]] = array
        else:
            fields.setdefault(parts[0], []).append((parts[1:], array))
    return pa.StructArray.from_arrays(
        [_nested(inner) if isinstance(inner, list) else inner for inner in fields.values()], list(fields)
    )


def load(folder: Path = FOLDER) -> Iterator[Case]:
    """Every case of every file, in order."""
    for path in sorted(folder.glob("*.txt")):
        yield from parse(path.name, path.read_text())


def parse(file: str, text: str) -> Iterator[Case]:
    table: tuple[ColumnBox, ...] = ()
    settings: dict[str, Any] = {}
    for line, block in blocks(text):
        if block[0] == "table":
            columns = itertools.takewhile(lambda row: row.startswith("  "), block[1:])
            table = tuple(column(row) for row in columns)
            settings = dict(setting(row) for row in block[1 + len(table) :])
        else:
            rule = block.index("----")
            answer, _, comment = block[rule + 1].partition("#")
            verdict, *outcomes = answer.split()
            loose = comment.strip().removeprefix("loose:").strip() if comment.strip().startswith("loose:") else ""
            yield Case(file, line, table, settings, " ".join(block[:rule]), verdict, frozenset(outcomes), loose)


def blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Runs of lines between blank lines, without comment lines; each with the number of its first line."""
    block: list[str] = []
    first = 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.startswith("#"):
            continue
        if line.strip():
            first = first if block else number
            block.append(line.rstrip())
        elif block:
            yield first, block
            block = []


def setting(row: str) -> tuple[str, Any]:
    name, value = row.split(" ", 1)
    if name == "parameters":
        return "params", json.loads(value)
    if name == "now":
        return "now", dt.datetime.fromisoformat(value)
    return name, value == "on" if name == "ansi" else value


_COLUMN = re.compile(r"  (\S+)\s+([a-z]+\w*(?:\([\d, ]+\))?)\s+(.*)")


def column(row: str) -> ColumnBox:
    path, name, rest = _COLUMN.fullmatch(row).groups()
    decimal = re.fullmatch(r"decimal\((\d+), ?(\d+)\)", name)
    type = pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else TYPES[name]
    flags = re.search(r"((?:\s+(?:null|nan)\??)*)\s*$", rest)[1]
    bounds = rest[: len(rest) - len(flags)].strip()
    known = {word: None if word.endswith("?") else True for word in flags.split()}
    has_null = known.get("null?", known.get("null", False)) if flags else False
    has_nan = known.get("nan?", known.get("nan", False)) if flags else False
    lower, upper = (
        (UNKNOWN, UNKNOWN) if bounds == "-" else (bound(part, type) for part in re.split(r"\s\.\.\s", bounds))
    )
    return ColumnBox(path, type, lower, upper, bounds != "-", has_null, has_nan)


def bound(text: str, type: pa.DataType) -> Any:
    text = text.strip()
    if text == "?":
        return UNKNOWN
    if pa.types.is_string(type):
        return json.loads('"' + text[1:-1].replace('"', '\\"') + '"')
    if pa.types.is_binary(type):
        return bytes.fromhex(text[2:-1])
    if type == pa.uuid():
        return uuid.UUID(text).bytes
    if pa.types.is_boolean(type):
        return text == "true"
    if pa.types.is_date(type):
        return dt.date.fromisoformat(text)
    if pa.types.is_time(type):
        return dt.time.fromisoformat(text)
    if pa.types.is_timestamp(type):
        return dt.datetime.fromisoformat(text)
    return Decimal(text) if pa.types.is_decimal(type) else float(text) if pa.types.is_floating(type) else int(text)


# ── rows that fill a box ──


def samples(box: ColumnBox, sql: str) -> Iterator[Any]:
    """Values of the box: complete for small integers and dates, else those at which an answer could turn."""
    if box.has_value:
        with localcontext(prec=100):
            inside = set(_inside(box, sql))
        yield from sorted(inside, key=lambda v: v.encode() if isinstance(v, str) else v)
    if box.has_nan is not False:
        yield math.nan
    if box.has_null is not False:
        yield None


def _inside(box: ColumnBox, sql: str) -> Iterator[Any]:
    type = box.type
    low = _extreme(type, 0) if box.lower is UNKNOWN else box.lower
    high = _extreme(type, 1) if box.upper is UNKNOWN else box.upper
    low, high = max(low, _extreme(type, 0)), min(high, _extreme(type, 1))
    for value in itertools.chain([low, high], _candidates(type, low, high, sql)):
        if low <= value <= high:
            yield value


def _extreme(type: pa.DataType, end: int) -> Any:
    if pa.types.is_integer(type):
        signed = pa.types.is_signed_integer(type)
        return (
            (-(2 ** (type.bit_width - 1)), 2 ** (type.bit_width - 1) - 1) if signed else (0, 2**type.bit_width - 1)
        )[end]
    if pa.types.is_decimal(type):
        top = Decimal(10) ** (type.precision - type.scale) - Decimal(1).scaleb(-type.scale)
        return (-top, top)[end]
    if pa.types.is_boolean(type):
        return bool(end)
    if pa.types.is_string(type):
        return ("", "\U0010ffff" * 3)[end]
    if pa.types.is_binary(type):
        return (b"", b"\xff" * 3)[end]
    if type == pa.uuid():
        return (b"\0" * 16, b"\xff" * 16)[end]
    if pa.types.is_date(type):
        return (dt.date(1600, 1, 1), dt.date(2400, 1, 1))[end]
    if pa.types.is_time(type):
        return (dt.time(), dt.time(23, 59, 59, 999999))[end]
    if pa.types.is_timestamp(type):
        return (dt.datetime(1700, 1, 1), dt.datetime(2250, 1, 1))[end]
    return (-math.inf, math.inf)[end]


def _candidates(type: pa.DataType, low: Any, high: Any, sql: str) -> Iterator[Any]:
    numbers = [Decimal(text) for text in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", sql)]
    texts = re.findall(r"'((?:[^']|'')*)'", sql)
    if pa.types.is_integer(type):
        yield from range(low, high + 1) if high - low <= 500 else ()
        near = [int(number) * sign for number in [*numbers, 0] for sign in (1, -1) if abs(number) < 10**25]
        yield from (value + step for value in [*near, low, high, (low + high) // 2] for step in range(-4, 5))
    elif pa.types.is_boolean(type):
        yield from (False, True)
    elif pa.types.is_floating(type) or pa.types.is_decimal(type):
        make = float if pa.types.is_floating(type) else Decimal
        step = Decimal("0.25") if make is float else Decimal(1).scaleb(-type.scale)
        steps = 401 if make is float else 2001
        yield from (make(step * k) for k in range(-steps, steps + 1))
        for number in numbers:
            for value in (number, -number, number + step, number - step, -number + step, -number - step):
                whole = make is float or value == value.quantize(step)
                if whole:
                    yield make(value)
    elif pa.types.is_string(type) or pa.types.is_binary(type):
        cut = {
            text[:end]
            for text in [*texts, *(str(v) for v in (low, high) if isinstance(v, str))]
            for end in range(len(text) + 1)
        }
        grown = {text + more for text in cut for more in ("", "a", "b", "m", "z", "%", "_", "~", "\U0001f600")}
        ends = (
            {low, *(low[:end] + chr(ord(low[end]) + 1) for end in range(len(low)) if ord(low[end]) < 126)}
            if isinstance(low, str)
            else set()
        )
        grown |= {end + text for end in ends for text in texts} | {end + "~" + text for end in ends for text in texts}
        grown |= {text.upper() for text in grown} | {text.lower() for text in grown}
        grown |= {text.replace("%", "x").replace("_", "y").replace("\\", "") for text in grown}
        grown |= {str(number) for number in range(40)} | {" " + text for text in cut} | {text + " " for text in cut}
        yield from (text if pa.types.is_string(type) else text.encode() for text in grown)
        if pa.types.is_binary(type):
            yield from (bytes([byte]) + tail for byte in range(256) for tail in (b"", b"\x00"))
    elif type == pa.uuid():
        uuids = [int(text.replace("-", ""), 16) for text in texts if re.fullmatch(r"[0-9a-fA-F-]{36}", text)]
        near = (number + step for number in [*uuids, 2**127] for step in (-1, 0, 1))
        yield from (number.to_bytes(16, "big") for number in near if 0 <= number < 2**128)
        yield from (bytes([byte]) + low[1:] for byte in range(256))
    elif pa.types.is_date(type):
        days = (high - low).days
        yield from (low + dt.timedelta(days=day) for day in range(0, days + 1, max(1, days // 3000)))
        yield from (v.date() for v in _instants(texts))
        yield from (
            dt.date(year, month, 1) for year in range(max(1600, low.year), min(high.year, 2400) + 1) for month in (1, 7)
        )
    elif pa.types.is_time(type):
        yield from (dt.time(hour, minute, second) for hour in range(24) for minute in (0, 30, 59) for second in (0, 59))
    elif pa.types.is_timestamp(type):
        span = high - low
        yield from (low + span * part / 997 for part in range(998))
        tick = dt.timedelta(microseconds=1)
        first, last = dt.datetime(low.year, low.month, low.day), min(span.days + 2, 800)
        for instant in [*_instants(texts), *(first + dt.timedelta(days=day) for day in range(last))]:
            for hours in (0, 1, 2, 3, 12, 23):
                yield from (instant + dt.timedelta(hours=hours) + tick * step for step in (-1, 0, 1))


def _instants(texts: list[str]) -> Iterator[dt.datetime]:
    for text in texts:
        found = re.match(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?)?", text)
        if found:
            yield dt.datetime.fromisoformat(found[0])


def with_answer(case: Case, outcomes: frozenset[str]) -> Case:
    verdict = "skip" if "true" not in outcomes else "all" if outcomes == {"true"} else "keep"
    return replace(case, verdict=verdict, outcomes=outcomes)
