"""Slot memory and the copies into it, on the host and on CUDA devices. `forebay.core.engine` has the protocol."""
