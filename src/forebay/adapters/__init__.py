"""Connections to frameworks: hand-offs, uploads, read-back, Keras, loaders, monitoring and Ray Datasets."""
