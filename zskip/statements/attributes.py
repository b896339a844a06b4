"""Attribute pruning: skip files of facts by conditions on their dimensions.

If a statement needs only those facts that join the filtered rows of a dimension, and the index of the facts holds the
dimension's attributes, the planner sees the facts' files under the dimension's schema: a file is skipped if the ranges
of its attributes disprove the condition.

    lineorder ⋈ customer ON lo_custkey = c_custkey WHERE c_region = 'ASIA'
    file 17: customer.c_region = EUROPE…EUROPE          none of its rows has a partner that satisfies the condition

Attributes hold for one version of the dimension. If it has changed, a file is also kept if it may hold the key of a
row in the dimension's newer files that satisfies the condition; removed rows need nothing. Attributes only skip files:
a dimension's condition says nothing about counts, minima or residuals of the facts.

After "Dimensions Based Data Clustering and Zone Maps" (Ziauddin 2017) and MTO (Ding 2021).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from zskip.core.schema import join_path
from zskip.errors import ZskipError
from zskip.language import Predicate
from zskip.plan import Survivors
from zskip.pruning import outcomes
from zskip.statements.joins import Ask, JoinedTable, JoinKeys, can_prune, cast_keys, column_of, files_with_keys
from zskip.stats import Statistics
from zskip.storage import options_for
from zskip.tablelog.dimensions import Dimension, owner_of
from zskip.tablelog.index import Index
from zskip.tablelog.log import load


class Reached(NamedTuple):
    """A dimension of facts that a statement joins by the dimension's keys. ``place``: of the dimension's table ·
    ``joins``: one for each of its keys · ``hops``: the dimensions whose columns these keys are, if not the facts'."""

    dimension: Dimension
    place: int
    joins: tuple[JoinKeys, ...]
    hops: tuple[Reached, ...]

    @property
    def chain(self) -> list[Reached]:
        """The dimension, and those over whose columns the facts reach it."""
        return [self, *(further for hop in self.hops for further in hop.chain)]


def prune_by_attributes(tables: Sequence[JoinedTable], joins: Sequence[JoinKeys], ask: Ask) -> None:
    """Skip the files of facts whose attributes disprove the conditions on the dimensions that they join."""
    facts = [number for number, table in enumerate(tables) if table.survivors.index.snapshot.dimensions]
    if not facts:
        return
    joins = closed([join for join in joins if can_prune(tables, join)])
    for number in facts:
        dimensions = tables[number].survivors.index.snapshot.dimensions
        found = reached(dimensions, joins, number)
        for one in found:
            _prune(tables[number], one, tables, ask)
        used = {number, *(one.place for one in found)}
        others = [table for place, table in enumerate(tables) if place not in used]
        tables[number].reasons.extend(dict.fromkeys(_unreached(dimensions, others)))


def closed(joins: Sequence[JoinKeys]) -> list[JoinKeys]:
    """The joins, with those that follow from equal keys: a row needs a key of b, which needs one of c."""
    found = dict.fromkeys(joins)
    pending = list(joins)
    while pending:
        one = pending.pop()
        for other in list(found):
            for left, right in ((one, other), (other, one)):
                if (left.source, left.key) == (right.place, right.column) and left.place != right.source:
                    further = right._replace(
                        place=left.place,
                        column=left.column,
                        nulls=left.nulls or right.nulls,
                        padded=left.padded or right.padded,
                        widened=left.widened or right.widened,
                    )
                    if further not in found:
                        found[further] = None
                        pending.append(further)
    return list(found)


def reached(dimensions: Sequence[Dimension], joins: Sequence[JoinKeys], facts: int) -> list[Reached]:
    """The dimensions of the facts at a place that a statement joins by all of their keys, at each of their places.

    ``dimensions``: each after those that have its keys · ``joins``: `closed`
    """
    names = {dimension.name for dimension in dimensions}
    found: list[Reached] = []
    for dimension in dimensions:
        for place in sorted({join.source for join in joins}):
            used, hops = [], []
            for key_of_facts, key in dimension.keys:
                owner, column = owner_of(key_of_facts, names)
                for hop in [None] if owner is None else [each for each in found if each.dimension.name == owner]:
                    wanted = (facts if hop is None else hop.place, column, place, key)
                    by = [join for join in joins if (join.place, join.column, join.source, join.key) == wanted]
                    if by:
                        used.append(by[0])
                        hops += [] if hop is None else [hop]
                        break
            if len(used) == len(dimension.keys):
                found.append(Reached(dimension, place, tuple(used), tuple(hops)))
    return found


