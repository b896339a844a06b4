"""Facts pruned by the attributes of their dimensions: statements equal DuckDB's, whatever changes in between."""

from __future__ import annotations

import functools
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import zskip
from tests.statements.cases import statements
from zskip.advisor.attribute_workload import star_workload
from zskip.cli.main import main
from zskip.core.schema import Schema
from zskip.inspect.audit import doctor
from zskip.statements.duckdb import pruned_tables
from zskip.writer import append, star
from zskip.writer.options import WriteOptions
from zskip.writer.row_source import of_table
from zskip.writer.star import given_joins

FORMS = statements("attributes", "forms")
CON = duckdb.connect()

TABLES = ["facts", "customer", "supplier", "nation", "price"]
CHANGES = [
    *("append", "update", "delete", "optimize", "null", "duplicate"),
    *("overwrite", "restore", "vacuum", "repair", "refresh", "tend"),
]


class Star:
    """Facts, and the dimensions customers, suppliers, nations and prices (by two keys), as zskip's tables; and DuckDB
    over their rows."""

    def __init__(self, home: Path, seed: int) -> None:
        self.home, self.random, self.numpy = home, random.Random(seed), np.random.default_rng(seed)
        self.con = duckdb.connect()
        self.next_key, self.next_id = 200, 0
        self.write("nation", self.nations(), by=["nk"], files=2)
        # A row whose key is NULL: only IS NOT DISTINCT FROM joins it, and no attribute of the facts has its name.
        nameless = pa.table({"k": pa.array([None], pa.int64()), "region": ["R1"], "name": ["N99"]})
        rows = pa.concat_tables([self.customers(range(200)), nameless], promote_options="default")
        self.write("customer", rows, by=["k"], files=4)
        self.write("supplier", self.customers(range(200)), by=["k"], files=4)
        joins = {
            "customer": (str(home / "customer"), {"ck": "k"}),
            "supplier": (str(home / "supplier"), {"sk": "k"}),
            "cn": (str(home / "nation"), {"customer.nk": "nk"}),
            "sn": (str(home / "nation"), {"supplier.nk": "nk"}),
            "price": (str(home / "price"), {"ck": "a", "sk": "b"}),
        }
        facts = self.rows(3000)
        self.write("price", self.prices(facts), by=["a"], files=4)
        by = ["customer.region", "supplier.year", "cn.zone", "sn.zone", "customer.name", "price.grade"]
        self.write("facts", facts, by=by, joins=joins, files=24)

    def write(self, name: str, rows: pa.Table, **options: object) -> None:
        zskip.write(rows, self.home / name, **options)  # type: ignore[arg-type]

    def open(self, name: str) -> zskip.Table:
        return zskip.open(self.home / name)

    def nations(self) -> pa.Table:
        return pa.table({"nk": pa.array([*range(20), None], pa.int32()), "zone": [f"Z{n % 4}" for n in range(21)]})

    def customers(self, keys: object) -> pa.Table:
        names = [int(key) for key in keys]  # type: ignore[attr-defined]
        draw = self.numpy
        return pa.table(
            {
                "k": pa.array(names, pa.int64()),
                "region": [None if draw.random() < 0.05 else f"R{key % 5}" for key in names],
                "name": [f"N{draw.integers(0, 30):02d}" for _ in names],
                "year": pa.array(draw.integers(1990, 2000, len(names)), pa.int32()),
                "nk": pa.array(draw.integers(0, 22, len(names)), pa.int32()),
            }
        )

    def prices(self, facts: pa.Table) -> pa.Table:
        """A price for most pairs of keys of the facts; one of the keys may be NULL."""
        pairs = sorted(set(zip(*facts.select(["ck", "sk"]).to_pydict().values(), strict=True)), key=repr)
        pairs = [pair for pair in pairs if self.numpy.random() < 0.8]
        grades = [f"G{self.numpy.integers(0, 6)}" for _ in pairs]
        return pa.table({"a": [a for a, _ in pairs], "b": [b for _, b in pairs], "grade": grades})

    def rows(self, count: int) -> pa.Table:
        def keys(type: pa.DataType) -> pa.Array:
            drawn = self.numpy.integers(0, 230, count)
            return pa.array([None if self.numpy.random() < 0.03 else int(key) for key in drawn], type)

        ids = range(self.next_id, self.next_id + count)
        self.next_id += count
        values = self.numpy.integers(0, 100, count)
        return pa.table({"id": ids, "ck": keys(pa.int64()), "sk": keys(pa.int32()), "v": values})

    def change(self) -> None:
        """One change of one of the tables."""
        name = self.random.choice(["facts", "customer", "customer", "supplier", "nation", "price"])
        table = self.open(name)
        if name == "nation":
            added = pa.table({"nk": pa.array([20, 21][: self.random.randint(1, 2)], pa.int32())})
            zones = pa.array([f"Z{self.random.randint(0, 5)}" for _ in range(len(added))])
            table.delete("nk >= 20")
            table.append(added.append_column("zone", zones))
            return
        match self.random.choice(CHANGES):
            case "append":
                table.append(self.further(name))
            case "update" if name == "facts":
                rows = self.rows(40)
                old = pa.array(self.numpy.choice(self.next_id - 40, 30, replace=False))
                ids = pa.concat_arrays([old, rows["id"].combine_chunks()[30:]])
                table.upsert(rows.set_column(0, "id", ids), on="id")
            case "update" if name == "price":
                rows = table.plan("a < 9 AND b < 99").to_arrow()
                grades = [f"G{self.random.randint(0, 5)}"] * len(rows)
                table.upsert(rows.set_column(2, "grade", pa.array(grades, pa.string())), on=["a", "b"])
            case "update":
                key = self.random.randint(0, 220)
                table.delete(f"k = {key}")
                self.open(name).append(self.customers([key]))
            case "delete":
                column = {"facts": "v", "price": "a"}.get(name, "k")
                table.delete(f"{column} BETWEEN {(low := self.random.randint(0, 90))} AND {low + 4}")
            case "optimize":
                table.optimize(full=True)
            case "null" if name in ("customer", "supplier"):
                table.append(pa.table({"k": pa.array([None], pa.int64()), "region": ["R1"], "name": ["N01"]}))
            case "duplicate" if name in ("customer", "supplier"):
                table.append(self.customers([self.random.randint(0, 200)]))
            case "overwrite":
                table.overwrite(table.plan().to_arrow())
            case "restore":
                table.restore(self.random.choice([one.version for one in table.history()[:3]]))
            case "vacuum":
                table.vacuum(older_than="0 seconds")
            case "repair":
                # A part that only older versions have is not made again.
                parts = [self.home / name / part.path for part in table._index.snapshot.parts]
                if parts := [path for path in parts if path.is_file()]:
                    self.random.choice(parts).write_bytes(b"damaged")
                    zskip.repair(self.home / name)
            case "refresh":
                self.open("facts").refresh_joins()
            case "tend":
                self.open("facts").tend()

    def further(self, name: str) -> pa.Table:
        """New rows of a table: of a dimension, keys that the facts have already."""
        if name == "facts":
            return self.rows(300)
        if name == "price":
            keys = self.open("facts").plan().to_arrow().slice(0, 20)
            return self.prices(keys)
        keys = range(self.next_key, self.next_key + 8)
        self.next_key += 8
        return self.customers(keys)

    def statement(self) -> str:
        draw = self.random
        names = [f"N{draw.randint(0, 29):02d}" for _ in range(3)]
        on = {
            side: draw.choice(
                [
                    f"{side}.region = 'R{draw.randint(0, 5)}'",
                    f"{side}.region IN ('R1', 'R3') AND {side}.year < {draw.randint(1990, 2000)}",
                    f"{side}.name = '{names[0]}'",
                    f"{side}.name = 'N99'",
                    f"({side}.region IS NULL OR {side}.name LIKE 'N0%')",
                    f"{side}.region <> 'R2' AND {side}.name > '{names[1]}'",
                    f"{side}.year + 1 = {draw.randint(1991, 1999)}",
                ]
            )
            for side in ("c", "s")
        }
        return draw.choice(FORMS).format(
            agg=draw.choice(["count(*) AS n, sum(f.v) AS v", "min(f.v) AS n, max(f.id) AS v"]),
            f="facts",
            p="price",
            pc=f"p.grade {draw.choice(['=', '=', '<>', '>'])} 'G{draw.randint(0, 6)}'",
            c=draw.choice(["customer", "customer", "supplier"]),
            s="supplier",
            n="nation",
            cc=on["c"],
            sc=on["s"],
            nc=f"n.zone = 'Z{draw.randint(0, 5)}'",
            fc=f"f.v < {draw.randint(0, 100)}",
        )

    def check(self, statements: int) -> int:
        """Compare statements with DuckDB's answers; in how many of each fourth attributes skipped files."""
        rows = {name: self.open(name).plan().to_arrow() for name in TABLES}
        for name, each in rows.items():
            self.con.register(f"{name}_rows", each)
        tables = {name: self.open(name) for name in rows}
        pruned = 0
        for number in range(statements):
            statement = self.statement()
            expected = self.con.sql(f"WITH {self.aliases(rows)} {_inner(statement)}").fetchall()
            got = zskip.sql(statement, self.con, tables=tables).fetchall()
            assert sorted(map(repr, got)) == sorted(map(repr, expected)), statement
            if not number % 4:
                explained = zskip.explain(statement, self.con, tables=tables)
                pruned += re.search("attributes of (?!.*: zskip finds no join)", explained) is not None
        return pruned

    def aliases(self, rows: dict[str, pa.Table]) -> str:
        return ", ".join(f"{name} AS (FROM {name}_rows)" for name in rows)


