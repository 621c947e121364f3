"""Rows that `Pipeline.cache()` keeps in RAM or on disk, and the files of index folders."""
