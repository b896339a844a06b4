"""Delta and Iceberg tables laid out where they lie: equal rows, tighter files, one commit, refused when stale."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog
from pyiceberg.types import LongType

import zskip
from tests import ROOT, one_in
from tests.table_formats.logs import changed_commit, first_commit, require_same, rows
from zskip.cli.main import main
from zskip.errors import CommitConflict, ForeignTable, InvalidOption, UnsupportedFormat
from zskip.table_formats import delta as delta_format
from zskip.table_formats.delta import _WRITER_FEATURES

RANDOM = np.random.default_rng(3)


def shuffled(count: int = 4000) -> pa.Table:
    return pa.table(
        {
            "a": RANDOM.integers(0, 1000, count),
            "b": RANDOM.integers(0, 1000, count),
            "day": pa.array([f"d {n}/%" for n in RANDOM.integers(0, 3, count)]),
            "ratio": pa.array(
                [None if n < 0.1 else float("nan") if n < 0.2 else n for n in RANDOM.random(count)], pa.float64()
            ),
        }
    )


def delta(path: Path, partition_by: list[str] | None = None) -> Path:
    for _ in range(2):
        write_deltalake(path, shuffled(), mode="append", partition_by=partition_by)
    return path


def skipped(path: Path, predicate: str) -> float:
    return zskip.open(path).plan(predicate).skipped.files.part


@pytest.mark.parametrize("partition_by", [None, ["day"]], ids=["plain", "by day"])
def test_a_delta_table_keeps_its_rows_and_skips_more(tmp_path: Path, partition_by: list[str] | None) -> None:
    path = delta(tmp_path / "t", partition_by)
    before, version = pa.table(DeltaTable(path).scan()), DeltaTable(path).version()
    done = zskip.cluster(path, by=["a", "b"], files=16)
    table = DeltaTable(path)
    assert done.version == table.version() == version + 1
    assert done.files_written == len(table.file_uris()) >= 12
    after = pa.table(table.scan())
    assert rows(after) == rows(before.select(after.column_names))
    predicates = ["a = 500", "a < 10 AND b > 900", "day = 'd 1/%'", "ratio > 0.9", "ratio IS NULL"]
    require_same(zskip.open(path), after, predicates)
    read = pa.table(DeltaTable(path).get_add_actions(flatten=True))
    held = [a <= 500 <= b for a, b in zip(read["min.a"].to_pylist(), read["max.a"].to_pylist(), strict=True)]
    assert sum(held) <= len(held) * 0.7


def test_a_second_call_lays_out_only_what_came_since(tmp_path: Path) -> None:
    path = delta(tmp_path / "t")
    zskip.cluster(path, by=["a", "b"], files=8)
    again = zskip.cluster(path)
    assert (again.files_rewritten, again.files_written) == (0, 0)
    laid_out = set(DeltaTable(path).file_uris())
    write_deltalake(path, shuffled(), mode="append")
    assert zskip.cluster(path, dry_run=True).files_rewritten == 1
    assert zskip.cluster(path).files_rewritten == 1
    assert laid_out <= set(DeltaTable(path).file_uris())
    assert zskip.cluster(path, full=True).files_rewritten == len(laid_out) + len(
        set(DeltaTable(path, version=DeltaTable(path).version() - 1).file_uris()) - laid_out
    )
    assert len(pa.table(DeltaTable(path).scan())) == 12_000


@pytest.mark.parametrize("name", ["data-reader-escaped-chars", "basic-with-inserts-deletes-checkpoint"])
def test_a_table_of_another_writer_is_laid_out(tmp_path: Path, name: str) -> None:
    path = shutil.copytree(ROOT / "fixtures" / "delta" / name, tmp_path / name)
    before = pa.table(DeltaTable(path).scan())
    zskip.cluster(path, by=before.column_names[0], files=2)
    after = pa.table(DeltaTable(path).scan())
    assert rows(after) == rows(before.select(after.column_names))


def test_deletion_vectors_and_mapped_columns_are_refused() -> None:
    folder = ROOT / "fixtures" / "delta"
    with pytest.raises(UnsupportedFormat, match="deletion vectors"):
        zskip.cluster(folder / "dv-partitioned-with-checkpoint", by="col1")
    with pytest.raises(UnsupportedFormat, match="columnMapping"):
        zskip.cluster(folder / "data-reader-timestamp_ntz-name-mode", by="id")


def test_columns_that_are_mapped_to_their_own_names_are_refused(tmp_path: Path) -> None:
    """Until a column is renamed, only the table's properties and its writer version tell."""
    write_deltalake(tmp_path, shuffled())
    with changed_commit(first_commit(tmp_path)) as actions:
        next(action for action in actions if "protocol" in action)["protocol"] = {
            "minReaderVersion": 2,
            "minWriterVersion": 5,
        }
        metadata = next(action["metaData"] for action in actions if "metaData" in action)
        schema = json.loads(metadata["schemaString"])
        for number, field in enumerate(schema["fields"], 1):
            field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
        most = str(len(schema["fields"]))
        mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": most}
        metadata |= {"schemaString": json.dumps(schema), "configuration": mapping}
    with pytest.raises(UnsupportedFormat, match="columnMapping"):
        zskip.cluster(tmp_path, by="a")
    with pytest.raises(UnsupportedFormat, match="columnMapping"):
        zskip.open(tmp_path).upsert(shuffled(1), on="a")


