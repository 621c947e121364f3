"""Engines: memory of slots, and copies, on the host or on a CUDA device.

`forebay.core.engine` defines the protocol.
"""