def _inner(statement: str) -> str:
    return statement.replace("WITH d AS", ", d AS", 1) if statement.startswith("WITH") else statement


@pytest.fixture
def star_tables(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Star]:
    # A changed dimension is asked for its new keys however long that takes, beside facts that are read in a moment.
    monkeypatch.setattr(pruned_tables, "Timer", lambda _, interrupt: Timer(60, interrupt))
    made = Star(tmp_path, getattr(request, "param", 0))
    yield made
    made.con.close()


def _lives(star: Star, changes: int, statements: int) -> int:
    pruned = star.check(statements)
    for _ in range(changes):
        star.change()
        pruned += star.check(statements)
    return pruned


@pytest.mark.parametrize("star_tables", [0], indirect=True)
def test_statements_equal_duckdb_over_every_kind_of_change(star_tables: Star) -> None:
    assert _lives(star_tables, changes=4, statements=5) > 1


@pytest.mark.slow
@pytest.mark.parametrize("star_tables", range(100, 150), indirect=True)
def test_ten_thousand_statements_over_every_kind_of_change(star_tables: Star) -> None:
    assert _lives(star_tables, changes=12, statements=16) > 10


FACTS = pa.table({"a": [1, 2, 3] * 60, "b": [1, 2, 3, 3] * 45, "v": range(180)})
CUSTOMERS = pa.table({"k": [1, 2, 3], "region": ["ASIA", "EUROPE", "ASIA"]})
SWAPPED = pa.table({"k": [1, 2, 3], "region": ["EUROPE", "ASIA", "ASIA"]})


def _facts(home: Path, **options: object) -> zskip.Table:
    if not (home / "customer").exists():
        zskip.write(CUSTOMERS, home / "customer", by=["k"])
    rows = pa.table({"ck": [1, 2, 3, 9, None] * 20, "v": range(100)})
    joins = {"customer": (str(home / "customer"), {"ck": "k"})}
    given = {"by": ["customer.region"], "joins": joins, "files": 4, **options}
    return zskip.write(rows, home / "facts", **given)  # type: ignore[arg-type]


def test_attributes_are_in_the_index_alone(tmp_path: Path) -> None:
    table = _facts(tmp_path)
    assert table.schema.names == ["ck", "v"]
    files = table.plan().paths
    assert {tuple(pq.read_schema(path).names) for path in files} == {("ck", "v")}
    with pytest.raises(zskip.UnknownColumn):
        table.plan("\"customer.region\" = 'ASIA'")
    assert len(table.plan().to_arrow()) == 100
    # Rows whose key is NULL or in no row of the dimension have NULL.
    path = '"customer.region"'
    recorded = table._index.file_statistics(np.arange(len(files)), [path]).columns[path]
    assert sum(recorded.null_count.to_pylist()) == 40


def test_keys_that_the_dimension_has_not_are_found(tmp_path: Path, con: duckdb.DuckDBPyConnection) -> None:
    """DuckDB is told how many keys the dimension had, and may use that for estimates alone."""
    facts, customer = _facts(tmp_path), zskip.open(tmp_path / "customer")
    facts.append(pa.table({"ck": pa.array([*range(100, 5000), None], pa.int64()), "v": range(4901)}))
    for statement in (
        "SELECT count(*), count(DISTINCT ck) FROM {facts}",
        "SELECT ck, sum(v) FROM {facts} GROUP BY ck ORDER BY ck NULLS FIRST",
        "SELECT DISTINCT ck FROM {facts} WHERE ck >= 2 ORDER BY ck",
        "SELECT f.ck, region FROM {facts} f LEFT JOIN {customer} ON f.ck = k ORDER BY ALL",
        "SELECT count(*) FROM {facts} a JOIN {facts} b USING (ck) JOIN {customer} c ON b.ck = c.k",
        "SELECT count(*) FROM {customer} WHERE k NOT IN (SELECT ck FROM {facts} WHERE ck IS NOT NULL)",
    ):
        _equals_duckdb(statement, con, facts=facts, customer=customer)


def test_explain_names_the_dimension_its_condition_and_why_it_is_not_used(tmp_path: Path) -> None:
    _facts(tmp_path)
    facts, customer = tmp_path / "facts", tmp_path / "customer"
    statement = f"SELECT count(*) FROM '{facts}' f JOIN '{customer}' c ON f.ck = c.k WHERE c.region = 'EUROPE'"
    assert zskip.sql(statement).fetchall() == [(20,)]
    assert f"attributes of '{customer}': \"region\" = 'EUROPE'" in zskip.explain(statement)
    zskip.open(customer).optimize(full=True)
    zskip.open(customer).vacuum(older_than="0 seconds")
    zskip.write(CUSTOMERS, customer, by=["k"], mode="overwrite")
    zskip.open(customer).vacuum(older_than="0 seconds")
    assert zskip.sql(statement).fetchall() == [(20,)]
    assert "the version of which they are is gone" in zskip.explain(statement)


