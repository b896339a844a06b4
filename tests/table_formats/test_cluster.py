"""Delta and Iceberg tables laid out where they lie: equal rows, tighter files, one commit, refused when stale."""

from __future__ import annotations

import functools
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
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import LongType

import zskip
from tests import ROOT, one_in
from tests.table_formats.logs import Delta, Iceberg, changed_commit, commit_of, first_commit, require_same, rows
from zskip.cli.main import main
from zskip.errors import CommitConflict, ForeignTable, InvalidOption, UnsupportedFormat
from zskip.table_formats import delta as delta_format
from zskip.table_formats import iceberg as iceberg_format
from zskip.table_formats.delta import _WRITER_FEATURES

RANDOM = np.random.default_rng(3)


def shuffled(count: int = 1000) -> pa.Table:
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


@pytest.mark.parametrize(
    "made", [functools.partial(Delta, partition_by=["day"]), Iceberg], ids=["delta by day", "iceberg"]
)
def test_a_table_keeps_its_rows_and_skips_more(made: Any, tmp_path: Path) -> None:
    table = made(tmp_path, shuffled(), shuffled())
    before = table.content()
    done = table.cluster(by=["a", "b"], files=16)
    assert done.version == table.version()
    laid_out = table.files()
    assert done.files_written == len(laid_out) >= 12
    assert table.files_with("a", 500) <= len(laid_out) * 0.7
    after = table.content()
    assert rows(after) == rows(before.select(after.column_names))
    predicates = ["a = 500", "a < 10 AND b > 900", "day = 'd 1/%'", "ratio > 0.9", "ratio IS NULL"]
    require_same(table.open(), after, predicates)
    # A second call lays out only what came since.
    again = table.cluster()
    assert (again.files_rewritten, again.files_written) == (0, 0)
    table.append(shuffled())
    appended = len(table.files() - laid_out)
    assert table.cluster(dry_run=True).files_rewritten == appended
    assert table.cluster().files_rewritten == appended
    assert laid_out <= table.files()
    every = len(table.files())
    assert table.cluster(full=True).files_rewritten == every
    assert len(table.content()) == 3 * len(shuffled())


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


def laid_out(ids: list[int]) -> pa.Table:
    rows = {"k": ids, "g": [one % 7 for one in ids], "s": [{"x": str(one % 11)} for one in ids], "v": ids}
    return pa.table({name: pa.array(values) for name, values in rows.items()})


# What another program does to the columns of a table that is laid out by g, s.x and k, one change after the other; and
# the columns of its layout then. Weights and queries of the layout name columns, too.
COLUMNS_CHANGED: dict[str, list[tuple[Callable[[Any], object], list[str]]]] = {
    "names": [
        (lambda columns: columns.rename_column("g", "h"), ["h", "s.x", "k"]),
        (lambda columns: columns.add_column("n", LongType()), ["h", "s.x", "k"]),
        (lambda columns: columns.delete_column("h"), ["s.x", "k"]),
    ],
    "structs": [
        (lambda columns: columns.rename_column("s", "r"), ["g", "r.x", "k"]),
        (lambda columns: columns.rename_column("g", "v").rename_column("v", "g"), ["v", "r.x", "k"]),
        (lambda columns: columns.delete_column("r"), ["v", "k"]),
    ],
    "the key alone": [(lambda columns: columns.delete_column("g").delete_column("s"), ["k"])],
}
LAYOUT_OPTIONS: dict[str, dict[str, Any]] = {
    "workload": {"workload": ["g = 3", "s.x = '1' AND k < 3", "SELECT k FROM t WHERE g > 5 AND k > 3"]},
    "weights": {"weights": [3, 1, 1]},
    "weights by name": {"weights": {"g": 3, "s.x": 1, "k": 1}},
    "": {},
}


def require_laid_out_by(table: Delta | Iceberg, after: list[str], rows: pa.Table) -> None:
    """A table of laid_out(range(200)), whose columns have changed, is upserted into: one row is new, one replaced."""
    before, (replaced, _) = table.open().to_arrow(), rows["k"].to_pylist()
    done = table.open().upsert(rows, on="k")
    assert (done.inserted, done.updated) == (1, 1)
    expected = [row for row in before.to_pylist() if row["k"] != replaced] + rows.to_pylist()
    assert sorted(map(str, table.open().to_arrow().to_pylist())) == sorted(map(str, expected))
    assert list(table.open().clustering()) == after


