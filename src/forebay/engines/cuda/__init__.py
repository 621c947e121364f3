"""The CUDA engine. It calls only the CUDA driver, so it works with or without any framework."""
