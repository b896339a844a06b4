"""Whole statements on DuckDB.

``statement`` runs them. Its steps: ``parsed_statements`` and ``table_places`` (the tables in the text), ``catalog``
(which of them are zskip tables), ``stubs`` (DuckDB's plan of the statement), ``pruned_tables``
(the files that remain after all rules), ``table_queries`` (queries that the rules need), ``survivor_reads`` and
``index_rows`` (the reads that replace the tables), ``settings_guard`` (raises if a setting has changed since),
``written_names`` (the names of the result's columns).
"""

from zskip.statements.duckdb.explain_statement import explain, explain_facts
from zskip.statements.duckdb.statement import sql

__all__ = ["explain", "explain_facts", "sql"]
