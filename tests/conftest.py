"""What every test may use: the committed data, Spark and servers of stores; and which tests need Spark."""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

# The rules of pruning: a process's first statements over little data are not pruned before they are loaded.
import zskip.statements.duckdb.pruned_tables  # noqa: F401
from tests import FIXTURES, ROOT
from tests.clouds import STORES, Place, unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A deadline would make a test of how busy the machine is.
settings.register_profile("all", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=15)

# Garbage is looked for after 20,000 new objects, not 700: modules and trees of code are made of millions that stay.
gc.set_threshold(20_000)

SPARK = ROOT / "tests" / "spark"

# Spark's machines live for minutes: compiled lightly, they take a quarter less of the processor. Their compiled code
# would then have a fifth of the room, and what is evicted is compiled again. Their classes take 200 MB: where there is
# less room at first, all garbage is collected whenever that is full.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=400m -XX:+UseSerialGC -Xms1g -Xmn600m",
)


def pytest_configure(config: pytest.Config) -> None:
    """Without the slow tests, fewer examples of each property are tried as well."""
    settings.load_profile("quick" if "not slow" in config.option.markexpr else "all")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in tests/spark needs Spark. What needs Spark runs in one worker, in one Java machine.

    The quick tests of any other file share a worker too, so that its fixtures are built once; and all files that ask
    servers of stores, so that each server is started once.
    """
    quick = [item for item in items if not item.get_closest_marker("slow")]
    served = {item.path for item in quick if "started" in getattr(item, "fixturenames", ())}
    for item in items:
        if item.path.is_relative_to(SPARK):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif not item.get_closest_marker("slow"):
            group = "stores" if item.path in served else item.nodeid.partition("::")[0]
            item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_finish() -> None:
    """What thousands of tests consist of is looked at by no collection of garbage any more."""
    gc.freeze()


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The folder of committed data: zeek.parquet, zeek_dns.parquet, flights.parquet."""
    return FIXTURES


@pytest.fixture(scope="session")
def started() -> Iterator[Callable[[str], Place]]:
    """Servers by the scheme that they speak, with conditional puts, each started when it is first asked for.

    All tests share their buckets: a test has folders of its own there.
    """
    with ExitStack() as running:

        @functools.cache
        def start(scheme: str) -> Place:
            if missing := unavailable(scheme):
                pytest.skip(missing)
            return running.enter_context(STORES[scheme]())

        yield start


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that all tests share, of two threads: a test that changes a setting sets it back."""
    from pyspark.sql import SparkSession

    scratch = tmp_path_factory.mktemp("spark")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(SPARK / "preloaded"), os.environ.get("PYTHONPATH", str(ROOT))])
    session = (
        SparkSession.builder.master("local[2]")
        .appName("zskip-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        # Each execution is described, for an interface that nobody looks at: the tree alone costs least.
        .config("spark.sql.ui.explainMode", "simple")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "2")
        # Each sort, aggregate and broadcast takes at least a page (32 MB by default), each broadcast a block (4 MB).
        .config("spark.buffer.pageSize", "1m")
        .config("spark.broadcast.blockSize", "64k")
        # Listing the files of a small table needs no job.
        .config("spark.sql.sources.parallelPartitionDiscovery.threshold", "1000")
        # Compiling generated code costs more than the few rows of a test.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.local.dir", str(scratch / "local"))
        # With it, a Python source that takes filters loses rows: zskip's takes none.
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.task.maxFailures", "4")
        .config("spark.connect.grpc.binding.port", "0")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session", autouse=True)
def nothing_is_synced() -> Iterator[None]:
    """No test cuts the power: files need not be on the disk. Those that ask what is synced patch it themselves."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def parts_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small tables keep their statistics in files, as large ones do, so that there is a part to lose."""
    from zskip.tablelog import shards

    monkeypatch.setattr(shards, "INLINE_BYTES", 0)
