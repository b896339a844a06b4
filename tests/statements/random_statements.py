"""Random statements of every kind over tables ``t0`` to ``t3``, a view ``v`` and some macros.

A column has a kind: n(umber), x (a double), t(ext), d(ate), s (a struct of a number ``a`` and a text ``c``). Whatever a
statement leaves open (the rows of a LIMIT, a window's ties) is ordered by all columns; some statements are in error.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

TABLES = ("t0", "t1", "t2", "t3")
COLUMNS = {"key": "n", "val": "n", "txt": "t", "day": "d", "x": "x", "s": "s", "part": "n", '"s.a"': "n"}
"""The columns of the tables as a statement writes them, one of them like a field of another, and their kinds."""
MACROS = [
    "CREATE MACRO twice(n) AS n * 2",
    "CREATE MACRO small(n) AS n < 10",
    "CREATE MACRO numbers(n) AS TABLE SELECT range::INTEGER AS key, 's0' || range AS txt FROM range(n)",
    "CREATE VIEW v AS SELECT * FROM (VALUES (3, 's03'), (11, ''), (NULL, 's1'), (25, NULL)) w(key, txt)",
]
_JOINS = ["JOIN", "JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"]
_PATTERNS = [
    *("{t} SIMILAR TO '.*5'", "{t} SIMILAR TO 's1.*'", "{t} NOT SIMILAR TO 's.*'", "{t} SIMILAR TO '(s0|é).*'"),
    *("regexp_full_match({t}, 's[12].')", "regexp_full_match({t}, '.*t.*')", "regexp_matches({t}, '^s0')"),
    *("{t} LIKE '%1%'", "{t} ILIKE 'S0%'", "{t} GLOB 's[0-2]*'", "{t} LIKE 's\\_%' ESCAPE '\\'", "{t} NOT LIKE 's%'"),
    *("{t} = 'it''s'", "{t} < 'it''t'", "{t} = 's\\x31'", "{t} LIKE 's\\x%'", "{t} > 'é'", "{t} = E'a\\nb'"),
    *("{t} SIMILAR TO 's\\\\x.*'", "{t} ~ 'é.'", "{t} IN ('it''s', 's\\x31', NULL)", "{t} BETWEEN '' AND 'it''s'"),
]
_DOUBLES = ["= 0.0", "> 1e6", "= 'NaN'::DOUBLE", "< 'inf'", "> '-inf'", "<= 1e300", "= 'infinity'"]
_DAYS = [
    *(
        "< 'infinity'",
        "> DATE '-infinity'",
        "< TIMESTAMP '2024-01-09 12:00:00'",
        "+ INTERVAL 1 DAY > DATE '2024-01-20'",
    ),
    *(
        "< DATE '10000-01-01'",
        ">= DATE '0044-03-15 (BC)'",
        "= TIMESTAMP '2024-01-09 00:00:00'",
        "BETWEEN '2024-01-03' AND 'infinity'",
    ),
]
_SETS = ["UNION", "UNION ALL", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"]


@dataclass(frozen=True, slots=True)
class Statement:
    """``ordered``: the order of its rows is given, too."""

    text: str
    params: Mapping[str, Any] | Sequence[Any] | None
    ordered: bool


@dataclass(frozen=True, slots=True)
class Column:
    """A column that a query sees or gives: its table's alias, or ""."""

    alias: str
    name: str
    kind: str

    @property
    def sql(self) -> str:
        return f"{self.alias}.{self.name}" if self.alias else self.name


def random_statement(random: Random) -> Statement:
    """One statement, with its parameters."""
    return _Grammar(random).statement()


