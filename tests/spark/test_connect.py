"""Spark Connect: a client in a process of its own, without a JVM, of a server in the machine that all tests share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import zskip

_CLIENT = """
import json, sys, warnings
from pyspark.sql import SparkSession
import pyarrow as pa
import zskip
import zskip.spark as zs

folder, server = sys.argv[1:]
spark = SparkSession.builder.remote(server).getOrCreate()
rows = pa.table({"x": list(range(1000)), "s": [str(n) for n in range(1000)]})
table = zskip.write(rows, folder + "/t", by=["x"], files=10)
found = {"session": type(spark).__module__}
read = zs.read(spark, folder + "/t", where="x BETWEEN 5 AND 7", columns=["s"])
found["read"] = sorted(row.s for row in read.collect())
found["files"] = len(read.inputFiles())
found["to_spark"] = [row.s for row in table.plan("x = 9").to_spark(spark).collect()]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    tables = [zs.table(spark, table) for _ in range(2)]
    found["table"] = [row.s for row in tables[1].where("x = 3").collect()]
found["warnings"] = [str(one.message) for one in caught if "zskip" in str(one.message)]
found["sql"] = zs.sql(spark, f"SELECT count(*) AS n FROM '{folder}/t' WHERE x < 5").first().n
wrote = zs.write(spark.range(100).selectExpr("id", "id % 7 AS k"), folder + "/w", by=["id"], files=2)
found["write"] = [len(wrote.plan()), wrote.to_arrow().num_rows]
zs.register_source(spark)
found["source"] = [row.s for row in spark.read.format("zskip").load(folder + "/t").where("x = 4").collect()]
spark.stop()
print(json.dumps(found), flush=True)
"""


@pytest.fixture
def server(spark: SparkSession) -> Iterator[str]:
    jvm: Any = spark._jvm
    service = getattr(getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$"), "MODULE$")
    service.start(spark._jsc.sc())
    yield f"sc://127.0.0.1:{service.localPort()}"
    service.stop(jvm.scala.Option.empty(), jvm.scala.Option.empty())


def test_connect(server: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CLIENT, str(tmp_path), server],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(zskip.__file__).parent.parent)},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("session").startswith("pyspark.sql.connect")
    (warning,) = found.pop("warnings")
    assert "Spark Connect has no JVM at hand" in warning
    assert found == {
        "read": ["5", "6", "7"],
        "files": 1,
        "to_spark": ["9"],
        "table": ["3"],
        "sql": 5,
        "write": [2, 100],
        "source": ["4"],
    }
