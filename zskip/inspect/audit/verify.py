"""`verify`: check plans on the user's own data by reading the rows that they skip."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zskip.binder import bind
from zskip.core import late_loading
from zskip.core import types as t
from zskip.core.casts import cast
from zskip.core.option_checks import Progress, check_options, unreported
from zskip.core.schema import Schema, identifier
from zskip.engines.arrow import importable_leaf, row_group_batches
from zskip.engines.duckdb import to_duckdb
from zskip.engines.duckdb.relation import condition
from zskip.errors import CorruptFile, InvalidOption, shown
from zskip.language import render
from zskip.language.render import constant_sql
from zskip.parquet.arrow_differences import leaves
from zskip.plan import Plan, Survivors, find_survivors
from zskip.plan.scan import Scan
from zskip.plan.survivors import surviving_groups
from zskip.tablelog.freshness import dropped_files, dropped_text
from zskip.tablelog.index import Index

if TYPE_CHECKING:
    import duckdb


ENGINES = ("duckdb", "arrow", "spark")
SAMPLED_FILES = 4
SAMPLED_ROWS = 20_000

Result = TypeVar("Result")


def verify(
    index: Index,
    predicates: str | Sequence[str] | None = None,
    *,
    random: int = 20,
    sample: int | None = 20,
    engines: Sequence[str] | None = None,
    spark: Any = None,
    seed: int = 0,
    dialect: str = "duckdb",
    timezone: str = "UTC",
    params: Mapping[str, Any] | None = None,
    progress: Progress = unreported,
) -> Verification:
    """Plan predicates, read the rows that the plans skip, and report every row that matches.

    ``predicates``: the predicates to check; None for ``random`` predicates over the table's own values · ``sample``:
    the number of skipped files, and of partly read files, to read per predicate; None for all · ``engines``: some of
    ("duckdb", "arrow", "spark"); by default the first two, and Spark if ``spark`` is a session. DuckDB evaluates the
    predicate's own text on the skipped rows · ``progress``: called before each predicate, with the phase "verify".
    A predicate whose plan reads a file that is missing or damaged is not checked. Values that changed in a file which
    can still be read are noticed only where they leave its ranges: files have no checksums.

    Raises `SqlError`, `InvalidOption`.
    """
    predicates = [predicates] if isinstance(predicates, str) else predicates
    _require_texts(predicates)
    check_options(
        random=random,
        sample=sample,
        engines=engines,
        seed=seed,
        dialect=dialect,
        timezone=timezone,
        progress=progress,
    )
    unknown = sorted(set(engines or ()) - set(ENGINES))
    if unknown:
        raise InvalidOption(f'There is no engine "{unknown[0]}"; there are {", ".join(ENGINES)}.')
    import duckdb

    dice = np.random.default_rng(seed)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = " + "'" + timezone.replace("'", "''") + "'")
        gone, resized = missing_files(index)
        auditor = Auditor(
            index,
            connection,
            dice,
            sample,
            tuple(engines or (ENGINES[:2] if spark is None else ENGINES)),
            spark,
            gone,
            resized,
            {},
        )
        given = predicates is not None
        if predicates is None:
            texts = auditor.without_damaged(lambda: auditor.random_predicates(random, seed))
        else:
            texts = list(predicates)
        options = {"dialect": dialect, "timezone": timezone, "params": params} if given else {}
        checks = list[Check | None]()
        for done, text in enumerate(texts):
            progress("verify", done, len(texts))
            checks.append(auditor.check(text, options, given=given))
    missing = tuple(sorted(gone | resized))
    damaged = {path: reason for path, reason in sorted(auditor.damaged.items()) if path not in resized}
    unchecked = tuple(text for text, check in zip(texts, checks, strict=True) if check is None)
    checked = tuple(check for check in checks if check is not None)
    dropped = () if index.source else tuple(dropped_files(index.storage, index.snapshot).path.to_pylist())
    return Verification(index.storage.uri, index.version, checked, missing, damaged, unchecked, dropped)


def _require_texts(predicates: object) -> None:
    if predicates is None or (isinstance(predicates, Sequence) and all(isinstance(one, str) for one in predicates)):
        return
    raise InvalidOption(
        f"predicates= is a list of predicates in SQL, not {shown(predicates)}; random= is the number of random ones."
    )


def missing_files(index: Index) -> tuple[frozenset[str], frozenset[str]]:
    """The files of the index that do not exist, and those that have another size."""
    everything = np.arange(len(index), dtype=np.int64)
    paths, sizes = index.paths(everything), index.sizes(everything)
    found = index.storage.size_and_modified(paths.to_pylist())
    actual = dict(zip(found.path.to_pylist(), found.size.to_pylist(), strict=True))
    indexed = dict(zip(paths.to_pylist(), sizes.to_pylist(), strict=True))
    gone = frozenset(path for path in indexed if actual.get(path) is None)
    sized = ((path, size) for path, size in indexed.items() if size is not None and path not in gone)
    return gone, frozenset(path for path, size in sized if actual[path] != size)


@dataclass(frozen=True, slots=True)
class Auditor:
    """Reads the rows that plans skip, through one connection of DuckDB.

    ``gone``, ``resized``: files that do not exist or have another size · ``damaged``: files found to be unreadable so
    far, with the reason.
    """

    index: Index
    connection: duckdb.DuckDBPyConnection
    dice: np.random.Generator
    sample: int | None
    engines: tuple[str, ...]
    spark: Any
    gone: frozenset[str]
    resized: frozenset[str]
    damaged: dict[str, str]

    def check(self, text: str, options: Mapping[str, Any], *, given: bool) -> Check | None:
        """Check one predicate's plan; None if the plan reads a file that is missing or damaged.

        Engines whose SQL cannot express the predicate are left out; if the predicate was ``given``, Spark raises.
        """
        predicate = bind(text, self.index.snapshot.schema, **options)
        found = find_survivors(self.index, predicate)
        return self.without_damaged(
            lambda: self.checked(text, options, found, given=given) if self.readable(found) else None
        )

    def readable(self, found: Survivors) -> bool:
        """Whether a plan reads no file that is missing or damaged."""
        # In a folder that is only indexed, a file of another size is read in full, whatever it holds.
        bad = {*self.gone, *self.damaged, *(self.resized if found.scan.managed else ())}
        return bad.isdisjoint(self.index.paths(found.numbers).to_pylist())

    def checked(self, text: str, options: Mapping[str, Any], found: Survivors, *, given: bool) -> Check:
        """Check one predicate's plan. Raises `CorruptFile`, once `damaged` has the file."""
        predicate = found.predicate
        assert predicate is not None
        plain = options.get("dialect", "duckdb") == "duckdb" and not options.get("params")
        test = f"(\n{text}\n)" if plain else predicate.sql("duckdb")
        skipped = np.setdiff1d(np.arange(len(self.index), dtype=np.int64), found.numbers)
        read = self.drawn(skipped)
        wrong: list[Wrong] = []
        groups = 0
        if test is not None:
            wrong += self.offenders("skipped", read, test)
            matching = self.drawn(found.numbers[found.all_match])
            wrong += self.offenders("all match", matching, f"{test} IS NOT TRUE")
            groups, inside = self.inside_kept_files(found)
            wrong += inside
        rows = {}
        for engine in self.engines:
            if engine == "arrow" or predicate.sql(engine) is not None or (given and engine == "spark"):
                with self.naming_unreadable(found.numbers):
                    rows[engine] = _fingerprint(Plan(found), engine, self.connection, self.spark)
        return Check(
            text,
            len(self.index),
            len(skipped),
            len(read),
            groups,
            tuple(wrong),
            {engine: count for engine, (count, _) in rows.items()},
            len(set(rows.values())) <= 1,
        )

    def drawn(self, numbers: np.ndarray) -> np.ndarray:
        """A sample of the existing files, by number, or all of them."""
        numbers = self.existing(numbers)
        if self.sample is None or len(numbers) <= self.sample:
            return numbers
        return np.sort(self.dice.choice(numbers, self.sample, replace=False))

    def offenders(self, claim: str, numbers: np.ndarray, test: str) -> Iterator[Wrong]:
        """The files with rows for which a condition is TRUE that should be TRUE for none."""
        if self.count(numbers, test) == 0:
            return
        for number in numbers:
            alone = np.array([number])
            rows = self.count(alone, test)
            if rows:
                yield Wrong(claim, self.index.paths(alone)[0].as_py(), None, rows)

    def count(self, numbers: np.ndarray, test: str) -> int:
        if not len(numbers):
            return 0
        with self.naming_unreadable(numbers):
            relation = to_duckdb(self.scan_of(numbers), self.connection)
            ((rows,),) = relation.filter(test).aggregate("count(*)").fetchall()
        return int(rows)

    def inside_kept_files(self, found: Survivors) -> tuple[int, list[Wrong]]:
        """Read the row groups that a plan skips in kept files. Returns their number and those with matching rows."""
        partly = self.drawn(np.unique(found.groups.file))
        if not len(partly):
            return 0, []
        units = self.index.row_groups(partly, [])
        width = int(max(units.row_group.max(), found.groups.number.max(initial=0))) + 1
        kept = np.isin(units.file * width + units.row_group, found.groups.file * width + found.groups.number)
        groups = surviving_groups(units, ~kept, np.zeros(len(units), bool))
        where = condition(found.scan)
        wrong = []
        for number in np.unique(groups.file):
            skipped = groups.take(groups.file == number)
            alone = replace(
                self.scan_of(np.array([number])),
                predicate=found.predicate,
                groups=replace(skipped, file=skipped.file * 0),
            )
            with self.naming_unreadable(np.array([number])):
                rows = sum(batch.num_rows for batch in row_group_batches(alone, pa.schema([]), where))
            if rows:
                wrong.append(Wrong("skipped", alone.relative_paths[0], tuple(skipped.number.tolist()), rows))
        return int((~kept).sum()), wrong

    def scan_of(self, numbers: np.ndarray) -> Scan:
        """A scan of all rows of some files, by number."""
        return find_survivors(self.index, None).narrowed(numbers).scan

    @contextmanager
    def naming_unreadable(self, numbers: np.ndarray) -> Iterator[None]:
        """If an engine fails because files cannot be read, add these to `damaged` and raise `CorruptFile`."""
        import duckdb

        unread = (duckdb.Error, pa.ArrowInvalid, OSError, CorruptFile)
        try:
            yield
        except unread as error:
            for number in numbers:
                alone = self.scan_of(np.array([number]))
                try:
                    for _ in alone.to_batches():
                        pass
                except unread as reason:
                    self.damaged[alone.relative_paths[0]] = str(reason).splitlines()[0]
            if self.damaged:
                raise CorruptFile(f"Some files cannot be read: {', '.join(self.damaged)}.") from error
            raise

    def random_predicates(self, count: int, seed: int) -> list[str]:
        """Random predicates over rows of a few of the table's files."""
        numbers = self.existing(np.arange(len(self.index), dtype=np.int64))
        if len(numbers) > SAMPLED_FILES:
            numbers = np.sort(self.dice.choice(numbers, SAMPLED_FILES, replace=False))
        with self.naming_unreadable(numbers):
            sample = to_duckdb(self.scan_of(numbers), self.connection).limit(SAMPLED_ROWS).to_arrow_table()
        schema = self.index.snapshot.schema
        columns = [_with_type(*each) for each in zip(sample.columns, schema.arrow.types, strict=True)]
        return random_predicates(pa.Table.from_arrays(columns, schema=schema.arrow), schema, count, seed=seed)

    def without_damaged(self, work: Callable[[], Result]) -> Result:
        """The result of some work, which is repeated whenever it finds more damaged files. Raises `CorruptFile`."""
        while True:
            known = len(self.damaged)
            try:
                return work()
            except CorruptFile:
                if len(self.damaged) == known:
                    raise

    def existing(self, numbers: np.ndarray) -> np.ndarray:
        """The files among these that are neither missing nor known to be damaged."""
        bad = sorted({*self.gone, *self.resized, *self.damaged})
        missing = pc.is_in(self.index.paths(numbers), value_set=pa.array(bad, pa.string()))
        existing: np.ndarray = numbers[~np.asarray(missing)]
        return existing


