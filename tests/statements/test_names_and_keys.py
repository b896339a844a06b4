"""Statements that read the names of columns, hide tables behind CTEs, or make keys that no table has: as in DuckDB."""

# ruff: noqa: E501  # one statement a line

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import zskip
from tests.statements.fuzz import Sides, difference, sides
from tests.statements.random_statements import Statement

NAMES = """
SELECT * LIKE 'k%' FROM t0 WHERE key = 3
SELECT * NOT LIKE 'key' FROM t0 WHERE val % 7 = 3
SELECT * NOT LIKE '%a%' FROM t0 WHERE val % 7 = 3 ORDER BY 1, 2
SELECT * ILIKE 'K%' FROM t0 WHERE val % 7 = 3
SELECT * NOT ILIKE '%A%' FROM t0 WHERE val % 7 = 3
SELECT * SIMILAR TO '(key|val)' FROM t0 WHERE val % 7 = 3
SELECT * NOT SIMILAR TO 'k.*' FROM t0 WHERE val % 7 = 3
SELECT * GLOB '[kv]*' FROM t0 WHERE val % 7 = 3
SELECT t0.* LIKE '%y' FROM t0 WHERE val % 7 = 3
SELECT q.* NOT LIKE 'key' FROM t0 q JOIN t1 USING (key) WHERE q.val % 7 = 3
SELECT a FROM (SELECT * NOT LIKE 'key' FROM t0) AS q(a, b) WHERE a = 55
SELECT a FROM (SELECT * SIMILAR TO 'txt|key|val' FROM t0) AS q(a, b) WHERE a = 27
SELECT b FROM (SELECT * NOT SIMILAR TO 'key' FROM t0) AS q(b) WHERE b > 55
SELECT a FROM (SELECT * GLOB 'v*' FROM t0) AS q(a) WHERE a > 55
SELECT a FROM (SELECT * NOT ILIKE 'key' FROM t0) AS q(a) WHERE a > 55
SELECT a FROM (SELECT COLUMNS(lambda c: c <> 'key') FROM t0) AS q(a) WHERE a > 55
SELECT a FROM (SELECT COLUMNS('^[^k]') FROM t0) AS q(a) WHERE a > 55
SELECT a FROM (SELECT COLUMNS('^[^k]') FROM t0) AS q(a) ORDER BY 1 DESC LIMIT 2
SELECT * NOT LIKE 'key' FROM t0 ORDER BY 1 DESC NULLS LAST LIMIT 1
SELECT a, count(*) FROM (SELECT * NOT LIKE 'key' FROM t0) AS q(a) WHERE a IN (54, 55, 56) GROUP BY 1
SELECT count(*) FROM (SELECT * NOT LIKE 'key' FROM t0) AS q(a, b) JOIN t1 ON q.a = t1.key WHERE t1.val < 9
SELECT count(*) FROM (SELECT * SIMILAR TO 'val|key' FROM t0) AS q(a, b) JOIN t1 ON q.b = t1.key WHERE t1.val < 9
SELECT count(*) FROM (SELECT * GLOB 'v*' FROM t0 UNION ALL SELECT * GLOB 'k*' FROM t1) q WHERE val % 7 = 3
SELECT COLUMNS('^[kv]') FROM t0 WHERE val % 7 = 3
SELECT COLUMNS('(k)ey') AS '\\1' FROM t0 WHERE val % 7 = 3
SELECT COLUMNS(lambda c: c = 'val') FROM t0 WHERE val % 7 = 3
SELECT COLUMNS(['val', 'key']) FROM t0 WHERE val % 7 = 3
SELECT min(COLUMNS(* EXCLUDE (s))) FROM t0 WHERE val % 7 = 3
SELECT nullif(COLUMNS('key|val'), 3) FROM t0 WHERE val % 7 = 3
SELECT q.key FROM (SELECT nullif(COLUMNS('key|val'), 3) FROM t0) q JOIN t1 ON q.key IS NOT DISTINCT FROM t1.key
SELECT * FROM t0 WHERE COLUMNS('key|val') = 3
SELECT * EXCLUDE (KEY, "Val") FROM t0 WHERE val % 7 = 3
SELECT * EXCLUDE (q.KEY) FROM t0 q WHERE val % 7 = 3
SELECT * REPLACE (key + 1 AS KEY) FROM t0 WHERE val % 7 = 3
SELECT * RENAME (key AS val2) FROM t0 WHERE val % 7 = 3
SELECT * RENAME (key AS x, x AS key) FROM t0 WHERE val % 7 = 3
SELECT "KEY", "Val" FROM t0 WHERE "VAL" % 7 = 3
SELECT #1, #2 FROM t0 WHERE val % 7 = 3
SELECT * FROM t0 NATURAL JOIN t1
SELECT * FROM t0 NATURAL LEFT JOIN (SELECT key AS KEY, 1 AS one FROM t1 WHERE val % 7 = 3) q
SELECT * FROM t0 JOIN t1 USING (KEY, "Part") WHERE t0.val % 7 = 3
SELECT key, val FROM t0 WHERE val % 7 = 3 UNION ALL BY NAME SELECT VAL, KEY, txt FROM t1 WHERE val % 5 = 3
SELECT * FROM (SELECT val, key FROM t0 UNION ALL BY NAME SELECT * FROM t1) WHERE val % 7 = 3 ORDER BY ALL
SELECT key, max(val) FROM t0 WHERE val % 7 = 3 GROUP BY ALL ORDER BY ALL DESC
SELECT key, max(val) FROM t0 WHERE val % 7 = 3 GROUP BY 1 ORDER BY 2, 1
SELECT s.* FROM t0 WHERE val % 7 = 3
SELECT unnest(s) FROM t0 WHERE val % 7 = 3
SELECT unnest(q) FROM t0 q WHERE val % 7 = 3
SELECT q FROM t0 q WHERE val % 7 = 3
SELECT t0 FROM t0 WHERE val % 7 = 3
SELECT to_json(q) FROM t0 q WHERE val % 7 = 3
SELECT struct_pack(*COLUMNS(q.*)) FROM t0 q WHERE val % 7 = 3
SELECT struct_keys(q) FROM t0 q WHERE val % 7 = 3
SELECT typeof(q), alias(key) FROM t0 q WHERE val % 7 = 3
SELECT q.key.typeof() FROM t0 q WHERE val % 7 = 3
SELECT json_object('k', q) FROM t0 q WHERE val % 7 = 3
SELECT column_name, max FROM (SUMMARIZE SELECT key, val FROM t0 WHERE val % 7 = 3)
SELECT column_name FROM (DESCRIBE SELECT * FROM t0)
SELECT column_name, column_type FROM (DESCRIBE t0)
SELECT count(*) FROM (TABLE t0) WHERE val % 7 = 3
TABLE t0
UNPIVOT (SELECT key, val FROM t0 WHERE val % 7 = 3) ON COLUMNS('key|val')
UNPIVOT t0 ON key, val INTO NAME n VALUE v
SELECT * FROM t0 UNPIVOT (v FOR n IN (key, val)) WHERE n = 'val' AND v % 7 = 3
SELECT * FROM (SELECT key, val, part FROM t0) PIVOT (sum(val) FOR part IN (0, 1)) WHERE key < 9
PIVOT (SELECT key, val, part FROM t0) ON part IN (0, 1) USING sum(val) GROUP BY key
PIVOT (SELECT key, val, part FROM t0) ON part USING sum(val)
WITH y AS (SELECT * FROM t0 WHERE val % 7 = 3) PIVOT y ON part USING max(key) GROUP BY txt
SELECT count(*) FROM (PIVOT (SELECT val, part FROM t0) ON part USING sum(val)) q, t1 WHERE t1.val < 9
FROM q : t0 SELECT q.key WHERE q.val % 7 = 3
SELECT count(*) FROM t0 last(a, b) WHERE b % 7 = 3
SELECT a FROM t0 AS q(a, key) WHERE key % 7 = 3
WITH c AS (SELECT * FROM t0) SELECT * LIKE 'k%' FROM query_table('c') WHERE val % 7 = 3
WITH c AS (SELECT * FROM t0) SELECT count(*) FROM rolled('c') r JOIN t1 ON t1.key IS NOT DISTINCT FROM r.key
"""
KEYS = """
SELECT count(*) FROM t1 JOIN (SELECT o.key FROM cased o JOIN t0 ON o.b = t0.val WHERE t0.key < 9 LIMIT 1000) q ON q.key = t1.key
SELECT count(*) FROM t1 JOIN (SELECT o.key FROM cased_view o JOIN t0 ON o.b = t0.val WHERE t0.key < 9 LIMIT 1000) q ON q.key = t1.key
SELECT key FROM t0 INTERSECT SELECT key FROM t1 WHERE key > 24 GROUP BY ROLLUP (key)
SELECT key FROM t0 EXCEPT SELECT key FROM t1 WHERE key > 24 GROUP BY ROLLUP (key)
SELECT key, val FROM t0 INTERSECT SELECT key, val FROM t1 WHERE key > 24 GROUP BY CUBE (key, val)
SELECT val FROM t0 EXCEPT SELECT val FROM t1 WHERE key < 9 GROUP BY GROUPING SETS ((val), (key))
SELECT count(*) FROM t0 JOIN (SELECT key FROM t1 WHERE key > 24 GROUP BY CUBE (key)) q ON t0.key IS NOT DISTINCT FROM q.key
SELECT count(*), sum(n) FROM t0 JOIN (SELECT key, sum(val) AS n FROM t1 WHERE key > 24 GROUP BY ROLLUP (key)) q ON t0.key IS NOT DISTINCT FROM q.key
SELECT count(*), sum(n) FROM t0 a JOIN (SELECT key, count(*) AS n FROM t1 WHERE key > 24 GROUP BY GROUPING SETS ((key), ())) q ON a.key IS NOT DISTINCT FROM q.key
SELECT key FROM t0 WHERE key IN (SELECT key FROM t1 WHERE key > 24 GROUP BY ROLLUP (key))
SELECT key FROM t0 WHERE EXISTS (SELECT 1 FROM t1 WHERE t1.key > 24 AND t1.key IS NOT DISTINCT FROM t0.key GROUP BY ROLLUP (t1.key))
SELECT val FROM t0 INTERSECT SELECT a FROM (SELECT unnest(s) FROM t1 WHERE key < 9)
SELECT val FROM t0 EXCEPT SELECT a FROM (SELECT unnest(CASE WHEN val > 20 THEN s END) FROM t1 WHERE key > 24)
SELECT count(*) FROM t0 JOIN (SELECT unnest(CASE WHEN val > 20 THEN q END) FROM t1 q WHERE key > 24) w ON t0.key IS NOT DISTINCT FROM w.key
SELECT count(*) FROM t0 JOIN (SELECT unnest(lag(q) OVER (ORDER BY key, val, txt, day, x, part)) FROM t1 q WHERE key > 24) w ON t0.key IS NOT DISTINCT FROM w.key
SELECT count(*) FROM t0 JOIN (SELECT lag(q) OVER (ORDER BY key, val, txt) AS r FROM t1 q WHERE key > 24) w ON t0.key IS NOT DISTINCT FROM w.r.key
SELECT count(*) FROM t0 JOIN (SELECT lead(key) OVER (ORDER BY key, val, txt) AS key FROM t1 WHERE key > 24) w ON t0.key IS NOT DISTINCT FROM w.key
SELECT key FROM t0 EXCEPT SELECT lag(key, 1, 7) OVER (ORDER BY key, val, txt) FROM t1 WHERE key > 24
SELECT key FROM t0 INTERSECT SELECT q.key FROM (SELECT key FROM t1 WHERE key > 24) q RIGHT JOIN t2 ON q.key = t2.val
SELECT key FROM t0 INTERSECT SELECT q.key FROM t2 LEFT JOIN (SELECT key FROM t1 WHERE key > 24) q ON q.key = t2.val
SELECT key FROM t0 INTERSECT SELECT coalesce(q.key, t2.key) FROM t2 FULL JOIN (SELECT key FROM t1 WHERE key > 24) q ON q.key = t2.val
SELECT key FROM t0 INTERSECT (SELECT key FROM t1 WHERE key > 24 UNION ALL SELECT NULL)
SELECT key FROM t0 INTERSECT (SELECT key FROM t1 WHERE key > 24 UNION ALL VALUES (NULL), (25))
SELECT key FROM t0 INTERSECT SELECT TRY(key) FROM t1 WHERE key > 24
SELECT key FROM t0 INTERSECT SELECT nullif(key, 3) FROM t1 WHERE key > 24
SELECT key FROM t0 INTERSECT SELECT unnest([key, NULL]) FROM t1 WHERE key > 24
SELECT key FROM t0 INTERSECT SELECT max(key) FROM t1 WHERE val < 0
SELECT key FROM t0 INTERSECT SELECT first(key) FROM t1 WHERE val < 0
SELECT key FROM t0 INTERSECT SELECT any_value(key) FROM t1 WHERE key > 24 GROUP BY part
SELECT count(*) FROM t0 JOIN (SELECT max(key) AS key FROM t1 WHERE val > 99) q ON t0.key IS NOT DISTINCT FROM q.key
SELECT count(*) FROM t0 POSITIONAL JOIN (SELECT key FROM t1 WHERE key > 24) q
SELECT count(*) FROM t0 JOIN (SELECT q.key FROM t2 POSITIONAL JOIN (SELECT key FROM t1 WHERE key > 24) q) w ON t0.key IS NOT DISTINCT FROM w.key
SELECT count(*) FROM t0 JOIN (SELECT q.key FROM t2 ASOF LEFT JOIN (SELECT key, val FROM t1 WHERE key > 24) q ON t2.val >= q.val) w ON t0.key IS NOT DISTINCT FROM w.key
WITH RECURSIVE r AS (SELECT key FROM t1 WHERE key > 24 UNION SELECT NULL FROM r) SELECT key FROM t0 INTERSECT SELECT key FROM r
WITH RECURSIVE r(key) AS (SELECT key FROM t1 WHERE val < 3 UNION SELECT key + 1 FROM r WHERE key < 29) SELECT count(*) FROM t0 JOIN r USING (key)
SELECT count(*) FROM t0 JOIN (SELECT key FROM t1 TABLESAMPLE 100% WHERE val < 9) q USING (key)
SELECT key FROM t0 EXCEPT SELECT key FROM rolled_view
SELECT count(*) FROM t0 WHERE (key, val) IN (SELECT key, val FROM t1 WHERE key > 24 GROUP BY ROLLUP (key, val))
"""
CTES = """
WITH t0 AS ((SELECT 1 AS x)) SELECT count(*) FROM t0
WITH t0 AS ((SELECT 1 AS x) UNION ALL (SELECT 2)) SELECT count(*) FROM t0
WITH 't0' AS (SELECT 1 AS x) SELECT count(*) FROM t0
WITH "T0" AS (SELECT 1 AS x) SELECT count(*) FROM 't0'
WITH t0(x) AS (VALUES (1), (2)) SELECT count(*) FROM t0
WITH t0 AS MATERIALIZED (SELECT 1 AS x) SELECT count(*) FROM t0
WITH t0 AS NOT MATERIALIZED (FROM range(3)) SELECT count(*) FROM t0
WITH t0 AS (TABLE t1) SELECT count(*) FROM t0
WITH t0 AS (SELECT * FROM t0 WHERE val < 9) SELECT count(*) FROM t0
WITH RECURSIVE t0 AS (SELECT * FROM t0 WHERE val < 9) SELECT count(*) FROM t0
WITH RECURSIVE t0 AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM t0 WHERE x < 5) SELECT count(*) FROM t0
WITH RECURSIVE t0 AS (SELECT key AS x FROM t0 WHERE key < 3 UNION SELECT x + 1 FROM t0 WHERE x < 5) SELECT count(*) FROM t0
WITH RECURSIVE a AS (SELECT count(*) AS n FROM t0), t0 AS (SELECT 1 AS x) SELECT n, (SELECT count(*) FROM t0) FROM a
WITH a AS (SELECT count(*) AS n FROM t0), t0 AS (SELECT 1 AS x) SELECT n, (SELECT count(*) FROM t0) FROM a
SELECT (WITH t0 AS (SELECT 1 AS x) SELECT count(*) FROM t0), (SELECT count(*) FROM t0)
SELECT count(*) FROM (WITH t0 AS (SELECT 1 AS key) SELECT * FROM t0) q JOIN t0 USING (key)
(WITH t0 AS (SELECT 1 AS x) SELECT count(*) FROM t0) UNION ALL SELECT count(*) FROM t0
WITH t0 AS (SELECT 1 AS x) SELECT count(*) FROM t0 UNION ALL SELECT count(*) FROM t0
WITH t0 AS (SELECT 1 AS key) SELECT count(*) FROM t1 WHERE key IN (SELECT key FROM t0)
WITH t0 AS (SELECT 1 AS key) SELECT count(*) FROM t1, LATERAL (SELECT * FROM t0 WHERE t0.key = t1.key) q
WITH t0 AS (SELECT 1 AS x) FROM t0 LIMIT (SELECT count(*) FROM t0)
WITH t0 AS (SELECT 1 AS x), b AS (FROM t0) SELECT count(*) FROM b, t1
WITH t0 AS (SELECT 1 AS x) SELECT count(*) FROM (SUMMARIZE t0)
WITH t0 AS (SELECT 1 AS x) TABLE t0
WITH t0 AS (SELECT 1 AS x, 2 AS y) PIVOT t0 ON x USING sum(y)
WITH t0 AS (PIVOT (SELECT key, part FROM t0) ON part USING count(*)) SELECT count(*) FROM t0
WITH t0 AS (WITH t0 AS (SELECT 7 AS x) SELECT x FROM t0) SELECT * FROM t0
WITH /* t0 AS */ t1 AS (SELECT 1 AS x) SELECT (SELECT count(*) FROM t0), (SELECT count(*) FROM t1)
WITH "t""0" AS (SELECT 1 AS x) SELECT count(*) FROM t0, "t""0"
"""
# Their columns have a name of t0 in a spelling that a stub may have.
FOREIGN = [
    'CREATE TABLE cased AS SELECT range::INTEGER AS "KEy", range::INTEGER + 20 AS b FROM range(40)',
    'CREATE VIEW cased_view AS SELECT b - 20 AS "KEy", b FROM cased',
    "CREATE VIEW rolled_view AS SELECT key FROM cased GROUP BY ROLLUP (key)",
    "CREATE MACRO rolled(name) AS TABLE SELECT key FROM query_table(name) GROUP BY ROLLUP (key)",
]

