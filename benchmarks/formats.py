"""Delta and Iceberg tables: look-ups beside deltalake and pyiceberg, and layouts beside delta-rs's z_order.

    python benchmarks/formats.py [--files 100000]

A look-up opens the table afresh and names the files that a condition on two columns leaves; imports are not counted.
The many files are named by a log and do not exist: nothing reads them. ConnRecord and its z_order are those of
benchmarks/layouts.py.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from layout_cases import CASES
from layout_peers import delta_z_order
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import EqualTo, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

import zskip

LOOK_UPS = 50
WHERE = "a = 150 AND b = 150"


def seconds(work: Callable[[], Any], times: int = 3) -> float:
    """The best of some runs."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return min(taken)


def boxes(files: int) -> list[tuple[int, int, int, int]]:
    """The bounds of two columns in each file: a grid of squares."""
    side = int(np.ceil(np.sqrt(files)))
    return [(n // side, n // side + 1, n % side, n % side + 1) for n in range(files)]


def add(number: int, box: tuple[int, int, int, int]) -> str:
    low_a, high_a, low_b, high_b = box
    stats = {
        "numRecords": 1000,
        "minValues": {"a": low_a, "b": low_b},
        "maxValues": {"a": high_a, "b": high_b},
        "nullCount": {"a": 0, "b": 0},
    }
    said = {
        "path": f"part-{number:07}.parquet",
        "partitionValues": {},
        "size": 1_000_000,
        "modificationTime": 1,
        "dataChange": True,
        "stats": json.dumps(stats),
    }
    return json.dumps({"add": said})


def delta_of_many(path: Path, files: int) -> None:
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in "ab"]
    metadata = {
        "id": "many",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {},
    }
    head = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
    log = path / "_delta_log"
    log.mkdir(parents=True)
    lines = [*map(json.dumps, head), *(add(number, box) for number, box in enumerate(boxes(files)))]
    (log / f"{0:020}.json").write_text("\n".join(lines))


def append_to_delta(path: Path, version: int) -> None:
    lines = [add(10_000_000 + version * 100 + number, box) for number, box in enumerate(boxes(10))]
    (path / "_delta_log" / f"{version:020}.json").write_text("\n".join(lines))


def data_files(location: str, first: int, bounds: list[tuple[int, int, int, int]]) -> list[DataFile]:
    def packed(number: int) -> bytes:
        return number.to_bytes(8, "little")

    found = []
    for number, (low_a, high_a, low_b, high_b) in enumerate(bounds, first):
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{location}/data/part-{number:07}.parquet",
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=1000,
            file_size_in_bytes=1_000_000,
            column_sizes={},
            value_counts={1: 1000, 2: 1000},
            null_value_counts={1: 0, 2: 0},
            nan_value_counts={},
            lower_bounds={1: packed(low_a), 2: packed(low_b)},
            upper_bounds={1: packed(high_a), 2: packed(high_b)},
        )
        file.spec_id = 0
        found.append(file)
    return found


def append_to_iceberg(table: Any, first: int, bounds: list[tuple[int, int, int, int]]) -> None:
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as snapshot:
        for file in data_files(table.location(), first, bounds):
            snapshot.append_data_file(file)


