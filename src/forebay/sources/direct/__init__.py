"""Readers for rows of local files that are not in the page cache.

They read many rows at a time, with direct I/O if the file system supports it.
"""
