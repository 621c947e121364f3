"""The CUDA engine. It imports no framework; a hand-off provides device memory for slots."""
