"""Spark: tables that prune themselves, and clustered writes."""
