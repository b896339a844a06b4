"""TPC-H: its queries, and how the tests lay out its tables."""

from __future__ import annotations

import re

from tests import FIXTURES

# By what each table is laid out in the tests.
LAYOUTS = {
    "lineitem": ["l_shipdate", "l_partkey"],
    "orders": ["o_orderdate", "o_custkey", "o_orderkey"],
    "customer": ["c_custkey", "c_nationkey", "c_mktsegment"],
    "part": ["p_partkey", "p_brand", "p_size"],
    "partsupp": ["ps_partkey", "ps_suppkey"],
    "supplier": ["s_suppkey", "s_nationkey"],
    "nation": ["n_nationkey"],
    "region": ["r_regionkey"],
}

QUERIES = {
    int(number): text.strip()
    for number, text in re.findall(
        r"^-- (\d+)\n(.*?)(?=^-- |\Z)", (FIXTURES / "tpch.sql").read_text(), re.DOTALL | re.MULTILINE
    )
}
