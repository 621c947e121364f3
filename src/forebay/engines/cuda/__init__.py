"""The CUDA engine, on the driver alone: no framework is needed, any may be fed."""
