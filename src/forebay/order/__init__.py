"""The order of rows: permutations, shuffles, chosen rows, and the schedule of batches."""
