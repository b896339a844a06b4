"""Layouts: which row goes to which file, so that a query's rows lie in few of them.

One idea carries every layout: row → cell → file. Cells are boxes that stand in an order; planned cuts group runs of
neighbouring cells into files. `fit` learns an `Assignment` from a sample: a pure function of a row's values.
"""

from zskip.layouts.assignment import Assignment
from zskip.layouts.fitting import LAYOUTS, fit
from zskip.layouts.reads import limit

__all__ = ["LAYOUTS", "Assignment", "fit", "from_json", "limit"]

from_json = Assignment.from_json