# `Verification`: the results of `verify`.


@dataclass(frozen=True, slots=True)
class Wrong:
    """A wrong proof. ``claim``: "skipped", although ``rows`` match, or "all match", although ``rows`` do not."""

    claim: str
    path: str
    row_groups: tuple[int, ...] | None
    rows: int


@dataclass(frozen=True, slots=True)
class Check:
    """The result of checking one predicate's plan.

    ``skipped``: the number of skipped files among ``files`` · ``read``: the number of skipped files that were read ·
    ``row_groups_read``: the number of skipped row groups of kept files that were read · ``rows``: the number of rows
    that each engine returns for the plan · ``agree``: whether all engines return the same rows.
    """

    predicate: str
    files: int
    skipped: int
    read: int
    row_groups_read: int
    wrong: tuple[Wrong, ...]
    rows: Mapping[str, int]
    agree: bool


@dataclass(frozen=True, slots=True)
class Verification:
    """The results of `verify`.

    ``missing``: files in the index that do not exist or have another size · ``damaged``: files that cannot be read,
    with the reason · ``unchecked``: predicates left out, since their plans read such files · ``dropped``: files that
    other programs put into a table's folder, which are not part of the table · ``attributes``: files whose ranges of
    attributes of dimensions leave out a row · ``unjoined``: dimensions whose attributes were not checked, with the
    reason.
    """

    uri: str
    version: int
    checks: tuple[Check, ...]
    missing: tuple[str, ...]
    damaged: Mapping[str, str]
    unchecked: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    unjoined: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether every proof holds, all engines agree, and no file is missing or damaged."""
        return not self.missing and not self.damaged and self.held

    @property
    def held(self) -> bool:
        """Whether every proof that was checked holds, and all engines agree."""
        return not self.attributes and all(not check.wrong and check.agree for check in self.checks)

    def __str__(self) -> str:
        read, skipped = sum(check.read for check in self.checks), sum(check.skipped for check in self.checks)
        lines = [
            f"{self.uri}, version {self.version}: predicates checked: {len(self.checks):,}; "
            f"skipped files read: {read:,} of {skipped:,}; "
            f"skipped row groups read: {sum(check.row_groups_read for check in self.checks):,}."
        ]
        lines += [f"MISSING  {path}: it is gone, or has another size than the index says" for path in self.missing]
        lines += [f"DAMAGED  {path}: {reason}" for path, reason in self.damaged.items()]
        lines += [f"WRONG    {path}: the ranges of its attributes leave out a row" for path in self.attributes]
        if self.dropped:
            lines.append(f"{dropped_text(len(self.dropped))}: {self.dropped[0]}.")
        if self.unchecked:
            lines.append(f"Predicates not checked, since their plans read these files: {len(self.unchecked):,}.")
        lines += [f"Attributes not checked: {each}" for each in self.unjoined]
        for check in self.checks:
            lines += [
                f"WRONG    {found.path}: {found.claim}, but {found.rows:,} rows say otherwise: {check.predicate}"
                for found in check.wrong
            ]
            if not check.agree:
                counts = ", ".join(f"{engine} {rows:,}" for engine, rows in check.rows.items())
                lines.append(f"DIFFERENT  {counts} rows, or other values: {check.predicate}")
        if not self.held:
            lines.append("This is a defect: please report it.")
        elif self.checks:
            some = self.unchecked or self.unjoined
            lines.append("Every proof that was checked held." if some else "Every proof held.")
            lines.append("Not checked: values that changed in a file which can be read, and lie within its ranges.")
        return "\n".join(lines)


# Fingerprints of the rows that an engine returns for a plan, to compare engines by.


def _fingerprint(plan: Plan, name: str, connection: duckdb.DuckDBPyConnection, spark: Any) -> tuple[int, int]:
    """The number of rows that an engine returns for a plan, and the sum of their hashes, which DuckDB computes.

    ``spark``: the session for the engine "spark"; None for the active one, or a new one.
    """
    schema = plan.scan.schema.arrow
    if name == "duckdb":
        batches: Iterable[pa.RecordBatch] = plan.to_duckdb(connection).to_arrow_reader()
    elif name == "arrow":
        batches = plan.to_batches()
    else:
        batches = (
            plan.to_spark(spark or late_loading.engine("spark session").active_session())
            .toArrow()
            .select(schema.names)
            .to_batches()
        )
    count, total = 0, 0
    # On another connection: this one still has the result open, and a query on it would replace the error of an
    # unreadable file by one of its own.
    with connection.cursor() as hashing:
        for found in _gathered(batches):
            hashing.register("found", _importable(found, schema).combine_chunks())
            ((hashes,),) = hashing.execute("SELECT sum(hash(r)::HUGEINT) FROM found r").fetchall()
            count, total = count + found.num_rows, total + int(hashes)
    return count, total


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows of many small batches at once: a query for each would cost more than its hashes."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size >= _BYTES_AT_ONCE:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _with_type(values: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    """Values cast to a type, also if it is one that DuckDB exports as strings, such as UUID."""
    return _cast_by_arrow(cast(values, t.with_leaves(type, _without_json)), type)


def _cast_by_arrow(values: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    return values if values.type == type else values.cast(type)  # it breaks slices of lists of the type null


def _without_json(leaf: pa.DataType) -> pa.DataType:
    return leaf.storage_type if isinstance(leaf, pa.JsonType) else leaf


def _importable(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows in types that DuckDB imports from Arrow, and hashes. Distinct values of a schema stay distinct, except
    decimals of more than 38 digits: DuckDB reads them as doubles, so that only their NULLs count."""
    columns = {}
    for field, values in zip(schema, rows.columns, strict=True):
        is_wide = any(t.is_decimal(leaf) and leaf.precision > 38 for leaf in leaves(field.type))
        importable = t.with_leaves(field.type, importable_leaf)
        columns[field.name] = (
            values.is_valid() if is_wide else _cast_by_arrow(_with_type(values, field.type), importable)
        )
    return pa.table(columns)


