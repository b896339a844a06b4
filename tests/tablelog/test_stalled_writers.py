"""Writers that stand still in the middle of a commit while others commit and vacuum: nothing acknowledged is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any, Literal

import pyarrow as pa
import pytest

import zskip
from tests.clouds import STORES, unavailable
from zskip import tablelog
from zskip.errors import CommitConflict, FilesRemoved, TableExists, TableNotFound, UncertainCommit
from zskip.storage import Storage, open_storage
from zskip.tablelog import log
from zskip.tablelog.snapshot import Snapshot

PLACES = ["disk", "memory", "s3"]


@pytest.fixture(scope="module")
def s3() -> Iterator[tuple[str, dict[str, Any]]]:
    if missing := unavailable("s3"):
        pytest.skip(missing)
    with STORES["s3"]() as place:
        yield place


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any] | None]:
    """The URL and the storage options of a folder where nothing is yet."""
    if request.param == "disk":
        return str(tmp_path / "table"), None
    if request.param == "memory":
        return f"memory://{tmp_path.name}/table", None
    url, options = request.getfixturevalue("s3")
    return f"{url}/{tmp_path.name}/table", options


class Stalled:
    """A storage that runs ``meanwhile`` once, before or after the first call of one of some verbs on a path that holds
    ``part``; ``filesystem`` takes no path."""

    def __init__(
        self, inner: Storage, meanwhile: Callable[[], object], *verbs: str, part: str = log.LOG, after: bool = False
    ) -> None:
        self.inner, self.meanwhile, self.verbs, self.part, self.after = inner, meanwhile, verbs, part, after
        self.stalled = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name not in self.verbs:
            return found

        def call(*given: Any, **named: Any) -> Any:
            stalls = not self.stalled and (not given or self.part in str(given[0]))
            self.stalled |= stalls
            if stalls and not self.after:
                self.meanwhile()
            answer = found(*given, **named)
            if stalls and self.after:
                self.meanwhile()
            return answer

        return call


def rows(first: int, count: int = 10) -> pa.Table:
    return pa.table({"id": list(range(first, first + count))})


def write(place: tuple[str, Any], first: int = 0, mode: Literal["error", "overwrite"] = "error") -> zskip.Table:
    return zskip.write(rows(first), place[0], by=["id"], mode=mode, storage_options=place[1])


def open_again(place: tuple[str, Any], version: int | None = None) -> zskip.Table:
    return zskip.open(place[0], version=version, storage_options=place[1])


def ids(place: tuple[str, Any], version: int | None = None) -> list[int]:
    return sorted(open_again(place, version).to_arrow().column("id").to_pylist())


def stall(
    table: zskip.Table, meanwhile: Callable[[], object], verb: str = "put_if_absent", after: bool = False
) -> None:
    """From now on this table's storage stands still once at a log entry, while ``meanwhile`` runs."""
    stalled: Any = Stalled(table._storage, meanwhile, verb, after=after)
    table._storage = stalled


def vacuum(storage: Storage, older_than: float = 0) -> None:
    """Vacuum at a time that the store's clock, which may count whole seconds, has left behind."""
    time.sleep(1.1 if storage.uri.startswith("s3") else 0.02)
    tablelog.vacuum(storage, older_than=timedelta(seconds=older_than))


def others(place: tuple[str, Any], storage: Storage | None = None) -> None:
    """Three appends by others, and a vacuum."""
    for number in range(3):
        open_again(place).append(rows(1000 + 10 * number))
    vacuum(storage or open_storage(*place))


def test_an_append_whose_number_was_vacated_is_refused_or_there(place: tuple[str, Any]) -> None:
    table = write(place)
    stall(table, lambda: others(place))
    with pytest.raises(CommitConflict, match="vacuum"):
        table.append(rows(500))
    assert ids(place) == [*range(10), *range(1000, 1030)]
    assert len(open_again(place).history()) == 1, "the entry under the vacated number is still there"
    table.append(rows(500))
    assert ids(place) == [*range(10), *range(500, 510), *range(1000, 1030)]


class KeepsFiles:
    """A storage that removes log entries only, as where the files of a writer are younger than what expires."""

    def __init__(self, inner: Storage) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def delete(self, paths: list[str]) -> None:
        self.inner.delete([path for path in paths if path.startswith(log.LOG)])


def test_an_append_whose_files_are_there_goes_on_to_the_newest_version(place: tuple[str, Any]) -> None:
    table = write(place)
    storage: Any = KeepsFiles(open_storage(*place))
    stall(table, lambda: others(place, storage=storage))
    assert table.append(rows(500)).version == 5
    assert ids(place) == [*range(10), *range(500, 510), *range(1000, 1030)]
    assert [entry.version for entry in open_again(place).history()] == [5, 4]