RENAMED = pa.table({"kk": [1, 2, 3], "region": ["ASIA", "EUROPE", "ASIA"]})
AS_TEXT = pa.table({"k": ["1", "2", "3"], "region": ["ASIA", "EUROPE", "ASIA"]})


def test_explain_says_which_keys_no_join_has(tmp_path: Path, con: duckdb.DuckDBPyConnection) -> None:
    facts = _facts(tmp_path)
    zskip.write(CUSTOMERS, tmp_path / "other", by=["k"])
    names = {"c": f"'{tmp_path}/customer'", "other": f"'{tmp_path}/other'"}
    reason = f"attributes of {names['c']} are not used: zskip finds no join by ck = k that could skip files"
    for rows, join, unused in (
        (CUSTOMERS, "JOIN {c} c ON ck = k WHERE region = 'ASIA'", False),
        (CUSTOMERS, "JOIN {c} c ON ck = k WHERE k > 2", False),
        (CUSTOMERS, "JOIN {c} c ON v = k WHERE k > 2", False),
        (CUSTOMERS, "JOIN {c} c ON v = k WHERE region = 'ASIA'", True),
        (CUSTOMERS, "LEFT JOIN {c} c ON ck = k AND region = 'ASIA'", True),
        (CUSTOMERS, "JOIN {c} a ON ck = a.k JOIN {c} b ON v = b.k WHERE b.region = 'ASIA'", True),
        (RENAMED, "JOIN {c} c ON ck = kk WHERE region = 'ASIA'", True),
        (RENAMED, "JOIN {c} c ON ck = kk WHERE kk > 2", False),
        (AS_TEXT, "JOIN {c} c ON CAST(ck AS VARCHAR) = k WHERE region = 'ASIA'", True),
        (AS_TEXT, "JOIN {other} c ON ck = k WHERE region = 'ASIA'", False),
    ):
        if zskip.open(tmp_path / "customer").columns != rows.column_names or rows is AS_TEXT:
            zskip.write(rows, tmp_path / "customer", by=["region"], mode="overwrite")
        explained = zskip.explain(f"SELECT count(*), sum(v) FROM '{facts.uri}' f {join.format(**names)}", con)
        assert explained.count(reason) == unused, join
        assert explained.count("are not used: zskip finds no join") == unused, join


EUROPEAN = "SELECT count(*), sum(v) FROM {facts} f JOIN {customer} c ON ck = k WHERE region = 'EUROPE'"


def _equals_duckdb(statement: str, con: duckdb.DuckDBPyConnection | None = None, **tables: zskip.Table) -> str:
    """Check the answer by that over the tables' rows; the text of `zskip.explain`."""
    con = con or CON
    for name, table in tables.items():
        con.register(f"all_{name}", table.plan().to_arrow())
    whole = con.sql(statement.format(**{name: f"all_{name}" for name in tables})).fetchall()
    pruned = statement.format(**{name: f"'{table.uri}'" for name, table in tables.items()})
    assert zskip.sql(pruned, con).fetchall() == whole
    return str(zskip.explain(pruned, con))


def test_one_null_of_a_key_of_two_columns(tmp_path: Path) -> None:
    """No row of the dimension has NULL in a key when the attributes are computed; NULL equals NULL in the statement."""
    prices = zskip.write(
        pa.table({"a": [1, 1, 2], "b": [1, None, 2], "grade": ["x", "y", "z"]}), tmp_path / "price", by=["a"]
    )
    rows = pa.table({"ck": [1, 1, 2] * 40, "sk": [1, None, 2] * 40})
    facts = zskip.write(
        rows, tmp_path / "facts", by=["price.grade"], joins={"price": (prices, {"ck": "a", "sk": "b"})}, files=4
    )
    for null_safe in (
        "sk IS NOT DISTINCT FROM b AND ck = a",
        "sk IS NOT DISTINCT FROM b AND ck IS NOT DISTINCT FROM a",
    ):
        for grade in "xyz":
            statement = f"SELECT count(*) FROM {{facts}} f JOIN {{prices}} p ON {null_safe} WHERE grade = '{grade}'"
            assert "files skipped" in _equals_duckdb(statement, facts=facts, prices=prices)
    # By one of the keys, a row of the facts has other partners than the one whose attributes it has.
    statement = "SELECT count(*) FROM {facts} f JOIN {prices} p ON ck = a WHERE grade = 'x'"
    assert "are not used: zskip finds no join" in _equals_duckdb(statement, facts=facts, prices=prices)


def test_keys_that_are_equal_by_a_collation(tmp_path: Path, con: duckdb.DuckDBPyConnection) -> None:
    """A plan prints such a join like any other."""
    names = [f"{'kK'[number % 2]}{number:03d}" for number in range(400)]
    changed = [name.swapcase() if number % 2 else name for number, name in enumerate(names)]
    dimension = pa.table({"k": changed, "region": [f"r{number % 5}" for number in range(400)]})
    customer = zskip.write(dimension, tmp_path / "customer", by=["k"], files=8)
    rows = pa.table({"ck": names * 10, "v": range(4000)})
    joins = {"customer": (customer, {"ck": "k"})}
    facts = zskip.write(rows, tmp_path / "facts", by=["customer.region"], joins=joins, files=20)
    con.execute("CREATE TABLE collated (k VARCHAR COLLATE NOCASE)")
    for setting, join, used in (
        ("NOCASE", "{customer} c ON ck = k", False),
        ("", "{customer} c ON ck COLLATE NOCASE = k", False),
        ("", "(SELECT k COLLATE NOCASE AS k, region FROM {customer} c) ON ck = k", False),
        ("", "(SELECT k, region FROM {customer} c UNION ALL SELECT k, 'r9' FROM collated) ON ck = k", False),
        ("", "{customer} c ON ck = k", True),
    ):
        con.execute(f"SET default_collation = '{setting}'")
        statement = f"SELECT count(*), sum(v) FROM {{facts}} f JOIN {join} WHERE region = 'r1'"
        explained = _equals_duckdb(statement, con, facts=facts, customer=customer)
        assert "attributes of" in explained
        assert ("are not used: zskip finds no join" in explained) != used, join


def test_each_use_of_a_dimension_prunes(tmp_path: Path) -> None:
    customer = zskip.write(CUSTOMERS.rename_columns(["key", "region"]), tmp_path / "customer", by=["key"])
    facts = _facts(tmp_path, joins={"customer": (customer, {"ck": "key"})})
    for first, second in (("c", "d"), ("d", "c")):
        statement = (
            f"SELECT count(*) FROM {{facts}} f JOIN {{customer}} {first} ON ck = {first}.key "
            f"JOIN {{customer}} {second} ON ck = {second}.key WHERE d.region = 'EUROPE'"
        )
        explained = _equals_duckdb(statement, facts=facts, customer=customer)
        assert f"attributes of '{customer.uri}': \"region\" = 'EUROPE': 2 files skipped" in explained


