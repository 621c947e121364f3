"""Engines provide slot memory on the host or a GPU, and copy rows to it.

`forebay.core.engine` defines the protocol.
"""