def test_a_first_version_under_a_vacated_number_is_refused(place: tuple[str, Any]) -> None:
    other = f"{place[0]}-2", place[1]
    base = write(other).snapshot
    storage = open_storage(*place)

    def begun() -> None:
        write(place)
        others(place)

    stalled: Any = Stalled(storage, begun, "put_if_absent")
    with pytest.raises(TableExists):
        tablelog.commit(stalled, None, "write", schema=base.schema)
    assert ids(place) == [*range(10), *range(1000, 1030)]


@pytest.mark.parametrize("commits", [1, 3, 70])
def test_a_commit_that_others_built_on_is_acknowledged(commits: int, tmp_path: Path) -> None:
    """They may have come before the writer looks at the log again, and a vacuum too."""
    place: tuple[str, Any] = (f"memory://{tmp_path.name}/table", None)
    table = write(place)

    def build_on() -> None:
        storage = open_storage(place[0])
        for _ in range(commits):
            tablelog.commit(storage, tablelog.load(storage), "append")

    stall(table, build_on, after=True)
    assert table.append(rows(500)).version == 2
    assert ids(place) == [*range(10), *range(500, 510)]
    assert open_again(place).version == 2 + commits


def test_a_commit_that_was_built_on_and_vacuumed_is_acknowledged(place: tuple[str, Any]) -> None:
    table = write(place)
    stall(table, lambda: others(place), after=True)
    assert table.append(rows(500)).version == 2
    assert ids(place) == [*range(10), *range(500, 510), *range(1000, 1030)]


def empty_commits(storage: Storage, count: int) -> Snapshot:
    newest = tablelog.load(storage)
    for _ in range(count):
        newest = tablelog.commit(storage, newest, "append")
    return newest


def test_a_number_vacated_long_ago_is_told_by_the_gap_behind_it(tmp_path: Path) -> None:
    """No entry that is left knows the commit ids of versions so far back."""
    place: tuple[str, Any] = (f"memory://{tmp_path.name}/table", None)
    table = write(place)
    storage = open_storage(place[0])
    keeps: Any = KeepsFiles(storage)

    def meanwhile() -> None:
        empty_commits(storage, 150)
        vacuum(keeps)

    stall(table, meanwhile)
    assert table.append(rows(500)).version == 152
    assert ids(place) == [*range(10), *range(500, 510)]


def test_a_commit_whose_place_no_entry_tells_any_more_is_uncertain(tmp_path: Path) -> None:
    place: tuple[str, Any] = (f"memory://{tmp_path.name}/table", None)
    table = write(place)
    storage = open_storage(place[0])

    def meanwhile() -> None:
        empty_commits(storage, 150)
        vacuum(storage)

    stall(table, meanwhile, after=True)
    with pytest.raises(UncertainCommit, match="version 2"):
        table.append(rows(500))
    assert ids(place) == [*range(10), *range(500, 510)]


def test_a_table_that_was_replaced_by_hand_is_not_taken_over(tmp_path: Path) -> None:
    """Someone removed the folder and wrote another table there: the old one's next number is free."""
    place: tuple[str, Any] = (f"memory://{tmp_path.name}/table", None)
    table = write(place)
    storage = open_storage(place[0])
    empty_commits(storage, 4)
    table.refresh()

    def replaced() -> None:
        storage.delete(storage.list("_zskip").path.to_pylist())
        write(place, 7000)

    stall(table, replaced)
    with pytest.raises(CommitConflict, match="replaced"):
        table.append(rows(500))
    assert ids(place) == list(range(7000, 7010))


def test_a_batch_that_was_taken_back_can_be_repeated(place: tuple[str, Any]) -> None:
    table = write(place)
    storage = open_storage(*place)
    stall(table, lambda: vacuum(storage), verb="put_if_absent")
    with pytest.raises(CommitConflict, match="vacuum"):
        table.append(rows(500), batch=("loader", 1))
    assert ids(place) == list(range(10))
    open_again(place).append(rows(500), batch=("loader", 1))
    assert ids(place) == [*range(10), *range(500, 510)]