# Random predicates over a table's own values: common conditions and edge cases.


def _literal(value: Any, type: pa.DataType) -> str:
    """A value as a DuckDB literal of the column's type. Raises `TypeError` for a type without literals.

    >>> _literal("it's", pa.string()), _literal(None, pa.int64()), _literal(float("nan"), pa.float64())
    ("'it''s'", 'NULL', "CAST('nan' AS DOUBLE)")
    """
    if value is None:
        return "NULL"
    if t.is_integer(type) or (t.is_floating(type) and math.isfinite(value)):
        return repr(value)  # bare, as people write numbers
    if t.is_time(type):
        return render.literal(value, "duckdb")
    text = constant_sql(pa.scalar(value, type), "duckdb")
    if text is None:
        raise TypeError(f"{type} has no literal")
    return text


def _has_literals(type: pa.DataType) -> bool:
    """Whether `literal` can write every value of a type without loss."""
    entry = t.of(type)
    if t.is_time(type):
        return bool(type.unit != "ns")  # Python's own times end at microseconds
    if t.is_decimal(type):
        return bool(type.precision <= 38)
    # A literal of bytes is a function call, from which nothing can be proved.
    return not t.is_binary(type) and (entry.spelled is not None or (entry.plain is not None and entry.plain(type)))


_BYTES_AT_ONCE = 1 << 24
_Shape = Callable[[str, list[str], random.Random], str]

