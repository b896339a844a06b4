"""`Dimension`: a table that rows were joined with when they were written, and whose attributes the index holds.

The attributes are in no data file and not in the schema that statements see. In the index they are columns named
``dimension.attribute``. A further column, ``dimension.#version``, has the version of the dimension by which a file's
attributes were computed; it is unknown where they are.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from zskip.core.schema import Schema, join_path
from zskip.errors import InvalidOption


@dataclass(frozen=True, slots=True)
class Dimension:
    """``uri``: of the dimension's table; "" if it has no versions · ``keys``: for each of the dimension's key columns,
    the column that equals it, of the rows or, as ``dimension.column``, of another dimension · ``attributes``: their
    names and types."""

    name: str
    uri: str
    keys: tuple[tuple[str, str], ...]
    attributes: pa.Schema

    @property
    def fields(self) -> list[pa.Field]:
        """The columns of the index that hold the attributes and their version."""
        fields = [pa.field(attribute_name(self.name, field.name), field.type) for field in self.attributes]
        return [*fields, pa.field(version_name(self.name), pa.string())]

    def path(self, attribute: str) -> str:
        """The path in the index of an attribute."""
        return join_path([attribute_name(self.name, attribute)])

    @property
    def version_path(self) -> str:
        """The path in the index of the version."""
        return join_path([version_name(self.name)])

    def retyped(self, now: Schema) -> dict[str, str]:
        """The attributes that have another type among the dimension's columns of today, each with a text that says so.

        A column that is no more is left out.
        """
        columns = [(field, now.columns.get(join_path([field.name]))) for field in self.attributes]
        return {
            field.name: f"{field.name} was {field.type} when the facts were written, and is {column.type}"
            for field, column in columns
            if column is not None and column.type != field.type
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "uri": self.uri,
            "keys": [list(pair) for pair in self.keys],
            "attributes": base64.b64encode(self.attributes.serialize().to_pybytes()).decode(),
        }

    @staticmethod
    def from_json(json: Mapping[str, Any]) -> Dimension:
        keys = tuple((str(column), str(key)) for column, key in json["keys"])
        attributes = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(json["attributes"], validate=True)))
        return Dimension(str(json["name"]), str(json["uri"]), keys, attributes)


def owner_of(column: str, dimensions: Collection[str]) -> tuple[str | None, str]:
    """The name of the dimension that a key is a column of, None for the rows themselves, and the column's name there.

    >>> owner_of("orders.custkey", {"orders"}), owner_of("custkey", {"orders"})
    (('orders', 'custkey'), (None, 'custkey'))
    """
    name, dot, rest = column.partition(".")
    return (name, rest) if dot and name in dimensions else (None, column)


def require_attributes(columns: Iterable[str], dimensions: Sequence[Dimension]) -> None:
    """Raise `InvalidOption` for an attribute of one of the dimensions whose ranges the table does not keep."""
    named = {each.name: each for each in dimensions}
    for column in columns:
        owner, attribute = owner_of(column, named)
        if owner is not None and attribute not in named[owner].attributes.names:
            raise InvalidOption(
                f'The table keeps no ranges of "{column}". zskip.write with joins=, this by= or workload=, and '
                'mode="overwrite" makes them.'
            )


def attribute_name(dimension: str, attribute: str) -> str:
    return f"{dimension}.{attribute}"


def version_name(dimension: str) -> str:
    return f"{dimension}.#version"


def with_attributes(schema: pa.Schema, dimensions: Sequence[Dimension]) -> pa.Schema:
    """A table's schema with the columns that the index holds for its dimensions."""
    return pa.schema([*schema, *(field for each in dimensions for field in each.fields)], metadata=schema.metadata)
