"""DuckDB: relations over planned files.

``native_scan``: the SQL of a scan, also where the files store its rows in another form · ``duckdb_types``: Arrow types
as DuckDB reads them · ``remote_files``: files in object stores · ``relation``: a plan as a relation, and the settings
that change a condition's meaning
"""

from zskip.engines.duckdb.relation import to_duckdb

__all__ = ["to_duckdb"]