@pytest.mark.parametrize("commits", [0, 2])
def test_an_append_whose_files_a_vacuum_took_is_taken_back(commits: int, place: tuple[str, Any]) -> None:
    """Others may have committed upon it before the writer looks."""
    table = write(place)
    storage = open_storage(*place)
    known = set(storage.list("").path.to_pylist())

    def meanwhile() -> None:
        fresh = [path for path in storage.list("").path.to_pylist() if path not in known and path.endswith(".parquet")]
        storage.delete(fresh)
        for number in range(commits):
            open_again(place).append(rows(1000 + 10 * number))

    stall(table, meanwhile, after=True)
    with pytest.raises(CommitConflict, match="Version 2 was taken back"):
        table.append(rows(500), batch=("loader", 1))
    assert ids(place) == [*range(10), *range(1000, 1000 + 10 * commits)]
    open_again(place).append(rows(500), batch=("loader", 1))
    assert ids(place) == [*range(10), *range(500, 510), *range(1000, 1000 + 10 * commits)]


def test_a_restored_version_that_a_vacuum_takes_meanwhile_is_refused(place: tuple[str, Any]) -> None:
    write(place)
    table = write(place, 50, mode="overwrite")
    stall(table, lambda: vacuum(open_storage(*place)))
    with pytest.raises((CommitConflict, TableNotFound), match="version 1"):
        table.restore(1)
    assert ids(place) == list(range(50, 60))


def test_what_a_vacuum_under_way_has_listed_is_not_restored(place: tuple[str, Any]) -> None:
    """A vacuum stands still between its last look at the log and the removal of what it listed."""
    write(place)
    table = write(place, 50, mode="overwrite")
    storage = open_storage(*place)
    older = tablelog.load(storage, 1)
    refused: list[CommitConflict] = []

    def restore() -> None:
        with pytest.raises(CommitConflict, match="vacuum") as caught:
            tablelog.commit(open_storage(*place), table.snapshot, "restore", restore=older)
        refused.append(caught.value)

    standing: Any = Stalled(storage, restore, "delete", part=".parquet")
    vacuum(standing)
    assert refused
    assert ids(place) == list(range(50, 60))
    assert not [name for name in storage.names(log.LOG) if name.startswith("vacuum")]


def test_a_vacuum_that_stands_still_is_heeded_after_another_one(place: tuple[str, Any]) -> None:
    """It has listed an append's files before the append made its entry, and removes them long after."""
    table = write(place)
    storage = open_storage(*place)
    listed, go_on = Event(), Event()

    def wait() -> None:
        listed.set()
        assert go_on.wait(30)

    standing: Any = Stalled(storage, wait, "delete", part=".parquet")
    first = Thread(target=vacuum, args=(standing,))

    def list_files() -> None:
        first.start()
        assert listed.wait(30)

    stall(table, list_files)
    stall(table, lambda: vacuum(open_storage(*place)), after=True)
    with pytest.raises(CommitConflict, match="a vacuum in progress"):
        table.append(rows(500))
    go_on.set()
    first.join()
    assert ids(place) == list(range(10))


def test_others_are_told_of_a_version_whose_writer_stands_still_without_its_files(place: tuple[str, Any]) -> None:
    """A vacuum that had looked for entries just before this one was made removes its files. Its writer will take it
    back, but others that met it before were told to repair the index."""
    table = write(place)
    for number in range(3):
        table.append(rows(100 + 10 * number))
    storage = open_storage(*place)
    listed, go_on = Event(), Event()
    removed: set[str] = set()
    ended: list[str] = []

    def wait() -> None:
        listed.set()
        assert go_on.wait(30)

    standing: Any = Stalled(storage, wait, "delete", part=".parquet")
    first = Thread(target=lambda: vacuum(standing, older_than=-1))

    def list_files() -> None:
        first.start()
        assert listed.wait(30)

    def remove_and_look() -> None:
        before = set(storage.list("").path.to_pylist())
        go_on.set()
        first.join()
        removed.update(before - set(storage.list("").path.to_pylist()))
        for change in (
            lambda: open_again(place).vacuum("1 day"),
            lambda: open_again(place).delete("id = 3"),
            lambda: open_again(place).optimize(full=True),
        ):
            try:
                change()
            except OSError as error:  # one that this function raised would be taken for the store's
                ended.append(f"{type(error).__name__}: {error}")
        open_again(place).restore(4)
        ended.append(str(len(ids(place))))

    stall(table, list_files)
    stall(table, remove_and_look, after=True)
    with pytest.raises(FilesRemoved, match="a vacuum removed"):
        table.append(rows(500))
    assert any(path.endswith(".stats") for path in removed)
    assert [each.partition(" (")[0][:12] for each in ended] == ["FilesRemoved"] * 3 + ["40"], ended
    assert all("version 5 cannot be read, and its writer has not finished" in each for each in ended[:3])
    assert ids(place) == [*range(10), *range(100, 130)]
    open_again(place).append(rows(700))
    assert len(ids(place)) == 50


