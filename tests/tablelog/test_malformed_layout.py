"""A log entry with a right checksum whose layout nobody could have written: named, and no row is lost."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash

import zskip
from zskip.errors import DamagedIndex, ZskipError
from zskip.tablelog import log
from zskip.tablelog.snapshot import FORMAT, fields_of

ROWS = pa.table({"n": range(64), "s": [f"k{number % 8}" for number in range(64)], "p": ["a", "b"] * 32})
MORE = pa.table({"n": [7], "s": ["k9"], "p": ["b"]})
HOSTILE = (None, True, -1, 0, 10**9, 10**30, 1.5, math.nan, "x", [], {}, [None, "x", -3, 10**12])
ABSENT = object()
Place = tuple[str | int, ...]


def places(form: Any, here: Place = ()) -> Iterator[Place]:
    """Every field, and of every list its first and last item."""
    keys = (
        list(form) if isinstance(form, dict) else sorted({0, len(form) - 1}) if isinstance(form, list) and form else []
    )
    for key in keys:
        yield (*here, key)
        yield from places(form[key], (*here, key))


def changed(form: Any, place: Place, value: object) -> Any:
    form = inner = deepcopy(form)
    for key in place[:-1]:
        inner = inner[key]
    if value is ABSENT:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return form


def signed(snapshot: Any) -> bytes:
    body = json.dumps(snapshot).encode()
    return b'{"zskip":%d,"xxh3_128":"%s","snapshot":%s}' % (FORMAT, xxhash.xxh3_128_hexdigest(body).encode(), body)


def written(folder: Path) -> Any:
    """A table with a full file, two small ones that an optimize merges, and a layout of three columns."""
    table = zskip.write(ROWS, folder, by=["n", "s"], partition_by="p", files=6, weights=[2, 1], workload=["n = 3"])
    table.append(MORE)
    table.append(MORE)
    found = json.loads((folder / log.entry_path(3)).read_bytes())["snapshot"]
    return fields_of(json.dumps(found).encode())


def is_refused(folder: Path, entry: Any) -> bool:
    """Whether any verb refuses this entry. What is refused leaves no file; no row is lost or doubled."""
    (folder / log.entry_path(3)).write_bytes(signed(entry))
    rows, refused = 66, False
    try:
        table = zskip.open(folder)
        assert table.plan("n >= 0").count() == rows
    except ZskipError:
        return True
    for change in (lambda: table.append(MORE), table.optimize, lambda: table.optimize(full=True)):
        files = sorted(folder.rglob("*.parquet"))
        try:
            done = change()
            rows += getattr(done, "rows", 0)
        except ZskipError:
            refused = True
            assert sorted(folder.rglob("*.parquet")) == files
    try:
        newest = zskip.open(folder)
        assert newest.plan("n >= 0").count() == newest.to_arrow().num_rows == rows
    except DamagedIndex:
        return True
    return refused


def check_all(folder: Path, every: int) -> None:
    """Every n-th change of the entry: one field has another value, or none."""
    entry = written(folder / "whole")
    changes = [(place, value) for place in places(entry) for value in (*HOSTILE, ABSENT)][::every]
    # An entry without one of its shards is that of a smaller table.
    changes = [(place, value) for place, value in changes if not (value is ABSENT and place[:-1] == ("shards",))]
    refused = 0
    for place, value in changes:
        shutil.copytree(folder / "whole", folder / "copy")
        try:
            refused += is_refused(folder / "copy", changed(entry, place, value))
        except Exception as error:
            raise AssertionError(f"{'.'.join(map(str, place))} = {value!r}"[:300]) from error
        shutil.rmtree(folder / "copy")
    assert refused > len(changes) // 2


def test_some_malformed_entries_are_refused(tmp_path: Path) -> None:
    check_all(tmp_path, 331)


@pytest.mark.slow
def test_many_malformed_entries_are_refused(tmp_path: Path) -> None:
    check_all(tmp_path, 7)


@pytest.mark.filterwarnings("error")
def test_an_append_by_a_malformed_layout_names_the_version(tmp_path: Path) -> None:
    entry = written(tmp_path)
    for place, value in (
        (("options", "fitted_rows_per_file"), 0),
        (("options", "by"), 5),
        (("options", "row_group_rows"), "many"),
        (("options", "workload"), [5]),
    ):
        (tmp_path / log.entry_path(3)).write_bytes(signed(changed(entry, ("layout", *place), value)))
        table = zskip.open(tmp_path)
        with pytest.raises(DamagedIndex, match="Version 3 can be read, but not changed"):
            table.append(MORE)
        assert table.count() == 66


@pytest.mark.usefixtures("parts_in_files")
def test_totals_that_are_not_the_sums_are_named(tmp_path: Path) -> None:
    entry = written(tmp_path)
    path, first = tmp_path / log.entry_path(3), entry["shards"][0]
    for total in ("files", "row_groups", "rows", "bytes"):
        of_table = changed(entry, ("totals", total), entry["totals"][total] + 1)
        path.write_bytes(signed(of_table))
        with pytest.raises(DamagedIndex, match=path.name):
            zskip.open(tmp_path)
        # Of the table and a shard alike: then the shard's part knows better, when it is read.
        path.write_bytes(signed(changed(of_table, ("shards", 0, total), first[total] + 1)))
        table = zskip.open(tmp_path)
        read = {"row_groups": lambda: table.index.row_groups(np.arange(2), [])}  # noqa: B023
        with pytest.raises(DamagedIndex, match=first["file_part"]["path"]):
            read.get(total, lambda: table.plan("n >= 0").skipped)()  # noqa: B023
