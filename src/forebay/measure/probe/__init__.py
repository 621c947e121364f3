"""Measurement of the ceilings of this machine: the speeds of memory, disk, GPU and its link."""
