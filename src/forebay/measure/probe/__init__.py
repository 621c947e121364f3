"""Measurement of this machine's ceilings: the speeds of memory, disk, GPU and link."""
