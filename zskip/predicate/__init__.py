"""What a WHERE clause says of a table's columns: `bind` gives it as a `Predicate`, typed and normalised.

``tree``: the nodes and their constructors · ``literals``: constants that fit a column's type, or refuse ·
``sql``: the text · ``render``: the text of another dialect · ``functions``: what zskip knows of each function.
"""

from __future__ import annotations

from zskip.predicate.bound import Dialect, Predicate, conjunction
from zskip.predicate.sql import bind
from zskip.predicate.sql.source import Parameters

__all__ = ["Dialect", "Parameters", "Predicate", "bind", "conjunction"]
