"""A workload of whole statements over a star schema, as a layout of the facts takes it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from zskip.binder.bind import bind
from zskip.binder.workload_sql import is_query, table_query
from zskip.core.late_loading import own_duckdb
from zskip.core.schema import Schema, join_path
from zskip.errors import InvalidOption, shown
from zskip.language import Predicate, conjunction
from zskip.statements.attributes import closed, reached
from zskip.statements.conditions import conditions_of
from zskip.statements.duckdb.session import session_of
from zskip.statements.duckdb.stubs import Stub, engine_plan, make_stubs, printed_columns, stub_sql
from zskip.statements.duckdb.table_places import Place, edited, table_places
from zskip.statements.joins import join_keys
from zskip.statements.plan_tree import Node
from zskip.storage import Storage
from zskip.tablelog.dimensions import Dimension, attribute_name, require_attributes
from zskip.tablelog.snapshot import Snapshot
from zskip.writer.star import Join, in_order, joined_with, schema_of

_LOG = logging.getLogger("zskip")


def star_workload(
    queries: Sequence[str],
    joins: Sequence[Join],
    facts: str,
    schema: Schema,
    storage_options: Mapping[str, Any] | None,
) -> tuple[tuple[str, ...], tuple[Join, ...]]:
    """The queries as conditions on the facts and on the attributes of their dimensions, one for each place where a
    query reads the facts under a condition; and the joins with the attributes that these conditions read.

    A query names a dimension as ``joins`` does, or by the last part of its path; of several such roles, a table plays
    those by whose keys it is joined. ``facts``: the name of the facts in the queries, unless these name but one table
    besides the dimensions · ``schema``: the facts'. Of a query that DuckDB cannot plan over these tables, only the
    conditions on the facts are left; a predicate is returned as it is. Warnings name each table that is neither, and
    each statement whose conditions on a dimension are left out.
    """
    schemas = {join.name: schema_of(join, storage_options) for join in joins}
    star = _Star(schema, schemas, tuple(_unread(join, schemas[join.name]) for join in in_order(joins)))
    named = {_name(place) for query in queries for place in _places(query)}
    others = {name for name in named if not star.roles_of(name)}
    if len(others) == 1:
        facts = others.pop()
    for name in sorted(others - {facts.lower()}):
        _LOG.warning(
            "Statements of the workload that read %s propose no attributes: joins= has no such dimension, only %s.",
            name,
            ", ".join(schemas),
        )
    texts: list[str] = []
    read: set[str] = set()
    for query in queries:
        found = star.conditions(query, facts.lower())
        if found or is_query(query):
            texts += _texts(found) or star.own_conditions(query, facts.lower())
        else:
            found = [bind(query, star.joined)]
            texts.append(query)
        read |= {path for one in found for path in one.columns}
    return tuple(texts), tuple(
        replace(
            join,
            attributes=tuple(
                name for name in schemas[join.name].arrow.names if join_path([attribute_name(join.name, name)]) in read
            ),
        )
        for join in joins
    )


def workload_of_table(
    queries: Sequence[str], storage: Storage, snapshot: Snapshot, storage_options: Mapping[str, Any] | None
) -> tuple[str, ...]:
    """As `star_workload`, for a table with dimensions. Raises `InvalidOption` for an attribute that it lacks."""
    joins = tuple(Join.recorded(each) for each in snapshot.dimensions)
    texts, read = star_workload(queries, joins, Path(storage.uri).name, snapshot.schema, storage_options)
    columns = [attribute_name(join.name, name) for join in read for name in join.attributes]
    require_attributes(columns, snapshot.dimensions)
    return texts


def _unread(join: Join, schema: Schema) -> Dimension:
    """A dimension with all of its columns as attributes, before its rows are read."""
    address = getattr(join.source, "uri", join.source)
    uri = os.fspath(address) if isinstance(address, str | os.PathLike) else ""
    return Dimension(join.name, uri, join.keys, schema.arrow)


def _name(place: Place) -> str:
    """The name of a table, or the last part of its path, in lower case."""
    return Path(place.name).name.lower()


def _texts(conditions: Sequence[Predicate]) -> list[str]:
    """The different conditions, but for those that cannot be written as SQL."""
    return [text for text in dict.fromkeys(one.sql() for one in conditions) if text is not None]


def _places(statement: str) -> list[Place]:
    """The places of tables in a statement."""
    with own_duckdb() as con:
        return table_places(statement, con).tables


@dataclass(frozen=True)
class _Star:
    """``schema``: the facts' · ``schemas``: the dimensions', by their names · ``dimensions``: each after those that
    have its keys."""

    schema: Schema
    schemas: Mapping[str, Schema]
    dimensions: tuple[Dimension, ...]

    @cached_property
    def joined(self) -> Schema:
        """The columns of the facts, and those of the dimensions as ``dimension.column``."""
        fields = list(self.schema.arrow)
        for name, each in self.schemas.items():
            fields += [pa.field(attribute_name(name, field.name), field.type) for field in each.arrow]
        return Schema(pa.schema(fields), frozenset(name.lower() for name in self.schemas))

    def roles_of(self, name: str) -> list[Dimension]:
        """The dimensions that may have this name in a statement."""
        return [each for each in self.dimensions if name in {each.name.lower(), Path(each.uri).name.lower()} - {""}]

    def own_conditions(self, statement: str, facts: str) -> list[str]:
        """The condition on the facts' own columns that the text of a statement has; none for a dimension's columns."""
        named = {_name(place) for place in _places(statement)}

        def may_be_facts(name: str) -> bool:
            return name == facts if facts in named else not self.roles_of(name)

        query = table_query(statement, self.schema, is_table=lambda table: may_be_facts(Path(table.name).name.lower()))
        return [] if query is None else [query.condition]

    def conditions(self, statement: str, facts: str) -> list[Predicate]:
        """The conditions on the facts that a statement's plan applies, one for each place where it reads them under a
        condition. Those on dimensions are conditions on the columns ``dimension.column``."""
        import duckdb

        places = [
            (place, self.roles_of(_name(place)))
            for place in _places(statement)
            if _name(place) == facts or self.roles_of(_name(place))
        ]
        # The facts may be a dimension of their own, as employees are of employees.
        facts_places = [number for number, (place, _) in enumerate(places) if _name(place) == facts]
        schemas = [
            self.schema if number in facts_places else self.schemas[roles[0].name]
            for number, (_, roles) in enumerate(places)
        ]
        found: list[Predicate] = []
        with duckdb.connect() as con:
            con.execute("SET TimeZone = 'UTC'")  # as conditions are bound that no setting affects: they are joined

            def planned(stubs: Sequence[Stub]) -> Node | None:
                over = [(one.start, one.end, stub_sql(one, stub)) for (one, _), stub in zip(places, stubs, strict=True)]
                return engine_plan(con, edited(statement, over), stubs)

            stubs = make_stubs([each.arrow for each in schemas], statement)
            root = planned(stubs)
            if root is None:
                self._warn_of_unused([place for place, roles in places if roles and facts_places], statement)
                return []
            columns = printed_columns(root, stubs, statement)
            joins = closed(join_keys(root, columns))

            def condition(place: int, dimension: Dimension | None = None) -> Predicate | None:
                """The condition on the rows of a place; as attributes of the facts, if it is that of a dimension."""
                known = list(columns)
                if dimension is not None:
                    names = {label: attribute_name(dimension.name, one) for label, one in known[place].printed.items()}
                    known[place] = known[place]._replace(printed=names)
                scans = [scan for scan in root.scans(known) or () if scan.place == place]
                return conditions_of(scans, self.joined, lambda: session_of(con)).predicate

            used = set(facts_places)
            for number in facts_places:
                played = [
                    one for one in reached(self.dimensions, joins, number) if one.dimension in places[one.place][1]
                ]
                used |= {one.place for one in played}
                parts = [condition(number), *(condition(one.place, one.dimension) for one in played)]
                if given := [part for part in parts if part is not None]:
                    found.append(conjunction(given))
            unused = [number for number in range(len(places)) if facts_places and number not in used]
            filtered = [number for number in unused if condition(number, places[number][1][0]) is not None]
            self._warn_of_unused([places[number][0] for number in filtered], statement)
        return found

    def _warn_of_unused(self, places: Sequence[Place], statement: str) -> None:
        """Warn of the tables of dimensions whose conditions in a statement propose nothing."""
        if places:
            _LOG.warning(
                "Conditions on %s propose no attributes, as zskip finds no join by the keys of joins= in: %s",
                ", ".join(dict.fromkeys(place.name for place in places)),
                shown(statement),
            )


def with_attributes(
    queries: Sequence[str],
    rows: pa.Table,
    joins: Sequence[Join],
    facts: str,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[tuple[str, ...], pa.Table]:
    """As `star_workload`, with rows of the facts joined with the attributes."""
    schema = Schema(rows.schema)
    texts, joins = star_workload(queries, joins, facts, schema, storage_options)
    if queries and not texts:
        raise InvalidOption("No query of the workload filters on a column of the table or an attribute of a dimension.")
    star = joined_with(joins, schema, (), storage_options)
    return texts, rows if star is None else star.with_attributes(rows)
