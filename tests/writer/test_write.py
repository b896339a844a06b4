"""Writing: every source gives the same table, every type comes back, and a failure leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zskip
from zskip.errors import InvalidOption, TableExists
from zskip.writer import write

ROWS = 20_000


@pytest.fixture(scope="module")
def points() -> pa.Table:
    generator = np.random.default_rng(7)
    return pa.table(
        {
            "id": np.arange(ROWS),
            "x": generator.integers(0, 1000, ROWS),
            "y": generator.integers(0, 1000, ROWS),
            "name": [f"n{number % 131}" for number in range(ROWS)],
            "day": pa.array((np.arange(ROWS) % 3).astype("int32")).cast(pa.date32()),
        }
    )


def test_an_existing_table_is_not_replaced_unasked(points: pa.Table, tmp_path: Path) -> None:
    zskip.write(points, tmp_path / "t", by="x", files=2)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(TableExists, match="overwrite"):
        zskip.write(points, tmp_path / "t", by="x")
    assert sorted(tmp_path.rglob("*")) == before
    table = zskip.write(points.slice(0, 100), tmp_path / "t", by="y", files=2, mode="overwrite")
    assert table._index.snapshot.totals.rows == 100
    assert zskip.write(points.slice(0, 50), tmp_path / "t", mode="append")._index.snapshot.totals.rows == 150


def test_partitions_are_folders_and_their_columns_have_statistics(points: pa.Table, tmp_path: Path) -> None:
    table = zskip.write(points, tmp_path / "t", by=["x"], files=6, partition_by=["day"])
    days = table._index.data_files().files.columns["day"]
    assert days.lower.equals(days.upper)
    assert sorted(path.name for path in (tmp_path / "t").glob("day=*")) == [
        "day=1970-01-01",
        "day=1970-01-02",
        "day=1970-01-03",
    ]
    file = next((tmp_path / "t").glob("day=1970-01-02/*.parquet"))
    assert "day" not in pq.read_schema(file).names


def test_many_folders_of_few_rows_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = pa.table({"id": range(300), "x": range(300)})
    zskip.write(rows, tmp_path / "t", by="x", partition_by="id")
    assert [record.getMessage().split(".")[0] for record in caplog.records if record.levelname == "WARNING"] == [
        "partition_by=['id'] makes 300 folders of 1 rows on average"
    ]
    caplog.clear()
    zskip.write(
        rows.set_column(0, "id", pa.array([n % 3 for n in range(300)])), tmp_path / "u", by="x", partition_by="id"
    )
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize("files", [pytest.param(1_000_000, marks=pytest.mark.slow), 999_999_999_999])
def test_there_are_no_more_files_than_rows(files: int, tmp_path: Path) -> None:
    """It hung."""
    rows = pa.table({"a": range(40)})
    for source in (rows, pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches())):
        table = zskip.write(source, tmp_path / "t", by="a", files=files, mode="overwrite")
        assert table._index.snapshot.totals.files <= 40
        assert table.plan("a >= 10").count() == 30


def test_a_folder_gives_its_value_before_a_column_of_its_files(tmp_path: Path) -> None:
    """The column became NULL: it came twice, from the file and from the folder's name."""
    lake = tmp_path / "lake"
    files = {"day=1": {"n": [1], "day": [5]}, "day=2": {"n": [2]}, "day=3": {"day": [7], "n": [3]}}
    for folder, rows in files.items():
        (lake / folder).mkdir(parents=True)
        pq.write_table(pa.table(rows), lake / folder / "a.parquet")
    with duckdb.connect() as con:
        relation = con.sql(
            "SELECT n, day FROM read_parquet($g, hive_partitioning = true) ORDER BY n", params={"g": f"{lake}/*/*"}
        )
        wanted = relation.fetchall()
    assert wanted == [(1, 1), (2, 2), (3, 3)]
    for table in (zskip.write(lake, tmp_path / "new", by="n"), zskip.index(lake)):
        found = table.to_arrow(["n", "day"]).sort_by("n").to_pylist()
        assert [(row["n"], row["day"]) for row in found] == wanted
        assert table.plan("day = 2").to_arrow()["n"].to_pylist() == [2]
    only = tmp_path / "only" / "day=1"
    only.mkdir(parents=True)
    pq.write_table(pa.table({"day": [5, 6]}), only / "a.parquet")
    assert zskip.write(only.parent, tmp_path / "days", by="day").to_arrow()["day"].to_pylist() == [1, 1]


