"""On the path of Spark's Pythons: the process that forks the workers imports what each of them would import anew."""

from __future__ import annotations

import importlib
import sys

if "pyspark.daemon" in sys.orig_argv:
    importlib.import_module("zskip.spark.data_source")
    if "pyspark.worker" in sys.orig_argv:  # the others plan, and have no rows
        importlib.import_module("pandas")