def test_an_iceberg_table_keeps_its_rows_and_skips_more(catalog: Catalog) -> None:
    table = catalog.create_table("n.t", schema=shuffled(1).schema)
    for _ in range(2):
        table.append(shuffled())
    before = table.scan().to_arrow()
    done = zskip.cluster(table, by=["a", "b"], files=16)
    table = catalog.load_table("n.t")
    assert done.files_written == len(list(table.scan().plan_files())) == 16
    assert rows(table.scan().to_arrow()) == rows(before)
    assert len(list(table.scan(row_filter="a = 500").plan_files())) <= 8
    require_same(zskip.open(table), before, ["a = 500", "ratio > 0.9", "day IS NULL"])
    assert zskip.cluster(table).files_rewritten == 0
    table.append(shuffled())
    assert zskip.cluster(catalog.load_table("n.t")).files_rewritten == 1


def laid_out(ids: list[int]) -> pa.Table:
    rows = {"k": ids, "g": [one % 7 for one in ids], "s": [{"x": str(one % 11)} for one in ids], "v": ids}
    return pa.table({name: pa.array(values) for name, values in rows.items()})


# What another program does to the columns of a table that is laid out by g, s.x and k; and the columns of its layout
# then. Weights and queries of the layout name columns, too.
COLUMNS_CHANGED: dict[str, tuple[Callable[[Any], object], list[str]]] = {
    "drop": (lambda columns: columns.delete_column("g"), ["s.x", "k"]),
    "rename": (lambda columns: columns.rename_column("g", "h"), ["h", "s.x", "k"]),
    "rename a struct": (lambda columns: columns.rename_column("s", "r"), ["g", "r.x", "k"]),
    "swap names": (lambda columns: columns.rename_column("g", "v").rename_column("v", "g"), ["v", "s.x", "k"]),
    "drop a struct": (lambda columns: columns.delete_column("s"), ["g", "k"]),
    "drop all but the key": (lambda columns: columns.delete_column("g").delete_column("s"), ["k"]),
    "add": (lambda columns: columns.add_column("n", LongType()), ["g", "s.x", "k"]),
}
LAYOUT_OPTIONS: dict[str, dict[str, Any]] = {
    "": {},
    "weights by name": {"weights": {"g": 3, "s.x": 1, "k": 1}},
    "weights": {"weights": [3, 1, 1]},
    "workload": {"workload": ["g = 3", "s.x = '1' AND k < 3", "SELECT k FROM t WHERE g > 5 AND k > 3"]},
}


