"""On the path of Spark's Pythons: the process that forks the workers imports what each of them would import anew."""

from __future__ import annotations

import importlib
import sys

if "pyspark.daemon" in sys.orig_argv:
    for name in ("pandas", "pyarrow.parquet", "zskip.spark.data_source"):
        importlib.import_module(name)