def test_a_vacuum_keeps_what_a_writer_goes_back_to(place: tuple[str, Any]) -> None:
    """Its own files were taken before it made its entry, and another vacuum comes before it looks."""
    table = write(place)
    storage = open_storage(*place)
    known = set(storage.list("").path.to_pylist())

    def meanwhile() -> None:
        storage.delete([path for path in storage.list("").path.to_pylist() if path not in known and "/" not in path])
        with pytest.raises(TableNotFound, match=r"Version 2 .* needs 1 of"):
            vacuum(storage)

    stall(table, meanwhile, after=True)
    with pytest.raises(CommitConflict, match="Version 2 was taken back"):
        table.overwrite(rows(500))
    assert ids(place) == list(range(10))


def test_a_change_stays_where_what_it_replaced_has_expired(place: tuple[str, Any]) -> None:
    table = write(place)
    storage = open_storage(*place)

    def meanwhile() -> None:
        vacuum(storage)
        intent = {"horizon": time.time_ns() + 10**12, "kept_from": 2}
        storage.put(f"{log.LOG}/vacuum-{0:016x}.json", json.dumps(intent).encode())

    stall(table, meanwhile, after=True)
    with pytest.raises(CommitConflict, match="could not be taken back"):
        table.overwrite(rows(500))
    assert ids(place) == list(range(500, 510))


READS = ("read", "read_range", "filesystem")


@pytest.mark.parametrize("part", ["_zskip/stats/", "part-"])
@pytest.mark.parametrize("verb", ["optimize", "delete", "append", "vacuum"])
def test_a_verb_whose_version_is_vacuumed_meanwhile_says_so(verb: str, part: str, tmp_path: Path) -> None:
    """It ended in DamagedIndex, or in CorruptFile, and told to repair what is not damaged."""
    place = str(tmp_path / "table"), None
    table = write(place)
    for number in range(3):
        table.append(rows(100 * number + 100))

    def replaced() -> None:
        for _ in range(2):
            write(place, 5000, mode="overwrite")
        vacuum(open_storage(*place))

    standing: Any = Stalled(table._storage, replaced, *READS, part=part)
    table._storage = standing
    verbs: dict[str, Callable[[], object]] = {
        "optimize": lambda: table.optimize(full=True),
        "delete": lambda: table.delete("id % 2 = 0"),
        "append": lambda: table.append(rows(900)),
        "vacuum": lambda: table.vacuum("0 seconds"),
    }
    refused = ""
    try:
        verbs[verb]()
    except CommitConflict as error:
        refused = str(error)
    if standing.stalled:
        assert not refused or "a vacuum removed" in refused
        done = verb if not refused else ""
        left = range(5001, 5010, 2) if done == "delete" else range(5000, 5010)
        assert ids(place) == [*(range(900, 910) if done == "append" else ()), *left]


def test_opening_goes_on_where_the_newest_version_is_vacuumed_before_it_is_read(tmp_path: Path) -> None:
    place = str(tmp_path / "table"), None
    write(place)
    storage: Any = Stalled(open_storage(*place), lambda: others(place), *READS, part="log/000")
    assert tablelog.load(storage).version == 4
    assert storage.stalled


def test_a_vacuum_goes_on_where_the_newest_version_is_vacuumed_after_it_is_read(tmp_path: Path) -> None:
    """It ended in IndexError."""
    place = str(tmp_path / "table"), None
    write(place)
    storage: Any = Stalled(open_storage(*place), lambda: others(place), *READS, part="log/000", after=True)
    assert tablelog.vacuum(storage, older_than=timedelta(0)).version == 4
    assert storage.stalled
    assert ids(place) == [*range(10), *range(1000, 1030)]


def test_an_append_whose_own_part_a_vacuum_took_before_it_is_merged_says_so(tmp_path: Path) -> None:
    """It ended in DamagedIndex, and told to repair what is not damaged."""
    place = str(tmp_path / "table"), None
    table = write(place)
    refused = 0
    for number in range(8):
        storage = open_storage(*place)
        known = set(storage.list("_zskip/stats").path.to_pylist())

        def remove(storage: Storage = storage, known: set[str] = known) -> None:
            storage.delete([path for path in storage.list("_zskip/stats").path.to_pylist() if path not in known])

        standing: Any = Stalled(storage, remove, *READS, part="_zskip/stats/")
        table._storage = standing
        try:
            table.append(rows(100 + 10 * number))
        except FilesRemoved:
            refused += standing.stalled
    assert refused