# Each takes the column, three of its values as literals, and the dice.
_SHAPES: tuple[_Shape, ...] = (
    lambda column, values, dice: f"{column} = {values[0]}",
    lambda column, values, dice: f"{column} {dice.choice(['<', '<=', '>', '>=', '<>'])} {values[0]}",
    lambda column, values, dice: (
        f"{column} BETWEEN least({values[0]}, {values[1]}) AND greatest({values[0]}, {values[1]})"
    ),
    lambda column, values, dice: f"{column} IN ({', '.join(values)})",
    lambda column, values, dice: f"{column} NOT IN ({', '.join(values)})",
    lambda column, values, dice: f"{column} IS {dice.choice(['', 'NOT '])}NULL",
    lambda column, values, dice: f"{column} IS {dice.choice(['', 'NOT '])}DISTINCT FROM {values[0]}",
    lambda column, values, dice: f"NOT ({column} {dice.choice(['=', '<', '>='])} {values[0]})",
)


def _prefix(column: str, value: Any, dice: random.Random) -> str:
    """A LIKE on the first characters of a string, its wildcards escaped."""
    start = value[: dice.randint(1, max(1, min(8, len(value))))]
    for special in ("!", "%", "_", "'"):
        start = start.replace(special, ("'" if special == "'" else "!") + special)
    return f"{column} LIKE '{start}%' ESCAPE '!'"


