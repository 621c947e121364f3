"""The order of rows: permutations, block shuffle, chosen and sampled rows, and the schedule of batches."""