@pytest.mark.parametrize(
    ("key", "hop", "pruned"),
    [("id", "id", True), ("k", "k", False), ("客", "客", False)],
)
def test_keys_of_one_name(tmp_path: Path, key: str, hop: str, pruned: bool) -> None:
    """DuckDB's plan prints the keys of all tables by that name, of which a letter has two spellings at most."""
    nation = zskip.write(pa.table({hop: range(4), "zone": ["n", "s", "n", "e"]}), tmp_path / "nation", by=[hop])
    rows = {key: range(40), f"to_{hop}": [number % 4 for number in range(40)]}
    customer = zskip.write(pa.table(rows), tmp_path / "customer", by=[key])
    given = pa.table({key: [number * 7 % 40 for number in range(800)], "v": range(800)})
    joins = {"customer": (customer, {key: key}), "nation": (nation, {f"customer.to_{hop}": hop})}
    facts = zskip.write(given, tmp_path / "facts", by=["nation.zone"], joins=joins, files=3)
    for statement in (
        f"FROM {{facts}} f JOIN {{customer}} c ON f.{key} = c.{key} JOIN {{nation}} n ON to_{hop} = n.{hop}",
        f"FROM {{nation}} n JOIN {{customer}} c ON to_{hop} = n.{hop} LEFT JOIN {{facts}} f ON f.{key} = c.{key}",
    ):
        text = f"SELECT count(*), sum(v) {statement} WHERE zone = 'e'"
        explained = _equals_duckdb(text, facts=facts, customer=customer, nation=nation)
        assert ("'e': 2 files skipped" in explained) == pruned
        named = text.format(facts="facts", customer="customer", nation="nation")
        found, _ = star_workload([named], given_joins(joins), "facts", Schema(given.schema), None)
        assert list(found) == (["\"nation.zone\" = 'e'"] if pruned else [])


def test_a_dimension_that_a_plan_reads_through_a_cte(tmp_path: Path, con: duckdb.DuckDBPyConnection) -> None:
    facts, customer = _facts(tmp_path), zskip.open(tmp_path / "customer")
    for statement in (
        "SELECT count(*), sum(f.v) FROM {facts} f JOIN {customer} c ON ck = k WHERE region = 'EUROPE' "
        "AND f.v < (SELECT 2 * avg(g.v) FROM {facts} g WHERE g.ck = c.k)",
        "SELECT k, (SELECT count(*) FROM {facts} f WHERE ck = k) FROM {customer} WHERE region = 'EUROPE'",
        "SELECT sum(n) FROM {customer}, LATERAL (SELECT sum(v) AS n FROM {facts} WHERE ck = k) WHERE region = 'EUROPE'",
        "WITH d AS MATERIALIZED (FROM {customer} WHERE region = 'EUROPE') SELECT (SELECT count(*) FROM {facts} f JOIN "
        "d ON ck = k), (SELECT sum(v) FROM {facts} g JOIN d ON ck = k)",
    ):
        explained = _equals_duckdb(statement, con, facts=facts, customer=customer)
        assert explained.count("\"region\" = 'EUROPE': 2 files skipped") == statement.count("{facts}"), statement
    # Facts that are scanned twice, of which the dimension joins one scan.
    joined = "FROM d JOIN {customer} c ON ck = k WHERE region = 'EUROPE' AND v < 50"
    for how in ("", "MATERIALIZED", "NOT MATERIALIZED"):
        for text in (
            f"SELECT count(*) {joined} UNION ALL SELECT sum(v) FROM d WHERE v >= 50",
            f"SELECT (SELECT count(*) {joined}), (SELECT sum(v) FROM d WHERE v >= 50)",
        ):
            _equals_duckdb(f"WITH d AS {how} (FROM {{facts}} f) {text}", con, facts=facts, customer=customer)


def test_a_dimension_on_the_way_to_another_changes(tmp_path: Path) -> None:
    nation = zskip.write(pa.table({"nk": [1, 2], "zone": ["north", "south"]}), tmp_path / "nation", by=["nk"])
    people = pa.table({"key": [1, 2, 3], "nation": [1, 2, 2]})
    customer = zskip.write(people, tmp_path / "customer", by=["key"])
    joins = {"customer": (customer, {"ck": "key"}), "nation": (nation, {"customer.nation": "nk"})}
    rows = pa.table({"ck": [1, 2, 3] * 40, "v": range(120)})
    facts = zskip.write(rows, tmp_path / "facts", by=["nation.zone"], joins=joins, files=2)

    def explained() -> str:
        statement = (
            "SELECT count(*), sum(v) FROM {facts} f JOIN {customer} c ON ck = key JOIN {nation} n ON c.nation = nk "
            "WHERE zone = 'north'"
        )
        return _equals_duckdb(statement, facts=facts, customer=customer, nation=nation)

    assert "'north': 1 file skipped" in explained()
    customer.upsert(pa.table({"key": [2], "nation": [1]}), on="key")
    assert "has changed since" in explained()
    facts.refresh_joins()
    assert "are not used" not in explained()


def test_an_attribute_changes_its_type(tmp_path: Path) -> None:
    rows = pa.table({"k": [1, 2], "year": pa.array([1990, 1995], pa.int16())})
    customer = zskip.write(rows, tmp_path / "customer", by=["k"])
    facts = _facts(tmp_path, by=["customer.year"])
    assert facts._index.snapshot.dimensions[0].attributes.field("year").type == pa.int16()
    customer.append(pa.table({"k": [3], "year": [70_000]}))
    assert customer.schema.field("year").type == pa.int64()
    statement = "SELECT count(*), sum(v) FROM {{facts}} f JOIN {{customer}} c ON ck = k WHERE {0}"
    for condition in ("year = 70000", "year > 1993", "year <> 1990", "year < -70000"):
        explained = _equals_duckdb(statement.format(condition), facts=facts, customer=customer)
        assert "year was int16 when the facts were written, and is int64" in explained
    customer.overwrite(pa.table({"k": [1, 2], "year": ["1995", "1990"]}))
    for condition in ("year = '1995'", "year < '2'", "starts_with(year, '19')"):
        _equals_duckdb(statement.format(condition), facts=facts, customer=customer)


@pytest.mark.parametrize("indexed", [False, True])
def test_a_dimension_without_versions_is_not_used(tmp_path: Path, indexed: bool) -> None:
    """The table that a statement joins may have other rows than the Arrow table or folder that the writer joined."""
    without_versions: object = CUSTOMERS
    if indexed:
        (tmp_path / "folder").mkdir()
        pq.write_table(CUSTOMERS, tmp_path / "folder" / "0.parquet")
        without_versions = zskip.index(tmp_path / "folder")
    facts = _facts(tmp_path, joins={"customer": (without_versions, {"ck": "k"})})
    customer = zskip.write(SWAPPED, tmp_path / "other", by=["k"])
    explained = _equals_duckdb(EUROPEAN, facts=facts, customer=customer)
    assert "they are of no version of it" in explained


