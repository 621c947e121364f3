"""What file formats share: mapping, many files as one source, chunked columns, decompression in advance."""