def look_ups(folder: Path, files: int) -> None:
    path = folder / "delta"
    delta_of_many(path, files)
    DeltaTable(path).create_checkpoint()

    def theirs() -> None:
        list(DeltaTable(path).to_pyarrow_dataset().get_fragments(_expression()))

    def ours() -> int:
        return len(zskip.open(path).plan(WHERE).paths)

    peer = seconds(theirs, 1)
    first = seconds(ours, 1)
    unchanged = seconds(ours)
    commits = []
    for version in range(1, 4):
        append_to_delta(path, version)
        commits.append(seconds(ours, 1))
    report("Delta", files, peer, first, unchanged, min(commits))

    catalog = load_catalog("b", type="in-memory", warehouse=f"file://{folder}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=pa.schema({"a": pa.int64(), "b": pa.int64()}))
    append_to_iceberg(table, 0, boxes(files))
    location = folder / "n" / "t"

    def scanned() -> None:
        list(catalog.load_table("n.t").scan(row_filter=WHERE).plan_files())

    def planned() -> int:
        return len(zskip.open(location).plan(WHERE).paths)

    peer = seconds(scanned, 1)
    first = seconds(planned, 1)
    unchanged = seconds(planned)
    commits = []
    for number in range(3):
        append_to_iceberg(table, 10_000_000 + number * 10, boxes(10))
        commits.append(seconds(planned, 1))
    report("Iceberg", files, peer, first, unchanged, min(commits))


def _expression() -> Any:
    return (pc.field("a") == 150) & (pc.field("b") == 150)


def report(name: str, files: int, peer: float, first: float, unchanged: float, one_more: float) -> None:
    print(f"{name}, {files:,} files, a look-up on two columns")
    print(f"  the format's library            {peer:9.3f} s")
    print(f"  zskip, first opening            {first:9.3f} s   {first / peer:.2f} of the library's")
    print(f"  zskip, unchanged since          {unchanged:9.4f} s   {peer / unchanged:,.0f} times faster")
    print(f"  zskip, one commit of 10 files   {one_more:9.4f} s   {1000 * (one_more - unchanged):.1f} ms more")


def skipped(rows: pa.Table, read: Callable[[str, Any], int]) -> float:
    """The share of rows that look-ups skip, over values drawn from the rows; ``read``: what one of them reads."""
    some = rows.take(np.random.default_rng(1).choice(len(rows), LOOK_UPS, replace=False))
    counts = [read(name, value) for name in some.column_names for value in some.column(name).to_pylist()]
    return 1 - float(np.mean(counts)) / len(rows)


def skipped_by_delta(path: Path, rows: pa.Table) -> float:
    """By delta-rs's own reader, which skips files by the min and max in the log."""
    dataset = DeltaTable(path).to_pyarrow_dataset()
    adds = pa.table(DeltaTable(path).get_add_actions(flatten=True))
    held = dict(zip(adds["path"].to_pylist(), adds["num_records"].to_pylist(), strict=True))
    return skipped(
        rows,
        lambda name, value: sum(
            held[fragment.path.rpartition("/")[2]] for fragment in dataset.get_fragments(pc.field(name) == value)
        ),
    )


def skipped_by_iceberg(table: Any, rows: pa.Table) -> float:
    return skipped(
        rows,
        lambda name, value: sum(
            task.file.record_count
            for task in table.scan(row_filter=EqualTo(term=Reference(name), value=literal(value))).plan_files()
        ),
    )


def layouts(folder: Path) -> None:
    case = CASES["conn4"]
    rows, by, files = case.rows_of(folder, case, 0), list(case.by), case.files
    ours, theirs = folder / "clustered", folder / "z_order"
    write_deltalake(ours, rows)
    zskip.cluster(ours, by=by, files=files)
    delta_z_order(rows, case, theirs)
    print(f"ConnRecord, four columns, {len(rows):,} rows, {files} files: rows skipped by min and max")
    print(f"  Delta after zskip.cluster       {skipped_by_delta(ours, rows):.3f}   {_count(ours)} files")
    print(f"  Delta after delta-rs z_order    {skipped_by_delta(theirs, rows):.3f}   {_count(theirs)} files")
    catalog = load_catalog("l", type="in-memory", warehouse=f"file://{folder}")
    catalog.create_namespace("l")
    table = catalog.create_table("l.t", schema=rows.schema)
    table.append(rows)
    zskip.cluster(table, by=by, files=files)
    table = catalog.load_table("l.t")
    print(f"  Iceberg after zskip.cluster     {skipped_by_iceberg(table, rows):.3f}   by pyiceberg's plan_files")


def _count(path: Path) -> int:
    return len(DeltaTable(path).file_uris())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000, help="files of the tables that are looked up in")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="zskip-formats-"))
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    try:
        look_ups(folder, given.files)
        layouts(folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
