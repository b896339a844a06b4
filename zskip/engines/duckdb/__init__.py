"""DuckDB: relations over planned files.

``native_scan``: the SQL of a scan · ``duckdb_types``: Arrow types as DuckDB reads them · ``remote_files``: files in
object stores · ``relation``: a plan as a relation · ``connection_settings``: settings that change a condition's meaning
· ``error_places``: errors that point into the user's text
"""

from zskip.engines.duckdb.relation import to_duckdb

__all__ = ["to_duckdb"]
