"""Constants of every type select the same rows as in DuckDB, however its plan prints them."""

from __future__ import annotations

import itertools
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

import zskip

CONSTANTS = {
    "VARCHAR": [
        *("''", "'it''s'", "'a\\x41b'", "'a\\'", "E'a\\nb'", "E'\\t'", "'é'", "'€'", "'ab'", "'cd'", "'AB'", "'a\"b'"),
        *("chr(1)", "chr(127)", "chr(65279)", "chr(8232)", "chr(1114111)", "'x' || chr(57344)", "'NULL'", "'a::BLOB'"),
        *("'1970-01-01'", "'''a''::BLOB'", "'zskip_0_0'", "'%'", "'_'", "'a%b'", "'$1'", "'?'", "'--'", "'/*'"),
    ],
    "BLOB": ["''::BLOB", "'ab'::BLOB", "'\\xAA\\x00a'::BLOB", "'a''b'::BLOB", "'\\x5C'::BLOB", "'\\xF4\\xBF'::BLOB"],
    "INTERVAL": [
        *("INTERVAL 1 YEAR", "INTERVAL 30 DAY", "INTERVAL 1 MONTH", "INTERVAL '1 day 00:00:01.5'"),
        *("INTERVAL 0 DAY", "INTERVAL 24 HOUR", "INTERVAL 1 DAY"),
    ],
    "DOUBLE": [
        *("'inf'::DOUBLE", "'-inf'::DOUBLE", "'nan'::DOUBLE", "0.0::DOUBLE", "-0.0::DOUBLE", "1e300", "5e-324", "0.1"),
        *("1e-7", "123456789012345680::DOUBLE", "9007199254740993::DOUBLE", "-1.5", "1.7976931348623157e308"),
    ],
    "FLOAT": [
        "'inf'::FLOAT",
        "'-inf'::FLOAT",
        "'nan'::FLOAT",
        "0.1::FLOAT",
        "16777217::FLOAT",
        "-0.0::FLOAT",
        "1e-45",
        "1e20::FLOAT",
        "1e-45::FLOAT",
        "3.4028235e38::FLOAT",
    ],
    "DATE": [
        *("'infinity'::DATE", "'-infinity'::DATE", "DATE '0044-03-15 (BC)'", "DATE '10000-01-01'", "DATE '2024-02-29'"),
        *("DATE '0001-01-01'", "DATE '9999-12-31'", "DATE '1969-12-31'"),
    ],
    "TIMESTAMP": [
        *("'infinity'::TIMESTAMP", "'-infinity'::TIMESTAMP", "TIMESTAMP '0044-03-15 (BC) 00:00:00'"),
        *("TIMESTAMP '2020-01-01 00:00:00.000001'", "TIMESTAMP '9999-12-31 23:59:59.999999'", "DATE '2020-01-01'"),
        *("TIMESTAMP '1969-12-31 23:59:59.5'", "TIMESTAMP '10000-01-01 00:00:00'", "TIMESTAMP '1600-01-01'"),
    ],
    "TIMESTAMP_S": ["'2020-01-01'::TIMESTAMP_S", "'1969-12-31 23:59:59'::TIMESTAMP_S", "'9999-12-31'::TIMESTAMP_S"],
    "TIMESTAMP_MS": ["'2020-01-01 00:00:00.001'::TIMESTAMP_MS", "'1969-12-31 23:59:59.999'::TIMESTAMP_MS"],
    "TIMESTAMP_NS": ["'2020-01-01 00:00:00.123456789'::TIMESTAMP_NS", "'1969-12-31 23:59:59.999999999'::TIMESTAMP_NS"],
    "TIMESTAMPTZ": [
        *("'2020-01-01 00:00:00+05'::TIMESTAMPTZ", "'1890-01-01 00:00:00+00'::TIMESTAMPTZ"),
        *("'infinity'::TIMESTAMPTZ", "'2024-10-27 00:30:00+00'::TIMESTAMPTZ", "'2024-10-27 01:30:00+00'::TIMESTAMPTZ"),
    ],
    "TIME": ["TIME '00:00:00'", "TIME '12:00:00.5'", "TIME '23:59:59.999999'"],
    "TIMETZ": ["'12:00:00+05'::TIMETZ", "'12:00:00-05:30'::TIMETZ", "'07:00:00+00'::TIMETZ"],
    "TINYINT": ["127::TINYINT", "(-128)::TINYINT", "0::TINYINT"],
    "UBIGINT": ["18446744073709551615::UBIGINT", "0::UBIGINT", "9223372036854775808::UBIGINT"],
    "BIGINT": ["9223372036854775807", "(-9223372036854775808)::BIGINT", "-1", "9007199254740993"],
    "HUGEINT": ["170141183460469231731687303715884105727::HUGEINT", "-5::HUGEINT", "0::HUGEINT"],
    "DECIMAL(38,10)": ["1.5", "1234567890123456789012345678.1234567891", "-0.0000000001", "0.0"],
    "DECIMAL(4,1)": ["1.5", "-999.9", "999.9", "0.0"],
    "BOOLEAN": ["true", "false"],
    "UUID": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::UUID", "'00000000-0000-0000-0000-000000000000'::UUID"],
    "STRUCT(a INT, b VARCHAR)": ["{'a': 1, 'b': 'it''s'}", "{'a': NULL, 'b': 'x\\x41'}", "{'a': 2, 'b': NULL}"],
    "INT[]": ["[1, 2]", "[NULL]", "[]", "[3]"],
    "VARCHAR[]": ["['it''s', 'a\\']", "[NULL, 'a']", "['']"],
    "MAP(VARCHAR, INT)": ["MAP {'a': 1}", "MAP {'it''s': NULL}"],
    "JSON": ["""'{"a":1}'::JSON""", "'[\"it''s\"]'::JSON", "'null'::JSON"],
}
PATTERNS = [
    *("SIMILAR TO '.*b'", "SIMILAR TO '.*b.*'", "SIMILAR TO 'a.*'", "SIMILAR TO '(ab|cd).*'", "SIMILAR TO 'é.*'"),
    *("SIMILAR TO '[a-c].'", "SIMILAR TO ''", "NOT SIMILAR TO 'a.*'", "SIMILAR TO '(?i)ab'", "SIMILAR TO 'a\\\\.*'"),
    *("LIKE 'a%'", "LIKE '%b'", "LIKE '_b'", "LIKE 'a\\x41%'", "LIKE 'é%'", "LIKE '€'", "ILIKE 'A%'", "GLOB 'a*'"),
    *("GLOB '[a-c]?'", "LIKE 'a\\%b' ESCAPE '\\'", "NOT LIKE 'a%'", "NOT ILIKE '%B'", "LIKE E'a\\n%'", "~ '.*b'"),
    *("LIKE chr(1114111) || '%'", "LIKE chr(127) || '%'", "LIKE 'x%'", "LIKE 'it''s%'", "LIKE '%' || chr(57344)"),
]
FUNCTIONS = ["regexp_full_match", "regexp_matches"]
EXPRESSIONS = [
    ".*b", "a.*", "(ab|cd).*", "^a", "b$", "é.*", "[^a].*", "(?i)AB", "a\\\\.*", ".", "", "[\\x{e9}€]", "it''s",
]  # fmt: skip


