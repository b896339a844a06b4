"""Spans of terms, and how they move: numbers, dates, texts, and exact numbers of more than 18 digits."""