def _writable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values as Python can hold them: instants in UTC, whatever their zone is called, and decimals that have more
    digits than their type, and so no literal, as nulls."""
    if t.is_timestamp(values.type) and values.type.tz is not None:
        return values.cast(pa.timestamp(values.type.unit, "UTC"))
    if not t.is_decimal(values.type):
        return values
    return pc.if_else(t.within_digits(values), values, pa.scalar(None, values.type))


def _drawn(value: pa.Scalar) -> Any:
    """A value as Python holds it; None for a date or time that it cannot hold, such as an infinite one."""
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return None


def random_predicates(rows: pa.Table, schema: Schema, count: int, *, seed: int = 0) -> list[str]:
    """Predicates over the columns that have literals, with values of ``rows``. Equal seeds give equal predicates."""
    dice = random.Random(seed)
    columns = [column for column in schema if column.orderable and _has_literals(column.type)]
    if not columns or not len(rows):
        return ["TRUE"][:count]
    values = {column.path: _writable(column.of(rows)) for column in columns}

    def leaf() -> str:
        column = dice.choice(columns)
        drawn = [_drawn(values[column.path][dice.randrange(len(rows))]) for _ in range(3)]
        name = identifier(*column.parts)
        if t.is_string(column.type) and drawn[0] and dice.random() < 0.2:
            return _prefix(name, drawn[0], dice)
        return dice.choice(_SHAPES)(name, [_literal(value, values[column.path].type) for value in drawn], dice)

    def tree(depth: int) -> str:
        if depth == 0 or dice.random() < 0.5:
            return leaf()
        joined = f"({tree(depth - 1)}) {dice.choice(['AND', 'AND', 'OR'])} ({tree(depth - 1)})"
        return f"NOT ({joined})" if dice.random() < 0.2 else joined

    return [tree(2) for _ in range(count)]
