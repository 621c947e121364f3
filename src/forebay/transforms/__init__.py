"""Transforms of batches: cast, scale, one_hot, map and padding."""
