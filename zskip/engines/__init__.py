"""Engines that read the survivors of a plan: the same functions for Arrow and DuckDB, without a base class.

``scan``: a native DuckDB scan of planned files as SQL · ``duckdb``: relations · ``statement``: whole statements ·
``arrow``: tables and batches · ``spark``: DataFrames. An engine is imported only where it is used.
"""
