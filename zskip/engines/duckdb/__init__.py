"""DuckDB: relations over planned files, whole statements, and errors that refer to the user's text.

``native_scan``: its SQL · ``duckdb_types``: Arrow types as DuckDB reads them · ``remote_files``: files in
object stores · ``relation``: a plan as a relation · ``statement``: whole statements, by ``table_places`` (where tables
stand in the text), ``catalog`` (which of them are zskip's), ``stubs`` (DuckDB's plan of the statement),
``pruned_tables`` (what is left of each by every rule), ``table_queries`` (what tables are asked before) and
``survivor_reads`` (the reads that run); ``written_names``: the names of its columns.
"""

from zskip.engines.duckdb.explain_statement import explain, explain_facts
from zskip.engines.duckdb.relation import to_duckdb
from zskip.engines.duckdb.statement import sql

__all__ = ["explain", "explain_facts", "sql", "to_duckdb"]
