"""Transforms of batches: cast, scale, one_hot, map, padding and augmentations of images."""
