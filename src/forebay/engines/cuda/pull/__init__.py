"""Pulled rows, which the device reads from host memory, and resident rows, which are copies in device memory."""
