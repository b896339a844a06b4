"""Point look-ups over many files: plan and read, against DuckDB's own glob; on a local disk and over the S3 protocol.

    python benchmarks/lookup.py /tmp/bench --files 1000 10000 [--s3 --latency-ms 20]

The table is written here, clustered on two columns. Over S3 (moto's server), each request of zskip is counted and
answered late. What DuckDB's glob asks for is counted at a file system that hands it the same files: its S3 extension
is not part of its Python package.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import logging
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from spread import spread
from targets import at_least, at_most

from zskip.binder import bind
from zskip.core.schema import Schema
from zskip.plan.planner import plan
from zskip.statements.duckdb import sql
from zskip.stats import DataFiles, collect
from zskip.storage import Storage, open_storage
from zskip.tablelog.commit import TableUpdate, commit
from zskip.tablelog.index import Index
from zskip.tablelog.log import load

ROWS_PER_FILE = 200
WIDTH = 5
RUNS, GLOB_RUNS = 21, 5


def make(storage: Storage, files: int) -> None:
    """Write a table of so many small files, each a box of two columns, and commit its exact statistics."""
    random = np.random.default_rng(7)
    side = int(np.ceil(files**0.5))
    number = np.repeat(np.arange(files), ROWS_PER_FILE)
    rows = pa.table(
        {
            "src": number % side * WIDTH + random.integers(0, WIDTH, len(number)),
            "dst": number // side * WIDTH + random.integers(0, WIDTH, len(number)),
            "payload": random.integers(0, 1 << 40, len(number)),
        }
    )
    schema = Schema(rows.schema)
    cuts = np.arange(files + 1) * ROWS_PER_FILE
    units = collect.row_groups(rows, cuts, schema)
    names, sizes = [], []
    for start in cuts[:-1]:
        sink = io.BytesIO()
        pq.write_table(rows.slice(start, ROWS_PER_FILE), sink, compression="zstd")
        names.append(f"part-{start // ROWS_PER_FILE:06d}.parquet")
        sizes.append(sink.tell())
        storage.put(names[-1], sink.getvalue())
    unknown = pa.nulls(files, pa.int64())
    etags = pa.nulls(files, pa.string())
    data = DataFiles(pa.array(names), pa.array(sizes), unknown, etags, units, units, np.arange(files + 1))
    commit(storage, None, TableUpdate("write", add=data, schema=schema, managed=True))


def timed(run: Callable[[], object], runs: int) -> list[float]:
    """The milliseconds of each run."""
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        found.append((time.perf_counter() - start) * 1e3)
    return found


def table(folder: Path, files: int) -> Path:
    """The folder of the table, made where it is not there yet."""
    path = folder / f"lookup-{files}"
    if not path.exists():
        path.mkdir(parents=True)
        make(open_storage(str(path)), files)
    return path


def question(files: int) -> str:
    """A look-up on two columns that hits one file."""
    side = int(np.ceil(files**0.5))
    return f"src = {side // 2 * WIDTH + 3} AND dst = {side // 3 * WIDTH + 4}"


def local(path: Path, files: int) -> None:
    con = duckdb.connect()
    where = question(files)

    def through_zskip() -> list[Any]:
        return sql(f"SELECT count(*), sum(payload) FROM '{path}' WHERE {where}", con).fetchall()

    def through_glob() -> list[Any]:
        return con.sql(f"SELECT count(*), sum(payload) FROM '{path}/*.parquet' WHERE {where}").fetchall()

    assert through_zskip() == through_glob()
    ours, theirs = timed(through_zskip, RUNS), timed(through_glob, GLOB_RUNS)
    faster = statistics.median(theirs) / statistics.median(ours)
    print(
        f"{files:>8,} files, local: zskip {spread(ours, ' ms')}, glob {spread(theirs, ' ms')}: {faster:.0f}×, at best "
        f"{min(theirs) / min(ours):.0f}×"
    )
    if files == 10_000:
        at_least(100, faster, "look-up with DuckDB over 10,000 files, faster than the glob", " times")


class Tallied(fsspec.AbstractFileSystem):  # type: ignore[misc]  # fsspec is untyped
    """Local files under "tallied://", for DuckDB: it counts what is read."""

    cachable = False
    protocol = "tallied"

    def __init__(self) -> None:
        super().__init__()
        self.requests = self.bytes = 0

    def glob(self, path: str, **_: Any) -> list[str]:
        pattern = Path(path.removeprefix("tallied://"))
        return sorted(f"tallied://{found}" for found in pattern.parent.glob(pattern.name))

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "size": Path(path.removeprefix("tallied://")).stat().st_size, "type": "file"}

    def exists(self, path: str, **_: Any) -> bool:
        return Path(path.removeprefix("tallied://")).exists()

    def modified(self, path: str) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(Path(path.removeprefix("tallied://")).stat().st_mtime, datetime.UTC)

    def open(self, path: str, mode: str = "rb", **_: Any) -> io.RawIOBase:
        return _Tallied(self, path.removeprefix("tallied://"))


class _Tallied(io.FileIO):
    def __init__(self, system: Tallied, path: str) -> None:
        super().__init__(path)
        self._system = system

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self._system.requests += 1
        self._system.bytes += len(data)
        return data


def asked_by_glob(path: Path, where: str) -> tuple[int, int]:
    """The requests and bytes that DuckDB asks for, where it is given the glob."""
    con, system = duckdb.connect(), Tallied()
    con.register_filesystem(system)
    con.sql(f"SELECT count(*), sum(payload) FROM 'tallied://{path}/*.parquet' WHERE {where}").fetchall()
    return system.requests, system.bytes


class Counted:
    """A storage that counts what is asked of it, and answers late."""

    def __init__(self, inner: Storage, latency: float) -> None:
        self._inner, self._latency = inner, latency
        self.requests = self.bytes = 0

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._inner, name)
        if name not in ("read", "read_range", "list", "names", "exists", "size_and_modified"):
            return verb

        def counted(*args: Any, **options: Any) -> Any:
            time.sleep(self._latency)
            answer = verb(*args, **options)
            self.requests += 1
            self.bytes += len(answer) if isinstance(answer, bytes) else 0
            return answer

        return counted


@contextlib.contextmanager
def s3() -> Iterator[dict[str, str]]:
    """A bucket on moto's server, as storage options."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1"}
    endpoint = f"http://{host}:{port}"
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=endpoint, **keys).create_bucket(Bucket="bench")
    try:
        yield {**{f"aws_{name}": value for name, value in options.items()}, "endpoint": endpoint}
    finally:
        server.stop()


