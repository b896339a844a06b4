"""DuckDB: relations over planned files, whole statements, and a table that prunes itself.

``native_scan``: the SQL of a native scan · ``duckdb_types``: Arrow types as DuckDB reads them · ``remote_files``: files
in object stores · ``relation``: a scan as a relation · ``statement``: whole statements · ``conjuncts``: which
conditions bind a table · ``meaning``: where a connection reads SQL otherwise than a proof.
"""

from zskip.engines.duckdb.relation import to_duckdb
from zskip.engines.duckdb.statement import sql

__all__ = ["sql", "to_duckdb"]
