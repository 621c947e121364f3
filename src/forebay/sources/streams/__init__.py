"""Inputs that are read in sequence: generators, ready-made batches, and streams that wrap a stream."""
