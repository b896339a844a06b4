"""Read Parquet files of any writer: their footers and types, and which of their statistics can be trusted.

``footers``: the statistics of thousands of files · ``footer_reads``: reads the ends of files · ``parsed_footers``,
``thrift``, ``batch_footers``: parse footers · ``plain_decoder``: decodes bounds · ``trust``: which statistics can be
trusted, by their writer · ``arrow_differences``: types and values that Arrow, DuckDB and Spark read differently ·
``from_rows``: statistics that footers lack
"""
