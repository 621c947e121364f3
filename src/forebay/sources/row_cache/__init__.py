"""Rows that `Pipeline.cache()` keeps in RAM or on disk."""
