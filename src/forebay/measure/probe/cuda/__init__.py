"""Measurement of the ceilings of a GPU. The probe imports these modules only if cuda-bindings is installed."""
