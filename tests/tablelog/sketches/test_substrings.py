"""Keys of `substrings`, and the look-ups by pieces of texts in any case that they serve."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import zskip
from zskip.tablelog.sketches import SKETCHES, substrings

_LETTERS = "abAB éß\u212aKkſsİıi\0%_\\.*["
TEXTS = st.lists(st.none() | st.text(st.sampled_from(_LETTERS), max_size=9), max_size=9)
_IN_ANOTHER_CASE = str.maketrans({"\u212a": "k", "ſ": "s", "İ": "i", "ı": "i"})


def trigrams(text: str) -> set[bytes]:
    data = bytes(byte + 32 if 65 <= byte <= 90 else byte for byte in text.encode())
    return {data[start : start + 3] for start in range(len(data) - 2)}


@given(TEXTS)
def test_keys_are_the_trigrams_of_each_string_alone(texts: list[str | None]) -> None:
    expected = {
        one for text in texts if text is not None for one in trigrams(text) | trigrams(text.translate(_IN_ANOTHER_CASE))
    }
    sliced = pa.array(["zzzz", *texts], pa.string())[1:]
    for values in (
        pa.chunked_array([sliced]),
        pa.chunked_array([sliced[:2], sliced[2:].dictionary_encode().cast("str")]),
    ):
        found = substrings.keys(values) >> np.uint64(40)
        assert {int(one).to_bytes(3, "big") for one in found} == expected
        assert (np.diff(found.astype(np.int64)) > 0).all()


def test_letters_are_folded_as_engines_fold_them() -> None:
    con = duckdb.connect()
    others = [chr(code) for code in range(128, 0x10FFFF) if not 0xD800 <= code <= 0xDFFF]
    con.register("letters", pa.table({"c": others}))
    found = con.sql(
        "SELECT c FROM letters WHERE lower(c) < chr(128) OR c ILIKE '_' AND lower(upper(c)) < chr(128)"
    ).fetchall()
    assert {c for (c,) in found} <= {"\u212a", "ſ", "İ", "ı"}


def test_texts_compared_in_one_case_are_found_in_every_spelling(tmp_path: Path) -> None:
    texts = [
        "Éclair", "éCLAIR", "\u212aelvin", "Kelvin", "ſtraße", "STRASSE", "İstanbul", "ıstanbul", "ΣΊΣΥΦΟΣ", "ﬁnal",
        "ab", None,
    ]  # fmt: skip
    # Beside others, or the single value of a file would be tried by itself.
    rows = pa.table({"n": range(3 * len(texts)), "s": [s for text in texts for s in (text, "#", "~~")]})
    table = zskip.write(rows, tmp_path / "t", by="n", files=len(texts), sketches={"s": "substrings"})
    assert len(table.plan()) == len(texts)
    con = duckdb.connect()
    con.register("rows", rows)
    read = 0
    for case in ("lower", "upper"):
        wanted = con.sql(f"SELECT DISTINCT {case}(s) FROM rows WHERE s IS NOT NULL ORDER BY ALL").fetchall()
        for place, (text,) in enumerate(wanted):
            forms = f"{case}(s) = '{text}'", f"'{text}' = {case}(s)", f"{case}(s) IN ('{text}', 'nowhere', NULL)"
            where = forms[place % 3]
            plan = table.plan(where)
            expected = con.sql(f"SELECT n FROM rows WHERE {where} ORDER BY n").fetchall()
            assert plan.to_arrow(["n"])["n"].to_pylist() == [n for (n,) in expected], where
            read += len(plan) if len(text) > 3 else 0
    assert read < 6 * len(texts)
    assert len(table.plan("lower(s) = 'kelvin'")) == 2
    assert [len(table.plan(f"lower(s) {rest}")) for rest in ("= 'ab'", "<> 'kelvin'", "IN ('kelvin', 'ab')")] == [
        12
    ] * 3
    # Spark writes SS for ß in capitals.
    assert len(table.plan("upper(s) = 'STRASSE'", dialect="spark")) == 12
    assert len(table.plan("lower(s) = 'kelvin'", dialect="spark")) == 2


def test_look_ups_by_a_piece_of_text(tmp_path: Path) -> None:
    names = [f"host{n * 7919 % 10_007:05d}.example{n % 13}.org" for n in range(4000)]
    table = zskip.write(
        pa.table({"n": range(4000), "s": names}), tmp_path / "t", by="n", files=50, sketches={"s": "substrings"}
    )
    holder = names[77][2:8]
    truth = {n * 50 // 4000 for n, name in enumerate(names) if holder in name}
    plan = table.plan(f"s LIKE '%{holder}%'")
    assert len(truth) <= len(plan) <= 2 * len(truth) + 2
    assert len(table.plan(f"s ILIKE '%{holder.upper()}%'")) == len(plan)
    assert len(table.plan("contains(s, 'nowhere')")) == 0
    assert len(table.plan("contains(s, 'ab')")) == 50
    with pytest.raises(zskip.ZskipError, match="for strings"):
        table.add_sketches({"n": "substrings"})
    assert set(SKETCHES) == {"values", "substrings"}


def test_letters_beyond_ascii_are_found_in_either_case(tmp_path: Path) -> None:
    words = ["\u00c9COLE normale", "\u00e9cole normale", "plain text", "other words"] * 3
    rows = pa.table({"k": range(12), "s": words})
    table = zskip.write(rows, tmp_path / "t", by=["k"], files=6, sketches={"s": "substrings"})
    for text in ("\u00e9cole", "\u00c9COLE", "\u00c9cole NOR"):
        assert table.plan("s ILIKE ?", params=[f"%{text}%"]).count() == 6
    assert len(table.plan("s ILIKE '%nowhere%'")) == 0
