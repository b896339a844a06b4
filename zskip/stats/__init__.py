"""What is known of the values in a file or row group.

``ranges``: the form that proofs are made on · ``files``: the form that is kept · ``collect``: from rows while they are
written. From the footers of files: the package ``parquet``.
"""

from zskip.stats.files import ColumnStatistics, DataFiles, FileStatistics
from zskip.stats.ranges import Ranges, Statistics

__all__ = ["ColumnStatistics", "DataFiles", "FileStatistics", "Ranges", "Statistics"]
