"""Modules such as `npy` and `parquet` open files of one format as a source."""
