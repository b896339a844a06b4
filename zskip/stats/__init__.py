"""Statistics of files and row groups.

``ranges``: the form that proofs use · ``files``: the form that the index stores · ``collect``: computed from rows that
are being written. The package ``parquet`` reads them from the footers of files.
"""

from zskip.stats.files import ColumnStatistics, DataFiles, FileStatistics, Ranges, Statistics

__all__ = ["ColumnStatistics", "DataFiles", "FileStatistics", "Ranges", "Statistics"]
