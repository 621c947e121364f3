"""Readers of local files that are not in the page cache: many rows at a time, with direct I/O if that is faster."""