def require_laid_out_by(open: Callable[[], zskip.Table], after: list[str], rows: pa.Table) -> None:
    """A table of laid_out(range(200)), whose columns have changed, is upserted into."""
    before = open().to_arrow()
    done = open().upsert(rows, on="k")
    assert (done.inserted, done.updated) == (1, 1)
    expected = [row for row in before.to_pylist() if row["k"] != 5] + rows.to_pylist()
    assert sorted(map(str, open().to_arrow().to_pylist())) == sorted(map(str, expected))
    assert list(open().clustering()) == after


@pytest.mark.parametrize(("change", "options"), one_in(3, COLUMNS_CHANGED, LAYOUT_OPTIONS))
def test_a_layout_follows_the_columns_of_an_iceberg_table(change: str, options: str, catalog: Catalog) -> None:
    table = catalog.create_table("n.t", schema=laid_out([1]).schema)
    table.append(laid_out([*range(200)]))
    zskip.cluster(table, by=["g", "s.x", "k"], files=8, **LAYOUT_OPTIONS[options])
    changed, after = COLUMNS_CHANGED[change]
    with catalog.load_table("n.t").update_schema(allow_incompatible_changes=True) as columns:
        changed(columns)
    names = catalog.load_table("n.t").schema().as_arrow().names
    assert zskip.cluster(catalog.load_table("n.t")).files_rewritten == 0
    rows = laid_out([5, 300])
    given = pa.table({name: rows[name] if name in rows.column_names else pa.nulls(2, pa.int64()) for name in names})
    if "r" in names:
        given = given.set_column(names.index("r"), "r", rows["s"])
    require_laid_out_by(lambda: zskip.open(catalog.load_table("n.t")), after, given)
    assert zskip.cluster(catalog.load_table("n.t"), full=True).files_rewritten >= 8
    assert list(zskip.open(catalog.load_table("n.t")).clustering()) == after


def test_a_column_that_takes_a_dropped_ones_name_is_not_in_the_layout(catalog: Catalog) -> None:
    table = catalog.create_table("n.t", schema=laid_out([1]).schema)
    table.append(laid_out([*range(200)]))
    zskip.cluster(table, by="g", files=8)
    for change in (lambda columns: columns.delete_column("g"), lambda columns: columns.add_column("g", LongType())):
        with catalog.load_table("n.t").update_schema() as columns:
            change(columns)
    require_laid_out_by(
        lambda: zskip.open(catalog.load_table("n.t")), [], laid_out([5, 300]).select(["k", "s", "v", "g"])
    )
    with pytest.raises(InvalidOption, match="the columns that it was laid out by are gone"):
        zskip.cluster(catalog.load_table("n.t"))
    zskip.cluster(catalog.load_table("n.t"), by="g")
    assert list(zskip.open(catalog.load_table("n.t")).clustering()) == ["g"]


def test_the_columns_that_are_left_of_a_layout_may_weigh_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, laid_out([*range(200)]))
    zskip.cluster(path, by=["g", "s.x", "k"], files=8, weights=[1, 0, 0])
    write_deltalake(path, laid_out([*range(200)]).drop_columns("g"), mode="overwrite", schema_mode="overwrite")
    require_laid_out_by(lambda: zskip.open(path), [], laid_out([5, 300]).drop_columns("g"))
    zskip.cluster(path)
    assert list(zskip.open(path).clustering()) == ["s.x", "k"]


COLUMNS_REPLACED: dict[str, tuple[Callable[[pa.Table], pa.Table], list[str]]] = {
    "drop": (lambda rows: rows.drop_columns("g"), ["s.x", "k"]),
    "list, which has no order": (lambda rows: rows.set_column(1, "g", pa.array([[1]] * len(rows))), ["s.x", "k"]),
    "struct": (lambda rows: rows.set_column(1, "g", rows["s"]), ["s.x", "k"]),
    "text": (lambda rows: rows.set_column(1, "g", rows["g"].cast(pa.string())), ["g", "s.x", "k"]),
    "drop all but the key": (lambda rows: rows.drop_columns(["g", "s"]), ["k"]),
}


