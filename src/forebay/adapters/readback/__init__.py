"""Copies of results from a device to the host (read-back), and a check for finite values."""