def _unreached(dimensions: Sequence[Dimension], tables: Sequence[JoinedTable]) -> Iterator[str]:
    """Why conditions on dimensions in these tables skip no facts: no join has the keys, of which one may be renamed."""
    for table in tables:
        for dimension in dimensions:
            if dimension.uri == table.survivors.index.storage.uri and _attributes_read(table, dimension):
                keys = " and ".join(f"{column} = {key}" for column, key in dimension.keys)
                yield f"attributes of {table.name} are not used: zskip finds no join by {keys} that could skip files"


def _attributes_read(table: JoinedTable, dimension: Dimension) -> list[str]:
    """The attributes of a dimension that the predicate on its table reads."""
    predicate = table.survivors.predicate
    paths = frozenset() if predicate is None else predicate.columns
    return [name for name in dimension.attributes.names if join_path([name]) in paths]


def _prune(facts: JoinedTable, one: Reached, tables: Sequence[JoinedTable], ask: Ask) -> None:
    dimension, source = one.dimension, tables[one.place]
    predicate, read = source.survivors.predicate, _attributes_read(source, dimension)
    if predicate is None or not read:
        return
    retyped = dimension.retyped(source.survivors.index.snapshot.schema)
    facts.reasons += [f"attributes of {source.name} are not used: {retyped[name]}" for name in read if name in retyped]
    known = [name for name in read if name not in retyped]
    chain, null_safe = one.chain, [join for each in one.chain for join in each.joins if join.nulls]
    if null_safe and len(chain) > 1:
        facts.reasons.append(f"attributes of {source.name} are not used: a join takes NULL for equal")
        return
    if not len(facts.survivors.numbers):
        return
    versions = tuple(tables[each.place].survivors.index.identity for each in chain)
    meaning = predicate.sql() or predicate, predicate.dialect
    survivors = facts.survivors
    kept, changed = survivors.once(
        ("attributes", dimension.name, versions, meaning),
        lambda: _allowed(survivors, chain, versions, predicate, known),
    )
    kept = kept.copy()
    for each, of_other_versions in zip(chain, changed, strict=True):
        stale = _Stale(facts, each, tables[each.place], ask if len(chain) == 1 else None)
        for version, files in of_other_versions:
            if (files & ~kept).any():
                kept |= files & stale.kept(version)
    for join in null_safe:
        kept |= _may_be_null(facts, join.column)
    facts.keep_only(kept, f"attributes of {source.name}: {predicate}")


_Versioned: TypeAlias = "list[tuple[str | None, NDArray[np.bool_]]]"
"""Versions of a dimension, with flags for the files whose attributes are of each; None for unknown attributes."""


def _allowed(
    facts: Survivors,
    chain: Sequence[Reached],
    versions: Sequence[str | None],
    predicate: Predicate,
    known: Sequence[str],
) -> tuple[NDArray[np.bool_], list[_Versioned]]:
    """A flag for each file of the facts: whether its attributes allow the predicate, which is on the first of the
    chain, of which some attributes are ``known``; and for each of the chain the files with attributes of other
    versions."""
    paths = {join_path([name]): chain[0].dimension.path(name) for name in known}
    of_chain = [each.dimension.version_path for each in chain]
    units = facts.index.files_at(facts.numbers, [*paths.values(), *of_chain]).statistics
    # The files of the facts, as the dimension's planner would see them; its other columns are unknown.
    seen = {name: units.columns[path] for name, path in paths.items()}
    allowed = outcomes(predicate, Statistics(units.row_count, seen)).may_match
    changed: list[_Versioned] = []
    for path, version in zip(of_chain, versions, strict=True):
        recorded = units.columns[path].lower
        current = np.asarray(pc.fill_null(pc.equal(recorded, version), False))
        others = [] if current.all() else set(recorded.filter(pa.array(~current)).to_pylist())
        changed.append([(other, np.asarray([one == other for one in recorded.to_pylist()])) for other in others])
    return allowed, changed


