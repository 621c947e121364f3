"""Pull: the device reads rows from host memory, or from resident copies in device memory."""
