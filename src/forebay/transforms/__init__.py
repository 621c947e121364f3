"""Transforms of rows and batches: cast, scale, one_hot, map and padding."""