def _compared(folder: Path, con: duckdb.DuckDBPyConnection, type: str) -> list[str]:
    """The conditions on a table of some constants, one in each file, for which zskip and DuckDB select other rows."""
    path = str(folder / "t")
    values = CONSTANTS[type]
    con.execute(f"CREATE OR REPLACE TABLE plain (i BIGINT, a {type})")
    for number, value in enumerate([*values, "NULL"]):
        con.execute(f"INSERT INTO plain VALUES ({number}, {value})")
        (folder / "t").mkdir(exist_ok=True)
        con.execute(f"COPY (FROM plain WHERE i = {number}) TO '{path}/{number}.parquet' (FORMAT parquet)")
    zskip.index(path)
    # What a type loses in Parquet, such as the offset of TIMETZ, is no matter of constants.
    con.execute(f"CREATE OR REPLACE TABLE plain AS FROM read_parquet('{path}/*.parquet')")
    conditions = [f"a {op} {one}" for one in values for op in ("=", ">=")]
    conditions += [f"a IN ({one}, {other})" for one, other in itertools.pairwise(values)]
    if type == "VARCHAR":
        conditions += [f"a {pattern}" for pattern in PATTERNS]
        conditions += [f"{name}(a, '{text}')" for name in FUNCTIONS for text in EXPRESSIONS]
    differing = []
    for condition in conditions:
        query = f"SELECT i FROM TABLE_ WHERE {condition} ORDER BY i"
        wanted = con.sql(query.replace("TABLE_", "plain")).fetchall()
        found = zskip.sql(query.replace("TABLE_", f"'{path}'"), con).fetchall()
        if wanted != found:
            differing.append(f"{condition}: {found} for {wanted}")
    assert pq.ParquetFile(f"{path}/0.parquet").metadata.num_rows == 1
    return differing


@pytest.mark.parametrize(
    "type", [one if one == "BLOB" else pytest.param(one, marks=pytest.mark.slow) for one in CONSTANTS]
)
def test_constants_select_the_rows_that_they_select_in_duckdb(type: str, tmp_path: Path) -> None:
    with duckdb.connect() as con:
        assert _compared(tmp_path, con, type) == []


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Kolkata", "America/St_Johns"])
def test_constants_with_a_zone_under_another_zone_of_the_session(zone: str, tmp_path: Path) -> None:
    with duckdb.connect() as con:
        con.execute(f"SET TimeZone = '{zone}'")
        assert _compared(tmp_path, con, "TIMESTAMPTZ") == []
