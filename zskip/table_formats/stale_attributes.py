"""Which files of a table have attributes of other versions of its dimensions than the newest."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow.compute as pc

from zskip.errors import ZskipError
from zskip.storage import Storage, options_for
from zskip.table_formats.locate import open_index
from zskip.tablelog import Dimension, Index


def newest_version(dimension: Dimension, storage: Storage) -> str | None:
    """The newest version of a dimension of a table in a storage; None if it has none, or cannot be read."""
    if not dimension.uri:
        return None
    try:
        return open_index(dimension.uri, options_for(dimension.uri, storage)).identity
    except (ZskipError, OSError):
        return None


def stale_files(index: Index, versions: Mapping[Dimension, str | None]) -> np.ndarray:
    """The numbers of the files whose attributes are of other versions of the dimensions than these, or unknown. A
    dimension whose version is None counts for none."""
    numbers = np.arange(len(index), dtype=np.int64)
    stale = np.zeros(len(numbers), bool)
    columns = index.files_at(numbers, [each.version_path for each in versions]).statistics.columns
    for dimension, version in versions.items():
        if version is not None and len(numbers):
            current = pc.equal(columns[dimension.version_path].lower, version)
            stale |= ~np.asarray(pc.fill_null(current, False))
    return numbers[stale]


def stale_by_dimension(index: Index) -> dict[Dimension, int | None]:
    """For each dimension, the number of files whose attributes are of other versions; None if it cannot be read."""
    versions = {each: newest_version(each, index.storage) for each in index.snapshot.dimensions}
    return {
        each: None if version is None else len(stale_files(index, {each: version}))
        for each, version in versions.items()
    }