def test_a_delta_dimension_is_replaced_by_another_table(tmp_path: Path) -> None:
    """The new table has a version of the same number, whose files are still its own."""
    path = tmp_path / "customer"
    write_deltalake(path, CUSTOMERS)
    facts = _facts(tmp_path)
    shutil.rmtree(path)
    write_deltalake(path, SWAPPED)
    write_deltalake(path, CUSTOMERS.slice(0, 1).set_column(0, "k", pa.array([4])), mode="append")
    why = _equals_duckdb(EUROPEAN, facts=facts, customer=zskip.open(path))
    assert "the version of which they are is gone" in why


@pytest.mark.parametrize("key", [["a", "b", "c"], [1, 2, 3]])
def test_facts_change_while_a_dimension_cannot_be_joined(tmp_path: Path, key: list[object]) -> None:
    """It is gone, or its keys are of another type."""
    customer = zskip.write(pa.table({"k": key, "region": ["r1", "r2", "r3"]}), tmp_path / "customer", by=["k"])
    rows = pa.table({"ck": key * 40, "v": range(120)})
    joins = {"customer": (customer, {"ck": "k"})}
    facts = zskip.write(rows, tmp_path / "facts", by=["customer.region"], joins=joins, files=3)
    others = [f"x{each}" for each in key] if isinstance(key[0], int) else [1, 2, 3]
    customer.overwrite(pa.table({"k": others, "region": ["r1", "r2", "r3"]}))
    facts.append(rows)
    shutil.rmtree(tmp_path / "customer")
    facts.append(rows)
    facts.delete("v = 7")
    assert facts.plan().count() == 357


def test_an_append_that_meets_other_dimensions(tmp_path: Path) -> None:
    """Attributes of the same name may be by other keys then."""
    table = _facts(tmp_path)
    before, rows = table._index.snapshot, of_table(pa.table({"ck": [1], "v": [2]}))
    joins = {"customer": (tmp_path / "customer", {"v": "k"})}
    zskip.write(table.plan().to_arrow(), table.uri, by=["customer.region"], joins=joins, mode="overwrite", files=4)
    with pytest.raises(zskip.CommitConflict, match="other dimensions"):
        append.append(table._index.storage, before, rows, WriteOptions())
    facts, customer = zskip.open(table.uri), zskip.open(tmp_path / "customer")
    facts.append(pa.table({"ck": [1], "v": [2]}))
    statement = "SELECT count(*) FROM {facts} f JOIN {customer} c ON v = k WHERE region = 'EUROPE'"
    assert "files skipped" in _equals_duckdb(statement, facts=facts, customer=customer)


def test_refresh_joins_makes_stale_attributes_current(tmp_path: Path) -> None:
    table = _facts(tmp_path)
    customer = zskip.open(tmp_path / "customer")
    customer.append(pa.table({"k": [9], "region": ["AFRICA"]}))
    facts, dimension = tmp_path / "facts", tmp_path / "customer"
    statement = f"SELECT count(*) FROM '{facts}' f JOIN '{dimension}' c ON f.ck = c.k WHERE c.region = 'AFRICA'"
    assert zskip.sql(statement).fetchall() == [(20,)]
    before = table.plan().paths
    assert table.refresh_joins().files == len(before)
    assert table.refresh_joins().files == 0
    assert table.plan().paths == before
    assert zskip.sql(statement).fetchall() == [(20,)]
    assert "are not used" not in zskip.explain(statement)
    assert "Every proof held" in str(table.verify())


def test_verify_finds_attributes_that_leave_out_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = star._found
    with monkeypatch.context() as patched:
        patched.setattr(star, "_found", lambda keys, values: pa.array([1, 2, 0]).take(find(keys, values)))
        table = _facts(tmp_path)
    report = table.verify(random=0)
    assert report.attributes
    assert not report.clean
    assert "the ranges of its attributes leave out a row" in str(report)
    assert main(["verify", str(tmp_path / "facts"), "--predicates", "0"]) == 1


def test_info_shows_the_dimensions_and_how_old_their_attributes_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown() -> str:
        main(["info", table.uri])
        return next(line for line in capsys.readouterr().out.splitlines() if line.startswith("dimensions"))

    table = _facts(tmp_path)
    files = len(table.plan().paths)
    assert shown().endswith(f"customer: region ({tmp_path / 'customer'}, current in all files)")
    zskip.open(tmp_path / "customer").append(pa.table({"k": [9], "region": ["AFRICA"]}))
    assert shown().endswith(f"stale in {files} files)")
    shutil.rmtree(tmp_path / "customer")
    assert shown().endswith("which cannot be read)")
    shutil.rmtree(tmp_path / "facts")
    table = _facts(tmp_path, joins={"customer": (CUSTOMERS, {"ck": "k"})})
    assert shown().endswith("rows without versions: they prune nothing)")


def test_doctor_says_what_refresh_joins_would_do(tmp_path: Path) -> None:
    table = _facts(tmp_path)
    files = len(table.plan().paths)

    def advice() -> list[str]:
        return [each for each in doctor(table.uri).advice if "dimension" in each]

    assert advice() == []
    zskip.open(tmp_path / "customer").append(pa.table({"k": [9], "region": ["AFRICA"]}))
    (changed,) = advice()
    assert f"customer has changed since its attributes were computed for {files} of the files" in changed
    assert "If it names a reason why the dimension cannot be joined any more, mend" in changed
    table.refresh_joins()
    assert advice() == []
    shutil.rmtree(tmp_path / "customer")
    (gone,) = advice()
    assert f"customer, {tmp_path / 'customer'}, cannot be read" in gone


def test_a_dimension_that_cannot_be_joined_any_more_is_named(tmp_path: Path) -> None:
    """refresh_joins and tend counted 0 files, and verify said that every proof held."""
    table = _facts(tmp_path)
    (key,) = CUSTOMERS["k"].slice(0, 1).to_pylist()
    zskip.open(tmp_path / "customer").append(pa.table({"k": [key], "region": ["TWICE"]}))
    done = table.refresh_joins()
    assert done.files == 0
    assert "customer cannot be joined" in done.unjoined[0]
    assert "more than one row with the key" in done.unjoined[0]
    assert "customer cannot be joined" in str(table.tend())
    report = str(table.verify(random=3))
    assert "Attributes not checked: customer cannot be joined" in report
    assert "Every proof that was checked held." in report


