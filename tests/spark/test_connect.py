"""Spark Connect: a real server, which has no JVM at hand for the client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import zskip

_CLIENT = """
import json, sys, warnings
from pyspark.sql import SparkSession
import pyarrow as pa
import zskip
import zskip.spark as zs

folder = sys.argv[1]
made = SparkSession.builder.remote("local[2]").config("spark.sql.python.filterPushdown.enabled", "true")
made = made.config("spark.ui.enabled", "false").config("spark.local.dir", folder + "/local")
spark = made.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
rows = pa.table({"x": list(range(1000)), "s": [str(n) for n in range(1000)]})
table = zskip.write(rows, folder + "/t", by=["x"], files=10)
found = {"session": type(spark).__module__}
read = zs.read(spark, folder + "/t", where="x BETWEEN 5 AND 7", columns=["s"])
found["read"] = sorted(row.s for row in read.collect())
found["again"] = read.where("s <> '6'").count()
found["files"] = len(read.inputFiles())
found["to_spark"] = [row.s for row in table.plan("x = 9").to_spark(spark).collect()]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    found["table"] = [row.s for _ in range(2) for row in zs.table(spark, table).where("x = 3").collect()]
found["warnings"] = [str(one.message) for one in caught if "zskip" in str(one.message)]
found["sql"] = zs.sql(spark, f"SELECT count(*) AS n FROM '{folder}/t' WHERE x < 5").first().n
wrote = zs.write(spark.range(100).selectExpr("id", "id % 7 AS k"), folder + "/w", by=["id"], files=4)
found["write"] = [wrote.snapshot.totals.files, wrote.to_arrow().num_rows]
zs.register_source(spark)
found["source"] = [row.s for row in spark.read.format("zskip").load(folder + "/t").where("x = 4").collect()]
spark.stop()
print(json.dumps(found), flush=True)
"""


def test_connect(tmp_path: Path) -> None:
    environment = {
        "PYTHONPATH": str(Path(zskip.__file__).parent.parent),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", _CLIENT, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("session").startswith("pyspark.sql.connect")
    (warning,) = found.pop("warnings")
    assert "Spark Connect has no JVM at hand" in warning
    assert found == {
        "read": ["5", "6", "7"],
        "again": 2,
        "files": 1,
        "to_spark": ["9"],
        "table": ["3", "3"],
        "sql": 5,
        "write": [4, 100],
        "source": ["4"],
    }
