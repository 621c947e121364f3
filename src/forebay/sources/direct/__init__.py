"""Rows that lie in files and not in memory: read by position, many at a time, past the page cache where that wins."""
