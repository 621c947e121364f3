"""Measurement of a GPU. These modules need cuda-bindings and are imported only if it is installed."""
