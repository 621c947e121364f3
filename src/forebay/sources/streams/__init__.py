"""Sources that are read in sequence: generators, ready-made batches, and operations on streams."""