@pytest.mark.parametrize(("changes", "options"), one_in(3, COLUMNS_CHANGED, LAYOUT_OPTIONS))
def test_a_layout_follows_the_columns_of_an_iceberg_table(changes: str, options: str, tmp_path: Path) -> None:
    table = Iceberg(tmp_path, laid_out([*range(200)]))
    table.cluster(by=["g", "s.x", "k"], files=8, **LAYOUT_OPTIONS[options])
    for number, (change, after) in enumerate(COLUMNS_CHANGED[changes]):
        with table.given().update_schema(allow_incompatible_changes=True) as columns:
            change(columns)
        if not number:
            assert table.cluster().files_rewritten == 0
        rows = laid_out([5 + number, 300 + number])
        held = {**dict(zip(rows.column_names, rows.columns, strict=True)), "r": rows["s"]}
        names = table.given().schema().as_arrow().names
        given = pa.table({name: held.get(name, pa.nulls(2, pa.int64())) for name in names})
        require_laid_out_by(table, after, given)
    assert table.cluster(full=True).files_rewritten >= 8
    assert list(table.open().clustering()) == after


def test_a_column_that_takes_a_dropped_ones_name_is_not_in_the_layout(tmp_path: Path) -> None:
    table = Iceberg(tmp_path, laid_out([*range(200)]))
    table.cluster(by="g", files=8)
    for change in (lambda columns: columns.delete_column("g"), lambda columns: columns.add_column("g", LongType())):
        with table.given().update_schema() as columns:
            change(columns)
    require_laid_out_by(table, [], laid_out([5, 300]).select(["k", "s", "v", "g"]))
    with pytest.raises(InvalidOption, match="the columns that it was laid out by are gone"):
        table.cluster()
    table.cluster(by="g")
    assert list(table.open().clustering()) == ["g"]


def test_the_columns_that_are_left_of_a_layout_may_weigh_nothing(tmp_path: Path) -> None:
    table = Delta(tmp_path, laid_out([*range(200)]))
    table.cluster(by=["g", "s.x", "k"], files=8, weights=[1, 0, 0])
    write_deltalake(table.path, laid_out([*range(200)]).drop_columns("g"), mode="overwrite", schema_mode="overwrite")
    require_laid_out_by(table, [], laid_out([5, 300]).drop_columns("g"))
    table.cluster()
    assert list(table.open().clustering()) == ["s.x", "k"]


COLUMNS_REPLACED: dict[str, tuple[Callable[[pa.Table], pa.Table], list[str]]] = {
    "drop": (lambda rows: rows.drop_columns("g"), ["s.x", "k"]),
    "list, which has no order": (lambda rows: rows.set_column(1, "g", pa.array([[1]] * len(rows))), ["s.x", "k"]),
    "struct": (lambda rows: rows.set_column(1, "g", rows["s"]), ["s.x", "k"]),
    "text": (lambda rows: rows.set_column(1, "g", rows["g"].cast(pa.string())), ["g", "s.x", "k"]),
    "drop all but the key": (lambda rows: rows.drop_columns(["g", "s"]), ["k"]),
}


@pytest.mark.parametrize(("change", "options"), one_in(4, COLUMNS_REPLACED, LAYOUT_OPTIONS))
def test_a_layout_follows_the_columns_of_a_delta_table(change: str, options: str, tmp_path: Path) -> None:
    columns, after = COLUMNS_REPLACED[change]
    table = Delta(tmp_path, laid_out([*range(200)]))
    table.cluster(by=["g", "s.x", "k"], files=8, **LAYOUT_OPTIONS[options])
    write_deltalake(table.path, columns(laid_out([*range(200)])), mode="overwrite", schema_mode="overwrite")
    require_laid_out_by(table, after, columns(laid_out([5, 300])))
    assert table.cluster().files_rewritten > 0
    assert list(table.open().clustering()) == after