class _Grammar:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._aliases = 0
        self._values: list[Any] = []
        self._tables = {name: list(COLUMNS.items()) for name in TABLES}
        # Its column x was added later.
        self._tables["t1"].sort(key=lambda pair: pair[0] == "x")
        self._with_parameters = random.random() < 0.2

    # --- choices ---

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _one(self, options: Sequence[Any]) -> Any:
        return self._random.choice(options)

    def _alias(self) -> str:
        self._aliases += 1
        return f"q{self._aliases}"

    # --- statements ---

    def statement(self) -> Statement:
        text = self._with() if self._chance(0.25) else ""
        body, _ = self._query(2, [], top=True)
        text += body
        if ordered := self._chance(0.35) and not re.search(r"\b(LIMIT|ORDER BY)\b[^()]*$", body):
            text += " ORDER BY ALL" + self._one(["", " DESC", " NULLS FIRST", " DESC NULLS LAST"])
            if self._chance(0.6):
                text += f" LIMIT {self._one([0, 1, 5, 30])}" + self._one(["", "", " OFFSET 3"])
        if self._chance(0.03):
            text = re.sub(r"\b(key|val|txt)\b", self._one(["nothing", "s", '"KEY"', "txt.key"]), text, count=1)
        if not ordered and self._chance(0.06):
            text = f"SELECT count(*) AS n FROM ({text} LIMIT {self._one([1, 4, 40])})"
        text, params = self._bound(text)
        return Statement(text, params, ordered)

    def _bound(self, text: str) -> tuple[str, Mapping[str, Any] | Sequence[Any] | None]:
        """The text with its parameters in one of DuckDB's three styles."""
        numbers = [int(one) for one in re.findall(r"\$p(\d+)", text)]
        if not numbers:
            return text, None
        style = self._random.randrange(3)
        if style == 0:
            return text, {f"p{number}": self._values[number] for number in numbers}
        if style == 1:
            return re.sub(r"\$p\d+", "?", text), [self._values[number] for number in numbers]
        places = list(dict.fromkeys(numbers))
        text = re.sub(r"\$p(\d+)", lambda found: f"${places.index(int(found[1])) + 1}", text)
        return text, [self._values[number] for number in places]

    def _with(self) -> str:
        """CTEs, some of them by the name of a table."""
        kind = self._random.random()
        if kind < 0.15:
            table = self._one(list(TABLES))
            self._tables["r"] = [("n", "n")]
            step = self._one([f"SELECT n + 1 FROM r JOIN {table} ON {table}.key = r.n", "SELECT n + 2 FROM r"])
            return (
                f"WITH RECURSIVE r(n) AS (SELECT key FROM {table} WHERE key = {self._random.randrange(9)} "
                f"UNION {step} WHERE n < 20) "
            )
        hint = self._one(["", "", "NOT MATERIALIZED ", "MATERIALIZED "])
        body, columns = self._query(1, [])
        name = self._one(["y", "y", *TABLES])
        names = ""
        # A set operation over the name would be recursive, and might never end.
        recursive = "RECURSIVE " if self._chance(0.2) and not re.search(rf"\b{name}\b", body) else ""
        if self._chance(0.15):
            body = f"({body})"
        elif self._chance(0.1):
            body = f"({body}) UNION ALL ({body})"
        if self._chance(0.4):
            fresh = self._names(len(columns))
            names, columns = f"({', '.join(fresh)})", list(zip(fresh, [kind for _, kind in columns], strict=True))
        self._tables[name] = columns
        spelled = self._one([name, name, name.upper(), f'"{name}"', f"'{name}'"])
        return f"WITH {recursive}{spelled}{names} AS {hint}({body}) "

    def _names(self, count: int) -> list[str]:
        """Names for columns: those of the tables in another order, and new ones."""
        known = list(COLUMNS)
        self._random.shuffle(known)
        return [known[at] if at < len(known) and self._chance(0.7) else f"c{at}" for at in range(count)]

    # --- queries: the text, and the names and kinds of its columns ---

    def _query(self, depth: int, outer: list[Column], top: bool = False) -> tuple[str, list[tuple[str, str]]]:
        if depth and self._chance(0.15):
            return self._set_operation(depth)
        if depth and self._chance(0.15):
            return self._filtered_above()
        if depth and self._chance(0.12):
            return self._one([self._null_keys, self._filtered_star, self._totals])()
        source, visible = self._source(depth, outer)
        where = self._where(depth, visible, outer)
        form = self._random.random()
        if form < 0.22:
            return self._grouped(source + where, depth, visible, outer)
        if form < 0.3:
            chosen = self._one([one for one in visible if one.kind != "s"] or visible)
            others = ", ".join(one.sql for one in visible)
            return f"SELECT DISTINCT ON ({chosen.sql}) {others} {source}{where} ORDER BY {chosen.sql}, {others}", [
                (one.name, one.kind) for one in visible
            ]
        if form < 0.4:
            return self._windowed(source + where, visible)
        items, columns = self._items(depth, visible, outer, top)
        distinct = "DISTINCT " if self._chance(0.15) else ""
        text = f"SELECT {distinct}{items} {source}{where}"
        if not top and self._chance(0.12):
            text += f" ORDER BY ALL LIMIT {self._one([1, 10, 40])}"
        return text, columns

    def _filtered_above(self) -> tuple[str, list[tuple[str, str]]]:
        """Conditions on rows that depend on other rows of their table, which these conditions must not prune."""
        # The order is by all columns, of which two may not have one name.
        tables = [name for name, columns in self._tables.items() if len(dict(columns)) == len(columns)]
        name, alias, outer = self._one(tables), self._alias(), self._alias()
        columns = list(dict(self._tables[name]).items())
        visible = [Column(alias, *pair) for pair in columns]
        chosen, order = self._one(visible), ", ".join(one.sql for one in visible)
        source, added = f"FROM {name} {alias}", []
        form = self._one(["limit", "limit", "window", "distinct", "grouped", "padded", "padded"])
        if form == "limit":
            first = f"{chosen.sql}{self._one(['', ' DESC'])}"
            limit, offset = self._one([9, 30]), self._one([0, 5])
            body = f"SELECT * {source} ORDER BY {first}, {order} LIMIT {limit} OFFSET {offset}"
        elif form == "window":
            function = self._one(["row_number()", "count(*)", f"lag({chosen.sql})", f"max({chosen.sql})"])
            body = f"SELECT *, {function} OVER (ORDER BY {order}) AS w {source}"
            added = [("w", "n" if "(" + chosen.sql not in function else chosen.kind)]
        elif form == "distinct":
            body = f"SELECT DISTINCT ON ({chosen.sql}) * {source} ORDER BY {chosen.sql}, {order}"
        elif form == "grouped":
            least = ", ".join(f"{self._one(['min', 'max'])}({one.sql}) AS {one.name}" for one in visible)
            body = f"SELECT {least} {source} GROUP BY {chosen.sql}"
        else:
            other = Column(self._alias(), "key", "n")
            body = f"SELECT {alias}.* FROM t0 {other.alias} LEFT JOIN {name} {alias} ON {self._on([other], visible)}"
        columns = [*columns, *added]
        given = [Column(outer, *pair) for pair in columns]
        tested = self._one([one for one in given if one.kind in "nd"] or given)
        value = self._literal(tested.kind)
        tests = [f"= {value}", f"< {value}", f"> {value}", "IS NULL", f"IS DISTINCT FROM {value}"]
        return f"SELECT * FROM ({body}) {outer} WHERE {tested.sql} {self._one(tests)}", columns

    def _totals(self) -> tuple[str, list[tuple[str, str]]]:
        """Aggregates of one table under simple conditions, which the index may answer for whole files."""
        columns = [Column("", *pair) for pair in COLUMNS.items() if pair[1] in "nd"]
        shown, tested = self._one(columns), self._one(columns)
        text = f"SELECT count(*) AS n, min({shown.name}) AS least, max({shown.name}) AS {shown.name} "
        text += f"FROM {self._one(list(TABLES))}"
        if self._chance(0.8):
            text += f" WHERE {tested.name} {self._one(['>=', '<', '>', '<>'])} {self._literal(tested.kind)}"
        return text, [("n", "n"), ("least", shown.kind), (shown.name, shown.kind)]

    def _null_keys(self) -> tuple[str, list[tuple[str, str]]]:
        """A table's keys beside those of rows that have NULL where the table may not."""
        name, alias = self._one(list(TABLES)), self._alias()
        other, columns = self._row_maker()
        visible = [Column(alias, *pair) for pair in dict(self._tables[name]).items()]
        pairs = [(a, b) for a in visible for b in columns if a.kind == b.kind and a.kind in "ntd"]
        a, b = self._one(
            [pair for pair in pairs if pair[0].name == pair[1].name] or pairs or [(visible[0], columns[0])]
        )
        form = self._one(["JOIN", "SEMI JOIN", "INTERSECT", "EXCEPT"])
        if form.endswith("JOIN"):
            text = f"SELECT {a.sql} FROM {name} {alias} {form} {other} ON {a.sql} IS NOT DISTINCT FROM {b.sql}"
        else:
            text = f"SELECT {a.sql} FROM {name} {alias} {form} SELECT {b.sql} FROM {other}"
        return text, [(a.name, a.kind)]

    def _filtered_star(self) -> tuple[str, list[tuple[str, str]]]:
        """A condition on a column that a star by a pattern chooses, under another name."""
        name, alias = self._one(list(TABLES)), self._alias()
        stars, columns = self._star_pattern([Column("", *pair) for pair in dict(self._tables[name]).items()])
        fresh = [(f"c{at}", kind) for at, (_, kind) in enumerate(columns)]
        tested = self._one(fresh or [("c0", "n")])
        text = f"SELECT * FROM (SELECT {stars} FROM {name}) AS {alias}({', '.join(one for one, _ in fresh) or 'c0'})"
        return f"{text} WHERE {tested[0]} {self._one(['=', '<', '>'])} {self._literal(tested[1])}", fresh

    def _set_operation(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        kinds = [self._one("nntd") for _ in range(self._random.randrange(1, 4))]
        names = self._names(len(kinds))
        sides = []
        for _ in range(self._one([2, 2, 3])):
            source, visible = self._source(depth - 1, [])
            items = ", ".join(f"{self._term(k, visible)} AS {n}" for k, n in zip(kinds, names, strict=True))
            where = self._where(depth - 1, visible, [])
            groups = ""
            if self._chance(0.2):
                keys = ", ".join(str(at + 1) for at in range(len(names)))
                groups = f" GROUP BY {self._one(['ROLLUP', 'CUBE'])} ({keys})"
            sides.append(f"SELECT {items} {source}{where}{groups}")
        if self._chance(0.15):
            return " UNION ALL BY NAME ".join(sides), list(zip(names, kinds, strict=True))
        text = sides[0]
        for side in sides[1:]:
            text = f"{text} {self._one(_SETS)} {side}"
        return text, list(zip(names, kinds, strict=True))

    def _grouped(
        self, rest: str, depth: int, visible: list[Column], outer: list[Column]
    ) -> tuple[str, list[tuple[str, str]]]:
        keys = [self._term(self._one("nntdx"), visible) for _ in range(self._one([0, 1, 1, 2]))]
        numbers = [one.sql for one in visible if one.kind == "n"] or ["1"]
        anything = [one.sql for one in visible if one.kind != "s"] or ["1"]
        options = [
            "count(*)",
            f"count({self._one(anything)})",
            f"sum({self._one(numbers)})",
            f"min({self._one(anything)})",
            f"max({self._one(anything)})",
            f"count(DISTINCT {self._one(anything)})",
            f"count(*) FILTER (WHERE {self._condition(0, visible, outer)})",
            f"bool_or({self._condition(0, visible, outer)})",
            f"max({self._one(numbers)}) + 1",
        ]
        aggregates = [self._one(options) for _ in range(self._one([1, 1, 2, 3]))]
        if depth < 2:
            items = [f"{text} AS g{at}" for at, text in enumerate([*keys, *aggregates])]
        else:
            items = [*keys, *aggregates]
        text = f"SELECT {', '.join(items)} {rest}"
        if keys:
            listed = ", ".join(keys)
            sets = ", ".join(f"({key})" for key in keys)
            forms = [listed, listed, "ALL", f"ROLLUP ({listed})", f"CUBE ({listed})", f"GROUPING SETS ({sets}, ())"]
            text += f" GROUP BY {self._one(forms)}"
            if self._chance(0.2):
                text += f" HAVING count(*) {self._one(['> 1', '= 1', '< 4'])}"
        return text, [(f"g{at}", "?") for at in range(len(items))]

    def _windowed(self, rest: str, visible: list[Column]) -> tuple[str, list[tuple[str, str]]]:
        order = ", ".join(one.sql for one in visible)
        part = f"PARTITION BY {self._one(visible).sql} " if self._chance(0.6) else ""
        numbers = [one.sql for one in visible if one.kind == "n"] or ["1"]
        function = self._one(["row_number()", "rank()", f"lag({self._one(numbers)})", f"sum({self._one(numbers)})"])
        window = f"{function} OVER ({part}ORDER BY {order})"
        if self._chance(0.5):
            shown = self._one(visible)
            return f"SELECT {shown.sql}, {window} AS w {rest}", [(shown.name, shown.kind), ("w", "n")]
        test = self._one(["= 1", "<= 2", "> 1"])
        columns = [(one.name, one.kind) for one in visible]
        return f"SELECT {order} {rest} QUALIFY {window} {test}", columns

    def _items(
        self, depth: int, visible: list[Column], outer: list[Column], top: bool
    ) -> tuple[str, list[tuple[str, str]]]:
        """What a query selects: stars, columns, terms with a name and without."""
        everything = [(one.name, one.kind) for one in visible]
        form = self._random.random()
        if form < 0.2:
            return "*", everything
        if form < 0.3:
            alias = self._one(visible).alias
            if alias:
                return f"{alias}.*", [(one.name, one.kind) for one in visible if one.alias == alias]
        if form < 0.36:
            name = self._one(visible).name
            return f"* EXCLUDE ({name})", [one for one in everything if one[0] != name] or everything
        if form < 0.44:
            one = self._one(visible)
            return f"* REPLACE ({self._term(one.kind, visible)} AS {one.name})", everything
        if form < 0.5:
            return self._star_pattern(visible)
        matched = [pair for pair in everything if pair[0] in ("key", "txt", "day")]
        if form < 0.54 and matched:
            named = "COLUMNS(lambda c: c IN ('key', 'txt', 'day'))"
            return self._one(["COLUMNS('^(key|txt|day)$')", named]), matched
        items, columns = [], []
        for at in range(self._random.randrange(1, 5)):
            kind = self._one("nnntdxs")
            term = self._term(kind, visible)
            if self._chance(0.1):
                kind, term = "n", self._scalar(depth, visible)
            named = self._chance(0.4) or term.endswith('"') or (not top and not term.split(".")[-1].isidentifier())
            name = self._one([*COLUMNS, f"c{at}"]) if named else term.split(".")[-1]
            items.append(f"{term} AS {name}" if named else term)
            columns.append((name, kind))
        return ", ".join(items), columns

    def _star_pattern(self, visible: list[Column]) -> tuple[str, list[tuple[str, str]]]:
        """A star with a condition on the names of columns.

        No pattern looks for a letter anywhere: DuckDB asks them of a FULL JOIN's merged column by its expression, which
        has the catalog in it: ``COALESCE(memory.main.t0.key, t1.key)``, but ``COALESCE(t0.key, t1.key)`` where t0 is no
        table of the catalog.
        """
        operator, pattern, matches = self._one(
            [
                ("LIKE", "_a%", ".a.*"),
                ("LIKE", "key", "key"),
                ("LIKE", "_a_", ".a."),
                ("ILIKE", "%Y", ".*y"),
                ("SIMILAR TO", "key|val|txt", "key|val|txt"),
                ("SIMILAR TO", "[kv].*", "[kv].*"),
                ("GLOB", "[kvt]*", "[kvt].*"),
            ]
        )
        negated = operator != "GLOB" and self._chance(0.6)
        columns = [(c.name, c.kind) for c in visible if negated != bool(re.fullmatch(matches, c.name.strip('"')))]
        if not columns:  # DuckDB refuses a star that matches nothing
            return "*", [(c.name, c.kind) for c in visible]
        return f"* {'NOT ' if negated else ''}{operator} '{pattern}'", columns

    # --- FROM ---

    def _row_maker(self) -> tuple[str, list[Column]]:
        """A table whose rows are made of a table's: from structs, whole rows or grouping sets, with NULL among them."""
        name, alias, outer = self._one(list(TABLES)), self._alias(), self._alias()
        columns = dict(self._tables[name])
        keys = [key for key, kind in columns.items() if kind in "ntd"] or list(columns)
        key = "key" if "key" in keys and self._chance(0.6) else self._one(keys)
        test = f"{alias}.{self._one(keys)} IS NOT NULL"
        order = ", ".join(f"{alias}.{each}" for each in columns)
        # Only keys above some number: those of a few files, without NULL.
        row = self._one([f"CASE WHEN {test} THEN {alias} END", f"lag({alias}) OVER (ORDER BY {order})"])
        sets = self._one(["ROLLUP", "CUBE"])
        where = f" WHERE {test}" + (f" AND {alias}.key > {self._random.randrange(30)}" if "key" in columns else "")
        if self._chance(0.4):
            rest = f"FROM {name} {alias}{where} GROUP BY {sets} ({alias}.{key})"
            if self._chance(0.6):
                return f"(SELECT {alias}.{key} {rest}) {outer}", [Column(outer, key, columns[key])]
            counted = f"(SELECT {alias}.{key}, count(*) AS n {rest}) {outer}"
            return counted, [Column(outer, key, columns[key]), Column(outer, "n", "n")]
        if self._chance(0.3) and columns.get("s") == "s":
            return f"(SELECT unnest({alias}.s) FROM {name} {alias}{where}) {outer}", [
                Column(outer, "a", "n"),
                Column(outer, "c", "t"),
            ]
        text = f"SELECT unnest({row}) FROM {name} {alias}{where}"
        return f"({text}) {outer}", [Column(outer, *pair) for pair in columns.items()]

    def _source(self, depth: int, outer: list[Column]) -> tuple[str, list[Column]]:
        text, visible = self._relation(depth, outer)
        text = f"FROM {text}"
        for _ in range(self._one([0, 0, 0, 1, 1, 2]) if depth else 0):
            other, columns = self._relation(depth - 1, outer)
            shared = [one.name for one in visible if one.name in {c.name for c in columns} and one.kind in "ntd"]
            kind, form = self._one(_JOINS), self._random.random()
            if form < 0.12 and shared:
                text += f" {kind} {other} USING ({self._one(shared)})"
            elif form < 0.16:
                text += (
                    f" NATURAL {kind.removesuffix(' JOIN') if kind.startswith(('LEFT', 'FULL')) else ''} JOIN {other}"
                )
            elif form < 0.2 and len(text) < 400:
                body, found = self._query(0, visible)
                alias = self._alias()
                text += f", LATERAL ({body}) {alias}"
                columns, kind = [Column(alias, *pair) for pair in dict(found).items()], "JOIN"
            elif form < 0.25:
                text += f", {other}"
                kind = "JOIN"
            else:
                text += f" {kind} {other} ON {self._on(visible, columns)}"
                if self._chance(0.3):
                    text += f" AND {self._condition(0, [*visible, *columns], [])}"
            visible = visible if kind.startswith(("SEMI", "ANTI")) else [*visible, *columns]
        return text, visible

    def _on(self, left: list[Column], right: list[Column]) -> str:
        pairs = [(a, b) for a in left for b in right if a.kind == b.kind and a.kind in "ntdx"]
        if not pairs:
            return "TRUE"
        same = [pair for pair in pairs if pair[0].name == pair[1].name]
        a, b = self._one(same if same and self._chance(0.7) else pairs)
        form = self._random.random()
        if form < 0.14:
            return f"{a.sql} IS NOT DISTINCT FROM {b.sql}"
        if form < 0.19 and a.kind == "n":
            return f"{a.sql} + 1 = {b.sql}"
        if form < 0.24:
            c, d = self._one(pairs)
            return f"({a.sql} = {b.sql} OR {c.sql} = {d.sql})"
        if form < 0.3:
            c, d = self._one(pairs)
            return f"{a.sql} = {b.sql} AND {c.sql} {self._one(['<', '<=', '<>'])} {d.sql}"
        return f"{a.sql} = {b.sql}"

    def _relation(self, depth: int, outer: list[Column]) -> tuple[str, list[Column]]:
        form = self._random.random()
        if depth and form < 0.25:
            alias = self._alias()
            body, columns = self._query(depth - 1, [])
            return f"({body}) {alias}", [Column(alias, *pair) for pair in dict(columns).items()]
        if depth and form < 0.28:
            return self._row_maker()
        if form < 0.31:
            alias = self._alias()
            other = self._one(["v", "numbers(12)", "(VALUES (3, 's03'), (NULL, ''))"])
            return f"{other} {alias}(key, txt)", [Column(alias, "key", "n"), Column(alias, "txt", "t")]
        name = self._one(list(self._tables))
        columns = self._tables[name]
        if self._chance(0.05):
            alias = self._alias()
            text = self._one([f"{alias} : {name}", f"(TABLE {name}) {alias}", f"(FROM {name}) AS {alias}"])
            return text, [Column(alias, *pair) for pair in dict(columns).items()]
        if self._chance(0.2):
            return name, [Column(self._one(["", name]), *pair) for pair in dict(columns).items()]
        alias = self._alias()
        if self._chance(0.15):
            # Of two columns of one name DuckDB renames one where a query gives them, and raises where a file does.
            fresh = self._names(len(columns))[: self._random.randrange(1, len(columns) + 1)]
            rest = columns[len(fresh) :]
            if len({*fresh, *(known for known, _ in rest)}) == len(fresh) + len({known for known, _ in rest}):
                columns = [*zip(fresh, [kind for _, kind in columns], strict=False), *rest]
                visible = [Column(alias, *pair) for pair in dict(columns).items()]
                return f"{name} AS {alias}({', '.join(fresh)})", visible
        return f"{name} {alias}", [Column(alias, *pair) for pair in dict(columns).items()]

    # --- conditions and terms ---

    def _where(self, depth: int, visible: list[Column], outer: list[Column]) -> str:
        conditions = [self._condition(depth, visible, outer) for _ in range(self._one([0, 1, 1, 1, 2]))]
        if outer and self._chance(0.7):
            conditions.append(self._on(outer, visible))
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def _condition(self, depth: int, visible: list[Column], outer: list[Column]) -> str:
        form = self._random.random()
        if depth and form < 0.25:
            return self._subquery(depth, visible)
        if form < 0.32:
            return f"NOT ({self._condition(0, visible, outer)})"
        if form < 0.42:
            return f"({self._condition(depth, visible, outer)} OR {self._condition(0, visible, outer)})"
        kind = self._one("nnnnttdxx")
        term = self._term(kind, visible)
        if self._chance(0.12):
            return f"{term} IS {self._one(['', 'NOT '])}NULL"
        if kind == "t":
            tests = [f"= {self._literal('t')}", f"< {self._literal('t')}", "LIKE 's1%'", "= ''", "IN ('', 's05')"]
            return f"{term} {self._one(tests)}" if self._chance(0.5) else self._one(_PATTERNS).replace("{t}", term)
        if kind == "d" and self._chance(0.2):
            return f"{term} {self._one(_DAYS)}"
        if kind == "n" and self._chance(0.2):
            return self._one([f"{term} % 7 = 3", f"small({term})", f"twice({term}) = 12", f"{term} IN (3, 7, NULL)"])
        if kind == "x" and self._chance(0.3):
            return f"{term} {self._one(_DOUBLES)}"
        operator = self._one(["=", "=", "<", ">", "<=", ">=", "<>", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
        if self._chance(0.15):
            return f"{term} BETWEEN {self._literal(kind)} AND {self._literal(kind)}"
        return f"{term} {operator} {self._literal(kind)}"

    def _subquery(self, depth: int, visible: list[Column]) -> str:
        number = self._term("n", visible)
        source, inner = self._source(depth - 1, visible)
        where = self._where(0, inner, visible if self._chance(0.6) else [])
        body = f"SELECT {self._term('n', inner)} {source}{where}"
        return self._one(
            [
                f"{number} IN ({body})",
                f"{number} IN ({body})",
                f"{number} NOT IN ({body})",
                f"EXISTS ({body})",
                f"NOT EXISTS ({body})",
                f"{number} {self._one(['=', '<', '>='])} {self._one(['ANY', 'ALL'])} ({body})",
                f"{number} <= {self._scalar(depth, visible)}",
                f"{self._term('x', visible)} {self._one(['=', '>=', 'IN'])} (SELECT max(x) FROM {self._one(TABLES)})",
            ]
        )

    def _scalar(self, depth: int, visible: list[Column]) -> str:
        source, inner = self._source(0, visible)
        where = self._where(0, inner, visible if self._chance(0.5) else [])
        function = self._one(["max", "max", "min", "count", "sum"])
        return f"(SELECT {function}({self._term('n', inner)}) {source}{where})"

    def _term(self, kind: str, visible: list[Column]) -> str:
        structs = [one.sql for one in visible if one.kind == "s"]
        if structs and kind in "nt" and self._chance(0.12):
            return f"{self._one(structs)}.{'a' if kind == 'n' else 'c'}"
        columns = [one for one in visible if one.kind == kind]
        if not columns:
            return self._literal(kind)
        column = self._one(columns)
        if self._chance(0.06 if len({one.alias for one in visible}) == 1 else 0.01):
            return column.name
        if kind == "n" and self._chance(0.15):
            return self._one([f"{column.sql} + 1", f"twice({column.sql})", f"abs({column.sql})", f"-{column.sql}"])
        if kind == "t" and self._chance(0.1):
            return self._one([f"upper({column.sql})", f"{column.sql} || 'x'"])
        return column.sql

    def _literal(self, kind: str) -> str:
        random = self._random
        if kind == "s":
            return "{'a': 1, 'c': 's01'}"
        if kind not in "ntdx":
            return "NULL"
        number = random.randrange(-2, 62)
        day = datetime.date(2024, 1, 1) + datetime.timedelta(days=number // 2)
        if self._with_parameters and self._chance(0.4):
            value = {"n": number, "t": f"s{number:02}", "d": day, "x": number / 4}[kind]
            self._values.append(value)
            return f"$p{len(self._values) - 1}"
        return {"n": str(number), "t": f"'s{number:02}'", "d": f"DATE '{day}'", "x": f"{number / 4}"}[kind]