def upload(path: Path, storage: Storage) -> None:
    """A table is its files: a copy of them is the table."""
    with ThreadPoolExecutor(8) as pool:
        names = [str(found.relative_to(path)) for found in path.rglob("*") if found.is_file()]
        list(pool.map(lambda name: storage.put(name, (path / name).read_bytes()), names))


def remote(path: Path, files: int, latency: float) -> None:
    with s3() as options:
        plain = open_storage("s3://bench/t", {**options, "client_options": {"allow_http": True}})
        upload(path, plain)
        storage: Any = Counted(plain, latency)
        where = question(files)
        start = time.perf_counter()
        index = Index(storage, load(storage))
        found = plan(index, bind(where, index.snapshot.schema))
        found.paths  # noqa: B018  # a plan reads them when they are asked for
        planned, planned_bytes = storage.requests, storage.bytes
        rows = found.to_arrow()
        seconds = time.perf_counter() - start
    assert len(rows)
    requests, asked = asked_by_glob(path, where)
    print(
        f"{files:>8,} files, S3 with {latency * 1e3:.0f} ms: {len(rows)} rows in {seconds * 1e3:.0f} ms; "
        f"{planned} requests and {planned_bytes:,} bytes to plan, {storage.requests - planned} and "
        f"{storage.bytes - planned_bytes:,} to read; glob: {requests:,} requests, {asked:,} bytes: "
        f"{storage.bytes / asked:.2%} of them"
    )
    if files == 10_000:
        at_most(2, 100 * storage.bytes / asked, "bytes over S3 for a look-up over 10,000 files, of the glob's", " %")
        at_most(10, storage.requests, "requests over S3 from opening the table to the rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the tables are made, and kept for the next run")
    parser.add_argument("--files", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--s3", action="store_true", help="also over the S3 protocol")
    parser.add_argument("--latency-ms", type=float, default=20.0, help="added to each request (20)")
    given = parser.parse_args()
    for files in given.files:
        path = table(given.folder, files)
        local(path, files)
        if given.s3:
            remote(path, files, given.latency_ms / 1e3)


if __name__ == "__main__":
    main()
