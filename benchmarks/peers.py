"""The planning benchmark's tables in other formats: the same boxes in a Delta log and in an Iceberg manifest.

Each format has a ``make``, which writes the metadata of files that are not there, and a ``plan``, which opens the
table and asks for the files of one look-up twice: milliseconds of the first plan, opening included, and of the second.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["PEERS"]

Boxes = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""By column: the lower and upper bounds of each file."""

ROWS, SIZE = 100_000, 10_000_000


def make_deltalake(folder: Path, boxes: Boxes) -> None:
    """One commit of a Delta log, as JSON."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in boxes]
    schema = json.dumps({"type": "struct", "fields": fields})
    head = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "b", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
                      "partitionColumns": [], "configuration": {}, "createdTime": 0}},
    ]  # fmt: skip
    plain = {name: (lower.tolist(), upper.tolist()) for name, (lower, upper) in boxes.items()}
    files = len(next(iter(plain.values()))[0])
    with (log / f"{0:020d}.json").open("w") as out:
        out.writelines(json.dumps(action) + "\n" for action in head)
        for number in range(files):
            stats = {
                "numRecords": ROWS,
                "minValues": {name: lower[number] for name, (lower, _) in plain.items()},
                "maxValues": {name: upper[number] for name, (_, upper) in plain.items()},
                "nullCount": dict.fromkeys(plain, 0),
            }
            add = {"path": f"part-{number}.parquet", "partitionValues": {}, "size": SIZE,
                   "modificationTime": 0, "dataChange": True, "stats": json.dumps(stats)}  # fmt: skip
            out.write(json.dumps({"add": add}) + "\n")


def plan_deltalake(folder: Path, wanted: Mapping[str, int]) -> tuple[float, float]:
    """The dataset of deltalake, and the fragments that it leaves of it."""
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    (first, second) = (pc.field(name) == value for name, value in wanted.items())
    start = time.perf_counter()
    dataset = DeltaTable(str(folder)).to_pyarrow_dataset()
    found = list(dataset.get_fragments(filter=first & second))
    cold = time.perf_counter() - start
    assert len(found) == 1, found
    start = time.perf_counter()
    list(dataset.get_fragments(filter=first & second))
    return cold * 1e3, (time.perf_counter() - start) * 1e3


def make_pyiceberg(folder: Path, boxes: Boxes) -> None:
    """One snapshot with one manifest, written by pyiceberg's own writers."""
    from pyiceberg import manifest as m
    from pyiceberg.conversions import to_bytes
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC as SPEC
    from pyiceberg.schema import Schema
    from pyiceberg.serializers import ToOutputFile
    from pyiceberg.table.metadata import new_table_metadata
    from pyiceberg.table.snapshots import Operation, Snapshot, Summary
    from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
    from pyiceberg.typedef import Record
    from pyiceberg.types import LongType, NestedField

    folder.mkdir(parents=True)
    io, long, snapshot = PyArrowFileIO(), LongType(), 1
    schema = Schema(*(NestedField(i + 1, name, long, required=False) for i, name in enumerate(boxes)))
    ids = range(1, len(boxes) + 1)
    bounds = [(lower.tolist(), upper.tolist()) for lower, upper in boxes.values()]
    at = {name: io.new_output(f"{folder}/{name}") for name in ("m0.avro", "snap.avro", "v1.metadata.json")}
    with m.write_manifest(2, SPEC, schema, at["m0.avro"], snapshot, "deflate") as writer:
        for number in range(len(bounds[0][0])):
            file = m.DataFile.from_args(
                content=m.DataFileContent.DATA,
                file_path=f"{folder}/part-{number}.parquet",
                file_format=m.FileFormat.PARQUET,
                partition=Record(),
                record_count=ROWS,
                file_size_in_bytes=SIZE,
                value_counts=dict.fromkeys(ids, ROWS),
                null_value_counts=dict.fromkeys(ids, 0),
                lower_bounds={i: to_bytes(long, lower[number]) for i, (lower, _) in zip(ids, bounds, strict=True)},
                upper_bounds={i: to_bytes(long, upper[number]) for i, (_, upper) in zip(ids, bounds, strict=True)},
                spec_id=0,
            )
            writer.add(m.ManifestEntry.from_args(sequence_number=1, data_file=file))
    with m.write_manifest_list(2, at["snap.avro"], snapshot, None, 1, "deflate") as list_writer:
        list_writer.add_manifests([writer.to_manifest_file()])
    empty = new_table_metadata(schema, SPEC, UNSORTED_SORT_ORDER, str(folder))
    state = Snapshot.model_validate(
        {
            "snapshot-id": snapshot,
            "sequence-number": 1,
            "manifest-list": at["snap.avro"].location,
            "summary": Summary(Operation.APPEND),
            "schema-id": empty.current_schema_id,
            "timestamp-ms": empty.last_updated_ms,
        }
    )
    made = empty.model_copy(update={"snapshots": [state], "current_snapshot_id": snapshot, "last_sequence_number": 1})
    ToOutputFile.table_metadata(made, at["v1.metadata.json"])


def plan_pyiceberg(folder: Path, wanted: Mapping[str, int]) -> tuple[float, float]:
    """The scan tasks of pyiceberg."""
    from pyiceberg.expressions import And, EqualTo, Reference
    from pyiceberg.expressions.literals import literal
    from pyiceberg.table import StaticTable

    where = And(*(EqualTo(term=Reference(name), value=literal(value)) for name, value in wanted.items()))
    start = time.perf_counter()
    table = StaticTable.from_metadata(f"{folder}/v1.metadata.json")
    found = list(table.scan(row_filter=where).plan_files())
    cold = time.perf_counter() - start
    assert len(found) == 1, found
    start = time.perf_counter()
    list(table.scan(row_filter=where).plan_files())
    return cold * 1e3, (time.perf_counter() - start) * 1e3


PEERS: dict[str, tuple[Callable[[Path, Boxes], None], Callable[[Path, Mapping[str, int]], Any]]] = {
    "deltalake": (make_deltalake, plan_deltalake),
    "pyiceberg": (make_pyiceberg, plan_pyiceberg),
}
