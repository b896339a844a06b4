"""zskip: needle-in-the-haystack queries over Parquet, made cheap by reading only what can match."""
