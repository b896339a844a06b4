"""The names of data files, which say to which layout group a file belongs.

part-000007-0f3a…c2.parquet                     file 7 of the write (run) 0f3a…c2, which is its layout group
part-000007-9b21…77-3-in-0f3a…c2.parquet        what the write 9b21…77 made of it in place: the group stays
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["folders_of", "groups_of", "in_place"]

_NAME = (
    r"(?:^|/)part-(?P<number>\d+)(?:_\d+)?-(?P<run>[0-9a-f]{16})(?:-\d+)*(?:-in-(?P<group>[0-9a-f]{16}))?"
    r"\.(?:parquet|pq)$"
)


def folders_of(paths: pa.StringArray) -> NDArray[np.int64]:
    """The number of each file's folder."""
    folder = pc.replace_substring_regex(paths, r"[^/]*$", "")
    return np.asarray(pc.dictionary_encode(folder).indices, np.int64)


def groups_of(paths: pa.StringArray) -> NDArray[np.int64]:
    """The number of each file's layout group. Groups do not span folders; a file of another writer is its own.

    >>> names = ["part-000000-00000000000000aa.parquet", "part-000001-00000000000000bb-in-00000000000000aa.parquet"]
    >>> groups_of(pa.array([*names, "x.parquet", "day=1/" + names[0]])).tolist()
    [0, 0, 1, 2]
    """
    parts = pc.extract_regex(paths, _NAME)
    group, run = pc.struct_field(parts, "group"), pc.struct_field(parts, "run")
    folder = pc.replace_substring_regex(paths, r"[^/]*$", "")
    name = pc.binary_join_element_wise(folder, pc.if_else(pc.equal(group, ""), run, group), "")
    return np.asarray(pc.dictionary_encode(pc.coalesce(name, paths)).indices, np.int64)


def in_place(path: str, run: str, number: int) -> str:
    """The name, without folder and ending, of the file that replaces another one in place.

    >>> in_place("day=1/part-000007-00000000000000aa.parquet", "00000000000000bb", 3)
    'part-000007-00000000000000bb-3-in-00000000000000aa'
    """
    match = re.search(_NAME, path)
    if match is None:
        return f"part-{number:06d}-{run}"
    return f"part-{match['number']}-{run}-{number}-in-{match['group'] or match['run']}"
