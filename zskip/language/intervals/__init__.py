"""Intervals: the values that a term may have in each unit, and interval arithmetic for functions of numbers, dates and
strings."""
