"""Pulled rows (the device reads them from host memory) and resident rows (in device memory)."""
