"""Catalogs of Iceberg and logs of Delta, as the tests make and change them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog

from tests import ROOT


def new_catalog(folder: Path, name: str = "c") -> Catalog:
    """A catalog in memory, with the namespace ``n``, whose tables are in the folder."""
    catalog = load_catalog(name, type="in-memory", warehouse=f"file://{folder}")
    catalog.create_namespace("n")
    return catalog


@contextmanager
def changed_commit(commit: Path) -> Iterator[list[dict[str, Any]]]:
    """The actions of a commit of Delta; what the block leaves of them is written back."""
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    yield actions
    commit.write_text("\n".join(map(json.dumps, actions)))


def first_commit(table: Path) -> Path:
    return table / "_delta_log" / f"{0:020}.json"


@contextmanager
def not_yet_made(commits: Sequence[Path], aside: Path) -> Iterator[None]:
    """A table of Delta as it was before these commits."""
    for commit in commits:
        commit.rename(aside / commit.name)
    yield
    for commit in commits:
        (aside / commit.name).rename(commit)


def with_deletion_vectors(table: Path) -> list[Path]:
    """Make a Delta table whose deletion vectors are in files, without a checkpoint; its commits."""
    shutil.copytree(ROOT / "fixtures" / "delta" / "dv-partitioned-with-checkpoint", table)
    log = table / "_delta_log"
    (log / "_last_checkpoint").unlink()
    (log / f"{10:020}.checkpoint.parquet").unlink()
    return sorted(log.glob("*.json"))
