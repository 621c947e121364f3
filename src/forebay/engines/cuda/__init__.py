"""The CUDA engine. It calls only the CUDA driver, so it needs no framework."""
