"""Random statements with joins of all kinds, over tables of four columns: integers key and val, txt and day."""

from __future__ import annotations

from random import Random

_DERIVED = [
    "(SELECT * FROM {t} WHERE val < 20) {a}",
    "(SELECT key, max(val) AS val, min(txt) AS txt, max(day) AS day FROM {t} GROUP BY key) {a}",
    "(SELECT DISTINCT key, val, txt, day FROM {t}) {a}",
    "(SELECT val AS key, key AS val, txt, day FROM {t} WHERE val > 40) {a}",
    "(SELECT key + 1 AS key, val, txt, day FROM {t}) {a}",
    "(SELECT * REPLACE (key + 1 AS key) FROM {t}) {a}",
    "(SELECT * FROM {t} ORDER BY key, val, txt, day LIMIT 20) {a}",
    "(SELECT * FROM {t} UNION ALL SELECT * FROM {u}) {a}",
    "(SELECT *, row_number() OVER (PARTITION BY key ORDER BY val, txt, day) AS r FROM {t}) {a}",
    "(SELECT p.key, q.val, p.txt, q.day FROM {t} p {join} {u} q ON p.key = q.key) {a}",
    "(SELECT * FROM {t} p {half} JOIN {u} q ON p.val = q.key AND q.val < 30) {a}",
    "(SELECT key, val, txt, day FROM {t} p {join} (SELECT key, val AS w FROM {u}) q USING (key)) {a}",
    "(SELECT key, sum(val)::INTEGER AS val, max(txt) AS txt, max(day) AS day FROM {t} GROUP BY ROLLUP (key)) {a}",
    "(SELECT DISTINCT ON (val) key, val, txt, day FROM {t} ORDER BY val, key, txt, day) {a}",
]
_ON = [
    *3 * ["{a}.key = {b}.key"],
    "{a}.val = {b}.key",
    "{a}.txt = {b}.txt",
    "{a}.day = {b}.day",
    "{a}.key IS NOT DISTINCT FROM {b}.key",
    "{a}.key + 1 = {b}.key",
    "{a}.key = {b}.key AND {a}.val <= {b}.val",
    "{a}.key = {b}.key AND {a}.day = {b}.day",
    "{a}.key = {b}.key OR {a}.val = {b}.val",
]
_SUBQUERIES = [
    *2 * ["{a}.key IN (SELECT s.key FROM {s} WHERE {c})"],
    *2 * ["EXISTS (SELECT 1 FROM {s} WHERE s.key = {a}.key AND {c})"],
    "{a}.key NOT IN (SELECT s.key FROM {s} WHERE {c})",
    "EXISTS (SELECT 1 FROM {t} s WHERE s.key = {a}.key AND s.val <> {a}.val AND {c})",
    "NOT EXISTS (SELECT 1 FROM {s} WHERE s.val = {a}.key AND {c})",
    "EXISTS (SELECT 1 FROM {t} s JOIN {u} q ON s.key = q.key WHERE q.val = {a}.val AND s.day = {a}.day AND {c})",
    "EXISTS (SELECT 1 FROM {t} s WHERE s.val + 1 = {a}.key AND {c})",
    "{a}.val <= (SELECT max(s.val) FROM {t} s WHERE s.key = {a}.key)",
    "{a}.val < (SELECT count(*) FROM {t} s WHERE s.val = {a}.key AND s.key = {a}.val)",
    "{a}.val > (SELECT avg(s.val) FROM {t} s JOIN {u} q ON s.key = q.val WHERE q.key = {a}.key AND {c})",
    "{a}.key > (SELECT min(q.v) FROM {t} s, LATERAL (SELECT max(val) AS v FROM {u} r WHERE r.key = s.key) q WHERE {c})",
    "({a}.key, {a}.day) IN (SELECT s.key, s.day FROM {t} s WHERE {c})",
    "({a}.key IN (SELECT s.key FROM {t} s WHERE {c}) OR {a}.val = 3)",
    "{a}.key = ANY (SELECT s.val FROM {t} s WHERE s.key >= {a}.val AND {c})",
]
_JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]


def random_statement(random: Random) -> str:
    """A statement in which ``{0}``, ``{1}`` and ``{2}`` stand for tables."""

    def table() -> str:
        return f"{{{random.randrange(3)}}}"

    def condition(alias: str) -> str:
        column, number = random.choice(["key", "key", "val", "txt", "day"]), random.randrange(60)
        if column == "txt":
            return f"{alias}.txt " + random.choice([f"= 's{number:02}'", "LIKE 's1%'", "< 's05'"])
        if column == "day":
            return f"{alias}.day = DATE '2024-01-{number // 2 + 1:02}'"
        tests = [f"= {number}", f"< {number // 2}", f"IN ({number}, 7)", "IS NULL", "IS NOT NULL", "% 7 = 3"]
        return f"{alias}.{column} {random.choice(tests)}"

    def relation(alias: str) -> str:
        if random.random() < 0.55:
            return f"{table()} {alias}"
        return random.choice(_DERIVED).format(
            a=alias, t=table(), u=table(), join=random.choice(_JOINS), half=random.choice(["SEMI", "ANTI"])
        )

    visible, source = ["a"], relation("a")
    for alias in "bce"[: random.choice([0, 1, 1, 1, 2, 2, 3])]:
        kind = random.choice(["JOIN", "JOIN", *_JOINS, "SEMI JOIN", "ANTI JOIN"])
        source += f" {kind} {relation(alias)} ON " + random.choice(_ON).format(a=random.choice(visible), b=alias)
        if random.random() < 0.3:
            source += f" AND {condition(random.choice([alias, *visible]))}"
        visible += [] if kind.startswith(("SEMI", "ANTI")) else [alias]
    where = [condition(alias) for alias in visible if random.random() < 0.5]
    if len(visible) == 1 or random.random() < 0.5:
        inner = condition("s") if random.random() < 0.8 else "TRUE"
        subquery = random.choice(_SUBQUERIES)
        where.append(subquery.format(a=random.choice(visible), s=relation("s"), t=table(), u=table(), c=inner))
    statement = f"FROM {source}" + (f" WHERE {' AND '.join(where)}" if where else "")
    if random.random() < 0.3:
        return f"SELECT a.key, count(*) AS n {statement} GROUP BY a.key"
    statement = "SELECT " + ", ".join(f"{alias}.key, {alias}.txt" for alias in visible) + " " + statement
    if random.random() < 0.15:
        hint = random.choice(["", "MATERIALIZED"])
        statement = f"WITH y AS {hint} (SELECT * FROM {table()} WHERE key < 30) {statement.replace(table(), 'y')}"
    return statement