@pytest.fixture
def little_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what a write always takes be little, so that little data exceeds a limit."""
    monkeypatch.setattr(write, "_BASE_BYTES", 1_000_000)


@pytest.mark.usefixtures("little_base")
def test_a_file_that_needs_far_more_than_the_memory_limit_is_refused(tmp_path: Path) -> None:
    rows = pa.table({"key": [7] * 10_000, "text": [f"{row:01000}" for row in range(10_000)]})
    with pytest.raises(InvalidOption, match=r"memory_limit= is 976.6 KiB, and 10,000 rows .* take .* smaller files"):
        zskip.write(rows, tmp_path / "t", by="key", files=1, memory_limit="1MB")
    assert not list(tmp_path.rglob("*.parquet"))
    assert zskip.write(rows, tmp_path / "t", by="key", files=10, memory_limit="1MB").count() == 10_000


@pytest.mark.usefixtures("little_base")
def test_a_delete_is_refused_where_a_file_needs_far_more_than_the_memory_limit(tmp_path: Path) -> None:
    """Its text repeats, so that the file is small, and only its rows tell their size."""
    rows = pa.table({"key": range(10_000), "text": [f"{row % 97:01000}" for row in range(10_000)]})
    table = zskip.write(rows, tmp_path / "t", by="key", files=1)
    for where in ("key % 100 = 3", "key IN (1, 2, 3)"):
        with pytest.raises(InvalidOption, match=r"memory_limit= is 976.6 KiB, and .* rows .* take .* smaller files"):
            table.delete(where, memory_limit="1MB")
    assert zskip.open(tmp_path / "t").count() == 10_000
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    assert table.delete("key IN (1, 2, 3)", memory_limit="200MB").rows == 3


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells the peak of a process")
def test_a_delete_keeps_to_the_memory_limit(tmp_path: Path) -> None:
    """Of a process of its own, since the peak of a process only grows."""
    random = np.random.default_rng(5)
    words = np.array([f"{word:020x}" for word in random.integers(0, 1 << 62, 500)])
    for part in range(3):
        texts = [" ".join(line) for line in words[random.integers(0, 500, (20_000, 100))]]
        rows = pa.table({"key": range(part * 20_000, part * 20_000 + 20_000), "text": texts})
        zskip.write(rows, tmp_path / "t", by="key", files=1, mode="append" if part else "error")
    code = (
        "import re, sys, zskip\n"
        "from pathlib import Path\n"
        "peak = lambda: int(re.search(r'VmHWM:\\s+(\\d+) kB', Path('/proc/self/status').read_text())[1]) * 1024\n"
        "table = zskip.open(sys.argv[1])\n"
        "table.plan('key % 1000 = 3').count()\n"
        "before = peak()\n"
        "table.delete('key % 1000 = 3', memory_limit='100MB')\n"
        "print(peak() - before)\n"
    )
    found = subprocess.run([sys.executable, "-c", code, str(tmp_path / "t")], stdout=subprocess.PIPE, check=True)
    assert int(found.stdout) < 1.5 * 100_000_000 + 60_000_000


@pytest.mark.parametrize("layout", ["linear", "auto"])
def test_small_files_that_are_made_ready_together_are_as_if_alone(layout: str, tmp_path: Path) -> None:
    """NaN in one of them takes the bounds from its own footer only, and each has its own order and statistics."""
    dice = np.random.default_rng(3)
    day = np.sort(dice.integers(0, 10, 200))
    x = np.where((day == 7) & (np.arange(200) % 3 == 0), np.nan, dice.random(200))
    name = [f"only {one}" if one % 2 else None for one in day]
    rows = pa.table({"day": day, "k": dice.integers(0, 50, 200), "x": x, "name": name, "id": np.arange(200)})

    def comparable(some: pa.Table) -> pa.Table:
        """With 2 in place of NaN: it is above all other values too, and equals itself."""
        values = some["x"].to_numpy()
        return some.set_column(some.column_names.index("x"), "x", pa.array(np.where(np.isnan(values), 2.0, values)))

    table = zskip.write(rows, tmp_path / "t", by=["k", "x"], partition_by="day", layout=layout)
    assert comparable(table.to_arrow()).sort_by("id").equals(comparable(rows))
    found = table._index.data_files()
    assert len(found) == 10
    for number, path in enumerate(found.path.to_pylist()):
        (of_day,) = {int(path.split("/")[0].removeprefix("day="))}
        own = rows.filter(pa.array(day == of_day))
        file = pq.ParquetFile(tmp_path / "t" / path)
        stored = comparable(file.read())
        assert stored.sort_by("id").equals(comparable(own).drop_columns("day"))
        if layout == "linear":
            assert stored.equals(stored.sort_by([("k", "ascending"), ("x", "ascending")]))
        assert file.metadata.row_group(0).column(1).is_stats_set == (of_day != 7)
        assert set(stored["name"].to_pylist()) == {f"only {of_day}" if of_day % 2 else None}
        for units in (found.files, found.row_groups):
            one = units.take(np.array([number]))
            assert one.row_count.to_pylist() == [own.num_rows]
            assert one.columns["x"].nan_count.to_pylist() == [int(np.isnan(own["x"].to_numpy()).sum())]
            assert one.columns["name"].null_count.to_pylist() == [own["name"].null_count]
            assert one.columns["k"].lower.to_pylist() == [min(own["k"].to_pylist())]
            assert one.columns["k"].upper.to_pylist() == [max(own["k"].to_pylist())]
