"""Code that file formats share: mapping, many files as one source, chunked columns, prefetch."""
