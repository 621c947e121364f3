"""Measurement of this machine's ceilings: memory, disk, and GPU with its link."""
