"""Sketches of files that Spark wrote: the executors read the sketched columns, the driver sorts and writes segments."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from zskip.core.schema import Schema
from zskip.spark.executor_footers import chunks_of, on_executors
from zskip.spark.hadoop import HadoopStorage
from zskip.stats import DataFiles
from zskip.storage import Storage, undone_on_error
from zskip.tablelog import SketchRecord
from zskip.tablelog.parts import Drafts
from zskip.tablelog.segments import new_ids
from zskip.tablelog.sketches import named_sketches
from zskip.writer import WriteOptions
from zskip.writer.sketching import keys_of_file, segments_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["map_items", "sketched"]

_ITEMS_PER_TASK, _TASKS_AT_ONCE = 4, 64


def sketched(
    spark: SparkSession, storage: Storage, schema: Schema, options: WriteOptions, files: DataFiles
) -> tuple[DataFiles, tuple[SketchRecord, ...]]:
    """The files with ids, and the segments of the sketches that the options name. Without sketches, files get no ids.

    The driver holds the keys of at most 256 files at once, besides its memory for sorting. Raises `CorruptFile` after
    removing the segments.
    """
    names = named_sketches(options.sketches, schema)
    if not names:
        return files, ()
    files = replace(files, id=new_ids(len(files)))
    paths = files.path.to_pylist()
    drafts = Drafts(storage)
    with undone_on_error(drafts.discard):
        read = partial(keys_of_file, storage, schema, tuple(options.partition_by), names)
        keys = map_items(spark, storage, read, paths, options)
        return files, segments_of(drafts, names, keys, paths, files.id.to_numpy(), options)


def map_items(
    spark: SparkSession, storage: Storage, work: Callable[[Any], Any], items: Sequence[Any], options: WriteOptions
) -> Generator[Any, None, None]:
    """`Backend.map` on the executors; in the driver for files that only its Hadoop client reaches."""
    if isinstance(storage, HadoopStorage):
        yield from map(work, items)
        return
    for some in chunks_of(items, _ITEMS_PER_TASK * _TASKS_AT_ONCE):
        for found in on_executors(spark, partial(_all_of, work), chunks_of(some, _ITEMS_PER_TASK)):
            yield from found


def _all_of(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    return [work(item) for item in items]
