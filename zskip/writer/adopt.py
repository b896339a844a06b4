"""Adopt: append the rows of files that other programs put into a table's folder, and remove the files.

A claim lists the files before anything else happens, and has a number; the append is the batch of that number. So a
crash at any place leaves a claim that the next call, of any process, finishes: rows that are in the table are not
appended again, and a file is removed only after its rows were committed, and only if it is still the claimed file. If
one of the same size and another time stands in its place by then, the claim stays until a person has moved that file.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa

from zskip.core.receipts import Adopted, Appended
from zskip.core.schema import Schema
from zskip.errors import CommitConflict, CorruptFile, DamagedIndex, SchemaError, TableError, first_line
from zskip.parquet import footers
from zskip.plan import find_survivors
from zskip.storage import Storage, hive
from zskip.storage.storage import Listing
from zskip.tablelog.freshness import Changes, copies_of_replaced, dropped_files, unchanged
from zskip.tablelog.index import Index
from zskip.tablelog.log import load
from zskip.tablelog.runs import may_meet_vacuums
from zskip.tablelog.snapshot import Snapshot
from zskip.tablelog.table_folders import refuse_folder
from zskip.writer import append
from zskip.writer.backend import LOCAL, Rows
from zskip.writer.options import WriteOptions
from zskip.writer.storable import refuse_variants_of_file

_CLAIMS = "_zskip/adopt"
_APPLICATION = "zskip adopt"


@may_meet_vacuums
def adopt(storage: Storage, base: Snapshot, options: WriteOptions) -> tuple[Snapshot, Adopted]:
    """Append all dropped files and remove them. Raises `SchemaMismatch`, `CorruptFile`, `CommitConflict`, and
    `TableError` for files that may be copies of files that `cluster` replaced, or that an old version may name which
    cannot be read."""
    append.require_managed(storage, base)
    done: list[Adopted] = []
    for name in storage.names(_CLAIMS):  # of calls that did not finish
        base, adopted = _finish(storage, base, options, int(name.removesuffix(".json")))
        done.append(adopted)
    found = dropped_files(storage, base)
    try:
        copies = copies_of_replaced(storage, found)
    except DamagedIndex as error:
        raise DamagedIndex(
            f"{storage.uri}: which of {len(found):,} files in the folder cluster replaced, so that the table has their "
            f"rows, cannot be told: {str(error).partition('. ')[0]}. Move the files with new rows to another folder, "
            "and append them from there: append(path)."
        ) from error
    if len(copies):
        raise TableError(
            f"{storage.uri}: {len(copies):,} files, such as {copies.path[0]}, have the names and sizes of files that "
            "cluster replaced, whose rows are in the table, but other times. If the folder is a copy, remove them, "
            "also if they were only touched; if their rows are new, give them other names."
        )
    if len(found):
        refuse_folder(storage)
        number = base.applications.get(_APPLICATION, 0) + 1
        claim = [[each.as_py() for each in entry] for entry in zip(found.path, found.size, found.modified, strict=True)]
        storage.put_if_absent(_claim(number), json.dumps(claim).encode())  # else another process claimed them
        base, adopted = _finish(storage, base, options, number)
        done.append(adopted)
    return base, Adopted(
        base.version,
        sum(one.rows for one in done),
        sum(one.files for one in done),
        sum(one.bytes for one in done),
        tuple(each for one in done for each in one.new_columns),
        tuple(each for one in done for each in one.widened),
    )


def _claim(number: int) -> str:
    return f"{_CLAIMS}/{number:08d}.json"


def _finish(storage: Storage, base: Snapshot, options: WriteOptions, number: int) -> tuple[Snapshot, Adopted]:
    """Append the files of a claim that are there, unless its batch is in the table, and remove them and the claim."""
    try:
        claimed = [tuple(entry) for entry in json.loads(storage.read(_claim(number)))]
    except FileNotFoundError:  # another process has finished it
        return load(storage), Adopted(base.version, 0, 0, 0)
    appended = Appended(base.version, 0, 0, 0)
    if base.applications.get(_APPLICATION, 0) < number:
        found, _ = _unchanged(storage, claimed)
        if len(found) < len(claimed):
            # Nobody can tell whether another process is appending them just now.
            raise CommitConflict(
                f"{storage.uri}: {len(claimed) - len(found)} of the files that were to be adopted have changed or are "
                f"gone. If no other adopt() is running, remove {storage.uri_of(_claim(number))} and call it again."
            )
        try:
            base, appended = append.append(storage, base, _rows(storage, base, found), options, (_APPLICATION, number))
        except (CorruptFile, SchemaError):
            # No process can append these files as they are: the next call takes what is there then.
            storage.delete([_claim(number)])
            raise
    try:
        gone, touched = _unchanged(storage, claimed)
        storage.delete(gone.path.to_pylist())
        if not len(touched):
            storage.delete([_claim(number)])
    except Exception as error:  # of whatever class: the rows are committed
        raise TableError(
            f"{storage.uri}: the rows of {len(claimed):,} adopted files are in the table, but the files could not be "
            f"removed ({first_line(error)}). What is left is not appended again: adopt() removes it if called again."
        ) from error
    if len(touched):
        raise TableError(
            f"{storage.uri}: {len(touched):,} files, such as {touched.path[0]}, have the names and sizes of files that "
            "were adopted, whose rows are in the table, but other times. If they were only touched, remove them; if "
            "their rows are new, give them other names. Then call adopt() again."
        )
    size = sum(gone.size.to_pylist())
    return base, Adopted(base.version, appended.rows, len(gone), size, appended.new_columns, appended.widened)


def _unchanged(storage: Storage, claimed: list[tuple[str, int, int]]) -> tuple[Listing, Listing]:
    """The claimed files that are there as they were, and those of the same size and another time."""
    then = Listing.of((*entry, None) for entry in claimed)
    now = storage.size_and_modified(then.path.to_pylist()).at(then.path)
    same = unchanged(storage, then, now, by="time")
    return now.take(same), now.take(unchanged(storage, then, now, by="size") & ~same)


def _rows(storage: Storage, base: Snapshot, files: Listing) -> Rows:
    """The rows of the files, with the columns of all, read as a plan reads the new files of an indexed folder.

    Names of folders are read in the types of the table's columns. Raises `SchemaMismatch`.
    """
    schema, _ = footers.read(storage, None, None, listing=files)
    for numbers, arrow, leaves in footers.both_schemas(storage, files):
        refuse_variants_of_file(arrow, leaves, storage.uri_of(files.path[numbers[0]].as_py()))
    folders = hive.partitions(files.path)
    footers.require_folders(storage, files, tuple(folders))
    own = {name: base.schema.arrow.field(name).type for name in folders if name in base.schema.arrow.names}
    for name, type in own.items():
        hive.cast(hive.decoded(folders[name]), type)  # else no value of the column
    fields = [field.with_type(own.get(field.name, field.type)) for field in schema.arrow]
    schema = Schema(pa.schema(fields, schema.arrow.metadata))
    folder = replace(
        base, schema=schema, shards=(), managed=False, layout=None, sketches=(), partition_by=tuple(folders)
    )
    nothing = files.take(np.zeros(0, np.int64))
    changes = Changes(files, nothing, pa.array([], pa.string()), files)
    types = footers.with_instants_of_files(storage, files, schema.arrow)
    return LOCAL.rows_of_scan(find_survivors(Index(storage, folder), None, changes=changes).scan, types)
