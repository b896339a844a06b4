"""Engines that read the survivors of a plan: the same functions for Arrow and DuckDB, without a base class.

``arrow``: tables and batches · ``duckdb``: relations and whole statements · ``dataset``: a pyarrow dataset. An engine
is imported on first use.
"""
