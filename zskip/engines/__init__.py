"""What reads the survivors of a plan: the same few functions for Arrow, DuckDB and Spark, and no base class.

``scan``: a native DuckDB scan of planned files as SQL · ``duckdb``: relations · ``statement``: whole statements ·
``arrow``: tables and batches · ``spark``: DataFrames. An engine is imported only where it is used.
"""
