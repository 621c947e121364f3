"""Measuring a GPU; the files here need cuda-bindings and are imported only where it is installed."""
