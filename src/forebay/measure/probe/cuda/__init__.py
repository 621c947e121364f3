"""Measurement of a GPU's ceilings; the probe imports it only if cuda-bindings is installed."""