# Each ends in a table "made".
STORED = """
CREATE TABLE made AS WITH t0 AS ((SELECT 1 AS x)) SELECT count(*) AS n FROM t0
CREATE TABLE made AS SELECT * NOT LIKE 'key' FROM t0 WHERE val = 55
CREATE TABLE made AS TABLE t0
CREATE TABLE made AS PIVOT (SELECT val, part FROM t0) ON part USING sum(val)
CREATE TABLE made AS SUMMARIZE SELECT key, val FROM t0
CREATE TABLE made (key INT, val INT); WITH t0 AS (SELECT 1 AS key, 2 AS val) INSERT INTO made SELECT * FROM t0
CREATE TABLE made (key INT, val INT); INSERT INTO made BY NAME SELECT val, key FROM t0 WHERE val > 50
CREATE TABLE made AS SELECT 1 AS key; UPDATE made SET key = (SELECT count(*) FROM t0 WHERE val > 20)
CREATE TABLE made AS FROM range(30) t(key); DELETE FROM made USING t0 WHERE t0.key = made.key AND t0.val > 30
CREATE TABLE made AS SELECT 3 AS key, 0 AS n; MERGE INTO made USING (SELECT DISTINCT key FROM t0 WHERE val > 5) q ON made.key = q.key WHEN MATCHED THEN DELETE
CREATE TABLE made AS SELECT 3 AS key, 0 AS n; MERGE INTO made USING (SELECT key, max(val) AS v FROM t0 GROUP BY key) q USING (key) WHEN MATCHED THEN UPDATE SET n = q.v
CREATE TYPE texts AS ENUM (SELECT DISTINCT txt FROM t0 WHERE txt LIKE 's1%' ORDER BY 1); CREATE TABLE made AS SELECT enum_range(NULL::texts)::VARCHAR AS n; DROP TYPE texts
CREATE TABLE made AS SELECT 1 AS n; SET VARIABLE v = (SELECT count(*) FROM t0 WHERE val > 50); UPDATE made SET n = getvariable('v')
CREATE TABLE made AS SELECT 1 AS n; PREPARE p AS INSERT INTO made SELECT key FROM t0 WHERE val > 50; EXECUTE p; DEALLOCATE p
"""