@pytest.mark.parametrize(
    ("made", "room", "step"),
    [(Delta, delta_format, "_stats"), (Iceberg, SqlCatalog, "commit_table")],
    ids=["delta", "iceberg"],
)
def test_a_table_is_laid_out_while_others_append_to_it(
    made: Any, room: Any, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of the requests for a commit that are allowed was not made."""
    for format in (delta_format, iceberg_format):
        monkeypatch.setattr(format, "COMMIT_ATTEMPTS", 3)
    table, before, left = made(tmp_path, shuffled()), getattr(room, step), [1, 1]

    def call(*given: Any) -> Any:
        if left:
            left.pop()
            with monkeypatch.context() as patched:
                patched.setattr(room, step, before)
                table.append(shuffled(1))
        return before(*given)

    monkeypatch.setattr(room, step, call)
    assert table.cluster(by="a", files=4).files_written == 4
    assert table.open().count() == len(shuffled()) + 2


def test_a_stale_iceberg_table_is_refused(tmp_path: Path) -> None:
    table = Iceberg(tmp_path, shuffled())
    stale = table.given()
    table.delete("a < 100")
    with pytest.raises(CommitConflict):
        zskip.cluster(stale, by=["a"], files=4)
    assert min(table.content()["a"].to_pylist()) >= 100


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


def test_objects_of_libraries_are_opened_and_are_sources_and_tables_of_statements(tmp_path: Path) -> None:
    table = Delta(tmp_path, *(pa.table({"i": range(first, first + 10)}) for first in (0, 10)))
    assert zskip.open(DeltaTable(table.path, version=0)).count() == 10
    assert zskip.open(DeltaTable(table.path)).count() == 20
    table.delete("i < 5")
    now = DeltaTable(table.path)
    assert zskip.write(now, tmp_path / "new", by=["i"]).count() == 15
    assert zskip.sql("SELECT count(*) FROM t", tables={"t": now}).fetchall() == [(15,)]
    with pytest.raises(ForeignTable, match=r"zskip\.open"):
        zskip.sql(f"SELECT count(*) FROM '{table.path}/*.parquet'")


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


@pytest.mark.parametrize("spellings", [("a&b.parquet", "a%26b.parquet"), ("a%26b.parquet", "a&b.parquet")])
def test_a_file_under_two_spellings_is_two_files_as_for_deltalake(spellings: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "d"
    write_deltalake(path, pa.table({"a": range(10)}))
    with changed_commit(first_commit(path)) as actions:
        (added,) = [action["add"] for action in actions if "add" in action]
        (path / added["path"]).rename(path / "a&b.parquet")
        added["path"] = spellings[0]
    opened = zskip.open(path)
    assert opened.count() == 10
    commit_of(path, 1).write_text(json.dumps({"add": added | {"path": spellings[1]}}))
    opened.refresh()
    assert opened.count() == opened.to_arrow().num_rows == DeltaTable(path).to_pyarrow_table().num_rows == 20
    with pytest.raises(UnsupportedFormat, match=r'spells the path of a file "a%26b.parquet"'):
        zskip.cluster(path, by="a")


@pytest.mark.parametrize(
    ("spelled", "folder", "taken"),
    [
        ("h=straße", "h=straße", False),
        ("p%3D1", "p=1", False),
        ("h=stra%C3%9Fe", "h=straße", True),
        ("p=1", "p=1", True),
    ],
)
def test_a_file_that_deltalake_would_not_remove_is_not_replaced(
    spelled: str, folder: str, taken: bool, tmp_path: Path
) -> None:
    """deltalake spells the paths that it removes in its own way, and finds no file under another spelling."""
    path = tmp_path / "d"
    write_deltalake(path, pa.table({"a": range(10)}))
    with changed_commit(first_commit(path)) as actions:
        (added,) = [action["add"] for action in actions if "add" in action]
        (path / folder).mkdir()
        (path / added["path"]).rename(path / folder / "x.parquet")
        added["path"] = f"{spelled}/x.parquet"
    changes: list[Callable[[], object]] = [
        lambda: zskip.cluster(path, by="a"),
        lambda: zskip.open(path).upsert(pa.table({"a": [3, 4]}), on="a"),
    ]
    for change in changes:
        if taken:
            change()
        else:
            with pytest.raises(UnsupportedFormat, match="spells the path"):
                change()
        assert sorted(DeltaTable(path).to_pyarrow_table()["a"].to_pylist()) == list(range(10))
    # What another program removes in its own spelling is still there for all readers.
    opened = zskip.open(path)
    DeltaTable(path).delete("a = 5")
    opened.refresh()
    assert opened.count() == DeltaTable(path).to_pyarrow_table().num_rows


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
ROWS = pa.table({"a": DICE.integers(0, 1000, 2000), "b": DICE.integers(0, 1000, 2000)})
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
    for start in range(0, 2000, 500):
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
    for start in range(0, 2000, 500):
        table.append(ROWS.slice(start, 500))
    advice = zskip.open(table).advise(WORKLOAD)
    require_useful(advice)
    assert advice.command.startswith("zskip write ")
