"""The Star Schema Benchmark (O'Neil 2009): its 13 queries, and its tables as queries over those of TPC-H."""

from __future__ import annotations

import random
import re

__all__ = ["JOINS", "LAYOUTS", "QUERIES", "TABLES", "drawn"]

LAYOUTS = {
    "lineorder": ["lo_orderdate", "lo_custkey"],
    "customer": ["c_custkey"],
    "supplier": ["s_suppkey"],
    "part": ["p_partkey"],
    "dates": ["d_datekey"],
}

JOINS = {
    "customer": {"lo_custkey": "c_custkey"},
    "supplier": {"lo_suppkey": "s_suppkey"},
    "part": {"lo_partkey": "p_partkey"},
    "dates": {"lo_orderdate": "d_datekey"},
}
"""The keys by which the facts join each dimension."""

_DATE_KEY = "CAST(strftime({}, '%Y%m%d') AS INTEGER)"
_PLACE = "rpad(substr(n_name, 1, 9), 9, ' ') || ({} % 10) AS {}, n_name AS {}, r_name AS {}"

TABLES = {
    "dates": f"""
        SELECT {_DATE_KEY.format("day")} AS d_datekey, day AS d_date, year(day) AS d_year,
               CAST(strftime(day, '%Y%m') AS INTEGER) AS d_yearmonthnum, strftime(day, '%b%Y') AS d_yearmonth,
               CAST((dayofyear(day) - 1) // 7 + 1 AS INTEGER) AS d_weeknuminyear
        FROM (SELECT CAST(range AS DATE) AS day FROM range(DATE '1992-01-01', DATE '1999-01-01', INTERVAL 1 DAY))""",
    "customer": f"""
        SELECT c_custkey, c_name, c_address, c_mktsegment,
               {_PLACE.format("c_custkey", "c_city", "c_nation", "c_region")}
        FROM customer, nation, region WHERE c_nationkey = n_nationkey AND n_regionkey = r_regionkey""",
    "supplier": f"""
        SELECT s_suppkey, s_name, s_address, {_PLACE.format("s_suppkey", "s_city", "s_nation", "s_region")}
        FROM supplier, nation, region WHERE s_nationkey = n_nationkey AND n_regionkey = r_regionkey""",
    "part": """
        SELECT p_partkey, p_name, 'MFGR#' || p_brand[7] AS p_mfgr, 'MFGR#' || p_brand[7:8] AS p_category,
               'MFGR#' || p_brand[7:8] || (p_partkey % 40 + 1) AS p_brand1, p_type, p_size, p_container
        FROM part""",
    "lineorder": f"""
        SELECT l_orderkey AS lo_orderkey, l_linenumber AS lo_linenumber, o_custkey AS lo_custkey,
               l_partkey AS lo_partkey, l_suppkey AS lo_suppkey, {_DATE_KEY.format("o_orderdate")} AS lo_orderdate,
               CAST(l_quantity AS INTEGER) AS lo_quantity, CAST(l_extendedprice * 100 AS BIGINT) AS lo_extendedprice,
               CAST(l_discount * 100 AS INTEGER) AS lo_discount,
               CAST(l_extendedprice * (1 - l_discount) * 100 AS BIGINT) AS lo_revenue,
               CAST(p_retailprice * 60 AS BIGINT) AS lo_supplycost, CAST(l_tax * 100 AS INTEGER) AS lo_tax,
               l_shipmode AS lo_shipmode
        FROM lineitem, orders, part WHERE l_orderkey = o_orderkey AND l_partkey = p_partkey""",
}

_PROFIT = "sum(lo_revenue - lo_supplycost) AS profit"


def _discounts(condition: str) -> str:
    return f"""
        SELECT sum(lo_extendedprice * lo_discount) AS revenue FROM lineorder, dates
        WHERE lo_orderdate = d_datekey AND {condition}"""


def _brands(condition: str) -> str:
    return f"""
        SELECT sum(lo_revenue), d_year, p_brand1 FROM lineorder, dates, part, supplier
        WHERE lo_orderdate = d_datekey AND lo_partkey = p_partkey AND lo_suppkey = s_suppkey AND {condition}
        GROUP BY d_year, p_brand1 ORDER BY d_year, p_brand1"""


def _trade(customer: str, supplier: str, condition: str) -> str:
    return f"""
        SELECT {customer}, {supplier}, d_year, sum(lo_revenue) AS revenue FROM customer, lineorder, supplier, dates
        WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_orderdate = d_datekey AND {condition}
        GROUP BY {customer}, {supplier}, d_year ORDER BY d_year, revenue DESC, {customer}, {supplier}"""


