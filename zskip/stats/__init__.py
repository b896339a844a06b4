"""Statistics of files and row groups.

``files``: the form that the index stores, that of row groups merged into that of files, and the form that proofs use ·
``collect``: computed from rows that are being written. The package ``parquet`` reads them from the footers of files.
"""

from zskip.stats.files import ColumnStatistics, DataFiles, FileStatistics, Ranges, Statistics, hull

__all__ = ["ColumnStatistics", "DataFiles", "FileStatistics", "Ranges", "Statistics", "hull"]