@pytest.mark.parametrize(("change", "options"), one_in(3, COLUMNS_REPLACED, LAYOUT_OPTIONS))
def test_a_layout_follows_the_columns_of_a_delta_table(change: str, options: str, tmp_path: Path) -> None:
    columns, after = COLUMNS_REPLACED[change]
    path = tmp_path / "t"
    write_deltalake(path, laid_out([*range(200)]))
    zskip.cluster(path, by=["g", "s.x", "k"], files=8, **LAYOUT_OPTIONS[options])
    write_deltalake(path, columns(laid_out([*range(200)])), mode="overwrite", schema_mode="overwrite")
    require_laid_out_by(lambda: zskip.open(path), after, columns(laid_out([5, 300])))
    assert zskip.cluster(path).files_rewritten > 0
    assert list(zskip.open(path).clustering()) == after


def test_a_table_is_laid_out_while_others_append_to_it(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenth request for the commit was not made."""
    catalog.create_table("n.t", schema=shuffled(1).schema).append(shuffled())
    delta(tmp_path / "t")
    commit, bounds = catalog.commit_table, delta_format._stats

    def meanwhile(append: Callable[[pa.Table], object], before: Callable[..., Any]) -> Callable[..., Any]:
        left = iter(range(9))

        def call(*given: Any) -> Any:
            if next(left, None) is not None:
                append(shuffled(1))
            return before(*given)

        return call

    loaded = catalog.load_table("n.t")

    def append_to_iceberg(rows: pa.Table) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(catalog, "commit_table", commit)
            catalog.load_table("n.t").append(rows)

    monkeypatch.setattr(catalog, "commit_table", meanwhile(append_to_iceberg, commit))
    monkeypatch.setattr(
        delta_format,
        "_stats",
        meanwhile(lambda rows: write_deltalake(tmp_path / "t", rows, mode="append"), bounds),
    )
    assert zskip.cluster(loaded, by="a", files=4).files_written == 4
    assert zskip.open(catalog.load_table("n.t")).count() == 4009
    assert zskip.cluster(tmp_path / "t", by="a", files=4).files_written == 4
    assert zskip.open(tmp_path / "t").count() == 8009


def test_a_stale_iceberg_table_is_refused(catalog: Catalog) -> None:
    table = catalog.create_table("n.t", schema=shuffled(1).schema)
    table.append(shuffled())
    stale = catalog.load_table("n.t")
    table.delete("a < 100")
    with pytest.raises(CommitConflict):
        zskip.cluster(stale, by=["a"], files=4)
    assert not any(value < 100 for value in catalog.load_table("n.t").scan().to_arrow()["a"].to_pylist())


def test_an_iceberg_table_without_its_catalog_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("n.t", schema=shuffled(1).schema).append(shuffled(10))
    with pytest.raises(UnsupportedFormat, match="load_table"):
        zskip.cluster(tmp_path / "n" / "t", by=["a"])


def test_bounds_of_rare_letters_keep_their_rows(tmp_path: Path) -> None:
    """U+20BB7 stands in names; deltalake misreads it where JSON escapes it as two halves."""
    names = [f"{letter}{number}" for letter in ("\U00020bb7", "a", "\U0010ffff") for number in range(20)]
    write_deltalake(tmp_path, pa.table({"s": names, "i": range(60)}))
    zskip.cluster(tmp_path, by=["i"], files=2)
    for name in ("\U00020bb77", "\U0010ffff3"):
        assert zskip.open(tmp_path).plan("s = ?", params=[name]).count() == 1
        read = DeltaTable(tmp_path).to_pyarrow_table(filters=[("s", "=", name)])
        assert read.column("s").to_pylist() == [name]


def test_an_object_is_opened_at_its_version(tmp_path: Path) -> None:
    for first in (0, 10):
        write_deltalake(tmp_path, pa.table({"i": range(first, first + 10)}), mode="append")
    assert zskip.open(DeltaTable(tmp_path, version=0)).count() == 10
    assert zskip.open(DeltaTable(tmp_path)).count() == 20


def test_files_by_name_in_a_statement_are_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"i": range(10)}))
    DeltaTable(tmp_path).delete("i < 5")
    with pytest.raises(ForeignTable, match=r"zskip\.open"):
        zskip.sql(f"SELECT count(*) FROM '{tmp_path}/*.parquet'")


def test_objects_of_libraries_are_sources_and_tables_of_statements(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "d", pa.table({"i": range(10)}))
    table = DeltaTable(tmp_path / "d")
    table.delete("i < 5")
    assert zskip.write(table, tmp_path / "new", by=["i"]).count() == 5
    assert zskip.sql("SELECT count(*) FROM t", tables={"t": table}).fetchall() == [(5,)]


def with_writer_feature(path: Path, feature: str) -> None:
    """A Delta table whose protocol asks one feature of its writers."""
    write_deltalake(path, pa.table({"id": pa.array(range(20), pa.int64())}))
    reads = feature in ("deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck")
    versions = {"minReaderVersion": 3 if reads else 1, "minWriterVersion": 7, "writerFeatures": [feature]}
    with changed_commit(first_commit(path)) as actions:
        protocol = versions | ({"readerFeatures": [feature]} if reads else {})
        next(action for action in actions if "protocol" in action)["protocol"] = protocol


@pytest.mark.parametrize("feature", sorted(_WRITER_FEATURES))
def test_deltalake_commits_to_tables_of_each_feature(feature: str, tmp_path: Path) -> None:
    with_writer_feature(tmp_path / "t", feature)
    assert zskip.cluster(tmp_path / "t", by=["id"], files=2).files_written == 2
    require_same(zskip.open(tmp_path / "t"), pa.table(DeltaTable(tmp_path / "t").scan()))


@pytest.mark.parametrize(
    "feature", ["clustering", "domainMetadata", "identityColumns", "inCommitTimestamp", "vacuumProtocolCheck"]
)
def test_a_feature_that_deltalake_cannot_write_is_refused_before_a_file_is_written(
    feature: str, tmp_path: Path
) -> None:
    """It was reported as a conflict with another writer, after five attempts."""
    with_writer_feature(tmp_path / "t", feature)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UnsupportedFormat, match=f'"{feature}"'):
        zskip.cluster(tmp_path / "t", by=["id"], files=2)
    assert sorted(tmp_path.rglob("*")) == before


# --- advice on Delta and Iceberg tables counts live rows alone, and its command can be run as it is printed ---


DICE = np.random.default_rng(8)
ROWS = pa.table({"a": DICE.integers(0, 1000, 4000), "b": DICE.integers(0, 1000, 4000)})
WORKLOAD = [f"a = {number}" for number in range(500, 1000, 50)]


def require_useful(advice: zskip.advisor.Advice) -> None:
    assert advice.candidates[0].by == ("a",)
    assert advice.today is not None
    assert advice.candidates[0].read < advice.today / 2
    assert [group.verdict for group in advice.groups] == ["better"]


def test_a_delta_table_is_laid_out_by_the_command_of_its_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, queries = str(tmp_path / "t"), tmp_path / "queries.sql"
    for start in range(0, 4000, 500):
        write_deltalake(path, ROWS.slice(start, 500), mode="append")
    DeltaTable(path).delete("a < 500")
    queries.write_text(";\n".join(WORKLOAD), encoding="utf-8")
    table = zskip.open(path)
    live = ROWS.filter(pa.compute.greater_equal(ROWS["a"], 500))
    assert table.count() == live.num_rows
    advice = zskip.advise(path, queries, files=8)
    require_useful(advice)
    for command in (advice.command, advice.bench_command):
        assert main(shlex.split(command)[1:]) == 0, capsys.readouterr().err
    assert "READS MORE" not in capsys.readouterr().out
    after = zskip.open(path)
    plan = after.plan("a = 700")
    assert len(plan.paths) == 1
    assert plan.skipped.files.part == 7
    assert sorted(after.to_arrow()["a"].to_pylist()) == sorted(live["a"].to_pylist())


def test_an_iceberg_table_is_advised_on(catalog: Catalog) -> None:
    table = catalog.create_table("n.t", schema=ROWS.schema)
    for start in range(0, 4000, 500):
        table.append(ROWS.slice(start, 500))
    advice = zskip.open(table).advise(WORKLOAD)
    require_useful(advice)
    assert advice.command.startswith("zskip write ")
