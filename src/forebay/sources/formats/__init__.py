"""File formats: modules such as `npy` and `parquet` open one format as a source."""
