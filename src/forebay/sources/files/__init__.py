"""What all file formats share: mapping, many files as one row space, the chunk cache, decompression ahead."""
