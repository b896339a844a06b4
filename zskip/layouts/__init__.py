"""Layouts: the assignment of rows to files, chosen so that the rows of a query are in few files.

Every layout maps row → cell → file. Cells are boxes in a fixed order; planned cuts group runs of neighbouring cells
into files. `fit` learns an `Assignment` from a sample: a pure function of a row's values.
"""

from zskip.layouts.assignment import Assignment
from zskip.layouts.depth import ColumnDepth, depths
from zskip.layouts.fitting import LAYOUTS, Score, Share, fit, score
from zskip.layouts.reads import limit

__all__ = ["LAYOUTS", "Assignment", "ColumnDepth", "Score", "Share", "depths", "fit", "from_json", "limit", "score"]

from_json = Assignment.from_json
