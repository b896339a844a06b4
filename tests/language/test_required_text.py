"""What patterns demand of a string that matches, and the images of functions."""

from __future__ import annotations

import fnmatch
import re

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zskip.language.functions import in_image
from zskip.language.required_text import glob_pieces, like_pieces, regex_pieces
from zskip.language.tree import Call, Reference

_PARTS = ["ab", "c", ".", "d*", "e+", "f?", "g{2}", "h{0,1}", "[xy]", "[^z]+", "(i|j)", "(kl)*", r"\.", r"\d", "^", "$"]
_TEXTS = st.text(st.sampled_from("abcdefghijklxy.3"), max_size=14)


@given(st.lists(st.sampled_from(_PARTS), max_size=6).map("".join), st.data())
def test_a_regular_expression_demands_its_pieces(pattern: str, data: st.DataObject) -> None:
    matching = data.draw(st.from_regex(pattern, alphabet=st.sampled_from("abcdefghijklxy.3")) | _TEXTS)
    if re.search(pattern, matching):
        assert all(piece in matching for piece in regex_pieces(pattern))


def test_regular_expressions_that_are_not_read_demand_nothing() -> None:
    for pattern in [
        "abc|def",
        "(?i)abc",
        r"\Qa.b\E",
        r"\x41bc",
        "[[:alpha:]]abc",
        "[a&&[b]]cde",
        "abc(",
        "x{2",
        "a(b(?:c))",
    ]:
        assert regex_pieces(pattern) == [], pattern


@given(st.text(st.sampled_from("ab%_#"), max_size=8), _TEXTS)
def test_like_demands_its_pieces(pattern: str, text: str) -> None:
    pieces = like_pieces(pattern, "#")
    regex = "".join({"%": ".*", "_": "."}.get(one, re.escape(one)) for one in pattern)
    if "#" not in pattern and re.fullmatch(regex, text, re.DOTALL):
        assert all(piece in text for piece in pieces)
    assert like_pieces("a#%b%c", "#") == ["a%b", "c"]
    assert like_pieces("abc#d", "#") == []


@given(st.text(st.sampled_from("ab*?"), max_size=8), _TEXTS)
def test_glob_demands_its_pieces(pattern: str, text: str) -> None:
    if fnmatch.fnmatchcase(text, pattern):
        assert all(piece in text for piece in glob_pieces(pattern))


# --- the image of a function contains every value that DuckDB returns for it, and leaves out others ---


UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "decade")
MOMENTS = (
    "SELECT TIMESTAMP '0001-01-01' + INTERVAL (n * 37111) HOUR + INTERVAL (n * 7919337) MICROSECOND AS x "
    "FROM range(2300) r(n)"
)
INFINITE = "SELECT unnest(['infinity', '-infinity', '290000-01-01', '1969-12-31 23:59:59.9']::TIMESTAMP[]) AS x"


def call(function: str, type: pa.DataType, *options: object) -> Call:
    return Call(function, (Reference("x", type),), type, options)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("rows", [MOMENTS, INFINITE])
def test_a_beginning_of_a_unit_is_in_the_image(unit: str, rows: str) -> None:
    term = call("truncate", pa.timestamp("us"), unit, None)
    with duckdb.connect() as con:
        found = con.sql(f"SELECT x, date_trunc('{unit}', x) FROM ({rows})").to_arrow_table()
    assert all(in_image(term, value) for value in found.column(1))
    if rows is MOMENTS and unit != "decade":
        others = [value for value, begins in zip(*found.columns, strict=True) if value != begins]
        assert others
        assert not any(in_image(term, value) for value in others)


def test_a_last_day_is_in_the_image() -> None:
    term = call("last_day", pa.date32(), None)
    with duckdb.connect() as con:
        found = con.sql(f"SELECT x::DATE, last_day(x) FROM ({MOMENTS} UNION ALL {INFINITE})").to_arrow_table()
    assert all(in_image(term, value) for value in found.column(1))
    assert not in_image(term, pa.scalar(18_300, pa.date32()))


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_a_prefix_is_in_the_image(count: int) -> None:
    term = call("prefix", pa.string(), count)
    texts = ["", "a", "äö", "a\u0308bc", "𝄞𝄞𝄞", "👩‍👩‍👧", "abcdef"]
    with duckdb.connect() as con:
        found = con.sql(f"SELECT left(x, {count}) FROM (SELECT unnest(?) AS x)", params=[texts]).to_arrow_table()
    assert all(in_image(term, value) for value in found.column(0))
    assert not in_image(term, pa.scalar("x" * (count + 1)))


def test_values_of_unrestricted_terms_are_in_the_image() -> None:
    assert in_image(Reference("x", pa.int64()), pa.scalar(5))
    assert in_image(call("abs", pa.int64()), pa.scalar(-5))
    zoned = pa.timestamp("us", "UTC")
    assert in_image(call("truncate", zoned, "day", "Europe/Berlin"), pa.scalar(5, zoned))
    assert not in_image(call("truncate", zoned, "day", "UTC"), pa.scalar(5, zoned))
