"""The order of rows: permutations, block shuffle, and the schedule of batches."""
