"""Whole statements on DuckDB.

``statement`` runs and explains them. Its steps: ``parsed_statements`` and ``table_places`` (the tables in the text, and
which of them are zskip tables), ``session`` (the connection's transaction, types and settings), ``stubs`` (DuckDB's
plan of the statement), ``pruned_tables`` (the files that remain after all rules) and ``survivor_reads`` (the reads that
replace the tables).
"""

from zskip.statements.duckdb.statement import explain, explain_facts, sql

__all__ = ["explain", "explain_facts", "sql"]