@pytest.mark.parametrize("text", STORED.strip().splitlines())
def test_a_statement_stores_what_it_stores_in_duckdb(text: str, given: Sides) -> None:
    stored = []
    for con, run in ((given.plain, given.plain.execute), (given.own, partial(_run, given))):
        run(text)
        made = con.sql("FROM made")
        stored.append((made.columns, made.types, sorted(map(repr, made.fetchall()))))
        con.execute("DROP TABLE made")
    assert stored[0] == stored[1]


def _run(given: Sides, text: str) -> None:
    zskip.sql(text, given.own, tables=given.tables)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    with sides(tmp_path_factory.mktemp("names")) as made:
        for con in (made.own, made.plain):
            for statement in FOREIGN:
                con.execute(statement)
        yield made


@pytest.mark.parametrize("text", [one for one in (NAMES + KEYS + CTES).splitlines() if one])
def test_a_statement_gives_what_duckdb_gives(text: str, given: Sides) -> None:
    kind, failure = difference(given, Statement(text, None, ordered=False))
    assert failure is None
    assert kind in ("answers", "empty answers")


@pytest.mark.parametrize("name", ['"id"', 'a"b', '"', 'a".b', "it's", "a.b", '"x"."y"'])
def test_bounds_of_a_column_belong_to_it_whatever_its_name(name: str, tmp_path: Path) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    rows = pa.table({"id": range(1000), "g": [number // 100 for number in range(1000)], name: range(50_000, 51_000)})
    zskip.write(rows, tmp_path / "t", by="g", files=10)
    statement = f"SELECT count(*), sum(a.id), max(b.{quoted}) FROM {{0}} a JOIN {{0}} b ON a.g = b.g WHERE a.id < 700 AND b.id < 5"
    with duckdb.connect() as con:
        expected = con.sql(statement.format("rows")).fetchall()
        assert zskip.sql(statement.format(f"'{tmp_path}/t'"), con).fetchall() == expected
