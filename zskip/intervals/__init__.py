"""Spans of terms, and the spans of functions of them: numbers, dates, strings, and decimals of more than 18 digits."""
