"""Read Parquet files of any writer: their footers and types, and which of their statistics can be trusted.

``footers``: statistics of thousands of files, of which ``trust`` says what holds · ``from_rows``: what footers lack.
"""
