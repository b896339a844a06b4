"""docs/predicates.md says what the code's own tables say."""

from tests import ROOT
from zskip.language.functions.documentation import predicates_page

PAGE = ROOT / "docs" / "predicates.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == predicates_page(), "write predicates_page() to docs/predicates.md"
