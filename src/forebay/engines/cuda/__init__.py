"""The CUDA engine. It calls the driver only: no framework is required, and each one can be fed."""
