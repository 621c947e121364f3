"""Copies of results from a device to the host, and a check for finite values."""
