"""The protocol of commits keeps its promises in every interleaving, and needs each of its rules."""

from __future__ import annotations

import pytest

from tests.tablelog.commit_model import RULES, search

GROUPS = [
    ("append1", "append2", "vacuum1"),
    ("append1", "restore1", "vacuum1"),
    ("rewrite1", "rewrite2", "vacuum1"),
    ("append1", "vacuum1", "vacuum2"),
]
LARGE = [
    ("append1", "append2", "vacuum1", "vacuum2"),
    ("append1", "restore1", "vacuum1", "vacuum2"),
    ("rewrite1", "rewrite2", "append1", "vacuum1"),
    pytest.param(("append1", "rewrite1", "restore1", "vacuum1", "vacuum2"), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("verbs", [*GROUPS, *LARGE])
def test_no_interleaving_breaks_a_promise(verbs: tuple[str, ...]) -> None:
    found = search(verbs)
    assert found.broken is None
    assert found.states > 100


@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_a_promise_breaks(rule: str) -> None:
    assert any(search(verbs, without=rule).broken for verbs in [*GROUPS, *LARGE[:3]])
