"""The CUDA engine. It imports no framework; a hand-off provides the device memory of its slots."""
