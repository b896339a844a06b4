"""Random predicates, well typed for the most part, from the whole grammar that the planner speaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from tests.pruning.units import KINDS, Field, Kind, Units, is_nan, literal
from zskip.language.functions import COMPUTED

COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
NUMBERS = ("integer", "float", "decimal")
TIMES = ("date", "timestamp", "zoned")
PATTERNS = (
    "a%", "ab%", "%", "%b", "a_", "_", "", "a%b", "a\\%b", "A%", "é%", "1%", "abc", "a", "x%x", "%%", "a%%", "__%",
    "\U0001f600%",
)  # fmt: skip
REGULAR = (
    "^a", "^ab.*", "^a|b", "^(a|b)", "b", "^a?b", "^ab$", "^ab*", "^a{2}", "^\\.", "(?i)^a", "^", "$", "^a.c", "^é",
    "^ab+",
)  # fmt: skip
PARTS = (
    "year", "month", "day", "quarter", "hour", "minute", "second", "dayofweek", "dayofyear", "week", "epoch",
    "isodow",
)  # fmt: skip
DIFFERENCES = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "decade", "century")
NUMBER_TYPES = ("TINYINT", "INTEGER", "BIGINT", "DOUBLE", "FLOAT", "DECIMAL(9,2)", "DECIMAL(18,0)", "SMALLINT")
QUOTED = ("'a'", "'b'", "''", "'ab'", "'é'")
TRUTHS = ("TRUE", "NOT TRUE", "FALSE", "NOT FALSE", "UNKNOWN", "NOT UNKNOWN")
TRUNCATIONS = (
    "year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "decade", "century",
)  # fmt: skip


class Grammar:
    """Predicates over one table. ``spark`` leaves out what only DuckDB reads, and spells the rest its way."""

    def __init__(self, random: Random, table: Units, *, spark: bool = False) -> None:
        self.random = random
        self.table = table
        self.spark = spark
        self.by_family: dict[str, list[Field]] = {}
        for field in table.fields:
            self.by_family.setdefault(field.kind.family, []).append(field)

    # ── choices ──

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def one(self, choices: Sequence[str]) -> str:
        return self.random.choice(choices)

    def first_of(self, choices: Sequence[Callable[[], str]]) -> str:
        return self.random.choice(choices)()

    def field(self, families: Sequence[str]) -> Field | None:
        found = [field for family in families for field in self.by_family.get(family, ())]
        return self.random.choice(found) if found else None

    # ── literals ──

    def constant(self, kind: Kind, near: Field | None = None) -> str:
        """A literal of a kind: often a value that stands in the table."""
        if self.chance(0.02):
            return "NULL"
        seen = self.table.values[near.path] if near is not None and self.chance(0.5) else ()
        if near is not None and kind.family in ("timestamp", "zoned") and self.chance(0.15):
            kind = KINDS[kind.name[0] + self.one(["s", "ms", "us", "ns"])]
            seen = ()
        value = self.random.choice([v for v in seen if v is not None] or kind.pool)
        if kind.family == "string" and "\x00" in value:
            value = "a"
        if kind.family in ("date", "timestamp", "zoned") and self.chance(0.1):
            return self.one(["current_date", "now()", "DATE '2020-02-29'", "TIMESTAMP '2020-01-31 12:00:00'"])
        if self.spark and (kind.family == "binary" or kind.family == "zoned"):
            return (
                f"X'{value.hex()}'"
                if kind.family == "binary"
                else literal(kind, value).replace("TIMESTAMPTZ", "TIMESTAMP")
            )
        if self.spark and kind.family == "timestamp":
            return literal(kind, value).replace("TIMESTAMP", "TIMESTAMP_NTZ")
        if kind.family in (*TIMES, "time") and self.chance(0.25):
            if kind.family in ("timestamp", "zoned") and self.chance(0.3):  # finer than the column, or coarser
                kind = KINDS[kind.name[0] + self.one(["s", "ms", "us", "ns"])]
                value = self.random.choice(kind.pool)
            return literal(kind, value).split(" ", 1)[1]  # a bare string, to be cast as the dialect casts it
        return literal(kind, value)

    def number(self) -> str:
        """A number of any type, often not of the column's."""
        if self.chance(0.3):
            return self.one(
                [
                    "0",
                    "1",
                    "2",
                    "3",
                    "-1",
                    "10",
                    "100",
                    "0.5",
                    "1.5",
                    "-2.5",
                    "5.5",
                    "1e3",
                    "128",
                    "256",
                    "-129",
                    "1e400",
                ]
            )
        kind = KINDS[self.one(["i8", "i16", "i32", "i64", "u64", "f32", "f64", "n5_2", "n18_3"])]
        value = self.random.choice(kind.pool)
        return "0" if is_nan(value) and self.spark else literal(kind, value)

    # ── expressions, by family ──

    def expression(self, family: str, depth: int) -> str:
        make = {
            "number": self.numeric, "string": self.string, "date": self.date, "timestamp": self.timestamp,
            "zoned": self.zoned, "time": self.time, "duration": self.duration,
            "binary": self.binary, "boolean": self.boolean,
        }[family]  # fmt: skip
        if depth > 0 and self.chance(0.08):
            return self.conditional(family, depth)
        return make(depth)

    def conditional(self, family: str, depth: int) -> str:
        def inner() -> str:
            return self.expression(family, depth - 1)

        return self.first_of([
            lambda: f"coalesce({inner()}, {inner()})",
            lambda: f"nullif({inner()}, {inner()})",
            lambda: f"CASE WHEN {self.predicate(depth - 1)} THEN {inner()} ELSE {inner()} END",
            lambda: f"CASE WHEN {self.predicate(depth - 1)} THEN {inner()} END",
            lambda: f"CASE {inner()} WHEN {inner()} THEN {inner()} ELSE {inner()} END",
            lambda: f"if({self.predicate(depth - 1)}, {inner()}, {inner()})",
            lambda: f"ifnull({inner()}, {inner()})",
            lambda: f"least({inner()}, {inner()})",
            lambda: f"greatest({inner()}, {inner()})",
        ])  # fmt: skip

    def leaf(self, families: Sequence[str], fallback: Callable[[], str]) -> str:
        field = self.field(families)
        return fallback() if field is None or self.chance(0.1) else field.sql

    def numeric(self, depth: int) -> str:
        if depth <= 0 or self.chance(0.25):
            return self.leaf(NUMBERS, self.number)
        x = lambda: self.numeric(depth - 1)  # noqa: E731
        day = lambda: self.expression(self.one(["date", "timestamp", "date", "timestamp", "zoned"]), depth - 1)  # noqa: E731
        small = lambda: self.one(["1", "2", "3", "-1", "10", "0", "7", "0.5", "-2", "1.5"])  # noqa: E731
        type = lambda: self.one(NUMBER_TYPES)  # noqa: E731
        choices = [
            lambda: f"({x()} {self.one('+-*')} {small()})",
            lambda: f"({small()} {self.one('+-*')} {x()})",
            lambda: f"({x()} {self.one('+-*')} {x()})",
            lambda: f"({x()} / {small()})",
            lambda: f"({x()} % {small()})",
            lambda: f"(-{x()})",
            lambda: f"{self.one(['abs', 'sign', 'floor', 'ceil', 'round', 'sqrt', 'ln', 'exp'])}({x()})",
            lambda: f"round({x()}, {self.one(['0', '1', '2', '-1'])})",
            lambda: f"power({x()}, {self.one(['2', '3', '0.5', '0', '-1'])})",
            lambda: f"{self.one(['CAST', 'CAST', 'TRY_CAST'])}({x()} AS {type()})",
            lambda: f"TRY_CAST({self.string(depth - 1)} AS {self.one(['INTEGER', 'DOUBLE'])})",
            lambda: f"length({self.string(depth - 1)})",
            lambda: (
                f"{self.one(['year', 'month', 'day', 'quarter', 'hour', 'minute', 'dayofweek', 'dayofyear'])}({day()})"
            ),
            lambda: f"extract({self.one(PARTS[:7])} FROM {day()})",
            lambda: f"date_part('{self.one(PARTS[:9])}', {day()})",
            lambda: (
                f"datediff('{self.one(DIFFERENCES)}', {self.date(0)}, {self.date(depth - 1)})"
                if not self.spark
                else f"datediff({self.date(depth - 1)}, {self.date(0)})"
            ),
        ]
        if not self.spark:
            choices += [
                lambda: f"({x()} // {small()})",
                lambda: f"trunc({x()})",
                lambda: f"{self.one(PARTS)}({day()})",
                lambda: f"extract({self.one(PARTS)} FROM {day()})",
                lambda: f"date_part('{self.one(PARTS)}', {day()})",
                lambda: f"epoch({day()})",
                lambda: f"epoch_ms(CAST({self.timestamp(depth - 1)} AS TIMESTAMP))",  # DuckDB 2.0.1 has none for others
                lambda: f"{self.one(['bit_count', 'log', 'cbrt', 'even', 'sin', 'hash', 'degrees', 'isnan'])}({x()})",
                lambda: f"({x()} {self.one(['&', '|', '<<'])} {self.one(['1', '3', '7'])})",
                lambda: f"{self.one(COMPUTED['numbers'])}({x()})",
                lambda: f"{self.one(COMPUTED['dates and times'])}({day()})",
                lambda: f"{self.one(COMPUTED['strings'])}({self.string(depth - 1)})",
                lambda: f"instr({self.string(depth - 1)}, {self.one(QUOTED)})",
                lambda: f"{self.one(['ascii', 'strlen', 'unicode', 'hash', 'bit_length'])}({self.string(depth - 1)})",
                lambda: f"levenshtein({self.string(depth - 1)}, {self.one(QUOTED)})",
                lambda: f"date_diff('{self.one(DIFFERENCES)}', {self.timestamp(depth - 1)}, {self.timestamp(0)})",
            ]
        else:
            narrow = ("100Y", "2Y", "-1Y", "300S", "32767S", "CAST(3 AS TINYINT)", "5L")
            choices += [
                lambda: f"({x()} DIV {small()})",
                lambda: f"unix_timestamp({self.zoned(depth - 1)})",
                lambda: f"({self.leaf(NUMBERS, self.number)} {self.one('+-*')} {self.one(narrow)})",
                lambda: f"(unix_date({self.date(depth - 1)}) * {self.one(['2', '200000'])})",
            ]
        return self.first_of(choices)

    def string(self, depth: int) -> str:
        if depth <= 0 or self.chance(0.4):
            return self.leaf(["string"], lambda: self.constant(KINDS["s"]))
        s = lambda: self.string(depth - 1)  # noqa: E731
        n = lambda: self.one(["0", "1", "2", "3", "-1", "5"])  # noqa: E731
        foreign = [] if self.spark else [
            lambda: f"{self.one(COMPUTED['strings'])}({s()})",
            lambda: f"{self.one(COMPUTED['strings'])}({s()}, {self.one(QUOTED)})",
            lambda: f"CAST({self.zoned(depth - 1)} AS VARCHAR)",
            lambda: f"CAST({self.expression(self.one(['time', 'duration', 'binary']), depth - 1)} AS VARCHAR)",
            lambda: f"strftime({self.zoned(depth - 1)}, '{self.one(['%H', '%Z', '%c', '%d %H:%M'])}')",
            lambda: f"strftime({self.date(depth - 1)}, '{self.one(['%Y-%m', '%d', '%A', '%j'])}')",
            lambda: f"{self.one(['monthname', 'dayname'])}({self.expression(self.one(TIMES), depth - 1)})",
            lambda: f"{self.one(['md5', 'to_base', 'bin', 'chr'])}({self.one([s(), self.numeric(depth - 1)])})",
            lambda: f"split_part({s()}, {self.one(QUOTED)}, {self.one(['1', '2', '-1'])})",
            lambda: f"{self.one(['lpad', 'rpad'])}({s()}, {self.one(['0', '2', '5'])}, 'x')",
            lambda: f"CAST({self.boolean(depth - 1)} AS VARCHAR)",
            lambda: f"regexp_replace({s()}, {self.one(QUOTED)}, 'z')",
            lambda: f"CAST({self.timestamp(depth - 1)} AS VARCHAR)",
            lambda: f"{s()}[{n()}:{n()}]",
            lambda: f"nfc_normalize({s()})",
        ]  # fmt: skip
        return self.first_of([
            *foreign,
            lambda: f"substr({s()}, {self.one(['1', '1', '1', '2', '0', '-1'])}, {n()})",
            lambda: f"left({s()}, {n()})",
            lambda: f"right({s()}, {n()})",
            lambda: f"{self.one(['upper', 'lower', 'trim', 'ltrim', 'rtrim', 'reverse'])}({s()})",
            lambda: f"concat('{self.one(['p', '', 'a'])}', {s()})",
            lambda: f"({s()} || {s()})",
            lambda: f"CAST({self.numeric(0 if self.spark else depth - 1)} AS {'STRING' if self.spark else 'VARCHAR'})",
            lambda: f"CAST({self.date(depth - 1)} AS {'STRING' if self.spark else 'VARCHAR'})",
            lambda: f"replace({s()}, 'a', 'b')",
        ])  # fmt: skip

    def date(self, depth: int) -> str:
        if depth <= 0 or self.chance(0.4):
            return self.leaf(["date"], lambda: self.constant(KINDS["d"]))
        d, t = lambda: self.date(depth - 1), lambda: self.timestamp(depth - 1)
        choices = [
            lambda: f"CAST({t()} AS DATE)",
            lambda: f"CAST({self.zoned(depth - 1)} AS DATE)",
            lambda: f"last_day({d()})",
            lambda: f"{self.one(['CAST', 'TRY_CAST'])}({self.string(depth - 1)} AS DATE)",
            lambda: (
                f"to_date({t()})" if self.spark else f"CAST(date_trunc('{self.one(TRUNCATIONS[:5])}', {d()}) AS DATE)"
            ),
            lambda: (
                f"date_add({d()}, {self.one(['1', '30', '-1'])})"
                if self.spark
                else f"({d()} {self.one('+-')} {self.one(['1', '30'])})"
            ),
        ]
        return self.first_of(choices)

    def interval(self) -> str:
        amount, unit = (
            self.one(["1", "2", "30", "-1", "0"]),
            self.one(["DAY", "HOUR", "MONTH", "YEAR", "MINUTE", "DAY"]),
        )
        return f"INTERVAL {amount} {unit}" if not amount.startswith("-") else f"INTERVAL '{amount}' {unit}"

    def timestamp(self, depth: int) -> str:
        if depth <= 0 or self.chance(0.4):
            return self.leaf(["timestamp"], lambda: self.constant(KINDS["tus"]))
        t = lambda: self.timestamp(depth - 1)  # noqa: E731
        naive = "TIMESTAMP_NTZ" if self.spark else "TIMESTAMP"
        choices = [
            lambda: f"CAST({self.date(depth - 1)} AS {naive})",
            lambda: f"CAST({self.zoned(depth - 1)} AS {naive})",
            lambda: f"date_trunc('{self.one(TRUNCATIONS[:8])}', {t()})",
            lambda: f"({t()} {self.one('+-')} {self.interval()})",
            lambda: f"TRY_CAST({self.string(depth - 1)} AS {naive})",
        ]
        if not self.spark:
            choices += [
                lambda: f"date_trunc('{self.one(TRUNCATIONS)}', {t()})",
                lambda: f"({self.date(depth - 1)} + {self.interval()})",
                lambda: f"CAST({t()} AS TIMESTAMP_{self.one(['S', 'MS', 'NS'])})",
                lambda: f"({self.zoned(depth - 1)} AT TIME ZONE '{self.one(['Europe/Berlin', 'America/Sao_Paulo'])}')",
            ]
        return self.first_of(choices)

    def zoned(self, depth: int) -> str:
        if depth <= 0 or self.chance(0.5):
            return self.leaf(["zoned"], lambda: self.constant(KINDS["zus"]))
        z = lambda: self.zoned(depth - 1)  # noqa: E731
        zoned = "TIMESTAMP" if self.spark else "TIMESTAMPTZ"
        return self.first_of([
            lambda: f"date_trunc('{self.one(TRUNCATIONS[:8])}', {z()})",
            lambda: f"({z()} {self.one('+-')} {self.interval()})",
            lambda: f"CAST({self.timestamp(depth - 1)} AS {zoned})",
            lambda: f"CAST({self.date(depth - 1)} AS {zoned})",
            lambda: f"{'timestamp_seconds' if self.spark else 'to_timestamp'}({self.numeric(0)})",
        ])  # fmt: skip

    def time(self, depth: int) -> str:
        if depth > 0 and self.chance(0.3):
            return f"CAST({self.timestamp(depth - 1)} AS TIME)"
        return self.leaf(["time"], lambda: self.constant(KINDS["cus"]))

    def duration(self, depth: int) -> str:
        if depth > 0 and self.chance(0.3):
            return f"({self.timestamp(depth - 1)} - {self.timestamp(0)})"
        return self.leaf(["duration"], lambda: self.constant(KINDS["span"]))

    def binary(self, depth: int) -> str:
        return self.leaf(["binary"], lambda: self.constant(KINDS["x"]))

    def boolean(self, depth: int) -> str:
        return (
            self.leaf(["boolean"], lambda: self.one(["TRUE", "FALSE"]))
            if depth <= 0
            else f"({self.predicate(depth - 1)})"
        )

    # ── predicates ──

    def predicate(self, depth: int) -> str:
        """A predicate; the depth bounds how deep it nests."""
        if depth <= 0 or self.chance(0.45):
            return self.atom(max(depth, 0))
        p = lambda: self.predicate(depth - 1)  # noqa: E731
        return self.first_of([
            lambda: f"({p()} AND {p()})",
            lambda: f"({p()} AND {p()})",
            lambda: f"({p()} OR {p()})",
            lambda: f"({p()} OR {p()} OR {p()})",
            lambda: f"NOT ({p()})",
            lambda: f"NOT ({p()})",
            lambda: f"({p()}) IS {self.one(['', 'NOT '])}{self.one(['TRUE', 'FALSE', 'NULL'])}",
            lambda: f"(({p()}) = ({p()}))",
            lambda: f"(({p()}) <> ({p()}))",
            lambda: f"CASE WHEN {p()} THEN {p()} ELSE {p()} END",
            lambda: f"coalesce({p()}, {self.one(['TRUE', 'FALSE'])})",
            lambda: f"if({p()}, {p()}, {p()})",
            *([] if self.spark else [lambda: f"xor(({p()})::INT, ({p()})::INT) = 1"]),
        ])  # fmt: skip

    def atom(self, depth: int) -> str:
        makers = [self.comparison] * 8 + [self.membership] * 4 + [self.between] * 3 + [self.null_test] * 3
        makers += [self.pattern] * 4 + [self.truth] * 2 + [self.pair]
        return self.random.choice(makers)(depth)

    def operands(self) -> str:
        """A family to compare in, mostly one that the table has a column of."""
        present = [family if family not in NUMBERS else "number" for family in self.by_family]
        return self.random.choice(present) if self.chance(0.9) else self.one(["number", "string", "date", "timestamp"])

    def sides(self, depth: int) -> tuple[str, str]:
        family = self.operands()
        field = self.field(NUMBERS if family == "number" else [family])
        if field is not None and self.chance(0.45):
            other = self.number() if family == "number" and self.chance(0.4) else self.constant(field.kind, field)
            left, right = field.sql, other
        elif family in TIMES and self.chance(0.3):
            left, right = self.expression(family, depth), self.expression(self.one(TIMES), depth)
        elif field is not None and self.chance(0.6):
            left = self.expression(family, depth + 1)
            right = self.number() if family == "number" else self.constant(field.kind, field)
        else:
            left, right = self.expression(family, depth + 1), self.expression(family, depth)
        return (right, left) if self.chance(0.2) else (left, right)

    def comparison(self, depth: int) -> str:
        left, right = self.sides(depth)
        operators = (*COMPARISONS[:6], "<=>") if self.spark else COMPARISONS
        return f"{left} {self.one(operators)} {right}"

    def membership(self, depth: int) -> str:
        left, right = self.sides(depth)
        family = self.operands()
        field = self.field(NUMBERS if family == "number" else [family])
        if field is None:
            return f"{left} IN ({right})"
        length = self.random.choice([1, 2, 3, 5, 30, 30, 30, 200] if self.chance(0.1) else [1, 2, 3, 5, 12])
        listed = [self.constant(field.kind, field) for _ in range(length)]
        subject = field.sql if self.chance(0.7) else self.expression(family, depth + 1)
        return f"{subject} {self.one(['IN', 'IN', 'NOT IN'])} ({', '.join(listed)})"

    def between(self, depth: int) -> str:
        left, right = self.sides(depth)
        if self.chance(0.5):
            return f"{left} {self.one(['', 'NOT '])}BETWEEN {right} AND {right}"
        field = self.field([family for family in self.by_family if family != "boolean"])
        if field is None:
            return f"{left} < {right}"
        low, high = self.constant(field.kind, field), self.constant(field.kind, field)
        symmetric = "SYMMETRIC " if self.chance(0.1) and not self.spark else ""
        return f"{field.sql} {self.one(['', 'NOT '])}BETWEEN {symmetric}{low} AND {high}"

    def null_test(self, depth: int) -> str:
        subject = (
            self.random.choice(self.table.fields).sql
            if self.chance(0.6)
            else self.expression(self.operands(), depth + 1)
        )
        return f"{subject} IS {self.one(['', 'NOT '])}NULL"

    def pattern(self, depth: int) -> str:
        subject, pattern = self.string(depth), self.one(PATTERNS)
        if self.chance(0.3):
            pattern = self.random.choice([v for v in KINDS["s"].pool if "\x00" not in v]).replace("'", "''")[
                :3
            ] + self.one(["%", ""])
        escape = " ESCAPE '" + self.one(["\\", "!", "_"]) + "'" if self.chance(0.15) else ""
        pattern = pattern.replace("\\", "!") if "!" in escape else pattern
        if self.spark:
            pattern = pattern.replace("\\", "\\\\").replace("a!", "a")
            escape = ""
        choices = [
            lambda: f"{subject} LIKE '{pattern}'{escape}",
            lambda: f"{subject} NOT LIKE '{pattern}'{escape}",
            lambda: f"{subject} ILIKE '{pattern}'",
            lambda: f"{'startswith' if self.spark else 'starts_with'}({subject}, {self.constant(KINDS['s'])})",
            lambda: (
                f"{subject} RLIKE '{self.one(REGULAR[:4])}'"
                if self.spark
                else f"regexp_matches({subject}, '{self.one(REGULAR)}')"
            ),
        ]
        if not self.spark:
            choices += [
                lambda: f"{subject} ^@ '{self.one(['a', 'ab', '', 'é'])}'",
                lambda: f"{subject} SIMILAR TO '{self.one(['a.*', 'ab', '(a|b).*', 'a|b'])}'",
                lambda: f"{self.one(['prefix', 'suffix', 'contains'])}({subject}, '{self.one(['a', 'b', ''])}')",
            ]
        return self.first_of(choices)

    def truth(self, depth: int) -> str:
        flag = self.leaf(["boolean"], lambda: self.comparison(0))
        return self.first_of([
            lambda: flag if flag.isidentifier() else f"({flag})",
            lambda: f"NOT ({flag})",
            lambda: f"({flag}) IS {self.one(TRUTHS[: 4 if self.spark else 6])}",
            lambda: f"({flag}) = {self.one(['TRUE', 'FALSE'])}",
        ])  # fmt: skip

    def pair(self, depth: int) -> str:
        one, two = (self.random.choice(self.table.fields) for _ in range(2))
        rows = [
            f"({self.constant(one.kind, one)}, {self.constant(two.kind, two)})"
            for _ in range(self.random.choice([1, 2, 4, 8]))
        ]
        if len(rows) > 2 and self.chance(0.5):
            legs = [f"({one.sql}, {two.sql}) = {row}" for row in rows]
            return f"({' OR '.join(legs)})" if self.chance(0.7) else f"(NOT ({') AND NOT ('.join(legs)}))"
        if self.chance(0.5):
            return f"({one.sql}, {two.sql}) IN ({', '.join(rows)})"
        return f"({one.sql}, {two.sql}) {self.one(COMPARISONS[:6])} {rows[0]}"