def _profits(groups: str, condition: str) -> str:
    return f"""
        SELECT {groups}, {_PROFIT} FROM dates, customer, supplier, part, lineorder
        WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_partkey = p_partkey
          AND lo_orderdate = d_datekey AND {condition}
        GROUP BY {groups} ORDER BY {groups}"""


_CITIES = "c_city IN ('UNITED KI1', 'UNITED KI5') AND s_city IN ('UNITED KI1', 'UNITED KI5')"
_AMERICA = "c_region = 'AMERICA' AND s_region = 'AMERICA'"

QUERIES = {
    "1.1": _discounts("d_year = 1993 AND lo_discount BETWEEN 1 AND 3 AND lo_quantity < 25"),
    "1.2": _discounts("d_yearmonthnum = 199401 AND lo_discount BETWEEN 4 AND 6 AND lo_quantity BETWEEN 26 AND 35"),
    "1.3": _discounts(
        "d_weeknuminyear = 6 AND d_year = 1994 AND lo_discount BETWEEN 5 AND 7 AND lo_quantity BETWEEN 26 AND 35"
    ),
    "2.1": _brands("p_category = 'MFGR#12' AND s_region = 'AMERICA'"),
    "2.2": _brands("p_brand1 BETWEEN 'MFGR#2221' AND 'MFGR#2228' AND s_region = 'ASIA'"),
    "2.3": _brands("p_brand1 = 'MFGR#2239' AND s_region = 'EUROPE'"),
    "3.1": _trade(
        "c_nation", "s_nation", "c_region = 'ASIA' AND s_region = 'ASIA' AND d_year >= 1992 AND d_year <= 1997"
    ),
    "3.2": _trade(
        "c_city",
        "s_city",
        "c_nation = 'UNITED STATES' AND s_nation = 'UNITED STATES' AND d_year >= 1992 AND d_year <= 1997",
    ),
    "3.3": _trade("c_city", "s_city", f"{_CITIES} AND d_year >= 1992 AND d_year <= 1997"),
    "3.4": _trade("c_city", "s_city", f"{_CITIES} AND d_yearmonth = 'Dec1997'"),
    "4.1": _profits("d_year, c_nation", f"{_AMERICA} AND p_mfgr IN ('MFGR#1', 'MFGR#2')"),
    "4.2": _profits(
        "d_year, s_nation, p_category", f"{_AMERICA} AND d_year IN (1997, 1998) AND p_mfgr IN ('MFGR#1', 'MFGR#2')"
    ),
    "4.3": _profits(
        "d_year, s_city, p_brand1",
        "c_region = 'AMERICA' AND s_nation = 'UNITED STATES' AND d_year IN (1997, 1998) AND p_category = 'MFGR#14'",
    ),
}

_REGIONS = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"]
_NATIONS = ["ALGERIA", "ARGENTINA", "BRAZIL", "CHINA", "EGYPT", "FRANCE", "INDIA", "JAPAN", "PERU", "UNITED STATES"]
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def drawn(seed: int) -> list[str]:
    """The 13 queries with other constants: years, regions, nations, cities, months, weeks, categories and brands."""
    draw = random.Random(seed)

    def digits(match: re.Match[str]) -> str:
        # MFGR#, a manufacturer, a category of it, and a brand of that: the names of brands begin alike.
        name = match[1]
        return "'MFGR#" + "".join(str(draw.randint(1, 5)) for _ in name[:2]) + name[2:] + "'"

    replaced = [
        (r"'MFGR#(\d+)'", digits),
        (rf"'(?:{'|'.join(_REGIONS)})'", lambda _: f"'{draw.choice(_REGIONS)}'"),
        (r"'UNITED STATES'", lambda _: f"'{draw.choice(_NATIONS)}'"),
        (r"'UNITED KI(\d)'", lambda _: f"'{draw.choice(_NATIONS)[:9]:9}{draw.randint(0, 9)}'"),
        (r"d_year = \d+", lambda _: f"d_year = {draw.randint(1992, 1998)}"),
        (r"d_year IN \(1997, 1998\)", lambda _: f"d_year IN ({(year := draw.randint(1992, 1997))}, {year + 1})"),
        (r"199401", lambda _: f"{draw.randint(1992, 1998)}{draw.randint(1, 12):02d}"),
        (r"d_weeknuminyear = 6", lambda _: f"d_weeknuminyear = {draw.randint(1, 52)}"),
        (r"'Dec1997'", lambda _: f"'{draw.choice(_MONTHS)}{draw.randint(1992, 1998)}'"),
    ]
    texts = []
    for text in QUERIES.values():
        for pattern, by in replaced:
            text = re.sub(pattern, by, text)
        texts.append(text)
    return texts
