"""What patterns demand of a string that matches."""

from __future__ import annotations

import fnmatch
import re

from hypothesis import given
from hypothesis import strategies as st

from zskip.language.patterns import glob_pieces, like_pieces, regex_pieces

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
