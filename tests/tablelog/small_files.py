"""Data files of one column for tests of the log, which holds their statistics and never reads them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from zskip.core.schema import Schema
from zskip.stats import DataFiles, FileStatistics
from zskip.storage import Storage

SCHEMA = Schema(pa.schema({"a": pa.int64()}))


def data_file(storage: Storage, path: str) -> DataFiles:
    """One data file of four rows, which is put into the store."""
    storage.put(path, b"rows")
    one = FileStatistics(pa.array([4]), {})
    size, modified = pa.array([4]), pa.array([1])
    return DataFiles(pa.array([path]), size, modified, pa.nulls(1, pa.string()), one, one, np.array([0, 1]))
