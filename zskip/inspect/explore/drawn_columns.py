"""The columns that a picture of a plan shows."""

from __future__ import annotations

from zskip.language import Predicate
from zskip.tablelog import Snapshot


def drawn_columns(snapshot: Snapshot, predicate: Predicate | None, most: int) -> list[str]:
    """The paths of at most ``most`` orderable columns: first those of both the predicate and the layout, then those of
    the layout, of the predicate, and all others."""
    layout = () if snapshot.layout is None else snapshot.layout.columns
    read = sorted(predicate.columns) if predicate else []
    both = [path for path in read if path in layout]
    columns = snapshot.schema.columns
    wanted = dict.fromkeys([*both, *layout, *read, *columns])
    return [path for path in wanted if path in columns and columns[path].orderable][:most]