class _Stale(NamedTuple):
    """Decides which files stay although their attributes disprove a condition, since the dimension has changed.

    ``ask``: for the keys in the dimension's newer files; None if these are not the keys of the facts themselves.
    """

    facts: JoinedTable
    one: Reached
    source: JoinedTable
    ask: Ask | None

    def kept(self, version: str | None) -> NDArray[np.bool_]:
        """A flag for each file of the facts, for those with attributes of this version, which is not the newest."""
        name = self.source.name
        everything = np.ones(len(self.facts.survivors.numbers), bool)
        added = None if version is None else _added_since(self.source.survivors, version)
        if added is None:
            self._explain(
                "the version of which they are is gone, or had other columns"
                if version
                else "they are of no version of it"
            )
            return everything
        if not len(added):
            return ~everything
        join = self.one.joins[0]
        answer = (
            "" if self.ask is None else self.ask(replace(self.source, survivors=added), join.key, self.facts.seconds)
        )
        if isinstance(answer, str):
            self._explain(f"{name} has changed since")
            return everything
        column = column_of(self.facts, join.column)
        keys = None if column is None else cast_keys(answer[0], column.type)
        if keys is None or column is None:
            return everything
        holding = files_with_keys(self.facts.survivors.index, column, keys.drop_null(), False, answer[1])
        return np.isin(self.facts.survivors.numbers, holding)

    def _explain(self, why: str) -> None:
        reason = f"attributes of {self.source.name} are not used for some files: {why}"
        if reason not in self.facts.reasons:
            self.facts.reasons.append(reason)


def _added_since(survivors: Survivors, version: str) -> Survivors | None:
    """The survivors among the files that a table did not have in an older version; None if that is unknown.

    A file of another format that has other deleted rows now counts as added: a restore may bring rows back.
    """
    index = survivors.index
    try:
        old = _index_at(index, version)
        # Another format may have given a name to another column since.
        if old is None or not old.snapshot.schema.arrow.equals(index.snapshot.schema.arrow, check_metadata=True):
            return None
        every = np.arange(len(old), dtype=np.int64)
        known, now = old.recorded_paths(every), index.recorded_paths(survivors.numbers)
        places = pc.index_in(now, value_set=known)
        same = np.asarray(places.is_valid())
        if index.source is not None:
            before, after = old.deletes(every).take(places), index.deletes(survivors.numbers)
            alike = pc.fill_null(pc.equal(before, after), False)
            same &= np.asarray(pc.or_(alike, pc.and_(before.is_null(), after.is_null())))
    except (ZskipError, OSError):
        return None
    return survivors.kept(~same)


def _index_at(index: Index, version: str) -> Index | None:
    """The index of the same table as `Index.identity` names it; None if that is of another table, or gone."""
    kind, _, rest = version.partition(" ")
    if kind == "zskip":
        _, number, commit_id = rest.split(" ")
        before = load(index.storage, int(number))
        return Index(index.storage, before) if before.commit_id == commit_id else None
    if kind != index.source:
        return None
    _, number, _ = rest.split(" ")
    uri = index.storage.uri
    from zskip.table_formats.locate import index_of, source_of

    source = source_of(uri, int(number), storage_options=options_for(uri, index.storage))
    old = None if source is None else index_of(source)
    return old if old is not None and old.identity == version else None


def _may_be_null(facts: JoinedTable, name: str) -> np.ndarray:
    column = facts.survivors.index.snapshot.schema.column(name)
    units = facts.survivors.index.files_at(facts.survivors.numbers, [column.path]).statistics
    return np.asarray(pc.fill_null(units.columns[column.path].has_null, True))
