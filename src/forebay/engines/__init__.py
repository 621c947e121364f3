"""Engines that allocate slots and fill them, on the host or a CUDA device.

`forebay.core.engine` defines the protocol.
"""
