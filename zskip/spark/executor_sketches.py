"""Sketches of files that Spark wrote: the executors read the sketched columns, the driver sorts and writes segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from zskip.schema import Schema
from zskip.sketches import SketchName, named_sketches
from zskip.sketches.hashing import Hashes
from zskip.spark.executor_footers import chunks_of, on_executors
from zskip.spark.hadoop import HadoopStorage
from zskip.stats import DataFiles
from zskip.storage import Storage
from zskip.tablelog import SketchRecord
from zskip.tablelog.parts import Drafts
from zskip.tablelog.segments import new_ids
from zskip.writer import WriteOptions
from zskip.writer.sketching import keys_of_file, segments_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["sketched"]

_PER_TASK, _TASKS_AT_ONCE = 4, 64


def sketched(
    spark: SparkSession, storage: Storage, schema: Schema, options: WriteOptions, files: DataFiles
) -> tuple[DataFiles, tuple[SketchRecord, ...]]:
    """The files with ids, and the segments of the sketches that the options name; as they are where these name none.

    The keys of 256 files at most are in the driver at once, beside its own memory for sorting. What only the driver's
    Hadoop client reaches is read in the driver. Raises `CorruptFile`; nothing is left behind then.
    """
    names = named_sketches(options.sketches, schema)
    if not names:
        return files, ()
    files = replace(files, id=new_ids(len(files)))
    paths = files.path.to_pylist()
    drafts = Drafts(storage)
    try:
        keys = _keys(spark, storage, schema, options.partition_by, names, paths)
        return files, segments_of(drafts, names, keys, paths, files.id.to_numpy(), options)
    except BaseException:
        drafts.discard()
        raise


def _keys(
    spark: SparkSession,
    storage: Storage,
    schema: Schema,
    partition_by: Sequence[str],
    names: Sequence[SketchName],
    paths: Sequence[str],
) -> Iterator[list[Hashes]]:
    """What the sketches keep of each file, in the order of the paths."""
    if isinstance(storage, HadoopStorage):
        for path in paths:
            yield keys_of_file(storage, schema, partition_by, names, path)
        return
    work = partial(_keys_of_files, storage, arrow=schema.arrow, partition_by=tuple(partition_by), names=tuple(names))
    for some in chunks_of(paths, _PER_TASK * _TASKS_AT_ONCE):
        for found in on_executors(spark, work, chunks_of(some, _PER_TASK)):
            yield from found


def _keys_of_files(
    storage: Storage, paths: list[str], arrow: pa.Schema, partition_by: tuple[str, ...], names: tuple[SketchName, ...]
) -> list[list[Hashes]]:
    return [keys_of_file(storage, Schema(arrow), partition_by, names, path) for path in paths]
