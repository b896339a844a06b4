"""What is known of the values in a file or row group, and its origin.

``ranges``: the form that proofs are made on · ``files``: the form that is kept · ``footers``: from Parquet that lies
there · ``collect``: from rows while they are written.
"""

from zskip.stats.files import ColumnStatistics, DataFiles, FileStatistics
from zskip.stats.ranges import Ranges, Statistics

__all__ = ["ColumnStatistics", "DataFiles", "FileStatistics", "Ranges", "Statistics"]