def test_a_table_that_is_its_own_dimension_is_refreshed_once(tmp_path: Path) -> None:
    """Each refresh made a version of its own dimension, which the next refresh took for a change."""
    staff = pa.table({"id": range(40), "boss": [number // 4 for number in range(40)], "unit": ["a", "b"] * 20})
    path = tmp_path / "staff"
    zskip.write(staff, path, by="id", files=8)
    joins = {"boss": (path, {"boss": "id"})}
    table = zskip.write(staff, path, by=["boss.unit", "id"], joins=joins, files=8, mode="overwrite")
    table.append(pa.table({"id": [40], "boss": [39], "unit": ["a"]}))
    assert table.refresh_joins().files == len(table.plan().paths)
    assert table.refresh_joins().files == 0
    assert "nothing was due" in str(table.tend())
    statement = f"SELECT sum(s.id) FROM '{path}' s JOIN '{path}' b ON s.boss = b.id WHERE b.unit = 'b'"
    assert zskip.sql(statement).fetchall() == [(sum(number for number in range(40) if number // 4 % 2) + 40,)]


@pytest.mark.parametrize("rows", [False, True])
def test_no_layout_is_lost_with_its_dimension(tmp_path: Path, rows: bool) -> None:
    """Files were laid out anew by attributes that were NULL in every row, and nothing was skipped any more."""
    table = _facts(tmp_path, **({"joins": {"customer": (CUSTOMERS, {"ck": "k"})}} if rows else {}))
    shutil.rmtree(tmp_path / "customer")
    for _ in range(12):
        table.append(table.to_arrow().slice(0, 20))
    before = table.plan().paths
    for rewrite in (lambda: table.optimize(full=True), table.optimize, lambda: zskip.cluster(table.uri, files=2)):
        with pytest.raises(zskip.InvalidOption, match=r"laid out by customer\.region, and customer cannot be joined: "):
            rewrite()
    (left,) = [step.left for step in table.tend().steps if step.name == "optimize"]
    assert left is not None
    assert "customer cannot be joined" in left
    assert zskip.open(table.uri).plan().paths == before
    done = table.optimize(full=True, dry_run=True)
    assert (done.dry_run, done.files_rewritten) == (True, len(before))
    assert zskip.cluster(table.uri, by=["v"]).files_rewritten == len(before)


def test_a_workload_names_the_facts_that_are_their_own_dimension(tmp_path: Path) -> None:
    staff = pa.table({"id": range(40), "boss": [number // 4 for number in range(40)], "unit": ["a", "b"] * 20})
    path = tmp_path / "staff"
    zskip.write(staff, path, by="id")
    workload = [
        "SELECT sum(s.id) FROM staff s JOIN chief c ON s.boss = c.id WHERE c.unit = 'a'",
        "SELECT sum(s.id) FROM staff s JOIN staff b ON s.boss = b.id WHERE b.unit = 'b'",
    ]
    texts, _ = star_workload(
        workload, given_joins({"chief": (path, {"boss": "id"})}), "staff", Schema(staff.schema), None
    )
    assert texts == ("\"chief.unit\" = 'a'", "\"chief.unit\" = 'b'", "\"unit\" = 'b'")


def test_a_dimension_with_other_types_is_named_with_them(tmp_path: Path) -> None:
    table = _facts(tmp_path)
    zskip.write(pa.table({"k": [1], "region": [7]}), tmp_path / "customer", by="k", mode="overwrite")
    assert (
        "region was string when the facts were written, and is int64; zskip.write(" in table.refresh_joins().unjoined[0]
    )


def test_tend_refreshes_the_attributes_of_a_changed_dimension(tmp_path: Path) -> None:
    table = _facts(tmp_path)
    assert "refreshed" not in str(table.tend())
    zskip.open(tmp_path / "customer").append(pa.table({"k": [9], "region": ["AFRICA"]}))
    assert "would refresh the attributes of" in str(table.tend(dry_run=True))
    assert "refreshed the attributes of" in str(table.tend())
    assert "refreshed" not in str(table.tend())


def test_tend_does_not_judge_a_layout_by_attributes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    facts = _facts(tmp_path)
    facts.query_log.start()
    for number in range(25):
        facts.plan(f"v = {number}")
    layout = facts.tend(recluster=True).steps[0]
    assert (layout.name, layout.done) == ("layout", "was not judged")
    assert layout.left == 'the layout is by "customer.region", and the log has no statements over dimensions'
    assert list(facts.clustering()) == ['"customer.region"']


def test_a_workload_of_statements_finds_the_attributes(tmp_path: Path) -> None:
    workload = ["SELECT sum(v) FROM facts, customer WHERE ck = k AND region = 'ASIA' AND v < 50"]
    table = _facts(tmp_path, by=None, workload=workload)
    assert set(table._index.snapshot.layout.columns) == {'"customer.region"', "v"}  # type: ignore[union-attr]


def test_a_table_is_laid_out_anew_by_a_workload_over_its_dimensions(tmp_path: Path) -> None:
    zskip.write(pa.table({"key": range(40), "a": [n % 5 for n in range(40)], "b": range(40)}), tmp_path / "d", by="key")
    facts = pa.table({"id": range(2000), "k": [n * 7 % 40 for n in range(2000)]})
    zskip.write(facts, tmp_path / "f", by=["d.a", "id"], joins={"d": (tmp_path / "d", {"k": "key"})}, files=10)
    text = f"SELECT count(*) FROM '{tmp_path}/f' f JOIN '{tmp_path}/d' d ON f.k = d.key WHERE "
    assert zskip.cluster(tmp_path / "f", workload=[text + "d.a = 2"]).files_rewritten == 10
    assert list(zskip.open(tmp_path / "f").clustering()) == ['"d.a"']
    assert zskip.sql(text + "d.a = 2").fetchall() == [(400,)]
    for other in ({"workload": [text + "d.b < 3"]}, {"by": ["d.b"]}):
        with pytest.raises(zskip.InvalidOption, match=r'keeps no ranges of "d\.b"\. zskip\.write with joins='):
            zskip.cluster(tmp_path / "f", **other)
    with pytest.raises(zskip.InvalidOption, match=r'keeps no ranges of "d\.b"\. zskip\.write with joins='):
        zskip.open(tmp_path / "f").overwrite(facts, by=["d.b"])


def test_a_workload_that_names_no_dimension_of_the_joins_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    workload = ["SELECT sum(v) FROM facts, customer WHERE ck = k AND region = 'ASIA' AND v < 50", "v < 7"]
    table = _facts(tmp_path)
    joins = {"custmer": (CUSTOMERS, {"ck": "k"})}
    table.advise(workload, joins=joins)
    assert "that read customer propose no attributes: joins= has no such dimension, only custmer" in caplog.text
    caplog.clear()
    table.advise(workload, joins={"customer": joins["custmer"]})
    assert caplog.text == ""


# A statement, the conditions on the facts' own columns and attributes that are taken from it, and a warning.
OVER_DIMENSIONS: list[tuple[str, list[str], str]] = [
    ("SELECT sum(v) FROM f, d, dim x WHERE fk = d.dk AND d.cat = 'c1'", ["\"d.cat\" = 'c1'"], ""),
    ("WITH a AS (FROM d WHERE cat = 'c1') SELECT v FROM f, a WHERE fk = dk", ["\"d.cat\" = 'c1'"], ""),
    ("WITH a AS (FROM d WHERE cat = 'c1') SELECT v FROM f JOIN a ON f.v = a.dk", [], "on d propose no attributes"),
    ("SELECT v FROM f, d, o WHERE fk = dk AND d.cat = 'c1' AND f.cat = 2 AND v < 9", ["cat = 2 AND v < 9"], "on d"),
    ("SELECT v FROM f, 'lake/dim' x WHERE v = x.dk AND x.cat = 'c1'", [], "on lake/dim propose no attributes"),
    ("SELECT v FROM f WHERE EXISTS (FROM d WHERE cat = 'c1' AND f.nothing = dk)", [], "on d propose"),
    ("SELECT dk FROM d WHERE cat = 'c1'", [], ""),
    ("cat = 3", ["cat = 3"], ""),
    ("\"d.cat\" = 'c1'", ["\"d.cat\" = 'c1'"], ""),
]


def test_a_workload_does_not_take_a_column_of_a_dimension_for_one_of_the_facts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a statement without a plan, or without a join by the keys, each column of that name was the facts'."""
    zskip.write(pa.table({"dk": range(9), "cat": [f"c{n % 3}" for n in range(9)]}), tmp_path / "dim", by=["dk"])
    facts = pa.table({"fk": [1, 2, 3], "cat": [1, 2, 3], "v": [1, 2, 3]})
    joins = given_joins({"d": (str(tmp_path / "dim"), {"fk": "dk"})})
    for statement, texts, warning in OVER_DIMENSIONS:
        caplog.clear()
        found, read = star_workload([statement, "SELECT * FROM f WHERE v = 1"], joins, "f", Schema(facts.schema), None)
        assert [text for text in found if text != '"v" = 1'] == texts
        assert read[0].attributes == (("cat",) if "d.cat" in str(texts) else ())
        assert warning in caplog.text
        assert warning or not caplog.text


def test_a_workload_that_leaves_no_condition_is_refused(tmp_path: Path) -> None:
    table = _facts(tmp_path)
    for query, message in (
        ("SELECT v FROM facts, customer c WHERE facts.v = c.k AND c.region = 'ASIA'", "an attribute of a dimension"),
        ("customer.region = 'ASIA'", "put it in quotes"),
    ):
        with pytest.raises(ValueError, match=message):
            table.advise([query])


def test_a_workload_tells_the_roles_of_a_table_by_its_joins(tmp_path: Path) -> None:
    """Statements name a table by its path, however many roles it has."""
    nation = str(tmp_path / "nation")
    zskip.write(pa.table({"nk": [1, 2, 3], "zone": ["north", "south", "west"]}), nation, by=["nk"])
    joins = {"buyer": (nation, {"a": "nk"}), "seller": (nation, {"b": "nk"})}
    workload = [
        f"SELECT sum(v) FROM facts JOIN '{nation}' n ON b = n.nk WHERE n.zone = 'south'",
        "SELECT sum(v) FROM facts, nation n, nation m WHERE a = n.nk AND b = m.nk AND n.zone = 'north' AND v < 9 "
        "AND v > (SELECT avg(g.v) FROM facts g WHERE g.v > 5)",
    ]
    texts, found = star_workload(workload, given_joins(joins), "facts", Schema(FACTS.schema), None)
    assert [text.replace('"', "") for text in texts] == [
        "seller.zone = 'south'",
        "(v < 9) AND (buyer.zone = 'north')",
        "v > 5",
    ]
    assert [join.attributes for join in found] == [("zone",), ("zone",)]
    table = zskip.write(FACTS, tmp_path / "facts", workload=workload, joins=joins, files=6)
    assert set(table._index.snapshot.layout.columns) == {'"seller.zone"', '"buyer.zone"', "v"}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"joins": {"c": (pa.table({"k": [1, 1], "region": ["A", "B"]}), {"ck": "k"})}}, "more than one row.*k = 1"),
        ({"joins": {"c": (CUSTOMERS, {"ck": "key"})}}, 'has no column "key"'),
        ({"joins": {"c": (CUSTOMERS.slice(0, 2), {"ck": "region"})}}, "keys are integers, or strings"),
        ({"joins": {"c": CUSTOMERS}}, "joins= has no dimension and keys for 'c'"),
        ({"joins": {"c": (CUSTOMERS, {"ck": 1})}}, "joins= has no dimension and keys for 'c'"),
        ({"joins": {"a.c": (CUSTOMERS, {"ck": "k"})}}, "names a dimension 'a.c': give it a name without a dot"),
        (
            {"joins": {"c": (pa.table({"k": [{"a": 1}], "region": ["A"]}), {"ck": "k"})}},
            "with k, struct<a: int64>: keys are",
        ),
        (
            {"joins": {"c": (CUSTOMERS.set_column(0, "k", CUSTOMERS["k"].cast("uint64")), {"ck": "k"})}},
            "ck, int64, with k, uint64: .* uint64 is compared with uint64 alone: cast one of the two",
        ),
        ({"joins": {"a": (CUSTOMERS, {"b.k": "k"}), "b": (CUSTOMERS, {"a.k": "k"})}}, "in a circle"),
        ({"joins": {"c": (CUSTOMERS, {"c.k": "k"})}}, '"c.k" reads as a column of the dimension "c" itself'),
        ({"joins": {"c": (CUSTOMERS, {"ck": "k", "v": "k"})}}, "several columns with one key of 'c'"),
        ({"mode": "append"}, "joins the table's own dimensions"),
    ],
)
def test_joins_that_cannot_be_are_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    if "mode" in change:
        _facts(tmp_path)
    with pytest.raises(zskip.InvalidOption, match=message):
        _facts(tmp_path, **{"by": ["c.region"] if "joins" in change else ["customer.region"], **change})
    assert not change.get("joins") or not (tmp_path / "facts").exists()


def test_a_misspelt_attribute_is_suggested(tmp_path: Path) -> None:
    for name, meant in {
        "custmer.region": "customer.region",
        "CUSTOMER.REGION": "customer.region",
        "customer.regoin": "region",
        "ckk": "ck",
        "no": "ck, v, customer.k, customer.region",
    }.items():
        with pytest.raises(ValueError, match=f'(Did you mean "|There are: ){meant}'):
            _facts(tmp_path, by=[name])


def test_a_field_of_a_struct_is_no_attribute(tmp_path: Path) -> None:
    """The writer took one for the other, and raised a KeyError."""
    facts = pa.table({"ck": [1, 2], "c": [{"region": "x"}, {"region": "y"}]})
    with pytest.raises(zskip.InvalidOption, match=r'"c\.region" already: give the dimension another name'):
        zskip.write(facts, tmp_path / "facts", by=["c.region"], joins={"c": (CUSTOMERS, {"ck": "k"})})


def test_names_that_the_index_has_for_a_dimension_are_refused(tmp_path: Path) -> None:
    """An append raised a KeyError, or its rows had the statistics of the dimension's version."""
    table = _facts(tmp_path)
    for name in ("customer.region", "Customer.Region", "customer.#version"):
        rows = pa.table({"ck": [1], "v": [1], name: ["x"]})
        for change in (table.append, table.overwrite, functools.partial(table.upsert, on="v")):
            with pytest.raises(zskip.InvalidOption, match="Rename that column"):
                change(rows)
    assert zskip.open(tmp_path / "facts").version == 1


def test_a_column_of_the_rows_is_not_taken_for_an_attribute(tmp_path: Path) -> None:
    zskip.write(CUSTOMERS, tmp_path / "c", by="k")
    joins = {"c": (str(tmp_path / "c"), {"ck": "k"})}
    facts = pa.table({"ck": [1, 2], "c.region": ["x", "y"]})
    with pytest.raises(zskip.InvalidOption, match=r'have a column "c\.region" already'):
        zskip.write(facts, tmp_path / "facts", by=["c.region"], joins=joins)


def test_the_name_of_a_version_is_taken(tmp_path: Path) -> None:
    dimension = CUSTOMERS.append_column("#version", CUSTOMERS["k"])
    facts = pa.table({"ck": [1, 2], "c.#version": ["x", "y"]})
    for rows, by in ((facts, "c.region"), (facts.select(["ck"]), "c.#version")):
        with pytest.raises(zskip.InvalidOption, match="Rename that column"):
            zskip.write(rows, tmp_path / "new", by=[by], joins={"c": (dimension, {"ck": "k"})})
    assert not (tmp_path / "new").exists()


def test_a_dimension_does_not_qualify_a_column_of_the_facts(tmp_path: Path) -> None:
    """The name before the dot was passed over, and facts were deleted by their own column."""
    table, where = _facts(tmp_path), "customer.v < 3"
    table.append(pa.table({"ck": [1], "v": [0], "part": [{"x": 1}]}))
    for act in (
        lambda: table.plan(where),
        lambda: table.delete(where),
        lambda: table.verify(where),
        lambda: zskip.read(table.uri, where=where),
        lambda: table.plan(where, dialect="spark"),
        lambda: table.plan(f"f.v > 3 AND main.{where}"),
        lambda: table.plan(where.upper()),
        lambda: table.plan("customer.part.x < 3"),
        lambda: table.plan("\"customer.region\" = 'ASIA'"),
        lambda: table.plan(duckdb.ColumnExpression("customer", "v") < 3),
        lambda: main(["delete", table.uri, where, "--traceback"]),
    ):
        with pytest.raises(zskip.UnknownColumn, match=r"is a dimension: .*zskip\.sql joins"):
            act()
    assert zskip.open(table.uri).count() == 101
    assert table.plan("facts.v < 3").count() == 4
    assert table.plan("f.part.x < 3").count() == 1


def test_a_struct_may_be_named_as_a_dimension_is(tmp_path: Path) -> None:
    facts = pa.table({"ck": [1, 2], "c": [{"v": 7}, {"v": 8}], "v": [8, 7]})
    table = zskip.write(facts, tmp_path / "facts", by=["v"], joins={"c": (CUSTOMERS, {"ck": "k"})})
    assert table.plan("c.v = 7").to_arrow().equals(facts.slice(0, 1))
    assert table.plan("f.c.v = 7").to_arrow().equals(facts.slice(0, 1))


def test_rows_without_a_key_have_no_attributes(tmp_path: Path) -> None:
    """A column that is missing is NULL; it was a KeyError."""
    zskip.write(CUSTOMERS, tmp_path / "c", by="k")
    facts = pa.table({"ck": CUSTOMERS["k"], "v": range(len(CUSTOMERS))})
    joins = {"c": (str(tmp_path / "c"), {"ck": "k"})}
    table = zskip.write(facts, tmp_path / "facts", by=["c.region"], joins=joins, files=2)
    assert table.append(facts.select(["v"])).rows == len(CUSTOMERS)
    assert table.count() == 2 * len(CUSTOMERS)
    (region,) = CUSTOMERS["region"].slice(0, 1).to_pylist()
    joined = (
        f"SELECT count(*) FROM '{tmp_path}/facts' f JOIN '{tmp_path}/c' c ON f.ck = c.k WHERE c.region = '{region}'"
    )
    assert zskip.sql(joined).fetchall() == [(CUSTOMERS["region"].to_pylist().count(region),)]


def test_a_null_key_is_not_the_key_zero(tmp_path: Path) -> None:
    zskip.write(pa.table({"k": [0, 1, 2], "region": ["ASIA", "EUROPE", "ASIA"]}), tmp_path / "c", by="k")
    joins = {"c": (str(tmp_path / "c"), {"ck": "k"})}
    facts = pa.table({"ck": [None, 0, 1, None]})
    table = zskip.write(facts, tmp_path / "facts", by=["c.region"], joins=joins, files=1)
    path = '"c.region"'
    (nulls,) = table._index.file_statistics(np.arange(1), [path]).columns[path].null_count.to_pylist()
    assert nulls == 2


def test_keys_of_an_indexed_folder_may_be_large_strings(tmp_path: Path) -> None:
    """As polars writes them."""
    (tmp_path / "d").mkdir()
    dimension = pa.table({"key": pa.array(["a", "b"], pa.large_string()), "name": ["x", "y"]})
    pq.write_table(dimension, tmp_path / "d" / "0.parquet")
    zskip.index(tmp_path / "d")
    rows = pa.table({"of": ["a", "b", "c"], "n": [1, 2, 3]})
    zskip.write(rows, tmp_path / "facts", by=["d.name"], joins={"d": (tmp_path / "d", {"of": "key"})}, files=3)
    statement = f"SELECT n FROM '{tmp_path}/facts' f JOIN '{tmp_path}/d' d ON f.of = d.key WHERE d.name = 'y'"
    assert zskip.sql(statement).fetchall() == [(2,)]


def test_appended_keys_may_be_null_of_no_type(tmp_path: Path) -> None:
    zskip.write(pa.table({"key": ["a", "b"], "name": ["x", "y"]}), tmp_path / "d", by="key")
    rows = pa.table({"of": ["a", "b", "a"], "n": [1, 2, 3]})
    joins = {"d": (tmp_path / "d", {"of": "key"})}
    table = zskip.write(rows, tmp_path / "facts", by=["d.name"], joins=joins, files=2)
    table.append([{"of": None, "n": 4}])
    assert table.verify().clean
    statement = f"SELECT n FROM '{tmp_path}/facts' f LEFT JOIN '{tmp_path}/d' d ON f.of = d.key WHERE d.name IS NULL"
    assert zskip.sql(statement).fetchall() == [(4,)]


POOLS: list[pa.MemoryPool] = []
"""Arrow frees memory through the pool that it came from, so a pool outlives all that it has given."""


def test_long_attributes_are_not_copied_to_each_fact(tmp_path: Path) -> None:
    """50 texts of 10,000 characters, each of 400 facts: 200 MB, if each fact had its own copy."""
    texts = pa.table({"k": range(50), "text": ["x" * 10_000 + f"{number:02}" for number in range(50)]})
    zskip.write(texts, tmp_path / "texts", by=["k"])
    rows = pa.table({"ck": [number * 7 % 55 for number in range(20_000)], "v": range(20_000)})
    joins = {"texts": (str(tmp_path / "texts"), {"ck": "k"})}
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    POOLS.append(counted)
    pa.set_memory_pool(counted)
    try:
        table = zskip.write(rows, tmp_path / "facts", by=["texts.text"], joins=joins, files=10)
    finally:
        pa.set_memory_pool(before)
    assert counted.max_memory() < 80e6
    assert sorted(table.to_arrow()["v"].to_pylist()) == list(range(20_000))
    assert not table.verify().attributes
