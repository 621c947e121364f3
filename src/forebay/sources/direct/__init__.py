"""Readers of local files that are not in the page cache.

They read many rows at a time, and use direct I/O if the file system supports it.
"""
