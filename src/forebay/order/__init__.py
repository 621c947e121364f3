"""Which rows come next: permutations, block shuffle, and the schedule of batches."""
